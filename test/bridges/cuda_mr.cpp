// Compiled with each CCCL there is: the toolkit's, and a newer one (cmake/get-rmm).
#include <weir/bridges/cuda_mr.hpp>

#include <weir/adaptors/limit.hpp>
#include <weir/adaptors/pool.hpp>
#include <weir/adaptors/statistics.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sources.hpp>

#include <doctest/doctest.h>
#include <conformance/resource_laws.hpp>
#include <support/sim_fixture.hpp>
#include <support/somebodys_mr.hpp>
#include <support/test_source.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#if CCCL_VERSION >= 3002000
#include <cuda/algorithm>
#include <cuda/buffer>
#include <cuda/memory_pool>
#include <cuda/stream>
#endif

using namespace weir;
using weir::test::fresh_world;
using weir::test::lazy_world;

namespace {

using on_device = ::cuda::mr::device_accessible;
using on_host = ::cuda::mr::host_accessible;

#if CCCL_VERSION >= 3001000
template <class R, class... Properties>
inline constexpr bool is_mr = ::cuda::mr::resource_with<R, Properties...>;
template <class... Properties>
using mr_ref = ::cuda::mr::resource_ref<Properties...>;
template <class... Properties>
using mr_now = ::cuda::mr::synchronous_resource_ref<Properties...>;
void* allocate_on(mr_ref<on_device> memory, ::cuda::stream_ref stream, std::size_t bytes) {
  return memory.allocate(stream, bytes, 256);
}
void deallocate_on(mr_ref<on_device> memory, ::cuda::stream_ref stream, void* p, std::size_t bytes) {
  memory.deallocate(stream, p, bytes, 256);
}
template <class Ref>
void* allocate_now(Ref memory, std::size_t bytes) {
  return memory.allocate_sync(bytes, 256);
}
template <class Ref>
void deallocate_now(Ref memory, void* p, std::size_t bytes) {
  memory.deallocate_sync(p, bytes, 256);
}
#else
template <class R, class... Properties>
inline constexpr bool is_mr = ::cuda::mr::async_resource_with<R, Properties...>;
template <class... Properties>
using mr_ref = ::cuda::mr::async_resource_ref<Properties...>;
template <class... Properties>
using mr_now = ::cuda::mr::resource_ref<Properties...>;
void* allocate_on(mr_ref<on_device> memory, ::cuda::stream_ref stream, std::size_t bytes) {
  return memory.allocate_async(bytes, 256, stream);
}
void deallocate_on(mr_ref<on_device> memory, ::cuda::stream_ref stream, void* p, std::size_t bytes) {
  memory.deallocate_async(p, bytes, 256, stream);
}
template <class Ref>
void* allocate_now(Ref memory, std::size_t bytes) {
  return memory.allocate(bytes, 256);
}
template <class Ref>
void deallocate_now(Ref memory, void* p, std::size_t bytes) {
  memory.deallocate(p, bytes, 256);
}
#endif
template <class R, class Property>
inline constexpr bool has = ::cuda::has_property<R, Property>;

using pooled = made_by<decltype(async{} | pool{})>;
using pinned_pooled = made_by<decltype(pinned{} | pool{})>;

static_assert(is_mr<resource_ref<pooled>, on_device> && !has<resource_ref<pooled>, on_host>);
static_assert(is_mr<resource_ref<pinned_pooled>, on_device, on_host>);
static_assert(is_mr<resource_ref<host_resource>, on_host> && !has<resource_ref<host_resource>, on_device>);
static_assert(is_mr<any_ref, on_device> && !has<any_ref, on_host>);
static_assert(is_mr<any_host_device_ref, on_device, on_host>);
static_assert(is_mr<any_resource, on_device> && !has<any_resource, on_host>);
static_assert(is_mr<any_host_resource, on_host> && !has<any_host_resource, on_device>);
// A stack is no handle: it cannot be copied, and cuda::mr copies.
static_assert(!is_mr<pooled>);

static_assert(std::is_convertible_v<stream_ref, ::cuda::stream_ref>);
static_assert(std::is_constructible_v<::cuda::stream_ref, stream_ref>);
static_assert(std::is_convertible_v<::cuda::stream_ref, stream_ref>);

}  // namespace

namespace somebody {

/// Somebody's stream-ordered resource on cudaMallocAsync. It takes each block back by the kind of call that gave it,
/// and with the same size.
class ordered_mr : public device_memory_facts {
 public:
  struct books {
    std::map<void*, std::size_t> in_order, at_once;
    int wrong = 0;
    std::size_t largest_alignment = 0;
  };
  ordered_mr() : books_(std::make_shared<books>()) {}

  void* allocate(::cuda::stream_ref stream, std::size_t bytes, std::size_t alignment) {
    void* const p = take(stream.get(), bytes, alignment);
    books_->in_order[p] = bytes;
    return p;
  }
  void deallocate(::cuda::stream_ref stream, void* p, std::size_t bytes, std::size_t) noexcept {
    give(books_->in_order, stream.get(), p, bytes);
  }
  void* allocate_sync(std::size_t bytes, std::size_t alignment) {
    void* const p = take(cudaStreamLegacy, bytes, alignment);
    books_->at_once[p] = bytes;
    return p;
  }
  void deallocate_sync(void* p, std::size_t bytes, std::size_t) noexcept {
    give(books_->at_once, cudaStreamLegacy, p, bytes);
  }

  // The same by the older names.
  void* allocate_async(std::size_t n, std::size_t a, ::cuda::stream_ref s) { return allocate(s, n, a); }
  void deallocate_async(void* p, std::size_t n, std::size_t a, ::cuda::stream_ref s) noexcept {
    deallocate(s, p, n, a);
  }
  void* allocate(std::size_t n, std::size_t a) { return allocate_sync(n, a); }
  void deallocate(void* p, std::size_t n, std::size_t a) noexcept { deallocate_sync(p, n, a); }

  books const& seen() const { return *books_; }
  friend bool operator==(ordered_mr const& a, ordered_mr const& b) { return a.books_ == b.books_; }

 private:
  void* take(cudaStream_t stream, std::size_t bytes, std::size_t alignment) {
    books_->largest_alignment = std::max(books_->largest_alignment, alignment);
    void* p = nullptr;
    if (!done(cudaMallocAsync(&p, bytes, stream))) throw std::bad_alloc();
    return p;
  }
  void give(std::map<void*, std::size_t>& from, cudaStream_t stream, void* p, std::size_t bytes) noexcept {
    auto const found = from.find(p);
    if (found == from.end() || found->second != bytes) {
      ++books_->wrong;
      return;
    }
    from.erase(found);
    done(cudaFreeAsync(p, stream));
  }

  std::shared_ptr<books> books_;
};

/// What CUDA's error was, it tells.
struct telling_mr : plain_mr {
  void* allocate_sync(std::size_t bytes, std::size_t) {
    void* p = nullptr;
    cudaError_t const code = cudaMalloc(&p, bytes);
    if (done(code)) return p;
    throw ::cuda::cuda_error(code, "cudaMalloc");
  }
  void* allocate(std::size_t n, std::size_t a) { return allocate_sync(n, a); }
};

/// Never has any.
struct full_mr : plain_mr {
  struct full : std::bad_alloc {
    char const* what() const noexcept override { return "their pool is full\n"; }
  };
  void* allocate_sync(std::size_t, std::size_t) { throw full(); }
  void* allocate(std::size_t n, std::size_t a) { return allocate_sync(n, a); }
};

/// Host memory.
struct host_mr {
  void* allocate_sync(std::size_t n, std::size_t a) { return ::operator new (n, std::align_val_t{a}); }
  void deallocate_sync(void* p, std::size_t, std::size_t a) noexcept { ::operator delete (p, std::align_val_t{a}); }
  void* allocate(std::size_t n, std::size_t a) { return allocate_sync(n, a); }
  void deallocate(void* p, std::size_t n, std::size_t a) noexcept { deallocate_sync(p, n, a); }
  friend bool operator==(host_mr, host_mr) = default;
  friend constexpr void get_property(host_mr const&, on_host) noexcept {}
};

/// The same, but says so where it could not free.
struct throwing_mr : host_mr {
  void deallocate_sync(void* p, std::size_t n, std::size_t a) {
    host_mr::deallocate_sync(p, n, a);
    throw std::runtime_error("no\nway");
  }
  void deallocate(void* p, std::size_t n, std::size_t a) { deallocate_sync(p, n, a); }
};

/// Takes no notice of alignments: 16 bytes are what it gives, as `malloc` does.
struct careless_mr : host_mr {
  int* live = nullptr;
  void* allocate_sync(std::size_t n, std::size_t) {
    ++*live;
    return static_cast<std::byte*>(host_mr::allocate_sync(n + 16, 256)) + 16;
  }
  void deallocate_sync(void* p, std::size_t n, std::size_t) noexcept {
    --*live;
    host_mr::deallocate_sync(static_cast<std::byte*>(p) - 16, n + 16, 256);
  }
  void* allocate(std::size_t n, std::size_t a) { return allocate_sync(n, a); }
  void deallocate(void* p, std::size_t n, std::size_t a) noexcept { deallocate_sync(p, n, a); }
};

}  // namespace somebody

using somebody::host_mr;
using somebody::ordered_mr;
using somebody::plain_mr;

static_assert(device_accessible<cuda_mr_resource<ordered_mr>> && !host_accessible<cuda_mr_resource<ordered_mr>>);

TEST_CASE("a stack behind a cuda::mr reference serves in stream order") {
  lazy_world const world;
  auto memory = make(async{} | pool{} | statistics{});
  auto handle = share(memory);
  weir::stream const stream;
  void* const p = allocate_on(handle, stream_ref(stream), 1000);
  CHECK(memory.numbers().requested.current == 1000);
  deallocate_on(handle, stream_ref(stream), p, 1000);
  CHECK(allocate_on(handle, stream_ref(stream), 1000) == p);  // nothing has run yet: the stream's own order is enough
  deallocate_on(handle, stream_ref(stream), p, 1000);
  CHECK(memory.numbers().requested.current == 0);
}

TEST_CASE("without a stream memory is ready for everyone") {
  lazy_world const world;
  auto memory = make(pinned{} | pool{} | statistics{});
  any_host_ref handle = memory;
  auto* const p = static_cast<char*>(allocate_now(mr_now<on_host>(handle), 1000));
  p[999] = 1;
  CHECK(memory.numbers().requested.current == 1000);
  deallocate_now(mr_now<on_host>(handle), p, 1000);
  CHECK(memory.numbers().requested.current == 0);
}

TEST_CASE("handles that are one memory are one resource to cuda::mr, others are not") {
  fresh_world const world;
  auto memory = make(async{} | pool{});
  auto other = make(async{} | pool{});
  auto one = share(memory), again = share(memory), another = share(other);
  CHECK(mr_ref<on_device>(one) == mr_ref<on_device>(again));
  CHECK(mr_ref<on_device>(one) != mr_ref<on_device>(another));
  any_resource owner(async{} | pool{}), copy = owner;
  CHECK(mr_ref<on_device>(owner) == mr_ref<on_device>(copy));
}

TEST_CASE("a stream-ordered cuda::mr resource as a source keeps the laws") {
  laws::check_resource(from_cuda_mr(ordered_mr{}));
}
TEST_CASE("a cuda::mr resource without streams as a source keeps the laws") {
  laws::check_resource(from_cuda_mr(plain_mr{}));
}
TEST_CASE("and so does a pool on one") { laws::check_resource(from_cuda_mr(ordered_mr{}) | pool{}); }

TEST_CASE("what was allocated with a stream is never freed without one, and with the size it had") {
  fresh_world const world;
  ordered_mr const theirs;
  {
    auto memory = make(from_cuda_mr(theirs) | pool{});
    weir::stream const stream;
    void* const p = memory.allocate(host_order, 5000);
    memory.deallocate(stream, p, 5000);
  }
  auto memory = make(from_cuda_mr(theirs));
  auto handle = share(memory);
  for (std::size_t alignment = 16; alignment <= max_alignment; alignment *= 16) {
    void* const p = handle.allocate(host_order, 100, alignment);
    CHECK(reinterpret_cast<std::uintptr_t>(p) % alignment == 0);
    handle.deallocate(cudaStreamPerThread, p, 100, alignment);
  }
  CHECK(theirs.seen().wrong == 0);
  CHECK(theirs.seen().in_order.empty());
  CHECK(theirs.seen().largest_alignment == 256);  // what every resource honours
}

TEST_CASE("a resource that has no more is weir's out of memory, whichever way it says so") {
  fresh_world const world;
  sim::set_capacity(0, 1_MiB);
  auto ordered = make(from_cuda_mr(ordered_mr{}));
  auto telling = make(from_cuda_mr(somebody::telling_mr{}));
  try {
    ordered.allocate(cudaStreamPerThread, 2_MiB);
    FAIL("nothing was thrown");
  } catch (out_of_memory const& error) {
    CHECK(std::string(error.what()).find("refused by cuda_mr; chain: cuda_mr") != std::string::npos);
    CHECK(std::string(error.hint()).starts_with("the cuda::mr resource has no more, and does not say of what"));
  }
  CHECK_THROWS_AS(telling.allocate(host_order, 2_MiB), out_of_memory);
}

TEST_CASE("a refusal has the words of the resource that threw it") {
  fresh_world const world;
  auto memory = make(from_cuda_mr(somebody::full_mr{}) | limit{1_MiB});
  std::string const words = weir::test::message_of<out_of_memory>([&] { memory.allocate(host_order, 1000, 4096); });
  CHECK(weir::test::contains(words, "1000 B"));
  CHECK(weir::test::contains(words, "a cuda::mr resource: their pool is full\\n"));
}

TEST_CASE("a refusal of weir's own keeps its report on the way through cuda::mr") {
  fresh_world const world;
  auto inner = make(device{} | limit{.max_bytes = 1_KiB, .name = "theirs"});
  auto memory = make(from_cuda_mr(share(inner)) | statistics{});
  std::string const words = weir::test::message_of<out_of_memory>([&] { memory.allocate(host_order, 2000); });
  CHECK(weir::test::contains(words, "refused by theirs: limit"));
  CHECK_FALSE(weir::test::contains(words, "refused by cuda_mr"));
  CHECK(memory.numbers().failures == 1);
}

TEST_CASE("memory without streams is given back once the stream's work is done") {
  lazy_world const world;
  auto memory = make(from_cuda_mr(plain_mr{}));
  bool done = false;
  void* const p = memory.allocate(cudaStreamPerThread, 1000);
  REQUIRE(cudaLaunchHostFunc(
              cudaStreamPerThread, [](void* flag) { *static_cast<bool*>(flag) = true; }, &done) == cudaSuccess);
  memory.deallocate(cudaStreamPerThread, p, 1000);
  CHECK(done);
}

TEST_CASE("a resource without streams, which calls cudaMalloc and cudaFree, breaks no capture") {
  fresh_world const world;
  auto memory = make(from_cuda_mr(plain_mr{}));
  weir::stream const captured, other;
  void* const before = memory.allocate(other, 1000);
  REQUIRE(cudaStreamBeginCapture(captured.get(), cudaStreamCaptureModeGlobal) == cudaSuccess);
  memory.deallocate(other, memory.allocate(other, 1000), 1000);
  memory.deallocate(host_order, before, 1000);
  CHECK(sim::captures_invalidated() == 0);
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(captured.get(), &graph) == cudaSuccess);
  CHECK(cudaGraphDestroy(graph) == cudaSuccess);
}

TEST_CASE("a stack on a cuda::mr resource knows the device it was told") {
  fresh_world const world;
  auto memory = make(from_cuda_mr(plain_mr{}, 1) | pool{});
  CHECK(device_of(memory) == 1);
  CHECK_THROWS_AS(static_cast<void>(make(from_cuda_mr(plain_mr{}, 7))), std::invalid_argument);
  CHECK_THROWS_WITH_AS(static_cast<void>(make(from_cuda_mr(plain_mr{}, -2))),
                       "weir: cuda_mr: device is -2; it must be at least -1, which is the current device",
                       std::invalid_argument);
  CHECK_FALSE(from_cuda_mr(plain_mr{}, -2).valid());
}

TEST_CASE("a resource of whichever device is current gives memory of the source's") {
  fresh_world const world;
  auto memory = make(from_cuda_mr(plain_mr{}, 1));
  void* const p = memory.allocate(host_order, 1000);
  CHECK(sim::live_bytes(1) == 1000);
  CHECK(current_device() == 0);
  memory.deallocate(host_order, p, 1000);
}

TEST_CASE("memory that is not aligned to 256 bytes goes back, and is an error") {
  fresh_world const world;
  int live = 0;
  auto memory = make(from_cuda_mr(somebody::careless_mr{{}, &live}));
  for (std::size_t const alignment : {16u, 256u, 4096u}) {
    CHECK_THROWS_WITH_AS(static_cast<void>(memory.allocate(host_order, 100, alignment)),
                         doctest::Contains("aligned to 256, which is not so aligned; it was given back"),
                         std::logic_error);
    CHECK(live == 0);
  }
}

TEST_CASE("a deallocate that throws goes to the misuse handler") {
  fresh_world const world;
  auto memory = make(from_cuda_mr(somebody::throwing_mr{}));
  weir::test::caught_misuse const misuse;
  void* const p = memory.allocate(host_order, 1000);
  memory.deallocate(host_order, p, 1000);
  REQUIRE(misuse.count() == 1);
  std::string const what = misuse.last();
  CHECK(what.starts_with("weir: cuda_mr: deallocate of " + detail::hex(p) + " (1000 B) threw: no\\nway;"));
}

TEST_CASE("host memory without streams makes no CUDA call") {
  fresh_world const world;
  sim::reset_counters();
  auto memory = make(from_cuda_mr(host_mr{}));
  static_assert(host_accessible<cuda_mr_resource<host_mr>> && !device_accessible<cuda_mr_resource<host_mr>>);
  memory.deallocate(host_order, memory.allocate(host_order, 1000), 1000);
  CHECK(sim::calls() == 0);
  CHECK(device_of(memory) == -1);
}

TEST_CASE("there and back again: a stack on a reference to a stack") {
  fresh_world const world;
  auto bottom = make(async{} | pool{} | statistics{});
  auto handle = share(bottom);
  auto top = make(from_cuda_mr(mr_ref<on_device>(handle)) | limit{1_MiB});
  void* const p = top.allocate(cudaStreamPerThread, 1000);
  CHECK(bottom.numbers().requested.current == 1000);
  top.deallocate(cudaStreamPerThread, p, 1000);
  CHECK(bottom.numbers().requested.current == 0);
}

#if CCCL_VERSION >= 3002000
TEST_CASE("a cuda::buffer on a stack has its memory in the order of its stream, and gives it back") {
  lazy_world const world;
  auto memory = make(async{} | pool{} | statistics{});
  {
    ::cuda::stream const stream{::cuda::devices[0]};
    auto const handle = share(memory);
    auto const uninitialised = ::cuda::make_buffer<int, on_device>(stream, handle, 1000, ::cuda::no_init);
    CHECK(memory.numbers().requested.current == 4000);
    auto const sevens = ::cuda::make_buffer<int, on_device>(stream, any_ref(memory), 100, 7);
    std::vector<int> on_the_host(100);
    ::cuda::copy_bytes(stream, sevens, on_the_host);
    stream.sync();
    CHECK(on_the_host == std::vector<int>(100, 7));
  }
  CHECK(memory.numbers().requested.current == 0);
}

TEST_CASE("a cuda::buffer keeps the stack that it was given to own") {
  fresh_world const world;
  {
    ::cuda::stream const stream{::cuda::devices[0]};
    auto const buffer = [&] {
      any_resource const owner(device{} | pool{});
      return ::cuda::make_buffer<int, on_device>(stream, owner, 1000, 1);
    }();
    CHECK(sim::live_bytes(0) > 0);
    CHECK(buffer.size() == 1000);
  }
  CHECK(sim::live_bytes(0) == 0);
}

TEST_CASE("CCCL's own pool is a source") {
  fresh_world const world;
  ::cuda::device_memory_pool theirs(::cuda::devices[0]);
  {
    auto memory = make(from_cuda_mr(::cuda::device_memory_pool_ref(theirs)) | pool{} | statistics{});
    weir::stream const stream;
    void* const p = memory.allocate(stream, 100'000, 4096);
    CHECK(reinterpret_cast<std::uintptr_t>(p) % 4096 == 0);
    CHECK(theirs.attribute(::cuda::memory_pool_attributes::used_mem_current) > 0);
    memory.deallocate(stream, p, 100'000, 4096);
  }
  CHECK(theirs.attribute(::cuda::memory_pool_attributes::used_mem_current) == 0);
}

TEST_CASE("CCCL's pools of pinned and managed memory are sources that the host reaches") {
  fresh_world const world;
  auto const check_pool = [](auto pool) {
    using source = from_cuda_mr<decltype(pool)>;
    static_assert(host_accessible<made_by<source>> && device_accessible<made_by<source>>);
    auto memory = make(source(pool) | ::weir::pool{});
    auto* const p = static_cast<char*>(memory.allocate(host_order, 1000));
    p[999] = 1;
    CHECK(cudaMemsetAsync(p, 2, 10, cudaStreamPerThread) == cudaSuccess);
    CHECK(cudaStreamSynchronize(cudaStreamPerThread) == cudaSuccess);
    CHECK(p[9] == 2);
    memory.deallocate(host_order, p, 1000);
  };
  check_pool(::cuda::pinned_default_memory_pool());
  check_pool(::cuda::managed_default_memory_pool());
}

TEST_CASE("CCCL's pool that has no more is weir's out of memory") {
  fresh_world const world;
  sim::set_capacity(0, 1_MiB);
  auto memory = make(from_cuda_mr(::cuda::device_default_memory_pool(::cuda::devices[0])) | pool{});
  CHECK_THROWS_AS(memory.allocate(cudaStreamPerThread, 2_MiB), out_of_memory);
}
#endif
