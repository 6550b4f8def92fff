// needs: tsan
#include <weir/bridges/detail/recorded_streams.hpp>

#include <doctest/doctest.h>
#include <support/destroyable_stream.hpp>

#include <thread>
#include <vector>

using namespace weir;
using detail::recorded_streams;
using test::destroyable_stream;

TEST_CASE("a block has the streams that were recorded, each once, until it is freed") {
  recorded_streams recorded;
  destroyable_stream const a, b;
  int first = 0, second = 0;
  recorded.add(&first, a);
  recorded.add(&second, b);
  recorded.add(&first, b);
  recorded.add(&first, a);
  CHECK(recorded.take(&first) == std::vector<stream_ref>{a, b});
  CHECK(recorded.take(&first).empty());
  CHECK(recorded.take(&second) == std::vector<stream_ref>{b});
}

TEST_CASE("another thread's own default stream is known as the legacy one, which comes after it") {
  recorded_streams recorded;
  destroyable_stream const a;
  int mine = 0, anothers = 0, of_both = 0;
  recorded.add(&mine, cudaStreamPerThread);
  recorded.add(&mine, cudaStreamPerThread);
  recorded.add(&of_both, cudaStreamPerThread);
  std::thread([&] {
    recorded.add(&anothers, a);
    recorded.add(&anothers, cudaStreamPerThread);
    recorded.add(&of_both, cudaStreamPerThread);
  }).join();
  CHECK(recorded.take(&mine) == std::vector<stream_ref>{cudaStreamPerThread});
  CHECK(recorded.take(&anothers) == std::vector<stream_ref>{a, cudaStreamLegacy});
  CHECK(recorded.take(&of_both) == std::vector<stream_ref>{cudaStreamPerThread, cudaStreamLegacy});
}

TEST_CASE("threads record streams of their own blocks at the same time") {
  recorded_streams recorded;
  destroyable_stream const a, b;
  std::vector<int> wrong(4);
  std::vector<std::thread> threads;
  for (int& count : wrong)
    threads.emplace_back([&] {
      std::vector<char> blocks(100);
      for (char& block : blocks) {
        recorded.add(&block, a);
        recorded.add(&block, b);
      }
      for (char& block : blocks) count += recorded.take(&block).size() != 2;
    });
  for (std::thread& each : threads) each.join();
  CHECK(wrong == std::vector<int>(4));
}
