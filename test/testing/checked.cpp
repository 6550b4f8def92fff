// `checked` tells the simulated runtime what passes, so that a stack's mistakes and its users' are found.
#include <weir/adaptors/limit.hpp>
#include <weir/adaptors/pool.hpp>
#include <weir/core/any_ref.hpp>
#include <weir/sim/sim.hpp>
#include <weir/sources/async.hpp>
#include <weir/sources/device.hpp>
#include <weir/testing/checked.hpp>

#include <doctest/doctest.h>

#include <string>
#include <thread>
#include <utility>

using namespace weir;

namespace {

struct checking {
  checking() {
    sim::reset();
    sim::check_order(true);
  }
  ~checking() { sim::reset(); }
};

cudaStream_t make_stream() {
  cudaStream_t s = nullptr;
  REQUIRE_EQ(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), cudaSuccess);
  return s;
}

sim::order_problem the_violation() {
  REQUIRE_EQ(sim::report_count(), 1);
  sim::order_problem const kind = sim::reports().front().kind;
  sim::clear_reports();
  return kind;
}

/// Forgets the order of streams: gives the last freed block to whoever asks next.
struct careless {
  template <resource Upstream>
  class on_upstream {
   public:
    static constexpr bool host_ordered = weir::host_ordered<Upstream>;
    template <recipe F>
    on_upstream(F const& upstream, careless) : upstream_(upstream()) {}
    ~on_upstream() { upstream_.deallocate(host_order, kept_, 4096, 256); }
    void* allocate(stream_ref stream, std::size_t bytes, std::size_t alignment) {
      if (kept_ != nullptr) return std::exchange(kept_, nullptr);
      return upstream_.allocate(stream, bytes, alignment);
    }
    void deallocate(stream_ref stream, void* p, std::size_t bytes, std::size_t alignment) noexcept {
      if (kept_ != nullptr) return upstream_.deallocate(stream, p, bytes, alignment);
      kept_ = p;
    }
    Upstream& upstream() noexcept { return upstream_; }

   private:
    Upstream upstream_;
    void* kept_ = nullptr;
  };
  template <resource Upstream>
  using on = on_upstream<Upstream>;
};

}  // namespace

TEST_CASE_FIXTURE(checking, "a stack in order has no violation, above and below a pool") {
  cudaStream_t const a = make_stream(), b = make_stream();
  {
    auto memory = make(async{} | checked{"below"} | pool{} | checked{"above"});
    for (int i = 0; i < 10; ++i) {
      cudaStream_t const s = i % 2 == 0 ? a : b;
      void* const p = memory.allocate(s, 1000);
      sim::touch(s, p, 1000, sim::access::write);
      memory.deallocate(s, p, 1000);
    }
    memory.deallocate(host_order, memory.allocate(host_order, 5000), 5000);
    CHECK_EQ(memory.allocate(a, 0), nullptr);
    memory.deallocate(a, nullptr, 0);
  }
  for (auto const& r : sim::reports()) MESSAGE(r.text);
  CHECK_EQ(sim::report_count(), 0);
}

TEST_CASE_FIXTURE(checking, "a resource that gives a block to another stream too early is caught") {
  cudaStream_t const a = make_stream(), b = make_stream();
  auto memory = make(device{} | careless{} | checked{});
  void* const p = memory.allocate(a, 4096);
  memory.deallocate(a, p, 4096);
  REQUIRE_EQ(memory.allocate(b, 4096), p);
  CHECK_EQ(the_violation(), sim::order_problem::unordered_reuse);
  memory.deallocate(b, p, 4096);
  CHECK_EQ(cudaDeviceSynchronize(), cudaSuccess);
  REQUIRE_EQ(memory.allocate(a, 4096), p);
  memory.deallocate(a, p, 4096);
  CHECK_EQ(sim::report_count(), 0);
}

TEST_CASE_FIXTURE(checking, "a resource that gives back memory in use is caught from below") {
  cudaStream_t const a = make_stream();
  {
    auto memory = make(async{} | checked{"below"} | careless{});
    void* const p = memory.allocate(a, 4096, 256);
    sim::touch(a, p, 4096, sim::access::write);
    memory.deallocate(a, p, 4096, 256);  // kept, and given back by the host, who never waited, at the end
  }
  CHECK_EQ(sim::reports().front().kind, sim::order_problem::free_not_after_use);
  CHECK(sim::reports().front().text.find("of below") != std::string::npos);
}

TEST_CASE("what a thread learns while it asks a whole stack, the stack knows in every thread") {
  sim::reset();
  sim::check_order(true, {.host = sim::host_clocks::per_thread});
  cudaStream_t const a = make_stream(), b = make_stream();
  {
    auto memory = make(device{} | pool{.initial_bytes = 64_MiB} | checked{});
    void* const live = memory.allocate(a, 2_MiB);
    void* const p = memory.allocate(a, 2_MiB);
    memory.deallocate(a, p, 2_MiB);
    auto const in_another_thread = [&](auto ask) { std::thread([&] { ask(memory); }).join(); };
    SUBCASE("by waiting") {
      in_another_thread([](auto& m) { synchronize(m); });
    }
    SUBCASE("by waiting, through a handle") {
      in_another_thread([](auto& m) { synchronize(any_ref(m)); });
    }
    SUBCASE("by trimming") {
      in_another_thread([](auto& m) { trim(m, 64_MiB - 1); });
    }
    void* const q = memory.allocate(b, 2_MiB);
    CHECK_EQ(q, p);
    memory.deallocate(b, q, 2_MiB);
    memory.deallocate(a, live, 2_MiB);
  }
  for (auto const& r : sim::reports()) MESSAGE(r.text);
  CHECK_EQ(sim::report_count(), 0);
  sim::reset();
}

TEST_CASE("what a thread waited for before it released a graph's memory, the stack knows in every thread") {
  sim::reset();
  sim::check_order(true, {.host = sim::host_clocks::per_thread});
  cudaStream_t const a = make_stream(), b = make_stream();
  {
    auto memory = make(device{} | pool{.initial_bytes = 2_MiB} | checked{});
    REQUIRE_EQ(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    std::uint64_t const id = capture_id(a);
    void* const p = memory.allocate(a, 2_MiB);
    sim::touch(a, p, 2_MiB, sim::access::write);
    memory.deallocate(a, p, 2_MiB);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    REQUIRE_EQ(cudaStreamEndCapture(a, &graph), cudaSuccess);
    REQUIRE_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
    CHECK_EQ(cudaGraphDestroy(graph), cudaSuccess);
    CHECK_EQ(cudaGraphLaunch(exec, a), cudaSuccess);
    std::thread([&] {
      CHECK_EQ(cudaStreamSynchronize(a), cudaSuccess);
      CHECK_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
      CHECK_EQ(release_captured(memory, id), 2_MiB);
    }).join();
    void* const q = memory.allocate(b, 2_MiB);
    CHECK_EQ(q, p);
    memory.deallocate(b, q, 2_MiB);
  }
  for (auto const& r : sim::reports()) MESSAGE(r.text);
  CHECK_EQ(sim::report_count(), 0);
  sim::reset();
}

TEST_CASE_FIXTURE(checking, "a user who forgets the order is caught") {
  cudaStream_t const a = make_stream(), b = make_stream();
  auto memory = make(device{} | pool{} | checked{"pool"});
  void* const p = memory.allocate(a, 4096);
  sim::touch(b, p, 4096, sim::access::write);
  CHECK_EQ(the_violation(), sim::order_problem::use_before_allocation);
  memory.deallocate(a, p, 4096);
  CHECK_EQ(the_violation(), sim::order_problem::free_not_after_use);
  sim::touch(a, p, 4096, sim::access::read);
  CHECK_EQ(the_violation(), sim::order_problem::use_after_free);
}

TEST_CASE_FIXTURE(checking, "a free after the work of several streams comes after each use, and reuse after all") {
  cudaStream_t const a = make_stream(), b = make_stream();
  auto memory = make(device{} | careless{} | checked{});
  auto const used_on_both = [&] {
    void* const p = memory.allocate(a, 4096);
    sim::touch(a, p, 4096, sim::access::write);
    cudaEvent_t e = nullptr;
    REQUIRE_EQ(cudaEventCreate(&e), cudaSuccess);
    REQUIRE_EQ(cudaEventRecord(e, a), cudaSuccess);
    REQUIRE_EQ(cudaStreamWaitEvent(b, e, 0), cudaSuccess);
    REQUIRE_EQ(cudaEventDestroy(e), cudaSuccess);
    sim::touch(b, p, 4096, sim::access::read);
    return p;
  };
  void* p = used_on_both();
  memory.deallocate(a, p, 4096);
  CHECK_EQ(the_violation(), sim::order_problem::free_not_after_use);
  REQUIRE_EQ(cudaDeviceSynchronize(), cudaSuccess);

  p = used_on_both();
  memory.deallocate_after(a, p, 4096, {b, host_order});  // below, `a` is made to wait
  CHECK_EQ(sim::report_count(), 0);
  CHECK_EQ(memory.allocate(a, 4096), p);
  CHECK_EQ(sim::report_count(), 0);
  REQUIRE_EQ(cudaDeviceSynchronize(), cudaSuccess);
  memory.deallocate_after(host_order, p, 4096, {});
  CHECK_EQ(memory.allocate(b, 4096), p);
  memory.deallocate_after(b, p, 4096, {a});
  REQUIRE_EQ(memory.allocate(a, 4096), p);
  CHECK_EQ(the_violation(), sim::order_problem::unordered_reuse);
  memory.deallocate(a, p, 4096);
}

TEST_CASE_FIXTURE(checking, "a block whose wrong free was ignored is live still") {
  misuse_handler const before = set_misuse_handler([](char const*) noexcept {});
  {
    auto memory = make(device{} | checked{"below"} | pool{} | checked{"above"});
    cudaStream_t const a = make_stream();
    void* const p = memory.allocate(a, 4096);
    memory.deallocate(a, p, 5000);
    CHECK_EQ(the_violation(), sim::order_problem::wrong_size);
    memory.deallocate_after(a, p, 4096, stream_list{}, 512);
    CHECK_EQ(the_violation(), sim::order_problem::wrong_size);
    REQUIRE_EQ(cudaStreamSynchronize(a), cudaSuccess);
    memory.deallocate(host_order, p, 5000);
    CHECK_EQ(the_violation(), sim::order_problem::wrong_size);
    sim::touch(a, p, 4096, sim::access::write);
    memory.deallocate(a, p, 4096);
    CHECK_EQ(sim::report_count(), 0);
    memory.deallocate(a, p, 4096);
    CHECK_EQ(the_violation(), sim::order_problem::double_free);
    REQUIRE_EQ(cudaStreamDestroy(a), cudaSuccess);
  }
  CHECK_EQ(sim::report_count(), 0);
  set_misuse_handler(before);
}

TEST_CASE_FIXTURE(checking, "it passes on what it is given, failures too") {
  auto memory = make(device{} | limit{.max_bytes = 1000} | checked{});
  try {
    static_cast<void>(memory.allocate(stream_ref(), 1001));
    FAIL("no failure");
  } catch (out_of_memory const& failure) {
    CHECK(std::string(failure.what()).find("checked > limit") != std::string::npos);
  }
  CHECK(device_accessible<decltype(memory)>);
  CHECK_FALSE(host_accessible<decltype(memory)>);
  CHECK_THROWS_AS(static_cast<void>(make(device{} | checked{nullptr})), std::invalid_argument);
}

TEST_CASE("it costs no CUDA call and nothing else while nothing is checked") {
  sim::reset();
  auto memory = make(device{} | checked{});
  auto plain = make(device{});
  sim::reset_counters();
  memory.deallocate(cudaStreamLegacy, memory.allocate(cudaStreamLegacy, 64), 64);
  auto const calls = sim::calls();
  sim::reset_counters();
  plain.deallocate(cudaStreamLegacy, plain.allocate(cudaStreamLegacy, 64), 64);
  CHECK_EQ(sim::calls(), calls);
  CHECK_EQ(sim::report_count(), 0);
}
