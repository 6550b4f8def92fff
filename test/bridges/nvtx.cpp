// What a tool sees: this program is one, linked statically.
#include <weir/bridges/nvtx.hpp>

#include <weir/adaptors/limit.hpp>
#include <weir/adaptors/pool.hpp>
#include <weir/adaptors/tracking.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sources/device.hpp>

#include <doctest/doctest.h>

#include <conformance/facts_rise.hpp>
#include <conformance/resource_laws.hpp>
#include <support/sim_fixture.hpp>
#include <support/test_source.hpp>

#include <atomic>
#include <map>
#include <string>
#include <thread>
#include <vector>

using namespace weir;
using namespace weir::literals;
using weir::test::fresh_world;

namespace {

/// What the tool was told.
struct tool {
  std::vector<std::string> ranges;  // `+decoder 1000` and `-`
  std::map<std::uint64_t, std::string> counters;
  std::map<std::string, std::int64_t> values;
  std::map<void const*, std::size_t> heaps;
  std::map<void const*, std::pair<void const*, std::size_t> > regions;  // in which heap, and bytes
  int calls_of_regions = 0;
};
tool seen;

nvtxDomainHandle_t create_domain(char const*) { return reinterpret_cast<nvtxDomainHandle_t>(&seen); }
int push(nvtxDomainHandle_t, nvtxEventAttributes_t const* event) {
  seen.ranges.push_back("+" + std::string(event->message.ascii) + " " + std::to_string(event->payload.ullValue));
  return 0;
}
int pop(nvtxDomainHandle_t) {
  seen.ranges.push_back("-");
  return 0;
}
std::uint64_t register_counter(nvtxDomainHandle_t, nvtxCounterAttr_t const* counter) {
  std::uint64_t const id = 1000 + seen.counters.size();
  seen.counters[id] = counter->name;
  return id;
}
std::atomic<bool> holds_budget{false}, is_held{false}, goes_on{false};
void sample(nvtxDomainHandle_t, std::uint64_t id, std::int64_t value) {
  std::string const& name = seen.counters.at(id);
  if (name == "charged" && holds_budget.exchange(false)) {
    is_held = true;
    for (int i = 0; i < 10000 && !goes_on; ++i) std::this_thread::yield();  // or the other one waits for this one
  }
  seen.values[name] = value;
}
nvtxMemHeapHandle_t register_heap(nvtxDomainHandle_t, nvtxMemHeapDesc_t const* heap) {
  auto const* const range = static_cast<nvtxMemVirtualRangeDesc_t const*>(heap->typeSpecificDesc);
  seen.heaps[range->ptr] = range->size;
  return reinterpret_cast<nvtxMemHeapHandle_t>(const_cast<void*>(range->ptr));
}
void unregister_heap(nvtxDomainHandle_t, nvtxMemHeapHandle_t heap) { seen.heaps.erase(heap); }
void register_regions(nvtxDomainHandle_t, nvtxMemRegionsRegisterBatch_t const* batch) {
  auto const* const range = static_cast<nvtxMemVirtualRangeDesc_t const*>(batch->regionDescElements);
  ++seen.calls_of_regions;
  seen.regions[range->ptr] = {batch->heap, range->size};
}
void unregister_regions(nvtxDomainHandle_t, nvtxMemRegionsUnregisterBatch_t const* batch) {
  ++seen.calls_of_regions;
  seen.regions.erase(batch->refElements->pointer);
}

template <class F>
intptr_t slot(F* function) {
  return reinterpret_cast<intptr_t>(function);
}
int attach(NvtxGetExportTableFunc_t table_of) {
  auto const* const callbacks = static_cast<NvtxExportTableCallbacks const*>(table_of(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) == 0) return 0;
  *table[NVTX_CBID_CORE2_DomainCreateA] = reinterpret_cast<NvtxFunctionPointer>(&create_domain);
  *table[NVTX_CBID_CORE2_DomainRangePushEx] = reinterpret_cast<NvtxFunctionPointer>(&push);
  *table[NVTX_CBID_CORE2_DomainRangePop] = reinterpret_cast<NvtxFunctionPointer>(&pop);
  return 1;
}
int attach_extension(nvtxExtModuleInfo_t* module) {
  intptr_t* const slots = module->segments[0].functionSlots;
  if (module->moduleId == NVTX_EXT_COUNTERS_MODULEID) {
    slots[NVTX3EXT_CBID_nvtxCounterRegister] = slot(&register_counter);
    slots[NVTX3EXT_CBID_nvtxCounterSampleInt64] = slot(&sample);
  }
  if (module->moduleId == NVTX_EXT_MODULEID_MEM) {
    slots[NVTX3EXT_CBID_nvtxMemHeapRegister] = slot(&register_heap);
    slots[NVTX3EXT_CBID_nvtxMemHeapUnregister] = slot(&unregister_heap);
    slots[NVTX3EXT_CBID_nvtxMemRegionsRegister] = slot(&register_regions);
    slots[NVTX3EXT_CBID_nvtxMemRegionsUnregister] = slot(&unregister_regions);
  }
  return 1;
}

/// Before the first call of NVTX, which looks whether these are set.
bool const is_attached = [] {
  InitializeInjectionNvtx2_fnptr = &attach;
  InitializeInjectionNvtxExtension_fnptr = &attach_extension;
  return true;
}();

}  // namespace

TEST_CASE_FIXTURE(fresh_world, "allocations and frees are ranges, named by tag") {
  REQUIRE(is_attached);
  stream const s;
  auto memory = make(device{} | nvtx{.counters = false});
  seen = {};
  void* p = nullptr;
  {
    tag const scope{"decoder"};
    p = memory.allocate(s, 1000);
  }
  memory.deallocate(s, p, 1000);
  CHECK_THROWS_AS(static_cast<void>(memory.allocate(s, std::size_t{1} << 50)), out_of_memory);
  CHECK(seen.ranges ==
        std::vector<std::string>{"+decoder 1000", "-", "+(untagged) 1000", "-", "+(untagged) 1125899906842624", "-"});
  CHECK(seen.counters.empty());
}

TEST_CASE_FIXTURE(fresh_world, "live bytes by tag are counters, and so is the budget right below") {
  stream const s;
  seen = {};
  auto memory =
      make(device{} | pool{} | limit{.max_bytes = 8_MiB, .name = "search"} | nvtx{.ranges = false, .name = "app"});
  void *p = nullptr, *q = nullptr;
  {
    tag const scope{"decoder"};
    p = memory.allocate(s, 1000);
    q = memory.allocate(s, 3000);
  }
  CHECK(seen.values == std::map<std::string, std::int64_t>{{"app: decoder", 4000}, {"search: charged", 4096}});
  CHECK_THROWS_AS(static_cast<void>(memory.allocate(s, 16_MiB)), out_of_memory);
  memory.deallocate(s, p, 1000);  // counts for the tag that it was allocated under
  CHECK(seen.values["app: decoder"] == 3000);
  CHECK(seen.values["search: charged"] == 3072);
  memory.deallocate(s, q, 3000);
  CHECK(seen.values["app: decoder"] == 0);
  CHECK(seen.ranges.empty());
}

TEST_CASE_FIXTURE(fresh_world, "the counter of a budget without a name has the layer's name, or none") {
  auto const counter_of = [](nvtx const& options) {
    seen = {};
    auto memory = make(device{} | limit{8_MiB} | options);
    return seen.counters.begin()->second;
  };
  CHECK(counter_of({.name = "app"}) == "app: charged");
  CHECK(counter_of({}) == "charged");
}

TEST_CASE_FIXTURE(fresh_world, "a budget that two threads change is shown as the last one left it") {
  seen = {};
  auto memory = make(device{} | limit{8_MiB} | nvtx{.ranges = false});
  void* const p = memory.allocate(host_order, 1_MiB);
  void* const q = memory.allocate(host_order, 2_MiB);
  is_held = goes_on = false;
  holds_budget = true;
  std::thread other([&] {
    while (!is_held) std::this_thread::yield();
    memory.deallocate(host_order, q, 2_MiB);
    goes_on = true;
  });
  memory.deallocate(host_order, p, 1_MiB);
  other.join();
  CHECK(seen.values.at("charged") == 0);
}

TEST_CASE_FIXTURE(fresh_world, "a pool's segments are heaps, and its blocks are what may be used of them") {
  stream const s;
  seen = {};
  {
    auto memory = make(device{} | nvtx{.ranges = false, .counters = false, .segments = true} |
                       pool{.growth_bytes = 2_MiB} | nvtx{.ranges = false, .counters = false, .blocks = true});
    void* const p = memory.allocate(s, 1000);
    REQUIRE(seen.heaps.size() == 1);
    CHECK(seen.heaps.begin()->second == 2_MiB);
    CHECK(seen.regions ==
          std::map<void const*, std::pair<void const*, std::size_t> >{{p, {seen.heaps.begin()->first, 1000}}});
    void* const large = memory.allocate(s, 4_MiB);
    CHECK(seen.heaps.size() == 2);
    CHECK(seen.regions.at(large).first == large);
    memory.deallocate(s, p, 1000);
    memory.deallocate(s, large, 4_MiB);
    CHECK(seen.regions.empty());
    CHECK(seen.heaps.size() == 2);
  }
  CHECK(seen.heaps.empty());
}

TEST_CASE_FIXTURE(fresh_world,
                  "a free that a layer below reports as wrong, and ignores, changes nothing that is shown") {
  weir::test::caught_misuse const misuse;
  stream const s;
  auto memory = make(device{} | tracking{} | nvtx{.counters = false, .segments = true} | pool{.growth_bytes = 2_MiB} |
                     nvtx{.blocks = true});
  seen = {};
  void* const p = memory.allocate(s, 1000);
  auto const before = seen.regions;
  CHECK(before.at(p).second == 1000);
  memory.deallocate(s, p, 5000);
  CHECK(misuse.count() == 1);
  CHECK(seen.values["(untagged)"] == 1000);
  CHECK(seen.regions == before);
  void* const segment = const_cast<void*>(before.at(p).first);
  find<pool_resource>(memory).upstream().deallocate(s, segment, 1_MiB);
  CHECK(misuse.count() == 2);
  CHECK(seen.heaps == std::map<void const*, std::size_t>{{segment, 2_MiB}});
  memory.deallocate(s, p, 1000);
  memory.deallocate(s, p, 1000);
  CHECK(misuse.count() == 3);
  CHECK(seen.values["(untagged)"] == 0);
  CHECK(seen.regions.empty());
}

TEST_CASE_FIXTURE(fresh_world, "a free that was ignored leaves no block hidden where nothing is counted, either") {
  weir::test::caught_misuse const misuse;
  stream const s;
  auto memory = make(device{} | pool{} | nvtx{.ranges = false, .counters = false, .blocks = true});
  seen = {};
  void* const p = memory.allocate(s, 1000);
  memory.deallocate(s, p, 5000);
  CHECK(misuse.count() == 1);
  CHECK(seen.regions.at(p).second == 1000);
  memory.deallocate(s, p, 1000);
  CHECK(seen.regions.empty());
  CHECK(seen.values.empty());
}

TEST_CASE_FIXTURE(fresh_world, "what went back past the layer counts until its address is another block's") {
  stream const s;
  auto memory = make(device{} | pool{} | nvtx{.blocks = true});
  seen = {};
  void* const p = memory.allocate(s, 1000);
  memory.upstream().deallocate(s, p, 1000);
  REQUIRE(memory.allocate(s, 800) == p);
  CHECK(seen.values["(untagged)"] == 800);
  CHECK(seen.regions.at(p).second == 800);
  CHECK(seen.calls_of_regions == 3);  // shown, hidden, and the other shown
  memory.deallocate(s, p, 800);
  CHECK(seen.values["(untagged)"] == 0);
  CHECK(seen.regions.empty());
}

TEST_CASE("wrong options are refused") {
  CHECK(nvtx{.segments = true, .blocks = true}.problem().starts_with("nvtx: segments and blocks are both set"));
  CHECK(nvtx{}.valid());
}

static_assert(laws::facts_rise<nvtx>);
TEST_CASE("nvtx keeps the laws") {
  laws::check_resource(device{} | nvtx{.segments = true} | pool{} | limit{.max_bytes = 60_MiB} | nvtx{.blocks = true});
}
