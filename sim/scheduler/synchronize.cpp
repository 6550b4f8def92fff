#include "scheduler/synchronize.hpp"

#include "checker/checker.hpp"
#include "scheduler/schedule.hpp"

namespace weir::sim::detail {

void synchronize(runtime& r, held_lock& held, timeline const& t) {
  awaited const end = end_of(r, t);
  seeing(
      r, [&](order_checker& check) { return check.end_of(t); }, [&] { force(r, held, t); });
  come_after(end);
}

void synchronize_device(runtime& r, held_lock& held, int device) {
  seeing(
      r, [&](order_checker& check) { return check.end_of_device(device); }, [&] { force_device(r, held, device); });
  come_after(end_of_device(r, device));
}

}  // namespace weir::sim::detail
