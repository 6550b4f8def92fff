#pragma once
// Raises the alignment of requests from a size on.

#include <weir/adaptors/detail/passing_adaptor.hpp>
#include <weir/core/bytes.hpp>
#include <weir/core/error.hpp>
#include <weir/core/options.hpp>
#include <weir/core/recipe.hpp>
#include <weir/core/report.hpp>
#include <weir/core/resource.hpp>

#include <cstddef>
#include <string>

namespace weir {

template <resource Upstream>
class aligned_resource;

/// Aligns what is at least `from_bytes` large to `alignment`, whoever asks for it: for what reads and writes whole
/// pages (GPUDirect Storage, `O_DIRECT`), and for code that cannot say an alignment, such as Thrust's.
/// When not to use it: where the caller can give its own alignment, which every resource honours up to 2 MiB.
struct aligned {
  std::size_t alignment = 4096;  ///< in bytes: a power of two from 256 B, what all memory has, to 2 MiB
  std::size_t from_bytes = 0;    ///< smaller requests keep the alignment that they ask for

  template <resource Upstream>
  using on = aligned_resource<Upstream>;

  static constexpr char const* layer_name = "aligned";
  template <class F>
  static constexpr void for_each_option(F f) {
    f(option::bytes("alignment", "alignment", &aligned::alignment)
          .first()
          .power_of_two()
          .at_least(default_alignment)
          .at_most(max_alignment));
    f(option::bytes("from", "from_bytes", &aligned::from_bytes));
  }

  /// Empty if these options are valid, else what is wrong with them.
  template <class = void>  // so that only those pay for compiling it who use it
  std::string problem() const {
    return option::first_problem(*this);
  }
  template <class = void>
  bool valid() const {
    return problem().empty();
  }
};

/// What `aligned` stands as on an upstream. As thread-safe as its upstream; it keeps nothing and calls no CUDA.
///
/// A block has to be freed with the size and alignment that it was asked for with, as everywhere: from these follows
/// which alignment the upstream was asked for.
template <resource Upstream>
class aligned_resource : public detail::passing_adaptor<aligned_resource<Upstream>, Upstream> {
  using base = detail::passing_adaptor<aligned_resource, Upstream>;

 public:
  static constexpr char const* layer_name = aligned::layer_name;

  template <recipe F>
  aligned_resource(F const& upstream, aligned const& options)
      : base(upstream), alignment_(detail::require_valid(options).alignment), from_bytes_(options.from_bytes) {}

  /// Throws what the upstream throws.
  void* allocate(stream_ref stream, std::size_t bytes, std::size_t alignment = default_alignment) {
    if (bytes == 0) return nullptr;
    return this->pass(stream, bytes, raised(bytes, alignment), [] {});
  }

  void deallocate(stream_ref stream, void* p, std::size_t bytes, std::size_t alignment = default_alignment) noexcept {
    if (p != nullptr) share(upstream_).deallocate(stream, p, bytes, raised(bytes, alignment));
  }
  /// See `weir::deallocate_after`.
  void deallocate_after(stream_ref stream, void* p, std::size_t bytes, stream_list others,
                        std::size_t alignment = default_alignment) noexcept {
    weir::deallocate_after(upstream_, stream, p, bytes, others, raised(bytes, alignment));
  }

  /// What the upstream takes for the raised alignment.
  std::size_t taken(std::size_t bytes, std::size_t alignment) const noexcept {
    return base::taken(bytes, raised(bytes, alignment));
  }

  /// The least alignment of requests from `from_bytes()` on.
  std::size_t alignment() const noexcept { return alignment_; }
  std::size_t from_bytes() const noexcept { return from_bytes_; }

  void describe_layer(report& out) const {
    out.below("aligned(" + format_bytes(alignment_) + ")",
              "to " + format_bytes(alignment_) +
                  (from_bytes_ == 0 ? std::string() : ", requests from " + format_bytes(from_bytes_) + " on"));
  }

 private:
  using base::upstream_;

  /// An alignment that is not valid stays as it is, for the upstream to refuse.
  std::size_t raised(std::size_t bytes, std::size_t alignment) const noexcept {
    bool const is_raised = bytes >= from_bytes_ && alignment < alignment_ && is_valid_alignment(alignment);
    return is_raised ? alignment_ : alignment;
  }

  std::size_t alignment_;
  std::size_t from_bytes_;
};

}  // namespace weir
