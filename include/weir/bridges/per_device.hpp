#pragma once
// The current memory of each device: for libraries that are not told what to allocate from.

#include <weir/core/any_resource.hpp>
#include <weir/core/layers.hpp>
#include <weir/core/recipe.hpp>
#include <weir/core/resource.hpp>
#include <weir/cuda/capture.hpp>
#include <weir/cuda/device.hpp>
#include <weir/sources/async.hpp>
#include <weir/sources/source_device.hpp>
#include <weir/support/mutex.hpp>

#include <concepts>
#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace weir {

class per_device_scope;

namespace detail {

inline int existing_device(char const* asking, int device) {
  if (device < -1)
    throw std::invalid_argument(std::string("weir: ") + asking + ": device is " + std::to_string(device) +
                                "; it must be at least -1, which is the current device");
  return chosen_device(asking, device);
}

/// What scopes have set, newest first, and what each device has without one. Never destroyed, so that static objects
/// may use it in any order. A forked child begins with an empty one: the stacks are its parent's, and so may the lock
/// be.
class current_memories {
 public:
  struct entry {
    int device;
    any_resource memory;
    entry* older = nullptr;
    entry* newer = nullptr;
  };

  /// The process's own.
  static current_memories& instance() {
    current_memories* known = __atomic_load_n(&latest, __ATOMIC_ACQUIRE);
    while (known == nullptr || known->made_after_ != forks) {
      auto* const made = new current_memories;
      if (__atomic_compare_exchange_n(&latest, &known, made, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) return *made;
      delete made;
    }
    return *known;
  }

  void begin(entry& one) noexcept {
    mutex_guard const lock(mutex_);
    one.older = newest_;
    if (newest_ != nullptr) newest_->newer = &one;
    newest_ = &one;
  }
  /// Whatever began or ended since.
  void end(entry& one) noexcept {
    mutex_guard const lock(mutex_);
    (one.newer != nullptr ? one.newer->older : newest_) = one.older;
    if (one.older != nullptr) one.older->newer = one.newer;
  }

  any_resource of(int device) {
    if (auto known = find(device)) return *std::move(known);
    // Made without the lock, since CUDA is called. Where several threads come here, the first one's counts.
    existing_device("current_memory", device);
    return keep(device, any_resource(async{.device = device}));
  }

 private:
  [[gnu::visibility("default")]] static inline constinit current_memories* latest = nullptr;

  std::optional<any_resource> find(int device) {
    mutex_guard const lock(mutex_);
    for (entry const* each = newest_; each != nullptr; each = each->older)
      if (each->device == device) return each->memory;
    auto const i = static_cast<std::size_t>(device);
    return i < initial_.size() ? initial_[i] : std::nullopt;
  }
  any_resource keep(int device, any_resource const& made) {
    mutex_guard const lock(mutex_);
    auto const i = static_cast<std::size_t>(device);
    if (initial_.size() <= i) initial_.resize(i + 1);
    if (!initial_[i]) initial_[i] = made;
    return *initial_[i];
  }

  process_exit life_;  // sees to it that forks are counted
  unsigned made_after_ = forks;
  mutex mutex_;
  entry* newest_ = nullptr;
  std::vector<std::optional<any_resource>> initial_;
};

/// A handle that was moved from would be refused only by whoever asks for the current memory.
inline void require_stack(any_resource const& memory) {
  bool has_layers = false;
  detail::for_each_layer(memory, [&](auto const&) { has_layers = true; });
  if (!has_layers) throw std::invalid_argument(std::string("weir: per_device_scope: ") + erased_stack::moved_from);
}

inline int device_to_set(int device, any_resource const& memory) {
  require_stack(memory);
  int const own = weir::device_of(memory);
  int const chosen = existing_device("per_device_scope", device == -1 ? own : device);
  if (own >= 0 && own != chosen)
    throw std::invalid_argument("weir: per_device_scope: memory of device " + std::to_string(own) +
                                " cannot be the current memory of device " + std::to_string(chosen));
  return chosen;
}

/// A stack, which somebody else owns, or a recipe, which nobody has made.
template <class M>
concept memory_without_owner = (resource<M> || recipe<M>)&&!std::convertible_to<M const&, any_resource>;

/// Not to be called: says what a scope is given.
template <class M>
any_resource owner_of() {
  static_assert(never<M>,
                "weir: per_device_scope owns the memory that it sets: give it `weir::any_resource(weir::async{} | "
                "weir::pool{})`, or `weir::any_resource(weir::share(memory))` for a stack that outlives it and all who "
                "ask");
  return any_resource(async{});
}

}  // namespace detail

/// The current memory of `device` (-1: of the device that is current): what the scope that began last for it gives, or
/// an `async` source of it, which is made when it is first asked for and kept until the process ends. The handle owns:
/// it stays good when the scope ends. Any thread; takes a lock for a moment, so ask once and not for each request.
/// Throws `std::invalid_argument` for a device that is not there, or that has no memory pools where there is no scope,
/// and `cuda_error`. When not to use it: where the caller can pass the memory; what a function uses is then said by its
/// parameters.
[[nodiscard]] inline any_resource current_memory(int device = -1) {
  return detail::current_memories::instance().of(device == -1 ? current_device() : device);
}

/// Sets the current memory of one device while it lives, for all threads of the process. Of several that live for one
/// device, whichever threads began them, the one that began last counts. They may end in any order and in any thread:
/// each takes back just what it set. Thread-safe; neither copied nor moved. When not to use it: to give one thread
/// other memory than the rest; pass the memory to what that thread calls.
///
///     weir::per_device_scope const scope(weir::any_resource(weir::async{} | weir::pool{}));
class per_device_scope {
 public:
  /// For the device of `memory`, or the current one where no layer says. Throws as the other.
  [[nodiscard]] explicit per_device_scope(any_resource memory) : per_device_scope(-1, std::move(memory)) {}
  /// Throws `std::invalid_argument` for a device that is not there, or that is not the memory's, and for a handle that
  /// was moved from.
  [[nodiscard]] per_device_scope(int device, any_resource memory)
      : entry_{detail::device_to_set(device, memory), std::move(memory)}, in_(detail::current_memories::instance()) {
    in_.begin(entry_);
  }
  /// Not to be called: says what a scope is given.
  template <detail::memory_without_owner M>
  explicit per_device_scope(M const&) : per_device_scope(-1, detail::owner_of<M>()) {}
  template <detail::memory_without_owner M>
  per_device_scope(int device, M const&) : per_device_scope(device, detail::owner_of<M>()) {}
  ~per_device_scope() {
    if (made_after_ == detail::forks) in_.end(entry_);
  }
  per_device_scope(per_device_scope const&) = delete;
  per_device_scope& operator=(per_device_scope const&) = delete;

 private:
  detail::current_memories::entry entry_;
  detail::current_memories& in_;
  unsigned made_after_ = detail::forks;  // in a forked child, the list that it is in is the parent's
};

}  // namespace weir
