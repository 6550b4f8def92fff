#pragma once
// CUDA's memory pools across processes: one exports the pool of its `async`, others import it and open blocks of it.

#include <weir/core/error.hpp>
#include <weir/cuda/capture.hpp>
#include <weir/cuda/memory.hpp>
#include <weir/cuda/process_exit.hpp>
#include <weir/cuda/stream_ref.hpp>
#include <weir/sources/async.hpp>
#include <weir/sources/rejected_free.hpp>

#include <cuda_runtime_api.h>

#include <unistd.h>

#include <cstdint>
#include <stdexcept>
#include <utility>

namespace weir {

/// A file descriptor that stands for an exported pool; closed at the end. It goes to the other process as any
/// descriptor does: over a Unix domain socket (`SCM_RIGHTS`), or by inheritance.
class pool_descriptor {
 public:
  explicit pool_descriptor(int descriptor) noexcept : descriptor_(descriptor) {}
  ~pool_descriptor() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  pool_descriptor(pool_descriptor&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  pool_descriptor& operator=(pool_descriptor&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }

  int get() const noexcept { return descriptor_; }

 private:
  int descriptor_;
};

/// Exports the pool of a source made with `async{.handle_type = memory_handle::posix_fd}`. The pool may be
/// exported and imported any number of times; the source must stay until the importers have closed what they opened.
/// Any thread. Throws `std::invalid_argument` where the pool was not made for this, `cuda_error`.
[[nodiscard]] inline pool_descriptor export_pool(async_resource const& memory) {
  int descriptor = -1;
  cudaError_t const code =
      cudaMemPoolExportToShareableHandle(&descriptor, memory.pool(), cudaMemHandleTypePosixFileDescriptor, 0);
  if (code == cudaErrorInvalidValue) {
    detail::succeeded(code);
    throw std::invalid_argument(
        "weir: export_pool: CUDA does not export this pool; make it with "
        "async{.handle_type = memory_handle::posix_fd}");
  }
  detail::check(code, "cudaMemPoolExportToShareableHandle");
  return pool_descriptor(descriptor);
}

/// What another process needs to open one block of an exported pool: 64 bytes, which may be sent in any way.
using shared_block = cudaMemPoolPtrExportData;

/// Exports the block at `p`, as `async` itself gave it: not a part of one that a `pool` above handed out, nor one whose
/// alignment is above 256 B. Its pool must have been exported. Any thread. Throws `cuda_error` for other pointers.
[[nodiscard]] inline shared_block export_block(void* p) {
  shared_block block{};
  detail::check(cudaMemPoolExportPointer(&block, p), "cudaMemPoolExportPointer");
  return block;
}

/// Another process's pool. It allocates nothing; it opens blocks that the other one allocated and exported. They must
/// be closed before the pool ends. Thread-safe.
class imported_pool {
 public:
  /// The descriptor is not needed afterwards. Throws `cuda_error` for one that stands for no pool.
  explicit imported_pool(int descriptor) : pool_(imported(descriptor)) {}
  explicit imported_pool(pool_descriptor const& descriptor) : imported_pool(descriptor.get()) {}

  /// The block's address in this process. Nobody may use it before the other process's allocation is done on its
  /// stream: wait for that stream there before the block is sent. Throws `cuda_error`.
  [[nodiscard]] void* open(shared_block block) const {
    void* p = nullptr;
    detail::check(cudaMemPoolImportPointer(&p, pool_.get(), &block), "cudaMemPoolImportPointer");
    return p;
  }

  /// Ends this process's use of a block, after the work queued on `stream` so far. That must be done before the process
  /// that allocated the block frees it: wait for `stream`, and tell the other one.
  void close(stream_ref stream, void* p) const noexcept {
    if (p == nullptr || life_.is_exiting()) return;
    if (stream.is_host_order())
      detail::freed(detail::relaxed([p] { return cudaFree(p); }), "imported_pool", "cudaFree", p, 0);
    else
      detail::freed(cudaFreeAsync(p, stream.get()), "imported_pool", "cudaFreeAsync", p, 0);
  }

  /// Lets another device of this process use the pool's blocks, which at first only their own may. Throws `cuda_error`.
  void let_in(int device) { pool_.let_in(device); }

  cudaMemPool_t pool() const noexcept { return pool_.get(); }

 private:
  static detail::memory_pool imported(int descriptor) {
    cudaMemPool_t pool = nullptr;
    auto const handle = static_cast<std::uintptr_t>(descriptor);  // CUDA takes the number itself, as a pointer
    detail::check(cudaMemPoolImportFromShareableHandle(&pool, reinterpret_cast<void*>(handle),
                                                       cudaMemHandleTypePosixFileDescriptor, 0),
                  "cudaMemPoolImportFromShareableHandle");
    return detail::memory_pool::owner_of(pool);
  }

  detail::process_exit life_;
  detail::memory_pool pool_;
};

}  // namespace weir
