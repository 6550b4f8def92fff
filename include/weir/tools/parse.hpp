#pragma once
// Makes a stack from text, for tools and services that are configured.

#include <weir/adaptors/arena.hpp>
#include <weir/adaptors/binning.hpp>
#include <weir/adaptors/fixed_size.hpp>
#include <weir/adaptors/limit.hpp>
#include <weir/adaptors/logging.hpp>
#include <weir/adaptors/pool.hpp>
#include <weir/adaptors/statistics.hpp>
#include <weir/core/any_resource.hpp>
#include <weir/sources/async.hpp>
#include <weir/sources/device.hpp>
#include <weir/sources/host.hpp>
#include <weir/sources/managed.hpp>
#include <weir/sources/pinned.hpp>
#include <weir/tools/config_text.hpp>

#include <concepts>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace weir {
namespace detail {

/// Runs `make` for one layer; options that it refuses become an error at the layer's column.
template <class F>
auto made_from(config_layer& layer, F make) {
  layer.finish();
  try {
    return make();
  } catch (config_error const&) {
    throw;
  } catch (std::invalid_argument const& refused) {
    std::string_view const what = refused.what();
    layer.fail(std::string(what.substr(what.starts_with("weir: ") ? 6 : 0)));  // the error begins with that itself
  }
}

inline void take_streams(config_layer& layer, stream_lifetime& streams, when_pending& pending, bool& synchronize) {
  layer.take("streams", streams, "may_end", stream_lifetime::may_end, "outlives_pool", stream_lifetime::outlives_pool);
  layer.take("pending", pending, "grow", when_pending::grow, "wait", when_pending::wait);
  layer.take("synchronize", synchronize);
}

/// One adaptor over what is there; the kind of memory stays.
template <class Any>
Any add_layer(Any const& upstream, config_layer& layer) {
  using place = config_layer::place;
  if (layer.name() == "pool") {
    pool o;
    layer.take("initial", o.initial_bytes);
    layer.take("max", o.max_bytes, place::first);
    layer.take("growth", o.growth_bytes);
    layer.take("max_split", o.max_split_bytes);
    layer.take("release_threshold", o.release_threshold);
    take_streams(layer, o.streams, o.pending, o.synchronize);
    return made_from(layer, [&] { return Any(upstream | o); });
  }
  if (layer.name() == "arena") {
    arena o;
    layer.take("max", o.max_bytes, place::first);
    layer.take("growth", o.growth_bytes);
    layer.take("per", o.per, "thread", arena::owner::thread, "stream", arena::owner::stream);
    layer.take_whole("max_arenas", o.max_arenas);
    take_streams(layer, o.streams, o.pending, o.synchronize);
    return made_from(layer, [&] { return Any(upstream | o); });
  }
  if (layer.name() == "fixed_size") {
    fixed_size o;
    layer.take("block", o.block_bytes, place::first);
    layer.take_whole("blocks_per_chunk", o.blocks_per_chunk);
    layer.take("max", o.max_bytes);
    take_streams(layer, o.streams, o.pending, o.synchronize);
    return made_from(layer, [&] { return Any(upstream | o); });
  }
  if (layer.name() == "binning") {
    unsigned least = 18, most = 22;  // 256 KiB to 4 MiB
    layer.take_whole("min_exponent", least);
    layer.take_whole("max_exponent", most);
    return made_from(layer, [&] { return Any(upstream | binning::powers_of_two(least, most)); });
  }
  if (layer.name() == "limit") {
    limit o;
    layer.take_percent("fraction", o.fraction, place::first);
    layer.take("max", o.max_bytes, place::first);
    layer.take("granularity", o.granularity);
    layer.take("name", o.name);
    if (o.max_bytes != 0 && o.max_bytes <= 100 && o.max_bytes < o.granularity)
      layer.fail("a limit of " + format_bytes(o.max_bytes) + "; for a part of the device write limit(" +
                 std::to_string(o.max_bytes) + "%)");
    return made_from(layer, [&] { return Any(upstream | o); });
  }
  if (layer.name() == "statistics") {
    statistics o;
    layer.take("name", o.name);
    return made_from(layer, [&] { return Any(upstream | o); });
  }
  if (layer.name() == "logging") {
    logging o;
    layer.take("path", o.path, place::first);
    layer.take_whole("mode", o.mode, 8);
    layer.take("follow_links", o.follow_links);
    layer.take("buffer", o.buffer_bytes);
    return made_from(layer, [&] { return Any(upstream | o); });
  }
  for (char const* const source : {"async", "device", "host", "managed", "pinned"})
    if (layer.name() == source)
      layer.fail("'" + std::string(source) + "' is a source, and a stack has one, at its start; adaptors follow");
  layer.fail("no adaptor is called '" + std::string(layer.name()) +
             "'; there are arena, binning, fixed_size, limit, logging, pool, statistics");
}

/// What a parsed stack's memory can be reached by is known when it runs; this states it for the types.
template <bool Device, bool Host>
class promised_resource {
 public:
  static constexpr bool device_accessible = Device;
  static constexpr bool host_accessible = Host;
  static constexpr bool host_ordered = true;

  template <class Erased>
  explicit promised_resource(Erased const& stack) : stack_(stack) {}

  void* allocate(stream_ref stream, std::size_t bytes, std::size_t alignment) {
    return stack_.allocate(stream, bytes, alignment);
  }
  void deallocate(stream_ref stream, void* p, std::size_t bytes, std::size_t alignment) noexcept {
    stack_.deallocate(stream, p, bytes, alignment);
  }
  void describe(report& out) const { weir::describe(stack_, out); }
  std::size_t taken(std::size_t bytes, std::size_t alignment) const noexcept { return stack_.taken(bytes, alignment); }
  bool holds_captured(std::uint64_t capture) const noexcept { return stack_.holds_captured(capture); }
  int device() const noexcept { return stack_.device(); }
  void visit_layers(layer_visitor& visitor) const { stack_.visit_layers(visitor); }

 private:
  basic_any_resource<false, false> stack_;
};

/// The adaptors of a stack on its source. Two kinds of upstream are enough for all: with a device, and without.
template <class Erased, class Source>
Erased build(Source const& source, std::vector<config_layer>& layers) {
  Erased stack = made_from(layers.front(), [&] { return Erased(source); });
  for (std::size_t i = 1; i < layers.size(); ++i) stack = add_layer(stack, layers[i]);
  return stack;
}

/// The same, with the promise that the caller asked for.
template <class Any, class Source>
Any build_as(Source const& source, std::vector<config_layer>& layers) {
  constexpr bool on_device = device_accessible<made_by<Source>>, on_host = host_accessible<made_by<Source>>;
  if constexpr (Any::device_accessible && !on_device) {
    layers.front().fail("memory of '" + std::string(layers.front().name()) +
                        "' cannot be reached by the device; take async, device, managed or pinned");
  } else if constexpr (Any::host_accessible && !on_host) {
    layers.front().fail("memory of '" + std::string(layers.front().name()) +
                        "' cannot be reached by the host; take host, managed or pinned");
  } else {
    auto stack = build<std::conditional_t<on_device, any_resource, any_host_resource>>(source, layers);
    if constexpr (std::same_as<decltype(stack), Any>)
      return stack;
    else
      return Any([&] { return promised_resource<Any::device_accessible, Any::host_accessible>(stack); });
  }
}

}  // namespace detail

/// Makes the stack that `text` describes: a source, then adaptors, with `|` between them and options in parentheses.
///
///     parse("async | pool(initial=1GiB, max=16GiB) | limit(60%) | logging(memory.csv)")
///
/// Bytes are written `4096`, `64KiB`, `1.5GiB`. `Any` is the promise wanted: `any_resource` (the default), or
/// `any_host_resource`, `any_host_device_resource`, or `basic_any_resource<false, false>` for memory of any kind.
/// Throws `config_error` for text that is no stack, and whatever making the stack throws. Each layer costs a virtual
/// call a request: where the stack is known when compiled, write it in C++.
template <class Any = any_resource>
[[nodiscard]] Any parse(std::string_view text) {
  std::vector<detail::config_layer> layers = detail::config_reader(text).layers();
  detail::config_layer& first = layers.front();
  int device = -1;
  auto const on_device = [&](auto source) {
    first.take_whole("device", device);
    source.device = device;
    return detail::build_as<Any>(source, layers);
  };
  if (first.name() == "async") {
    async o;
    first.take("release_threshold", o.release_threshold);
    first.take("max", o.max_bytes);
    first.take("initial", o.initial_bytes);
    first.take("reuse_follow_event_dependencies", o.reuse_follow_event_dependencies);
    first.take("reuse_allow_opportunistic", o.reuse_allow_opportunistic);
    first.take("reuse_allow_internal_dependencies", o.reuse_allow_internal_dependencies);
    first.take("default_pool", o.use_default_pool);
    return on_device(o);
  }
  if (first.name() == "device") return on_device(weir::device{});
  if (first.name() == "managed") return on_device(managed{});
  if (first.name() == "pinned") return on_device(pinned{});
  if (first.name() == "host") return detail::build_as<Any>(host{}, layers);
  first.fail("no source is called '" + std::string(first.name()) +
             "'; a stack starts with async, device, host, managed "
             "or pinned");
}

}  // namespace weir
