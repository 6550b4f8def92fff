#pragma once
// Reads pickles of plain data: numbers, texts, lists, tuples and dicts. Nothing in one is ever run.

#include <weir/version.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace weir::detail {

/// Bytes that are no pickle of plain data: `what()` is `byte N: why`, counted from 0.
struct damaged_pickle : std::runtime_error {
  damaged_pickle(std::size_t at, std::string const& why)
      : std::runtime_error("byte " + std::to_string(at) + ": " + why) {}
};

/// What reading a pickle may take, so that a hostile one is refused before memory runs out.
struct pickle_limits {
  std::size_t bytes = 0xffff'ffff;  ///< of the pickle; not more than this
  std::size_t values = 50'000'000;  ///< pushed while reading; each may take some 100 bytes
  std::size_t open_marks = 1000;    ///< lists, dicts and tuples begun and not yet ended
};

/// One pickle, of protocol 2 to 5, read when this is made; throws `damaged_pickle`. The bytes have to outlive it: texts
/// stay where they are. Opcodes that name a class or call one are refused. A list may contain itself, so whoever walks
/// through has to bound the depth; reading does not recurse. Not thread-safe.
class pickle {
 public:
  enum class kind : std::uint8_t { none, boolean, integer, natural, big_integer, real, text, bytes, list, tuple, dict };

  struct value {
    kind is = kind::none;
    std::uint32_t length = 0;  ///< of texts
    std::uint64_t bits = 0;    ///< numbers: the value; text: where in the bytes; list, tuple, dict: which container
  };

  explicit pickle(std::string_view bytes, pickle_limits const& limits = {}) : bytes_(bytes), limits_(limits) {
    if (bytes.size() > limits.bytes)
      throw damaged_pickle(limits.bytes, "more bytes than the " + std::to_string(limits.bytes) + " that are read");
    if (bytes.empty() || bytes[0] != '\x80') damaged("a pickle of protocol 2 to 5 begins with byte 0x80");
    while (step()) {
    }
  }
  pickle(pickle const&) = delete;
  pickle& operator=(pickle const&) = delete;

  value const& root() const { return stack_.front(); }

  /// A whole number of 0 or more; nothing for any other value.
  static std::optional<std::uint64_t> number(value const& v) {
    bool const known = v.is == kind::natural || (v.is == kind::integer && static_cast<std::int64_t>(v.bits) >= 0);
    return known ? std::optional(v.bits) : std::nullopt;
  }
  std::optional<std::string_view> text(value const& v) const {
    return v.is == kind::text ? std::optional(bytes_.substr(v.bits, v.length)) : std::nullopt;
  }
  /// Of a list or tuple; of a dict, keys and values in turn. Empty for any other value.
  std::span<value const> items(value const& v) const {
    return is_container(v) ? std::span<value const>(containers_[v.bits].items) : std::span<value const>();
  }
  /// What a dict holds under a name; null if that is nothing, or if `v` is no dict.
  value const* find(value const& v, std::string_view name) const {
    auto const all = v.is == kind::dict ? items(v) : std::span<value const>();
    if (all.size() > 2 * most_looked_through) return find_by_index(v.bits, name);
    for (std::size_t i = all.size(); i >= 2; i -= 2)  // the last one counts, as in Python
      if (text(all[i - 2]) == name) return &all[i - 1];
    return nullptr;
  }
  /// The byte at which a list, tuple or dict was begun; 0 for other values.
  std::size_t place(value const& v) const { return is_container(v) ? containers_[v.bits].begin : 0; }

 private:
  struct container {
    std::size_t begin;
    std::vector<value> items;
  };

  static constexpr std::size_t most_looked_through = 32;  // keys

  /// A pickle can hold a large dict in many places, so those get an index when they are first asked.
  value const* find_by_index(std::uint64_t dict, std::string_view name) const {
    std::vector<value> const& all = containers_[dict].items;
    auto const [at, is_new] = indexes_.try_emplace(dict);
    for (std::size_t i = 0; is_new && i < all.size(); i += 2)
      if (auto const key = text(all[i]); key) at->second[*key] = i + 1;
    auto const found = at->second.find(name);
    return found == at->second.end() ? nullptr : &all[found->second];
  }

  static bool is_container(value const& v) { return v.is >= kind::list; }

  [[noreturn]] void damaged(std::string const& why) const { throw damaged_pickle(opcode_at_, why); }

  // ---- bytes ----
  std::string_view take(std::uint64_t n) {
    std::size_t const left = bytes_.size() - at_;
    if (n > left)
      damaged("breaks off: " + std::to_string(n) + " bytes belong here, and " + std::to_string(left) + " are left");
    std::string_view const taken = bytes_.substr(at_, n);
    at_ += n;
    return taken;
  }
  /// Little-endian.
  std::uint64_t natural(std::size_t n) {
    std::uint64_t sum = 0;
    std::string_view const raw = take(n);
    for (std::size_t i = n; i-- > 0;) sum = sum << 8 | static_cast<unsigned char>(raw[i]);
    return sum;
  }

  // ---- stack ----
  std::size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  void count_value() {
    if (++values_ > limits_.values)
      damaged("more than the " + std::to_string(limits_.values) +
              " values that are read; if you trust it, read more with --max-bytes");
  }
  void push(value const& v) {
    count_value();
    stack_.push_back(v);
  }
  value& top() {
    if (stack_.size() <= floor()) damaged("needs a value, and there is none");
    return stack_.back();
  }
  value pop() {
    value const v = top();
    stack_.pop_back();
    return v;
  }
  /// The values above the last mark; takes both away.
  std::vector<value> pop_to_mark() {
    if (marks_.empty()) damaged("needs a mark, and there is none");
    std::vector<value> above(stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back()), stack_.end());
    stack_.resize(marks_.back());
    marks_.pop_back();
    return above;
  }
  void push_container(kind is, std::vector<value> items) {
    require_pairs(is, items);
    push({is, 0, containers_.size()});
    containers_.push_back({opcode_at_, std::move(items)});
  }
  void append(kind wanted, std::vector<value> const& more) {
    value const& to = top();
    if (to.is != wanted) damaged(wanted == kind::list ? "appends to what is no list" : "adds a key to what is no dict");
    require_pairs(wanted, more);
    std::vector<value>& items = containers_[to.bits].items;
    items.insert(items.end(), more.begin(), more.end());
  }
  void require_pairs(kind wanted, std::vector<value> const& items) const {
    if (wanted == kind::dict && items.size() % 2 != 0) damaged("has a key without a value");
  }
  void push_tuple(std::size_t n) {
    std::vector<value> items(n);
    for (std::size_t i = n; i-- > 0;) items[i] = pop();
    push_container(kind::tuple, std::move(items));
  }

  // ---- values ----
  void push_text(std::uint64_t length, kind is) {
    std::size_t const at = at_;
    take(length);
    push({is, static_cast<std::uint32_t>(length), at});
  }
  /// Two's complement, least byte first, as long as it needs to be.
  void push_long(std::uint64_t length) {
    std::string_view const raw = take(length);
    bool const negative = length != 0 && (static_cast<unsigned char>(raw.back()) & 0x80) != 0;
    std::uint64_t bits = negative ? ~std::uint64_t{0} : 0;
    for (std::size_t i = length < 8 ? raw.size() : 8; i-- > 0;) bits = bits << 8 | static_cast<unsigned char>(raw[i]);
    if (length <= 8)
      push({kind::integer, 0, bits});
    else
      push({length == 9 && raw.back() == 0 ? kind::natural : kind::big_integer, 0, bits});
  }
  void remember(std::uint64_t number) {
    // Numbers are given out one by one, from 0 or, by Python 2, from 1.
    if (number > memo_.size() + 1) damaged("remembers a value as number " + std::to_string(number) + ", out of turn");
    count_value();
    if (number >= memo_.size()) memo_.resize(number + 1);
    memo_[number] = {top(), true};
    ++remembered_;
  }
  void recall(std::uint64_t number) {
    if (number >= memo_.size() || !memo_[number].known)
      damaged("recalls value number " + std::to_string(number) + ", which there is not");
    push(memo_[number].what);
  }

  /// One opcode; false after the last.
  bool step() {
    opcode_at_ = at_;
    if (at_ == bytes_.size()) damaged("breaks off: no STOP");
    auto const opcode = static_cast<unsigned char>(take(1)[0]);
    // clang-format off
    switch (opcode) {
      case '.': return end();
      case 0x80: begin(natural(1)); break;
      case 0x95: check_frame(natural(8)); break;
      case '(': mark(); break;
      case '0': pop(); break;
      case '1': pop_to_mark(); break;
      case '2': push(value(top())); break;

      case 'N': push({}); break;
      case 0x88: push({kind::boolean, 0, 1}); break;
      case 0x89: push({kind::boolean, 0, 0}); break;
      case 'K': push({kind::integer, 0, natural(1)}); break;
      case 'M': push({kind::integer, 0, natural(2)}); break;
      case 'J': push_long(4); break;
      case 0x8a: push_long(natural(1)); break;
      case 0x8b: push_long(natural(4)); break;
      case 'G': take(8); push({kind::real, 0, 0}); break;  // nobody here asks for its value

      case 0x8c: case 'U': push_text(natural(1), kind::text); break;  // U, T: a str of Python 2
      case 'X': case 'T': push_text(natural(4), kind::text); break;
      case 0x8d: push_text(natural(8), kind::text); break;
      case 'C': push_text(natural(1), kind::bytes); break;
      case 'B': push_text(natural(4), kind::bytes); break;
      case 0x8e: case 0x96: push_text(natural(8), kind::bytes); break;

      case ')': push_container(kind::tuple, {}); break;
      case ']': push_container(kind::list, {}); break;
      case '}': push_container(kind::dict, {}); break;
      case 0x85: push_tuple(1); break;
      case 0x86: push_tuple(2); break;
      case 0x87: push_tuple(3); break;
      case 't': push_container(kind::tuple, pop_to_mark()); break;
      case 'l': push_container(kind::list, pop_to_mark()); break;
      case 'd': push_container(kind::dict, pop_to_mark()); break;
      case 'a': append_one(); break;
      case 'e': append(kind::list, pop_to_mark()); break;
      case 's': set_one(); break;
      case 'u': append(kind::dict, pop_to_mark()); break;

      case 'q': remember(natural(1)); break;
      case 'r': remember(natural(4)); break;
      case 0x94: remember(remembered_); break;
      case 'h': recall(natural(1)); break;
      case 'j': recall(natural(4)); break;
      default: refuse(opcode);
    }
    // clang-format on
    return true;
  }

  void begin(std::uint64_t protocol) const {
    if (opcode_at_ != 0) damaged("PROTO in the middle");
    if (protocol < 2 || protocol > 5) damaged("protocol is " + std::to_string(protocol) + "; it can be 2 to 5");
  }
  bool end() const {
    if (!marks_.empty()) damaged("STOP inside of a list, tuple or dict");
    if (stack_.size() != 1) damaged("STOP with " + std::to_string(stack_.size()) + " values; there must be 1");
    if (at_ != bytes_.size()) damaged(std::to_string(bytes_.size() - at_) + " bytes after STOP");
    return false;
  }
  void check_frame(std::uint64_t length) const {
    if (length > bytes_.size() - at_)
      damaged("breaks off: a frame of " + std::to_string(length) + " bytes begins here, and " +
              std::to_string(bytes_.size() - at_) + " are left");
  }
  void mark() {
    if (marks_.size() == limits_.open_marks)
      damaged("more than " + std::to_string(limits_.open_marks) + " lists, tuples and dicts in each other");
    marks_.push_back(stack_.size());
  }
  void append_one() {
    value const item = pop();
    append(kind::list, {item});
  }
  void set_one() {
    value const item = pop(), key = pop();
    append(kind::dict, {key, item});
  }
  [[noreturn]] void refuse(unsigned char opcode) const {
    struct named {
      unsigned char opcode;
      char const* name;
    };
    constexpr named known[] = {{'c', "GLOBAL"},        {'R', "REDUCE"},       {'b', "BUILD"},
                               {'i', "INST"},          {'o', "OBJ"},          {'P', "PERSID"},
                               {'Q', "BINPERSID"},     {0x81, "NEWOBJ"},      {0x82, "EXT1"},
                               {0x83, "EXT2"},         {0x84, "EXT4"},        {0x8f, "EMPTY_SET"},
                               {0x90, "ADDITEMS"},     {0x91, "FROZENSET"},   {0x92, "NEWOBJ_EX"},
                               {0x93, "STACK_GLOBAL"}, {0x97, "NEXT_BUFFER"}, {0x98, "READONLY_BUFFER"}};
    for (auto const& [refused, name] : known)
      if (refused == opcode) damaged("opcode " + std::string(name) + " is refused: only plain data is read");
    constexpr std::string_view digits = "0123456789abcdef";
    damaged(std::string("opcode 0x") + digits[opcode >> 4] + digits[opcode & 15] + " is none of protocols 2 to 5");
  }

  struct remembered {
    value what;
    bool known = false;
  };

  std::string_view bytes_;
  pickle_limits limits_;
  std::size_t at_ = 0;
  std::size_t opcode_at_ = 0;
  std::size_t values_ = 0;
  std::uint64_t remembered_ = 0;  ///< how often, which is what MEMOIZE calls the next
  // No vectors, which take three times as much while they grow.
  std::deque<value> stack_;
  std::deque<remembered> memo_;
  std::deque<container> containers_;
  std::vector<std::size_t> marks_;
  mutable std::unordered_map<std::uint64_t, std::unordered_map<std::string_view, std::size_t>> indexes_;
};

}  // namespace weir::detail
