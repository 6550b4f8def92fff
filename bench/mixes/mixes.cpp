// Runs a mix on a pool, on a runtime whose work is done so many calls later. `bench/run-mixes` builds it, runs it for
// many mixes and compares. Of weir it uses the public API only, so that it compiles with the headers of other commits.
//
//   bench_mixes SEED [STEPS]
//
// Prints, as one line of CSV: the seed, and the steps that were made; ns and CUDA calls an operation; bytes that were
// busy at most: live, or freed before work that is not done; bytes held at most after a quarter of the steps, and after
// all; the mix in words.

#include "../support/null_runtime.hpp"
#include "mix.hpp"

#include <weir/weir.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <vector>

namespace bench {
namespace {

using memory_type = weir::made_by<decltype(weir::async{} | weir::pool{})>;

/// `deallocate_after`, where the commit has it.
template <class Memory>
void free_after(Memory& memory, weir::stream_ref stream, void* p, std::size_t bytes, std::size_t alignment,
                weir::stream_ref one, weir::stream_ref other) {
  if constexpr (requires { memory.deallocate_after(stream, p, bytes, {}, alignment); })
    memory.deallocate_after(stream, p, bytes, {one, other}, alignment);
  else
    memory.deallocate(stream, p, bytes, alignment);
}

/// Streams that a mix uses: `weir::stream`s, or handles that the pool knows nothing of.
class streams_of {
 public:
  explicit streams_of(mix const& m) {
    for (std::size_t i = 0; i < m.streams; ++i)
      if (m.may_end) {
        cudaStream_t made = nullptr;
        cudaStreamCreate(&made);
        all_.emplace_back(made);
      } else {
        own_.push_back(std::make_unique<weir::stream>());
        all_.emplace_back(*own_.back());
      }
  }
  weir::stream_ref operator[](std::size_t i) const { return all_[i]; }

 private:
  std::vector<std::unique_ptr<weir::stream>> own_;
  std::vector<weir::stream_ref> all_;
};

class program {
 public:
  explicit program(mix const& m) : mix_(m), streams_(m), random_(m.seed), blocks_(m.live), sizes_(1 << 14) {
    for (std::size_t& f : few_) f = random_.log(256, 256 + static_cast<double>(m.most_bytes));
    few_.resize(1 + random_.below(few_.size()));
    small_ = random_.log(16, 4096);
    large_once_in_ = 1 / (.001 + .3 * random_.unit());
    for (std::size_t& size : sizes_) size = any_size();
    for (block& b : blocks_) fill(b);
  }

  /// So many blocks at least are replaced; returns how many were.
  std::size_t run(std::size_t steps) {
    std::size_t done = 0;
    while (done < steps) {
      if (mix_.trimmed != 0 && done % mix_.trimmed == 0) memory_.trim();
      ++phase_;
      done += step();
    }
    return done;
  }
  std::size_t most_busy() const { return most_busy_; }

 private:
  struct block {
    void* address = nullptr;
    std::size_t bytes = 0, stream = 0;
  };
  struct free_made {
    std::size_t when, bytes;
  };

  std::size_t step() {
    std::size_t const live = blocks_.size();
    switch (mix_.order) {
      case freed::at_random: {
        bool const is_favourite = mix_.has_favourites && live >= 10 && !random_.once_in(10);
        return replace(blocks_[random_.below(is_favourite ? live / 10 : live)]);
      }
      case freed::oldest_first:
        return replace(blocks_[next_++ % live]);
      case freed::latest_first:
        return replace_latest(1 + random_.below(std::min(mix_.burst, live)));
      default:
        return replace_latest(live);
    }
  }
  std::size_t replace(block& b) {
    drop(b);
    fill(b);
    return 1;
  }
  std::size_t replace_latest(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) drop(blocks_[blocks_.size() - 1 - i]);
    for (std::size_t i = count; i-- > 0;) fill(blocks_[blocks_.size() - 1 - i]);
    return count;
  }
  std::size_t any_size() {
    switch (mix_.sizes) {
      case sizes_are::equal:
        return mix_.most_bytes;
      case sizes_are::uniform:
        return 1 + random_.below(mix_.most_bytes);
      case sizes_are::log_uniform:
        return random_.log(16, static_cast<double>(mix_.most_bytes));
      case sizes_are::few:
        return few_[random_.below(few_.size())];
      default:
        return 1 + random_.below(random_.once_in(large_once_in_) ? mix_.most_bytes : small_);
    }
  }
  std::size_t aligned(std::size_t bytes) const {
    return (bytes + mix_.alignment - 1) / mix_.alignment * mix_.alignment;
  }
  std::size_t any_stream() { return random_.below(mix_.streams); }

  void fill(block& b) {
    b.stream = mix_.turns == streams_take::at_random  ? any_stream()
               : mix_.turns == streams_take::by_turns ? turn_++ % mix_.streams
                                                      : phase_ / 1000 % mix_.streams;
    b.bytes = sizes_[random_.next() % sizes_.size()];
    b.address = memory_.allocate(streams_[b.stream], b.bytes, mix_.alignment);
    most_busy_ = std::max(most_busy_, busy_bytes_ += aligned(b.bytes));
    pass();
  }
  void drop(block& b) {
    std::size_t const by = mix_.where == freed_on::any_stream   ? any_stream()
                           : mix_.where == freed_on::one_stream ? 0
                                                                : b.stream;
    if (mix_.after_others != 0 && random_.unit() < mix_.after_others)
      free_after(memory_, streams_[by], b.address, b.bytes, mix_.alignment, streams_[any_stream()],
                 streams_[any_stream()]);
    else
      memory_.deallocate(streams_[by], b.address, b.bytes, mix_.alignment);
    freed_.push_back({now_, aligned(b.bytes)});
    pass();
  }
  void pass() {
    pass_time();
    ++now_;
    for (; !freed_.empty() && freed_.front().when + mix_.work_time <= now_; freed_.pop_front())
      busy_bytes_ -= freed_.front().bytes;
  }

  mix const mix_;
  streams_of const streams_;
  memory_type memory_ = weir::make(weir::async{} | weir::pool{});
  draws random_;
  std::vector<block> blocks_;
  std::vector<std::size_t> few_ = std::vector<std::size_t>(8);
  std::size_t small_ = 0;
  double large_once_in_ = 1;
  std::vector<std::size_t> sizes_;
  std::deque<free_made> freed_;
  std::size_t next_ = 0, turn_ = 0, phase_ = 0, now_ = 0, busy_bytes_ = 0, most_busy_ = 0;
};

void measure(std::uint64_t seed, std::size_t steps) {
  mix const m(seed);
  set_time_of_work(m.work_time);
  program p(m);
  if (steps == 0) steps = std::max<std::size_t>(200'000, 20 * m.live);
  p.run(steps / 4);
  std::size_t const held_early = device_bytes_peak();
  // The least of three parts: what else the machine does makes none of them faster.
  auto least = std::chrono::duration<double, std::nano>::max();
  call_counts const before = cuda_calls();
  std::size_t all = 0;
  for (int part = 0; part < 3; ++part) {
    auto const started = std::chrono::steady_clock::now();
    std::size_t const done = p.run(steps / 4);
    std::chrono::duration<double, std::nano> const took = std::chrono::steady_clock::now() - started;
    least = std::min(least, took / (2.0 * static_cast<double>(done)));
    all += done;
  }
  double const calls = static_cast<double>((cuda_calls() - before).total()) / (2.0 * static_cast<double>(all));
  std::printf("%llu,%zu,%.1f,%.4f,%zu,%zu,%zu,\"%s\"\n", static_cast<unsigned long long>(seed), steps, least.count(),
              calls, p.most_busy(), held_early, device_bytes_peak(), m.text().c_str());
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  if (argc != 2 && argc != 3) {
    std::fprintf(stderr, "usage: %s SEED [STEPS]\n", argv[0]);
    return 2;
  }
  bench::measure(std::strtoull(argv[1], nullptr, 10), argc == 3 ? std::strtoull(argv[2], nullptr, 10) : 0);
}
