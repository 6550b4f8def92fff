#pragma once
// A stack part of whose memory is hoarded until a request would be refused.

#include <weir/adaptors/on_failure.hpp>
#include <weir/core/layers.hpp>
#include <weir/core/recipe.hpp>
#include <weir/core/report.hpp>
#include <weir/core/resource.hpp>
#include <weir/core/resource_ref.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <vector>

namespace open_stack {

/// Blocks of 1 MiB that nobody needs.
template <weir::resource Memory>
class hoard {
 public:
  hoard(Memory& memory, std::size_t count) : memory_(memory) {
    while (blocks_.size() < count) try {
        blocks_.reserve(count);
        blocks_.push_back(memory_.allocate(weir::host_order, bytes, bytes));
      } catch (std::exception const&) {  // it makes do with less
        break;
      }
  }
  ~hoard() {
    while (give_one() != 0) {
    }
  }
  hoard(hoard const&) = delete;
  hoard& operator=(hoard const&) = delete;

  std::size_t give_one() {
    std::lock_guard const lock(mutex_);
    if (blocks_.empty()) return 0;
    memory_.deallocate(weir::host_order, blocks_.back(), bytes, bytes);
    blocks_.pop_back();
    return bytes;
  }

 private:
  static constexpr std::size_t bytes = std::size_t{1} << 20;

  Memory& memory_;
  std::mutex mutex_;
  std::vector<void*> blocks_;
};

/// `base`, of which `count` MiB are hoarded, with an `on_failure` that gives them back one by one.
template <weir::recipe Base>
struct hoarding {
  Base base;
  std::size_t count;

  class resource_type {
   public:
    using base_type = weir::made_by<Base>;
    using top_type =
        weir::made_by<decltype(weir::share(std::declval<base_type&>()) | std::declval<weir::on_failure>())>;
    static constexpr bool device_accessible = weir::device_accessible<base_type>;
    static constexpr bool host_accessible = weir::host_accessible<base_type>;
    static constexpr bool host_ordered = true;

    explicit resource_type(hoarding const& h) : base_(weir::make(h.base)), hoard_(base_, h.count) {}

    void* allocate(weir::stream_ref s, std::size_t n, std::size_t a) { return top_.allocate(s, n, a); }
    void deallocate(weir::stream_ref s, void* p, std::size_t n, std::size_t a) noexcept { top_.deallocate(s, p, n, a); }
    void describe(weir::report& out) const { weir::describe(top_, out); }
    std::size_t taken(std::size_t n, std::size_t a) const { return weir::taken(top_, n, a); }
    bool holds_captured(std::uint64_t capture) const { return weir::holds_captured(top_, capture); }
    void release_captured(std::uint64_t capture) { weir::release_captured(base_, capture); }
    int device() const { return weir::device_of(base_); }

   private:
    base_type base_;
    hoard<base_type> hoard_;
    top_type top_ =
        weir::make(weir::share(base_) |
                   weir::on_failure{{{"hoard", [this](weir::memory_request const&) { return hoard_.give_one(); }}}, 8});
  };
  resource_type operator()() const { return resource_type(*this); }
};
template <class Base>
hoarding(Base, std::size_t) -> hoarding<Base>;

}  // namespace open_stack
