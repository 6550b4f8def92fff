#include <weir/core/recipe.hpp>

#include <doctest/doctest.h>
#include <core/recorder.hpp>

#include <string>
#include <type_traits>

using namespace weir;

namespace {
using stack = decltype(recorder<>{} | passing{});

static_assert(recipe<recorder<>>);
static_assert(recipe<stack>);
static_assert(!recipe<passing>);
static_assert(!recipe<int>);
static_assert(std::is_copy_constructible_v<stack>);
static_assert(std::is_same_v<made_by<stack>, passing_resource<recorder_resource<>>>);
static_assert(!std::is_move_constructible_v<made_by<stack>>);
}  // namespace

/// A source and an adaptor of a user's that owe nothing to weir but this line.
namespace theirs {
namespace {
using weir::operator|;

struct source_resource {
  int asked = 0;
  void* allocate(stream_ref, std::size_t, std::size_t) { return &++asked; }
  void deallocate(stream_ref, void*, std::size_t, std::size_t) noexcept {}
};
struct source {
  source_resource operator()() const { return {}; }
};

template <resource Upstream>
struct layer {
  template <recipe F, class Options>
  layer(F const& upstream, Options const&) : below(upstream()) {}
  void* allocate(stream_ref s, std::size_t n, std::size_t a) { return below.allocate(s, n, a); }
  void deallocate(stream_ref s, void* p, std::size_t n, std::size_t a) noexcept { below.deallocate(s, p, n, a); }
  Upstream& upstream() { return below; }
  Upstream below;
};
struct adaptor {
  template <resource Upstream>
  using on = layer<Upstream>;
};
struct choosy_source : source {
  std::string wrong;
  std::string problem() const { return wrong; }
};
struct choosy : adaptor {
  std::string wrong;
  std::string problem() const { return wrong; }
};

}  // namespace
}  // namespace theirs

namespace elsewhere {
struct other {};
void operator|(other, other);  // hides weir's, which this file uses: the operands' namespaces have to bring it

TEST_CASE("a source of one's own stands under an adaptor of one's own") {
  auto memory = make(theirs::source{} | theirs::adaptor{} | passing{} | theirs::adaptor{});
  static_assert(
      std::is_same_v<decltype(memory), theirs::layer<passing_resource<theirs::layer<theirs::source_resource>>>>);
  static_cast<void>(memory.allocate(host_order, 1, 1));
  CHECK(find<theirs::source_resource>(memory).asked == 1);
}
}  // namespace elsewhere

TEST_CASE("writing a recipe builds nothing") {
  fresh_record const record;
  auto const recipe = recorder<>{} | passing{} | passing{"top"};
  auto const copy = recipe;
  static_cast<void>(copy);
  CHECK(built.empty());
}

TEST_CASE("a recipe says what is wrong with its options, the topmost first") {
  auto const problem = [](char const* source, char const* lower, char const* upper) {
    return (theirs::choosy_source{{}, source} | theirs::choosy{{}, lower} | passing{} | theirs::choosy{{}, upper})
        .problem();
  };
  CHECK(problem("", "", "").empty());
  CHECK(problem("c", "b", "a") == "a");
  CHECK(problem("c", "b", "") == "b");
  CHECK(problem("c", "", "") == "c");
  CHECK((theirs::source{} | theirs::adaptor{}).problem().empty());  // says nothing
}

TEST_CASE("a stack is built in place, its upstream first, and destroyed in the opposite order") {
  fresh_record const record;
  {
    auto memory = make(recorder<>{} | passing{"first"} | passing{"second"});
    CHECK(built == std::vector<std::string>{"recorder", "first", "second"});
    built.clear();
  }
  CHECK(built == std::vector<std::string>{"~second", "~first", "~recorder"});
}

TEST_CASE("each make builds another stack") {
  auto const recipe = recorder<>{} | passing{};
  auto first = make(recipe);
  auto second = make(recipe);
  CHECK(first.allocate(host_order, 1) != second.allocate(host_order, 1));
}

TEST_CASE("a stack can be a member, a function's result, and come from a lambda") {
  auto const recipe = [] { return recorder<>{.label = 3} | passing{}; };
  struct service {
    made_by<decltype(recorder<>{} | passing{})> memory = make(recorder<>{.label = 4} | passing{});
  } owner;
  auto made = [&] { return make(recipe()); }();
  auto from_function = make([] { return recorder_resource<>(7); });
  CHECK(owner.memory.upstream().label() == 4);
  CHECK(made.upstream().label() == 3);
  CHECK(from_function.label() == 7);
}

TEST_CASE("find gives the outermost layer of a kind, and the source by its type") {
  auto memory = make(recorder<>{.label = 9} | passing{"inner"} | passing{"outer"});
  CHECK(&weir::find<passing_resource>(memory) == &memory);
  CHECK(&weir::find<passing_resource>(memory.upstream()) == &memory.upstream());
  CHECK(weir::find<recorder_resource<>>(memory).label() == 9);
  CHECK(&weir::find<recorder_resource<>>(memory) == &memory.upstream().upstream());
}

TEST_CASE("find in a constant stack gives a constant layer") {
  auto const memory = make(recorder<>{.label = 9} | passing{});
  static_assert(
      std::is_same_v<decltype(weir::find<passing_resource>(memory)), passing_resource<recorder_resource<>> const&>);
  CHECK(weir::find<recorder_resource<>>(memory).label() == 9);
}
