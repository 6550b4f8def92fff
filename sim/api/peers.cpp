// Peer access between devices, and copies from one device to another.

#include "api/peers.hpp"

#include "allocations/blocks.hpp"
#include "api/entry.hpp"
#include "checker/checker.hpp"
#include "scheduler/capture.hpp"
#include "scheduler/schedule.hpp"
#include "scheduler/streams.hpp"

namespace weir::sim::detail {
namespace {

bool& access(runtime& r, int from, int to) { return r.device(from).reaches[static_cast<std::size_t>(to)]; }

// Whether the memory lies on the device that the program names; managed and pinned memory lies on all.
bool lies_on(runtime& r, void const* p, std::size_t bytes, int device) {
  range const what = look_up(r, p, bytes);
  if (!what.valid) return true;  // for `submit_copy` to refuse and report
  return what.in != nullptr && (!what.device_only() || what.in->device == device);
}

cudaError_t valid(runtime& r, peer_ends const& ends, rows const& what) {
  if (!r.has_device(ends.to_device) || !r.has_device(ends.from_device)) return cudaErrorInvalidDevice;
  if (what.empty()) return cudaSuccess;
  bool const fits = lies_on(r, ends.to, what.to_bytes(), ends.to_device) &&
                    lies_on(r, ends.from, what.from_bytes(), ends.from_device);
  return fits ? cudaSuccess : cudaErrorInvalidValue;
}

// Orders what `t` gets from now on after what `other` got so far.
void join(runtime& r, held_lock& held, timeline& t, timeline& other) {
  point const end = record(r, held, other, nullptr);
  if (r.check != nullptr) [[unlikely]] {
    event_state between;
    between.number = ++r.event_count;
    r.check->record(other, between);
    r.check->wait(t, between);
  }
  wait_for(r, t, end);
}

}  // namespace

cudaError_t copy_between(runtime& r, held_lock& held, peer_ends const& ends, rows what, cudaStream_t stream) {
  if (find_stream(r, stream) == nullptr) return cudaErrorInvalidResourceHandle;
  if (cudaError_t const code = valid(r, ends, what); code != cudaSuccess) return code;
  return submit_copy(r, held, ends.to, ends.from, what, cudaMemcpyDefault, stream, host_waits::no);
}

cudaError_t copy_serialised(runtime& r, held_lock& held, peer_ends const& ends, rows what, cudaStream_t stream,
                            host_waits waits) {
  if (cudaError_t const code = valid(r, ends, what); code != cudaSuccess || what.empty()) return code;
  if (cudaError_t const no = admit_unsafe(r); no != cudaSuccess) return no;
  timeline* const others[] = {r.device(ends.to_device).legacy, r.device(ends.from_device).legacy};
  for (timeline const* const other : others)
    if (cudaError_t const no = admit_work(r, *other); no != cudaSuccess) return no;
  timeline* here = find_stream(r, stream);
  // Before anything waits for it: other devices' streams are no part of a capture.
  if (cudaError_t const no = admit_wait(r, *here); no != cudaSuccess) return no;
  std::uint64_t const id = here->id;
  for (timeline* const other : others)
    if (other != here) join(r, held, *here, *other);
  cudaError_t const copied = submit_copy(r, held, ends.to, ends.from, what, cudaMemcpyDefault, stream, waits);
  if (copied != cudaSuccess) return copied;
  here = find_timeline(r, id);
  for (timeline* const other : others)
    if (here != nullptr && other != here) join(r, held, *other, *here);
  return copied;
}

}  // namespace weir::sim::detail

namespace sim = weir::sim::detail;

extern "C" {

cudaError_t CUDARTAPI cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  return sim::api("cudaDeviceCanAccessPeer", [&](sim::runtime& r, sim::held_lock&) {
    if (!r.has_device(device) || !r.has_device(peer)) return cudaErrorInvalidDevice;
    if (can == nullptr) return cudaErrorInvalidValue;
    *can = r.can_reach(device, peer) && device != peer;
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaDeviceEnablePeerAccess(int peer, unsigned int flags) {
  return sim::api("cudaDeviceEnablePeerAccess", [&](sim::runtime& r, sim::held_lock&) {
    int const device = sim::this_thread().device;
    if (flags != 0) return cudaErrorInvalidValue;
    if (!r.has_device(peer)) return cudaErrorInvalidDevice;
    if (peer == device || !r.can_reach(device, peer)) return cudaErrorPeerAccessUnsupported;
    if (sim::access(r, device, peer)) return cudaErrorPeerAccessAlreadyEnabled;
    sim::access(r, device, peer) = true;
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaDeviceDisablePeerAccess(int peer) {
  return sim::api("cudaDeviceDisablePeerAccess", [&](sim::runtime& r, sim::held_lock&) {
    int const device = sim::this_thread().device;
    if (!r.has_device(peer)) return cudaErrorInvalidDevice;
    if (!sim::access(r, device, peer)) return cudaErrorPeerAccessNotEnabled;
    sim::access(r, device, peer) = false;
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaDeviceGetP2PAttribute(int* value, cudaDeviceP2PAttr attribute, int from, int to) {
  return sim::api("cudaDeviceGetP2PAttribute", [&](sim::runtime& r, sim::held_lock&) {
    if (!r.has_device(from) || !r.has_device(to) || from == to) return cudaErrorInvalidDevice;
    if (value == nullptr) return cudaErrorInvalidValue;
    switch (attribute) {
      case cudaDevP2PAttrAccessSupported:
        *value = r.can_reach(from, to) ? 1 : 0;
        return cudaSuccess;
      case cudaDevP2PAttrPerformanceRank:
      case cudaDevP2PAttrNativeAtomicSupported:
      case cudaDevP2PAttrCudaArrayAccessSupported:
        *value = 0;
        return cudaSuccess;
      default:
        return cudaErrorInvalidValue;
    }
  });
}

cudaError_t CUDARTAPI cudaMemcpyPeer(void* to, int to_device, void const* from, int from_device, size_t bytes) {
  return sim::api("cudaMemcpyPeer", [&](sim::runtime& r, sim::held_lock& held) {
    return sim::copy_serialised(r, held, {to, to_device, from, from_device}, {bytes}, cudaStreamLegacy,
                                sim::host_waits::no);
  });
}

// Has no per-thread twin: its stream 0 is the legacy one in every file.
cudaError_t CUDARTAPI cudaMemcpyPeerAsync(void* to, int to_device, void const* from, int from_device, size_t bytes,
                                          cudaStream_t stream) {
  return sim::api("cudaMemcpyPeerAsync", [&](sim::runtime& r, sim::held_lock& held) {
    cudaStream_t const in = stream == nullptr ? cudaStreamLegacy : stream;
    return sim::copy_between(r, held, {to, to_device, from, from_device}, {bytes}, in);
  });
}

}  // extern "C"
