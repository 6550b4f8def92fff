#include <weir/core/error.hpp>

#include <doctest/doctest.h>
#include <core/recorder.hpp>

#include <limits>
#include <string>
#include <type_traits>

using namespace weir;

namespace {
static_assert(std::is_base_of_v<std::bad_alloc, out_of_memory>);
static_assert(std::is_nothrow_copy_constructible_v<out_of_memory>);

std::string text_of(auto const& action) {
  try {
    action();
  } catch (std::exception const& error) {
    return error.what();
  }
  return "nothing was thrown";
}
bool contains(std::string const& text, std::string const& part) { return text.find(part) != std::string::npos; }

std::string heard;
void listen(char const* what) noexcept { heard = what; }
}  // namespace

TEST_CASE("a source's hint is its own, but for a size that no machine has") {
  constexpr std::size_t most = std::size_t{1} << 47;
  CHECK(detail::hint_for(most, report(), "free something") == "free something");
  CHECK(detail::hint_for(most + 1, report(), "free something").starts_with("no machine has as much"));
}

TEST_CASE("a request that the whole device could not serve is told so, unless memory elsewhere could") {
  report state;
  state.device_memory(1, 4096);
  CHECK(detail::hint_for(4096, state, "free something") == "free something");
  CHECK(detail::hint_for(4097, state, "free something")
            .starts_with("the request (4.00 KiB) is larger than all memory of device 1 (4.00 KiB): ask for less"));
  state.beside(report());
  CHECK(detail::hint_for(4097, state, "free something") == "free something");
}

TEST_CASE("out of memory says what was asked, who refused, and what each layer holds") {
  report state;
  state.below("limit(1.00 KiB)", "512 B charged");
  state.below("device(0)", "all of it free");
  out_of_memory const error({1000, 1024, cudaStreamPerThread}, "limit", state);
  CHECK(error.bytes() == 1000);
  CHECK(error.request().rounded == 1024);
  CHECK(error.refused_by() == std::string("limit"));
  CHECK(error.what() ==
        std::string("weir: out of memory: 1000 B (1000 B, rounded to 1024 B) on this thread's default stream\n"
                    "  refused by limit; chain: limit(1.00 KiB) > device(0)\n"
                    "  limit      512 B charged\n"
                    "  device     all of it free"));
}

TEST_CASE("out of memory names the device and the tag, and ends in the hint") {
  report state;
  state.below("pool", "8 B free");
  state.hint("free something");
  state.main_holder("cache holds 8 B of it");
  tag const scope{"decoder\n"};
  out_of_memory const error({.bytes = 1000, .rounded = 1024, .stream = cudaStreamLegacy, .device = 3}, "pool", state);
  CHECK(error.what() ==
        std::string("weir: out of memory: 1000 B (1000 B, rounded to 1024 B) on the legacy default stream, device 3, "
                    "tag decoder\\n\n"
                    "  refused by pool; chain: pool\n"
                    "  pool       8 B free\n"
                    "  hint       free something; cache holds 8 B of it"));
  CHECK(error.hint() == std::string("free something"));
  CHECK(error.tag() == tag_name("decoder\n"));
}

TEST_CASE("a hint that a layer above has is taken where the refusing layer has none") {
  struct layer {
    void describe_layer(report& out) const {
      out.below("above", "");
      out.hint("from above");
      out.main_holder("cache holds it");
    }
  };
  out_of_memory error({1, 256, host_order}, "source", {});
  error.passed_through(layer{});
  CHECK(contains(error.what(), "\n  hint       from above; cache holds it"));
}

TEST_CASE("out of memory names every kind of order") {
  auto const on = [](stream_ref stream) { return text_of([&] { throw out_of_memory({1, 256, stream}, "x", {}); }); };
  CHECK(contains(on(host_order), "on the host's order"));
  CHECK(contains(on(cudaStreamLegacy), "on the legacy default stream"));
  CHECK(contains(on(reinterpret_cast<cudaStream_t>(0x1234)), "on stream 0x1234"));
}

TEST_CASE("a size that cannot be rounded is said to be so") {
  out_of_memory const error({std::numeric_limits<std::size_t>::max(), 0, host_order}, "x", {});
  CHECK(contains(error.what(), "too large to round"));
}

TEST_CASE("each layer that the error passes adds itself above") {
  auto memory = make(recorder<>{.label = 1} | passing{"inner"} | passing{"outer"});
  std::string const text = text_of([&] { memory.allocate(host_order, 5000); });
  CHECK(contains(text, "refused by recorder; chain: outer > inner > recorder\n"));
  CHECK(text.find("outer      passes on") < text.find("inner      passes on"));
  CHECK(text.find("inner      passes on") < text.find("recorder   label 1"));
}

TEST_CASE("the error can be copied after the stack that threw it is gone") {
  auto const thrown = [] {
    auto memory = make(recorder<>{} | passing{});
    try {
      memory.allocate(host_order, 5000);
    } catch (out_of_memory const& error) {
      return error;
    }
    return out_of_memory({}, "nobody", {});
  }();
  out_of_memory const copy = thrown;
  CHECK(copy.bytes() == 5000);
  CHECK(std::string(copy.what()) == thrown.what());
}

TEST_CASE("misuse goes to the handler that was set, and setting none brings back the default") {
  misuse_handler const before = set_misuse_handler(&listen);
  detail::report_misuse("freed twice");
  CHECK(heard == "freed twice");
  CHECK((set_misuse_handler(nullptr) == &listen));
  CHECK((set_misuse_handler(before) == before));
}

TEST_CASE("an alignment that cannot be honoured is refused with its value and the range") {
  for (std::size_t alignment = 1; alignment <= max_alignment; alignment *= 2)
    CHECK_NOTHROW(detail::require_alignment(alignment));
  CHECK_THROWS_AS(detail::require_alignment(0), std::invalid_argument);
  CHECK_THROWS_AS(detail::require_alignment(2 * max_alignment), std::invalid_argument);
  std::string const text = text_of([] { detail::require_alignment(48); });
  CHECK(contains(text, "48 B"));
  CHECK(contains(text, "2 MiB"));
}

TEST_CASE("options with a problem are refused with its text") {
  struct options {
    bool good;
    std::string problem() const { return good ? "" : "options: good is 0; it must be 1"; }
  };
  options const good{true}, bad{false};
  CHECK(&detail::require_valid(good) == &good);
  CHECK_THROWS_WITH_AS(detail::require_valid(bad), "weir: options: good is 0; it must be 1", std::invalid_argument);
}
