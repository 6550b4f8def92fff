#include <weir/core/layers.hpp>

#include <weir/sim/sim.hpp>
#include <weir/tools.hpp>
#include <weir/weir.hpp>

#include <doctest/doctest.h>
#include <core/recorder.hpp>
#include <support/captures.hpp>
#include <support/parsed.hpp>

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

using namespace weir;
using namespace weir::test;

namespace {

/// What the layers below were asked, in order.
std::vector<std::string> asked;

/// Keeps `held` bytes that it can give back; 13 of them it refuses to.
template <resource Upstream>
class hoard_resource : public passing_resource<Upstream> {
 public:
  template <class F, class Options>
  hoard_resource(F const& upstream, Options const& options)
      : passing_resource<Upstream>(upstream, {options.name}), name_(options.name), held_(options.held) {}

  std::size_t trim_layer(std::size_t keep) {
    asked.push_back("trim " + name_);
    if (held_ == 13) throw std::runtime_error("not today");
    std::size_t const gone = held_ > keep ? held_ - keep : 0;
    held_ -= gone;
    return gone;
  }
  void synchronize() { asked.push_back("synchronize " + name_); }
  std::size_t release_captured(std::uint64_t capture) {
    asked.push_back("release " + name_);
    return capture;
  }

 private:
  std::string name_;
  std::size_t held_;
};
struct hoard {
  std::string name;
  std::size_t held;
  template <resource Upstream>
  using on = hoard_resource<Upstream>;
};

struct fresh_questions {
  fresh_questions() { asked.clear(); }
  fresh_record record;
};

auto const three = recorder<>{} | hoard{"low", 1000} | passing{} | hoard{"high", 500} | passing{};
std::vector<std::string> const all_trimmed{"trim high", "trim low"};

/// A device of 64 MiB.
struct small_device {
  explicit small_device(sim::mode mode) {
    sim::reset();
    sim::set_mode(mode);
    sim::set_capacity(0, 64_MiB);
  }
  ~small_device() { sim::reset(); }
  small_device(small_device const&) = delete;
  small_device& operator=(small_device const&) = delete;
};

bool device_has(std::size_t bytes) {
  void* p = nullptr;
  bool const got = cudaMalloc(&p, bytes) == cudaSuccess;
  if (got) cudaFree(p);
  cudaGetLastError();
  return got;
}

/// Uses 32 MiB of a stack on a stream, in pieces of 1 MiB, and frees them.
template <class Memory>
void use_half_of_the_device(Memory& memory, stream_ref stream) {
  std::vector<void*> blocks;
  for (int i = 0; i < 32; ++i) blocks.push_back(memory.allocate(stream, 1_MiB));
  for (void* p : blocks) memory.deallocate(stream, p, 1_MiB);
}

/// Nothing of an idle stack is in anyone's way once it was trimmed.
template <class Memory>
void gives_everything_back(char const* what, Memory& memory) {
  CAPTURE(what);
  weir::stream const stream;
  for (int round = 0; round < 2; ++round) {
    use_half_of_the_device(memory, stream);
    CHECK(!device_has(60_MiB));
    weir::synchronize(memory);
    CHECK(weir::trim(memory) >= 32_MiB);
    CHECK(device_has(64_MiB));
    {
      auto other = make(async{} | pool{});
      other.deallocate(stream, other.allocate(stream, 60_MiB), 60_MiB);
    }
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);  // until then CUDA's pool of `other` may keep what it had
  }
}

}  // namespace

TEST_CASE_FIXTURE(fresh_questions, "a stack is asked from the top down, and says what its lowest keeper gave back") {
  auto memory = make(three);
  CHECK(weir::trim(memory, 100) == 900);
  CHECK(asked == all_trimmed);
  CHECK(weir::trim(memory) == 100);
  CHECK(weir::trim(memory) == 0);
}

TEST_CASE_FIXTURE(fresh_questions, "handles and erased stacks pass all questions on") {
  auto const each_asked = [](auto&& memory) {
    asked.clear();
    CHECK(weir::trim(memory, 100) == 900);
    synchronize(memory);
    CHECK(release_captured(memory, 7) == 14);
    CHECK(asked == std::vector<std::string>{"trim high", "trim low", "synchronize high", "synchronize low",
                                            "release high", "release low"});
  };
  auto a = make(three), b = make(three), c = make(three), d = make(three);
  each_asked(a);
  each_asked(share(b));
  each_asked(any_ref(c));
  auto on_a_handle = make(share(d) | passing{});
  each_asked(on_a_handle);
  each_asked(any_resource(three));
  each_asked(any_resource(any_resource(three) | passing{}));
  auto on_erased = make(any_resource(any_resource(recorder<>{} | hoard{"low", 1000}) | hoard{"high", 500}) | passing{});
  each_asked(on_erased);
  any_resource const constant(three);
  each_asked(constant);
}

TEST_CASE_FIXTURE(fresh_questions, "a stack without a layer that keeps memory has nothing to give back") {
  auto memory = make(recorder<>{} | passing{});
  CHECK(weir::trim(memory) == 0);
  any_resource gone(recorder<>{} | passing{});
  any_resource const taken = std::move(gone);
  CHECK(weir::trim(gone) == 0);  // NOLINT(bugprone-use-after-move): it has no layers
}

TEST_CASE_FIXTURE(fresh_questions, "a layer of the user's own that throws has given nothing back, and ends nothing") {
  auto memory = make(recorder<>{} | hoard{"low", 1000} | hoard{"high", 13});
  CHECK(weir::trim(memory) == 1000);
  CHECK(weir::trim(any_ref(memory)) == 0);
  CHECK(asked.size() == 4);
}

TEST_CASE("what a trimmed stack kept can be had by others: typed, shared, erased and parsed") {
  for (auto const mode : {sim::mode::immediate, sim::mode::lazy}) {
    small_device const world(mode);
    auto const check = [](char const* what, auto const& recipe) {
      auto memory = make(recipe);
      gives_everything_back(what, memory);
      any_resource const erased(recipe);
      gives_everything_back(what, erased);
    };
    check("pool on async", async{} | pool{});
    check("pool on device", device{} | pool{});
    check("pool in the middle", async{} | limit{1_GiB} | pool{} | statistics{});
    check("arena", async{} | arena{});
    check("fixed_size", async{} | fixed_size{.block_bytes = 1_MiB});
    check("binning", async{} | binning{.bins = {bin{64_KiB}, bin{1_MiB}}});
    check("bins on a pool", async{} | pool{} | binning{.bins = {bin{1_MiB}}} | limit{1_GiB});
    check("arena on a pool", async{} | pool{} | arena{});

    auto base = make(async{} | pool{});
    auto tenant = make(share(base) | limit{1_GiB});
    gives_everything_back("a tenant", tenant);
    any_ref const reference(tenant);
    gives_everything_back("a reference", reference);

    for (char const* text : {"async | pool | limit(1GiB)", "async | arena | statistics", "device | pool | pool",
                             "async | binning(min_exponent=20, max_exponent=21)", "async | fixed_size(1MiB)"}) {
      any_resource const parsed = parse(text);
      gives_everything_back(text, parsed);
    }
    auto const promised = parse<basic_any_resource<false, false>>("async | pool | limit(1GiB)");
    gives_everything_back("memory of any kind", promised);
  }
}

TEST_CASE("the layers' own trim reaches the source too, and says what the layer gave its upstream") {
  small_device const world(sim::mode::lazy);
  auto const trimmed = [](auto const& recipe, std::size_t expected) {
    auto memory = make(recipe);
    weir::stream const stream;
    use_half_of_the_device(memory, stream);
    memory.synchronize();
    CHECK(!device_has(60_MiB));
    CHECK(memory.trim() == expected);
    CHECK(device_has(64_MiB));
  };
  trimmed(async{} | pool{.growth_bytes = 8_MiB}, 32_MiB);
  trimmed(async{} | pool{.growth_bytes = 64_MiB} | limit{1_GiB} | pool{.growth_bytes = 8_MiB}, 32_MiB);
  trimmed(async{} | arena{.growth_bytes = 8_MiB}, 32_MiB);
  trimmed(async{} | fixed_size{.block_bytes = 1_MiB, .blocks_per_chunk = 8}, 32_MiB);
  trimmed(async{} | binning{.bins = {bin{1_MiB, pool{.growth_bytes = 8_MiB}}}}, 32_MiB);
}

TEST_CASE("each layer keeps what it is told to") {
  small_device const world(sim::mode::lazy);
  auto memory = make(async{} | pool{.growth_bytes = 8_MiB});
  weir::stream const stream;
  use_half_of_the_device(memory, stream);
  synchronize(memory);
  CHECK(weir::trim(memory, 16_MiB) == 16_MiB);
  CHECK(memory.numbers().reserved.current == 16_MiB);
  CHECK(find<async_resource>(memory).numbers().reserved.current == 16_MiB);
  CHECK(device_has(48_MiB));
}

TEST_CASE("memory whose work is not done stays, and is not waited for") {
  small_device const world(sim::mode::lazy);
  any_resource const memory = parse("async | pool");
  weir::stream const stream;
  void* const p = memory.allocate(stream, 32_MiB);
  cudaMemsetAsync(p, 0, 32_MiB, stream.get());
  memory.deallocate(stream, p, 32_MiB);
  CHECK(weir::trim(memory) == 0);
  CHECK(cudaStreamQuery(stream.get()) == cudaErrorNotReady);
  cudaGetLastError();
  synchronize(memory);
  CHECK(weir::trim(memory) == 32_MiB);
}

TEST_CASE("a CUDA that refuses to trim is no error, and leaves none behind") {
  for (char const* call : {"cudaMemPoolTrimTo", "cudaStreamSynchronize", "cudaMemPoolGetAttribute"}) {
    small_device const world(sim::mode::lazy);
    any_resource const memory = parse("async | pool");
    memory.deallocate(host_order, memory.allocate(host_order, 8_MiB), 8_MiB);
    sim::fail_call(call, 1, cudaErrorUnknown);
    CHECK(weir::trim(memory) == 0);
    CHECK(cudaGetLastError() == cudaSuccess);
    CHECK(weir::trim(memory) == 8_MiB);
  }
}

TEST_CASE("a trim breaks no capture, the caller's or another stream's, and leaves what is kept for its graph") {
  for (auto const mode : all_capture_modes) {
    watched_world const world;
    any_resource const memory = parse("async | pool | limit(1GiB)");
    weir::stream const stream;
    memory.deallocate(host_order, memory.allocate(host_order, 8_MiB), 8_MiB);
    capture_scope const declared;
    begin_capture(stream, mode);
    std::uint64_t const capture = capture_id(stream);
    void* const p = memory.allocate(stream, 1_MiB);
    cudaMemsetAsync(p, 0, 1_MiB, stream.get());
    memory.deallocate(stream, p, 1_MiB);
    weir::trim(memory);
    { captured_graph const graph(stream); }
    CHECK(weir::trim(memory) == 0);
    CHECK(release_captured(memory, capture + 1) == 0);
    CHECK(release_captured(memory, capture) == 1_MiB);
    CHECK(weir::trim(memory) >= 2_MiB);
  }
}
