#include <weir/tools/text_numbers.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <stdexcept>
#include <string>

using weir::detail::bytes_in;
using weir::detail::number_in;
using weir::detail::read_whole;

TEST_CASE("sizes are bytes, or have a unit, or a point") {
  CHECK(bytes_in("4096") == 4096);
  CHECK(bytes_in("0") == 0);
  CHECK(bytes_in("7B") == 7);
  CHECK(bytes_in("64KiB") == 65536);
  CHECK(bytes_in("1.5GiB") == 1610612736);
  CHECK(bytes_in("0.5KiB") == 512);
  CHECK(bytes_in("9007199254740993") == 9007199254740993);  // which no double is
}

TEST_CASE("what is no size says so") {
  char const* const no_number = "' is not a number of bytes, as in 4096, 64KiB, 1.5GiB";
  auto const why = [](char const* text) -> std::string {
    try {
      bytes_in(text);
    } catch (std::invalid_argument const& e) {
      return e.what();
    }
    return "it was read";
  };
  CHECK(why("12QB") == std::string("'12QB") + no_number + "; units are B, KiB, MiB, GiB, TiB");
  CHECK(why("1.2.3") == std::string("'1.2.3") + no_number);
  CHECK(why("") == std::string("'") + no_number);
  CHECK(why("-1") == std::string("'-1") + no_number + "; units are B, KiB, MiB, GiB, TiB");
  CHECK(why("0.3B") == "'0.3B' is not a whole number of bytes");
  CHECK(why("9000000TiB") == "'9000000TiB' is more than can be addressed");
}

TEST_CASE("numbers are read whole or not at all") {
  int number = 7;
  CHECK(read_whole("-12", number));
  CHECK(number == -12);
  CHECK(!read_whole("12x", number));
  CHECK(!read_whole("", number));
  CHECK(!read_whole("99999999999", number));
  CHECK(number == -12);
  CHECK(read_whole("640", number, 8));
  CHECK(number == 0640);
  CHECK(number_in("60.5", "60.5%", "a percentage") == 60.5);
  CHECK_THROWS_WITH_AS(number_in("6e1", "6e1%", "a percentage"), "'6e1%' is not a percentage", std::invalid_argument);
}
