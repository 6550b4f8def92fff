#pragma once
// What a memory snapshot of PyTorch says happened (the file of torch.cuda.memory._dump_snapshot).

#include <weir/tools/pickle_reader.hpp>
#include <weir/tools/recorded_trace.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace weir::detail {

/// Allocations and frees on one device, segments that came and went, and refusals, in order.
struct device_history {
  struct event {
    std::uint64_t address;  ///< 0 for a refusal
    std::uint64_t bytes;
    std::uint64_t stream;
    trace_action action;
    std::uint64_t microseconds = 0;  ///< since 1970; 0 where the file does not say
    std::string_view category = {};  ///< or what `_set_memory_metadata` said then; in the pickle's bytes
    std::string_view report = {};    ///< of a refusal that weir wrote, the same
  };
  std::size_t device;
  std::vector<event> events;
};

/// The segments that a snapshot holds, by their devices.
struct segments_by_device {
  explicit segments_by_device(pickle const& in) : list(in.find(in.root(), "segments")) {
    if (list == nullptr) return;
    for (pickle::value const& segment : in.items(*list)) {
      pickle::value const* const device = in.find(segment, "device");
      auto const number = device == nullptr ? std::nullopt : pickle::number(*device);
      (number ? of[*number] : wrong).push_back(&segment);
    }
  }
  pickle::value const* list;  ///< as it is there; null where there is none
  std::unordered_map<std::uint64_t, std::vector<pickle::value const*>> of;
  std::vector<pickle::value const*> wrong;  ///< those that do not say their device
};

/// Reads one device's list of entries. Frees count when the program asked for them (`free_requested`), not when PyTorch
/// took the memory back. What was live before the first entry is allocated at the start, by rising address: blocks that
/// are freed without having been allocated, and blocks that the snapshot's segments hold and no entry knows.
class device_history_reader {
 public:
  /// `left` is how many entries and blocks may still be read, for all devices together: a pickle can hold one list in
  /// many places.
  device_history_reader(pickle const& in, std::size_t device, std::size_t& left)
      : in_(in), device_(device), left_(left) {}

  device_history read(pickle::value const& entries, segments_by_device const& segments) {
    if (entries.is != pickle::kind::list) fail(entries, "is no list");
    events_.reserve(std::min(in_.items(entries).size(), left_));
    for (pickle::value const& entry : in_.items(entries)) {
      count(entry);
      read_entry(entry);
      ++entry_;
    }
    entry_ = none;
    if (!has_blocks_) return {device_, {}};
    if (segments.list != nullptr) read_segments(segments);
    std::sort(before_.begin(), before_.end(), [](auto const& a, auto const& b) { return a.address < b.address; });
    events_.insert(events_.begin(), before_.begin(), before_.end());
    return {device_, std::move(events_)};
  }

 private:
  enum class state : std::uint8_t { live, leaving, gone };
  struct block {
    state is;
    std::uint64_t bytes;
    std::uint64_t stream;
  };

  [[noreturn]] void fail(pickle::value const& near, std::string const& why) const {
    throw damaged_pickle(in_.place(near), "device " + std::to_string(device_) +
                                              (entry_ == none ? "" : ", entry " + std::to_string(entry_)) + ": " + why);
  }
  std::uint64_t number(pickle::value const& dict, char const* name) const {
    pickle::value const* const v = in_.find(dict, name);
    auto const n = v == nullptr ? std::nullopt : pickle::number(*v);
    if (!n) fail(dict, std::string("has no whole number '") + name + "'");
    return *n;
  }
  std::string_view text(pickle::value const& dict, char const* name) const {
    pickle::value const* const v = in_.find(dict, name);
    auto const t = v == nullptr ? std::nullopt : in_.text(*v);
    if (!t) fail(dict, std::string("has no text '") + name + "'");
    return *t;
  }
  void count(pickle::value const& near) {
    if (left_ == 0) fail(near, "more entries and blocks than are read; one list may be in many places");
    --left_;
  }
  static std::string hex(std::uint64_t address) {
    char text[24];
    std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(address));
    return text;
  }

  void read_entry(pickle::value const& entry) {
    if (entry.is != pickle::kind::dict) fail(entry, "is no dict");
    std::string_view const action = text(entry, "action");
    if (action == "alloc") return allocate(entry);
    if (action == "free_requested") return free(entry);
    if (action == "free_completed") return complete(entry);
    if (action == "segment_alloc") return change_segment(entry, trace_action::grow);
    if (action == "segment_free") return change_segment(entry, trace_action::trim);
    if (action == "segment_map") return change_segment(entry, trace_action::map);
    if (action == "segment_unmap") return change_segment(entry, trace_action::unmap);
    if (action == "oom")
      return events_.push_back({0, number(entry, "size"), optional_number(entry, "stream"), trace_action::out_of_memory,
                                time(entry), category(entry), optional_text(entry, "report")});
    if (action == "snapshot" || action == "user_defined" || action == "annotate") return;
    fail(entry, "action is '" + std::string(action.substr(0, 40)) +
                    "'; it can be alloc, free_requested, free_completed, segment_alloc, segment_free, segment_map, "
                    "segment_unmap, snapshot, oom, annotate or user_defined");
  }
  void allocate(pickle::value const& entry) {
    std::uint64_t const address = number(entry, "addr"), bytes = number(entry, "size");
    std::uint64_t const stream = number(entry, "stream");
    if (bytes == 0) return;
    block& b = known_.try_emplace(address, block{state::gone, 0, 0}).first->second;
    if (b.is == state::live) fail(entry, "allocates " + hex(address) + ", which is live");
    b = {state::live, bytes, stream};
    events_.push_back({address, bytes, stream, trace_action::allocate, time(entry), category(entry)});
    has_blocks_ = true;
  }
  void change_segment(pickle::value const& entry, trace_action action) {
    if (std::uint64_t const bytes = number(entry, "size"); bytes != 0)
      events_.push_back({number(entry, "addr"), bytes, number(entry, "stream"), action, time(entry)});
  }
  void free(pickle::value const& entry) {
    std::uint64_t const address = number(entry, "addr"), bytes = number(entry, "size");
    std::uint64_t const stream = number(entry, "stream");
    if (bytes == 0) return;
    auto const [found, is_new] = known_.try_emplace(address, block{state::live, bytes, stream});
    block& b = found->second;
    if (is_new) before_.push_back({address, bytes, stream, trace_action::allocate});
    if (b.is != state::live) fail(entry, "frees " + hex(address) + ", which is not live");
    if (b.bytes != bytes)
      fail(entry, "frees " + std::to_string(bytes) + " B at " + hex(address) + "; " + std::to_string(b.bytes) +
                      " B were allocated there");
    leave(entry, address, b, state::leaving);
  }
  /// Counts only where the request is missing: PyTorch can be told not to record those.
  void complete(pickle::value const& entry) {
    auto const found = known_.find(number(entry, "addr"));
    if (found == known_.end() || found->second.is == state::gone) return;
    if (found->second.is == state::live)
      leave(entry, found->first, found->second, state::gone);
    else
      found->second.is = state::gone;
  }
  void leave(pickle::value const& entry, std::uint64_t address, block& b, state to) {
    events_.push_back({address, b.bytes, b.stream, trace_action::free, time(entry)});
    has_blocks_ = true;
    b.is = to;
  }
  std::uint64_t time(pickle::value const& entry) const { return optional_number(entry, "time_us"); }
  std::uint64_t optional_number(pickle::value const& entry, char const* name) const {
    pickle::value const* const v = in_.find(entry, name);
    return v == nullptr ? 0 : pickle::number(*v).value_or(0);
  }
  std::string_view category(pickle::value const& entry) const {
    std::string_view const own = optional_text(entry, "category");
    return own.empty() ? optional_text(entry, "user_metadata") : own;
  }
  std::string_view optional_text(pickle::value const& entry, char const* name) const {
    pickle::value const* const v = in_.find(entry, name);
    return v == nullptr ? std::string_view() : in_.text(*v).value_or("");
  }

  void read_segments(segments_by_device const& segments) {
    if (segments.list->is != pickle::kind::list) fail(*segments.list, "'segments' is no list");
    if (!segments.wrong.empty()) number(*segments.wrong.front(), "device");
    auto const own = segments.of.find(device_);
    if (own == segments.of.end()) return;
    for (pickle::value const* const each : own->second) {
      pickle::value const& segment = *each;
      count(segment);
      std::uint64_t address = number(segment, "address");
      std::uint64_t const stream = number(segment, "stream");
      pickle::value const* const blocks = in_.find(segment, "blocks");
      if (blocks == nullptr || blocks->is != pickle::kind::list) fail(segment, "has no list 'blocks'");
      for (pickle::value const& b : in_.items(*blocks)) {
        count(b);
        std::uint64_t const size = number(b, "size");
        if (text(b, "state") == "active_allocated") live_at_end(b, address, size, stream);
        address += size;  // older snapshots do not say where blocks are
      }
    }
  }
  void live_at_end(pickle::value const& b, std::uint64_t address, std::uint64_t size, std::uint64_t stream) {
    if (in_.find(b, "address") != nullptr) address = number(b, "address");
    std::uint64_t const bytes = in_.find(b, "requested_size") != nullptr ? number(b, "requested_size") : size;
    if (bytes != 0 && known_.try_emplace(address, block{state::live, bytes, stream}).second)
      before_.push_back({address, bytes, stream, trace_action::allocate});
  }

  static constexpr std::size_t none = ~std::size_t{0};

  pickle const& in_;
  std::size_t device_;
  std::size_t& left_;
  std::size_t entry_ = 0;
  std::unordered_map<std::uint64_t, block> known_;
  std::deque<device_history::event> before_;
  std::vector<device_history::event> events_;
  bool has_blocks_ = false;  // else nothing was allocated or freed
};

/// The histories that a snapshot holds, of the devices on which something was allocated or freed. `left`: see
/// `device_history_reader`. Throws `damaged_pickle` for anything else than a snapshot with a history.
inline std::vector<device_history> torch_histories(pickle const& in, std::size_t left) {
  pickle::value const* const devices = in.find(in.root(), "device_traces");
  if (devices == nullptr || devices->is != pickle::kind::list)
    throw damaged_pickle(0, "is no snapshot of PyTorch's memory: there is no list 'device_traces'");
  if (in.items(*devices).size() > most_devices)
    throw damaged_pickle(in.place(*devices), "'device_traces' has " + std::to_string(in.items(*devices).size()) +
                                                 " lists, one for each device; no machine has so many");
  segments_by_device const segments(in);
  std::vector<device_history> found;
  std::size_t device = 0;
  for (pickle::value const& entries : in.items(*devices)) {
    device_history history = device_history_reader(in, device++, left).read(entries, segments);
    if (!history.events.empty()) found.push_back(std::move(history));
  }
  if (found.empty())
    throw damaged_pickle(in.place(*devices),
                         "holds no allocation; was torch.cuda.memory._record_memory_history called before?");
  return found;
}
/// The same of a snapshot's bytes, alone.
inline std::vector<device_history> read_torch_snapshot(std::string_view bytes, pickle_limits const& limits = {}) {
  return detail::torch_histories(pickle(bytes, limits), limits.values);
}

}  // namespace weir::detail
