#pragma once
// Where allocations are made: call stacks, each kept once, and read as text only when somebody wants to see them.

#include <weir/core/printable.hpp>
#include <weir/support/grown_array.hpp>
#include <weir/support/mutex.hpp>

#include <cxxabi.h>
#include <execinfo.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

namespace weir::detail {

/// The number of a call stack; 0 is none.
using call_stack_id = std::uint32_t;

/// What a program's call stacks are is few beside how often they occur. Thread-safe.
class call_stacks {
 public:
  static constexpr std::size_t most_frames = 64;
  static constexpr call_stack_id most_stacks = 1 << 16;

  /// Keeps so many frames of each, the innermost; 0: none, and `here` is 0.
  explicit call_stacks(std::size_t frames) : frames_(frames < most_frames ? frames : most_frames) {
    if (frames_ == 0) return;
    void* first = nullptr;
    ::backtrace(&first, 1);  // which loads a library the first time
    stacks_.grow(16 * frames_);
    slots_.grow(64);
  }

  /// The caller's call stack. 0 for what is new once there are too many. May throw `std::bad_alloc`. Costs what
  /// unwinding the stack does, some microseconds.
  [[gnu::noinline]] call_stack_id here() {
    if (frames_ == 0) return 0;
    void* raw[most_frames + 1] = {};
    ::backtrace(raw, static_cast<int>(frames_ + 1));
    return id_of(raw + 1);  // without this function
  }

  /// How many different ones there were so far; their numbers are 1 to this.
  call_stack_id count() const noexcept {
    mutex_guard const lock(mutex_);
    return count_;
  }

  /// A line for each frame, the innermost first: `program(function(int)+0x1a)`, or `program(+0x11a9)` where the
  /// program exports no names (link it with `-rdynamic`, or ask `addr2line -e program 0x11a9`). Slow.
  std::vector<std::string> lines_of(call_stack_id id) const {
    std::vector<std::string> lines;
    if (id == 0) return lines;
    void* frames[most_frames] = {};
    int count = 0;
    {
      mutex_guard const lock(mutex_);
      void* const* const stored = frames_of(id);
      while (static_cast<std::size_t>(count) < frames_ && stored[count] != nullptr)
        frames[count] = stored[count], ++count;
    }
    char** const symbols = ::backtrace_symbols(frames, count);
    if (symbols == nullptr) return lines;
    for (int i = 0; i < count; ++i) lines.push_back(readable(symbols[i]));
    std::free(symbols);
    drop_own(lines);
    return lines;
  }

 private:
  static std::uint64_t hash_of(void* const* frames, std::size_t count) noexcept {
    std::uint64_t hash = 0;
    for (std::size_t i = 0; i < count; ++i)
      hash = (hash ^ reinterpret_cast<std::uintptr_t>(frames[i])) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 32;
  }
  void* const* frames_of(call_stack_id id) const noexcept { return stacks_.data() + (id - 1) * frames_; }
  bool is(call_stack_id id, void* const* frames) const noexcept {
    void* const* const known = frames_of(id);
    for (std::size_t i = 0; i < frames_; ++i)
      if (known[i] != frames[i]) return false;
    return true;
  }

  call_stack_id id_of(void* const* frames) {
    mutex_guard const lock(mutex_);
    std::size_t at = slot_of(frames);
    if (slots_[at] != 0 || count_ == most_stacks) return slots_[at];
    if (count_ + 1 > slots_.size() / 2) {
      rehash();
      at = slot_of(frames);
    }
    stacks_.grow((count_ + 1) * frames_ <= stacks_.size() ? 0 : 2 * stacks_.size());
    for (std::size_t i = 0; i < frames_; ++i) stacks_[count_ * frames_ + i] = frames[i];
    return slots_[at] = ++count_;
  }
  /// Where its number is, or belongs.
  std::size_t slot_of(void* const* frames) const noexcept {
    std::size_t const mask = slots_.size() - 1;
    std::size_t at = hash_of(frames, frames_) & mask;
    while (slots_[at] != 0 && !is(slots_[at], frames)) at = (at + 1) & mask;
    return at;
  }
  void rehash() {
    grown_array<call_stack_id> larger(2 * slots_.size());
    slots_.swap(larger);
    for (call_stack_id id = 1; id <= count_; ++id) slots_[slot_of(frames_of(id))] = id;
  }

  /// `/usr/bin/program(_Z3runv+0x1a) [0x401]` as `program(run()+0x1a)`.
  static std::string readable(std::string_view symbol) {
    symbol = symbol.substr(0, symbol.find(" ["));
    std::size_t const open = symbol.rfind('('), plus = symbol.rfind('+');
    std::size_t const slash = symbol.substr(0, open).rfind('/');
    std::string const file(symbol.substr(slash + 1, open - slash - 1));
    if (open == std::string_view::npos || plus == std::string_view::npos || plus < open) return printable(file);
    std::string const name(symbol.substr(open + 1, plus - open - 1));
    char* const demangled = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, nullptr);
    std::string const shown = demangled != nullptr ? demangled : name;
    std::free(demangled);
    return printable(file + '(' + shown + std::string(symbol.substr(plus)));
  }
  /// The innermost frames are weir's own where compilers did not inline them. Where they have no names, they stay.
  static void drop_own(std::vector<std::string>& lines) {
    while (lines.size() > 1 && is_own(lines.front())) lines.erase(lines.begin());
  }
  /// `program(weir::pool_resource<...>::allocate(...)+0x1a)`, but not `program(run(weir::any_ref)+0x1a)`.
  static bool is_own(std::string_view line) {
    line.remove_prefix(line.find('(') + 1);
    return line.substr(0, line.find_first_of("(<+")).find("weir::") != std::string_view::npos;
  }

  std::size_t frames_;
  mutable mutex mutex_;
  grown_array<void*> stacks_;         // `frames_` each
  grown_array<call_stack_id> slots_;  // by hash, at most half of them used
  call_stack_id count_ = 0;
};

}  // namespace weir::detail
