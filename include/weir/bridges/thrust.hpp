#pragma once
// Thrust on a stack: vectors, the allocator they use, and execution policies whose temporaries come from the stack.
// The only header of weir that includes Thrust. Keep its types out of interfaces between files of different compilers.

#include <weir/core/any_ref.hpp>
#include <weir/core/resource.hpp>
#include <weir/cuda/capture.hpp>
#include <weir/cuda/error.hpp>

#include <thrust/device_ptr.h>
#include <thrust/device_reference.h>
#include <thrust/device_vector.h>
#include <thrust/distance.h>
#include <thrust/execution_policy.h>
#include <thrust/fill.h>
#include <thrust/host_vector.h>

#include <cstddef>
#include <initializer_list>
#include <limits>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

#if THRUST_DEVICE_SYSTEM == THRUST_DEVICE_SYSTEM_CUDA
#include <thrust/system/cuda/execution_policy.h>
#elif THRUST_DEVICE_SYSTEM == THRUST_DEVICE_SYSTEM_CPP
#include <thrust/system/cpp/execution_policy.h>
#elif THRUST_DEVICE_SYSTEM == THRUST_DEVICE_SYSTEM_OMP
#include <thrust/system/omp/execution_policy.h>
#elif THRUST_DEVICE_SYSTEM == THRUST_DEVICE_SYSTEM_TBB
#include <thrust/system/tbb/execution_policy.h>
#endif

/// Marks functions for Thrust algorithms so that the same source compiles with nvcc and with g++ or clang++.
#if defined(__CUDACC__)
#define WEIR_HOST_DEVICE __host__ __device__
#else
#define WEIR_HOST_DEVICE
#endif

namespace weir {
namespace detail {

// Two ways of running Thrust, behind the same four names:
//   thrust_system      the execution policy that a vector fills and copies itself with
//   run_after(stream)  called before the host touches memory that work on `stream` may still use
//   policy_on, policy_nosync_on
#if THRUST_DEVICE_SYSTEM == THRUST_DEVICE_SYSTEM_CUDA

// Waits for the stream after each operation: `v[0]` right after a constructor is read on another stream.
using thrust_system = typename std::decay_t<decltype(thrust::cuda::par)>::stream_attachment_type;

inline thrust_system thrust_system_on(stream_ref stream) { return thrust_system(stream.get()); }
WEIR_HOST_DEVICE inline void run_after(stream_ref) {}  // kernels are ordered by the stream itself

template <class Allocator>
auto policy_on(stream_ref stream, Allocator temporaries) {
  return thrust::cuda::par(std::move(temporaries)).on(stream.get());
}
template <class Allocator>
auto policy_nosync_on(stream_ref stream, Allocator temporaries) {
  return thrust::cuda::par_nosync(std::move(temporaries)).on(stream.get());
}

#else

#if THRUST_DEVICE_SYSTEM == THRUST_DEVICE_SYSTEM_CPP
inline constexpr auto& host_par = thrust::cpp::par;
#elif THRUST_DEVICE_SYSTEM == THRUST_DEVICE_SYSTEM_OMP
inline constexpr auto& host_par = thrust::omp::par;
#elif THRUST_DEVICE_SYSTEM == THRUST_DEVICE_SYSTEM_TBB
inline constexpr auto& host_par = thrust::tbb::par;
#endif

using thrust_system = std::decay_t<decltype(host_par)>;

inline thrust_system thrust_system_on(stream_ref) { return thrust_system(); }
inline void run_after(stream_ref stream) {
  if (!stream.is_host_order()) check(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize");
}

template <class Allocator>
auto policy_on(stream_ref stream, Allocator temporaries) {
  run_after(stream);
  return host_par(std::move(temporaries));  // moved: an lvalue would be referred to
}
template <class Allocator>
auto policy_nosync_on(stream_ref stream, Allocator temporaries) {
  return detail::policy_on(stream, std::move(temporaries));
}

#endif

}  // namespace detail

/// Gives a Thrust vector memory from `memory`, which must outlive it, in the order of `stream`.
/// It follows its vector on copy, move and swap; equal ones have the same memory and stream. Throws what the stack
/// throws, and `std::bad_array_new_length` where the bytes cannot be counted.
template <class T>
class thrust_allocator {
 public:
  using value_type = T;
  using pointer = thrust::device_ptr<T>;
  using const_pointer = thrust::device_ptr<T const>;
  using reference = thrust::device_reference<T>;
  using const_reference = thrust::device_reference<T const>;
  using size_type = std::size_t;
  using difference_type = typename pointer::difference_type;
  using propagate_on_container_copy_assignment = std::true_type;
  using propagate_on_container_move_assignment = std::true_type;
  using propagate_on_container_swap = std::true_type;
  using is_always_equal = std::false_type;
  template <class U>
  struct rebind {
    using other = thrust_allocator<U>;
  };

  thrust_allocator(any_ref memory, stream_ref stream)
      : memory_(memory), stream_(stream), system_(detail::thrust_system_on(stream)) {}
  template <class U>
  WEIR_HOST_DEVICE thrust_allocator(thrust_allocator<U> const& other)
      : memory_(other.memory_), stream_(other.stream_), system_(other.system_) {}

  pointer allocate(size_type n) {
    if (n > std::numeric_limits<size_type>::max() / sizeof(T)) throw std::bad_array_new_length();
    void* const p = memory_.allocate(stream_, n * sizeof(T), alignment);
    try {
      detail::run_after(stream_);  // in stream order the memory may be in another stream's use until then
    } catch (...) {
      memory_.deallocate(stream_, p, n * sizeof(T), alignment);
      throw;
    }
    return pointer(static_cast<T*>(p));
  }
  void deallocate(pointer p, size_type n) noexcept { memory_.deallocate(stream_, p.get(), n * sizeof(T), alignment); }

  any_ref memory() const noexcept { return memory_; }
  stream_ref stream() const noexcept { return stream_; }

  /// What Thrust runs a vector's own fills and copies with; the hook that puts them on the stream.
  using system_type = detail::thrust_system;
  system_type& system() {
    detail::run_after(stream_);
    return system_;
  }

  friend bool operator==(thrust_allocator const& a, thrust_allocator const& b) noexcept {
    return a.memory_ == b.memory_ && a.stream_ == b.stream_;
  }

 private:
  template <class U>
  friend class thrust_allocator;

  static constexpr std::size_t alignment = alignof(T) > default_alignment ? alignof(T) : default_alignment;

  any_ref memory_;
  stream_ref stream_;
  system_type system_;
};

/// A `thrust::device_vector` on a stack: `weir::device_vector<float> x(n, memory, stream)`. Its type does not name the
/// stack, which must outlive it. Elements are zeroed or filled, as Thrust does.
///
/// Memory is taken and given back in the order of `stream`. Member functions that write run after the work queued there
/// so far, and are done when they return. Single elements (`x[i]`) and algorithms without a policy use the default
/// stream, as with any Thrust vector: wait for `stream` before the first, and give the second `weir::policy(memory,
/// stream)`. Throws what the stack throws. Vectors on one stack may be used in many threads, each vector in one at a
/// time. When not to use it: in an interface between files that nvcc and g++ compile, where Thrust's types differ.
template <class T>
class device_vector : public thrust::device_vector<T, thrust_allocator<T>> {
  using base = thrust::device_vector<T, thrust_allocator<T>>;

 public:
  using size_type = typename base::size_type;
  using difference_type = typename base::difference_type;
  using iterator = typename base::iterator;

  device_vector() = delete;  // a vector needs to be told its memory and stream
  explicit device_vector(size_type) = delete;
  device_vector(size_type, T const&) = delete;

  device_vector(any_ref memory, stream_ref stream) : base(thrust_allocator<T>(memory, stream)) {}
  device_vector(size_type n, any_ref memory, stream_ref stream) : base(n, thrust_allocator<T>(memory, stream)) {}
  device_vector(size_type n, T const& value, any_ref memory, stream_ref stream)
      : base(n, value, thrust_allocator<T>(memory, stream)) {}
  template <class Iterator>
  requires(!std::is_arithmetic_v<Iterator>)
      device_vector(Iterator first, Iterator last, any_ref memory, stream_ref stream)
      : base(first, last, thrust_allocator<T>(memory, stream)) {}
  device_vector(std::initializer_list<T> values, any_ref memory, stream_ref stream)
      : base(values, thrust_allocator<T>(memory, stream)) {}
  template <class U, class A>
  device_vector(std::vector<U, A> const& values, any_ref memory, stream_ref stream)
      : base(values.begin(), values.end(), thrust_allocator<T>(memory, stream)) {}

  template <class U, class A>
  device_vector(thrust::host_vector<U, A> const& values, any_ref memory, stream_ref stream)
      : device_vector(values.begin(), values.end(), memory, stream) {}
  /// Of any stack, stream and type of elements. Waits for the work queued so far on the stream of another one of these,
  /// but for one that is being captured, which has none.
  template <class U, class A>
  device_vector(thrust::device_vector<U, A> const& values, any_ref memory, stream_ref stream)
      : device_vector(settled(values).begin(), values.end(), memory, stream) {}

  /// A copy has the same memory and stream.
  device_vector(device_vector const&) = default;
  device_vector(device_vector&&) = default;  // NOLINT(performance-noexcept-move-constructor): as Thrust's is
  device_vector(base const& other) : base(other) {}
  device_vector(base&& other) : base(std::move(other)) {}

  device_vector& operator=(device_vector const& other) {
    wait();
    base const& settled_other = settled(other);
    // Thrust would give the memory back first and then visit the elements in it.
    if (this->get_allocator() != other.get_allocator()) this->clear();
    base::operator=(settled_other);
    return *this;
  }
  device_vector& operator=(device_vector&&) = default;  // NOLINT(performance-noexcept-move-constructor)
  device_vector& operator=(std::initializer_list<T> values) {
    assign(values.begin(), values.end());
    return *this;
  }
  template <class U, class A>
  device_vector& operator=(std::vector<U, A> const& values) {
    assign(values.begin(), values.end());
    return *this;
  }

  template <class U, class A>
  device_vector& operator=(thrust::host_vector<U, A> const& values) {
    assign(values.begin(), values.end());
    return *this;
  }
  /// Elements of another type, or in memory of another allocator: this vector's own stays as it is.
  template <class U, class A>
  requires(!std::is_same_v<A, thrust_allocator<T>>) device_vector& operator=(
      thrust::device_vector<U, A> const& values) {
    assign(settled(values).begin(), values.end());
    return *this;
  }

  // Thrust runs these on the default stream, and its `assign(n, value)` forgets the allocator.
  void assign(size_type n, T const& value) {
    if (n > this->capacity()) {
      base fresh(n, value, this->get_allocator());
      this->swap(fresh);
    } else {
      this->resize(n);
      thrust::fill(detail::policy_on(stream(), thrust_allocator<char>(memory(), stream())), this->begin(), this->end(),
                   value);
    }
  }
  template <class Iterator>
  requires(!std::is_arithmetic_v<Iterator>) void assign(Iterator first, Iterator last) {
    wait();
    base::assign(first, last);
  }

  // Thrust moves elements that stand behind others through memory of its own (`cudaMalloc`), on the default stream.
  // Here they wait in memory of the vector's stack.
  iterator erase(iterator position) { return erase(position, position + 1); }
  iterator erase(iterator first, iterator last) {
    if (first != last) replace(first, last, [] {});
    return first;
  }
  iterator insert(iterator position, T const& value) {
    size_type const index = static_cast<size_type>(position - this->begin());
    insert(position, 1, value);
    return this->begin() + static_cast<difference_type>(index);
  }
  void insert(iterator position, size_type n, T const& value) {
    if (n > this->capacity() - this->size()) return base::insert(position, n, value);
    replace(position, position, [&] { base::insert(this->end(), n, value); });
  }
  template <class Iterator>
  requires(!std::is_arithmetic_v<Iterator>) void insert(iterator position, Iterator first, Iterator last) {
    if (static_cast<size_type>(thrust::distance(first, last)) > this->capacity() - this->size())
      return base::insert(position, first, last);
    replace(position, position, [&] { base::insert(this->end(), first, last); });
  }

  any_ref memory() const { return this->get_allocator().memory(); }
  stream_ref stream() const { return this->get_allocator().stream(); }

 private:
  static void wait(stream_ref stream) { detail::check(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize"); }
  void wait() const { wait(stream()); }
  /// Calls `append` when the elements from `first` on are gone, and appends those from `last` on again.
  template <class Append>
  void replace(iterator first, iterator last, Append append) {
    wait();
    base const behind(last, this->end(), this->get_allocator());
    this->resize(static_cast<size_type>(first - this->begin()));
    append();
    base::insert(this->end(), behind.begin(), behind.end());
  }
  /// Before the elements of a vector are read, on another stream than its own, if it has one of weir's.
  template <class U, class A>
  static thrust::device_vector<U, A> const& settled(thrust::device_vector<U, A> const& values) {
    if constexpr (std::is_same_v<A, thrust_allocator<U>>)
      if (stream_ref const its = values.get_allocator().stream(); !detail::may_break_capture(its.get())) wait(its);
    return values;
  }
};

namespace detail {

/// In the order of the stream that the algorithm runs on, for host order the legacy stream: Thrust gives temporary
/// memory back before it waits.
inline thrust_allocator<char> temporaries(any_ref memory, stream_ref stream) {
  return {memory, stream.is_host_order() ? stream_ref(stream.get()) : stream};
}

}  // namespace detail

/// An execution policy: `thrust::sort(weir::policy(memory, stream), v.begin(), v.end())`. The algorithm runs on
/// `stream` (in host order on the legacy stream), takes its temporary memory from `memory` in the order of that stream,
/// and is done when the call returns.
/// Write it into the call: where Thrust runs on the host, making it is what waits for work queued on `stream`.
inline auto policy(any_ref memory, stream_ref stream) {
  return detail::policy_on(stream, detail::temporaries(memory, stream));
}

/// The same, but the call may return before the algorithm is done, where Thrust can do that: order later work by
/// `stream`.
inline auto policy_nosync(any_ref memory, stream_ref stream) {
  return detail::policy_nosync_on(stream, detail::temporaries(memory, stream));
}

}  // namespace weir
