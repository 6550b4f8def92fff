#include <weir/tools/pickle_writer.hpp>

#include <doctest/doctest.h>
#include <support/python.hpp>

#include <cstdint>
#include <string>
#include <utility>

using weir::detail::pickle_writer;

namespace {

/// What Python reads: `repr` of it.
std::string read_back(pickle_writer&& out) {
  return weir::test::python("print(ascii(pickle.loads(BYTES)))", std::move(out).finish());
}

}  // namespace

TEST_CASE("Python reads numbers of every length as they were") {
  pickle_writer out;
  out.begin_list();
  std::string expected = "[";
  for (unsigned bits = 0; bits < 64; ++bits)
    for (std::uint64_t const n : {(std::uint64_t{1} << bits) - 1, std::uint64_t{1} << bits}) {
      out.number(n);
      expected += std::to_string(n) + ", ";
    }
  out.number(~std::uint64_t{0});
  out.end_list();
  CHECK(read_back(std::move(out)) == expected + "18446744073709551615]");
}

TEST_CASE("Python reads texts, pairs and dicts, and texts that come again") {
  pickle_writer out;
  out.begin_dict();
  out.member("a", "b");
  out.member("b", "a\n\"\\");
  out.text("pair");
  out.number(0), out.number(1), out.end_pair();
  out.text("flags");
  out.begin_list();
  out.boolean(true);
  out.boolean(false);
  out.end_list();
  out.text("nothing");
  out.begin_list();
  out.end_list();
  out.member("", "");
  out.member("bad", "x\xff\xc3");
  out.member("good", "\xc3\xa4");
  out.end_dict();
  CHECK(read_back(std::move(out)) ==
        R"({'a': 'b', 'b': 'a\n"\\', 'pair': (0, 1), 'flags': [True, False], 'nothing': [], '': '', )"
        R"('bad': 'x\ufffd\ufffd', 'good': '\xe4'})");
}

TEST_CASE("more texts than one byte counts are told apart, and each is written once") {
  pickle_writer out;
  out.begin_list();
  for (int round = 0; round < 2; ++round)
    for (int i = 0; i < 1000; ++i) out.text("text number " + std::to_string(i));
  out.end_list();
  std::string const bytes = std::move(out).finish();
  CHECK(weir::test::python("v = pickle.loads(BYTES)\nprint(len(v), v[:1000] == v[1000:], v[999])", bytes) ==
        "2000 True text number 999");
  CHECK(bytes.find("text number 7", bytes.find("text number 999")) == std::string::npos);
}
