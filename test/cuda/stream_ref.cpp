#include <weir/cuda/stream_ref.hpp>

#include <weir/cuda/stream.hpp>

#include <doctest/doctest.h>
#include <cuda/stream_ref>

#include <cstdint>
#include <type_traits>

using namespace weir;

namespace {

struct like_rmm {  // gives its handle by value(), and by a conversion
  cudaStream_t handle;
  cudaStream_t value() const noexcept { return handle; }
  operator cudaStream_t() const noexcept { return handle; }
};
struct gives_both {
  cudaStream_t get() const noexcept { return cudaStreamLegacy; }
  cudaStream_t value() const noexcept { return cudaStreamPerThread; }
};
struct with_id {
  cudaStream_t handle;
  cudaStream_t get() const noexcept { return handle; }
  std::uint64_t lasting_id() const noexcept { return 77; }
};
struct made_of_a_handle {
  cudaStream_t handle;
  made_of_a_handle(cudaStream_t h) : handle(h) {}
  cudaStream_t value() const noexcept { return handle; }
};
struct gives_something_else {
  int get() const noexcept { return 1; }
};

cudaStream_t handle_of(stream_ref stream) { return stream.get(); }
cudaStream_t some_handle() { return reinterpret_cast<cudaStream_t>(0x1230); }

static_assert(std::is_trivially_copyable_v<stream_ref> && sizeof(stream_ref) == 2 * sizeof(void*));
static_assert(std::is_convertible_v<cudaStream_t, stream_ref>);
static_assert(std::is_convertible_v<cuda::stream_ref, stream_ref>);
static_assert(std::is_convertible_v<like_rmm, stream_ref>);
static_assert(std::is_convertible_v<weir::stream const&, stream_ref>);
static_assert(std::is_convertible_v<host_order_t, stream_ref>);
static_assert(std::is_convertible_v<stream_ref, cudaStream_t>);
static_assert(std::is_convertible_v<stream_ref, cuda::stream_ref>);
static_assert(std::is_constructible_v<cuda::stream_ref, stream_ref>);
static_assert(std::is_convertible_v<stream_ref, made_of_a_handle>);
// It is no number and no condition.
static_assert(!std::is_constructible_v<bool, stream_ref> && !std::is_convertible_v<stream_ref, void*>);
// A device number, a literal 0 or nullptr is not a stream.
static_assert(!std::is_convertible_v<int, stream_ref> && !std::is_constructible_v<stream_ref, int>);
static_assert(!std::is_convertible_v<std::nullptr_t, stream_ref>);
static_assert(!std::is_convertible_v<gives_something_else, stream_ref>);
static_assert(!std::is_convertible_v<cudaEvent_t, stream_ref>);

}  // namespace

TEST_CASE("streams of every make keep their handle") {
  CHECK(handle_of(some_handle()) == some_handle());
  CHECK(handle_of(cuda::stream_ref(some_handle())) == some_handle());
  CHECK(handle_of(like_rmm{some_handle()}) == some_handle());
  CHECK(handle_of(gives_both{}) == cudaStreamLegacy);
}

// Two files that disagree about the default stream are linked into one program in test/odr.
TEST_CASE("handle 0, given in any way, is this file's default stream by its own name") {
  cudaStream_t const expected = detail::per_thread_default_stream ? cudaStreamPerThread : cudaStreamLegacy;
  CHECK(stream_ref().get() == expected);
  CHECK(handle_of(cudaStream_t{}) == expected);
  CHECK(handle_of(like_rmm{nullptr}) == expected);
  CHECK(stream_ref(cudaStream_t{}) == stream_ref());
}

TEST_CASE("streams are equal if they are the same order of work") {
  CHECK(stream_ref(some_handle()) == stream_ref(some_handle()));
  CHECK(stream_ref(some_handle()) != stream_ref(cudaStreamLegacy));
  CHECK(stream_ref::lasting(some_handle(), 5) == stream_ref(some_handle()));
}

TEST_CASE("a stream goes where a handle goes, and where another library's stream goes") {
  stream_ref const stream = some_handle();
  cudaStream_t const handle = stream;
  cuda::stream_ref const theirs = stream;
  made_of_a_handle const others = stream;
  CHECK(handle == some_handle());
  CHECK(theirs.get() == some_handle());
  CHECK(others.handle == some_handle());
  CHECK(stream == handle);
  CHECK(theirs == stream);
  CHECK(stream != cudaStreamLegacy);
  CHECK(stream_ref(host_order) != cudaStreamLegacy);
}

TEST_CASE("the host's order is no stream, though it has a handle that CUDA takes") {
  stream_ref const order = host_order;
  CHECK(order.is_host_order());
  CHECK(order.get() == cudaStreamLegacy);
  CHECK(order.lasting_id() == 0);
  CHECK(order != stream_ref(cudaStreamLegacy));
  CHECK(order == stream_ref(host_order));
  CHECK(!stream_ref().is_host_order());
}

TEST_CASE("only a stream that is promised to last has an id") {
  CHECK(stream_ref(some_handle()).lasting_id() == 0);
  CHECK(stream_ref::lasting(some_handle(), 77).lasting_id() == 77);
  weir::stream const owner;
  CHECK(stream_ref(owner).lasting_id() == owner.lasting_id());
  CHECK(owner.lasting_id() != 0);
}

TEST_CASE("a default stream is known by its name, whatever id comes along") {
  for (cudaStream_t const handle : {cudaStreamLegacy, cudaStreamPerThread}) {
    CHECK(stream_ref::lasting(handle, 77).lasting_id() == 0);
    CHECK(stream_ref(with_id{handle}).lasting_id() == 0);
  }
  CHECK(stream_ref(with_id{some_handle()}).lasting_id() == 77);
  CHECK(stream_ref::lasting(nullptr, 77).get() == stream_ref().get());
  CHECK(stream_ref::lasting(nullptr, 77).lasting_id() == 0);
}

TEST_CASE("a default stream has one of two names") {
  CHECK(detail::is_default_stream(cudaStreamLegacy));
  CHECK(detail::is_default_stream(cudaStreamPerThread));
  CHECK_FALSE(detail::is_default_stream(nullptr));  // which of the two that is, each file says
  CHECK_FALSE(detail::is_default_stream(some_handle()));
}
