#include "model/stream.hpp"

#include "model/runtime.hpp"

#include <utility>

namespace weir::sim::detail {

timeline* make_timeline(runtime& r, int device, unsigned flags, int priority) {
  auto& all = r.devices[static_cast<std::size_t>(device)].timelines;
  all.reserve(all.size() + 1);
  auto made = std::make_unique<timeline>();
  made->id = r.timelines.size();
  made->device = device;
  made->flags = flags;
  made->priority = priority;
  r.timelines.push_back(std::move(made));
  all.push_back(r.timelines.back().get());
  return all.back();
}

timeline* find_timeline(runtime& r, std::uint64_t id) { return r.timelines[static_cast<std::size_t>(id)].get(); }

void retire_if_over(runtime& r, timeline* t) {
  if (!t->destroyed || !t->idle()) return;
  std::erase(r.devices[static_cast<std::size_t>(t->device)].timelines, t);
  r.timelines[static_cast<std::size_t>(t->id)].reset();
}

}  // namespace weir::sim::detail
