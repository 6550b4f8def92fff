#pragma once
// The stacks of a process's devices, each made from a text when it is first asked for.

#include <weir/core/any_resource.hpp>
#include <weir/core/layers.hpp>
#include <weir/cuda/device.hpp>
#include <weir/sources/source_device.hpp>
#include <weir/support/atomic.hpp>
#include <weir/support/mutex.hpp>

#include <array>
#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

namespace weir::detail {

/// One for each device, there until the end. Thread-safe; one that is there is found by a load.
class device_stacks {
 public:
  static constexpr int most = 64;

  /// Makes a stack of the current device from a text, or throws.
  using maker = any_resource (*)(std::string const& text);

  /// `text` is for all devices.
  device_stacks(maker make, std::string const& text) : make_(make) {
    for (slot& each : slots_) each.text = text;
  }
  device_stacks(device_stacks const&) = delete;
  device_stacks& operator=(device_stacks const&) = delete;

  /// Has the stack of `device` (-1: of each) made from `text`. Makes none yet. Throws `std::logic_error` where a stack
  /// is there already that was made from another text, and has changed nothing then.
  void use(std::string const& text, int device = -1) {
    int const first = device == -1 ? 0 : valid(device), last = device == -1 ? most : device + 1;
    mutex_guard const lock(making_);
    for (int i = first; i < last; ++i)
      if (made(i) != nullptr && slot_of(i).text != text) refuse_second_text(i, text);
    for (int i = first; i < last; ++i) slot_of(i).text = text;
  }

  /// Made if it is not there. Throws `std::invalid_argument` for a device that cannot be, or whose text names another
  /// one, and what the maker throws: then it may be tried again.
  any_resource const& get(int device) {
    if (any_resource const* const known = made(device)) [[likely]]
      return *known;
    return make_stack(valid(device));
  }
  /// The same if it is there, else null.
  any_resource const* made(int device) const noexcept {
    return device < 0 || device >= most ? nullptr : slot_of(device).made.load_acquire();
  }
  /// The device, if there can be one of this number. Throws `std::invalid_argument`.
  static int valid(int device) {
    if (device >= 0 && device < most) return device;
    throw std::invalid_argument("weir: device " + std::to_string(device) + " cannot be; it must be from 0 to " +
                                std::to_string(most - 1));
  }
  /// True if there may be several devices; not asked before the first stack is made.
  bool may_be_several_devices() const noexcept { return !is_only_device_.load(); }

 private:
  struct slot {
    std::string text;                     // guarded by `making_`
    std::unique_ptr<any_resource> owner;  // the same
    atomic<any_resource*> made;
  };

  slot& slot_of(int device) noexcept { return slots_[static_cast<std::size_t>(device)]; }
  slot const& slot_of(int device) const noexcept { return slots_[static_cast<std::size_t>(device)]; }

  any_resource const& make_stack(int device) {
    mutex_guard const lock(making_);
    if (any_resource const* const known = made(device)) return *known;  // by another thread meanwhile
    device_guard const on_device(chosen_device("framework_memory", device));
    slot& mine = slot_of(device);
    auto stack = std::make_unique<any_resource>(make_(mine.text));
    if (int const other = device_of(*stack); other >= 0 && other != device)
      throw std::invalid_argument("weir: the stack of device " + std::to_string(device) + " is to be '" + mine.text +
                                  "', which has memory of device " + std::to_string(other) +
                                  "; leave the device out: each device gets a stack of its own");
    is_only_device_.store_release(device_count() == 1);
    mine.owner = std::move(stack);
    mine.made.store_release(mine.owner.get());
    return *mine.owner;
  }
  [[noreturn]] void refuse_second_text(int device, std::string const& text) const {
    throw std::logic_error("weir: device " + std::to_string(device) + " has its stack already, '" +
                           slot_of(device).text + "', which cannot become '" + text +
                           "': choose the stack before the first allocation");
  }

  maker make_;
  mutex making_;
  std::array<slot, most> slots_;
  atomic<bool> is_only_device_;  // false until the first stack is made
};

}  // namespace weir::detail
