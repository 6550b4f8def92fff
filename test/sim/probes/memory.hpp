#pragma once
// Probes: memory that is not stream-ordered. Answers are in the comments of cuda_runtime_api.h, unless named.

#include "probe.hpp"

#include <cstdint>
#include <vector>

namespace probes {

inline cudaPointerAttributes attributes_of(verdict& v, void const* p) {
  cudaPointerAttributes found{};
  v.ok("cudaPointerGetAttributes", cudaPointerGetAttributes(&found, p));
  return found;
}

// Programming guide: memory of the allocation functions "is always aligned to at least 256 bytes".
inline void device_memory_is_aligned(verdict& v) {
  for (std::size_t const bytes : {std::size_t{1}, std::size_t{3}, std::size_t{257}, 100 * std::size_t{1000}}) {
    void* p = nullptr;
    v.ok("cudaMalloc", cudaMalloc(&p, bytes));
    v.equal("address mod 256", reinterpret_cast<std::uintptr_t>(p) % 256, std::uintptr_t{0});
    v.ok("cudaFree", cudaFree(p));
  }
}

// Not documented but relied on everywhere: success and no memory (the driver's call would fail). For cudaMallocManaged
// the comment says "If size is 0, cudaMallocManaged returns cudaErrorInvalidValue", and driver 580 on an H100 succeeds.
inline void no_bytes_are_no_memory(verdict& v) {
  void* p = nullptr;
  v.ok("cudaMalloc", cudaMalloc(&p, 0));
  v.yes("null", p == nullptr);
  v.ok("cudaMallocHost", cudaMallocHost(&p, 0));
  v.yes("null", p == nullptr);
  v.ok("cudaMallocManaged", cudaMallocManaged(&p, 0, cudaMemAttachGlobal));
}

// cudaFree: "If devPtr is 0, no operation is performed." For cudaFreeHost so seen on GPUs (lupine, pull request 858).
inline void freeing_nothing_does_nothing(verdict& v) {
  v.ok("cudaFree", cudaFree(nullptr));
  v.ok("cudaFreeHost", cudaFreeHost(nullptr));
  v.ok("last error", cudaGetLastError());
}

// cudaFree: "If cudaFree(devPtr) has already been called before, an error is returned."
inline void memory_is_freed_once(verdict& v) {
  void* p = nullptr;
  v.ok("cudaMalloc", cudaMalloc(&p, 4 << 20));
  v.ok("cudaFree", cudaFree(p));
  v.fails("cudaFree again", cudaFree(p));
  v.ok("cudaMallocHost", cudaMallocHost(&p, 4 << 20));
  v.ok("cudaFreeHost", cudaFreeHost(p));
  v.fails("cudaFreeHost again", cudaFreeHost(p));
}

// cudaFree: devPtr "must have been returned by a previous call" of cudaMalloc and its like; cudaFreeHost alike.
inline void memory_is_freed_by_the_right_call(verdict& v) {
  void* device = nullptr;
  void* pinned = nullptr;
  int on_the_stack = 0;
  v.ok("cudaMalloc", cudaMalloc(&device, 4 << 20));
  v.ok("cudaMallocHost", cudaMallocHost(&pinned, 4 << 20));
  v.fails("cudaFree of pinned memory", cudaFree(pinned));
  v.fails("cudaFreeHost of device memory", cudaFreeHost(device));
  v.fails("cudaFree of the stack", cudaFree(&on_the_stack));
  v.fails("cudaFreeHost of the stack", cudaFreeHost(&on_the_stack));
  v.fails("cudaFree of an address within", cudaFree(static_cast<char*>(device) + 256));
  v.ok("cudaFree", cudaFree(device));
  v.ok("cudaFreeHost", cudaFreeHost(pinned));
}

inline void allocation_flags_are_checked(verdict& v) {
  void* p = nullptr;
  v.code("cudaMallocManaged", cudaMallocManaged(&p, 1, 77), cudaErrorInvalidValue);
  v.code("cudaHostAlloc", cudaHostAlloc(&p, 1, 0x80), cudaErrorInvalidValue);
}

inline void free_memory_is_part_of_the_total(verdict& v) {
  std::size_t free = 1, total = 0;
  v.ok("cudaMemGetInfo", cudaMemGetInfo(&free, &total));
  v.yes("there is memory", total > 0);
  v.yes("no more is free", free <= total);
}

// The fields as the comment of cudaPointerGetAttributes has them.
inline void device_pointers_are_known(verdict& v) {
  void* p = nullptr;
  v.ok("cudaMalloc", cudaMalloc(&p, 1000));
  auto* const within = static_cast<char*>(p) + 999;
  cudaPointerAttributes const found = attributes_of(v, within);
  v.equal<int>("type", found.type, cudaMemoryTypeDevice);
  v.equal("device", found.device, 0);
  v.yes("device pointer", found.devicePointer == within);
  v.yes("no host pointer", found.hostPointer == nullptr);
  v.ok("cudaFree", cudaFree(p));
}

inline void pinned_pointers_are_known(verdict& v) {
  void* p = nullptr;
  v.ok("cudaMallocHost", cudaMallocHost(&p, 1000));
  cudaPointerAttributes const found = attributes_of(v, p);
  v.equal<int>("type", found.type, cudaMemoryTypeHost);
  v.equal("device", found.device, 0);
  v.yes("device pointer", found.devicePointer == p);
  v.yes("host pointer", found.hostPointer == p);
  v.ok("cudaFreeHost", cudaFreeHost(p));
}

inline void managed_pointers_are_known(verdict& v) {
  void* p = nullptr;
  v.ok("cudaMallocManaged", cudaMallocManaged(&p, 1000, cudaMemAttachGlobal));
  cudaPointerAttributes const found = attributes_of(v, p);
  v.equal<int>("type", found.type, cudaMemoryTypeManaged);
  v.yes("device pointer", found.devicePointer == p);
  v.yes("host pointer", found.hostPointer == p);
  v.ok("cudaFree", cudaFree(p));
}

// "A 32-bit integer ... The value returned will be ...": the documentation of cudaMemRangeGetAttribute. Advice that is
// for no device takes any.
inline void managed_ranges_say_what_was_advised(verdict& v) {
  void* p = nullptr;
  v.ok("cudaMallocManaged", cudaMallocManaged(&p, 1 << 21, cudaMemAttachGlobal));
  auto const ask = [&](cudaMemRangeAttribute what) {
    int answer = 77;
    v.ok("cudaMemRangeGetAttribute", cudaMemRangeGetAttribute(&answer, sizeof answer, what, p, 1 << 21));
    return answer;
  };
  v.equal("read mostly at first", ask(cudaMemRangeAttributeReadMostly), 0);
  v.equal("preferred location at first", ask(cudaMemRangeAttributePreferredLocation), int{cudaInvalidDeviceId});
  v.equal("last prefetch at first", ask(cudaMemRangeAttributeLastPrefetchLocation), int{cudaInvalidDeviceId});
#if CUDART_VERSION >= 13000
  cudaMemLocation const here{cudaMemLocationTypeDevice, 0};
#else
  int const here = 0;
#endif
  v.ok("cudaMemAdvise", cudaMemAdvise(p, 1 << 21, cudaMemAdviseSetReadMostly, here));
  v.ok("cudaMemAdvise", cudaMemAdvise(p, 1 << 21, cudaMemAdviseSetPreferredLocation, here));
  v.equal("read mostly", ask(cudaMemRangeAttributeReadMostly), 1);
  v.equal("preferred location", ask(cudaMemRangeAttributePreferredLocation), 0);
  int answer = 0;
  v.code("an answer of another size", cudaMemRangeGetAttribute(&answer, 2, cudaMemRangeAttributeReadMostly, p, 1 << 21),
         cudaErrorInvalidValue);
  v.code("no bytes", cudaMemRangeGetAttribute(&answer, sizeof answer, cudaMemRangeAttributeReadMostly, p, 0),
         cudaErrorInvalidValue);
  v.ok("cudaFree", cudaFree(p));
}

// "In CUDA 11.0 forward passing host pointer will return cudaMemoryTypeUnregistered ... and call will return success."
inline void other_pointers_are_unregistered(verdict& v) {
  std::vector<char> memory(100);
  v.equal<int>("the heap's type", attributes_of(v, memory.data()).type, cudaMemoryTypeUnregistered);
  v.equal<int>("null's type", attributes_of(v, nullptr).type, cudaMemoryTypeUnregistered);
}

// cudaErrorHostMemoryAlreadyRegistered, cudaErrorHostMemoryNotRegistered: their comments in driver_types.h. Null: so
// seen on GPUs (lupine, pull request 858).
inline void host_memory_is_registered_once(verdict& v) {
  constexpr std::size_t page = 4096;
  std::vector<char> memory(3 * page);
  char* const p = memory.data() + (page - reinterpret_cast<std::uintptr_t>(memory.data()) % page);
  v.code("unregister", cudaHostUnregister(p), {cudaErrorHostMemoryNotRegistered, cudaErrorInvalidValue});
  v.ok("register", cudaHostRegister(p, page, cudaHostRegisterDefault));
  v.equal<int>("type", attributes_of(v, p + 1).type, cudaMemoryTypeHost);
  v.code("again", cudaHostRegister(p, page, cudaHostRegisterDefault), cudaErrorHostMemoryAlreadyRegistered);
  v.ok("unregister", cudaHostUnregister(p));
  v.equal<int>("type", attributes_of(v, p).type, cudaMemoryTypeUnregistered);
  v.code("unregister again", cudaHostUnregister(p), {cudaErrorHostMemoryNotRegistered, cudaErrorInvalidValue});
  v.code("null", cudaHostUnregister(nullptr), cudaErrorInvalidValue);
  v.code("no bytes", cudaHostRegister(p, 0, cudaHostRegisterDefault), cudaErrorInvalidValue);
}

// cudaHostGetFlags "will fail if the input pointer does not reside in an address range allocated by cudaHostAlloc()".
inline void pinned_memory_has_a_device_pointer_and_flags(verdict& v) {
  void* p = nullptr;
  v.ok("cudaHostAlloc", cudaHostAlloc(&p, 100, cudaHostAllocPortable | cudaHostAllocMapped));
  void* on_device = nullptr;
  v.ok("device pointer", cudaHostGetDevicePointer(&on_device, p, 0));
  v.yes("one address space", on_device == p);
  unsigned flags = 0;
  v.ok("flags", cudaHostGetFlags(&flags, p));
  v.equal("what was asked for", flags & (cudaHostAllocPortable | cudaHostAllocMapped),
          unsigned{cudaHostAllocPortable | cudaHostAllocMapped});
  v.ok("cudaFreeHost", cudaFreeHost(p));
  int on_the_stack = 0;
  v.code("device pointer of the stack", cudaHostGetDevicePointer(&on_device, &on_the_stack, 0), cudaErrorInvalidValue);
  v.code("flags of the stack", cudaHostGetFlags(&flags, &on_the_stack), cudaErrorInvalidValue);
}

// API synchronization behavior: "For transfers from device to either pageable or pinned host memory, the function
// returns only once the copy has completed"; in the legacy stream, so after the blocking ones.
inline void copy_to_the_host_is_complete(verdict& v) {
  stream const blocking(cudaStreamDefault);
  void* p = nullptr;
  v.ok("cudaMalloc", cudaMalloc(&p, 1));
  v.ok("set", cudaMemsetAsync(p, 'a', 1, blocking));
  char found = 0;
  v.ok("copy", cudaMemcpy(&found, p, 1, cudaMemcpyDeviceToHost));
  v.equal("the byte", int{found}, int{'a'});
  v.ok("cudaFree", cudaFree(p));
}

// "... once the pageable buffer has been copied to the staging memory."
inline void copy_from_pageable_memory_has_its_bytes(verdict& v) {
  void* p = nullptr;
  v.ok("cudaMalloc", cudaMalloc(&p, 1));
  char byte = 'a';
  v.ok("copy", cudaMemcpy(p, &byte, 1, cudaMemcpyHostToDevice));
  byte = 'b';
  v.ok("copy back", cudaMemcpy(&byte, p, 1, cudaMemcpyDeviceToHost));
  v.equal("the byte", int{byte}, int{'a'});
  v.ok("cudaFree", cudaFree(p));
}

// "For transfers from device memory to device memory, no host-side synchronization is performed."
inline void copy_on_the_device_does_not_wait(verdict& v) {
  void *p = nullptr, *q = nullptr;
  v.ok("cudaMalloc", cudaMalloc(&p, 1));
  v.ok("cudaMalloc", cudaMalloc(&q, 1));
  v.ok("cudaDeviceSynchronize", cudaDeviceSynchronize());
  gate g(v, cudaStreamLegacy);
  v.ok("copy", cudaMemcpy(q, p, 1, cudaMemcpyDeviceToDevice));
  v.ok("set", cudaMemset(q, 0, 1));  // "asynchronous ... except when the target memory is pinned host memory"
  v.code("the legacy stream", cudaStreamQuery(cudaStreamLegacy), cudaErrorNotReady);
  g.open();
  v.ok("cudaFree", cudaFree(p));
  v.ok("cudaFree", cudaFree(q));
}

inline void copies_between_pinned_and_device_memory_do_not_wait(verdict& v) {
  stream const s;
  flag f;
  gate g(v, s);
  v.ok("work", f.raise(s));
  v.ok("copy", f.look(s));
  v.no("done", f.was_up());
  g.open();
  v.ok("synchronise", cudaStreamSynchronize(s));
  v.yes("done", f.was_up());
}

inline void copies_need_a_direction(verdict& v) {
  void* p = nullptr;
  char byte = 0;
  v.ok("cudaMalloc", cudaMalloc(&p, 1));
  v.code("unknown", cudaMemcpy(p, &byte, 1, static_cast<cudaMemcpyKind>(7)), cudaErrorInvalidMemcpyDirection);
  v.ok("guessed", cudaMemcpy(p, &byte, 1, cudaMemcpyDefault));
  v.ok("no bytes", cudaMemcpy(p, &byte, 0, cudaMemcpyHostToDevice));
  v.ok("no bytes to set", cudaMemset(p, 0, 0));
  v.ok("cudaFree", cudaFree(p));
}

// "width must not exceed either dpitch or spitch"; cudaErrorInvalidPitchValue.
inline void rows_fit_their_pitch(verdict& v) {
  void* p = nullptr;
  std::size_t pitch = 0;
  char text[200] = {};
  v.ok("cudaMallocPitch", cudaMallocPitch(&p, &pitch, 100, 2));
  v.yes("the pitch is enough", pitch >= 100);
  v.ok("copy", cudaMemcpy2D(p, pitch, text, 100, 100, 2, cudaMemcpyHostToDevice));
  v.code("too wide", cudaMemcpy2D(p, 99, text, 100, 100, 2, cudaMemcpyHostToDevice), cudaErrorInvalidPitchValue);
  v.code("too wide", cudaMemcpy2D(p, pitch, text, 99, 100, 2, cudaMemcpyHostToDevice), cudaErrorInvalidPitchValue);
  v.ok("set", cudaMemset2D(p, pitch, 1, 100, 2));
  v.ok("cudaFree", cudaFree(p));
}

inline cudaMemcpy3DParms slices(cudaPitchedPtr to, cudaPitchedPtr from, cudaExtent extent, cudaMemcpyKind kind) {
  cudaMemcpy3DParms asked{};
  asked.dstPtr = to;
  asked.srcPtr = from;
  asked.extent = extent;
  asked.kind = kind;
  return asked;
}

// "Passing more than one non-zero source or destination will cause cudaMemcpy3D() to return an error"; "the source
// object must entirely contain the region defined by srcPos and extent".
inline void slices_fit_their_memory(verdict& v) {
  cudaPitchedPtr cube{};
  cudaExtent const size{100, 3, 2};
  v.ok("cudaMalloc3D", cudaMalloc3D(&cube, size));
  v.yes("the pitch is enough", cube.pitch >= 100);
  v.equal("the width that was asked for", cube.xsize, std::size_t{100});
  v.equal("the height that was asked for", cube.ysize, std::size_t{3});
  v.ok("set", cudaMemset3D(cube, 'a', size));
  v.ok("set a part", cudaMemset3D(cube, 'b', {50, 1, 2}));
  std::vector<char> host(100 * 3 * 2);
  cudaPitchedPtr const packed{host.data(), 100, 100, 3};
  auto const read = slices(packed, cube, size, cudaMemcpyDeviceToHost);
  v.ok("copy", cudaMemcpy3D(&read));
  v.equal("the first slice's first row", int{host[0]}, int{'b'});
  v.equal("its end", int{host[50]}, int{'a'});
  v.equal("the second slice's first row", int{host[300]}, int{'b'});
  v.equal("the last byte", int{host[599]}, int{'a'});

  auto wrong = read;
  wrong.dstPtr.pitch = 99;
  v.code("too wide", cudaMemcpy3D(&wrong), {cudaErrorInvalidPitchValue, cudaErrorInvalidValue});
  wrong = read;
  wrong.srcPtr.ysize = 2;
  v.fails("slices that overlap", cudaMemcpy3D(&wrong));
  wrong = read;
  wrong.srcPtr.ptr = nullptr;
  v.fails("no source", cudaMemcpy3D(&wrong));
  auto flat = slices({host.data(), 100, 0, 0}, {cube.ptr, cube.pitch, 0, 0}, {100, 3, 1}, cudaMemcpyDeviceToHost);
  v.ok("one slice has no need of a height", cudaMemcpy3D(&flat));
  v.ok("cudaFree", cudaFree(cube.ptr));
}

inline void copies_of_slices_begin_at_their_places(verdict& v) {
  cudaPitchedPtr cube{};
  v.ok("cudaMalloc3D", cudaMalloc3D(&cube, {4, 2, 2}));
  v.ok("set", cudaMemset3D(cube, '.', {4, 2, 2}));
  char text[] = "ab";
  auto asked = slices(cube, {text, 2, 2, 1}, {1, 1, 1}, cudaMemcpyHostToDevice);
  asked.srcPos = {1, 0, 0};
  asked.dstPos = {3, 1, 1};
  v.ok("copy", cudaMemcpy3D(&asked));
  char found = 0;
  v.ok("read", cudaMemcpy(&found, static_cast<char*>(cube.ptr) + 3 * cube.pitch + 3, 1, cudaMemcpyDeviceToHost));
  v.equal("the byte", int{found}, int{'b'});
  v.ok("cudaFree", cudaFree(cube.ptr));
}

// The comments of the three calls. A device is no peer of its own: which error that is, an H100 with driver 580 said.
inline void device_is_no_peer_of_itself(verdict& v) {
  int can = -1;
  v.ok("cudaDeviceCanAccessPeer", cudaDeviceCanAccessPeer(&can, 0, 0));
  v.equal("itself", can, 0);
  v.code("enable", cudaDeviceEnablePeerAccess(0, 0), cudaErrorPeerAccessUnsupported);
  v.code("no such device", cudaDeviceEnablePeerAccess(1000, 0), cudaErrorInvalidDevice);
}

inline void peer_access_is_enabled_once(verdict& v) {
  int can = 0;
  v.ok("cudaDeviceCanAccessPeer", cudaDeviceCanAccessPeer(&can, 0, 1));
  v.code("disable", cudaDeviceDisablePeerAccess(1), cudaErrorPeerAccessNotEnabled);
  if (can == 0) {
    v.code("enable", cudaDeviceEnablePeerAccess(1, 0), {cudaErrorInvalidDevice, cudaErrorPeerAccessUnsupported});
    return;
  }
  v.code("flags", cudaDeviceEnablePeerAccess(1, 1), cudaErrorInvalidValue);
  v.ok("enable", cudaDeviceEnablePeerAccess(1, 0));
  v.code("again", cudaDeviceEnablePeerAccess(1, 0), cudaErrorPeerAccessAlreadyEnabled);
  v.ok("disable", cudaDeviceDisablePeerAccess(1));
}

inline void peers_copy_without_access(verdict& v) {
  char* p[2] = {};
  for (int device = 0; device < 2; ++device) {
    v.ok("cudaSetDevice", cudaSetDevice(device));
    void* found = nullptr;
    v.ok("cudaMalloc", cudaMalloc(&found, 1));
    v.ok("set", cudaMemset(found, 'a' + device, 1));
    p[device] = static_cast<char*>(found);
  }
  v.ok("cudaSetDevice", cudaSetDevice(0));
  v.ok("cudaMemcpyPeer", cudaMemcpyPeer(p[0], 0, p[1], 1, 1));
  char found = 0;
  v.ok("read", cudaMemcpy(&found, p[0], 1, cudaMemcpyDeviceToHost));
  v.equal("the byte", int{found}, int{'b'});
  v.ok("cudaFree", cudaFree(p[0]));
  v.ok("cudaFree", cudaFree(p[1]));
}

inline constexpr probe memory_probes[] = {
    {"device_memory_is_aligned", needs::nothing, &device_memory_is_aligned},
    {"no_bytes_are_no_memory", needs::nothing, &no_bytes_are_no_memory},
    {"freeing_nothing_does_nothing", needs::nothing, &freeing_nothing_does_nothing},
    {"memory_is_freed_once", needs::nothing, &memory_is_freed_once},
    {"memory_is_freed_by_the_right_call", needs::nothing, &memory_is_freed_by_the_right_call},
    {"allocation_flags_are_checked", needs::nothing, &allocation_flags_are_checked},
    {"free_memory_is_part_of_the_total", needs::nothing, &free_memory_is_part_of_the_total},
    {"device_pointers_are_known", needs::nothing, &device_pointers_are_known},
    {"pinned_pointers_are_known", needs::nothing, &pinned_pointers_are_known},
    {"managed_pointers_are_known", needs::nothing, &managed_pointers_are_known},
    {"managed_ranges_say_what_was_advised", needs::nothing, &managed_ranges_say_what_was_advised},
    {"other_pointers_are_unregistered", needs::nothing, &other_pointers_are_unregistered},
    {"host_memory_is_registered_once", needs::nothing, &host_memory_is_registered_once},
    {"pinned_memory_has_a_device_pointer_and_flags", needs::nothing, &pinned_memory_has_a_device_pointer_and_flags},
    {"copy_to_the_host_is_complete", needs::nothing, &copy_to_the_host_is_complete},
    {"copy_from_pageable_memory_has_its_bytes", needs::nothing, &copy_from_pageable_memory_has_its_bytes},
    {"copy_on_the_device_does_not_wait", needs::pending_work, &copy_on_the_device_does_not_wait},
    {"copies_between_pinned_and_device_memory_do_not_wait", needs::pending_work,
     &copies_between_pinned_and_device_memory_do_not_wait},
    {"copies_need_a_direction", needs::nothing, &copies_need_a_direction},
    {"rows_fit_their_pitch", needs::nothing, &rows_fit_their_pitch},
    {"slices_fit_their_memory", needs::nothing, &slices_fit_their_memory},
    {"copies_of_slices_begin_at_their_places", needs::nothing, &copies_of_slices_begin_at_their_places},
    {"device_is_no_peer_of_itself", needs::nothing, &device_is_no_peer_of_itself},
    {"peer_access_is_enabled_once", needs::two_devices, &peer_access_is_enabled_once},
    {"peers_copy_without_access", needs::two_devices, &peers_copy_without_access},
};

}  // namespace probes
