#pragma once
// Makes a stack from text, for tools and services that are configured.

#include <weir/adaptors/aligned.hpp>
#include <weir/adaptors/arena.hpp>
#include <weir/adaptors/binning.hpp>
#include <weir/adaptors/fixed_size.hpp>
#include <weir/adaptors/limit.hpp>
#include <weir/adaptors/logging.hpp>
#include <weir/adaptors/pool.hpp>
#include <weir/adaptors/prefetch.hpp>
#include <weir/adaptors/scrub.hpp>
#include <weir/adaptors/statistics.hpp>
#include <weir/adaptors/trace.hpp>
#include <weir/adaptors/tracking.hpp>
#include <weir/adaptors/wait_for_memory.hpp>
#include <weir/core/any_growable.hpp>
#include <weir/core/any_resource.hpp>
#include <weir/core/growable.hpp>
#include <weir/core/options.hpp>
#include <weir/core/recipe.hpp>
#include <weir/sources/async.hpp>
#include <weir/sources/async_on_host.hpp>
#include <weir/sources/device.hpp>
#include <weir/sources/host.hpp>
#include <weir/sources/managed.hpp>
#include <weir/sources/pinned.hpp>
#include <weir/sources/system.hpp>
#include <weir/sources/virtual_memory.hpp>
#include <weir/tools/config_text.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
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

/// In a text, bins are powers of two.
struct bins_in_text {
  unsigned min_exponent = 18, max_exponent = 22;  // 256 KiB to 4 MiB

  static constexpr char const* layer_name = "binning";
  template <class F>
  static constexpr void for_each_option(F f) {
    f(option::count("min_exponent", "min_exponent", &bins_in_text::min_exponent));
    f(option::count("max_exponent", "max_exponent", &bins_in_text::max_exponent));
  }
  binning adaptor() const { return binning::powers_of_two(min_exponent, max_exponent); }
};

/// What a text can name, by the options struct of each.
template <class... Options>
struct layer_list {
  /// `a, b, c`: those that a predicate on `std::type_identity<Options>` lists.
  template <class IsListed>
  static std::string names(IsListed is_listed) {
    std::string all;
    ((is_listed(std::type_identity<Options>()) ? all += (all.empty() ? "" : ", ") + std::string(Options::layer_name)
                                               : all),
     ...);
    return all;
  }
  static std::string names() {
    return names([](auto) { return true; });
  }
  /// Calls `f(options)` with the default options of the layer that is called so; false if there is none.
  template <class F>
  static bool find(std::string_view name, F f) {
    return ((name == Options::layer_name && (f(Options{}), true)) || ...);
  }
};
#if CUDART_VERSION >= 13000
using sources_in_text =
    layer_list<async, async_managed, async_pinned, device, host, managed, pinned, system, virtual_memory>;
#else
using sources_in_text = layer_list<async, device, host, managed, pinned, system, virtual_memory>;
#endif
using adaptors_in_text = layer_list<aligned, arena, bins_in_text, fixed_size, limit, logging, pool, prefetch, scrub,
                                    statistics, trace, tracking, wait_for_memory>;

[[noreturn]] inline void refuse_source(config_layer const& first) {
  std::string const name = "'" + std::string(first.name()) + "'";
  bool const is_adaptor = adaptors_in_text::find(first.name(), [](auto const&) {});
  first.fail((is_adaptor ? name + " is an adaptor, which stands on a source" : "no source is called " + name) +
             "; a stack starts with one of " + sources_in_text::names());
}
[[noreturn]] inline void refuse_adaptor(config_layer const& layer) {
  if (sources_in_text::find(layer.name(), [](auto const&) {}))
    layer.fail("'" + std::string(layer.name()) + "' is a source, and a stack has one, at its start; adaptors follow");
  layer.fail("no adaptor is called '" + std::string(layer.name()) + "'; there are " + adaptors_in_text::names());
}

/// One adaptor, which there is, over what `upstream` makes, by `take(recipe)`; the kind of memory stays.
template <recipe Upstream, class Take>
void add_layer(Upstream const& upstream, config_layer& layer, Take take) {
  auto const add = [&](auto options) {
    layer.take_options(options);
    made_from(layer, [&] {
      if constexpr (requires { options.adaptor(); })
        take(upstream | options.adaptor());
      else
        take(upstream | options);
    });
  };
  adaptors_in_text::find(layer.name(), add);
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
  void deallocate_after(stream_ref stream, void* p, std::size_t bytes, stream_list others,
                        std::size_t alignment) noexcept {
    stack_.deallocate_after(stream, p, bytes, others, alignment);
  }
  void describe(report& out) const { weir::describe(stack_, out); }
  std::size_t taken(std::size_t bytes, std::size_t alignment) const noexcept { return stack_.taken(bytes, alignment); }
  bool holds_captured(std::uint64_t capture) const noexcept { return stack_.holds_captured(capture); }
  int device() const noexcept { return stack_.device(); }
  void visit_layers(layer_visitor& visitor) const { stack_.visit_layers(visitor); }

 private:
  basic_any_resource<false, false> stack_;
};

/// A source and the adaptors on it up to `made`, the first that is no longer growable included: a pool that does not
/// know that its upstream grows cannot grow in place.
template <class Erased, recipe Bottom>
Erased build_growable(Bottom const& bottom, std::vector<config_layer>& layers, std::size_t& made) {
  any_growable growing(bottom);
  std::optional<Erased> top;
  auto const take = [&]<class F>(F const& f) {
    if constexpr (growable<made_by<F>>)
      growing = any_growable(f);
    else
      top.emplace(f);
  };
  while (!top && made < layers.size()) add_layer(growing, layers[made++], take);
  return top ? *top : Erased(growing);
}

/// The adaptors of a stack on its source. Three kinds of upstream are enough for all: with a device, without, and those
/// that grow.
template <class Erased, class Source>
Erased build(Source const& source, std::vector<config_layer>& layers) {
  auto const bottom = [&] { return made_from(layers.front(), source); };
  std::size_t made = 1;
  Erased stack = [&] {
    if constexpr (growable<made_by<Source>>)
      return build_growable<Erased>(bottom, layers, made);
    else
      return Erased(bottom);
  }();
  while (made < layers.size()) add_layer(stack, layers[made++], [&](auto const& f) { stack = Erased(f); });
  return stack;
}

/// Whether a source's memory is what `Any` promises. Holds for what is no source.
template <class Any, class Layer>
inline constexpr bool keeps_promise = true;
template <class Any, recipe Source>
inline constexpr bool keeps_promise<Any, Source> = (device_accessible<made_by<Source>> || !Any::device_accessible) &&
                                                   (host_accessible<made_by<Source>> || !Any::host_accessible);
template <class Any, recipe Source>
[[noreturn]] void refuse_kind(config_layer const& source) {
  std::string const memory = "memory of '" + std::string(source.name()) + "' cannot be reached by the ";
  bool const is_of_host = Any::device_accessible && !device_accessible<made_by<Source>>;
  auto const keeps = []<class Other>(std::type_identity<Other>) { return keeps_promise<Any, Other>; };
  source.fail(memory + (is_of_host ? "device" : "host") + "; take one of " + sources_in_text::names(keeps));
}

/// The same as `build`, with the promise that the caller asked for.
template <class Any, class Source>
Any build_as(Source const& source, std::vector<config_layer>& layers) {
  constexpr bool on_device = device_accessible<made_by<Source>>;
  auto stack = build<std::conditional_t<on_device, any_resource, any_host_resource>>(source, layers);
  if constexpr (std::same_as<decltype(stack), Any>)
    return stack;
  else
    return Any([&] { return promised_resource<Any::device_accessible, Any::host_accessible>(stack); });
}

}  // namespace detail

/// Throws the `config_error` that `parse<Any>(text)` would throw for what each layer says, and makes nothing: no CUDA
/// call. What only the machine can tell, such as a device that is not there, is found by `parse`, and so is what a
/// layer asks of those below it, as `pool(min=1GiB)` and `limit(1GiB, reserve=1MiB)` do.
template <class Any = any_resource>
void check_text(std::string_view text) {
  std::vector<detail::config_layer> layers = detail::config_reader(text).layers();
  for (detail::config_layer& layer : layers) {
    auto const check = [&](auto options) {
      layer.take_options(options);
      if constexpr (!detail::keeps_promise<Any, decltype(options)>) detail::refuse_kind<Any, decltype(options)>(layer);
      detail::made_from(layer, [&] {
        if constexpr (requires { options.adaptor(); })
          detail::require_valid(options.adaptor());
        else if constexpr (requires { options.problem(); })
          detail::require_valid(options);
      });
    };
    if (&layer == &layers.front()) {
      if (!detail::sources_in_text::find(layer.name(), check)) detail::refuse_source(layer);
    } else if (!detail::adaptors_in_text::find(layer.name(), check)) {
      detail::refuse_adaptor(layer);
    }
  }
}

/// Makes the stack that `text` describes: a source, then adaptors, with `|` between them and options in parentheses.
///
///     parse("async | pool(initial=1GiB, max=16GiB) | limit(60%) | logging(memory.csv)")
///
/// Bytes are written `4096`, `64KiB`, `1.5GiB`. `Any` is the promise wanted: `any_resource` (the default), or
/// `any_host_resource`, `any_host_device_resource`, or `basic_any_resource<false, false>` for memory of any kind.
/// Throws `config_error` for text that is no stack, and what `check_text` finds before anything is made or a log is
/// emptied; and whatever making the stack throws. Each layer costs a virtual call a request: where the stack is known
/// when compiled, write it in C++. A pool grows in place on `virtual_memory`, right on it or with layers between that
/// pass requests on.
template <class Any = any_resource>
[[nodiscard]] Any parse(std::string_view text) {
  weir::check_text<Any>(text);
  std::vector<detail::config_layer> layers = detail::config_reader(text).layers();
  detail::config_layer& first = layers.front();
  std::optional<Any> made;
  detail::sources_in_text::find(first.name(), [&](auto source) {
    first.take_options(source);
    if constexpr (detail::keeps_promise<Any, decltype(source)>) made.emplace(detail::build_as<Any>(source, layers));
  });
  return *made;
}

}  // namespace weir
