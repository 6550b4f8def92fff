// The shared library takes its settings from the environment when it is loaded, since the programs that it is put under
// do not know it. A wrong value ends the program with a sentence on stderr and status 2.

#include <weir/sim/order.hpp>
#include <weir/sim/sim.hpp>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace {

namespace sim = weir::sim;

// Refuses unknown names, since a misspelt one would have no effect and nobody would notice.
void refuse_unknown_names() {
  static constexpr std::string_view prefix = "WEIR_SIM_",
                                    known[] = {"CAPACITY", "CHECK", "DEVICE", "DEVICES", "HOST_FUNCTIONS_TELL",
                                               "KERNELS",  "MODE",  "SEED",   "TRACE"};
  for (char** each = environ; each != nullptr && *each != nullptr; ++each) {
    std::string_view name = *each;
    name = name.substr(0, name.find('='));
    if (!name.starts_with(prefix)) continue;
    if (std::find(std::begin(known), std::end(known), name.substr(prefix.size())) != std::end(known)) continue;
    std::fprintf(stderr, "weir::sim: there is no %s; WEIR_SIM_ can be followed by", std::string(name).c_str());
    for (std::string_view const one : known) std::fprintf(stderr, " %s", std::string(one).c_str());
    std::fprintf(stderr, "\n");
    std::_Exit(2);
  }
}

[[noreturn]] void refuse(char const* name, char const* value, char const* allowed) {
  std::fprintf(stderr, "weir::sim: %s is '%s'; it can be %s\n", name, value, allowed);
  std::_Exit(2);
}

// Calls `use(value)` if the variable is set; `use` says whether the value makes sense.
template <class Use>
void setting(char const* name, char const* allowed, Use use) {
  char const* const value = std::getenv(name);
  if (value != nullptr && !use(std::string(value))) refuse(name, value, allowed);
}

template <class Use>
void number(char const* name, char const* allowed, Use use) {
  setting(name, allowed, [use](std::string const& text) {
    if (text.empty() || text.find_first_not_of("0123456789") != std::string::npos) return false;
    errno = 0;
    unsigned long long const value = std::strtoull(text.c_str(), nullptr, 10);
    if (errno != 0) return false;
    return use(value);
  });
}

bool set_mode(std::string const& text) {
  if (text == "immediate") {
    sim::set_mode(sim::mode::immediate);
  } else if (text == "lazy") {
    sim::set_mode(sim::mode::lazy);
  } else if (text == "random") {
    sim::set_mode(sim::mode::random);
  } else if (text == "pct") {
    sim::set_mode(sim::mode::pct);
  } else if (text == "threads") {
    sim::set_mode(sim::mode::threads);
  } else {
    return false;
  }
  return true;
}

std::atomic<unsigned> violations{0};

void print(sim::order_report const& report) {
  violations.fetch_add(1, std::memory_order_relaxed);
  std::fprintf(stderr, "weir::sim: %s\n", report.text.c_str());
}

// Prints the count at the end, since the reports may be far up by then and the exit status does not show them.
void print_sum() {
  unsigned const count = violations.load(std::memory_order_relaxed);
  if (count != 0) std::fprintf(stderr, "weir::sim: %u violation%s of order\n", count, count == 1 ? "" : "s");
}

bool set_check(std::string const& text) {
  if (text == "0") return true;
  bool const values = text == "values";
  if (text == "abort") {
    sim::set_report_handler([](sim::order_report const& report) {
      print(report);
      std::abort();
    });
  } else if (text == "1" || values) {
    sim::set_report_handler(print);
    std::atexit(print_sum);
  } else {
    return false;
  }
  char const* const tell = std::getenv("WEIR_SIM_HOST_FUNCTIONS_TELL");
  sim::check_order(true,
                   {.read_back = values, .host_functions_tell = tell != nullptr && std::string_view(tell) == "1"});
  return true;
}

bool set_device(std::string const& name) {
  try {
    sim::set_device_model(name);
  } catch (std::invalid_argument const& e) {
    std::fprintf(stderr, "weir::sim: WEIR_SIM_DEVICE: %s\n", e.what());
    std::_Exit(2);
  }
  return true;
}

// One line: what the program computed with is not what a GPU would have. With `list` the kernels as well.
void print_skipped(bool each) {
  std::vector<sim::skipped_kernel> const skipped = sim::skipped_kernels();
  unsigned long long launches = 0;
  for (sim::skipped_kernel const& k : skipped) launches += k.launches;
  if (launches == 0) return;
  std::fprintf(stderr, "weir::sim: %llu launches of %zu kernels were skipped; what they would have written was not\n",
               launches, skipped.size());
  if (!each) return;
  for (sim::skipped_kernel const& k : skipped)
    std::fprintf(stderr, "%10llu  %s\n", static_cast<unsigned long long>(k.launches), k.name.c_str());
}

bool set_kernels(std::string const& text) {
  if (text == "refuse") return true;
  if (text == "skip")
    std::atexit([] { print_skipped(false); });
  else if (text == "list")
    std::atexit([] { print_skipped(true); });
  else
    return false;
  sim::skip_kernels(true);
  return true;
}

[[maybe_unused]] bool const settings_are_read = [] {
  refuse_unknown_names();
  number("WEIR_SIM_DEVICES", "1 to 8", [](unsigned long long count) {
    if (count < 1 || count > 8) return false;
    sim::set_device_count(static_cast<int>(count));
    return true;
  });
  setting("WEIR_SIM_DEVICE", "a device's name", set_device);
  number("WEIR_SIM_CAPACITY", "a number of bytes", [](unsigned long long bytes) {
    for (int device = 0; device < 8; ++device) sim::set_capacity(device, bytes);
    return true;
  });
  number("WEIR_SIM_SEED", "a number of 64 bits", [](unsigned long long seed) {
    sim::set_seed(seed);
    return true;
  });
  setting("WEIR_SIM_MODE", "immediate, lazy, random, pct or threads", set_mode);
  setting("WEIR_SIM_KERNELS", "refuse, skip, or list (skip, and say at the end which)", set_kernels);
  setting("WEIR_SIM_CHECK",
          "0, 1 (print what is wrong with the order), values (and reads of what nobody wrote) or abort (at the first)",
          set_check);
  setting("WEIR_SIM_HOST_FUNCTIONS_TELL", "0 or 1", [](std::string const& text) {
    return text == "0" || text == "1";  // read with WEIR_SIM_CHECK, whose check it is of
  });
  setting("WEIR_SIM_TRACE", "a file that is not there yet", [](std::string const& file) {
    if (file.empty()) return false;
    sim::trace_memory(file);
    return true;
  });
  return true;
}();

}  // namespace
