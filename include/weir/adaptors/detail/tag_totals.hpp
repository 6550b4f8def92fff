#pragma once
// Numbers by tag, and how reports and tables show them.

#include <weir/adaptors/detail/memory_statistics.hpp>
#include <weir/core/bytes.hpp>
#include <weir/core/tag.hpp>
#include <weir/support/grown_array.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace weir {

/// What was allocated under one tag. No tag counts failures.
struct tag_statistics {
  tag_name tag;
  memory_statistics numbers;
};

namespace detail {

/// The numbers of each tag, at its id. Not thread-safe. Takes host memory when it is made; may throw `std::bad_alloc`.
class tag_totals {
 public:
  tag_totals() : all_(8), latest_(all_.data()) {}
  tag_totals(tag_totals const&) = delete;
  tag_totals& operator=(tag_totals const&) = delete;

  /// Has a place for `tag` from now on. May throw `std::bad_alloc`.
  void make_room(tag_name tag) {
    if (tag.id() >= all_.size()) all_.grow(tag.id() + all_.size() / 2 + 8);
    latest_ = &all_[tag.id()];
    latest_->tag = tag;
  }
  /// Null for a tag, but none at all, that no room was made for; else valid until it is made for another. Sooner found
  /// for the tag that was asked for last.
  [[gnu::always_inline]] memory_statistics* find(tag_name tag) noexcept {
    if (latest_->tag != tag) [[unlikely]] {
      if (tag.id() >= all_.size() || all_[tag.id()].tag != tag) return nullptr;
      latest_ = &all_[tag.id()];
    }
    return &latest_->numbers;
  }
  /// Of a tag that room was made for. By its number, which it may share with a tag of another library that has a copy
  /// of weir: what was counted for the one has to be taken off when the place is called by the other.
  [[gnu::always_inline]] memory_statistics& of(tag_name tag) noexcept {
    return latest_->tag == tag ? latest_->numbers : all_[tag.id()].numbers;
  }

  void reset_peaks() noexcept {
    for (std::size_t i = 0; i < all_.size(); ++i) all_[i].numbers.reset_peaks();
  }

  /// Those under which anything was ever allocated, what holds most first.
  template <class = void>  // so that only those pay for compiling it who use it
  std::vector<tag_statistics> used() const {
    std::vector<tag_statistics> found;
    for (std::size_t i = 0; i < all_.size(); ++i) {
      if (all_[i].numbers.allocations.total == 0) continue;
      auto place = found.end();  // tags are few, and <algorithm> is dear to include
      while (place != found.begin() && holds_more(all_[i], place[-1])) --place;
      found.insert(place, all_[i]);
    }
    return found;
  }

 private:
  static bool holds_more(tag_statistics const& a, tag_statistics const& b) noexcept {
    return a.numbers.requested.current > b.numbers.requested.current;
  }

  grown_array<tag_statistics> all_;
  tag_statistics* latest_;  // one of them
};

/// For a line of a report: `decoder/kv 18.00 GiB in 48 | (untagged) 1.00 GiB in 3 | 2 more`; of those that hold
/// something, the largest. Empty if none does.
template <class = void>  // so that only those pay for compiling it who use it
std::string holders_text(std::vector<tag_statistics> const& tags, std::size_t most = 5) {
  std::string text;
  std::size_t holders = 0;
  for (tag_statistics const& each : tags) {
    if (each.numbers.live() == 0 || ++holders > most) continue;
    text += (text.empty() ? "" : " | ") + each.tag.printable() + " " +
            format_bytes(static_cast<std::size_t>(each.numbers.requested.current)) + " in " +
            std::to_string(each.numbers.live());
  }
  return holders > most ? text + " | " + std::to_string(holders - most) + " more" : text;
}

/// For the hint of a report: `decoder/kv holds 18.00 GiB of it in 48 blocks`; empty where no tag holds more than half
/// of what is live.
template <class = void>  // so that only those pay for compiling it who use it
std::string main_holder_text(std::vector<tag_statistics> const& tags) {
  std::int64_t all = 0;
  for (tag_statistics const& each : tags) all += each.numbers.requested.current;
  if (tags.empty() || !tags[0].tag || tags[0].numbers.requested.current <= all / 2) return {};
  return tags[0].tag.printable() + " holds " +
         format_bytes(static_cast<std::size_t>(tags[0].numbers.requested.current)) + " of it in " +
         std::to_string(tags[0].numbers.live()) + " blocks";
}

/// A table for people, 75 columns wide, of at most `most` tags. Of a long name the beginning is shown.
template <class = void>  // so that only those pay for compiling it who use it
std::string tags_table(std::vector<tag_statistics> const& tags, std::size_t most = 20) {
  auto const row = [](std::string tag, std::string const& current, std::string const& peak, std::string const& live) {
    std::size_t end = tag.size() <= 32 ? tag.size() : 32;
    while (end < tag.size() && end > 0 && (static_cast<unsigned char>(tag[end]) & 0xc0) == 0x80) --end;
    tag.resize(end);
    char text[160];
    std::snprintf(text, sizeof text, "| %-32s | %11.20s | %11.20s | %8.20s |\n", tag.c_str(), current.c_str(),
                  peak.c_str(), live.c_str());
    return std::string(text);
  };
  std::string text = row("Tag", "Requested", "Peak", "Live");
  for (std::size_t i = 0; i < tags.size() && i < most; ++i) {
    memory_statistics const& n = tags[i].numbers;
    text += row(tags[i].tag.printable(), format_bytes(static_cast<std::size_t>(n.requested.current)),
                format_bytes(static_cast<std::size_t>(n.requested.peak)), std::to_string(n.live()));
  }
  return tags.size() > most ? text + "  and " + std::to_string(tags.size() - most) + " more tags\n" : text;
}

}  // namespace detail
}  // namespace weir
