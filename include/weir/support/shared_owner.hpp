#pragma once
// An object that several own: the part of `std::shared_ptr` that weir needs, without its header.

#include <weir/version.hpp>

#include <cstddef>
#include <utility>

namespace weir::detail {

/// Owns a `T`, or something derived from it, with all its copies; the last one destroys it as what it was made as, so
/// `T` needs no virtual destructor. Copies may be made and destroyed from any thread, one copy by one thread at a time.
/// Empty when made by default or moved from. `<memory>` would be an eighth of what `weir/weir.hpp` takes to compile.
template <class T>
class shared_owner {
 public:
  shared_owner() noexcept = default;
  /// Refers to what nobody has to destroy, such as a static object.
  static shared_owner unowned(T& object) noexcept { return shared_owner(&object, nullptr); }
  /// Makes a `Made` in place; throws what that throws, and `std::bad_alloc`.
  template <class Made = T, class... Arguments>
  static shared_owner make(Arguments&&... arguments) {
    auto* const made = new holding<Made>(std::forward<Arguments>(arguments)...);
    return shared_owner(&made->object, made);
  }

  shared_owner(shared_owner const& other) noexcept : object_(other.object_), owners_(other.owners_) {
    if (owners_ != nullptr) __atomic_fetch_add(&owners_->count, 1, __ATOMIC_RELAXED);
  }
  shared_owner(shared_owner&& other) noexcept
      : object_(std::exchange(other.object_, nullptr)), owners_(std::exchange(other.owners_, nullptr)) {}
  shared_owner& operator=(shared_owner other) noexcept {
    std::swap(object_, other.object_);
    std::swap(owners_, other.owners_);
    return *this;
  }
  ~shared_owner() {
    // Releases what this owner did, and the last acquires what all did.
    if (owners_ != nullptr && __atomic_sub_fetch(&owners_->count, 1, __ATOMIC_ACQ_REL) == 0) owners_->destroy(owners_);
  }

  T* get() const noexcept { return object_; }
  T& operator*() const noexcept { return *object_; }
  T* operator->() const noexcept { return object_; }
  /// No other owner is left; another thread may make that so at any time, but not the opposite.
  bool alone() const noexcept { return owners_ != nullptr && __atomic_load_n(&owners_->count, __ATOMIC_ACQUIRE) == 1; }
  /// Equal if it is the same object.
  friend bool operator==(shared_owner const& a, shared_owner const& b) noexcept { return a.object_ == b.object_; }

 private:
  struct owners {
    std::size_t count;
    void (*destroy)(owners*) noexcept;
  };
  template <class Made>
  struct holding : owners {
    template <class... Arguments>
    explicit holding(Arguments&&... arguments)
        : owners{1, [](owners* all) noexcept { delete static_cast<holding*>(all); }},
          object(std::forward<Arguments>(arguments)...) {}
    Made object;
  };

  shared_owner(T* object, owners* all) noexcept : object_(object), owners_(all) {}

  T* object_ = nullptr;
  owners* owners_ = nullptr;  // null where nobody owns it
};

}  // namespace weir::detail
