#pragma once
// The numbers of stacks in the text format of Prometheus.

#include <weir/tools/stack_summary.hpp>
#include <weir/tools/text_formats.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace weir {
namespace detail {

enum class moment { now, peak, total };

/// One metric: its HELP and TYPE lines, if it has samples, then these.
class prometheus_metric {
 public:
  prometheus_metric(std::string const& name, std::string const& help, char const* type)
      : name_(name), head_("# HELP " + name + " " + help + ".\n# TYPE " + name + " " + type + "\n") {}

  void add(std::string const& labels, std::string const& value) {
    samples_ += name_ + "{" + labels + "} " + value + "\n";
  }
  std::string text() const { return samples_.empty() ? std::string() : head_ + samples_; }

 private:
  std::string name_, head_, samples_;
};

inline std::string prometheus_label(char const* name, std::string const& value) {
  return std::string(name) + "=" + detail::prometheus_value(value);
}
/// What tells a layer from all others: two of a kind and name differ in `position`.
inline std::string prometheus_labels(stack_summary const& stack, std::size_t position) {
  layer_numbers const& n = stack.layers[position].numbers;
  return detail::prometheus_label("stack", stack.name) + "," +
         detail::prometheus_label("position", std::to_string(position)) + "," +
         detail::prometheus_label("layer", n.layer) + "," + detail::prometheus_label("name", n.name) + "," +
         detail::prometheus_label("device", n.device ? std::to_string(*n.device) : std::string());
}

/// Calls `f(labels, layer)` for all layers of all stacks.
template <class F>
void for_each_labelled(std::vector<stack_summary> const& stacks, F f) {
  for (stack_summary const& stack : stacks)
    for (std::size_t i = 0; i < stack.layers.size(); ++i) f(detail::prometheus_labels(stack, i), stack.layers[i]);
}

/// The metric of one number of layers, and that of their tags.
inline std::string prometheus_number(std::vector<stack_summary> const& stacks, quantity const& what, moment when,
                                     quantity::getter number) {
  std::string const name = std::string(what.key) + (when == moment::peak ? "_peak" : "") +
                           (what.is_bytes ? "_bytes" : "") + (when == moment::total ? "_total" : "");
  std::string const help = std::string(what.is_bytes ? "Bytes " : "Number of ") + what.help +
                           (when == moment::peak    ? ", at most"
                            : when == moment::total ? ", in all"
                                                    : "");
  char const* const type = when == moment::total ? "counter" : "gauge";
  prometheus_metric of_layers("weir_" + name, help, type), of_tags("weir_tag_" + name, help + ", by tag", type);
  detail::for_each_labelled(stacks, [&](std::string const& labels, layer_summary const& layer) {
    if (auto const value = number(layer.numbers)) of_layers.add(labels, std::to_string(*value));
    for (layer_numbers const& tag : layer.tags)
      if (auto const value = number(tag))
        of_tags.add(labels + "," + detail::prometheus_label("tag", tag.name), std::to_string(*value));
  });
  return of_layers.text() + of_tags.text();
}

inline std::string prometheus_fragmentation(std::vector<stack_summary> const& stacks) {
  prometheus_metric metric("weir_fragmentation_ratio", "Share of free and pending memory outside its largest piece",
                           "gauge");
  detail::for_each_labelled(stacks, [&](std::string const& labels, layer_summary const& layer) {
    if (auto const share = fragmentation(layer.numbers)) metric.add(labels, detail::ratio_text(*share));
  });
  return metric.text();
}

}  // namespace detail

/// The numbers of several stacks for Prometheus to scrape, in its text format 0.0.4, which OpenMetrics readers take
/// too; to be served by the program's own endpoint. Metrics `weir_requested_bytes`, `weir_requested_peak_bytes`,
/// `weir_requested_bytes_total` and so on, with the labels `stack`, `position` (in the stack, from the top), `layer`,
/// `name` and `device`; `weir_tag_...` have `tag` too. A label without a value is as one that is not there. The stacks
/// need names that differ. Labels are escaped; a byte that is no UTF-8 becomes `\xff` or the like, so that names that
/// differ are series that differ (but for a name that has just these four characters).
inline std::string summary_prometheus(std::vector<stack_summary> const& stacks) {
  std::string text;
  for (detail::quantity const& each : detail::quantities) {
    text += detail::prometheus_number(stacks, each, detail::moment::now, each.now);
    text += detail::prometheus_number(stacks, each, detail::moment::peak, each.peak);
    text += detail::prometheus_number(stacks, each, detail::moment::total, each.total);
  }
  return text + detail::prometheus_fragmentation(stacks);
}

}  // namespace weir
