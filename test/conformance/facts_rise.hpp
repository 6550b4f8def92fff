#pragma once
// Whether the facts about a source's memory rise through an adaptor on it.

#include <weir/core/recipe.hpp>
#include <weir/core/resource.hpp>
#include <weir/sources/async.hpp>
#include <weir/sources/host.hpp>
#include <weir/sources/pinned.hpp>

namespace weir::laws {

template <class Adaptor>
constexpr bool facts_rise =
    device_accessible<made_by<decltype(async{} | Adaptor{})>> &&
    !host_accessible<made_by<decltype(async{} | Adaptor{})>> &&
    device_accessible<made_by<decltype(pinned{} | Adaptor{})>> &&
    host_accessible<made_by<decltype(pinned{} | Adaptor{})>> &&
    !device_accessible<made_by<decltype(host{} | Adaptor{})>> &&
    host_accessible<made_by<decltype(host{} | Adaptor{})>> && host_ordered<made_by<decltype(async{} | Adaptor{})>>;

}  // namespace weir::laws
