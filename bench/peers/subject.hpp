#pragma once
// A peer behind one type, for the replay: what it runs on is chosen while running.

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace bench {

/// Streams that every peer has: number 0 is the default stream, the others are made.
inline constexpr std::size_t most_streams = 64;

class subject {
 public:
  virtual ~subject() = default;
  /// nullptr or an exception derived from `std::bad_alloc` if there is not enough memory.
  virtual void* allocate(std::size_t stream, std::size_t bytes) = 0;
  virtual void deallocate(std::size_t stream, void* p, std::size_t bytes) = 0;
};

struct offered_subject {
  std::string name;
  std::function<std::unique_ptr<subject>()> make;
};
using subject_list = std::vector<offered_subject>;

template <class Peer>
class peer_subject final : public subject {
 public:
  void* allocate(std::size_t stream, std::size_t bytes) override { return peer_.allocate(stream, bytes); }
  void deallocate(std::size_t stream, void* p, std::size_t bytes) override { peer_.deallocate(stream, p, bytes); }

 private:
  Peer peer_;
};

template <class Peer>
void offer(subject_list& list, std::string name) {
  list.push_back({std::move(name), [] { return std::make_unique<peer_subject<Peer>>(); }});
}

}  // namespace bench
