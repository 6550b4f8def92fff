#pragma once
// The numbers of a stack as JSON.

#include <weir/tools/stack_summary.hpp>
#include <weir/tools/text_formats.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace weir {
namespace detail {

inline std::string json_member(std::string const& key, std::string const& value) {
  return "\"" + key + "\":" + value + ",";
}
/// The numbers that are known, as members of an object, each with a comma after it.
inline std::string json_numbers(layer_numbers const& n) {
  std::string text;
  auto const add = [&](std::string const& key, std::optional<std::uint64_t> const& number) {
    if (number) text += detail::json_member(key, std::to_string(*number));
  };
  for (quantity const& each : quantities) {
    add(each.key, each.now(n));
    add(std::string(each.key) + "_peak", each.peak(n));
    add(std::string(each.key) + "_total", each.total(n));
  }
  if (auto const share = fragmentation(n)) text += detail::json_member("fragmentation", detail::ratio_text(*share));
  return text;
}
inline std::string json_device(int device) { return device < 0 ? "null" : std::to_string(device); }

/// `[` what `write` makes of each, with a comma after it, `]`.
template <class Each, class Write>
std::string json_array(std::vector<Each> const& all, Write write) {
  std::string text = "[";
  for (Each const& each : all) {
    text += write(each);
    text.back() = '}';  // in place of the last member's comma
    text += ',';
  }
  if (!all.empty()) text.pop_back();
  return text + "]";
}
inline std::string json_tag(layer_numbers const& tag) {
  return "{" + detail::json_member("tag", detail::json_string(tag.name)) + detail::json_numbers(tag);
}
inline std::string json_stream(layer_numbers const& stream) {
  return "{" + detail::json_member("stream", detail::json_string(stream.name)) + detail::json_numbers(stream);
}
inline std::string json_layer(layer_summary const& layer) {
  layer_numbers const& n = layer.numbers;
  std::string text =
      "{" + detail::json_member("layer", detail::json_string(n.layer)) +
      detail::json_member("name", detail::json_string(n.name)) + detail::json_member("depth", std::to_string(n.depth)) +
      detail::json_member("device", detail::json_device(n.device.value_or(-1))) + detail::json_numbers(n);
  if (!layer.tags.empty()) text += detail::json_member("tags", detail::json_array(layer.tags, json_tag));
  if (!layer.streams.empty()) text += detail::json_member("streams", detail::json_array(layer.streams, json_stream));
  return text;
}

}  // namespace detail

/// One JSON object in one line, without a newline at its end. What a layer does not know is left out. Valid whatever
/// the bytes of names and tags: what is no UTF-8 in them becomes U+FFFD.
inline std::string summary_json(stack_summary const& stack) {
  return "{" + detail::json_member("stack", detail::json_string(stack.name)) +
         detail::json_member("device", detail::json_device(stack.device)) +
         "\"layers\":" + detail::json_array(stack.layers, detail::json_layer) + "}";
}

}  // namespace weir
