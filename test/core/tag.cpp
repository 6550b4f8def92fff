// needs: tsan
#include <weir/core/tag.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <cstddef>
#include <new>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <vector>

using namespace weir;

static_assert(sizeof(tag) == sizeof(void*) && sizeof(tag_name) == sizeof(void*));
static_assert(!std::is_copy_constructible_v<tag> && !std::is_move_constructible_v<tag>);
static_assert(std::is_trivially_copyable_v<tag_name>);

TEST_CASE("a thread has no tag until a scope names one, and the innermost scope counts") {
  CHECK_FALSE(current_tag());
  CHECK(current_tag().text() == "");
  CHECK(current_tag().printable() == "(untagged)");
  CHECK(current_tag().id() == 0);
  {
    tag const outer{"decoder"};
    CHECK(current_tag().text() == "decoder");
    {
      tag const inner{"decoder/ffn"};
      CHECK(current_tag().text() == "decoder/ffn");
      tag const none{""};
      CHECK_FALSE(current_tag());
    }
    CHECK(current_tag().text() == "decoder");
  }
  CHECK_FALSE(current_tag());
}

TEST_CASE("the same name is the same tag, wherever the text comes from") {
  std::string made = "dec";
  made += "oder";
  tag_name const literal("decoder"), copied(made), viewed(std::string_view("decoder/ffn").substr(0, 7));
  CHECK(literal == copied);
  CHECK(literal == viewed);
  CHECK(literal.id() == copied.id());
  CHECK(literal != tag_name("encoder"));
  CHECK(literal.id() != tag_name("encoder").id());
  CHECK(tag_name("") == tag_name());
  CHECK(tag_name(static_cast<char const*>(nullptr)) == tag_name());
}

TEST_CASE("a name outlives its scope and the string that it was made from") {
  tag_name kept;
  {
    std::string text(40, 'x');
    tag const scope{text};
    kept = current_tag();
    text.assign(40, 'y');
  }
  CHECK(kept.text() == std::string(40, 'x'));
}

TEST_CASE("of a long name the beginning is kept, and no half of a character") {
  CHECK(tag_name(std::string(64, 'a')).text() == std::string(64, 'a'));
  CHECK(tag_name(std::string(65, 'a')).text() == std::string(64, 'a'));
  std::string const umlauts = std::string(63, 'a') + "\xc3\xa4\xc3\xa4";
  CHECK(tag_name(umlauts).text() == std::string(63, 'a'));
  CHECK(tag_name(std::string(100, '\x80')).text().size() >= 60);  // no UTF-8 at all
}

TEST_CASE("what is written into reports and logs steers nothing") {
  tag_name const odd("a\nb,\x1b[2J");
  CHECK(odd.text() == "a\nb,\x1b[2J");
  CHECK(odd.printable() == "a\\nb,\\x1b[2J");
  CHECK(odd.field() == "\"a\\nb,\\x1b[2J\"");
  CHECK(tag_name("plain").field() == "plain");
  CHECK(tag_name().field() == "");
  CHECK(tag_name().field().data() != nullptr);  // it may be copied from
}

TEST_CASE("a thread begins without a tag, and can be given one") {
  tag const scope{"parent"};
  std::string_view before, given;
  std::thread([&, name = current_tag()] {
    before = current_tag().text();
    tag const passed{name};
    given = current_tag().text();
  }).join();
  CHECK(before == "");
  CHECK(given == "parent");
}

TEST_CASE("eight threads that meet the same new names agree on them") {
  constexpr int threads = 8, names = 300;
  std::atomic<int> arrived{0};
  std::vector<std::vector<tag_name>> found(threads);
  std::vector<std::thread> running;
  for (auto& mine : found)
    running.emplace_back([&mine, &arrived] {
      for (int i = 0; i < names; ++i) {
        for (++arrived; arrived < threads * (i + 1);) std::this_thread::yield();  // all at once
        tag const scope{"racing " + std::to_string(i)};
        mine.push_back(current_tag());
      }
    });
  for (auto& thread : running) thread.join();
  std::set<unsigned> ids;
  for (int i = 0; i < names; ++i) {
    auto const at = static_cast<std::size_t>(i);
    for (auto const& mine : found) CHECK(mine[at] == found[0][at]);
    CHECK(found[0][at].text() == "racing " + std::to_string(i));
    ids.insert(found[0][at].id());
  }
  CHECK(ids.size() == names);
}

TEST_CASE("too many names share one, and those that were there stay what they are") {
  tag_name const early("early");
  tag_name last;
  for (unsigned i = 0; i < detail::most_tags + 10; ++i) last = tag_name("request " + std::to_string(i));
  CHECK(last.text() == "(other tags)");
  CHECK(last.id() == 1);
  CHECK(last.id() < detail::most_tags);
  CHECK(tag_name("one more") == last);
  CHECK(tag_name("early") == early);
  CHECK(tag_name("request 0").text() == "request 0");
  CHECK(tag_name("request 0").id() < detail::most_tags);
}
