#pragma once
// What a stack says about itself when it cannot serve a request.

#include <weir/version.hpp>

#include <cstddef>
#include <exception>
#include <string>
#include <utility>

namespace weir {

/// A line for each layer, outermost first, and their names in one chain. Host memory only; built when something failed.
class report {
 public:
  /// Adds a layer below those already there. `name` may carry its setting, as in `limit(1.00 GiB)`.
  void below(std::string const& name, std::string const& text) {
    chain_ += (chain_.empty() ? "" : " > ") + name;
    lines_ += line(name, text);
  }
  /// Adds a layer above those already there.
  void above(std::string const& name, std::string const& text) {
    chain_ = name + (chain_.empty() ? "" : " > ") + chain_;
    lines_ = line(name, text) + lines_;
  }

  /// Adds a line that stands for no layer, so that the chain does not have it.
  void note(std::string const& name, std::string const& text) { lines_ += line(name, text); }

  /// Adds the lines of a stack that serves requests beside this one, so that the chain does not have it.
  void beside(report const& other) {
    lines_ += other.lines_;
    is_of_one_device_ = false;
  }

  /// All memory of this stack is of `device`, which has `bytes` in all, and is taken in multiples of `piece`, which is
  /// not 0. For sources of device memory alone.
  void device_memory(int device, std::size_t bytes, std::size_t piece = 1) {
    device_ = device;
    device_bytes_ = bytes;
    piece_bytes_ = piece;
  }
  /// True where that is known, and a request for `bytes` can never be served.
  bool exceeds_device(std::size_t bytes) const noexcept {
    return is_of_one_device_ && device_bytes_ != 0 && bytes > device_bytes_ / piece_bytes_ * piece_bytes_;
  }
  int device() const noexcept { return device_; }
  std::size_t device_bytes() const noexcept { return device_bytes_; }
  std::size_t piece_bytes() const noexcept { return piece_bytes_; }

  /// What whoever reads the report may do, for the last line of an error. The refusing layer's counts: it comes first.
  void hint(std::string const& text) {
    if (hint_.empty()) hint_ = text;
  }
  /// Who holds most of what is live, as an addition to the hint: `cache holds 14.00 GiB of it in 900 blocks`.
  void main_holder(std::string const& text) {
    if (main_holder_.empty()) main_holder_ = text;
  }

  std::string const& hint() const noexcept { return hint_; }
  std::string const& main_holder() const noexcept { return main_holder_; }
  std::string const& chain() const noexcept { return chain_; }
  std::string const& lines() const noexcept { return lines_; }

 private:
  /// A name without its setting, which is in the brackets that close at its end: the layer's own name may have some.
  static std::string without_setting(std::string const& name) {
    if (name.empty() || name.back() != ')') return name;
    std::size_t at = name.size(), open = 0;
    do {
      --at;
      if (name[at] == ')') ++open;
      if (name[at] == '(') --open;
    } while (open != 0 && at != 0);
    return name.substr(0, at);
  }
  static std::string line(std::string const& name, std::string const& text) {
    std::string label = "  " + without_setting(name);
    label.resize(label.size() < 13 ? 13 : label.size() + 1, ' ');
    return text.empty() ? std::string() : label + text + "\n";
  }

  std::string chain_;
  std::string lines_;
  std::string hint_;
  std::string main_holder_;
  int device_ = -1;
  std::size_t device_bytes_ = 0;  // 0: not known
  std::size_t piece_bytes_ = 1;
  bool is_of_one_device_ = true;
};

/// Lets `r`, then all below it, add their lines. A resource takes part by having `describe(report&) const`; what that
/// throws ends the report with a line that says so, since it must not take the place of the error that is reported. One
/// without it is passed over: those below its `upstream()` add theirs.
template <class R>
void describe(R const& r, report& out) {
  if constexpr (requires { r.describe(out); }) try {
      r.describe(out);
    } catch (std::exception const& error) {
      out.below("unknown", std::string("describe threw: ") + error.what());
    } catch (...) {
      out.below("unknown", "describe threw");
    }
  else if constexpr (requires { r.upstream(); })
    weir::describe(r.upstream(), out);
}

/// The report of a stack from `top` down.
template <class R>
report report_of(R const& top) {
  report out;
  weir::describe(top, out);
  return out;
}

}  // namespace weir
