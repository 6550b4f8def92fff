// Asks the runtime that it is linked with all probes of CUDA's behaviour, prints each difference as a line `probe NAME:
// WHAT: expected X, got Y`, and ends with status 1 if there are any: each is a mistake in the simulated runtime or in
// the probe. Arguments are names of probes: only those.
#include "../sim/probes/all.hpp"

#include <cuda_runtime_api.h>

#include <cstdio>
#include <string>
#include <vector>

int main(int argc, char** argv) {
  int devices = 0;
  if (cudaError_t const code = cudaGetDeviceCount(&devices); code != cudaSuccess || devices == 0) {
    std::printf("skipped: no GPU: %s\n", code != cudaSuccess ? cudaGetErrorString(code) : "none found");
    return 77;
  }
  std::vector<std::string> const wanted(argv + 1, argv + argc);
  int asked = 0, left_out = 0, differing = 0;
  probes::for_each([&](probes::probe const& p) {
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), p.name) == wanted.end()) return;
    if (p.what == probes::needs::two_devices && devices < 2) {
      std::printf("probe %s: skipped: there is one device only\n", p.name);
      ++left_out;
      return;
    }
    auto const differences = probes::ask(p);
    for (std::string const& difference : differences) std::printf("%s\n", difference.c_str());
    std::fflush(stdout);  // the next one may crash
    ++asked;
    if (!differences.empty()) ++differing;
  });
  std::printf("%d probes, %d differ, %d skipped\n", asked, differing, left_out);
  return differing == 0 && asked > 0 ? 0 : 1;
}
