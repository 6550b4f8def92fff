// The laws can be broken: each of these resources has one fault, and the laws name it.
#include <conformance/resource_laws.hpp>

#include <weir/sources/async.hpp>
#include <weir/sources/device.hpp>

#include <set>

using namespace weir;

namespace {

/// Makes an R, as a source does.
template <class R>
struct made {
  R operator()() const { return R(); }
};

template <class R>
bool breaks(std::string const& law) {
  auto const broken = laws::broken_laws(made<R>{});
  bool const found =
      std::any_of(broken.begin(), broken.end(), [&](std::string const& what) { return what.find(law) == 0; });
  if (!found)
    for (std::string const& what : broken) MESSAGE("found instead: " << what);
  return found;
}

/// Keeps the laws; the others do as it does but for their fault.
template <class Source = device>
struct sound {
  static constexpr bool device_accessible = true;
  static constexpr bool host_accessible = false;
  static constexpr bool host_ordered = true;

  void* allocate(stream_ref stream, std::size_t bytes, std::size_t alignment) {
    return memory.allocate(stream, bytes, alignment);
  }
  void deallocate(stream_ref stream, void* p, std::size_t bytes, std::size_t alignment) noexcept {
    memory.deallocate(stream, p, bytes, alignment);
  }

  made_by<Source> memory = make(Source{});
};

struct ignores_alignment : sound<> {
  void* allocate(stream_ref stream, std::size_t bytes, std::size_t alignment) {
    detail::require_alignment(alignment);
    return sound::allocate(stream, bytes, default_alignment);
  }
  void deallocate(stream_ref stream, void* p, std::size_t bytes, std::size_t) noexcept {
    sound::deallocate(stream, p, bytes, default_alignment);
  }
};

struct takes_any_alignment : sound<> {
  static std::size_t valid(std::size_t alignment) {
    return is_valid_alignment(alignment) ? alignment : default_alignment;
  }
  void* allocate(stream_ref stream, std::size_t bytes, std::size_t alignment) {
    return sound::allocate(stream, bytes, valid(alignment));
  }
  void deallocate(stream_ref stream, void* p, std::size_t bytes, std::size_t alignment) noexcept {
    sound::deallocate(stream, p, bytes, valid(alignment));
  }
};

/// Small blocks come from a ring that turns without looking.
struct overlaps : sound<> {
  static constexpr std::size_t ring_bytes = 64 * laws::kib;
  void* allocate(stream_ref stream, std::size_t bytes, std::size_t alignment) {
    if (bytes == 0 || bytes > 4096 || alignment > 4096) return sound::allocate(stream, bytes, alignment);
    detail::require_alignment(alignment);
    used = round_up_or_zero(used, alignment);
    if (used + bytes > ring_bytes) used = 0;
    void* const p = ring + used;
    used += bytes;
    return p;
  }
  void deallocate(stream_ref stream, void* p, std::size_t bytes, std::size_t alignment) noexcept {
    auto const* const at = static_cast<std::byte*>(p);
    if (at >= ring && at < ring + ring_bytes) return;
    sound::deallocate(stream, p, bytes, alignment);
  }
  ~overlaps() { sound::deallocate(host_order, ring, ring_bytes, 4096); }

  std::byte* ring = static_cast<std::byte*>(sound::allocate(host_order, ring_bytes, 4096));
  std::size_t used = 0;
};

struct touches_a_neighbour : sound<> {
  void* allocate(stream_ref stream, std::size_t bytes, std::size_t alignment) {
    void* const p = sound::allocate(stream, bytes, alignment);
    if (last != nullptr) *last = std::byte{0xee};
    last = static_cast<std::byte*>(p);
    return p;
  }
  void deallocate(stream_ref stream, void* p, std::size_t bytes, std::size_t alignment) noexcept {
    if (p == last) last = nullptr;
    sound::deallocate(stream, p, bytes, alignment);
  }
  std::byte* last = nullptr;
};

struct makes_something_of_nothing : sound<> {
  void* allocate(stream_ref stream, std::size_t bytes, std::size_t alignment) {
    return sound::allocate(stream, bytes == 0 ? 1 : bytes, alignment);
  }
};

struct rounds_without_looking : sound<> {
  static std::size_t rounded(std::size_t bytes) { return (bytes + 255) & ~std::size_t{255}; }
  void* allocate(stream_ref stream, std::size_t bytes, std::size_t alignment) {
    std::size_t const n = rounded(bytes);
    return sound::allocate(stream, n == 0 && bytes != 0 ? 256 : n, alignment);
  }
};

struct speaks_of_other_sizes : sound<> {
  void* allocate(stream_ref stream, std::size_t bytes, std::size_t alignment) try {
    return sound::allocate(stream, bytes, alignment);
  } catch (out_of_memory const& error) {
    throw out_of_memory({error.request().rounded, 0, stream}, "x", {});
  }
};

struct says_nothing_of_what_to_do : sound<> {
  void* allocate(stream_ref stream, std::size_t bytes, std::size_t alignment) try {
    return sound::allocate(stream, bytes, alignment);
  } catch (out_of_memory const& error) {
    throw out_of_memory(error.request(), "x", {});
  }
};

/// Hands a freed block to whoever asks next. One cache for all streams, or one for each handle.
template <bool ByHandle>
struct reuses_at_once : sound<> {
  struct idle {
    cudaStream_t handle;
    void* p;
    std::size_t bytes, alignment;
  };
  void* allocate(stream_ref stream, std::size_t bytes, std::size_t alignment) {
    for (auto it = cache.begin(); it != cache.end(); ++it) {
      if (it->bytes != bytes || it->alignment != alignment) continue;
      if (ByHandle && it->handle != handle_of(stream)) continue;
      void* const p = it->p;
      cache.erase(it);
      return p;
    }
    return sound::allocate(stream, bytes, alignment);
  }
  void deallocate(stream_ref stream, void* p, std::size_t bytes, std::size_t alignment) noexcept {
    if (p == nullptr) return;
    if (bytes > laws::mib / 2) return sound::deallocate(stream, p, bytes, alignment);
    cache.push_back({handle_of(stream), p, bytes, alignment});
  }
  static cudaStream_t handle_of(stream_ref stream) { return stream.is_host_order() ? nullptr : stream.get(); }
  ~reuses_at_once() {
    detail::wait_for_device(0);
    for (idle const& b : cache) sound::deallocate(host_order, b.p, b.bytes, b.alignment);
  }
  std::vector<idle> cache;
};

struct never_reuses : sound<> {
  void deallocate(stream_ref stream, void* p, std::size_t bytes, std::size_t alignment) noexcept {
    if (p != nullptr) graveyard.push_back({stream, p, bytes, alignment});
  }
  ~never_reuses() {
    detail::wait_for_device(0);
    for (auto const& b : graveyard) sound::deallocate(host_order, b.p, b.bytes, b.alignment);
  }
  std::vector<laws::block> graveyard;
};

struct keeps_its_last_block : sound<> {
  void* allocate(stream_ref stream, std::size_t bytes, std::size_t alignment) {
    detail::require_alignment(alignment);
    if (bytes == 1000 && kept != nullptr && alignment <= default_alignment && stream.is_host_order())
      return std::exchange(kept, nullptr);
    return sound::allocate(stream, bytes, alignment);
  }
  void deallocate(stream_ref stream, void* p, std::size_t bytes, std::size_t alignment) noexcept {
    if (bytes == 1000 && kept == nullptr && alignment <= default_alignment && stream.is_host_order())
      kept = p;
    else
      sound::deallocate(stream, p, bytes, alignment);
  }
  void* kept = nullptr;
};

/// Takes two allocations and forgets the first when the second fails.
struct leaks_on_the_second_failure : sound<> {
  void* allocate(stream_ref stream, std::size_t bytes, std::size_t alignment) {
    detail::require_alignment(alignment);
    if (bytes == 0) return nullptr;
    void* const scratch = sound::allocate(stream, 64, default_alignment);
    void* const p = sound::allocate(stream, bytes, alignment);
    sound::deallocate(stream, scratch, 64, default_alignment);
    return p;
  }
};

/// Charges before it asks, and does not undo it.
struct charges_for_what_failed : sound<> {
  void* allocate(stream_ref stream, std::size_t bytes, std::size_t alignment) {
    detail::require_alignment(alignment);
    if (used > 40 * laws::mib) throw out_of_memory({bytes, bytes, stream}, "x", {});
    std::size_t const charge = bytes < laws::too_much ? bytes : laws::mib;
    used += charge;
    return sound::allocate(stream, bytes, alignment);
  }
  void deallocate(stream_ref stream, void* p, std::size_t bytes, std::size_t alignment) noexcept {
    used -= bytes;
    sound::deallocate(stream, p, bytes, alignment);
  }
  std::size_t used = 0;
};

struct leaves_the_last_error : sound<> {
  void* allocate(stream_ref stream, std::size_t bytes, std::size_t alignment) try {
    return sound::allocate(stream, bytes, alignment);
  } catch (out_of_memory const&) {
    static_cast<void>(cudaSetDevice(-7));
    throw;
  }
};

struct throws_what_it_likes : sound<> {
  void* allocate(stream_ref stream, std::size_t bytes, std::size_t alignment) try {
    return sound::allocate(stream, bytes, alignment);
  } catch (cuda_error const& error) {
    throw std::runtime_error(error.what());
  }
};

struct gives_up_after_a_failure : sound<> {
  void* allocate(stream_ref stream, std::size_t bytes, std::size_t alignment) try {
    if (broken) throw cuda_error(cudaErrorUnknown, "broken", "here", 1);
    return sound::allocate(stream, bytes, alignment);
  } catch (cuda_error const&) {
    broken = true;
    throw;
  }
  bool broken = false;
};

/// The host does not wait for memory that it asked to be ready.
struct takes_host_order_for_the_default_stream : sound<async> {
  static stream_ref plain(stream_ref stream) { return stream.is_host_order() ? stream_ref(cudaStreamLegacy) : stream; }
  void* allocate(stream_ref stream, std::size_t bytes, std::size_t alignment) {
    return sound::allocate(plain(stream), bytes, alignment);
  }
  void deallocate(stream_ref stream, void* p, std::size_t bytes, std::size_t alignment) noexcept {
    sound::deallocate(plain(stream), p, bytes, alignment);
  }
};

struct cries_wolf : sound<> {
  void deallocate(stream_ref stream, void* p, std::size_t bytes, std::size_t alignment) noexcept {
    if (bytes == 70'000) detail::report_misuse("freed twice");
    sound::deallocate(stream, p, bytes, alignment);
  }
};

struct unreachable : sound<> {
  static constexpr bool device_accessible = false;
};

}  // namespace

TEST_CASE("a sound resource breaks no law") { CHECK(laws::broken_laws(made<sound<>>{}).empty()); }
TEST_CASE("the laws see an alignment that is ignored") { CHECK(breaks<ignores_alignment>("alignment")); }
TEST_CASE("the laws see an alignment that should have been refused") {
  CHECK(breaks<takes_any_alignment>("alignment: a bad alignment"));
}
TEST_CASE("the laws see blocks that overlap") { CHECK(breaks<overlaps>("no overlap: two live blocks overlap")); }
TEST_CASE("the laws see that a live block was written") {
  CHECK(breaks<touches_a_neighbour>("no overlap: the contents of a live block changed"));
}
TEST_CASE("the laws see an allocation of nothing") { CHECK(breaks<makes_something_of_nothing>("zero bytes")); }
TEST_CASE("the laws see sizes that wrap") { CHECK(breaks<rounds_without_looking>("overflow: a request of")); }
TEST_CASE("the laws see an error about another size") {
  CHECK(breaks<speaks_of_other_sizes>("overflow: the error for"));
}
TEST_CASE("the laws see a report without a hint") {
  CHECK(breaks<says_nothing_of_what_to_do>("out of memory: the report does not say what to do"));
}
TEST_CASE("the laws see memory reused before its work is done") {
  CHECK(breaks<reuses_at_once<false>>("stream order (lazy)"));
}
TEST_CASE("the laws see a stream mistaken for a dead one with the same handle") {
  CHECK(breaks<reuses_at_once<true>>("dead streams (lazy)"));
}
TEST_CASE("the laws see memory that is not reused") { CHECK(breaks<never_reuses>("reuse: threw unexpectedly")); }
TEST_CASE("the laws see memory that is kept for ever") { CHECK(breaks<keeps_its_last_block>("facts: not every byte")); }
TEST_CASE("the laws see a leak on the way out of a failure") {
  CHECK(breaks<leaks_on_the_second_failure>("out of memory: an out of memory kept memory"));
  CHECK(breaks<leaks_on_the_second_failure>("failing calls, cudaErrorUnknown"));
}
TEST_CASE("the laws see a charge that is not undone") {
  CHECK(breaks<charges_for_what_failed>("out of memory: after an out of memory there is less room"));
}
TEST_CASE("the laws see a last error left behind") {
  CHECK(breaks<leaves_the_last_error>("out of memory: an out of memory left"));
}
TEST_CASE("the laws see a foreign exception") {
  CHECK(breaks<throws_what_it_likes>("failing calls, cudaErrorUnknown"));
}
TEST_CASE("the laws see that one failure is the end") { CHECK(breaks<gives_up_after_a_failure>("failing calls")); }
TEST_CASE("the laws see memory in host order that is not ready") {
  CHECK(breaks<takes_host_order_for_the_default_stream>("stream order (lazy)"));
}
TEST_CASE("the laws see misuse reported where there is none") { CHECK(breaks<cries_wolf>("misuse")); }
TEST_CASE("the laws see memory that nobody can reach") { CHECK(breaks<unreachable>("facts: nobody")); }
