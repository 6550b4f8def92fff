// Many small tasks on a few streams: tiles of a picture are worked on by turns, up to four at the same time, with
// memory from one stack. Streams that are made once cost nothing a task, and a pool knows them without a CUDA call.
#include <weir/adaptors/pool.hpp>
#include <weir/containers/vector.hpp>
#include <weir/core/recipe.hpp>
#include <weir/cuda/stream_pool.hpp>
#include <weir/sources/async.hpp>

#include <cstdio>
#include <vector>

int main() {
  constexpr std::size_t tiles = 12, pixels = 10'000;
  auto memory = weir::make(weir::async{} | weir::pool{});
  weir::stream_pool streams(4);

  std::vector<weir::vector<unsigned char>> done;
  for (std::size_t i = 0; i < tiles; ++i) {
    weir::stream const& stream = streams.get();  // each of the four in its turn
    weir::vector<unsigned char> tile(pixels, stream, memory);
    tile.set_to_zero();  // stands for the work
    done.push_back(std::move(tile));
  }
  unsigned long sum = 0;
  for (auto const& tile : done)
    for (unsigned char const value : tile.to_host()) sum += value;

  bool const by_turns = done[0].stream() == done[4].stream() && done[0].stream() != done[1].stream();
  std::printf("%zu tiles on %zu streams of device %d: sum %lu\n", done.size(), streams.size(), streams.device(), sum);
  return by_turns && sum == 0 ? 0 : 1;
}
