#pragma once
// The segments that a memory snapshot of PyTorch holds at its end, with their blocks.

#include <weir/tools/memory_snapshot.hpp>
#include <weir/tools/pickle_reader.hpp>
#include <weir/tools/recorded_trace.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace weir::detail {

/// Reads the list `segments`. What a history needs of it is there: `torch_histories` of the same pickle did not throw.
class torch_segment_reader {
 public:
  /// `left` is how many segments, blocks and parts of their tags may be read: a pickle can hold one in many places.
  torch_segment_reader(pickle const& in, std::size_t left) : in_(in), left_(left) {}

  memory_snapshot read() {
    memory_snapshot out;
    if (pickle::value const* const segments = in_.find(in_.root(), "segments"); segments != nullptr) {
      out.segments.reserve(std::min(in_.items(*segments).size(), left_));
      for (pickle::value const& segment : in_.items(*segments)) out.segments.push_back(read(segment));
    }
    return out;
  }

 private:
  memory_segment read(pickle::value const& in) {
    count(in);
    memory_segment out{.address = number(in, "address"),
                       .device = device(in),
                       .is_range = flag(in, "is_expandable"),
                       .layer = "PyTorch"};
    std::uint64_t const stream = number(in, "stream");
    if (pickle::value const* const blocks = in_.find(in, "blocks"); blocks != nullptr) {
      out.blocks.reserve(std::min(in_.items(*blocks).size(), left_));
      for (pickle::value const& each : in_.items(*blocks)) {
        count(each);
        out.blocks.push_back(read_block(each, out.address + out.bytes, stream));
        out.bytes += out.blocks.back().bytes;
      }
    }
    return out;
  }
  std::int32_t device(pickle::value const& segment) const {
    std::uint64_t const device = number(segment, "device");
    if (device >= most_devices)
      throw damaged_pickle(in_.place(segment),
                           "a segment's device is " + std::to_string(device) + "; no machine has so many");
    return static_cast<std::int32_t>(device);
  }
  /// Where it is follows from the blocks before it: older snapshots do not say.
  memory_block read_block(pickle::value const& in, std::uint64_t address, std::uint64_t stream) {
    memory_block out{.address = address, .bytes = number(in, "size")};
    std::string_view const state = text(in, "state");
    if (!state.starts_with("active")) return out;
    out.state = state == "active_allocated" ? memory_state::live : memory_state::pending;
    out.stream = stream;
    if (out.state != memory_state::live) return out;
    out.requested = in_.find(in, "requested_size") == nullptr ? out.bytes : number(in, "requested_size");
    out.requested = std::min(out.requested, out.bytes);
    std::string_view const tag = text(in, "category");
    count(in, tag.size() / bytes_of_one);  // one text, too, may be in many places
    out.tag = std::string(tag);
    return out;
  }

  std::uint64_t number(pickle::value const& dict, char const* name) const {
    pickle::value const* const v = in_.find(dict, name);
    return v == nullptr ? 0 : pickle::number(*v).value_or(0);
  }
  std::string_view text(pickle::value const& dict, char const* name) const {
    pickle::value const* const v = in_.find(dict, name);
    return v == nullptr ? std::string_view() : in_.text(*v).value_or("");
  }
  bool flag(pickle::value const& dict, char const* name) const {
    pickle::value const* const v = in_.find(dict, name);
    return v != nullptr && v->is == pickle::kind::boolean && v->bits != 0;
  }
  void count(pickle::value const& near, std::size_t n = 1) {
    if (left_ < n)
      throw damaged_pickle(in_.place(near), "more segments and blocks than are read; one list may be in many places");
    left_ -= n;
  }

  static constexpr std::size_t bytes_of_one = 64;  // of a tag, that count as a block; weir's have no more

  pickle const& in_;
  std::size_t left_;
};

/// Throws `damaged_pickle` where there are more than `left` segments, blocks and parts of their tags, or too many
/// devices. What is missing or of another kind is 0, free or empty.
inline memory_snapshot torch_segments(pickle const& in, std::size_t left) {
  return torch_segment_reader(in, left).read();
}

}  // namespace weir::detail
