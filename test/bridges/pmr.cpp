#include <weir/bridges/pmr.hpp>
#include <weir/core/any_ref.hpp>
#include <weir/core/any_resource.hpp>

#include <doctest/doctest.h>

#include <bridges/checked_memory.hpp>
#include <cstdint>
#include <map>
#include <memory_resource>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <vector>

namespace {
struct recipe_of_host_memory {
  host_memory operator()() const { return host_memory(); }
};
}  // namespace

TEST_CASE("pmr containers, and pmr resources on top, take their memory from the stack and give all of it back") {
  pinned_memory memory;
  {
    weir::pmr_resource resource(memory);
    std::pmr::vector<std::pmr::string> strings(&resource);
    strings.emplace_back(1000, 'x');
    CHECK(strings[0].get_allocator().resource() == &resource);  // handed down to the elements
    std::pmr::map<int, std::pmr::string> map(&resource);
    map[1] = "one";
    std::pmr::unordered_map<int, int> hashed(&resource);
    hashed[1] = 1;

    std::pmr::monotonic_buffer_resource buffer(1 << 16, &resource);
    std::pmr::vector<double> on_buffer(1000, 1.0, &buffer);
    std::pmr::unsynchronized_pool_resource pool(&resource);
    std::pmr::vector<int> on_pool(100, 1, &pool);
    CHECK(memory.live.size() > 5);
  }
  CHECK(memory.clean());
}

TEST_CASE("the type is found from the stack or from a handle to it") {
  pinned_memory memory;
  weir::pmr_resource by_reference(memory);
  weir::pmr_resource by_handle(weir::share(memory));
  static_assert(std::is_same_v<decltype(by_reference), weir::pmr_resource<pinned_memory>>);
  static_assert(std::is_same_v<decltype(by_handle), weir::pmr_resource<pinned_memory>>);
  weir::any_host_resource const erased{recipe_of_host_memory()};
  weir::pmr_resource owning(erased);
  weir::pmr_resource<weir::any_host_resource> same(erased);
  CHECK(std::pmr::vector<int>(3, 5, &owning)[2] == 5);
  weir::pmr_resource of_temporary(weir::any_host_resource{recipe_of_host_memory()});
  static_assert(std::is_same_v<decltype(of_temporary), weir::pmr_resource<weir::any_host_resource>>);
  CHECK(std::pmr::vector<int>(3, 5, &of_temporary)[2] == 5);
}

TEST_CASE("resources are equal if memory and stream are the same") {
  pinned_memory one, two;
  weir::stream_ref const stream(cudaStreamPerThread);
  weir::pmr_resource const a(one), b(one), c(two), d(one, stream), e(one, stream);
  CHECK(a.is_equal(a));
  CHECK(a.is_equal(b));
  CHECK_FALSE(a.is_equal(c));
  CHECK_FALSE(a.is_equal(d));
  CHECK(d.is_equal(e));
  CHECK_FALSE(a.is_equal(*std::pmr::new_delete_resource()));
  weir::pmr_resource const other_type(weir::any_host_ref{one});  // another way of holding the same memory
  CHECK_FALSE(a.is_equal(other_type));
}

TEST_CASE("memory is asked for in the host's order and given back there or on the stream") {
  pinned_memory memory;
  weir::stream_ref const stream(cudaStreamPerThread);
  {
    weir::pmr_resource host(memory), streamed(memory, stream);
    { std::pmr::vector<int> const v(10, 1, &host); }
    CHECK(memory.allocated_on.back().is_host_order());
    CHECK(memory.freed_on.back().is_host_order());
    { std::pmr::vector<int> const v(10, 1, &streamed); }
    CHECK(memory.allocated_on.back().is_host_order());
    CHECK(memory.freed_on.back() == stream);
  }
  CHECK(memory.clean());
}

TEST_CASE("zero bytes give a pointer, as std::pmr promises, and it is taken back") {
  pinned_memory memory;
  weir::pmr_resource resource(memory);
  void* const p = resource.allocate(0, 64);
  CHECK(p != nullptr);
  CHECK(reinterpret_cast<std::uintptr_t>(p) % 64 == 0);
  resource.deallocate(p, 0, 64);
  CHECK(memory.clean());
}
