#pragma once
// Shows a stack to NVIDIA's tools through NVTX 3: ranges and counters to Nsight Systems, blocks to compute-sanitizer.

#include <weir/version.hpp>

#if !__has_include(<nvtx3/nvToolsExtMem.h>)
#error "weir: weir/bridges/nvtx.hpp needs NVTX 3 with its memory extension: nvtx3/nvToolsExtMem.h, of the CUDA toolkit"
#endif

#include <weir/adaptors/detail/adaptor_base.hpp>
#include <weir/bridges/nvtx_heaps.hpp>
#include <weir/core/call_note.hpp>
#include <weir/core/deallocate_after.hpp>
#include <weir/core/limit_ref.hpp>
#include <weir/core/options.hpp>
#include <weir/core/printable.hpp>
#include <weir/core/recipe.hpp>
#include <weir/core/report.hpp>
#include <weir/core/resource.hpp>
#include <weir/core/tag.hpp>
#include <weir/support/blocks_by_address.hpp>
#include <weir/support/grown_array.hpp>
#include <weir/support/mutex.hpp>

#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtCounters.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace weir {

template <resource Upstream>
class nvtx_resource;

/// What passes here is shown to a tool that is attached: as ranges named by tag, as counters of live bytes by tag and
/// of the budget right below, and as memory that compute-sanitizer knows the borders of. Without a tool each request
/// costs a few calls of empty functions, and with `counters` or `blocks` a lock and a table. When not to use it: for
/// numbers that a program reads itself (`statistics`), or for what happened before a tool was there (`trace`).
struct nvtx {
  bool ranges = true;    ///< a range around each allocation and free, named by the thread's tag, with the bytes
  bool counters = true;  ///< live bytes of each tag; and what is charged, where it stands right on a `limit`
  /// For compute-sanitizer, of the layer below a pool: each of its segments is a heap, of which nothing may be used.
  bool segments = false;
  /// For compute-sanitizer, of the layer on a pool: each block is memory of its heap that may be used. A pool with both
  /// is checked like `cudaMalloc`: use before an allocation, after a free and beyond the end is found.
  bool blocks = false;
  std::string name = {};  ///< whose stack it is: counters are `search: decoder/kv`

  template <resource Upstream>
  using on = nvtx_resource<Upstream>;

  static constexpr char const* layer_name = "nvtx";
  template <class F>
  static constexpr void for_each_option(F f) {
    f(option::flag("ranges", "ranges", &nvtx::ranges));
    f(option::flag("counters", "counters", &nvtx::counters));
    f(option::flag("segments", "segments", &nvtx::segments));
    f(option::flag("blocks", "blocks", &nvtx::blocks));
    f(option::text("name", "name", &nvtx::name));
  }
  /// Empty if these options are valid, else what is wrong with them.
  std::string problem() const {
    return segments && blocks
               ? "nvtx: segments and blocks are both set; segments is for the layer below a pool, blocks "
                 "for the one on it"
               : std::string();
  }
  bool valid() const { return problem().empty(); }
};

namespace detail {

/// A range of this thread while it lives; named by its tag.
class nvtx_range {
 public:
  enum category : std::uint32_t { none, allocation, free };

  nvtx_range(category what, std::size_t bytes) noexcept : shown_(what != none) {
    if (!shown_) return;
    tag_name const tag = current_tag();
    nvtxEventAttributes_t event{};
    event.version = NVTX_VERSION;
    event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    event.category = what;
    event.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
    event.payload.ullValue = bytes;
    event.messageType = NVTX_MESSAGE_TYPE_ASCII;
    event.message.ascii = tag ? tag.text().data() : "(untagged)";  // which ends in a zero, as all names do
    nvtxDomainRangePushEx(nvtx_domain(), &event);
  }
  ~nvtx_range() {
    if (shown_) nvtxDomainRangePop(nvtx_domain());
  }
  nvtx_range(nvtx_range const&) = delete;
  nvtx_range& operator=(nvtx_range const&) = delete;

 private:
  bool shown_;
};

/// A live block that is shown.
struct nvtx_block {
  tag_name tag;
  std::size_t bytes = 0;  // 0: none
};

/// The live blocks that passed here, and if `counted` live bytes of each tag, as counters. Thread-safe.
class nvtx_live_blocks {
 public:
  nvtx_live_blocks(std::string const& name, bool counted)
      : prefix_(name.empty() ? "" : name + ": "), counted_(counted) {}

  static std::uint64_t registered(std::string const& name) {
    nvtxCounterAttr_t attributes{};
    attributes.structSize = sizeof attributes;
    attributes.schemaId = NVTX_PAYLOAD_ENTRY_TYPE_INT64;
    attributes.name = name.c_str();
    return nvtxCounterRegister(nvtx_domain(), &attributes);
  }

  /// Makes room for a block, so that `add` can be called, or `forget_promise`. May throw `std::bad_alloc`.
  void promise(tag_name tag) {
    mutex_guard const lock(mutex_);
    if (counted_) make_counter(tag);
    live_.promise();
  }
  void forget_promise() noexcept {
    mutex_guard const lock(mutex_);
    live_.forget_promise();
  }
  /// Whether another block was live there still: it was given back past this layer, and counts no more.
  bool add(void const* p, nvtx_block const& block) noexcept {
    mutex_guard const lock(mutex_);
    nvtx_block const* const found = live_.find(reinterpret_cast<std::uintptr_t>(p));
    nvtx_block const stale = found == nullptr ? nvtx_block{} : *found;
    live_.insert(reinterpret_cast<std::uintptr_t>(p), block);
    if (stale.bytes != 0) change(stale.tag, -static_cast<std::int64_t>(stale.bytes));
    change(block.tag, static_cast<std::int64_t>(block.bytes));
    return stale.bytes != 0;
  }
  /// What was live there, from now on no more; none for a block that did not pass here.
  nvtx_block take_off(void const* p) noexcept {
    mutex_guard const lock(mutex_);
    nvtx_block const* const found = live_.find(reinterpret_cast<std::uintptr_t>(p));
    if (found == nullptr) return {};
    nvtx_block const gone = *found;
    live_.erase(reinterpret_cast<std::uintptr_t>(p));
    change(gone.tag, -static_cast<std::int64_t>(gone.bytes));
    return gone;
  }
  /// As if it had not been taken off; false, and nothing done, where others were promised the room.
  bool put_back(void const* p, nvtx_block const& block) noexcept {
    mutex_guard const lock(mutex_);
    if (!live_.insert_again(reinterpret_cast<std::uintptr_t>(p), block)) return false;
    change(block.tag, static_cast<std::int64_t>(block.bytes));
    return true;
  }
  /// Shows what `value()` gives as a counter; of several threads, what the last one gave is shown last.
  template <class F>
  void show(std::uint64_t id, F value) noexcept {
    mutex_guard const lock(mutex_);
    nvtxCounterSampleInt64(nvtx_domain(), id, static_cast<std::int64_t>(value()));
  }

 private:
  struct counter {
    std::uint64_t id = 0;
    std::int64_t live = 0;
    bool is_known = false;
  };
  void make_counter(tag_name tag) {
    if (tag.id() >= counters_.size()) counters_.grow(tag.id() + counters_.size() / 2 + 8);
    counter& of_tag = counters_[tag.id()];
    if (!of_tag.is_known) of_tag = {registered(prefix_ + tag.printable()), 0, true};
  }
  void change(tag_name tag, std::int64_t bytes) noexcept {
    if (!counted_) return;
    counter& of_tag = counters_[tag.id()];
    of_tag.live += bytes;
    nvtxCounterSampleInt64(nvtx_domain(), of_tag.id, of_tag.live);
  }

  std::string prefix_;
  bool counted_;
  mutex mutex_;
  grown_array<counter> counters_;  // by tag
  blocks_by_address<nvtx_block> live_;
};

}  // namespace detail

/// What `nvtx` stands as on an upstream. All functions may be called from any thread. A block is shown after the
/// upstream gave it, and taken back before it frees it; shown again if a layer below reports that free as misuse. One
/// that is given back past this layer stays shown until its address is another block's.
template <resource Upstream>
class nvtx_resource : public detail::adaptor_base<nvtx_resource<Upstream>, Upstream> {
  using base = detail::adaptor_base<nvtx_resource, Upstream>;

 public:
  static constexpr char const* layer_name = nvtx::layer_name;

  /// Throws `std::invalid_argument` for wrong options.
  template <recipe F>
  nvtx_resource(F const& upstream, nvtx const& options)
      : base(upstream), options_(detail::require_valid(options)), blocks_(options.name, options.counters) {
    if constexpr (detail::budget<Upstream>)
      if (options.counters) charged_ = detail::nvtx_live_blocks::registered(name_of_charged());
  }

  /// Throws what the upstream throws, and before it is asked `std::bad_alloc`.
  void* allocate(stream_ref stream, std::size_t bytes, std::size_t alignment = default_alignment) {
    if (bytes == 0) return nullptr;
    using range = detail::nvtx_range;
    range const shown(options_.ranges ? range::allocation : range::none, bytes);
    tag_name const tag = current_tag();
    promise(tag);
    void* const p = this->pass(stream, bytes, alignment, [this] { forget_promise(); });
    bool const was_shown = remembers_blocks() && blocks_.add(p, {tag, bytes});
    if (options_.segments) detail::nvtx_heaps::all().add(p, bytes);
    if (options_.blocks && was_shown) detail::nvtx_hide_block(p);
    if (options_.blocks) detail::nvtx_show_block(p, bytes);
    show_budget();
    return p;
  }
  void deallocate(stream_ref stream, void* p, std::size_t bytes, std::size_t alignment = default_alignment) noexcept {
    take_back(p, bytes, [=](Upstream& below) { share(below).deallocate(stream, p, bytes, alignment); });
  }
  /// See `weir::deallocate_after`.
  void deallocate_after(stream_ref stream, void* p, std::size_t bytes, stream_list others,
                        std::size_t alignment = default_alignment) noexcept {
    take_back(p, bytes, [=](Upstream& below) { weir::deallocate_after(below, stream, p, bytes, others, alignment); });
  }

  /// Whose stack it is; empty: nobody said.
  std::string const& name() const noexcept { return options_.name; }
  void describe_layer(report& out) const {
    out.below(options_.name.empty() ? "nvtx" : printable(options_.name) + ": nvtx", "shows what passes to tools");
  }

 private:
  using base::upstream_;

  /// A budget without a name is that of whose stack it is.
  std::string name_of_charged() const {
    std::string const& whose = upstream_.name().empty() ? options_.name : upstream_.name();
    return whose.empty() ? "charged" : whose + ": charged";
  }

  /// Whether live blocks are remembered: what is shown of them, and what a free takes back, is known by that.
  bool remembers_blocks() const noexcept { return options_.counters || options_.blocks; }

  /// Room in the tables that are kept here. May throw `std::bad_alloc`, and then has none.
  void promise(tag_name tag) {
    if (remembers_blocks()) blocks_.promise(tag);
    try {
      if (options_.segments) detail::nvtx_heaps::all().promise();
    } catch (...) {
      if (remembers_blocks()) blocks_.forget_promise();
      throw;
    }
  }
  void forget_promise() noexcept {
    if (remembers_blocks()) blocks_.forget_promise();
    if (options_.segments) detail::nvtx_heaps::all().forget_promise();
  }

  /// `give(upstream)` frees the block there.
  template <class Give>
  void take_back(void* p, std::size_t bytes, Give give) noexcept {
    if (p == nullptr) return;
    using range = detail::nvtx_range;
    range const shown(options_.ranges ? range::free : range::none, bytes);
    void* const volatile address = p;  // volatile: taken before p is gone
    detail::nvtx_block const block = remembers_blocks() ? blocks_.take_off(p) : detail::nvtx_block{};
    if (options_.blocks && block.bytes != 0) detail::nvtx_hide_block(p);
    std::size_t const segment = options_.segments ? detail::nvtx_heaps::all().remove(p) : 0;
    detail::last_call.clear();
    give(upstream_);
    if (detail::last_call.what == detail::call_note::misuse) [[unlikely]]
      put_back(address, block, segment);
    else if (segment != 0)
      detail::nvtx_heaps::all().forget_promise();
    show_budget();
  }
  /// What a wrong free took off is live still.
  [[gnu::noinline, gnu::cold]] void put_back(void* p, detail::nvtx_block const& block, std::size_t segment) noexcept {
    if (segment != 0) detail::nvtx_heaps::all().add(p, segment);
    if (block.bytes != 0 && blocks_.put_back(p, block) && options_.blocks) detail::nvtx_show_block(p, block.bytes);
  }
  void show_budget() noexcept {
    if constexpr (detail::budget<Upstream>)
      if (options_.counters) blocks_.show(charged_, [this] { return upstream_.used(); });
  }

  nvtx options_;
  detail::nvtx_live_blocks blocks_;
  std::uint64_t charged_ = 0;  // the counter of the budget below
};

}  // namespace weir
