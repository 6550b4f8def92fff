#include <weir/tools/pickle_reader.hpp>

#include <doctest/doctest.h>

#include <cstdio>
#include <memory>
#include <string>

namespace {

using weir::detail::damaged_pickle;
using weir::detail::pickle;
using kind = pickle::kind;

/// What Python writes for an expression.
std::string pickled(std::string const& expression, int protocol) {
  std::string const command = "python3 -c 'import pickle, sys; sys.stdout.buffer.write(pickle.dumps(" + expression +
                              ", " + std::to_string(protocol) + "))'";
  auto const close = [](std::FILE* f) { pclose(f); };
  std::unique_ptr<std::FILE, decltype(close)> const pipe(popen(command.c_str(), "r"), close);
  REQUIRE(pipe != nullptr);
  std::string bytes;
  for (int c = 0; (c = std::fgetc(pipe.get())) != EOF;) bytes += static_cast<char>(c);
  REQUIRE_MESSAGE(!bytes.empty(), "python3 wrote nothing for " << expression);
  return bytes;
}

/// Why `bytes` are refused; empty if they are not.
std::string refusal(std::string const& bytes, weir::detail::pickle_limits const& limits = {}) {
  try {
    pickle const read(bytes, limits);
    return {};
  } catch (damaged_pickle const& e) {
    return e.what();
  }
}

bool mentions(std::string const& text, std::string const& part) { return text.find(part) != std::string::npos; }

/// After PROTO 2, without STOP.
std::string refused_body(std::string const& body, weir::detail::pickle_limits const& limits = {}) {
  return refusal("\x80\x02" + body, limits);
}

char const* const everything =
    "{\"none\": None, \"yes\": True, \"no\": False, \"small\": 7, \"byte\": 200, \"two\": 60000, \"four\": 1 << 30, "
    "\"minus\": -5, \"eight\": 1 << 40, \"top\": (1 << 64) - 1, \"huge\": 1 << 64, \"real\": 1.5, "
    "\"text\": \"\\u00fc\" * 3, \"long\": \"x\" * 300, \"empty\": [(), [], {}], "
    "\"tuples\": [(1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)], \"list\": list(range(2000)), "
    "\"dict\": {n: str(n) for n in range(2000)}, \"same\": (lambda x: [x, x])([\"shared\"])}";

TEST_CASE("plain data of every protocol is read as Python wrote it") {
  for (int protocol = 2; protocol <= 5; ++protocol) {
    CAPTURE(protocol);
    std::string const bytes = pickled(everything, protocol);
    pickle const in(bytes);
    auto const at = [&](char const* name) {
      pickle::value const* const v = in.find(in.root(), name);
      REQUIRE_MESSAGE(v != nullptr, name);
      return *v;
    };
    CHECK(at("none").is == kind::none);
    CHECK(at("yes").is == kind::boolean);
    CHECK(at("yes").bits == 1);
    CHECK(at("no").bits == 0);
    CHECK(pickle::number(at("small")) == 7);
    CHECK(pickle::number(at("byte")) == 200);
    CHECK(pickle::number(at("two")) == 60000);
    CHECK(pickle::number(at("four")) == 1u << 30);
    CHECK(pickle::number(at("eight")) == std::uint64_t{1} << 40);
    CHECK(pickle::number(at("top")) == ~std::uint64_t{0});
    CHECK_FALSE(pickle::number(at("minus")).has_value());
    CHECK(static_cast<std::int64_t>(at("minus").bits) == -5);
    CHECK_FALSE(pickle::number(at("huge")).has_value());
    CHECK_FALSE(pickle::number(at("yes")).has_value());
    CHECK(at("real").is == kind::real);
    CHECK(in.text(at("text")) == "\u00fc\u00fc\u00fc");
    CHECK(in.text(at("long")) == std::string(300, 'x'));
    for (auto const& v : in.items(at("empty"))) CHECK(in.items(v).empty());
    auto const tuples = in.items(at("tuples"));
    REQUIRE(tuples.size() == 4);
    for (std::size_t n = 0; n < 4; ++n) {
      CHECK(tuples[n].is == kind::tuple);
      REQUIRE(in.items(tuples[n]).size() == n + 1);
      CHECK(pickle::number(in.items(tuples[n])[n]) == n + 1);
    }
    auto const list = in.items(at("list"));
    REQUIRE(list.size() == 2000);
    for (std::size_t n = 0; n < 2000; ++n) CHECK(pickle::number(list[n]) == n);
    auto const dict = in.items(at("dict"));
    REQUIRE(dict.size() == 4000);
    for (std::size_t n = 0; n < 2000; ++n) {
      CHECK(pickle::number(dict[2 * n]) == n);
      CHECK(in.text(dict[2 * n + 1]) == std::to_string(n));
    }
    auto const same = in.items(at("same"));
    REQUIRE(same.size() == 2);
    CHECK(same[0].bits == same[1].bits);
    CHECK(in.text(in.items(same[1])[0]) == "shared");
  }
}

TEST_CASE("of values under one name the last counts, in small dicts and in large ones") {
  for (int keys : {1, 32, 33, 5000}) {
    CAPTURE(keys);
    std::string body = "(";
    auto const add = [&](std::string const& key, int value) {
      body += std::string("U") + static_cast<char>(key.size()) + key + "K" + static_cast<char>(value);
    };
    for (int i = 1; i < keys; ++i) add("key " + std::to_string(i), i % 100);
    body += "K\x05K\x06";  // a key that is no text
    add("twice", 1);
    add("twice", 2);
    std::string const bytes = "\x80\x02" + body + "d.";
    pickle const in(bytes);
    REQUIRE(in.find(in.root(), "twice") != nullptr);
    CHECK(pickle::number(*in.find(in.root(), "twice")) == 2);
    CHECK(in.find(in.root(), "thrice") == nullptr);
    CHECK(in.find(in.root(), "") == nullptr);
    for (int i = 1; i < keys; ++i) {
      pickle::value const* const v = in.find(in.root(), "key " + std::to_string(i));
      REQUIRE(v != nullptr);
      CHECK(pickle::number(*v) == static_cast<unsigned>(i % 100));
    }
  }
}

TEST_CASE("a pickle that is cut off anywhere is refused, with the place") {
  char const* const small =
      "{\"a\": [1, 300, -70000, 1 << 40, 1.5, True, None], \"b\": (\"x\" * 300, b\"raw\"), \"c\": {}}";
  for (int protocol = 3; protocol <= 5; ++protocol) {
    std::string const bytes = pickled(small, protocol);
    REQUIRE(refusal(bytes).empty());
    for (std::size_t n = 0; n < bytes.size(); ++n) {
      CAPTURE(n);
      std::string const why = refusal(bytes.substr(0, n));
      CHECK(mentions(why, "byte "));
      CHECK(mentions(why, n == 0 ? "begins with" : "breaks off"));
    }
  }
}

TEST_CASE("a byte that is changed anywhere is read or refused, and no more") {
  std::string const bytes = pickled("[{\"addr\": 1 << 40, \"size\": 512, \"frames\": [(1, 2.5)]}] * 2", 4);
  for (std::size_t n = 0; n < bytes.size(); ++n)
    for (int value = 0; value < 256; ++value) {
      std::string changed = bytes;
      changed[n] = static_cast<char>(value);
      std::string const why = refusal(changed);
      if (!why.empty()) CHECK(mentions(why, "byte "));
    }
}

TEST_CASE("whatever would name or call something is refused by name") {
  CHECK(mentions(refusal(pickled("print", 2)), "byte 2: opcode GLOBAL is refused"));
  CHECK(mentions(refusal(pickled("print", 4)), "STACK_GLOBAL is refused"));
  CHECK(mentions(refusal(pickled("1j", 2)), "GLOBAL is refused"));
  CHECK(mentions(refusal(pickled("{1, 2}", 4)), "EMPTY_SET is refused"));
  struct opcode {
    char byte;
    char const* name;
  };
  for (opcode const& o : {opcode{'c', "GLOBAL"}, opcode{'R', "REDUCE"}, opcode{'b', "BUILD"}, opcode{'i', "INST"},
                          opcode{'o', "OBJ"}, opcode{'P', "PERSID"}, opcode{'Q', "BINPERSID"}, opcode{'\x81', "NEWOBJ"},
                          opcode{'\x82', "EXT1"}, opcode{'\x92', "NEWOBJ_EX"}, opcode{'\x97', "NEXT_BUFFER"}}) {
    CAPTURE(o.name);
    CHECK(refused_body(std::string(1, o.byte) + "rest") ==
          "byte 2: opcode " + std::string(o.name) + " is refused: only plain data is read");
  }
  CHECK(mentions(refused_body("I1\n."), "opcode 0x49 is none of protocols 2 to 5"));
}

TEST_CASE("what is no pickle of protocols 2 to 5 is refused") {
  CHECK(mentions(refusal(""), "byte 0: "));
  CHECK(mentions(refusal("(lp0\n."), "byte 0: "));
  CHECK(mentions(refusal("\x80\x06N."), "protocol is 6; it can be 2 to 5"));
  CHECK(mentions(refused_body("N"), "byte 3: breaks off: no STOP"));
  CHECK(mentions(refused_body("N.N"), "byte 3: 1 bytes after STOP"));
  CHECK(mentions(refused_body("N\x80\x02."), "byte 3: PROTO in the middle"));
}

TEST_CASE("opcodes that do not fit together are refused") {
  CHECK(mentions(refused_body("."), "STOP with 0 values"));
  CHECK(mentions(refused_body("NN."), "STOP with 2 values"));
  CHECK(mentions(refused_body("(N."), "STOP inside"));
  CHECK(mentions(refused_body("0"), "needs a value"));
  CHECK(mentions(refused_body("2"), "needs a value"));
  CHECK(mentions(refused_body("N(0"), "needs a value"));  // the value is below the mark
  CHECK(mentions(refused_body("N\x87"), "needs a value"));
  CHECK(mentions(refused_body("]Ne"), "needs a mark"));
  CHECK(mentions(refused_body("t"), "needs a mark"));
  CHECK(mentions(refused_body("(Ne"), "needs a value"));
  CHECK(mentions(refused_body("}Na"), "appends to what is no list"));
  CHECK(mentions(refused_body("]NNs"), "adds a key to what is no dict"));
  CHECK(mentions(refused_body("](Nu"), "no dict"));
  CHECK(mentions(refused_body("}(Nu"), "a key without a value"));
  CHECK(mentions(refused_body("(Nd"), "a key without a value"));
  CHECK(mentions(refused_body(std::string("h\0", 2)), "recalls value number 0"));
  CHECK(mentions(refused_body(std::string("Nq\1h\0", 5)), "recalls value number 0"));
  CHECK(mentions(refused_body(std::string("Nr\xff\xff\xff\x7f", 6)), "out of turn"));
  CHECK(mentions(refused_body("\x94"), "needs a value"));
}

TEST_CASE("lengths that no file could have are refused before memory is asked for") {
  std::string const ones(8, '\xff');
  for (char const* opcode : {"\x8d", "\x8e", "\x96", "\x95"})
    CHECK(mentions(refused_body(opcode + ones), "breaks off"));
  for (char const* opcode : {"X", "B", "T", "\x8b"})
    CHECK(mentions(refused_body(opcode + ones.substr(4)), "breaks off"));
}

TEST_CASE("lists in each other, values and bytes are limited") {
  weir::detail::pickle_limits const few{.bytes = 100, .values = 10, .open_marks = 3};
  CHECK(mentions(refused_body("((((", few), "byte 5: more than 3 lists"));
  CHECK(mentions(refused_body("NNNNNNNNNNN", few), "byte 12: more than the 10 values"));
  CHECK(mentions(refused_body(std::string(200, 'N'), few), "byte 100: more bytes"));
}

TEST_CASE("a list in itself is read without an end of the stack") {
  std::string const bytes = pickled("(lambda x: [x.append(x), x][1])([])", 4);
  pickle const in(bytes);
  REQUIRE(in.items(in.root()).size() == 1);
  CHECK(in.items(in.root())[0].bits == in.root().bits);
  std::string const deep = "\x80\x02" + std::string(100'000, ']') + std::string(99'999, 'a') + ".";
  CHECK(refusal(deep).empty());
}

TEST_CASE("of a key that comes twice the last value counts") {
  pickle const in(std::string_view("\x80\x02}(U\1aK\1U\1aK\2u.", 16));
  CHECK(pickle::number(*in.find(in.root(), "a")) == 2);
  CHECK(in.find(in.root(), "b") == nullptr);
}

}  // namespace
