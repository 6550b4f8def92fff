#pragma once
// Each peer adds its benches, and offers itself for the replay, from a file of its own.

#include "subject.hpp"

namespace bench {

void add_weir();
void add_sources();
void add_cub();
void add_thrust();
[[gnu::visibility("default")]] void add_rmm();
void add_host_allocators();
void add_nothing();

void offer_weir(subject_list& list);
void offer_others(subject_list& list);
[[gnu::visibility("default")]] void offer_rmm(subject_list& list);

}  // namespace bench
