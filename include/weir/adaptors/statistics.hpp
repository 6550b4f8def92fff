#pragma once
// Counts what passes: live, peak and total, for the whole layer and for parts of a program.

#include <weir/adaptors/detail/blocks_by_tag.hpp>
#include <weir/adaptors/detail/counting_scope.hpp>
#include <weir/adaptors/detail/memory_statistics.hpp>
#include <weir/adaptors/detail/passing_adaptor.hpp>
#include <weir/adaptors/detail/statistics_counters.hpp>
#include <weir/adaptors/detail/tag_totals.hpp>
#include <weir/core/call_note.hpp>
#include <weir/core/deallocate_after.hpp>
#include <weir/core/options.hpp>
#include <weir/core/printable.hpp>
#include <weir/core/recipe.hpp>
#include <weir/core/report.hpp>
#include <weir/core/resource.hpp>
#include <weir/core/tag.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace weir {

template <resource Upstream>
class statistics_resource;

/// Counts requested and allocated bytes, allocations and failures of what passes through it.
/// When not to use it: to learn what a pool holds from CUDA, ask the pool; this layer sees only requests.
struct statistics {
  std::string name = {};  ///< whose numbers they are, for reports: `search` makes it `search: statistics`
  bool by_tag = false;    ///< also count by `weir::tag`; remembers each live block, and costs about as much again

  template <resource Upstream>
  using on = statistics_resource<Upstream>;

  static constexpr char const* layer_name = "statistics";
  template <class F>
  static constexpr void for_each_option(F f) {
    f(option::text("name", "name", &statistics::name));
    f(option::flag("by_tag", "by_tag", &statistics::by_tag));
  }

  std::string problem() const { return {}; }
  bool valid() const { return true; }
};

/// Counts, while it lives, what *this thread* does through one statistics layer. Scopes nest: what an inner one sees,
/// the outer ones see too. Memory that is freed in a scope but was allocated before it counts negative.
///
///     { weir::statistics_scope scope(memory);  solve();  std::puts(scope.numbers().summary("solve").c_str()); }
///
/// Must end on the thread that made it, and before the resource. A request costs some nanoseconds more for each scope
/// open on its thread, and nothing where none is open on the layer.
class statistics_scope {
 public:
  /// Watches the outermost `statistics` layer of the stack `top`.
  template <class Top>
  [[nodiscard]] explicit statistics_scope(Top& top) noexcept : scope_(weir::find<statistics_resource>(top).counters_) {}

  statistics_scope(statistics_scope const&) = delete;
  statistics_scope& operator=(statistics_scope const&) = delete;

  /// What was counted so far. For the thread that made the scope.
  memory_statistics const& numbers() const noexcept { return scope_.numbers(); }

 private:
  detail::counting_scope scope_;
};

/// What `statistics` stands as on an upstream. All functions may be called from any thread. On a growable upstream each
/// chunk that is mapped counts as an allocation.
template <resource Upstream>
class statistics_resource : public detail::passing_adaptor<statistics_resource<Upstream>, Upstream> {
  using base = detail::passing_adaptor<statistics_resource, Upstream>;

 public:
  static constexpr char const* layer_name = statistics::layer_name;

  template <recipe F>
  statistics_resource(F const& upstream, statistics const& options)
      : base(upstream),
        name_(options.name),
        label_(options.name.empty() ? "statistics" : printable(options.name) + ": statistics"),
        tags_(options.by_tag ? new detail::blocks_by_tag : nullptr) {
    if (tags_ != nullptr) counters_.watchers.add(1);
  }
  ~statistics_resource() { delete tags_; }

  /// Throws what the upstream throws, and counts it as a failure.
  [[gnu::always_inline]] void* allocate(stream_ref stream, std::size_t bytes,
                                        std::size_t alignment = default_alignment) {
    if (bytes == 0) return nullptr;
    void* const p = this->pass(stream, bytes, alignment, [this] { count_failure(); });
    std::size_t const taken = weir::taken(upstream_, bytes, alignment);
    detail::biased_owner_section const lock(counters_.lock);
    if (!lock) [[unlikely]]
      return count_slowly(p, bytes, taken), p;
    count_numbers(p, bytes, taken);
    return p;
  }

  /// More given back than is live means that a size or a pointer is wrong: a layer below that knows its blocks says
  /// what; without one it is reported here, and the memory kept. What is reported as misuse is not counted. What
  /// a layer below keeps for good, as a source does in a capture, counts as freed: the program has it no more.
  [[gnu::always_inline]] void deallocate(stream_ref stream, void* p, std::size_t bytes,
                                         std::size_t alignment = default_alignment) noexcept {
    take_back(stream, p, bytes, alignment, nullptr);
  }
  /// See `weir::deallocate_after`. Counted at once, as by `deallocate`.
  void deallocate_after(stream_ref stream, void* p, std::size_t bytes, stream_list others,
                        std::size_t alignment = default_alignment) noexcept {
    take_back(stream, p, bytes, alignment, &others);
  }

  /// All numbers at one moment. Cheap: a short lock and a copy.
  memory_statistics numbers() const noexcept {
    return counters_.with_numbers([](memory_statistics const& n) { return n; });
  }
  /// Whose numbers they are; empty: nobody said.
  std::string const& name() const noexcept { return name_; }
  /// The numbers of each tag, what holds most first; empty without `by_tag`. A free counts for the tag that the block
  /// was allocated under. Looks at each tag that there is, under a short lock.
  std::vector<tag_statistics> numbers_by_tag() const {
    if (tags_ == nullptr) return {};
    return counters_.with_numbers([this](memory_statistics const&) { return tags_->numbers(); });
  }
  /// Starts the peaks again from what is live now, say at the beginning of a phase. Scopes keep theirs.
  void reset_peaks() noexcept {
    counters_.with_numbers([this](memory_statistics& n) {
      if (tags_ != nullptr) tags_->reset_peaks();
      n.reset_peaks();
    });
  }
  /// The numbers as a table for people, and with `by_tag` those of the 20 tags that hold most.
  std::string summary(std::string const& title = "weir statistics") const {
    return numbers().summary(title) + (tags_ != nullptr ? detail::tags_table(numbers_by_tag()) : std::string());
  }

  void describe_layer(report& out) const {
    memory_statistics const now = numbers();
    out.below(label_, format_bytes(static_cast<std::size_t>(now.requested.current)) + " requested in " +
                          std::to_string(now.allocations.current) + " live allocations; peak " +
                          format_bytes(static_cast<std::size_t>(now.requested.peak)) + ", " +
                          std::to_string(now.failures) + " failures");
    std::vector<tag_statistics> const tags = numbers_by_tag();
    out.note("holders", detail::holders_text(tags));
    out.main_holder(detail::main_holder_text(tags));
  }

 private:
  using base::upstream_;
  friend base;
  friend detail::adaptor_base<statistics_resource, Upstream>;
  friend class statistics_scope;

  [[gnu::always_inline]] void take_back(stream_ref stream, void* p, std::size_t bytes, std::size_t alignment,
                                        stream_list const* others) noexcept {
    if (p == nullptr) return;
    std::size_t const taken = weir::taken(upstream_, bytes, alignment);
    // Counted before the upstream has it back: another thread that gets the same memory must not be counted first.
    detail::tagged_block of_tag;
    if (!take_off(p, bytes, taken, of_tag)) [[unlikely]]
      return this->deallocate_excess(stream, p, bytes, alignment, others);
    void* const volatile address = p;  // volatile: taken before p is gone
    detail::last_call.clear();
    this->give(stream, p, bytes, alignment, others);
    if (detail::last_call.what == detail::call_note::misuse) [[unlikely]]
      put_back(address, bytes, taken, of_tag);
  }

  // ---- a growable upstream: each chunk that is mapped counts as a request for it

  template <class Map>
  bool map_by(void* p, std::size_t bytes, Map map) try {
    if (!map()) return count_failure(), false;
    auto const chunks = static_cast<std::int64_t>(bytes / this->chunk_bytes());
    count([=](memory_statistics& n) { n.add(bytes, bytes, chunks); });
    for_each_tagged_chunk(p, bytes, [this](void* at) { tags_->add(at, this->chunk_bytes(), this->chunk_bytes()); });
    return true;
  } catch (...) {
    count_failure();
    throw;
  }
  /// Counted before others can have the memory, as a free.
  template <class Unmap>
  bool unmap_by(void* p, std::size_t bytes, Unmap unmap) noexcept {
    auto const chunks = static_cast<std::int64_t>(bytes / this->chunk_bytes());
    count([=](memory_statistics& n) { n.take_off(bytes, bytes, chunks); });
    if (!unmap()) {
      count([=](memory_statistics& n) { n.put_back(bytes, bytes, chunks); });
      return false;
    }
    for_each_tagged_chunk(p, bytes, [this](void* at) {
      detail::tagged_block counted;
      tags_->take_off(at, counted);
    });
    return true;
  }
  template <class F>
  void for_each_tagged_chunk(void* p, std::size_t bytes, F f) noexcept {
    if (tags_ == nullptr) return;
    counters_.with_numbers([&](memory_statistics const&) { this->for_each_chunk(p, bytes, f); });
  }

  /// By scopes, of whichever thread, or by tag.
  bool is_watched() const noexcept { return counters_.watchers.load() != 0; }
  // With the lock. Scopes are out of line, as the last call: so that nothing is saved over a call where there are none.
  [[gnu::always_inline]] void watch_allocation(void* p, std::size_t bytes, std::size_t taken) noexcept {
    if (detail::counting_scope::are_open()) [[unlikely]]
      return watch_allocation_in_scopes(p, bytes, taken);
    if (tags_ != nullptr) tags_->add(p, bytes, taken);
  }
  [[gnu::noinline]] void watch_allocation_in_scopes(void* p, std::size_t bytes, std::size_t taken) noexcept {
    detail::counting_scope::for_each_on(counters_, [=](memory_statistics& n) { n.add(bytes, taken); });
    if (tags_ != nullptr) tags_->add(p, bytes, taken);
  }
  /// `of_tag` becomes what it counted for the block's tag.
  [[gnu::always_inline]] void watch_free(void* p, std::size_t bytes, std::size_t taken,
                                         detail::tagged_block& of_tag) noexcept {
    if (detail::counting_scope::are_open()) [[unlikely]]
      return watch_free_in_scopes(p, bytes, taken, of_tag);
    if (tags_ != nullptr) tags_->take_off(p, of_tag);
  }
  [[gnu::noinline]] void watch_free_in_scopes(void* p, std::size_t bytes, std::size_t taken,
                                              detail::tagged_block& of_tag) noexcept {
    detail::counting_scope::for_each_on(counters_, [=](memory_statistics& n) { n.take_off(bytes, taken); });
    if (tags_ != nullptr) tags_->take_off(p, of_tag);
  }
  [[gnu::noinline, gnu::cold]] void put_back(void* p, std::size_t bytes, std::size_t taken,
                                             detail::tagged_block const& of_tag) noexcept {
    count([=](memory_statistics& n) { n.put_back(bytes, taken); });
    if (tags_ == nullptr) return;
    counters_.with_numbers([&](memory_statistics const&) { tags_->put_back(p, of_tag); });
  }

  /// Changes the layer's numbers, then those of the scopes that this thread has open on it.
  template <class Change>
  void count(Change change) noexcept {
    counters_.with_numbers(change);
    detail::counting_scope::for_each_on(counters_, change);
  }

  /// False, and nothing changed, if so much is not live. `of_tag` becomes what it counted for its tag.
  [[gnu::always_inline]] bool take_off(void* p, std::size_t bytes, std::size_t taken,
                                       detail::tagged_block& of_tag) noexcept {
    detail::biased_owner_section const lock(counters_.lock);
    if (!lock) [[unlikely]]
      return take_off_slowly(p, bytes, taken, of_tag);
    return take_off_numbers(p, bytes, taken, of_tag);
  }
  // With the lock.
  [[gnu::always_inline]] void count_numbers(void* p, std::size_t bytes, std::size_t taken) noexcept {
    counters_.numbers.add(bytes, taken);
    if (is_watched()) [[unlikely]]
      watch_allocation(p, bytes, taken);
  }
  [[gnu::always_inline]] bool take_off_numbers(void* p, std::size_t bytes, std::size_t taken,
                                               detail::tagged_block& of_tag) noexcept {
    memory_statistics& numbers = counters_.numbers;
    bool const is_live = bytes != 0 && numbers.allocations.current > 0 &&
                         static_cast<std::uint64_t>(numbers.requested.current) >= bytes &&
                         static_cast<std::uint64_t>(numbers.allocated.current) >= taken;
    if (!is_live) return false;
    numbers.take_off(bytes, taken);
    if (is_watched()) [[unlikely]]
      watch_free(p, bytes, taken, of_tag);
    return true;
  }
  // Of threads that do not own the lock; tags need it.
  [[gnu::noinline]] void count_slowly(void* p, std::size_t bytes, std::size_t taken) noexcept {
    if (tags_ == nullptr && counters_.add_in_share(bytes, taken))
      detail::counting_scope::for_each_on(counters_, [=](memory_statistics& n) { n.add(bytes, taken); });
    else
      counters_.with_numbers([=, this](memory_statistics const&) { count_numbers(p, bytes, taken); });
  }
  [[gnu::noinline]] bool take_off_slowly(void* p, std::size_t bytes, std::size_t taken,
                                         detail::tagged_block& of_tag) noexcept {
    if (tags_ != nullptr || !counters_.take_off_in_share(bytes, taken))
      return counters_.with_numbers(
          [&, p, bytes, taken](memory_statistics const&) { return take_off_numbers(p, bytes, taken, of_tag); });
    detail::counting_scope::for_each_on(counters_, [=](memory_statistics& n) { n.take_off(bytes, taken); });
    return true;
  }

  void count_failure() noexcept {
    count([](memory_statistics& n) { ++n.failures; });
  }

  static std::string counted() { return "that are not live"; }

  std::string name_;
  std::string label_;
  detail::blocks_by_tag* tags_;                   // owned; null where it does not count by tag
  mutable detail::statistics_counters counters_;  // questions settle what is lent to threads
};

}  // namespace weir
