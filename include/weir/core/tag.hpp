#pragma once
// Tags: names that a thread puts on what it allocates, for logs, statistics and reports.

#include <weir/core/printable.hpp>
#include <weir/support/atomic.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace weir {
namespace detail {

/// A name, kept for the life of the process.
struct tag_entry {
  unsigned id;             // 0 stands for no name
  std::string_view name;   // as it was given, or its beginning
  std::string_view field;  // as a field of a CSV line
};

inline constexpr std::size_t longest_tag = 64;                         // bytes
inline constexpr std::size_t longest_tag_field = 4 * longest_tag + 3;  // each a control byte, a mark and quotes
inline constexpr unsigned most_tags = 4096;
/// Stands for all names that cannot be kept.
inline constexpr tag_entry other_tags{1, "(other tags)", "(other tags)"};

/// All names there are, by their hash. A name never goes again, so that threads read and add without a lock, also
/// right after a fork, and whoever has an entry may read it at any time.
class tag_table {
 public:
  /// The entry for a name that is not empty, made if it is new. Costs a hash and, mostly, one comparison.
  static tag_entry const* entry_for(std::string_view given) noexcept {
    std::string_view const name = cut(given);
    tag_entry const* made = nullptr;
    for (std::size_t at = hash_of(name) % size;; at = (at + 1) % size) {
      tag_entry const* seen = entries[at].load_acquire();
      while (seen == nullptr) {
        if (made == nullptr) made = make(name);
        if (made == nullptr) return &other_tags;
        if (entries[at].replace_release(seen, made)) return made;
        seen = entries[at].load_acquire();
      }
      if (seen->name != name) continue;
      delete static_cast<owned_entry const*>(made);  // another thread was first
      return seen;
    }
  }

 private:
  struct owned_entry : tag_entry {
    owned_entry(unsigned number, std::string_view text)
        : tag_entry{number, {}, {}}, own_name(text), own_field(csv_field(text)) {
      name = own_name;
      field = own_field;
    }
    std::string own_name, own_field;
  };

  /// Not inside a character of UTF-8.
  static std::string_view cut(std::string_view name) noexcept {
    if (name.size() <= longest_tag) return name;
    std::size_t end = longest_tag;
    while (end > longest_tag - 4 && (static_cast<unsigned char>(name[end]) & 0xc0) == 0x80) --end;
    return name.substr(0, end);
  }
  /// FNV-1a: names are short.
  static std::size_t hash_of(std::string_view name) noexcept {
    std::uint64_t hash = 0xcbf29ce484222325;
    for (char const c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    return hash ^ hash >> 32;
  }
  /// Null where there is no number left, or no host memory. Two threads that race for a name use up two numbers.
  static tag_entry const* make(std::string_view name) noexcept try {
    if (__atomic_load_n(&next_id, __ATOMIC_RELAXED) >= most_tags) return nullptr;
    unsigned const id = __atomic_fetch_add(&next_id, 1, __ATOMIC_RELAXED);
    return id < most_tags ? new owned_entry(id, name) : nullptr;
  } catch (...) {
    return nullptr;
  }

  static constexpr std::size_t size = std::size_t{2} * most_tags;  // never full
  [[gnu::visibility("default")]] static inline constinit atomic<tag_entry const*> entries[size];
  [[gnu::visibility("default")]] static inline constinit unsigned next_id = 2;
};

}  // namespace detail

/// The name of a tag, as a value: a pointer to text that is kept for the life of the process. It never dangles: what
/// was allocated under a tag can be asked for it after the scope, and the string that it was made from, are gone.
///
/// Making one from text looks it up, some tens of nanoseconds; keep those of hot loops in a `static tag_name const`.
/// At most 64 bytes of a name are kept, and at most about 4,000 names: all others are `(other tags)`. So give it names
/// that stand in the program, no numbers of requests. Any thread; never throws.
class tag_name {
 public:
  /// No name. So is an empty one, and a null pointer.
  constexpr tag_name() noexcept = default;
  explicit tag_name(std::string_view name) noexcept
      : entry_(name.empty() ? nullptr : detail::tag_table::entry_for(name)) {}
  explicit tag_name(char const* name) noexcept
      : tag_name(name == nullptr ? std::string_view() : std::string_view(name)) {}

  /// As it was given, or its first 64 bytes; valid for ever. `printable()` is what to write into reports.
  std::string_view text() const noexcept { return entry_ == nullptr ? std::string_view("") : entry_->name; }
  /// In one line that steers no terminal; `(untagged)` for no name.
  std::string printable() const { return entry_ == nullptr ? "(untagged)" : weir::printable(entry_->name); }
  /// As a field of a CSV line (`csv_field`); empty for no name.
  std::string_view field() const noexcept { return entry_ == nullptr ? std::string_view("") : entry_->field; }
  /// A small number, 0 for no name; the same for the same name, in this process.
  unsigned id() const noexcept { return entry_ == nullptr ? 0 : entry_->id; }
  explicit operator bool() const noexcept { return entry_ != nullptr; }

  friend bool operator==(tag_name, tag_name) noexcept = default;

 private:
  detail::tag_entry const* entry_ = nullptr;
};

namespace detail {
[[gnu::visibility("default")]] inline constinit thread_local tag_name innermost_tag{};
}  // namespace detail

/// The name that this thread's allocations carry now. A new thread has none; to pass one on, hand the worker the value:
/// `std::thread([name = weir::current_tag()] { weir::tag scope{name}; ... })`. Costs a load.
inline tag_name current_tag() noexcept { return detail::innermost_tag; }

/// While it lives, what *this thread* allocates carries a name: `logging` writes it, `statistics{.by_tag = true}` and
/// `tracking` count by it. Scopes nest, and the innermost counts: an inner `ffn` in an outer `decoder` is `ffn`, so
/// write paths (`decoder/ffn`). An empty name is no tag.
///
///     { weir::tag scope{"decoder/ffn"};  run(memory); }
///
/// A local variable: it must end on the thread that made it, innermost first; a coroutine must not be suspended in one.
/// Costs a pointer in and out, and the look-up where it is made from text (`tag_name`).
class tag {
 public:
  [[nodiscard]] explicit tag(tag_name name) noexcept : outer_(detail::innermost_tag) { detail::innermost_tag = name; }
  [[nodiscard]] explicit tag(std::string_view name) noexcept : tag(tag_name(name)) {}
  [[nodiscard]] explicit tag(char const* name) noexcept : tag(tag_name(name)) {}
  ~tag() { detail::innermost_tag = outer_; }

  tag(tag const&) = delete;
  tag& operator=(tag const&) = delete;
  static void* operator new(std::size_t) = delete;  // weir: a tag is a scope, a local variable

 private:
  tag_name outer_;
};

}  // namespace weir
