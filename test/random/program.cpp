// The random programs themselves: resources with a bug each are caught by the words that fit it, and the steps that
// catch them are few, repeatable, and written down as a test.
#include "program.hpp"
#include "steps.hpp"

#include <weir/adaptors/statistics.hpp>
#include <weir/pool/pool_options.hpp>
#include <weir/sources/device.hpp>
#include <weir/testing/checked.hpp>

#include <doctest/doctest.h>

#include <array>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <vector>

using namespace random_program;

namespace {

/// Keeps what is freed by its size, for whoever comes next; `Bug` says what is wrong with it.
enum class bug {
  none,
  no_order,
  early_write,
  leak,
  device,
  last_error,
  alignment,
  overlap,
  gives_back_early,
  waits_in_capture,
  shares_in_capture,  // what a capture freed is anyone's
  forgets_a_free,     // in its numbers, as all that follow
  counts_a_refusal,
  loses_sight,  // of what it keeps for whoever comes next
  takes_uncounted,
  forgets_others,  // that a free has to come after
};

template <bug Bug, weir::resource Upstream>
class keeper {
 public:
  static constexpr std::size_t segment_alignment = std::size_t{1} << 16;  // whatever is asked for
  template <weir::recipe F, class Options>
  keeper(F const& upstream, Options const&) : upstream_(upstream()) {}
  ~keeper() {
    for (auto const& [bytes, p] : kept_)
      if (Bug != bug::leak) upstream_.deallocate(weir::host_order, p, piece_for(bytes), segment_alignment);
  }
  keeper(keeper const&) = delete;
  keeper& operator=(keeper const&) = delete;

  void* allocate(weir::stream_ref, std::size_t bytes, std::size_t) {
    ++calls_;
    if (Bug == bug::device && calls_ % 8 == 0) cudaSetDevice(1);
    if (Bug == bug::early_write && last_ != nullptr) std::memset(last_, 0xee, 1);
    if (Bug == bug::last_error && calls_ == 5) {
      static_cast<void>(cudaStreamQuery(reinterpret_cast<cudaStream_t>(12345)));
      throw weir::out_of_memory({bytes, bytes, {}}, "keeper", weir::report());
    }
    auto const found = kept_.find(bytes);
    void* p = nullptr;
    if (Bug == bug::counts_a_refusal) numbers_.requested.add(bytes);
    if (found != kept_.end()) {
      p = found->second;
      kept_.erase(found);
      numbers_.free -= piece_for(bytes);
    } else {
      p = upstream_.allocate(weir::host_order, piece_for(bytes), segment_alignment);
      numbers_.reserved.add(piece_for(bytes));
      numbers_.growths += Bug != bug::takes_uncounted || calls_ % 8 != 0;
    }
    numbers_.count_allocation(Bug == bug::counts_a_refusal ? 0 : bytes, piece_for(bytes));
    last_ = static_cast<std::byte*>(p);
    return Bug == bug::alignment && calls_ % 8 == 0 ? last_ + 64 : p;
  }
  void release_captured(std::uint64_t) {}
  weir::pool_numbers numbers() const { return numbers_; }
  Upstream& upstream() { return upstream_; }
  void deallocate(weir::stream_ref stream, void* p, std::size_t bytes, std::size_t) noexcept {
    if (p == last_) last_ = nullptr;
    numbers_.count_deallocation(Bug == bug::forgets_a_free && calls_ % 8 == 0 ? 0 : bytes, piece_for(bytes));
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    if (Bug == bug::shares_in_capture) cudaStreamIsCapturing(stream.get(), &status);
    bool const waits = Bug != bug::no_order && !stream.is_host_order() && status == cudaStreamCaptureStatusNone;
    if (Bug == bug::gives_back_early)
      return upstream_.deallocate(weir::host_order, p, piece_for(bytes), segment_alignment);
    if (waits) cudaStreamSynchronize(stream.get());
    kept_.emplace(bytes, p);
    if (Bug != bug::loses_sight || calls_ % 8 != 0) numbers_.free += piece_for(bytes);
    if (Bug == bug::overlap && calls_ % 8 == 0) kept_.emplace(bytes, p);
  }
  void deallocate_after(weir::stream_ref stream, void* p, std::size_t bytes, weir::stream_list,
                        std::size_t alignment) noexcept requires(Bug == bug::forgets_others) {
    deallocate(stream, p, bytes, alignment);
  }

 private:
  /// Larger than asked, so that what is wrong stays in memory of its own; whole, so that nobody has to round it.
  static std::size_t piece_for(std::size_t bytes) { return 4096 + (bytes + 255) / 256 * 256; }

  Upstream upstream_;
  std::multimap<std::size_t, void*> kept_;
  weir::pool_numbers numbers_;
  std::byte* last_ = nullptr;
  std::size_t calls_ = 0;
};

template <bug Bug>
struct keeping {
  template <weir::resource Upstream>
  using on = keeper<Bug, Upstream>;
};

template <bug Bug>
std::function<stack()> stack_with() {
  return [] {
    return make_stack(weir::device{} | weir::checked{"below"} | weir::statistics{} | keeping<Bug>{} |
                      weir::checked{"above"});
  };
}

constexpr setting settings[] = {{.mode = sim::mode::immediate, .schedule = 1, .most_bytes = 4},
                                {.mode = sim::mode::lazy, .schedule = 1, .most_bytes = 4},
                                {.mode = sim::mode::random, .schedule = 1, .most_bytes = 4},
                                {.mode = sim::mode::random, .schedule = 1, .most_bytes = 4, .starving = true},
                                {.mode = sim::mode::pct, .schedule = 1, .most_bytes = 4}};

/// The same on a device with room for no more than three pieces.
constexpr auto small = [] {
  auto all = std::to_array(settings);
  for (setting& each : all) each.capacity = std::size_t{1} << 18;
  return all;
}();

/// What programs do besides, if asked.
enum class besides { nothing, captures, frees_after_others };

/// Steps without CUDA's failures, which this stack does not deal with.
std::vector<step> steps_for(std::uint64_t seed, besides what = besides::nothing) {
  auto steps = what == besides::nothing ? steps_from(seed, 300, 1) : steps_from(seed, 600);
  std::erase_if(steps, [what](step const& s) {
    if (s.what == free_after_others) return what == besides::nothing;
    bool const fails =
        s.what == fail_in_allocate || s.what == fail_in_free || s.what == fail_twice || s.what == sticky_error;
    return fails || (s.what >= begin_capture && what != besides::captures);
  });
  return steps;
}

/// Caught in every schedule by one of a few seeds, with these words; and shrunk to no more than `most` steps.
template <bug Bug>
void check_caught(std::string const& words, std::size_t most, std::span<setting const> in = settings,
                  besides what = besides::nothing) {
  auto const make = stack_with<Bug>();
  for (setting const& how : in) {
    CAPTURE(name_of(how.mode));
    outcome found;
    std::vector<step> steps;
    for (std::uint64_t seed = 1; seed <= (what == besides::nothing ? 10u : 60u) && found.what.empty(); ++seed) {
      steps = steps_for(seed, what);
      found = run(how, make, steps);
    }
    REQUIRE_MESSAGE(found.what.find(words) != std::string::npos, found.what);
    if (found.at < steps.size()) steps.resize(found.at + 1);
    auto const few = shrunk(how, make, steps);
    CHECK(few.size() <= most);
    CHECK_FALSE(run(how, make, few).what.empty());
  }
}

}  // namespace

TEST_CASE("a resource without a bug passes") {
  for (setting const& how : settings)
    for (std::uint64_t seed = 1; seed <= 10; ++seed)
      CHECK_EQ(run(how, stack_with<bug::none>(), steps_for(seed)).what, "");
  std::size_t refused = 0;
  for (setting const& how : small) {
    outcome const o = run(how, stack_with<bug::none>(), steps_for(1));
    CHECK_EQ(o.what, "");
    refused += o.refused;
  }
  CHECK(refused > 0);
}
TEST_CASE("reuse without order is caught") { check_caught<bug::no_order>("does not come after", 4); }
TEST_CASE("a block written while it is someone's is caught by its contents") {
  check_caught<bug::early_write>("contents were overwritten", 6);
}
TEST_CASE("memory that never goes back is caught") { check_caught<bug::leak>("memory is lost", 1); }
TEST_CASE("memory used again before another stream is done with it is caught") {
  check_caught<bug::forgets_others>("does not come after", 4, std::span(settings).first(1),
                                    besides::frees_after_others);
}
TEST_CASE("another current device is caught") { check_caught<bug::device>("changed the current device", 8); }
TEST_CASE("an error left behind is caught") { check_caught<bug::last_error>("left an error behind", 5); }
TEST_CASE("a wrong alignment is caught") { check_caught<bug::alignment>("not aligned", 8); }
TEST_CASE("a block handed out twice is caught") { check_caught<bug::overlap>("overlaps the live block", 12); }
TEST_CASE("memory given back while work uses it is caught") {
  // In other modes the work would then use the heap's memory; the calls are wrong in all.
  check_caught<bug::gives_back_early>("does not come after", 2, std::span(settings).first(1));
}
TEST_CASE("a capture that is broken is caught") {
  check_caught<bug::waits_in_capture>("a capture was broken", 4, settings, besides::captures);
}
TEST_CASE("memory of a graph that somebody else gets is caught") {
  check_caught<bug::shares_in_capture>("captured", 12, settings, besides::captures);
}

TEST_CASE("a free that is not counted is caught") { check_caught<bug::forgets_a_free>("what is requested", 16); }
TEST_CASE("a refused request that is counted is caught at once") {
  check_caught<bug::counts_a_refusal>("counts wrong: what is requested", 10, small);
}
TEST_CASE("numbers that do not add up are caught") {
  check_caught<bug::loses_sight>("what is reserved is not the sum of its parts", 16);
}
TEST_CASE("a pool whose upstream counts otherwise is caught") {
  check_caught<bug::takes_uncounted>("layer 2 counts wrong: what is live", 16);
}

TEST_CASE("what failed is written down as a test") {
  std::vector<step> const steps{{allocate_block, 1, 2, 3}, {free_elsewhere, 4, 5, 6}};
  std::string const text =
      as_test("pool", {.mode = sim::mode::pct, .schedule = 17, .capacity = 4096, .streams_end = false}, steps);
  CHECK_EQ(text,
           "TEST_CASE(\"found: pool, pct, 17\") {\n"
           "  repeat(\"pool\",\n"
           "         {.mode = sim::mode::pct, .schedule = 17, .capacity = 4096, .streams_end = false, "
           ".most_bytes = 3145728, .starving = false, .few_sizes = false, .device = 0, .current = 0},\n"
           "         {{allocate_block, 1, 2, 3},\n"
           "          {free_elsewhere, 4, 5, 6}});\n"
           "}\n");
}
