#pragma once
// Writes every allocation and free to a CSV file that RMM's tools read.

#include <weir/adaptors/detail/log_file.hpp>
#include <weir/adaptors/detail/log_line.hpp>
#include <weir/adaptors/detail/passing_adaptor.hpp>
#include <weir/core/call_note.hpp>
#include <weir/core/deallocate_after.hpp>
#include <weir/core/error.hpp>
#include <weir/core/live_block.hpp>
#include <weir/core/options.hpp>
#include <weir/core/printable.hpp>
#include <weir/core/recipe.hpp>
#include <weir/core/report.hpp>
#include <weir/core/resource.hpp>

#include <time.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

namespace weir {

template <resource Upstream>
class logging_resource;

/// Logs what passes in RMM's format, `Thread,Time,Action,Pointer,Size,Stream`, with the actions `allocate`, `free` and
/// `allocate failure`; and in a last column, `Tag`, what `weir::tag` the calling thread is in. When not to use it: in a
/// hot loop; `statistics` says how much for less.
struct logging {
  /// The file; emptied when the resource is made. `%p` stands for the process id. Empty: what WEIR_LOG_FILE names, but
  /// in a program with more rights than its user (set-user-ID and the like), who must not say which file it empties.
  std::string path = {};
  unsigned mode = 0600;                 ///< who may read a new or emptied file, as in chmod
  bool follow_links = false;            ///< let the path end in a symbolic link, such as /dev/stderr
  std::size_t buffer_bytes = 64 << 10;  ///< bytes kept before they are written; 0: each line is written at once

  template <resource Upstream>
  using on = logging_resource<Upstream>;

  /// The path that will be opened.
  std::string resolved_path() const {
    char const* const variable = ::secure_getenv("WEIR_LOG_FILE");
    std::string resolved = !path.empty() ? path : variable != nullptr ? variable : "";
    for (std::size_t at = 0; (at = resolved.find("%p", at)) != std::string::npos;)
      resolved.replace(at, 2, std::to_string(::getpid()));
    return resolved;
  }

  static constexpr char const* layer_name = "logging";
  template <class F>
  static constexpr void for_each_option(F f) {
    f(option::text("path", "path", &logging::path).first());
    f(option::octal("mode", "mode", &logging::mode).at_most(0777));
    f(option::flag("follow_links", "follow_links", &logging::follow_links));
    f(option::bytes("buffer", "buffer_bytes", &logging::buffer_bytes).at_most(1_GiB));
  }

  /// Empty if these options are valid, else what is wrong with them.
  template <class = void>  // so that only those pay for compiling it who use it
  std::string problem() const {
    if (resolved_path().empty())
      return "logging: path is empty and so is the environment variable WEIR_LOG_FILE; set one";
    if (path.find('\0') != std::string::npos) return "logging: path holds a zero byte";
    return option::first_problem(*this);
  }
  template <class = void>
  bool valid() const {
    return problem().empty();
  }
};

/// What `logging` stands as on an upstream. All functions may be called from any thread; lines of one pointer are in
/// the order of its life: `allocate` is logged after the upstream gave it, `free` before the upstream has it back. A
/// `free` that was reported as misuse, and ignored, is followed by an `allocate` of the block that is live there still,
/// if a layer below knows it (`find_block`).
///
/// Lines are buffered, and written when the buffer is full, with each failure, by `flush`, when the resource is
/// destroyed and at exit (also if it never is); not by `abort` or a signal: set `buffer_bytes` to 0 for those. A forked
/// child writes nothing. Layers that name the same file share it, with the options of the first.
template <resource Upstream>
class logging_resource : public detail::passing_adaptor<logging_resource<Upstream>, Upstream> {
  using base = detail::passing_adaptor<logging_resource, Upstream>;

 public:
  static constexpr char const* layer_name = logging::layer_name;

  /// Throws `std::invalid_argument` for wrong options and `std::system_error` if the file cannot be opened or written.
  template <recipe F>
  logging_resource(F const& upstream, logging const& options)
      : base(upstream), path_(detail::require_valid(options).resolved_path()), file_(&opened(path_, options)) {}
  ~logging_resource() { file_->release(); }

  /// Throws what the upstream throws; the file then holds this failure and all that was logged before it.
  void* allocate(stream_ref stream, std::size_t bytes, std::size_t alignment = default_alignment) {
    if (bytes == 0) return nullptr;
    void* const p = this->pass(stream, bytes, alignment, [=, this] { log_failure(stream, bytes); });
    log("allocate", p, bytes, stream);
    return p;
  }

  void deallocate(stream_ref stream, void* p, std::size_t bytes, std::size_t alignment = default_alignment) noexcept {
    take_back(stream, p, bytes, alignment, nullptr);
  }
  /// See `weir::deallocate_after`. The line names `stream` alone.
  void deallocate_after(stream_ref stream, void* p, std::size_t bytes, stream_list others,
                        std::size_t alignment = default_alignment) noexcept {
    take_back(stream, p, bytes, alignment, &others);
  }

  /// Writes out what is buffered.
  void flush() noexcept { file_->flush(); }
  /// How many lines could not be written, because the disk was full, say. Nothing throws for that.
  std::uint64_t lost() const noexcept { return file_->lost(); }
  std::string const& path() const noexcept { return path_; }

  void describe_layer(report& out) const {
    std::uint64_t const missing = lost();
    out.below("logging",
              "to \"" + printable(path_) + "\"" +
                  (missing == 0 ? "" : "; " + std::to_string(missing) + " lines lost, it cannot be written"));
  }

 private:
  using base::upstream_;
  friend base;

  void take_back(stream_ref stream, void* p, std::size_t bytes, std::size_t alignment,
                 stream_list const* others) noexcept {
    if (p == nullptr) return;
    log("free", p, bytes, stream);
    void* const volatile address = p;  // volatile: taken before p is gone
    detail::last_call.clear();
    this->give(stream, p, bytes, alignment, others);
    if (detail::last_call.what == detail::call_note::misuse) [[unlikely]]
      log_kept(address, stream);
  }
  /// A free was wrong and ignored: what is live there, as far as a layer below knows it, is to who reads the log again.
  [[gnu::noinline, gnu::cold]] void log_kept(void* p, stream_ref stream) noexcept {
    if (live_block const still = weir::find_block(upstream_, p)) log("allocate", p, still.bytes, stream);
  }

  // ---- a growable upstream: a line for each chunk

  template <class Map>
  bool map_by(void* p, std::size_t bytes, Map map) try {
    if (map()) return log_chunks("allocate", p, bytes), true;
    return log_failure(host_order, bytes), false;
  } catch (...) {
    log_failure(host_order, bytes);
    throw;
  }
  template <class Unmap>
  bool unmap_by(void* p, std::size_t bytes, Unmap unmap) noexcept {
    log_chunks("free", p, bytes);
    bool const unmapped = unmap();
    if (!unmapped) log_chunks("allocate", p, bytes);
    return unmapped;
  }
  void log_chunks(char const* action, void* p, std::size_t bytes) noexcept {
    this->for_each_chunk(p, bytes, [=, this](void* at) { log(action, at, this->chunk_bytes(), host_order); });
  }

  static detail::log_file& opened(std::string const& path, logging const& options) {
    // So that no `deallocate` is the first to read the time zone. Once: glibc's own lock is invisible to TSan.
    [[maybe_unused]] static bool const time_zone_read = (::tzset(), true);
    return detail::log_file::open({path, options.mode, options.follow_links, options.buffer_bytes},
                                  detail::log_line::header);
  }

  void log_failure(stream_ref stream, std::size_t bytes) noexcept {
    log("allocate failure", nullptr, bytes, stream, true);
  }

  /// `now`: also writes out the line and all before it. Asks first whose process this is: another thread of the parent
  /// may have been asking for the time of day when this one was forked, and its lock would never be free.
  void log(char const* action, void const* p, std::size_t bytes, stream_ref stream, bool now = false) noexcept {
    if (!file_->is_inherited()) file_->append(detail::log_line(action, p, bytes, stream), now);
  }

  std::string path_;
  detail::log_file* file_;
};

}  // namespace weir
