// needs: tsan
#include <weir/core/call_note.hpp>
#include <weir/core/error.hpp>

#include <doctest/doctest.h>

#include <thread>

using namespace weir;

namespace {
void ignore(char const*) noexcept {}
}  // namespace

TEST_CASE("misuse is noted on the thread that reports it") {
  misuse_handler const before = set_misuse_handler(&ignore);
  detail::last_call = {detail::call_note::captured, 3, 5};
  std::thread([] { detail::report_misuse("elsewhere"); }).join();
  CHECK(detail::last_call.what == detail::call_note::captured);
  detail::report_misuse("here");
  CHECK(detail::last_call.what == detail::call_note::misuse);
  detail::last_call.clear();
  CHECK(detail::last_call.what == detail::call_note::plain);
  set_misuse_handler(before);
}

TEST_CASE("misuse is noted whatever its handler does with other memory") {
  misuse_handler const before = set_misuse_handler([](char const*) noexcept { detail::last_call.clear(); });
  detail::report_misuse("here");
  CHECK(detail::last_call.what == detail::call_note::misuse);
  set_misuse_handler(before);
}

TEST_CASE("a wish for captured memory only is the thread's, until all who wish it are gone") {
  using only = detail::captured_memory_only;
  CHECK_FALSE(only::is_set());
  {
    only const outer;
    { only const inner; }
    CHECK(only::is_set());
    std::thread([] { CHECK_FALSE(only::is_set()); }).join();
  }
  CHECK_FALSE(only::is_set());
}
