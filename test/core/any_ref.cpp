#include <weir/core/any_ref.hpp>
#include <weir/core/any_resource.hpp>
#include <weir/core/report.hpp>

#include <doctest/doctest.h>

#include <bridges/checked_memory.hpp>
#include <type_traits>
#include <utility>

namespace {

struct layer {  // shares its address with its first member
  static constexpr bool device_accessible = true;
  static constexpr bool host_ordered = true;
  device_memory upstream;

  void* allocate(weir::stream_ref s, std::size_t n, std::size_t a) { return upstream.allocate(s, n, a); }
  void deallocate(weir::stream_ref s, void* p, std::size_t n, std::size_t a) noexcept {
    upstream.deallocate(s, p, n, a);
  }
  void describe(weir::report& out) const { out.below("layer", "on top"); }
};

struct only_streams {  // does not say that it knows the host's order
  void* allocate(weir::stream_ref s, std::size_t, std::size_t) {
    asked_in_host_order = s.is_host_order();
    return nullptr;
  }
  void deallocate(weir::stream_ref s, void*, std::size_t, std::size_t) noexcept {
    asked_in_host_order = s.is_host_order();
  }
  bool asked_in_host_order = false;
};

struct by_value {
  void* allocate(weir::stream_ref, std::size_t, std::size_t) const { return const_cast<by_value*>(this); }
  void deallocate(weir::stream_ref, void*, std::size_t, std::size_t) const noexcept {}
};

}  // namespace

TEST_CASE("a reference forwards requests with stream, bytes and alignment, and describes its resource") {
  layer memory;
  weir::any_ref const ref = memory;
  weir::stream_ref const stream(cudaStreamPerThread);
  void* const p = ref.allocate(stream, 1000, 512);
  REQUIRE(memory.upstream.live.size() == 1);
  CHECK(memory.upstream.live.begin()->second == device_memory::block{1000, 512});
  CHECK(memory.upstream.allocated_on.back() == stream);
  ref.deallocate(stream, p, 1000, 512);
  CHECK(memory.upstream.clean());
  CHECK(memory.upstream.freed_on.back() == stream);
  CHECK(weir::report_of(ref).chain() == "layer");
}

TEST_CASE("references are equal if they refer to the same object, not merely to the same address") {
  layer memory, other;
  CHECK(weir::any_ref(memory) == weir::any_ref(memory));
  CHECK(weir::any_ref(memory) != weir::any_ref(other));
  REQUIRE(static_cast<void*>(&memory) == static_cast<void*>(&memory.upstream));
  CHECK(weir::any_ref(memory) != weir::any_ref(memory.upstream));
}

TEST_CASE("a handle from share is looked through, so it need not outlive the reference") {
  layer memory;
  weir::any_ref const ref = weir::share(memory);
  CHECK(ref == weir::any_ref(memory));
  auto handle = weir::share(memory);
  CHECK(weir::any_ref(handle) == ref);
}

TEST_CASE("copies and references with fewer promises refer to the same object") {
  pinned_memory memory;
  weir::any_host_device_ref ref = memory;
  weir::any_ref const device = ref;
  weir::any_host_ref const host = ref;
  weir::any_ref copy = device;
  CHECK(copy == weir::any_ref(memory));
  CHECK(host == weir::any_host_ref(memory));
  static_assert(!std::is_constructible_v<weir::any_host_ref, weir::any_ref&>);
  static_assert(!std::is_constructible_v<weir::any_host_device_ref, weir::any_ref>);
}

TEST_CASE("references to one object are equal, also one that was made through const") {
  by_value memory;
  using any = weir::basic_any_ref<false, false>;
  CHECK(any(memory) == any(std::as_const(memory)));
  CHECK(any(weir::share(std::as_const(memory))) == any(memory));
  by_value const other;
  CHECK(any(other) != any(memory));
}

TEST_CASE("a temporary resource is not referred to") {
  static_assert(!std::is_constructible_v<weir::basic_any_ref<false, false>, by_value>);
  static_assert(std::is_constructible_v<weir::basic_any_ref<false, false>, by_value&>);
  by_value const memory;
  CHECK(weir::basic_any_ref<false, false>(memory).allocate(weir::host_order, 1) == &memory);
}

TEST_CASE("a resource that only knows streams is never asked in the host's order") {
  only_streams memory;
  weir::basic_any_ref<false, false> const ref = memory;
  memory.asked_in_host_order = true;
  ref.deallocate(weir::host_order, nullptr, 0);
  CHECK_FALSE(memory.asked_in_host_order);
  memory.asked_in_host_order = true;
  CHECK(ref.allocate(weir::host_order, 0) == nullptr);
  CHECK_FALSE(memory.asked_in_host_order);
}
