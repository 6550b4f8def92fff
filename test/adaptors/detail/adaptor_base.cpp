#include <weir/adaptors/detail/adaptor_base.hpp>

#include <doctest/doctest.h>
#include <support/test_source.hpp>

#include <string>
#include <type_traits>

using namespace weir;
using namespace weir::test;

namespace {

/// The least that an adaptor is: it passes on, and counts failures.
template <resource Upstream>
class plain_resource : public detail::adaptor_base<plain_resource<Upstream>, Upstream> {
  using base = detail::adaptor_base<plain_resource, Upstream>;

 public:
  template <recipe F>
  plain_resource(F const& upstream, auto const&) : base(upstream) {}
  void* allocate(stream_ref stream, std::size_t bytes, std::size_t alignment = default_alignment) {
    return this->pass(stream, bytes, alignment, [this] { ++failures; });
  }
  void deallocate(stream_ref stream, void* p, std::size_t bytes, std::size_t alignment = default_alignment) noexcept {
    this->upstream_.deallocate(stream, p, bytes, alignment);
  }
  void describe_layer(report& out) const { out.below("plain", std::to_string(failures) + " failures"); }

  int failures = 0;
};
struct plain {
  template <resource Upstream>
  using on = plain_resource<Upstream>;
};

/// Never moves, takes twice of what is asked for, keeps something for capture 7, and knows one wrong free.
struct fixed_place {
  fixed_place() = default;
  fixed_place(fixed_place const&) = delete;
  static constexpr bool host_accessible = true;
  static constexpr bool knows_blocks = true;
  void* allocate(stream_ref, std::size_t, std::size_t) { return this; }
  void deallocate(stream_ref, void*, std::size_t bytes, std::size_t) noexcept {
    if (bytes == wrong) detail::last_call.what = detail::call_note::misuse;
    ++frees;
  }
  std::size_t taken(std::size_t bytes, std::size_t) const noexcept { return 2 * bytes; }
  bool holds_captured(std::uint64_t capture) const noexcept { return capture == 7; }

  static constexpr std::size_t wrong = 13;  // bytes, which it reports
  int frees = 0;
};
constexpr auto in_place = [] { return fixed_place(); };

using stacked_twice = made_by<decltype(in_place | plain{} | plain{})>;
static_assert(resource<stacked_twice>);
static_assert(!std::is_copy_constructible_v<stacked_twice>);
static_assert(host_accessible<stacked_twice> && knows_blocks<stacked_twice>);
static_assert(!device_accessible<stacked_twice> && !host_ordered<stacked_twice>);

/// Has nothing, and nothing to say about it.
struct only_null {
  static void* allocate(stream_ref, std::size_t, std::size_t) { return nullptr; }
  static void deallocate(stream_ref, void*, std::size_t, std::size_t) noexcept {}
};

/// Keeps accounts in which nothing is ever live.
template <resource Upstream>
class empty_accounts_resource : public detail::adaptor_base<empty_accounts_resource<Upstream>, Upstream> {
  using base = detail::adaptor_base<empty_accounts_resource, Upstream>;

 public:
  template <recipe F>
  empty_accounts_resource(F const& upstream, auto const&) : base(upstream) {}
  void* allocate(stream_ref stream, std::size_t bytes, std::size_t alignment = default_alignment) {
    return this->upstream_.allocate(stream, bytes, alignment);
  }
  void deallocate(stream_ref stream, void* p, std::size_t bytes, std::size_t alignment = default_alignment) noexcept {
    this->deallocate_excess(stream, p, bytes, alignment, nullptr);
  }
  void describe_layer(report&) const {}

 private:
  friend base;
  std::string counted() const { return "and nothing is live"; }
  std::string label_ = "mine: accounts";
};
struct empty_accounts {
  template <resource Upstream>
  using on = empty_accounts_resource<Upstream>;
};

}  // namespace

TEST_CASE("the upstream is built in place, and asked what the adaptor is asked") {
  auto const memory = make(in_place | plain{} | plain{});
  CHECK(&memory.upstream().upstream() == &find<fixed_place>(memory));
  CHECK(taken(memory, 1000) == 2000);
  CHECK(holds_captured(memory, 7));
  CHECK_FALSE(holds_captured(memory, 8));
}

TEST_CASE("each layer describes itself above its upstream") {
  source_state state;
  auto const memory = make(source{&state} | plain{} | plain{});
  CHECK(report_of(memory).chain() == "plain > plain > source");
}

TEST_CASE("what the upstream throws passes once through each layer, after the layer noted its failure") {
  source_state state;
  auto memory = make(source{&state} | plain{} | plain{});
  state.fail = failing::out_of_memory;
  std::string const what = message_of<out_of_memory>([&] { static_cast<void>(memory.allocate(host_order, 1000)); });
  CHECK(contains(what, "chain: plain > plain > source\n"));
  CHECK(contains(what, "plain      1 failures\n  plain      1 failures\n  source"));
  state.fail = failing::other;
  CHECK_THROWS_AS(memory.allocate(host_order, 1000), std::logic_error);
  CHECK(memory.failures == 2);
  CHECK(memory.upstream().failures == 2);
}

TEST_CASE("null from below is out of memory, for each layer once") {
  source_state state;
  auto memory = make(source{&state} | plain{} | plain{});
  state.fail = failing::null;
  std::string const what = message_of<out_of_memory>([&] { static_cast<void>(memory.allocate(host_order, 1000)); });
  CHECK(contains(what, "refused by a resource that returned null; chain: plain > plain > source\n"));
  CHECK(contains(what, "hint       the resource below says only that it has no more"));
  CHECK(memory.failures == 1);
  CHECK(memory.upstream().failures == 1);

  auto over_silence = make([] { return only_null(); } | plain{});
  CHECK(contains(message_of<out_of_memory>([&] { static_cast<void>(over_silence.allocate(host_order, 1000)); }),
                 "refused by a resource that returned null; chain: plain\n"));
}

TEST_CASE("a free of more than was counted is reported below, or by the layer that counts") {
  caught_misuse const misuse;
  auto memory = make(in_place | empty_accounts{});
  void* const p = memory.allocate(host_order, 1000);
  memory.deallocate(host_order, p, fixed_place::wrong);
  CHECK(misuse.count() == 0);  // the layer below has spoken
  memory.deallocate(host_order, p, 1000);
  CHECK(memory.upstream().frees == 2);
  CHECK(misuse.last() == "weir: mine: accounts: deallocate of " + detail::hex(p) +
                             ": 1000 B aligned to 256 were given back and nothing is live; a size, an alignment or a "
                             "pointer is wrong, or it was "
                             "freed twice");
}

TEST_CASE("without a layer that knows its blocks, memory that was not counted is kept") {
  caught_misuse const misuse;
  source_state state;
  auto memory = make(source{&state} | empty_accounts{});
  void* const p = memory.allocate(host_order, 1000);
  memory.deallocate(host_order, p, 1000);
  CHECK(misuse.count() == 1);
  CHECK(state.live_count == 1);
  memory.upstream().deallocate(host_order, p, 1000, default_alignment);
}
