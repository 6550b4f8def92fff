#include <weir/core/cuda_mr_calls.hpp>

#include <weir/core/any_ref.hpp>
#include <weir/core/any_resource.hpp>
#include <weir/core/resource_ref.hpp>

#include <doctest/doctest.h>
#include <core/recorder.hpp>

#include <concepts>
#include <cstddef>

using namespace weir;

namespace {

using resource_type = recorder_resource<>;

// The base costs nothing, and a handle stays what it is.
static_assert(sizeof(resource_ref<resource_type>) == sizeof(void*));
static_assert(sizeof(any_ref) == 2 * sizeof(void*) && sizeof(any_resource) == 2 * sizeof(void*));
static_assert(resource<any_ref> && std::equality_comparable<any_ref>);

template <class H, class... Arguments>
concept allocates_with = requires(H const& handle, Arguments... arguments) {
  handle.allocate(arguments...);
};
// A literal is neither a stream nor a size, so that a forgotten stream is an error.
static_assert(allocates_with<any_ref, std::size_t, std::size_t> && !allocates_with<any_ref, int, int>);
static_assert(!allocates_with<any_ref, int, std::size_t>);

void check_last(stream_ref stream, void* p, std::size_t bytes, std::size_t alignment) {
  REQUIRE(!recorded.empty());
  auto const& call = recorded.back();
  CHECK(call.stream == stream);
  CHECK(call.p == p);
  CHECK(call.bytes == bytes);
  CHECK(call.alignment == alignment);
}

template <class Handle>
void check_calls(Handle const& handle) {
  constexpr std::size_t bytes = 100, alignment = 512;
  void* p = handle.allocate_sync(bytes, alignment);
  check_last(host_order, p, bytes, alignment);
  handle.deallocate_sync(p, bytes, alignment);
  check_last(host_order, p, bytes, alignment);

  p = handle.allocate_sync(bytes);
  check_last(host_order, p, bytes, default_alignment);
  handle.deallocate_sync(p, bytes);
  check_last(host_order, p, bytes, default_alignment);

  p = handle.allocate(bytes, alignment);
  check_last(host_order, p, bytes, alignment);
  handle.deallocate(p, bytes, alignment);
  check_last(host_order, p, bytes, alignment);

  p = handle.allocate_async(bytes, alignment, cudaStreamPerThread);
  check_last(cudaStreamPerThread, p, bytes, alignment);
  handle.deallocate_async(p, bytes, alignment, cudaStreamPerThread);
  check_last(cudaStreamPerThread, p, bytes, alignment);

  p = handle.allocate(cudaStreamPerThread, bytes);
  check_last(cudaStreamPerThread, p, bytes, default_alignment);
  handle.deallocate(cudaStreamPerThread, p, bytes);
  check_last(cudaStreamPerThread, p, bytes, default_alignment);
}

}  // namespace

TEST_CASE("every handle is called by all names alike, with the stream, size and alignment that were given") {
  fresh_record const record;
  auto memory = make(recorder<>{});
  check_calls(share(memory));
  check_calls(any_ref(memory));
  check_calls(any_resource(recorder<>{}));
  CHECK(recorded.size() == 30);
}
