#include "model/device_model.hpp"

#include <algorithm>

namespace weir::sim::detail {
namespace {

constexpr std::size_t mib = std::size_t{1} << 20;
constexpr int kib = 1 << 10;

// What a context takes is about what nvidia-smi shows for a process that has allocated nothing yet.
constexpr device_model models[] = {
    {.name = "default",
     .title = "",
     .capacity = 16384 * mib,
     .context_bytes = 0,
     .major = 9,
     .minor = 0,
     .multiprocessors = 8,
     .threads_per_multiprocessor = 2048,
     .blocks_per_multiprocessor = 32,
     .shared_per_multiprocessor = 228 * kib,
     .l2_bytes = 4096 * kib,
     .persisting_l2_bytes = 2560 * kib,
     .clock_khz = 1'000'000,
     .memory_clock_khz = 1'000'000,
     .memory_bus_bits = 512,
     .copy_engines = 2,
     .double_ratio = 2,
     .ecc = false,
     .pci_id = 0},
    {.name = "a100-40g",
     .title = "NVIDIA A100-SXM4-40GB",
     .capacity = 42'405'855'232,
     .context_bytes = 480 * mib,
     .major = 8,
     .minor = 0,
     .multiprocessors = 108,
     .threads_per_multiprocessor = 2048,
     .blocks_per_multiprocessor = 32,
     .shared_per_multiprocessor = 164 * kib,
     .l2_bytes = 40960 * kib,
     .persisting_l2_bytes = 25600 * kib,
     .clock_khz = 1'410'000,
     .memory_clock_khz = 1'215'000,
     .memory_bus_bits = 5120,
     .copy_engines = 3,
     .double_ratio = 2,
     .ecc = true,
     .pci_id = 0x20b0'10de},
    {.name = "a100-80g",
     .title = "NVIDIA A100-SXM4-80GB",
     .capacity = 81251 * mib,
     .context_bytes = 480 * mib,
     .major = 8,
     .minor = 0,
     .multiprocessors = 108,
     .threads_per_multiprocessor = 2048,
     .blocks_per_multiprocessor = 32,
     .shared_per_multiprocessor = 164 * kib,
     .l2_bytes = 40960 * kib,
     .persisting_l2_bytes = 25600 * kib,
     .clock_khz = 1'410'000,
     .memory_clock_khz = 1'593'000,
     .memory_bus_bits = 5120,
     .copy_engines = 3,
     .double_ratio = 2,
     .ecc = true,
     .pci_id = 0x20b2'10de},
    {.name = "h100-80g",
     .title = "NVIDIA H100 80GB HBM3",
     .capacity = 81090 * mib,
     .context_bytes = 560 * mib,
     .major = 9,
     .minor = 0,
     .multiprocessors = 132,
     .threads_per_multiprocessor = 2048,
     .blocks_per_multiprocessor = 32,
     .shared_per_multiprocessor = 228 * kib,
     .l2_bytes = 51200 * kib,
     .persisting_l2_bytes = 32000 * kib,
     .clock_khz = 1'980'000,
     .memory_clock_khz = 2'619'000,
     .memory_bus_bits = 5120,
     .copy_engines = 3,
     .double_ratio = 2,
     .ecc = true,
     .pci_id = 0x2330'10de},
    {.name = "rtx-4090",
     .title = "NVIDIA GeForce RTX 4090",
     .capacity = 24217 * mib,
     .context_bytes = 400 * mib,
     .major = 8,
     .minor = 9,
     .multiprocessors = 128,
     .threads_per_multiprocessor = 1536,
     .blocks_per_multiprocessor = 24,
     .shared_per_multiprocessor = 100 * kib,
     .l2_bytes = 73728 * kib,
     .persisting_l2_bytes = 50688 * kib,
     .clock_khz = 2'520'000,
     .memory_clock_khz = 10'501'000,
     .memory_bus_bits = 384,
     .copy_engines = 2,
     .double_ratio = 64,
     .ecc = false,
     .pci_id = 0x2684'10de},
};

}  // namespace

std::span<device_model const> device_models() { return models; }

device_model const* find_device_model(std::string_view name) {
  auto const* const found =
      std::find_if(std::begin(models), std::end(models), [name](device_model const& m) { return m.name == name; });
  return found == std::end(models) ? nullptr : found;
}

}  // namespace weir::sim::detail
