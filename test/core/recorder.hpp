#pragma once
// A source and an adaptor for tests of the core: they write down what is asked of them.

#include <weir/core/error.hpp>
#include <weir/core/recipe.hpp>
#include <weir/core/report.hpp>

#include <cstddef>
#include <string>
#include <vector>

namespace weir {

struct recorded_call {
  bool allocates;
  stream_ref stream;
  void* p;
  std::size_t bytes, alignment;
};

/// What all recorders of a test did, in order.
inline std::vector<recorded_call> recorded;
inline std::vector<std::string> built;

/// Gives addresses into an array of its own; a request above 1000 B is out of memory.
template <bool Device = true, bool Host = false, bool HostOrdered = true>
class recorder_resource {
 public:
  static constexpr bool device_accessible = Device;
  static constexpr bool host_accessible = Host;
  static constexpr bool host_ordered = HostOrdered;

  explicit recorder_resource(int label) : label_(label) { built.push_back("recorder"); }
  ~recorder_resource() { built.push_back("~recorder"); }
  recorder_resource(recorder_resource const&) = delete;
  recorder_resource& operator=(recorder_resource const&) = delete;

  void* allocate(stream_ref stream, std::size_t bytes, std::size_t alignment = default_alignment) {
    if (bytes > 1000) throw out_of_memory({bytes, round_up_or_zero(bytes, 256), stream}, "recorder", report_of(*this));
    recorded.push_back({true, stream, memory_, bytes, alignment});
    return memory_;
  }
  void deallocate(stream_ref stream, void* p, std::size_t bytes, std::size_t alignment = default_alignment) noexcept {
    recorded.push_back({false, stream, p, bytes, alignment});
  }
  void describe(report& out) const { out.below("recorder", "label " + std::to_string(label_)); }
  int label() const { return label_; }

 private:
  int label_;
  std::byte memory_[1000];
};

template <bool Device = true, bool Host = false, bool HostOrdered = true>
struct recorder {
  int label = 0;
  recorder_resource<Device, Host, HostOrdered> operator()() const {
    return recorder_resource<Device, Host, HostOrdered>(label);
  }
};

template <resource Upstream>
class passing_resource;

/// Stands on anything and passes everything on.
struct passing {
  std::string name = "passing";
  template <resource Upstream>
  using on = passing_resource<Upstream>;
};

template <resource Upstream>
class passing_resource {
 public:
  static constexpr bool device_accessible = weir::device_accessible<Upstream>;
  static constexpr bool host_accessible = weir::host_accessible<Upstream>;
  static constexpr bool host_ordered = weir::host_ordered<Upstream>;

  template <recipe F>
  passing_resource(F const& upstream, passing options) : upstream_(upstream()), options_(options) {
    built.push_back(options_.name);
  }
  ~passing_resource() { built.push_back("~" + options_.name); }
  passing_resource(passing_resource const&) = delete;
  passing_resource& operator=(passing_resource const&) = delete;

  void* allocate(stream_ref stream, std::size_t bytes, std::size_t alignment = default_alignment) try {
    return upstream_.allocate(stream, bytes, alignment);
  } catch (out_of_memory& failure) {
    failure.passed_through(*this);
    throw;
  }
  void deallocate(stream_ref stream, void* p, std::size_t bytes, std::size_t alignment = default_alignment) noexcept {
    upstream_.deallocate(stream, p, bytes, alignment);
  }
  Upstream& upstream() noexcept { return upstream_; }
  Upstream const& upstream() const noexcept { return upstream_; }
  void describe(report& out) const {
    describe_layer(out);
    weir::describe(upstream_, out);
  }
  void describe_layer(report& out) const { out.below(options_.name, "passes on"); }

 private:
  Upstream upstream_;
  passing options_;
};

/// Forgets what recorders did before the test.
struct fresh_record {
  fresh_record() {
    recorded.clear();
    built.clear();
  }
};

}  // namespace weir
