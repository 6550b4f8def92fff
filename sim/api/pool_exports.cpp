// Memory pools that are exported by file descriptor, and imported, in the same process: pools for other processes, as
// far as one process can show them.

#include "allocations/blocks.hpp"
#include "api/entry.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

namespace weir::sim::detail {
namespace {

using pool_pointer = std::shared_ptr<pool_state>;

/// What an exported descriptor holds.
struct exported_pool {
  char tag[16];
  pid_t process;
  std::uint64_t number;
};
exported_pool export_of(std::uint64_t number) { return {"weir::sim pool", ::getpid(), number}; }

/// What is behind `cudaMemPoolPtrExportData`.
struct exported_block {
  std::uint64_t pool, block;
  std::uintptr_t address;
};
static_assert(sizeof(exported_block) <= sizeof(cudaMemPoolPtrExportData));

/// A file of memory that has these bytes; -1: there is none to be had.
int descriptor_of(exported_pool const& what) {
  int const descriptor = ::memfd_create("weir::sim pool", MFD_CLOEXEC);
  if (descriptor < 0) return -1;
  if (::pwrite(descriptor, &what, sizeof what, 0) == sizeof what) return descriptor;
  ::close(descriptor);
  return -1;
}

/// Null if the descriptor is none that this process exported, or the pool is gone.
pool_pointer find_exported(runtime& r, int descriptor) {
  exported_pool const expected = export_of(0);
  exported_pool found{};
  bool const is_read = ::pread(descriptor, &found, sizeof found, 0) == sizeof found;
  if (!is_read || std::memcmp(found.tag, expected.tag, sizeof found.tag) != 0 || found.process != expected.process)
    return nullptr;
  auto const at = r.exported_pools.find(found.number);
  pool_pointer pool = at == r.exported_pools.end() ? nullptr : at->second.lock();
  return pool == nullptr || pool->destroyed ? nullptr : pool;
}

}  // namespace
}  // namespace weir::sim::detail

namespace sim = weir::sim::detail;

extern "C" {

cudaError_t CUDARTAPI cudaMemPoolExportToShareableHandle(void* handle, cudaMemPool_t pool,
                                                         cudaMemAllocationHandleType type, unsigned int flags) {
  return sim::api("cudaMemPoolExportToShareableHandle", [&](sim::runtime& r, sim::held_lock&) {
    auto* const found = r.pools.find(pool);
    if (handle == nullptr || found == nullptr || flags != 0 || type == cudaMemHandleTypeNone)
      return cudaErrorInvalidValue;
    sim::pool_state& exported = **found;
    if (exported.handle_types != static_cast<unsigned>(type)) return cudaErrorInvalidValue;
    if (exported.exports_as == 0) {
      r.exported_pools.emplace(r.pool_exports + 1, *found);
      exported.exports_as = ++r.pool_exports;
    }
    int const descriptor = sim::descriptor_of(sim::export_of(exported.exports_as));
    if (descriptor < 0) return cudaErrorMemoryAllocation;
    std::memcpy(handle, &descriptor, sizeof descriptor);
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaMemPoolImportFromShareableHandle(cudaMemPool_t* pool, void* handle,
                                                           cudaMemAllocationHandleType type, unsigned int flags) {
  return sim::api("cudaMemPoolImportFromShareableHandle", [&](sim::runtime& r, sim::held_lock&) {
    if (pool == nullptr || flags != 0 || type != cudaMemHandleTypePosixFileDescriptor) return cudaErrorInvalidValue;
    auto exporter = sim::find_exported(r, static_cast<int>(reinterpret_cast<std::uintptr_t>(handle)));
    if (exporter == nullptr) return cudaErrorInvalidValue;
    auto imported = std::make_shared<sim::pool_state>(exporter->home);
    imported->exporter = std::move(exporter);
    imported->handle = *pool = r.pools.add(imported);
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaMemPoolExportPointer(cudaMemPoolPtrExportData* data, void* p) {
  return sim::api("cudaMemPoolExportPointer", [&](sim::runtime& r, sim::held_lock&) {
    sim::allocation const* const a = sim::find_live(r, p);
    if (data == nullptr || a == nullptr || a->pool == nullptr || a->pool->exports_as == 0) return cudaErrorInvalidValue;
    sim::exported_block const block{a->pool->exports_as, a->block, reinterpret_cast<std::uintptr_t>(p)};
    *data = {};
    std::memcpy(data, &block, sizeof block);
    return cudaSuccess;
  });
}

// In one process the memory has one address.
cudaError_t CUDARTAPI cudaMemPoolImportPointer(void** p, cudaMemPool_t pool, cudaMemPoolPtrExportData* data) {
  return sim::api("cudaMemPoolImportPointer", [&](sim::runtime& r, sim::held_lock&) {
    auto const* const found = r.pools.find(pool);
    if (p == nullptr || data == nullptr || found == nullptr || (*found)->exporter == nullptr)
      return cudaErrorInvalidValue;
    sim::exported_block block{};
    std::memcpy(&block, data, sizeof block);
    auto* const address = reinterpret_cast<void*>(block.address);
    sim::allocation* const a = sim::find_live(r, address);
    if (block.pool != (*found)->exporter->exports_as || a == nullptr || a->block != block.block)
      return cudaErrorInvalidValue;
    a->imported_by.push_back(*found);
    sim::pool_state& importer = **found;
    importer.reserved = importer.used += a->bytes;
    importer.used_high = importer.reserved_high = std::max(importer.used_high, importer.used);
    *p = address;
    return cudaSuccess;
  });
}

}  // extern "C"
