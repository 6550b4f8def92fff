// Asks the runtime that it is linked with all probes of CUDA's behaviour, prints each difference as a line `probe NAME:
// WHAT: expected X, got Y`, and ends with status 1 if there are any: each is a mistake in the simulated runtime or in
// the probe. Arguments are names of probes: only those. Each probe is asked in a process of its own, since one that
// crashes or spoils the context would end those after it.
#include "../sim/probes/all.hpp"

#include <cuda_runtime_api.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

constexpr int no_gpu = 77, one_device = 78;

/// In a process that has not used CUDA yet: 0, 1 if something differs, or why it was not asked.
int ask_here(probes::probe const& p) {
  int devices = 0;
  if (cudaError_t const code = cudaGetDeviceCount(&devices); code != cudaSuccess || devices == 0) {
    std::printf("skipped: no GPU: %s\n", code != cudaSuccess ? cudaGetErrorString(code) : "none found");
    return no_gpu;
  }
  if (p.what == probes::needs::two_devices && devices < 2) {
    std::printf("probe %s: skipped: there is one device only\n", p.name);
    return one_device;
  }
  auto const differences = probes::ask(p);
  for (std::string const& difference : differences) std::printf("%s\n", difference.c_str());
  return differences.empty() ? 0 : 1;
}

/// The same in a process of its own; -1 if it crashed.
int ask_apart(probes::probe const& p) {
  std::fflush(stdout);
  pid_t const child = fork();
  if (child == 0) {
    int const status = ask_here(p);
    std::fflush(stdout);
    _exit(status);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) {
    std::perror("probes");
    return -1;
  }
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  std::printf("probe %s: crashed by signal %d\n", p.name, WTERMSIG(status));
  return -1;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> const wanted(argv + 1, argv + argc);
  int asked = 0, left_out = 0, differing = 0;
  bool there_is_a_gpu = true;
  probes::for_each([&](probes::probe const& p) {
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), p.name) == wanted.end()) return;
    if (!there_is_a_gpu) return;
    int const answer = ask_apart(p);
    there_is_a_gpu = answer != no_gpu;
    left_out += answer == one_device ? 1 : 0;
    asked += answer != one_device ? 1 : 0;
    differing += answer != one_device && answer != 0 ? 1 : 0;
  });
  if (!there_is_a_gpu) return no_gpu;
  std::printf("%d probes, %d differ, %d skipped\n", asked, differing, left_out);
  return differing == 0 && asked > 0 ? 0 : 1;
}
