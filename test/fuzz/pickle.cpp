// Bytes read as a pickle and as PyTorch's snapshot. What is read lies inside of the bytes, and is read again alike when
// it is written anew; a history frees only what is live.
#include "target.hpp"

#include <weir/tools/pickle_reader.hpp>
#include <weir/tools/torch_history.hpp>

#include <algorithm>
#include <memory>
#include <unordered_map>

using fuzz::require;
using weir::detail::pickle;

namespace {

constexpr weir::detail::pickle_limits limits{.bytes = 1 << 20, .values = 20000, .open_marks = 100};

/// Writes a value as another pickle would: without a memo, in protocol 2's and 3's opcodes. A list may hold itself, or
/// the same list again and again: false if that leads to more than `left` values.
class writer {
 public:
  explicit writer(pickle const& in) : in_(in) {}

  bool write(pickle::value const& v, int depth) {
    if (depth > 50 || left_-- == 0) return false;
    switch (v.is) {
      case pickle::kind::none:
        out_ += 'N';
        return true;
      case pickle::kind::boolean:
        out_ += v.bits != 0 ? '\x88' : '\x89';
        return true;
      case pickle::kind::integer:
      case pickle::kind::natural:
      case pickle::kind::big_integer:
        number(v);
        return true;
      case pickle::kind::real:
        out_ += "G12345678";
        return true;
      case pickle::kind::text:
      case pickle::kind::bytes:
        out_ += v.is == pickle::kind::text ? 'X' : 'B';
        for (unsigned i = 0; i < 4; ++i) out_ += static_cast<char>(v.length >> 8 * i & 0xff);
        // `text` gives texts only; the length of bytes is all that is kept of them.
        out_ += v.is == pickle::kind::text ? std::string(*in_.text(v)) : std::string(v.length, 'b');
        return true;
      case pickle::kind::list:
      case pickle::kind::tuple:
      case pickle::kind::dict:
        return container(v, depth);
    }
    return false;
  }
  std::string whole() const { return "\x80\x03" + out_ + '.'; }

 private:
  void number(pickle::value const& v) {
    out_ += '\x8a';
    out_ += v.is == pickle::kind::integer ? '\x08' : v.is == pickle::kind::natural ? '\x09' : '\x0b';
    for (unsigned i = 0; i < 8; ++i) out_ += static_cast<char>(v.bits >> 8 * i & 0xff);
    if (v.is == pickle::kind::natural) out_ += '\0';
    if (v.is == pickle::kind::big_integer) out_ += "big";
  }
  bool container(pickle::value const& v, int depth) {
    out_ += '(';
    for (pickle::value const& item : in_.items(v))
      if (!write(item, depth + 1)) return false;
    out_ += v.is == pickle::kind::list ? 'l' : v.is == pickle::kind::tuple ? 't' : 'd';
    return true;
  }

  pickle const& in_;
  std::string out_;
  int left_ = 3000;
};

/// Only after a `write` that came to an end.
bool alike(pickle const& a, pickle::value const& x, pickle const& b, pickle::value const& y) {
  if (x.is != y.is || a.text(x) != b.text(y) || pickle::number(x) != pickle::number(y)) return false;
  bool const numbers = x.is == pickle::kind::boolean || x.is == pickle::kind::integer;
  if (numbers && x.bits != y.bits) return false;
  auto const all = a.items(x), others = b.items(y);
  return std::equal(all.begin(), all.end(), others.begin(), others.end(),
                    [&](auto const& p, auto const& q) { return alike(a, p, b, q); });
}

/// The last value under a name, found the slow way.
void check_find(pickle const& in, pickle::value const& v) {
  if (v.is != pickle::kind::dict) return;
  auto const items = in.items(v);
  for (std::size_t i = 0; i < items.size(); i += 2) {
    auto const name = in.text(items[i]);
    if (!name) continue;
    std::size_t last = i;
    for (std::size_t j = i; j < items.size(); j += 2)
      if (in.text(items[j]) == name) last = j;
    require(in.find(v, *name) == &items[last + 1], "find: the last value under a name");
  }
  require(in.find(v, "no such name, surely") == nullptr, "find: nothing under other names");
}

void check_refusal(weir::detail::damaged_pickle const& refused, std::size_t size) {
  std::string_view const what = refused.what();
  require(what.starts_with("byte "), "a refusal says where");
  require(std::strtoull(what.data() + 5, nullptr, 10) <= size, "a refusal points into the bytes");
}

void check_pickle(std::string_view bytes) try {
  pickle const in(bytes, limits);
  check_find(in, in.root());
  writer again(in);
  if (!again.write(in.root(), 0)) return;
  std::string const text = again.whole();
  try {
    pickle const second(text);
    require(alike(in, in.root(), second, second.root()), "written anew it is read alike");
  } catch (weir::detail::damaged_pickle const& refused) {
    fuzz::fail(std::string("written anew it is refused: ") + refused.what());
  }
} catch (weir::detail::damaged_pickle const& refused) {
  check_refusal(refused, bytes.size());
}

void check_snapshot(std::string_view bytes) try {
  for (weir::detail::device_history const& history : weir::detail::read_torch_snapshot(bytes, limits)) {
    require(!history.events.empty(), "a history has events");
    std::unordered_map<std::uint64_t, weir::detail::device_history::event> live;
    for (auto const& e : history.events) {
      if (e.action == weir::trace_action::out_of_memory) continue;
      require(e.bytes != 0, "no empty allocations");
      if (weir::is_of_segment(e.action)) continue;
      if (e.action == weir::trace_action::allocate) {
        require(live.emplace(e.address, e).second, "allocates what is not live");
        continue;
      }
      auto const at = live.find(e.address);
      require(at != live.end(), "frees what is live");
      require(at->second.bytes == e.bytes && at->second.stream == e.stream, "frees as it was allocated");
      live.erase(at);
    }
  }
} catch (weir::detail::damaged_pickle const& refused) {
  check_refusal(refused, bytes.size());
}

}  // namespace

int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  std::string_view const bytes(reinterpret_cast<char const*>(data), size);
  check_pickle(bytes);
  check_snapshot(bytes);
  return 0;
}
