#pragma once
// `weir::parse` for tests that only need a stack from text: compiled once, in `parsed.cpp`, which the build and
// `mutants/run.py` link to each program whose source includes this. Every adaptor on an erased stack takes seconds.

#include <weir/core/any_resource.hpp>
#include <weir/tools/parse.hpp>

#include <string_view>

namespace weir {

extern template any_resource parse<any_resource>(std::string_view text);
extern template basic_any_resource<false, false> parse<basic_any_resource<false, false>>(std::string_view text);

}  // namespace weir
