#pragma once
// The file behind `logging`: opened with care, written through a buffer, complete when the process exits.

#include <weir/core/printable.hpp>
#include <weir/support/grown_array.hpp>
#include <weir/support/mutex.hpp>

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <string_view>
#include <system_error>

namespace weir::detail {

/// How to open a log.
struct log_file_options {
  std::string path;
  unsigned mode;
  bool follow_links;
  std::size_t buffer_bytes;
};

/// A text file that many threads append whole lines to. Layers of one process that name the same file share one object,
/// so that neither overwrites the other and the order of events is that of the file.
class log_file {
 public:
  /// The log at that path, emptied and started with `header` unless it is open already. Throws `std::system_error`.
  static log_file& open(log_file_options const& options, std::string_view header) {
    registry& all = registry::instance();
    mutex_guard const lock(all.lock);
    int const fd = open_safely(options);
    struct stat about {};
    ::fstat(fd, &about);
    for (log_file* each = all.first; each != nullptr; each = each->next_) {
      if (each->device_ != about.st_dev || each->inode_ != about.st_ino) continue;
      ::close(fd);
      ++each->users_;
      return *each;
    }
    log_file* made = nullptr;
    try {
      made = new log_file(fd, about, options.buffer_bytes, all.exiting);
      made->start(options, about.st_mode, header);
    } catch (...) {
      if (made == nullptr) ::close(fd);
      delete made;
      throw;
    }
    made->next_ = all.first;
    all.first = made;
    return *made;
  }

  /// Ends one `open`; the last one writes what is left and closes the file. Does nothing in a forked child.
  void release() noexcept {
    if (::getpid() != process_) return;  // a forked child: not its file
    registry& all = registry::instance();
    mutex_guard const lock(all.lock);
    if (--users_ != 0) return;
    log_file** at = &all.first;
    while (*at != this) at = &(*at)->next_;
    *at = next_;
    flush();
    delete this;
  }

  /// True in a forked child of the process that opened it: nothing may be written there. Costs a load.
  bool is_inherited() const noexcept { return is_inherited_; }

  /// Adds a line (with its newline, and no longer than `max_line`); `now` also writes it out. Allocates nothing.
  void append(std::string_view line, bool now) noexcept {
    mutex_guard const lock(mutex_);
    if (used_ + line.size() > buffer_.size()) write_out();
    std::memcpy(&buffer_[used_], line.data(), line.size());
    used_ += line.size();
    if (now || at_once_) write_out();
  }

  void flush() noexcept {
    mutex_guard const lock(mutex_);
    write_out();
  }

  /// Lines that could not be written (the disk was full, say).
  std::uint64_t lost() const noexcept {
    mutex_guard const lock(mutex_);
    return lost_;
  }

  static constexpr std::size_t max_line = 512;

 private:
  /// All open logs, to write them out at exit. Never destroyed: a log may be in use until the very end.
  struct registry {
    mutex lock;
    log_file* first = nullptr;
    bool exiting = false;

    static registry& instance() {
      static registry* const all = [] {
        std::atexit([]() noexcept { instance().flush_all(); });
        ::pthread_atfork(nullptr, nullptr, []() noexcept { instance().forget_parent(); });
        return new registry;
      }();
      return *all;
    }

    /// Runs after the destructors of objects made later than the first log. What is logged after it is written at once.
    void flush_all() noexcept {
      mutex_guard const all(lock);
      exiting = true;
      for (log_file* each = first; each != nullptr; each = each->next_) {
        mutex_guard const one(each->mutex_);
        each->at_once_ = true;
        each->write_out();
      }
    }

    /// In a forked child, alone: the parent writes its lines itself. Its threads, which may have held the locks, are
    /// not here to give them back.
    void forget_parent() noexcept {
      lock.renew_in_child();
      for (log_file* each = first; each != nullptr; each = each->next_) {
        each->mutex_.renew_in_child();
        each->is_inherited_ = true;
      }
      first = nullptr;
    }
  };

  log_file(int fd, struct stat const& about, std::size_t buffer_bytes, bool exiting)
      : fd_(fd),
        device_(about.st_dev),
        inode_(about.st_ino),
        regular_(S_ISREG(about.st_mode)),
        at_once_(buffer_bytes == 0 || exiting),
        buffer_(buffer_bytes > max_line ? buffer_bytes : max_line) {}
  ~log_file() { ::close(fd_); }

  /// Nothing is changed before it is clear whose file it is: a path in a shared folder may have been prepared by
  /// others, and a log that is open keeps the options that it was opened with.
  static int open_safely(log_file_options const& options) {
    int const links = options.follow_links ? 0 : O_NOFOLLOW;
    int const fd =
        ::open(options.path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | links,
               static_cast<::mode_t>(options.mode));
    if (fd < 0) fail(options.path, errno, errno == ELOOP ? ", a symbolic link (logging::follow_links is off)" : "");
    struct stat about {};
    int error = ::fstat(fd, &about) == 0 ? 0 : errno;
    char const* why = "";
    if (error == 0 && S_ISREG(about.st_mode) && about.st_uid != ::geteuid()) {
      error = EPERM;
      why = ", which belongs to another user";
    }
    // O_NONBLOCK was for opening only (a pipe without a reader must not hang the program).
    if (error == 0 && ::fcntl(fd, F_SETFL, O_APPEND) != 0) error = errno;
    if (error != 0) {
      ::close(fd);
      fail(options.path, error, why);
    }
    return fd;
  }

  [[noreturn]] static void fail(std::string const& path, int error, char const* why) {
    throw std::system_error(error, std::generic_category(),
                            "weir: logging: cannot write to \"" + printable(path) + "\"" + why);
  }

  /// `mode`: what the file has. If it existed, more people may be able to read it than are to.
  void start(log_file_options const& options, ::mode_t mode, std::string_view header) {
    bool const is_read_by_others = (mode & 0777U & ~options.mode) != 0;
    if (regular_ && is_read_by_others && ::fchmod(fd_, options.mode) != 0) fail(options.path, errno, "");
    if (regular_ && ::ftruncate(fd_, 0) != 0) fail(options.path, errno, "");
    std::size_t done = 0;
    if (int const error = write_all(header.data(), header.size(), done); error != 0) fail(options.path, error, "");
  }

  /// 0, or the error number that stopped it after `done` bytes.
  int write_all(char const* text, std::size_t size, std::size_t& done) noexcept {
    while (done < size) {
      ::ssize_t const n = ::write(fd_, text + done, size - done);
      if (n > 0)
        done += static_cast<std::size_t>(n);
      else if (n == 0 || errno != EINTR)
        return n == 0 ? EIO : errno;
    }
    return 0;
  }

  /// Empties the buffer into the file. Needs the lock.
  void write_out() noexcept {
    std::size_t done = 0;
    int const caller_errno = errno;
    if (used_ != 0 && ::getpid() == process_ && write_all(buffer_.data(), used_, done) != 0) {
      // Readers must not meet half a line: cut it off again, and count it with the others.
      std::size_t whole = done;
      while (whole != 0 && buffer_[whole - 1] != '\n') --whole;
      if (regular_ && whole != done) {
        ::off_t const end = ::lseek(fd_, 0, SEEK_END);
        if (end >= 0) static_cast<void>(!::ftruncate(fd_, end - static_cast<::off_t>(done - whole)));
      }
      for (std::size_t at = whole; at < used_; ++at) lost_ += buffer_[at] == '\n' ? 1U : 0U;
    }
    used_ = 0;
    errno = caller_errno;
  }

  int fd_;
  ::dev_t device_;
  ::ino_t inode_;
  bool regular_;
  bool at_once_;
  ::pid_t process_ = ::getpid();
  bool is_inherited_ = false;  // changes only in a child with one thread
  mutable mutex mutex_;
  grown_array<char> buffer_;
  std::size_t used_ = 0;
  std::uint64_t lost_ = 0;
  std::size_t users_ = 1;  // with `next_`, guarded by the registry's lock
  log_file* next_ = nullptr;
};

}  // namespace weir::detail
