// A worker fills a table on the device, another process reads it there, without a copy. What goes between the two is
// the pool's descriptor, once, over a Unix domain socket, and 64 bytes for each block. Here both ends are one process,
// so that it runs on the simulated runtime, which imports where it exported.
#include <weir/cuda/stream.hpp>
#include <weir/sim/sim.hpp>
#include <weir/sources/pool_sharing.hpp>

#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <vector>

namespace {

constexpr std::size_t rows = 1000;

void require(cudaError_t code) {
  if (code != cudaSuccess) throw std::runtime_error(cudaGetErrorString(code));
}

/// The kernel makes a descriptor of the receiver's for the same pool.
void send_descriptor(int socket, int descriptor) {
  char byte = 0;
  iovec data{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* const rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(rights), &descriptor, sizeof descriptor);
  if (::sendmsg(socket, &message, 0) != 1) throw std::runtime_error("the descriptor was not sent");
}

weir::pool_descriptor receive_descriptor(int socket) {
  char byte = 0;
  iovec data{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr const* const rights = ::recvmsg(socket, &message, 0) == 1 ? CMSG_FIRSTHDR(&message) : nullptr;
  if (rights == nullptr) throw std::runtime_error("no descriptor came");
  int descriptor = -1;
  std::memcpy(&descriptor, CMSG_DATA(rights), sizeof descriptor);
  return weir::pool_descriptor(descriptor);
}

/// The process that has the memory.
class worker {
 public:
  explicit worker(int socket) : socket_(socket) { send_descriptor(socket, weir::export_pool(memory_).get()); }

  void send_table() {
    table_ = memory_.allocate(stream_, rows * sizeof(int));
    std::vector<int> const values(rows, 7);
    require(cudaMemcpyAsync(table_, values.data(), rows * sizeof(int), cudaMemcpyHostToDevice, stream_.get()));
    stream_.synchronize();  // whoever gets the block may use it at once
    weir::shared_block const block = weir::export_block(table_);
    if (::write(socket_, &block, sizeof block) != sizeof block) throw std::runtime_error("the block was not sent");
  }
  /// After the reader has said that it closed the block.
  void free_table() {
    char done = 0;
    if (::read(socket_, &done, 1) != 1) throw std::runtime_error("the reader is gone");
    memory_.deallocate(stream_, table_, rows * sizeof(int));
  }

 private:
  int socket_;
  weir::async_resource memory_{weir::async{.handle_type = weir::memory_handle::posix_fd}};
  weir::stream stream_;
  void* table_ = nullptr;
};

/// The other one.
class reader {
 public:
  explicit reader(int socket) : socket_(socket), pool_(receive_descriptor(socket)) {}

  long sum() {
    weir::shared_block block;
    if (::read(socket_, &block, sizeof block) != sizeof block) throw std::runtime_error("no block came");
    void* const table = pool_.open(block);
    std::vector<int> values(rows);
    require(cudaMemcpyAsync(values.data(), table, rows * sizeof(int), cudaMemcpyDeviceToHost, stream_.get()));
    pool_.close(stream_, table);
    stream_.synchronize();  // now it is closed, and the worker may free it
    char const done = 1;
    if (::write(socket_, &done, 1) != 1) throw std::runtime_error("the worker is gone");
    long all = 0;
    for (int const value : values) all += value;
    return all;
  }

 private:
  int socket_;
  weir::imported_pool pool_;
  weir::stream stream_;
};

}  // namespace

int main() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) return 1;
  long sum = 0;
  {
    worker one(ends[0]);
    reader other(ends[1]);
    one.send_table();
    sum = other.sum();
    one.free_table();
  }
  std::printf("the reader's sum is %ld; %zu allocations are left\n", sum, weir::sim::live_allocations());
  ::close(ends[0]);
  ::close(ends[1]);
  return sum == 7L * rows && weir::sim::live_allocations() == 0 ? 0 : 1;
}
