#include <weir/bridges/nvtx_heaps.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <vector>

using weir::detail::nvtx_heaps;

namespace {

// This program is a tool, linked statically: without one no heap has a handle.
nvtxMemHeapHandle_t register_heap(nvtxDomainHandle_t, nvtxMemHeapDesc_t const* heap) {
  auto const* const range = static_cast<nvtxMemVirtualRangeDesc_t const*>(heap->typeSpecificDesc);
  return reinterpret_cast<nvtxMemHeapHandle_t>(const_cast<void*>(range->ptr));
}
int attach_extension(nvtxExtModuleInfo_t* module) {
  if (module->moduleId == NVTX_EXT_MODULEID_MEM)
    module->segments[0].functionSlots[NVTX3EXT_CBID_nvtxMemHeapRegister] = reinterpret_cast<intptr_t>(&register_heap);
  return 1;
}
/// Before the first call of NVTX, which looks whether it is set.
bool const is_attached = [] {
  InitializeInjectionNvtxExtension_fnptr = &attach_extension;
  return true;
}();

bool is_known(void const* p) { return nvtx_heaps::all().of(p) != NVTX_MEM_HEAP_HANDLE_PROCESS_WIDE; }

}  // namespace

TEST_CASE("a block belongs to the segment that it lies in, from its first byte to its last") {
  REQUIRE(is_attached);
  static std::byte memory[400], other[100];
  std::byte* const segment = memory + 50;
  constexpr std::size_t bytes = 300;
  nvtx_heaps::all().promise();
  CHECK(!is_known(segment));
  nvtx_heaps::all().add(segment, bytes);
  CHECK(is_known(segment));
  CHECK(is_known(segment + bytes - 1));
  CHECK(!is_known(segment + bytes));
  CHECK(!is_known(segment - 1));
  CHECK(nvtx_heaps::all().remove(other) == 0);
  CHECK(is_known(segment));
  CHECK(nvtx_heaps::all().remove(segment) == bytes);
  CHECK(!is_known(segment));
  nvtx_heaps::all().forget_promise();
}

TEST_CASE("a segment at the address of one that went back unseen takes its place") {
  REQUIRE(is_attached);
  static std::byte memory[400];
  for (std::size_t const bytes : {400u, 200u}) {
    nvtx_heaps::all().promise();
    nvtx_heaps::all().add(memory, bytes);
  }
  CHECK(is_known(memory + 199));
  CHECK(!is_known(memory + 200));
  CHECK(nvtx_heaps::all().remove(memory) == 200);
  CHECK(!is_known(memory));
  nvtx_heaps::all().forget_promise();
}

TEST_CASE("promises of several threads at once are all kept") {
  std::vector<std::byte> segments(100);
  for (std::size_t i = 0; i < segments.size(); ++i) nvtx_heaps::all().promise();
  for (std::byte& each : segments) nvtx_heaps::all().add(&each, 1);
  for (std::byte& each : segments) CHECK(is_known(&each));
  nvtx_heaps::all().promise();
  nvtx_heaps::all().forget_promise();
  for (std::byte& each : segments) nvtx_heaps::all().remove(&each);
  for (std::byte& each : segments) CHECK(!is_known(&each));
  for (std::size_t i = 0; i < segments.size(); ++i) nvtx_heaps::all().forget_promise();
}
