// The functions of weir/sim/order.hpp.

#include "allocations/blocks.hpp"
#include "checker/checker.hpp"
#include "control/refuse.hpp"
#include "model/call.hpp"
#include "scheduler/streams.hpp"

#include <weir/sim/order.hpp>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

namespace weir::sim {
namespace {

using detail::held_lock;

constexpr detail::call_number handed_out = detail::number_of("checked_blocks::allocated");
constexpr detail::call_number given_back = detail::number_of("checked_blocks::freed");

template <class Action>
void with_checker(detail::call_number who, Action action) {
  detail::own_work const not_the_streams;
  detail::acting_as const named(who);
  detail::runtime& r = detail::state();
  held_lock const held(r.mutex);
  if (r.check != nullptr) action(r, *r.check);
}

detail::timeline const* stream_in(detail::runtime& r, cudaStream_t stream) {
  return detail::find_stream(r, stream == nullptr ? cudaStreamLegacy : stream);
}

}  // namespace

void check_order(bool on, order_options options) {
  detail::runtime& r = detail::state();
  held_lock const held(r.mutex);
  r.check.reset();
  // Clocks of an earlier check mean nothing in this one.
  r.events.for_each([](detail::event_state& e) {
    e.seen.clear();
    e.recorded_by = {};
  });
  if (on) r.check = std::make_shared<detail::order_checker>(++r.checks, options);
}

std::vector<order_report> reports() {
  std::vector<order_report> result;
  with_checker(0, [&](auto&, auto& check) { result = check.reports; });
  return result;
}

std::uint64_t report_count() {
  std::uint64_t result = 0;
  with_checker(0, [&](auto&, auto& check) { result = check.report_count; });
  return result;
}

void clear_reports() {
  with_checker(0, [](auto&, auto& check) {
    check.reports.clear();
    check.report_count = 0;
  });
}

void set_report_handler(void (*handler)(order_report const&)) {
  held_lock const held(detail::state().mutex);
  detail::report_handler = handler;
}

void host_release(void const* place) {
  with_checker(0, [&](auto&, auto& check) { check.host_released(place); });
}

void host_acquire(void const* place) {
  with_checker(0, [&](auto&, auto& check) { check.host_acquired(place); });
}

void host_access(void const* p, std::size_t bytes, access what) {
  if (bytes == 0) return;
  with_checker(detail::number_of("sim::host_access"), [&](auto& r, auto& check) {
    detail::range const found = detail::look_up(r, p, bytes);
    if (found.device_only() && found.valid) detail::refuse("host_access: the host cannot reach device memory");
    check.host_access(p, bytes, found.valid, what == access::read ? detail::use::read : detail::use::write);
  });
}

checked_blocks::checked_blocks(std::string name) : name_(std::move(name)) {
  detail::runtime& r = detail::state();
  held_lock const held(r.mutex);
  id_ = ++r.owners;
  check_ = r.check == nullptr ? 0 : r.check->number();
}

checked_blocks::~checked_blocks() {
  with_checker(0, [this](auto&, auto& check) { check.owner_ended(id_); });
}

void checked_blocks::allocated(cudaStream_t stream, void const* p, std::size_t bytes, std::size_t alignment) {
  with_checker(handed_out, [&](auto& r, auto& check) {
    detail::timeline const* const t = stream_in(r, stream);
    if (t != nullptr) check.block_allocated({id_, name_, check_ == check.number()}, t, p, bytes, alignment);
  });
}

void checked_blocks::allocated_for_all(void const* p, std::size_t bytes, std::size_t alignment) {
  with_checker(handed_out, [&](auto&, auto& check) {
    check.block_allocated({id_, name_, check_ == check.number()}, nullptr, p, bytes, alignment);
  });
}

void checked_blocks::freed(cudaStream_t stream, void const* p, std::size_t bytes, std::size_t alignment) {
  freed_after({stream}, p, bytes, alignment);
}

void checked_blocks::freed_after(std::vector<cudaStream_t> const& streams, void const* p, std::size_t bytes,
                                 std::size_t alignment) {
  with_checker(given_back, [&](auto& r, auto& check) {
    std::vector<detail::timeline const*> behind;
    behind.reserve(streams.size());
    for (cudaStream_t const stream : streams) behind.push_back(stream_in(r, stream));
    bool const valid = std::find(behind.begin(), behind.end(), nullptr) == behind.end();
    detail::order_checker::owner const me{id_, name_, check_ == check.number()};
    valid ? check.block_freed(me, behind, p, bytes, alignment) : check.block_freed_nowhere(me, p);
  });
}

void checked_blocks::freed_by_host(void const* p, std::size_t bytes, std::size_t alignment) {
  with_checker(given_back, [&](auto&, auto& check) {
    check.block_freed({id_, name_, check_ == check.number()}, {nullptr}, p, bytes, alignment);
  });
}

void checked_blocks::waited() {
  inside const own_work(*this);
  with_checker(0, [](auto&, auto& check) { check.host_saw({}); });
}

checked_blocks::inside::inside(checked_blocks const& blocks) {
  detail::thread_state& me = detail::this_thread();
  if (me.inside_depth < me.inside.size()) me.inside[me.inside_depth] = blocks.id_;
  ++me.inside_depth;
}

checked_blocks::inside::~inside() { --detail::this_thread().inside_depth; }

}  // namespace weir::sim
