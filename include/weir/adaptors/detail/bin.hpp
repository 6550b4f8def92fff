#pragma once
// One bin of `binning`: a size, and how to make the resource that serves requests up to it.

#include <weir/adaptors/fixed_size.hpp>
#include <weir/core/any_ref.hpp>
#include <weir/core/deallocate_after.hpp>
#include <weir/core/layer_ref.hpp>
#include <weir/core/layers.hpp>
#include <weir/core/recipe.hpp>
#include <weir/core/resource_ref.hpp>
#include <weir/support/shared_owner.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

namespace weir {

template <resource Upstream>
class binning_resource;

namespace detail {

/// A bin's resource whose type is forgotten: one virtual call a request.
class bin_resource {
 public:
  virtual ~bin_resource() = default;
  virtual void* allocate(stream_ref stream, std::size_t bytes, std::size_t alignment) = 0;
  virtual void deallocate(stream_ref stream, void* p, std::size_t bytes, std::size_t alignment) noexcept = 0;
  virtual void deallocate_after(stream_ref stream, void* p, std::size_t bytes, stream_list others,
                                std::size_t alignment) noexcept = 0;
  virtual void visit_layers(layer_visitor& visitor) = 0;
  virtual std::size_t taken(std::size_t bytes, std::size_t alignment) const noexcept = 0;
  virtual bool holds_captured(std::uint64_t capture) const noexcept = 0;
  /// The device that its memory is of (`device_of`).
  virtual int device() noexcept = 0;
};

template <resource R>
class bin_model final : public bin_resource {
 public:
  template <recipe F>
  explicit bin_model(F const& f) : held_(f()) {}

  void* allocate(stream_ref stream, std::size_t bytes, std::size_t alignment) override {
    return share(held_).allocate(stream, bytes, alignment);
  }
  void deallocate(stream_ref stream, void* p, std::size_t bytes, std::size_t alignment) noexcept override {
    share(held_).deallocate(stream, p, bytes, alignment);
  }
  void deallocate_after(stream_ref stream, void* p, std::size_t bytes, stream_list others,
                        std::size_t alignment) noexcept override {
    weir::deallocate_after(held_, stream, p, bytes, others, alignment);
  }
  void visit_layers(layer_visitor& visitor) override { show_layers(held_, visitor); }
  std::size_t taken(std::size_t bytes, std::size_t alignment) const noexcept override {
    return weir::taken(held_, bytes, alignment);
  }
  bool holds_captured(std::uint64_t capture) const noexcept override { return weir::holds_captured(held_, capture); }
  int device() noexcept override { return weir::device_of(held_); }

 private:
  R held_;
};

}  // namespace detail

/// One bin: requests up to `bytes()`, and above the bin before it. Its resource stands on the upstream that all share,
/// or is elsewhere, on the same device and in reach of whoever reaches the upstream's memory.
class bin {
 public:
  /// Served by `fixed_size` blocks of `bytes`; a chunk has 128 of them, or fewer so that it stays within 64 MiB.
  template <class Default = fixed_size>  // a template, so that only those pay for compiling it who use it
  bin(std::size_t bytes)
      : bin(bytes, Default{.block_bytes = bytes, .blocks_per_chunk = blocks_in_64_MiB(detail::greater(bytes, 1))}) {}

  /// Served by what `how` puts on the upstream: an adaptor's options (`bin{1_MiB, pool{}}`), or a function from a
  /// recipe to a recipe (`bin{1_MiB, [](auto up) { return up | pool{} | limit{1_GiB}; }}`), whose options are looked at
  /// when the bin is made.
  template <class How>
  bin(std::size_t bytes, How how)
      : bytes_(bytes), maker_(detail::shared_owner<maker>::make<made_with<How>>(bytes, std::move(how))) {}

  std::size_t bytes() const noexcept { return bytes_; }

 private:
  template <resource>
  friend class binning_resource;
  friend struct binning;
  using made = detail::shared_owner<detail::bin_resource>;

  static constexpr std::size_t blocks_in_64_MiB(std::size_t bytes) noexcept {
    return detail::greater(detail::lesser(64_MiB / bytes, 128), 1);
  }

  // The upstream's type is not known yet, but what it promises of its memory is one of four things.
  struct maker {
    virtual ~maker() = default;
    virtual std::string problem() const = 0;
    virtual made make_on(basic_any_ref<true, false> upstream) const = 0;
    virtual made make_on(basic_any_ref<false, true> upstream) const = 0;
    virtual made make_on(basic_any_ref<true, true> upstream) const = 0;
    virtual made make_on(basic_any_ref<false, false> upstream) const = 0;
  };
  template <class How>
  struct made_with final : maker {
    made_with(std::size_t b, How h) : bytes(b), how(std::move(h)) {}
    std::string problem() const override {
      std::string wrong;
      if constexpr (requires { how.problem(); }) wrong = how.problem();
      if constexpr (std::same_as<How, fixed_size>)
        if (wrong.empty() && round_up_or_zero(how.block_bytes, detail::unit_bytes) < bytes)
          wrong = "fixed_size: block_bytes is " + std::to_string(how.block_bytes) + "; it must be at least the bin's";
      return wrong;
    }
    made make_on(basic_any_ref<true, false> upstream) const override { return on(upstream); }
    made make_on(basic_any_ref<false, true> upstream) const override { return on(upstream); }
    made make_on(basic_any_ref<true, true> upstream) const override { return on(upstream); }
    made make_on(basic_any_ref<false, false> upstream) const override { return on(upstream); }
    made on(auto upstream) const {
      auto const f = [&] {
        if constexpr (adaptor_over<How, decltype(upstream)>)
          return upstream | how;
        else
          return how(upstream);
      }();
      using bins = made_by<decltype(f)>;
      if constexpr (!serves<bins, true>(device_accessible<decltype(upstream)>)) refuse_kind("device");
      if constexpr (!serves<bins, false>(host_accessible<decltype(upstream)>)) refuse_kind("host");
      return made::make<detail::bin_model<bins>>(f);
    }
    /// Whether the device, or the host, reaches a bin's memory where that is promised. One that says nothing of itself
    /// is taken at its maker's word.
    template <resource Bin, bool OfDevice>
    static constexpr bool serves(bool promised) {
      constexpr bool says_its_kind = device_accessible<Bin> || host_accessible<Bin>;
      return !promised || !says_its_kind || (OfDevice ? device_accessible<Bin> : host_accessible<Bin>);
    }
    void refuse_kind(char const* who) const {
      throw std::invalid_argument("weir: binning: the " + std::string(who) + " cannot reach memory of the bin for " +
                                  std::to_string(bytes) +
                                  " B, and the upstream says that it can; give the bin memory that it reaches, such as "
                                  "pinned or managed, in a type that says so: any_host_device_resource, where "
                                  "any_resource promises the device alone");
    }
    std::size_t bytes;
    How how;
  };

  std::size_t bytes_;
  detail::shared_owner<maker> maker_;
};

}  // namespace weir
