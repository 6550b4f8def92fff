// Prefetch, advice and attachment of managed memory: the arguments are checked as CUDA does, and nothing moves. What
// was advised, and where memory was prefetched to, can be asked for.

#include "allocations/blocks.hpp"
#include "api/entry.hpp"
#include "api/stream_calls.hpp"
#include "checker/checker.hpp"
#include "scheduler/capture.hpp"
#include "scheduler/schedule.hpp"
#include "scheduler/streams.hpp"

#include <algorithm>
#include <iterator>

namespace weir::sim::detail {

int device_at(cudaMemLocation location) {
  if (location.type == cudaMemLocationTypeDevice) return location.id;
  bool const on_host = location.type == cudaMemLocationTypeHost || location.type == cudaMemLocationTypeHostNuma ||
                       location.type == cudaMemLocationTypeHostNumaCurrent;
  return on_host ? cudaCpuDeviceId : no_device;
}

cudaError_t attach(cudaStream_t stream, void* p, std::size_t bytes, unsigned flags) {
  return api("cudaStreamAttachMemAsync", [&](runtime& r, held_lock& held) {
    timeline* const t = find_stream(r, stream);
    if (t == nullptr) return cudaErrorInvalidResourceHandle;
    allocation const* const a = find_live(r, p);
    bool const whole = a != nullptr && a->kind == memory_kind::managed && (bytes == 0 || bytes == a->bytes);
    bool const known = flags == cudaMemAttachGlobal || flags == cudaMemAttachHost || flags == cudaMemAttachSingle;
    // Memory cannot be attached to the legacy stream alone.
    if (!whole || !known || (flags == cudaMemAttachSingle && t->legacy)) return cudaErrorInvalidValue;
    if (cudaError_t const code = admit_wait(r, *t); code != cudaSuccess) return code;  // no part of a graph
    if (r.check != nullptr) [[unlikely]]
      r.check->operate(*t);
    submit(r, held, *t, [](held_lock&) {});  // a hint, but one that takes its place in the stream
    return cudaSuccess;
  });
}

namespace {

// The hints of [p, p + bytes), where that takes any: it is managed, or the host's own and devices reach it.
managed_hints* find_hints(runtime& r, void const* p, std::size_t bytes) {
  range const what = look_up(r, p, bytes);
  if (bytes == 0 || !what.valid) return nullptr;
  if (what.shared) return &r.pageable_hints;
  if (what.in == nullptr || !what.in->managed()) return nullptr;
  return &std::prev(r.allocations.upper_bound(reinterpret_cast<std::uintptr_t>(p)))->second.hints;
}

}  // namespace

cudaError_t prefetch(void const* p, std::size_t bytes, int device, unsigned flags, cudaStream_t stream) {
  return api("cudaMemPrefetchAsync", [&](runtime& r, held_lock& held) {
    timeline* const t = find_stream(r, stream);
    if (t == nullptr) return cudaErrorInvalidResourceHandle;
    if (device < cudaCpuDeviceId || device >= r.device_count) return cudaErrorInvalidDevice;
    if (flags != 0 || find_hints(r, p, bytes) == nullptr) return cudaErrorInvalidValue;
    if (cudaError_t const code = admit_wait(r, *t); code != cudaSuccess) return code;  // no graph has a node for it
    if (r.check != nullptr) [[unlikely]]
      r.check->operate(*t);
    submit(r, held, *t, [&r, p, bytes, device](held_lock&) {
      managed_hints* const hints = find_hints(r, p, bytes);
      auto const first = reinterpret_cast<std::uintptr_t>(p);
      if (hints != nullptr)
        hints->change(first, first + bytes, [=](managed_hint& hint) { hint.last_prefetch = device; });
    });
    return cudaSuccess;
  });
}

}  // namespace weir::sim::detail

namespace sim = weir::sim::detail;

namespace {

void take_advice(sim::managed_hint& hint, cudaMemoryAdvise advice, int device) {
  unsigned const bit = advice == cudaMemAdviseSetAccessedBy || advice == cudaMemAdviseUnsetAccessedBy
                           ? sim::managed_hint::bit_of(device)
                           : 0;
  switch (advice) {
    case cudaMemAdviseSetReadMostly:
    case cudaMemAdviseUnsetReadMostly:
      hint.read_mostly = advice == cudaMemAdviseSetReadMostly;
      break;
    case cudaMemAdviseSetPreferredLocation:
      hint.preferred = device;
      break;
    case cudaMemAdviseUnsetPreferredLocation:
      hint.preferred = cudaInvalidDeviceId;
      break;
    case cudaMemAdviseSetAccessedBy:
      hint.accessed_by |= bit;
      break;
    case cudaMemAdviseUnsetAccessedBy:
      hint.accessed_by &= ~bit;
      break;
  }
}

cudaError_t advise(void const* p, std::size_t bytes, cudaMemoryAdvise advice, int device) {
  return sim::api("cudaMemAdvise", [&](sim::runtime& r, sim::held_lock&) {
    bool const ignores_device = advice == cudaMemAdviseSetReadMostly || advice == cudaMemAdviseUnsetReadMostly ||
                                advice == cudaMemAdviseUnsetPreferredLocation;
    sim::managed_hints* const hints = sim::find_hints(r, p, bytes);
    if (hints == nullptr) return cudaErrorInvalidValue;
    if (advice < cudaMemAdviseSetReadMostly || advice > cudaMemAdviseUnsetAccessedBy) return cudaErrorInvalidValue;
    if (!ignores_device && (device < cudaCpuDeviceId || device >= r.device_count)) return cudaErrorInvalidDevice;
    auto const first = reinterpret_cast<std::uintptr_t>(p);
    hints->change(first, first + bytes, [=](sim::managed_hint& hint) { take_advice(hint, advice, device); });
    return cudaSuccess;
  });
}

// What all of a range has in common; a device that not all of it has is none.
class range_question {
 public:
  range_question(sim::managed_hints& hints, void const* p, std::size_t bytes)
      : hints_(hints), first_(reinterpret_cast<std::uintptr_t>(p)), last_(first_ + bytes) {}

  bool read_mostly() const {
    return all([](sim::managed_hint const& hint) { return hint.read_mostly; });
  }
  int device(int sim::managed_hint::*member) const {
    int common = cudaInvalidDeviceId;
    hints_.change(first_, first_ + 1, [&](sim::managed_hint const& hint) { common = hint.*member; });
    return all([=](sim::managed_hint const& hint) { return hint.*member == common; }) ? common : cudaInvalidDeviceId;
  }
  bool accessed_by(int device) const {
    unsigned const bit = sim::managed_hint::bit_of(device);
    return all([=](sim::managed_hint const& hint) { return (hint.accessed_by & bit) != 0; });
  }

 private:
  template <class Holds>
  bool all(Holds holds) const {
    return hints_.all_of(first_, last_, holds);
  }

  sim::managed_hints& hints_;
  std::uintptr_t first_, last_;
};

}  // namespace

extern "C" {

// The attributes for locations of other kinds, such as NUMA nodes, are not modelled.
cudaError_t CUDARTAPI cudaMemRangeGetAttribute(void* data, size_t size, cudaMemRangeAttribute attribute, void const* p,
                                               size_t bytes) {
  return sim::api("cudaMemRangeGetAttribute", [&](sim::runtime& r, sim::held_lock&) {
    sim::managed_hints* const hints = sim::find_hints(r, p, bytes);
    bool const is_list = attribute == cudaMemRangeAttributeAccessedBy;
    bool const fits = is_list ? size != 0 && size % sizeof(int) == 0 : size == sizeof(int);
    if (hints == nullptr || data == nullptr || !fits) return cudaErrorInvalidValue;
    auto* const answer = static_cast<int*>(data);
    range_question const range(*hints, p, bytes);
    switch (attribute) {
      case cudaMemRangeAttributeReadMostly:
        *answer = range.read_mostly() ? 1 : 0;
        return cudaSuccess;
      case cudaMemRangeAttributePreferredLocation:
        *answer = range.device(&sim::managed_hint::preferred);
        return cudaSuccess;
      case cudaMemRangeAttributeLastPrefetchLocation:
        *answer = range.device(&sim::managed_hint::last_prefetch);
        return cudaSuccess;
      case cudaMemRangeAttributeAccessedBy: {
        std::size_t const places = size / sizeof(int);
        std::fill_n(answer, places, cudaInvalidDeviceId);
        std::size_t found = 0;
        for (int device = cudaCpuDeviceId; device < r.device_count && found < places; ++device)
          if (range.accessed_by(device)) answer[found++] = device;
        return cudaSuccess;
      }
      default:
        return cudaErrorNotSupported;
    }
  });
}

#if CUDART_VERSION >= 13000
cudaError_t CUDARTAPI cudaMemAdvise(void const* p, size_t bytes, cudaMemoryAdvise advice, cudaMemLocation location) {
  return advise(p, bytes, advice, sim::device_at(location));
}
#else
cudaError_t CUDARTAPI cudaMemAdvise(void const* p, size_t bytes, cudaMemoryAdvise advice, int device) {
  return advise(p, bytes, advice, device);
}

// Toolkit 12 has the form of 13 under this name.
cudaError_t CUDARTAPI cudaMemAdvise_v2(void const* p, size_t bytes, cudaMemoryAdvise advice, cudaMemLocation location) {
  return advise(p, bytes, advice, sim::device_at(location));
}
#endif

}  // extern "C"
