#pragma once
// One line of the log, in the columns that RMM's tools read, and the tag.

#include <weir/adaptors/detail/log_file.hpp>
#include <weir/core/tag.hpp>
#include <weir/cuda/stream_ref.hpp>
#include <weir/support/thread_id.hpp>

#include <time.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace weir::detail {

/// Formatted on the caller's stack, outside all locks, without allocating.
class log_line {
 public:
  static constexpr std::string_view header = "Thread,Time,Action,Pointer,Size,Stream,Tag\n";

  /// `action` is one of ours. The tag is this thread's, which is a field of a CSV line already.
  log_line(std::string_view action, void const* p, std::size_t bytes, stream_ref stream) noexcept {
    number<10>(thread_id());
    time();
    text(",");
    text(action);
    text(",0x");
    number<16>(reinterpret_cast<std::uintptr_t>(p));
    text(",");
    number<10>(bytes);
    // RMM writes 0 for the default stream; the host's order has none.
    if (stream.get() == cudaStreamLegacy) {
      text(",0,");
    } else {
      text(",0x");
      number<16>(reinterpret_cast<std::uintptr_t>(stream.get()));
      text(",");
    }
    text(current_tag().field());
    text("\n");
  }

  operator std::string_view() const noexcept { return {text_, static_cast<std::size_t>(end_ - text_)}; }

 private:
  void text(std::string_view piece) noexcept {
    std::memcpy(end_, piece.data(), piece.size());
    end_ += piece.size();
  }
  /// In base 10 or 16.
  template <unsigned Base>
  void number(std::uint64_t value) noexcept {
    char digits[20];
    char* first = digits + sizeof digits;
    do *--first = "0123456789abcdef"[value % Base];
    while ((value /= Base) != 0);
    text({first, static_cast<std::size_t>(digits + sizeof digits - first)});
  }
  void two_digits(int value) noexcept {
    *end_++ = static_cast<char>('0' + value / 10);
    *end_++ = static_cast<char>('0' + value % 10);
  }

  /// `,hours:minutes:seconds.microseconds`, local. The calendar is asked once a second and thread.
  void time() noexcept {
    struct second {
      ::time_t since_epoch;
      ::tm local;
    };
    static constinit thread_local second latest{-1, {}};
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    if (now.tv_sec != latest.since_epoch) {
      ::localtime_r(&now.tv_sec, &latest.local);
      latest.since_epoch = now.tv_sec;
    }
    text(",");
    two_digits(latest.local.tm_hour);
    text(":");
    two_digits(latest.local.tm_min);
    text(":");
    two_digits(latest.local.tm_sec);
    text(".");
    int const microseconds = static_cast<int>(now.tv_nsec / 1000);
    two_digits(microseconds / 10000);
    two_digits(microseconds / 100 % 100);
    two_digits(microseconds % 100);
  }

  char text_[log_file::max_line];
  static_assert(log_file::max_line >=
                20 + sizeof ",00:00:00.000000,allocate failure,0x" + 16 + 1 + 20 + 3 + 16 + 1 + longest_tag_field + 1);
  char* end_ = text_;
};

}  // namespace weir::detail
