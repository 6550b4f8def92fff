#include <weir/pool/order/known_streams.hpp>

#include <weir/cuda/device.hpp>
#include <weir/cuda/stream.hpp>

#include <doctest/doctest.h>
#include <support/sim_fixture.hpp>

#include <cstddef>
#include <cstdint>
#include <initializer_list>

using namespace weir;
using detail::known_streams;
using detail::list_id;
using detail::shared;
using weir::test::fresh_world;

namespace {

cudaStream_t some_handle(std::uintptr_t number) { return reinterpret_cast<cudaStream_t>(0x10000 + 16 * number); }

constexpr list_id a{1}, b{2}, c{3};

struct some_streams : known_streams {
  some_streams() { grow(300); }
};

}  // namespace

TEST_CASE("a list is of the stream that was set last, and keeps that where there are more lists") {
  some_streams known;
  known.set(a, some_handle(1), 1, true);
  known.set(b, some_handle(2), 0, false);
  known.set(b, some_handle(3), 1, false);
  known.grow(1000);
  CHECK(known.handle(a) == some_handle(1));
  CHECK(known.device(a) == 1);
  CHECK(known.is_device_known(a));
  CHECK(known.handle(b) == some_handle(3));
  CHECK(known.device(b) == 1);
  CHECK_FALSE(known.is_device_known(b));
  CHECK(known.handle(c) == nullptr);
  CHECK(known.host_bytes() >= 1000 * sizeof(cudaStream_t));
}

TEST_CASE("a list of no stream keeps the device that its events are of") {
  some_streams known;
  known.set(a, some_handle(1), 1, false);
  known.set_none(a);
  CHECK(known.handle(a) == nullptr);
  CHECK(known.device(a) == 1);
  CHECK(known.is_device_known(a));
}

TEST_CASE("a device that CUDA did not say can be learnt later") {
  some_streams known;
  known.set(a, some_handle(1), 0, false);
  known.set_device(a, 1);
  CHECK_FALSE(known.is_device_known(a));
  known.confirm_device(a);
  CHECK(known.is_device_known(a));
  CHECK(known.device(a) == 1);
  CHECK(known.handle(a) == some_handle(1));
}

TEST_CASE("a list is kept until everybody who keeps it has ended that") {
  some_streams known;
  known.set(a, some_handle(1), 0, true);
  CHECK_FALSE(known.is_kept(a));
  known.keep(a);
  known.keep(a);
  known.end_keep(a);
  CHECK(known.is_kept(a));
  CHECK_FALSE(known.is_kept(b));
  known.end_keep(a);
  CHECK_FALSE(known.is_kept(a));
}

TEST_CASE("each list is asked once with each number") {
  some_streams known;
  for (unsigned number = 1; number < 4; ++number)
    for (list_id const list : {a, b}) {
      CHECK(known.is_first_of(number, list));
      CHECK_FALSE(known.is_first_of(number, list));
    }
  known.set(a, some_handle(1), 0, true);
  CHECK(known.is_first_of(3, a));  // another stream by now
}

TEST_CASE("a handle leads to the list that had it last, never to another stream's") {
  some_streams known;
  for (std::uint16_t i = 1; i < 300; ++i) {
    list_id const list{i};
    known.set(list, some_handle(i), 0, true);
    CHECK(known.had_handle(some_handle(i)) == shared);  // nobody said so
    known.confirm_handle(list);
    CHECK(known.had_handle(some_handle(i)) == list);
  }
  std::size_t remembered = 0;
  for (std::uint16_t i = 1; i < 300; ++i) {
    list_id const found = known.had_handle(some_handle(i));
    if (found != shared) CHECK(found == list_id{i});
    remembered += found != shared ? 1 : 0;
  }
  CHECK(remembered > 0);

  list_id const last{299};
  known.set(a, some_handle(299), 0, true);
  CHECK(known.had_handle(some_handle(299)) == last);
  known.confirm_handle(a);
  CHECK(known.had_handle(some_handle(299)) == a);
  known.set(a, some_handle(1000), 0, true);
  CHECK(known.had_handle(some_handle(299)) == shared);  // its list is another stream's by now
}

TEST_CASE_FIXTURE(fresh_world, "CUDA says which device a stream is of, but for a default stream") {
  device_guard const on_second(1);
  weir::stream const of_second;
  int device = -1;
  CHECK(known_streams::ask_device(stream_ref(of_second).get(), device));
#if CUDART_VERSION >= 12080
  CHECK(device == 1);
  sim::fail_call("cudaStreamGetDevice", 1, cudaErrorUnknown);
  CHECK_FALSE(known_streams::ask_device(stream_ref(of_second).get(), device));
#endif
  for (cudaStream_t const any : {cudaStreamLegacy, cudaStreamPerThread}) {
    device = 7;
    CHECK(known_streams::ask_device(any, device));
    CHECK(device == 7);
  }
}
