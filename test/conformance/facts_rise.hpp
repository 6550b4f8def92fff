#pragma once
// Whether the facts about a source's memory rise through an adaptor on it.

#include <weir/core/recipe.hpp>
#include <weir/core/resource.hpp>
#include <weir/sources/async.hpp>
#include <weir/sources/host.hpp>
#include <weir/sources/pinned.hpp>

#include <utility>

namespace weir::laws {

template <class Adaptor>
constexpr bool facts_rise = device_accessible<made_by<decltype(async{} | std::declval<Adaptor>())>> &&
                            !host_accessible<made_by<decltype(async{} | std::declval<Adaptor>())>> &&
                            device_accessible<made_by<decltype(pinned{} | std::declval<Adaptor>())>> &&
                            host_accessible<made_by<decltype(pinned{} | std::declval<Adaptor>())>> &&
                            !device_accessible<made_by<decltype(host{} | std::declval<Adaptor>())>> &&
                            host_accessible<made_by<decltype(host{} | std::declval<Adaptor>())>> &&
                            host_ordered<made_by<decltype(async{} | std::declval<Adaptor>())>>;

}  // namespace weir::laws
