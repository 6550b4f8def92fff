#include <weir/adaptors/detail/tag_totals.hpp>

#include <doctest/doctest.h>

#include <bit>
#include <string>
#include <vector>

using namespace weir;
using detail::holders_text;
using detail::tag_totals;
using detail::tags_table;

namespace {

/// A tag that holds so much, and held so much more.
tag_statistics holding(char const* name, std::size_t bytes, std::size_t freed = 0) {
  tag_statistics one{tag_name(name), {}};
  if (bytes != 0) one.numbers.add(bytes, bytes);
  if (freed != 0) {
    one.numbers.add(freed, freed);
    one.numbers.take_off(freed, freed);
  }
  return one;
}

}  // namespace

TEST_CASE("each tag has numbers of its own, and those that were never used are not shown") {
  tag_totals totals;
  tag_name const small("small"), large("large"), idle("idle"), none;
  CHECK(totals.find(small) == nullptr);
  totals.make_room(large);
  CHECK(totals.find(large) != nullptr);
  CHECK(totals.find(small) == nullptr);  // has a place, with no name in it
  for (tag_name const tag : {small, large, idle, none}) totals.make_room(tag);
  totals.of(small).add(10, 256);
  totals.of(large).add(1000, 1024);
  totals.of(none).add(100, 256);
  totals.of(none).take_off(100, 256);
  auto const used = totals.used();
  REQUIRE(used.size() == 3);
  CHECK(used[0].tag == large);
  CHECK(used[0].numbers.requested.current == 1000);
  CHECK(used[1].tag == small);
  CHECK(used[2].tag == none);
  CHECK(used[2].numbers.requested == counter{0, 100, 100});
  totals.reset_peaks();
  CHECK(totals.used()[2].numbers.requested.peak == 0);
}

TEST_CASE("numbers are those of the tag that is asked for, whichever was asked for before") {
  tag_totals totals;
  CHECK(totals.find(tag_name()) != nullptr);
  std::vector<tag_name> tags;
  for (int i = 0; i < 100; ++i) tags.emplace_back("one of many " + std::to_string(i));
  for (std::size_t i = 0; i < tags.size(); ++i) {
    totals.make_room(tags[i]);
    totals.find(tags[i])->add(i + 1, 256);
    totals.find(tags[0])->add(1, 256);
  }
  for (std::size_t i = 1; i < tags.size(); ++i)
    CHECK(totals.find(tags[i])->requested.current == static_cast<std::int64_t>(i + 1));
  CHECK(totals.find(tags[0])->requested.current == 101);
}

TEST_CASE("tags of two libraries may have one number: what was counted is found, whatever the place is called") {
  tag_totals totals;
  tag_name const own("of this library");
  detail::tag_entry const entry{own.id(), "of another library", "of another library"};
  auto const other = std::bit_cast<tag_name>(&entry);
  totals.make_room(own);
  totals.of(own).add(10, 256);
  CHECK(totals.find(other) == nullptr);
  totals.make_room(other);
  totals.of(other).add(100, 256);
  totals.of(own).take_off(10, 256);
  CHECK(totals.of(other).requested == counter{100, 110, 110});
}

TEST_CASE("holders are named in a line, no more than are asked for") {
  std::vector<tag_statistics> const tags{holding("a", 3 << 20), holding("", 2048), holding("b", 5),
                                         holding("gone", 0, 100)};
  CHECK(holders_text(tags) == "a 3.00 MiB in 1 | (untagged) 2.00 KiB in 1 | b 5 B in 1");
  CHECK(holders_text(tags, 1) == "a 3.00 MiB in 1 | 2 more");
  CHECK(holders_text({}) == "");
  CHECK(holders_text({holding("gone", 0, 100)}) == "");
}

TEST_CASE("a table has a row a tag, of one width, and says how many are left out") {
  std::vector<tag_statistics> const tags{holding("a", 3 << 20, 1 << 20), holding("", 2048),
                                         holding("a name of more than thirty-two bytes\xc3\xa4", 5)};
  CHECK(tags_table(tags) ==
        "| Tag                              |   Requested |        Peak |     Live |\n"
        "| a                                |    3.00 MiB |    4.00 MiB |        1 |\n"
        "| (untagged)                       |    2.00 KiB |    2.00 KiB |        1 |\n"
        "| a name of more than thirty-two b |         5 B |         5 B |        1 |\n");
  std::string const first = tags_table(tags, 1);
  CHECK(first.substr(first.rfind('|') + 2) == "  and 2 more tags\n");
}
