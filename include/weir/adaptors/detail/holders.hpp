#pragma once
// Who holds what: live blocks put together by tag, thread, stream or call stack, and the report for people.

#include <weir/adaptors/detail/call_stacks.hpp>
#include <weir/adaptors/detail/tracked_blocks.hpp>
#include <weir/core/bytes.hpp>
#include <weir/core/error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace weir {

/// By what live blocks are put together.
enum class held_by { tag, thread, stream, call_stack };

/// What one tag, thread, stream or call stack holds.
struct holder {
  std::string who;  ///< `decoder/kv`, `thread 7651`, `stream 0x55d0`; of call stacks a line for each frame
  std::size_t bytes = 0;
  std::size_t blocks = 0;
  double oldest_seconds = 0;  ///< how long ago the oldest of them was allocated
};

namespace detail {

inline double seconds_between(std::uint64_t earlier, std::uint64_t later) noexcept {
  return later < earlier ? 0 : static_cast<double>(later - earlier) / 1e9;
}
/// `0.0 s`, `75.3 s`.
inline std::string seconds_text(double seconds) {
  char text[40];
  std::snprintf(text, sizeof text, "%.1f s", seconds);
  return text;
}

inline std::string name_of(tracked_block const& block, held_by key, call_stacks const& stacks) {
  switch (key) {
    case held_by::thread:
      return "thread " + std::to_string(block.thread);
    case held_by::stream:
      return stream_name(block.stream);
    case held_by::call_stack: {
      std::string lines;
      for (std::string const& line : stacks.lines_of(block.call_stack)) lines += (lines.empty() ? "" : "\n") + line;
      return lines.empty() ? "(call stack not kept)" : lines;
    }
    default:
      return block.tag.printable();
  }
}

/// Every holder, who holds most first. Names are looked for only for the first `most`; those of the others are empty.
inline std::vector<holder> holders_of(std::vector<tracked_block> const& blocks, held_by key, std::uint64_t now,
                                      call_stacks const& stacks, std::size_t most) {
  struct group {
    holder sum;
    tracked_block const* one;
  };
  std::map<std::pair<std::uint64_t, bool>, group> groups;
  for (tracked_block const& each : blocks) {
    std::uint64_t const value = key == held_by::tag      ? each.tag.id()
                                : key == held_by::thread ? each.thread
                                : key == held_by::stream ? reinterpret_cast<std::uintptr_t>(each.stream.get())
                                                         : each.call_stack;
    group& g = groups.try_emplace({value, key == held_by::stream && each.stream.is_host_order()}, group{{}, &each})
                   .first->second;
    g.sum.bytes += each.bytes;
    ++g.sum.blocks;
    g.sum.oldest_seconds = std::max(g.sum.oldest_seconds, seconds_between(each.nanoseconds, now));
  }
  std::vector<group> sorted;
  sorted.reserve(groups.size());
  for (auto const& [value, g] : groups) sorted.push_back(g);
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](group const& a, group const& b) { return a.sum.bytes > b.sum.bytes; });
  std::vector<holder> all;
  for (group& g : sorted) {
    if (all.size() < most) g.sum.who = name_of(*g.one, key, stacks);
    all.push_back(std::move(g.sum));
  }
  return all;
}

/// The lines of one kind of holder, at most `most` of them, and one for the rest.
inline std::string section_text(char const* title, std::vector<holder> const& all, std::size_t most) {
  std::string text = std::string("  ") + title + "\n";
  holder rest;
  for (std::size_t i = 0; i < all.size(); ++i) {
    holder const& each = all[i];
    if (i >= most) {
      rest.bytes += each.bytes;
      rest.blocks += each.blocks;
      continue;
    }
    char numbers[80];
    std::snprintf(numbers, sizeof numbers, "  %12s in %-6zu oldest %8s", format_bytes(each.bytes).c_str(), each.blocks,
                  seconds_text(each.oldest_seconds).c_str());
    text += numbers;
    if (each.who.find('\n') != std::string::npos) text += "\n     ";
    text += ' ';
    for (char const c : each.who) text += c == '\n' ? std::string("\n      ") : std::string(1, c);
    text += '\n';
  }
  if (rest.blocks != 0)
    text += "    and " + std::to_string(all.size() - most) + " more: " + format_bytes(rest.bytes) + " in " +
            std::to_string(rest.blocks) + "\n";
  return text;
}

/// All that `blocks` tells, in at most about 5 `most` lines and as many call stacks as `most`.
inline std::string holders_report(std::string const& title, std::vector<tracked_block> blocks, std::uint64_t now,
                                  call_stacks const& stacks, bool has_call_stacks, std::size_t most) {
  auto const is_larger = [](tracked_block const& a, tracked_block const& b) {
    return a.bytes != b.bytes ? a.bytes > b.bytes : a.nanoseconds < b.nanoseconds;
  };
  std::sort(blocks.begin(), blocks.end(), is_larger);
  std::size_t bytes = 0;
  for (tracked_block const& each : blocks) bytes += each.bytes;
  std::string text = title + ": " + std::to_string(blocks.size()) +
                     (blocks.size() == 1 ? " block of " : " blocks of ") + format_bytes(bytes) +
                     (blocks.size() == 1 ? " is live\n" : " are live\n");
  if (blocks.empty()) return text;
  auto const section = [&](char const* name, held_by key) {
    text += section_text(name, holders_of(blocks, key, now, stacks, most), most);
  };
  section("by tag", held_by::tag);
  section("by thread", held_by::thread);
  section("by stream", held_by::stream);
  if (has_call_stacks) section("by call stack", held_by::call_stack);
  text += "  largest blocks\n";
  for (std::size_t i = 0; i < blocks.size() && i < most; ++i) {
    tracked_block const& each = blocks[i];
    text += "    " + hex(each.address) + " " + format_bytes(each.bytes) + ", " +
            seconds_text(seconds_between(each.nanoseconds, now)) + " old, " + each.tag.printable() + ", thread " +
            std::to_string(each.thread) + ", " + stream_name(each.stream) + "\n";
  }
  return text;
}

/// A block in a sentence: `3000 B aligned to 256 (decoder/kv) by thread 7651 on stream 0x55d0, 3.2 s ago`, and
/// where that was, by the three innermost frames.
inline std::string block_text(tracked_block const& block, std::uint64_t now, call_stacks const& stacks) {
  std::string const tag = block.tag.printable();
  std::string text = std::to_string(block.bytes) + " B aligned to " + std::to_string(block.alignment) + " " +
                     (block.tag ? "(" + tag + ")" : tag) + " by thread " + std::to_string(block.thread) + " on " +
                     stream_name(block.stream) + ", " + seconds_text(seconds_between(block.nanoseconds, now)) + " ago";
  std::size_t frames = 0;
  for (std::string const& line : stacks.lines_of(block.call_stack)) {
    if (frames++ == 3) break;
    text += (frames == 1 ? ", at " : " < ") + line;
  }
  return text;
}

/// What is wrong with a `deallocate(p, bytes, alignment)`, in one line.
inline std::string wrong_free_text(wrong_free const& why, std::uintptr_t address, std::size_t bytes,
                                   std::size_t alignment, std::uint64_t now, call_stacks const& stacks) {
  std::string const text = "deallocate of " + hex(address) + " with " + std::to_string(bytes) + " B aligned to " +
                           std::to_string(alignment) + ": ";
  std::string const block = block_text(why.block, now, stacks);
  switch (why.what) {
    case wrong_free::differs:
      return text + "it was allocated with " + block + "; give back the same";
    case wrong_free::again:
      return text + "freed twice: thread " + std::to_string(why.thread) + " freed it " +
             seconds_text(seconds_between(why.nanoseconds, now)) + " ago; it was allocated with " + block;
    case wrong_free::inside:
      return text + "no live block starts there; it lies " + std::to_string(address - why.block.address) +
             " B into that of " + block;
    default:
      return text + "it is not this layer's memory (allocated by another resource, or freed long ago)";
  }
}

}  // namespace detail
}  // namespace weir
