#include <weir/tools/report_template.hpp>

#include <doctest/doctest.h>

#include <string>

TEST_CASE("the template is one page with one place for the data") {
  std::string page;
  for (auto const part : weir::detail::report_template) {
    CHECK(part.size() <= 12'000);  // some compilers read no longer literal than 16 KiB
    page += part;
  }
  CHECK(page.starts_with("<!doctype html>"));
  CHECK(page.ends_with("</html>\n"));
  auto const place = page.find("@@DATA@@");
  REQUIRE(place != std::string::npos);
  CHECK(page.find("@@", place + 8) == std::string::npos);
}
