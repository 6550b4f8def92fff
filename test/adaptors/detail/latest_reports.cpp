// needs: tsan
#include <weir/adaptors/detail/latest_reports.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <map>
#include <string>
#include <thread>

using weir::detail::latest_reports;

namespace {

struct reader final : weir::detail::event_visitor {
  void see_begin(weir::detail::tick_moment const&, std::uint64_t) override {}
  void see(weir::detail::shown_event const&) override {}
  void see_frame(std::uint32_t, char const*) override {}
  void see_report(std::uint32_t report, std::string const& text) override { reports[report] = text; }

  std::map<std::uint32_t, std::string> reports;
};
std::map<std::uint32_t, std::string> read(latest_reports const& reports) {
  reader out;
  reports.show(out);
  return out.reports;
}

}  // namespace

TEST_CASE("a report is shown by its number once its text is there") {
  latest_reports reports;
  CHECK(read(reports).empty());
  CHECK(reports.begin() == 1);
  CHECK(reports.begin() == 2);
  reports.keep(2, "second");
  CHECK(read(reports) == std::map<std::uint32_t, std::string>{{2, "second"}});
  reports.keep(1, "first");
  CHECK(read(reports) == std::map<std::uint32_t, std::string>{{1, "first"}, {2, "second"}});
}

TEST_CASE("the latest are kept, and none that comes too late takes the place of a later one") {
  latest_reports reports;
  for (std::uint32_t i = 1; i <= latest_reports::most + 3; ++i) {
    std::uint32_t const number = reports.begin();
    if (i > 1) reports.keep(number, std::to_string(number).c_str());
  }
  reports.keep(1, "late");
  auto const kept = read(reports);
  CHECK(kept.size() == latest_reports::most);
  CHECK(kept.begin()->first == 4);
  CHECK(kept.rbegin()->second == std::to_string(latest_reports::most + 3));
}

TEST_CASE("threads keep reports while another reads them") {
  latest_reports reports;
  auto const work = [&] {
    for (int i = 0; i < 2000; ++i) {
      std::uint32_t const number = reports.begin();
      reports.keep(number, std::to_string(number).c_str());
    }
  };
  std::thread one(work), other(work);
  bool right = true;
  for (int i = 0; i < 50; ++i)
    for (auto const& [number, text] : read(reports)) right = right && text == std::to_string(number);
  one.join();
  other.join();
  CHECK(right);
  CHECK(read(reports).size() == latest_reports::most);
}
