#pragma once
// A source for adaptor tests: host memory that counts what is live and fails when told to.

#include <weir/core/error.hpp>
#include <weir/core/report.hpp>
#include <weir/core/resource.hpp>

#include <atomic>
#include <cstddef>
#include <functional>
#include <new>
#include <stdexcept>
#include <string>

namespace weir::test {

enum class failing { no, out_of_memory, bad_alloc, other, null };

struct source_state {
  std::atomic<std::size_t> live_bytes{0}, live_count{0}, peak_bytes{0}, calls{0};
  std::atomic<failing> fail{failing::no};
  bool describe_throws = false;
  std::function<void()> on_allocate;    // runs while the upstream is asked, before it answers
  std::function<void()> on_deallocate;  // what the upstream sees while it takes memory back
};

class source_resource {
 public:
  static constexpr bool device_accessible = true;
  static constexpr bool host_accessible = true;
  static constexpr bool host_ordered = true;

  explicit source_resource(source_state& state) : state_(&state) {}

  void* allocate(stream_ref stream, std::size_t bytes, std::size_t alignment) {
    if (bytes == 0) return nullptr;
    ++state_->calls;
    if (state_->on_allocate) state_->on_allocate();
    if (state_->fail == failing::out_of_memory || bytes > (std::size_t{1} << 40))
      throw out_of_memory({bytes, bytes, stream}, "source", report_of(*this));
    if (state_->fail == failing::bad_alloc) throw std::bad_alloc();
    if (state_->fail == failing::other) throw std::logic_error("something else");
    if (state_->fail == failing::null) return nullptr;
    std::size_t const now = state_->live_bytes += bytes;
    std::size_t peak = state_->peak_bytes;
    while (now > peak && !state_->peak_bytes.compare_exchange_weak(peak, now)) {
    }
    ++state_->live_count;
    // Not `operator new`, which tests count and let fail.
    return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  }
  void deallocate(stream_ref, void* p, std::size_t bytes, std::size_t) noexcept {
    if (bytes == 0) return;
    ++state_->calls;
    if (state_->on_deallocate) state_->on_deallocate();
    std::free(p);
    state_->live_bytes -= bytes;
    --state_->live_count;
  }
  void describe(report& out) const {
    if (state_->describe_throws) throw std::logic_error("no words");
    out.below("source", "host memory");
  }

 private:
  source_state* state_;
};

/// The recipe.
struct source {
  source_state* state;
  source_resource operator()() const { return source_resource(*state); }
};

/// While it lives, misuse is counted and remembered instead of ending the program.
class caught_misuse {
 public:
  caught_misuse() : before_(set_misuse_handler(&remember)) { count_ = 0; }
  ~caught_misuse() { set_misuse_handler(before_); }
  int count() const { return count_; }
  std::string const& last() const { return last_; }

 private:
  static void remember(char const* what) noexcept {
    ++count_;
    last_ = what;
  }
  static inline int count_ = 0;
  static inline std::string last_;
  misuse_handler before_;
};

/// What an expression that must throw `E` says; fails the test's caller by an empty text if it does not throw.
template <class E, class F>
std::string message_of(F f) {
  try {
    f();
  } catch (E const& e) {
    return e.what();
  }
  return {};
}

inline bool contains(std::string const& text, std::string const& piece) {
  return text.find(piece) != std::string::npos;
}

}  // namespace weir::test
