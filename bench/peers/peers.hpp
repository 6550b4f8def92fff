#pragma once
// Each peer adds its benches, and offers itself for the replay, from a file of its own.

#include "subject.hpp"

#include <string>

namespace bench {

void add_weir();
void add_sources();
void add_cub();
void add_thrust();
[[gnu::visibility("default")]] void add_rmm();
void add_host_allocators();
void add_floors();

void offer_weir(subject_list& list);
void offer_others(subject_list& list);
/// A stack from text; throws what `weir::parse` throws.
void offer_text(subject_list& list, std::string const& text);
[[gnu::visibility("default")]] void offer_rmm(subject_list& list);

}  // namespace bench
