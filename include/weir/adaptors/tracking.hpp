#pragma once
// Who holds what: every live block with its tag, thread, stream and call stack; leaks and wrong frees by name.

#include <weir/adaptors/detail/call_stacks.hpp>
#include <weir/adaptors/detail/holders.hpp>
#include <weir/adaptors/detail/leak_exit.hpp>
#include <weir/adaptors/detail/memory_statistics.hpp>
#include <weir/adaptors/detail/passing_adaptor.hpp>
#include <weir/adaptors/detail/tag_totals.hpp>
#include <weir/adaptors/detail/tracked_blocks.hpp>
#include <weir/core/bytes.hpp>
#include <weir/core/call_note.hpp>
#include <weir/core/deallocate_after.hpp>
#include <weir/core/error.hpp>
#include <weir/core/live_block.hpp>
#include <weir/core/options.hpp>
#include <weir/core/printable.hpp>
#include <weir/core/recipe.hpp>
#include <weir/core/report.hpp>
#include <weir/core/resource.hpp>
#include <weir/core/shown_events.hpp>
#include <weir/core/shown_memory.hpp>
#include <weir/core/tag.hpp>
#include <weir/support/function.hpp>

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

namespace weir {

template <resource Upstream>
class tracking_resource;

/// Remembers who allocated each live block. Says who holds what when asked, when memory runs out, and when the stack
/// ends with blocks that nobody freed; and says what a wrong free is, before it does harm.
/// When not to use it: in a hot loop of a program that works; `statistics{.by_tag = true}` says how much for less.
struct tracking {
  /// How many calls of its call stack are kept for each block, the innermost first; 0: none. Costs microseconds a
  /// request, where the rest costs tens of nanoseconds.
  std::size_t frames = 0;
  bool report_leaks = true;  ///< say what is live when the resource is destroyed, if something is
  /// What the process exits with, when it ends by itself, if something was live when the resource was destroyed; at
  /// most 255. 0: as it would. What is to run at exit runs all the same. For tests and nightly runs, which nobody
  /// reads.
  unsigned leak_exit_status = 0;
  std::string name = {};  ///< whose blocks they are, for reports: `search` makes it `search: tracking`
  /// Gets the report of what is live at the end; what it throws is lost. Empty: it is written to stderr.
  detail::function<void(std::string const& report)> on_leaks = {};

  template <resource Upstream>
  using on = tracking_resource<Upstream>;

  static constexpr char const* layer_name = "tracking";
  template <class F>
  static constexpr void for_each_option(F f) {
    f(option::count("frames", "frames", &tracking::frames).at_most(detail::call_stacks::most_frames));
    f(option::flag("report_leaks", "report_leaks", &tracking::report_leaks));
    f(option::count("leak_exit_status", "leak_exit_status", &tracking::leak_exit_status).at_most(255));
    f(option::text("name", "name", &tracking::name));
  }

  /// Empty if these options are valid, else what is wrong with them.
  std::string problem() const { return option::first_problem(*this); }
  bool valid() const { return problem().empty(); }
};

/// What `tracking` stands as on an upstream. All functions may be called from any thread; the maps are this object's
/// own, under one short lock.
///
/// A free that is wrong (a pointer that is not live here, another size or alignment than it was allocated with) goes to
/// the misuse handler with all that is known of the block, and not to the upstream: the memory is kept. What is freed
/// is forgotten before the upstream has it back. On a growable upstream each chunk that is mapped is a block.
template <resource Upstream>
class tracking_resource : public detail::passing_adaptor<tracking_resource<Upstream>, Upstream> {
  using base = detail::passing_adaptor<tracking_resource, Upstream>;

 public:
  static constexpr char const* layer_name = tracking::layer_name;
  static constexpr bool knows_blocks = true;

  template <recipe F>
  tracking_resource(F const& upstream, tracking const& options)
      : base(upstream),
        options_(detail::require_valid(options)),
        label_(options.name.empty() ? "tracking" : printable(options.name) + ": tracking"),
        stacks_(options.frames) {}

  /// Reports what is live, if it is to; not in a forked child, whose parent will.
  ~tracking_resource() {
    if (::getpid() != process_ || blocks_.numbers().live() == 0) return;
    if (options_.report_leaks) report_leaks();
    if (options_.leak_exit_status != 0) detail::leak_exit::leaked(static_cast<int>(options_.leak_exit_status));
  }

  /// Throws what the upstream throws, and, before it is asked, `std::bad_alloc`.
  void* allocate(stream_ref stream, std::size_t bytes, std::size_t alignment = default_alignment) {
    if (bytes == 0) return nullptr;
    tag_name const tag = current_tag();
    detail::call_stack_id const stack = stacks_.here();
    blocks_.promise(tag);
    void* const p = this->pass(stream, bytes, alignment, [this] { blocks_.forget_promise(); });
    blocks_.add({.address = reinterpret_cast<std::uintptr_t>(p),
                 .bytes = bytes,
                 .alignment = alignment,
                 .taken = weir::taken(upstream_, bytes, alignment),
                 .tag = tag,
                 .stream = stream,
                 .call_stack = stack});
    return p;
  }

  /// Takes no host memory, but for the words about a free that is wrong.
  void deallocate(stream_ref stream, void* p, std::size_t bytes, std::size_t alignment = default_alignment) noexcept {
    take_back(p, bytes, alignment, [=](Upstream& below) { share(below).deallocate(stream, p, bytes, alignment); });
  }
  /// See `weir::deallocate_after`. Checked and forgotten at once, as by `deallocate`.
  void deallocate_after(stream_ref stream, void* p, std::size_t bytes, stream_list others,
                        std::size_t alignment = default_alignment) noexcept {
    take_back(p, bytes, alignment,
              [=](Upstream& below) { weir::deallocate_after(below, stream, p, bytes, others, alignment); });
  }

  /// See `weir::find_block`.
  live_block find_block(void const* p) const noexcept { return blocks_.find_block(p); }

  /// What `statistics` counts, at one moment. Cheap: a short lock and a copy.
  memory_statistics numbers() const noexcept { return blocks_.numbers(); }
  /// The same of each tag, what holds most first.
  std::vector<tag_statistics> numbers_by_tag() const { return blocks_.numbers_by_tag(); }
  /// Starts the peaks again from what is live now.
  void reset_peaks() noexcept { blocks_.reset_peaks(); }
  /// Whose blocks they are; empty: nobody said.
  std::string const& name() const noexcept { return options_.name; }

  /// All live blocks, the largest first. This and what follows copies what is known of every live block, under the
  /// lock.
  std::vector<tracked_block> blocks() const {
    std::vector<tracked_block> all = blocks_.all();
    std::sort(all.begin(), all.end(), [](tracked_block const& a, tracked_block const& b) { return a.bytes > b.bytes; });
    return all;
  }
  /// Who holds most, `most` of them at most.
  std::vector<holder> holders(held_by key, std::size_t most = 10) const {
    std::vector<holder> all = detail::holders_of(blocks_.all(), key, detail::coarse_nanoseconds(), stacks_, most);
    if (all.size() > most) all.resize(most);
    return all;
  }
  /// A line for each frame that was kept of a block's call stack, the innermost first. Slow: asks for their names.
  std::vector<std::string> call_stack(tracked_block const& block) const { return stacks_.lines_of(block.call_stack); }
  /// Who holds what, for people: by tag, thread, stream and call stack, and the largest blocks; `most` of each.
  std::string live_report(std::size_t most = 10) const {
    return detail::holders_report("weir: " + label_, blocks_.all(), detail::coarse_nanoseconds(), stacks_,
                                  options_.frames != 0, most);
  }

  /// For `weir::snapshot`: who holds each live block.
  void show_memory(detail::memory_visitor& visitor) const {
    for (tracked_block const& b : blocks_.all())
      visitor.see(detail::shown_holder{b.address, b.bytes, b.tag, detail::stream_number(b.stream), b.thread});
  }

  void describe_layer(report& out) const {
    memory_statistics const now = numbers();
    out.below(label_, format_bytes(static_cast<std::size_t>(now.requested.current)) + " requested in " +
                          std::to_string(now.live()) + " live blocks");
    std::vector<tag_statistics> const tags = numbers_by_tag();
    out.note("holders", detail::holders_text(tags));
    out.main_holder(detail::main_holder_text(tags));
  }

 private:
  using base::upstream_;
  friend base;

  // ---- a growable upstream: each chunk is a block

  template <class Map>
  bool map_by(void* p, std::size_t bytes, Map map) {
    std::size_t const chunk = this->chunk_bytes();
    tag_name const tag = current_tag();
    detail::call_stack_id const stack = stacks_.here();
    blocks_.promise(tag, bytes / chunk);
    bool mapped = false;
    try {
      mapped = map();
    } catch (...) {
      blocks_.forget_promise(bytes / chunk);
      throw;
    }
    if (!mapped) return blocks_.forget_promise(bytes / chunk), false;
    this->for_each_chunk(p, bytes, [&](void* at) {
      blocks_.add({.address = reinterpret_cast<std::uintptr_t>(at),
                   .bytes = chunk,
                   .alignment = chunk,
                   .taken = chunk,
                   .tag = tag,
                   .stream = host_order,
                   .call_stack = stack});
    });
    return true;
  }
  /// A wrong one is refused by the upstream.
  template <class Unmap>
  bool unmap_by(void* p, std::size_t bytes, Unmap unmap) noexcept {
    if (!unmap()) return false;
    std::size_t const chunk = this->chunk_bytes();
    tracked_block gone;
    this->for_each_chunk(p, bytes, [&](void* at) { blocks_.take_off(at, chunk, chunk, gone); });
    return true;
  }

  /// `give(upstream)` frees the block there.
  template <class Give>
  void take_back(void* p, std::size_t bytes, std::size_t alignment, Give give) noexcept {
    if (p == nullptr) return;
    tracked_block block;
    if (!blocks_.take_off(p, bytes, alignment, block)) [[unlikely]]
      return report_wrong_free(p, bytes, alignment);
    detail::last_call.clear();
    give(upstream_);
    if (detail::last_call.what == detail::call_note::misuse) [[unlikely]]
      blocks_.put_back(block);
  }

  [[gnu::noinline, gnu::cold]] void report_wrong_free(void* p, std::size_t bytes, std::size_t alignment) noexcept {
    detail::report_misuse("weir: " + label_ + ": " +
                          detail::wrong_free_text(blocks_.explain(p), reinterpret_cast<std::uintptr_t>(p), bytes,
                                                  alignment, detail::coarse_nanoseconds(), stacks_));
  }

  void report_leaks() noexcept try {
    std::string const text = live_report();
    if (options_.on_leaks)
      options_.on_leaks(text);
    else
      std::fputs(text.c_str(), stderr);
  } catch (...) {  // no memory for the words, or the user's function threw
  }

  tracking options_;
  std::string label_;
  ::pid_t process_ = ::getpid();
  detail::call_stacks stacks_;
  detail::tracked_blocks blocks_;
};

}  // namespace weir
