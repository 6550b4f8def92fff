#pragma once
// Writes plain data as a pickle of protocol 2, which Python and PyTorch's memory viewer read.

#include <weir/tools/text_formats.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace weir::detail {

/// Appends values to a text, one after the other: numbers, texts, lists, dicts and pairs of them. Between `begin_dict`
/// and `end_dict` keys and values stand in turn. Texts are written once and referred to after that.
class pickle_writer {
 public:
  pickle_writer() : bytes_("\x80\x02") {}

  void begin_dict() { bytes_ += "}("; }
  void end_dict() { bytes_ += 'u'; }
  void begin_list() { bytes_ += "]("; }
  void end_list() { bytes_ += 'e'; }

  void boolean(bool value) { bytes_ += value ? '\x88' : '\x89'; }
  void number(std::uint64_t value) {
    if (value < 0x100) {
      bytes_ += 'K';
      little_endian(value, 1);
    } else if (value < 0x10000) {
      bytes_ += 'M';
      little_endian(value, 2);
    } else if (value < 0x80000000) {
      bytes_ += 'J';
      little_endian(value, 4);
    } else {  // signed, and the viewer reads eight bytes at most
      std::size_t const length = value >> 63 == 0 ? 8 : 9;
      bytes_ += '\x8a';
      little_endian(length, 1);
      little_endian(value, length);
    }
  }
  /// What is no UTF-8 becomes U+FFFD.
  void text(std::string_view value) {
    auto const [known, is_new] = texts_.try_emplace(std::string(value), texts_.size());
    if (!is_new) return refer('h', 'j', known->second);
    std::string valid;
    for_each_character(value, [&](std::string_view character) { valid += character; });
    bytes_ += 'X';
    little_endian(valid.size(), 4);
    bytes_ += valid;
    refer('q', 'r', known->second);
  }
  /// Of the two values just written.
  void end_pair() { bytes_ += '\x86'; }

  // ---- members of a dict
  void member(std::string_view name, std::uint64_t value) { text(name), number(value); }
  void member(std::string_view name, std::string_view value) { text(name), text(value); }

  /// After the one value that the pickle is.
  std::string finish() && { return std::move(bytes_ += '.'); }

 private:
  /// Texts are numbered as they come.
  void refer(char with_one_byte, char with_four, std::size_t number) {
    bytes_ += number < 0x100 ? with_one_byte : with_four;
    little_endian(number, number < 0x100 ? 1 : 4);
  }
  void little_endian(std::uint64_t value, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; ++i) bytes_ += static_cast<char>(i < 8 ? value >> 8 * i & 0xff : 0);
  }

  std::string bytes_;
  std::map<std::string, std::size_t> texts_;
};

}  // namespace weir::detail
