// libnvidia-ml.so.1 of the simulated device: which devices there are, and how much of their memory is used. No header
// of it comes with the toolkit, so the few functions that programs look up are declared here as NVIDIA documents them.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>

namespace {

constexpr int success = 0, invalid_argument = 2, not_supported = 3, not_found = 6, too_small = 7;

// A device's handle is its number and one.
using handle = void*;

int count() {
  int devices = 0;
  return cudaGetDeviceCount(&devices) == cudaSuccess ? devices : 0;
}

int give(int device, handle* to) {
  if (to == nullptr || device < 0 || device >= count()) return invalid_argument;
  *to = reinterpret_cast<handle>(static_cast<std::uintptr_t>(device) + 1);
  return success;
}

bool find(handle of, cudaDeviceProp& properties, int& device) {
  device = static_cast<int>(reinterpret_cast<std::uintptr_t>(of)) - 1;
  return device >= 0 && device < count() && cudaGetDeviceProperties(&properties, device) == cudaSuccess;
}

int copy(char const* text, char* to, unsigned length) {
  if (to == nullptr) return invalid_argument;
  std::size_t const bytes = std::strlen(text) + 1;
  if (bytes > length) return too_small;
  std::memcpy(to, text, bytes);
  return success;
}

struct memory {
  unsigned long long total, free, used;
};
struct memory_v2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};

int read(handle of, memory& found) {
  cudaDeviceProp properties;
  int device = 0, before = 0;
  if (!find(of, properties, device)) return invalid_argument;
  static_cast<void>(cudaGetDevice(&before));
  std::size_t free = 0, total = 0;
  static_cast<void>(cudaSetDevice(device));
  static_cast<void>(cudaMemGetInfo(&free, &total));
  static_cast<void>(cudaSetDevice(before));
  found = {total, free, total - free};
  return success;
}

}  // namespace

// NOLINTBEGIN(readability-identifier-naming): NVIDIA's names
extern "C" {

int nvmlInit() { return success; }
int nvmlInit_v2() { return success; }
int nvmlInitWithFlags(unsigned) { return success; }
int nvmlShutdown() { return success; }

char const* nvmlErrorString(int code) {
  switch (code) {
    case success:
      return "Success";
    case invalid_argument:
      return "Invalid Argument";
    case not_supported:
      return "Not Supported";
    case not_found:
      return "Not Found";
    case too_small:
      return "Insufficient Size";
    default:
      return "Unknown Error";
  }
}

int nvmlSystemGetDriverVersion(char* text, unsigned length) { return copy("weir::sim", text, length); }

int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  return version == nullptr || cudaDriverGetVersion(version) != cudaSuccess ? invalid_argument : success;
}
int nvmlSystemGetCudaDriverVersion(int* version) { return nvmlSystemGetCudaDriverVersion_v2(version); }

int nvmlDeviceGetCount_v2(unsigned* devices) {
  if (devices == nullptr) return invalid_argument;
  *devices = static_cast<unsigned>(count());
  return success;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, handle* device) { return give(static_cast<int>(index), device); }

int nvmlDeviceGetHandleByPciBusId_v2(char const* text, handle* device) {
  int number = 0;
  return text != nullptr && cudaDeviceGetByPCIBusId(&number, text) == cudaSuccess ? give(number, device) : not_found;
}

// "GPU-" and the device's identity in hexadecimal digits; the last two tell the devices apart.
int nvmlDeviceGetUUID(handle of, char* text, unsigned length) {
  cudaDeviceProp properties;
  int device = 0;
  if (!find(of, properties, device)) return invalid_argument;
  char digits[64] = "GPU-";
  std::size_t at = 4;
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) digits[at++] = '-';
    std::snprintf(digits + at, 3, "%02x", static_cast<unsigned char>(properties.uuid.bytes[i]));
    at += 2;
  }
  return copy(digits, text, length);
}

int nvmlDeviceGetHandleByUUID(char const* text, handle* device) {
  unsigned number = 0;
  bool const known = text != nullptr && std::strlen(text) == 40 && std::sscanf(text + 38, "%x", &number) == 1;
  return known ? give(static_cast<int>(number) - 1, device) : not_found;
}

int nvmlDeviceGetName(handle of, char* text, unsigned length) {
  cudaDeviceProp properties;
  int device = 0;
  return find(of, properties, device) ? copy(properties.name, text, length) : invalid_argument;
}

int nvmlDeviceGetMemoryInfo(handle of, memory* found) { return found == nullptr ? invalid_argument : read(of, *found); }

int nvmlDeviceGetMemoryInfo_v2(handle of, memory_v2* found) {
  memory now{};
  if (found == nullptr || read(of, now) != success) return invalid_argument;
  found->total = now.total;
  found->reserved = 0;
  found->free = now.free;
  found->used = now.used;
  return success;
}

int nvmlDeviceGetCudaComputeCapability(handle of, int* major, int* minor) {
  cudaDeviceProp properties;
  int device = 0;
  if (major == nullptr || minor == nullptr || !find(of, properties, device)) return invalid_argument;
  *major = properties.major;
  *minor = properties.minor;
  return success;
}

// Nobody else is on a simulated device.
int nvmlDeviceGetComputeRunningProcesses(handle, unsigned* processes, void*) {
  if (processes == nullptr) return invalid_argument;
  *processes = 0;
  return success;
}
int nvmlDeviceGetComputeRunningProcesses_v2(handle of, unsigned* processes, void* found) {
  return nvmlDeviceGetComputeRunningProcesses(of, processes, found);
}
int nvmlDeviceGetComputeRunningProcesses_v3(handle of, unsigned* processes, void* found) {
  return nvmlDeviceGetComputeRunningProcesses(of, processes, found);
}

// A fabric's state is that there is none: all of the answer is 0 but the version that its caller wrote.
int nvmlDeviceGetGpuFabricInfoV(handle, void* found) {
  constexpr std::size_t version = 4, all = 36;
  if (found == nullptr) return invalid_argument;
  std::memset(static_cast<char*>(found) + version, 0, all - version);
  return success;
}

// What a simulated device has not.
int nvmlDeviceGetNvLinkRemoteDeviceType(handle, unsigned, void*) { return not_supported; }
int nvmlDeviceGetNvLinkRemotePciInfo_v2(handle, unsigned, void*) { return not_supported; }
int nvmlDeviceGetP2PStatus(handle, handle, int, void*) { return not_supported; }
int nvmlDeviceGetUtilizationRates(handle, void*) { return not_supported; }
int nvmlDeviceGetTemperature(handle, int, unsigned*) { return not_supported; }
int nvmlDeviceGetPowerUsage(handle, unsigned*) { return not_supported; }
int nvmlDeviceGetClockInfo(handle, int, unsigned*) { return not_supported; }

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
