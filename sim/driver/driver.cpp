// libcuda.so.1 of the simulated device, for programs that are already built: every function of cuda.h is there under
// its name, jumps to what the simulated runtime has, and where it has none, answers CUDA_ERROR_NOT_SUPPORTED. Which
// functions there are is read from cuda.h when the build is configured (driver_functions.inc).

#include "api/driver_lookup.hpp"

#include <cuda_runtime_api.h>

#include <cstddef>
#include <iterator>
#include <string_view>

namespace {

struct function {
  char const* name;  // as people ask for it
  unsigned version;  // of CUDA: it has this form, or an older one
  bool per_thread;   // which default stream handle 0 is
};

constexpr function functions[] = {
#define WEIR_FUNCTION(index, symbol, name, version, per_thread) {#name, version, per_thread},
#include <driver_functions.inc>
#undef WEIR_FUNCTION
};

constexpr int not_supported = 801;

int refuse() { return not_supported; }

// The driver's own look-up, which programs of today use in place of the loader's.
int get_proc_address(char const* symbol, void** function, int version, unsigned long long flags, int* result) {
  auto found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  // A newer toolkit's functions have their older form here.
  auto const newest = static_cast<unsigned>(version > CUDART_VERSION ? CUDART_VERSION : version);
  cudaError_t const code = cudaGetDriverEntryPointByVersion(symbol, function, newest, flags, &found);
#else
  static_cast<void>(version);
  cudaError_t const code = cudaGetDriverEntryPoint(symbol, function, flags, &found);
#endif
  static_cast<void>(cudaGetLastError());
  if (result != nullptr) *result = found;
  if (code != cudaSuccess) return code;
  return found == cudaDriverEntryPointSymbolNotFound ? 500 : 0;  // CUDA_ERROR_NOT_FOUND
}

int get_proc_address_of_11(char const* symbol, void** function, int version, unsigned long long flags) {
  return get_proc_address(symbol, function, version, flags, nullptr);
}

void* address_of(function const& f) {
  std::string_view const name = f.name;
  if (name == "cuGetProcAddress") {
    bool const newest = f.version >= 12000;
    return newest ? reinterpret_cast<void*>(&get_proc_address) : reinterpret_cast<void*>(&get_proc_address_of_11);
  }
  void* const found = weir::sim::detail::driver_function_of(name, f.version, f.per_thread);
  return found != nullptr ? found : reinterpret_cast<void*>(&refuse);
}

}  // namespace

// Where each function goes. Its name is for the assembler.
extern "C" {
__attribute__((visibility("hidden"))) void* weir_sim_driver_functions[std::size(functions)];
}

namespace {
[[maybe_unused]] bool const functions_are_found = [] {
  for (std::size_t i = 0; i < std::size(functions); ++i) weir_sim_driver_functions[i] = address_of(functions[i]);
  return true;
}();
}  // namespace

// Arguments of every kind stay where the caller put them.
#define WEIR_TEXT_(x) #x
#define WEIR_TEXT(x) WEIR_TEXT_(x)
#if defined(__x86_64__)
#define WEIR_JUMP(index) "  jmp *weir_sim_driver_functions+8*" WEIR_TEXT(index) "(%rip)\n"
#elif defined(__aarch64__)
#define WEIR_JUMP(index) \
  "  adrp x16, weir_sim_driver_functions+8*" WEIR_TEXT(index) "\n"         \
  "  ldr x16, [x16, #:lo12:weir_sim_driver_functions+8*" WEIR_TEXT(index) "]\n" \
  "  br x16\n"
#else
#error "libcuda.so.1 of the simulated device is written for x86-64 and ARM64"
#endif
#define WEIR_FUNCTION(index, symbol, name, version, per_thread)                                                   \
  asm(".text\n.globl " #symbol "\n.type " #symbol ", %function\n" #symbol ":\n" WEIR_JUMP(index) ".size " #symbol \
                                                                                                 ", .-" #symbol "\n");
#include <driver_functions.inc>
