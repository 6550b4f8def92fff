// The happens-before checker's reports: names of operations and streams, and which edge is missing.

#include "checker/checker.hpp"
#include "checker/ranges.hpp"
#include "model/call.hpp"

#include <utility>

namespace weir::sim::detail {

void (*report_handler)(order_report const&) = nullptr;

namespace {
constexpr std::size_t most_reports = 1000;
}

std::string order_checker::name(slot_number slot) const {
  stream_state const& s = streams_[slot];
  if (s.thread != 0) return "host thread " + std::to_string(s.thread);
  if (slot == host_slot) return "the host";
  if (s.legacy) return "the legacy stream of device " + std::to_string(s.device);
  return "stream " + std::to_string(s.id) + (s.captured ? " (being captured)" : "");
}

std::string order_checker::describe(mark m) const {
  std::string const number = "operation " + std::to_string(m.operation);
  std::string what = number;
  if (m.call > call_count)
    what = std::string(other_names[m.call - call_count - 1]) + " (" + number + ")";
  else if (m.call != 0)
    what = std::string(call_names[m.call - 1]) + " (" + number + ")";
  bool const is_host = m.slot == host_slot || streams_[m.slot].thread != 0;
  return is_host ? name(m.slot) + "'s " + what : what + " on " + name(m.slot);
}

std::string order_checker::name_of_owner(std::uint64_t id) const {
  auto const found = heaps_.find(id);
  return found == heaps_.end() ? "CUDA" : found->second.name;
}

std::string order_checker::memory_text(std::uint64_t of_owner, std::uintptr_t begin, std::uintptr_t end) const {
  return (of_owner == 0 ? "memory " : "block of " + name_of_owner(of_owner) + " ") + range_text(begin, end);
}

std::string order_checker::missing_edge(mark missing, slot_number in, vector_clock const& known) const {
  std::string const knower = name(in);
  std::string const other = name(missing.slot);
  operation_number const upto = known[missing.slot];
  std::string text =
      "; " + knower + " knows " + other + (upto == 0 ? " not at all" : " only up to operation " + std::to_string(upto));
  for (stream_state const& thread : streams_)
    if (thread.thread != 0 && thread.clock.knows(missing))
      return text + "; host thread " + std::to_string(thread.thread) +
             " comes after it, but did not pass that on (host_release there, then host_acquire here)";
  if (missing.slot == host_slot) return text;
  stream_state const& s = streams_[missing.slot];
  std::string const event =
      "event " + std::to_string(s.last_event) + ", recorded at operation " + std::to_string(s.last_event_at);
  if (s.last_event == 0) return text + "; no event was ever recorded on " + other;
  if (s.last_event_at > missing.operation)
    return text + "; " + event + " on " + other + ", stands behind it, but " + knower + " never waited for that";
  return text + "; the last event recorded on " + other + " is too early: " + event;
}

std::string order_checker::not_after(mark missing, slot_number in, vector_clock const& known) const {
  return ", which " + name(in) + " does not come after" + missing_edge(missing, in, known);
}

void order_checker::waited_for_nothing(timeline const* t, event_state const& e) {
  if (!options_.warnings) return;
  report(order_problem::wait_for_nothing,
         "event " + std::to_string(e.number) + " was never recorded: " + describe(act(t)) + " waits for nothing");
}

void order_checker::warn_of_lost_record(event_state const& e, mark anew) {
  vector_clock const& now = streams_[anew.slot].clock;
  if (e.recorded_by.operation == 0 || e.waited_for || now.covers(e.seen)) return;
  report(order_problem::record_lost, "event " + std::to_string(e.number) + " is recorded anew by " + describe(anew) +
                                         ", which does not come after its record by " + describe(e.recorded_by) +
                                         "; nobody waited for that one, and nobody can any more");
}

void order_checker::warn_of_stale_wait(event_state const& e, mark by, vector_clock const& known) {
  if (e.recorded_by.operation == 0 || !known.covers(e.seen)) return;
  slot_number const from = e.recorded_by.slot;
  operation_number const latest = streams_[from].clock[from];
  if (!streams_[from].open || streams_[from].id != e.recorded_on || latest <= e.recorded_by.operation ||
      known[from] >= latest)
    return;
  report(order_problem::stale_wait, "the wait for event " + std::to_string(e.number) + " by " + describe(by) +
                                        " adds nothing: that comes after all that stands before the record by " +
                                        describe(e.recorded_by) + " already, and " + name(from) +
                                        " has had more work since, up to operation " + std::to_string(latest));
}

void order_checker::report(order_problem kind, std::string text) {
  ++report_count;
  order_report made{kind, std::move(text)};
  if (report_handler != nullptr) report_handler(made);
  if (reports.size() < most_reports) reports.push_back(std::move(made));
}

}  // namespace weir::sim::detail
