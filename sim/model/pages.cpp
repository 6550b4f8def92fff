#include "model/pages.hpp"

#include "model/heap.hpp"

#include <array>
#include <cstdint>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace weir::sim::detail {
namespace {

// A place in the file is used once; the file is sparse, so that it may grow for ever. One file for all: a file for each
// piece would use up the process's file descriptors.
struct page_file {
  int descriptor = memfd_create("weir::sim device memory", MFD_CLOEXEC);
  std::size_t end = 0;
};

page_file& file() {
  static page_file the_file;
  return the_file;
}

constexpr int no_memory = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

void* map_nothing(void* at, std::size_t bytes, int more) {
  void* const p = mmap(at, bytes, PROT_NONE, no_memory | more, -1, 0);
  return p == MAP_FAILED ? nullptr : p;
}

off_t offset(std::size_t place) { return static_cast<off_t>(place); }

}  // namespace

void* reserve_addresses(void* hint, std::size_t bytes, std::size_t alignment) {
  if (hint != nullptr) {
    void* const p = map_nothing(hint, bytes, 0);
    if (p == hint && reinterpret_cast<std::uintptr_t>(p) % alignment == 0) return p;
    if (p != nullptr) munmap(p, bytes);
  }
  // Some more, of which both ends go back, so that the rest is aligned.
  if (bytes + alignment < bytes) return nullptr;
  void* const all = map_nothing(nullptr, bytes + alignment, 0);
  if (all == nullptr) return nullptr;
  auto* const first = static_cast<unsigned char*>(all);
  std::size_t const before = (alignment - reinterpret_cast<std::uintptr_t>(all) % alignment) % alignment;
  if (before != 0) munmap(first, before);
  if (before != alignment) munmap(first + before + bytes, alignment - before);
  return first + before;
}

void give_addresses_back(void* p, std::size_t bytes) { munmap(p, bytes); }

bool zero_pages(void* p, std::size_t bytes, bool views) {
  return madvise(p, bytes, views ? MADV_REMOVE : MADV_DONTNEED) == 0;
}

std::optional<std::size_t> take_pages(std::size_t bytes) {
  page_file& f = file();
  if (f.descriptor < 0 || ftruncate(f.descriptor, offset(f.end + bytes)) != 0) return std::nullopt;
  std::size_t const place = f.end;
  f.end += bytes;
  return place;
}

void give_pages_back(std::size_t place, std::size_t bytes) {
  fallocate(file().descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset(place), offset(bytes));
}

void scribble_pages(std::size_t place, std::size_t bytes, unsigned char pattern) {
  std::array<unsigned char, 4096> page;
  page.fill(pattern);
  // Only the ends, as of every large block. If the host has no room, the bytes stay 0, which is as good a pattern.
  [[maybe_unused]] ssize_t written = pwrite(file().descriptor, page.data(), page.size(), offset(place));
  written = pwrite(file().descriptor, page.data(), page.size(), offset(place + bytes - page.size()));
}

bool map_pages(void* at, std::size_t place, std::size_t bytes) {
  return mmap(at, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, file().descriptor, offset(place)) !=
         MAP_FAILED;
}

bool open_pages(void* at, std::size_t bytes, bool open) {
  return mprotect(at, bytes, open ? PROT_READ | PROT_WRITE : PROT_NONE) == 0;
}

bool unmap_pages(void* at, std::size_t bytes) {
  unpoison(at, bytes);  // whoever poisoned the memory did so for this view of it
  return map_nothing(at, bytes, MAP_FIXED) != nullptr;
}

}  // namespace weir::sim::detail
