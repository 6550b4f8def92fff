#include <weir/tools/summary.hpp>

#include <weir/adaptors.hpp>
#include <weir/core.hpp>
#include <weir/sources/async.hpp>
#include <weir/sources/device.hpp>
#include <weir/sources/managed.hpp>
#include <weir/sources/virtual_memory.hpp>

#include <doctest/doctest.h>
#include <support/json.hpp>
#include <support/parsed.hpp>
#include <support/sim_fixture.hpp>

#include <cstddef>
#include <string>
#include <utility>

using namespace weir;
using namespace weir::literals;
using weir::test::fresh_world;
using weir::test::lazy_world;

TEST_CASE_FIXTURE(fresh_world, "a stack says the same of itself whatever is known of its type") {
  any_resource const parsed = parse("async | pool | statistics(by_tag=true) | limit(64MiB, name=search)");
  void* p = nullptr;
  {
    tag const scope{"decoder/kv"};
    p = parsed.allocate(host_order, 1000);
  }
  auto typed = make(async{} | pool{} | statistics{.by_tag = true} | limit{.max_bytes = 64_MiB, .name = "search"});
  void* q = nullptr;
  {
    tag const scope{"decoder/kv"};
    q = typed.allocate(host_order, 1000);
  }
  summary_options const options{.name = "mine", .by_tag = true};
  std::string const text = summary(typed, options);
  CHECK(text.find("| search: limit ") != std::string::npos);
  CHECK(text.find("|     decoder/kv                    |      1000 B |      1000 B |      1000 B |") !=
        std::string::npos);
  CHECK(text.starts_with("weir summary of mine "));
  CHECK(summary(std::as_const(typed), options) == text);
  CHECK(summary(share(typed), options) == text);
  CHECK(summary(any_ref(typed), options) == text);
  CHECK(summary(parsed, options) == text);
  CHECK(summary_json(parsed, options) == summary_json(typed, options));
  CHECK(test::json_reader::is_valid(summary_json(typed, options)));
  CHECK(summary_prometheus(parsed, options) == summary_prometheus(typed, options));
  CHECK(summary_prometheus(typed).find("tag=") == std::string::npos);
  CHECK(summary(typed).find("decoder/kv") == std::string::npos);
  parsed.deallocate(host_order, p, 1000);
  typed.deallocate(host_order, q, 1000);
}

TEST_CASE_FIXTURE(fresh_world, "a pool says how much of its free memory lies in one piece") {
  auto memory = make(device{} | pool{.initial_bytes = 4_MiB});
  void* const first = memory.allocate(host_order, 1_MiB);
  void* const wall = memory.allocate(host_order, 1_MiB);
  memory.deallocate(host_order, first, 1_MiB);  // 1 MiB before the wall, 2 MiB after it
  layer_numbers const pool_now = summary_of(memory).layers[0].numbers;
  CHECK(pool_now.free == 3_MiB);
  CHECK(pool_now.largest_free == 2_MiB);
  CHECK(fragmentation(pool_now).value() == doctest::Approx(1.0 / 3));
  CHECK(numbers(memory)[0].largest_free == std::nullopt);  // it takes a search
  memory.deallocate(host_order, wall, 1_MiB);
}

TEST_CASE_FIXTURE(fresh_world, "a pool that is parked says how much of it is, and no fragmentation") {
  auto memory = make(virtual_memory{} | pool{});
  void* const p = memory.allocate(host_order, 6_MiB);
  CHECK(numbers(memory)[0].parked == std::nullopt);
  memory.park(drop_contents);
  memory.deallocate(host_order, p, 6_MiB);
  layer_numbers const parked = summary_of(memory).layers[0].numbers;
  CHECK(parked.reserved == 0);
  CHECK(parked.parked == 6_MiB);
  CHECK(parked.free == 6_MiB);
  CHECK(fragmentation(parked) == std::nullopt);
  std::string const text = summary(memory);
  CHECK(text.find("|   Parked                          |    6.00 MiB |") != std::string::npos);
  CHECK(text.find("Largest free") == std::string::npos);
  CHECK(text.find("Fragmentation") == std::string::npos);
  CHECK(summary(any_ref(memory)) == text);
  memory.unpark();
  CHECK(summary(memory).find("Parked") == std::string::npos);
}

TEST_CASE_FIXTURE(lazy_world, "memory that waits for its stream is pending, and counts for fragmentation") {
  auto memory = make(device{} | pool{.initial_bytes = 4_MiB});
  stream const one, two;
  void* const a = memory.allocate(one, 1_MiB);
  void* const b = memory.allocate(two, 3_MiB);
  cudaMemsetAsync(a, 0, 1_MiB, one.get());
  cudaMemsetAsync(b, 0, 3_MiB, two.get());
  memory.deallocate(one, a, 1_MiB);
  memory.deallocate(two, b, 3_MiB);
  layer_numbers const pool_now = summary_of(memory).layers[0].numbers;
  CHECK(pool_now.pending == 4_MiB);
  CHECK(pool_now.free == 0);
  CHECK(fragmentation(pool_now) == 0.25);
}

TEST_CASE_FIXTURE(fresh_world, "each layer is of its own device, bins and second stacks too") {
  sim::set_device_count(2);
  any_resource const memory{device{.device = 1} | pool{} | binning{.bins = {bin{64_KiB}}} |
                            fallback{managed{.device = 1}}};
  stack_summary const all = summary_of(memory);
  std::string seen;
  for (layer_summary const& layer : all.layers)
    seen += std::string(layer.numbers.depth, '>') + layer.numbers.layer +
            std::to_string(layer.numbers.device.value_or(-1)) + " ";
  CHECK(seen == "fallback1 >managed1 binning1 >fixed_size1 pool1 device1 ");
  CHECK(all.device == 1);
}

TEST_CASE_FIXTURE(fresh_world, "a summary takes no device memory, and calls CUDA for async alone") {
  auto memory = make(device{} | pool{} | arena{} | fixed_size{4096} | statistics{.by_tag = true} | limit{64_MiB});
  void* const p = memory.allocate(host_order, 1000);
  std::size_t const live = sim::live_bytes(0);
  sim::reset_counters();
  CHECK(!summary(memory, {.by_tag = true}).empty());
  CHECK(!summary_json(memory, {.by_tag = true}).empty());
  CHECK(!summary_prometheus(memory, {.by_tag = true}).empty());
  CHECK(sim::calls() == 0);
  CHECK(sim::live_bytes(0) == live);
  memory.deallocate(host_order, p, 1000);

  auto on_async = make(async{} | pool{});
  sim::reset_counters();
  static_cast<void>(summary(on_async));
  CHECK(sim::calls() == sim::calls("cudaMemPoolGetAttribute"));
}

TEST_CASE_FIXTURE(fresh_world, "where CUDA does not answer, the rest of the summary is there") {
  auto memory = make(async{} | pool{});
  sim::fail_call("cudaMemPoolGetAttribute", 1, cudaErrorUnknown);
  std::string const text = summary(memory);
  CHECK(text.find("|   Reserved ") != std::string::npos);
  CHECK(text.ends_with("| async                             |             |             |             |\n"));
  CHECK(cudaGetLastError() == cudaSuccess);
}

TEST_CASE_FIXTURE(fresh_world, "arenas say the largest piece of all of them") {
  auto memory = make(device{} | arena{});
  memory.deallocate(host_order, memory.allocate(host_order, 1_MiB), 1_MiB);
  layer_numbers const now = summary_of(memory).layers[0].numbers;
  CHECK(now.largest_free == now.free);
  CHECK(now.largest_free >= 1_MiB);
}

TEST_CASE_FIXTURE(lazy_world, "a summary by stream says what each holds, and where memory waits for work") {
  auto memory = make(device{} | pool{} | tracking{});
  stream const a, b;
  void* const p = memory.allocate(a, 1_MiB);
  void* const q = memory.allocate(b, 2_MiB);
  void* const r = memory.allocate(b, 1_MiB);
  memory.deallocate(b, r, 1_MiB);
  stack_summary const by_stream = summary_of(memory, {.by_stream = true});
  REQUIRE(by_stream.layers[0].streams.size() == 2);
  auto const of = [&](layer_summary const& layer, stream const& wanted) {
    for (layer_numbers const& n : layer.streams)
      if (n.name == detail::hex_text(reinterpret_cast<std::uintptr_t>(wanted.get()))) return n;
    return layer_numbers{};
  };
  CHECK(of(by_stream.layers[0], a).requested == 1_MiB);
  CHECK(of(by_stream.layers[0], a).live == 1);
  CHECK(of(by_stream.layers[0], b).requested == 2_MiB);
  CHECK(of(by_stream.layers[1], b).pending == 1_MiB);
  CHECK_FALSE(of(by_stream.layers[1], a).pending);
  CHECK(summary_of(any_ref(memory), {.by_stream = true}).layers[0].streams == by_stream.layers[0].streams);
  CHECK(summary_of(memory).layers[0].streams.empty());
  std::string const table = summary(memory, {.by_stream = true}), json = summary_json(memory, {.by_stream = true});
  CHECK(table.find("|   Requested by stream ") != std::string::npos);
  CHECK(table.find("|   Pending by stream ") != std::string::npos);
  CHECK(test::json_reader::is_valid(json));
  CHECK(json.find("\"streams\":[{\"stream\":\"0x") != std::string::npos);
  memory.deallocate(a, p, 1_MiB);
  memory.deallocate(b, q, 2_MiB);
}
