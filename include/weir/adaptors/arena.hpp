#pragma once
// A pool for each thread over one upstream, for programs whose threads all allocate at once.

#include <weir/adaptors/detail/adaptor_base.hpp>
#include <weir/adaptors/detail/arena_directory.hpp>
#include <weir/adaptors/detail/passed_blocks.hpp>
#include <weir/core/call_note.hpp>
#include <weir/core/deallocate_after.hpp>
#include <weir/core/error.hpp>
#include <weir/core/layers.hpp>
#include <weir/core/options.hpp>
#include <weir/core/recipe.hpp>
#include <weir/core/resource.hpp>
#include <weir/core/resource_ref.hpp>
#include <weir/pool/caching_allocator.hpp>
#include <weir/pool/pool_options.hpp>
#include <weir/pool/pool_refusal.hpp>
#include <weir/support/atomic.hpp>
#include <weir/support/mutex.hpp>
#include <weir/support/thread_lease.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace weir {

template <resource Upstream>
class arena_resource;

/// Gives each thread (or stream) an arena of its own: a pool whose lock nobody else takes on the fast path. Memory
/// freed by another thread goes back to the arena it came from; a thread that ends leaves its arena to the next one;
/// and before anyone runs out, memory is gathered from all arenas. When not to use it: where `pool`, whose threads get
/// caches once they wait for each other, is fast enough; there what is free is everyone's.
struct arena {
  enum class owner { thread, stream };

  /// The most that all arenas together hold, in bytes; 0: no limit but the upstream's.
  std::size_t max_bytes = 0;
  /// The least an arena grows by, in bytes; 0: as a pool does.
  std::size_t growth_bytes = 0;
  /// Whose arenas are. With `stream` a stream's number decides, and threads that share a stream share an arena.
  owner per = owner::thread;
  /// Arenas at most, 1 to 64; more threads than this share.
  std::size_t max_arenas = 64;
  stream_lifetime streams = stream_lifetime::may_end;  ///< as for `pool`
  when_pending pending = when_pending::grow;           ///< as for `pool`
  bool synchronize = true;                             ///< as for `pool`
  bool declared_captures = false;                      ///< as for `pool`

  template <resource Upstream>
  using on = arena_resource<Upstream>;

  static constexpr char const* layer_name = "arena";
  template <class F>
  static constexpr void for_each_option(F f) {
    f(option::bytes("max", "max_bytes", &arena::max_bytes).first().or_zero("no limit").at_least(detail::unit_bytes));
    f(option::bytes("growth", "growth_bytes", &arena::growth_bytes)
          .at_most(detail::max_block_bytes - max_alignment, "what a segment can be"));
    f(option::one_of("per", "per", &arena::per, "thread", owner::thread, "stream", owner::stream));
    f(option::count("max_arenas", "max_arenas", &arena::max_arenas).at_least(1).at_most(detail::thread_lease::most));
    detail::for_each_pooling_option<arena>(f);
  }

  /// What is wrong with these options; empty if nothing is.
  template <class = void>  // so that only those pay for compiling it who use it
  std::string problem() const {
    return option::first_problem(*this);
  }
  template <class = void>
  bool valid() const {
    return problem().empty();
  }
};

/// Made by `upstream | arena{...}`. Thread-safe; the upstream has to be, too. Stream order is that of `pool`.
template <resource Upstream>
class arena_resource : public detail::adaptor_base<arena_resource<Upstream>, Upstream> {
  using base = detail::adaptor_base<arena_resource, Upstream>;

 public:
  static constexpr char const* layer_name = arena::layer_name;
  static constexpr bool host_ordered = true;
  static constexpr bool knows_blocks = true;

  template <recipe F>
  arena_resource(F const& upstream, arena const& options)
      : base(upstream),
        options_(detail::require_valid(options)),
        pass_through_(detail::caching_disabled()),
        most_bytes_(pass_through_             ? 0
                    : options_.max_bytes == 0 ? pool_type::most_bytes
                                              : detail::lesser(pool_type::most_bytes, options_.max_bytes)),
        device_(detail::device_for(upstream_)),
        directory_(upstream_, options_.max_bytes),
        lease_(detail::shared_owner<detail::thread_lease>::make(options_.max_arenas)) {}
  ~arena_resource() {
    lease_->close();
    for (auto& made : arenas_) delete made.load_acquire();
  }

  /// Throws as `pool_resource::allocate` does, once no arena has the memory and none can grow.
  void* allocate(stream_ref stream, std::size_t bytes, std::size_t alignment = default_alignment) {
    if (bytes == 0) return nullptr;
    detail::require_alignment(alignment);
    if (bytes > most_bytes_) [[unlikely]]
      return pass_or_refuse(stream, bytes, alignment);
    one& own = arena_at(index_of(stream));
    void* const p = own.pool.allocate(stream, bytes, alignment, detail::pool_effort::grow);
    return p != nullptr ? p : gather(own, stream, bytes, alignment);
  }

  /// The memory goes back to the arena it came from, whichever thread frees it.
  void deallocate(stream_ref stream, void* p, std::size_t bytes, std::size_t alignment = default_alignment) noexcept {
    if (p == nullptr) return;
    one* const own = existing(held_index(stream));
    if (own == nullptr || !own->pool.deallocate(stream, p, bytes, alignment)) [[unlikely]]
      deallocate_elsewhere(stream, p, bytes, alignment);
  }
  /// See `weir::deallocate_after`.
  void deallocate_after(stream_ref stream, void* p, std::size_t bytes, stream_list others,
                        std::size_t alignment = default_alignment) noexcept {
    if (p == nullptr) return;
    if (pass_through_) {
      if (passed_.take(p, bytes, alignment, layer_name))
        weir::deallocate_after(upstream_, stream, p, bytes, others, alignment);
      return;
    }
    deallocate_at_home(p, bytes, alignment,
                       [&](pool_type& pool) { return pool.deallocate_after(stream, others, p, bytes, alignment); });
  }

  /// See `weir::find_block`.
  live_block find_block(void const* p) const noexcept {
    if (pass_through_) return passed_.find(p);
    one* const home = existing(directory_.owner(p));
    return home == nullptr ? live_block{} : home->pool.find_block(p);
  }

  /// As `pool_resource::trim`, over all arenas: gives back idle segments until at most `keep` bytes are held, and lets
  /// the layers below do the same; returns how many bytes the upstream got.
  std::size_t trim(std::size_t keep = 0) noexcept {
    std::size_t const released = trim_layer(keep);
    weir::trim(upstream_, keep);
    return released;
  }
  /// The same without the layers below, which keep what they get.
  std::size_t trim_layer(std::size_t keep = 0) noexcept {
    std::size_t released = 0;
    for_each([&](one& a) {
      std::size_t const held = directory_.reserved(), own = a.pool.numbers().reserved.current;
      if (held > keep) released += a.pool.trim(own - detail::lesser(own, held - keep));
    });
    return released;
  }
  void synchronize() noexcept {
    for_each([](one& a) { a.pool.synchronize(); });
  }

  /// As `pool_resource::release_captured`, over all arenas.
  std::size_t release_captured(std::uint64_t capture = 0) noexcept {
    std::size_t released = 0;
    for_each([&](one& a) { released += a.pool.release_captured(capture); });
    return released;
  }

  /// The most bytes that all arenas hold together at any time; 0: no limit but the upstream's.
  std::size_t max_bytes() const noexcept { return options_.max_bytes; }
  /// The block that serves a request, as `pool_resource::taken`.
  std::size_t taken(std::size_t bytes, std::size_t alignment) const noexcept {
    return pass_through_ ? base::taken(bytes, alignment) : pool_type::block_bytes(bytes, alignment);
  }
  bool holds_captured(std::uint64_t capture) const noexcept {
    if (pass_through_) return base::holds_captured(capture);
    bool any = false;
    for_each([&](one& a) { any = any || a.pool.holds_captured(capture); });
    return any;
  }

  /// The sum over all arenas; peaks are sums of peaks, but for `reserved`, whose peak is that of the sum.
  pool_numbers numbers() const {
    pool_numbers sum;
    for_each([&](one& a) { sum += a.pool.numbers(); });
    if (sum.reserved.peak != 0) sum.reserved = directory_.level();  // else the pools may say nothing any more
    sum.out_of_memory = refused_.load();
    return sum;
  }
  /// As `pool_resource::largest_free`, of all arenas.
  std::size_t largest_free() const {
    std::size_t largest = 0;
    for_each([&](one& a) { largest = detail::greater(largest, a.pool.snapshot().largest_free); });
    return largest;
  }
  /// As `pool_resource::show_memory`, arena by arena.
  void show_memory(detail::memory_visitor& visitor) const {
    for_each([&](one& a) { a.pool.show_memory(visitor); });
  }
  /// As `pool_resource::reset_peaks`, of all arenas.
  void reset_peaks() noexcept {
    for_each([](one& a) { a.pool.reset_peaks(); });
    directory_.reset_peak();
  }
  /// How many arenas there are.
  std::size_t arenas() const noexcept {
    std::size_t count = 0;
    for_each([&](one&) { ++count; });
    return count;
  }

  /// See `detail::upstream_calls`.
  detail::upstream_calls const* shared_upstream_calls() const noexcept { return &directory_.calls(); }

  void describe_layer(report& out) const { describe_layer(out, ""); }

 private:
  using base::upstream_;

  void describe_layer(report& out, char const* reason) const {
    pool_numbers const n = numbers();
    out.below(options_.max_bytes == 0 ? "arena" : "arena(" + format_bytes(options_.max_bytes) + ")",
              reason + format_bytes(n.reserved.current) + " reserved in " + std::to_string(arenas()) +
                  " arenas = " + format_bytes(n.allocated.current) + " allocated + " + format_bytes(n.free) +
                  " free + " + format_bytes(n.pending) + " pending" + detail::captured_text(n) +
                  "; largest free piece " + format_bytes(largest_free()));
  }

  using share_type = detail::arena_share<Upstream>;
  using pool_type = detail::caching_allocator<share_type>;
  struct one {
    one(detail::arena_directory<Upstream>& directory, std::size_t index, pool const& options, int device)
        : share(directory, index), pool(share, options, device) {}
    share_type share;
    pool_type pool;
  };

  /// Whose turn it is to serve: the calling thread's or the stream's arena.
  std::size_t index_of(stream_ref stream) const noexcept {
    return options_.per == arena::owner::thread ? detail::thread_lease::of_this_thread(lease_) : index_by(stream);
  }
  /// The same for a free; none for a thread that never allocated.
  std::size_t held_index(stream_ref stream) const noexcept {
    return options_.per == arena::owner::thread ? detail::thread_lease::held_by_this_thread(lease_) : index_by(stream);
  }
  std::size_t index_by(stream_ref stream) const noexcept {
    auto const number = stream.lasting_id() != 0 ? stream.lasting_id() : reinterpret_cast<std::uintptr_t>(stream.get());
    return static_cast<std::size_t>((number * 0x9e3779b97f4a7c15u) >> 40) % options_.max_arenas;
  }

  one* existing(std::size_t index) const noexcept {
    return index < arenas_.size() ? arenas_[index].load_acquire() : nullptr;
  }
  one& arena_at(std::size_t index) {
    one* const made = existing(index);
    return made != nullptr ? *made : make_arena(index);
  }
  one& make_arena(std::size_t index) {
    detail::mutex_guard const lock(making_);
    if (one* const made = existing(index); made != nullptr) return *made;
    pool const options{.growth_bytes = options_.growth_bytes,
                       .name = "an arena",
                       .streams = options_.streams,
                       .pending = options_.pending,
                       .synchronize = options_.synchronize,
                       .declared_captures = options_.declared_captures};
    one* const made = new one(directory_, index, options, device_);
    arenas_[index].store_release(made);
    return *made;
  }

  template <class F>
  void for_each(F f) const {
    for (std::size_t i = 0; i < options_.max_arenas; ++i)
      if (one* const a = existing(i); a != nullptr) f(*a);
  }

  static constexpr unsigned most_rounds = 64;

  /// Out of memory: takes what another arena has; then lets all give back what is idle, and grows; then waits for work.
  void* gather(one& own, stream_ref stream, std::size_t bytes, std::size_t alignment) {
    bool const captured_only = detail::captured_memory_only::is_set();  // which no arena gets by giving back or waiting
    auto const from_any = [&] {
      void* p = nullptr;
      for_each([&](one& a) {
        if (p == nullptr) p = a.pool.allocate(stream, bytes, alignment, detail::pool_effort::reuse);
      });
      if (p != nullptr || captured_only) return p;
      trim_layer();  // even if that gave nothing back, another thread may have done so meanwhile
      return own.pool.allocate(stream, bytes, alignment, detail::pool_effort::grow);
    };
    void* p = from_any();
    bool may_wait = options_.synchronize && !captured_only;
    for (unsigned round = 0; p == nullptr && may_wait && round != most_rounds; ++round) {
      std::uint64_t const frees = numbers().deallocations;
      synchronize();
      p = from_any();
      // Others may have had what was done first: then the host waits for what they freed in its place, too.
      may_wait = p == nullptr && numbers().deallocations != frees && largest_free() >= bytes;
    }
    return p != nullptr ? p : refuse(stream, bytes, alignment);
  }

  void* pass_or_refuse(stream_ref stream, std::size_t bytes, std::size_t alignment) {
    if (!pass_through_) return refuse(stream, bytes, alignment);
    void* const p = this->pass(stream, bytes, alignment, [] {});
    return passed_.insert_or(p, bytes, alignment, [&] { share(upstream_).deallocate(stream, p, bytes, alignment); });
  }
  [[noreturn]] void* refuse(stream_ref stream, std::size_t bytes, std::size_t alignment) {
    refused_.add(1);
    report own;
    describe_layer(own, detail::capture_reason(stream));
    std::size_t const rounded = pool_type::block_bytes(bytes, detail::unit_bytes);
    base::refuse(
        {bytes, rounded, stream}, layer_name, own,
        detail::refusal_hint({.numbers = numbers(), .largest_free = largest_free()}, padded_or_zero(rounded, alignment),
                             detail::most_of(upstream_, options_.max_bytes), detail::capture_in(stream) != 0,
                             detail::captures_declared(), growable<Upstream>));
  }

  /// The caller's own arena, if it has one, knows no such block.
  void deallocate_elsewhere(stream_ref stream, void* p, std::size_t bytes, std::size_t alignment) noexcept {
    if (pass_through_) {
      if (passed_.take(p, bytes, alignment, layer_name)) share(upstream_).deallocate(stream, p, bytes, alignment);
      return;
    }
    deallocate_at_home(p, bytes, alignment,
                       [&](pool_type& pool) { return pool.deallocate(stream, p, bytes, alignment); });
  }
  /// `give_to(pool)` says whether that pool took the block.
  template <class GiveTo>
  void deallocate_at_home(void* p, std::size_t bytes, std::size_t alignment, GiveTo give_to) noexcept {
    one* const home = existing(directory_.owner(p));
    if (home == nullptr)
      detail::report_misuse("weir: arena: deallocate of " + detail::hex(p) + " with " + std::to_string(bytes) +
                            " B: it is not this resource's memory");
    else if (!give_to(home->pool))
      detail::report_misuse("weir: arena: " + home->pool.misuse(p, bytes, alignment));
  }

  arena options_;
  bool pass_through_;
  detail::passed_blocks passed_;  // while caching is off
  std::size_t most_bytes_;        // more is refused at once; 0 if everything is passed through
  int device_;
  detail::arena_directory<Upstream> directory_;
  detail::shared_owner<detail::thread_lease> lease_;
  detail::mutex making_;
  std::array<detail::atomic<one*>, detail::thread_lease::most> arenas_{};
  detail::atomic<std::uint64_t> refused_;
};

}  // namespace weir
