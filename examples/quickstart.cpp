// Two services share one GPU. Each counts the words of the same text files, in its own thread, on its own stream and
// under its own budget; both take memory from one pool. The second one's budget is too small for the whole text at
// once: it is told so with a report, tries half as much at a time, and finishes.
//
//     quickstart [--top N] [FILE...]     without files: the licence texts that Debian keeps in one folder (below)
//
// With WEIR_REPORT=memory.html in the environment it leaves a page to look at: what each service held over time, what
// was refused, and how it went on.
//
// A word is a run of the letters A-Z and a-z, in lower case: what `tr -cs A-Za-z '\n' | tr A-Z a-z` gives. Each service
// logs its allocations to a file in the folder for temporary files. Exit status: 0; 1 if something failed or leaked; 2
// if a file cannot be read. The same source is a CUDA program (nvcc -x cu) and, on the simulated runtime, plain C++
// (g++).

#include <weir/adaptors/limit.hpp>
#include <weir/adaptors/logging.hpp>
#include <weir/adaptors/pool.hpp>
#include <weir/adaptors/statistics.hpp>
#include <weir/adaptors/trace.hpp>
#include <weir/bridges/thrust.hpp>
#include <weir/core/recipe.hpp>
#include <weir/core/resource_ref.hpp>
#include <weir/core/tag.hpp>
#include <weir/cuda/error.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sources/async.hpp>
#include <weir/tools/merged_trace.hpp>
#include <weir/tools/report_page.hpp>

#include <cuda_runtime_api.h>

#include <thrust/copy.h>
#include <thrust/count.h>
#include <thrust/iterator/constant_iterator.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/reduce.h>
#include <thrust/sort.h>
#include <thrust/transform.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

using namespace weir::literals;

namespace {

constexpr char const* default_folder = "/usr/share/common-licenses";

// ---- what runs on the GPU -------------------------------------------------------------------------------------------

WEIR_HOST_DEVICE inline char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c; }
WEIR_HOST_DEVICE inline bool is_letter(char c) { return lower(c) >= 'a' && lower(c) <= 'z'; }

/// One word of the text: where it starts, and a hash of its letters in lower case.
struct token {
  std::uint64_t hash;
  std::uint64_t start;
};

struct starts_word {
  char const* text;

  WEIR_HOST_DEVICE bool operator()(std::uint64_t i) const {
    return is_letter(text[i]) && (i == 0 || !is_letter(text[i - 1]));
  }
};

struct hash_word {  // FNV-1a
  char const* text;
  std::uint64_t size;

  WEIR_HOST_DEVICE token operator()(std::uint64_t start) const {
    std::uint64_t hash = 0xcbf29ce484222325u;
    for (std::uint64_t i = start; i < size && is_letter(text[i]); ++i)
      hash = (hash ^ static_cast<unsigned char>(lower(text[i]))) * 0x100000001b3u;
    return {hash, start};
  }
};

/// Orders words by hash, and by their letters where hashes are equal: so counts are exact whatever the hash does.
struct word_order {
  char const* text;
  std::uint64_t size;

  WEIR_HOST_DEVICE int compare(token a, token b) const {
    if (a.hash != b.hash) return a.hash < b.hash ? -1 : 1;
    for (;; ++a.start, ++b.start) {
      bool const a_ends = a.start == size || !is_letter(text[a.start]);
      bool const b_ends = b.start == size || !is_letter(text[b.start]);
      if (a_ends || b_ends) return static_cast<int>(b_ends) - static_cast<int>(a_ends);
      int const difference = lower(text[a.start]) - lower(text[b.start]);
      if (difference != 0) return difference;
    }
  }
};
struct word_less : word_order {
  WEIR_HOST_DEVICE bool operator()(token a, token b) const { return compare(a, b) < 0; }
};
struct word_equal : word_order {
  WEIR_HOST_DEVICE bool operator()(token a, token b) const { return compare(a, b) == 0; }
};

void require(cudaError_t code, char const* call) {
  if (code != cudaSuccess) throw weir::cuda_error(code, call, __FILE__, __LINE__);
}

template <class T>
void copy_to_host(std::vector<T>& to, weir::device_vector<T> const& from) {
  require(cudaMemcpyAsync(to.data(), thrust::raw_pointer_cast(from.data()), to.size() * sizeof(T),
                          cudaMemcpyDeviceToHost, from.stream().get()),
          "cudaMemcpyAsync");
}

/// The text's words, hashed.
weir::device_vector<token> words_of(weir::device_vector<char> const& text) {
  auto const memory = text.memory();
  auto const stream = text.stream();
  char const* const letters = thrust::raw_pointer_cast(text.data());
  thrust::counting_iterator<std::uint64_t> const first(0), last(text.size());

  auto const count = thrust::count_if(weir::policy(memory, stream), first, last, starts_word{letters});
  weir::device_vector<std::uint64_t> starts(static_cast<std::size_t>(count), memory, stream);
  thrust::copy_if(weir::policy(memory, stream), first, last, starts.begin(), starts_word{letters});

  weir::device_vector<token> words(starts.size(), memory, stream);
  thrust::transform(weir::policy(memory, stream), starts.begin(), starts.end(), words.begin(),
                    hash_word{letters, text.size()});
  return words;
}

using word_counts = std::unordered_map<std::string, std::uint64_t>;

/// Adds the words of `text` to `counts`. Throws `weir::out_of_memory` and then has added nothing.
void add_words(std::string_view text, word_counts& counts, weir::any_ref memory, weir::stream_ref stream) {
  weir::device_vector<char> on_gpu(text.size(), memory, stream);
  char* const letters = thrust::raw_pointer_cast(on_gpu.data());
  require(cudaMemcpyAsync(letters, text.data(), text.size(), cudaMemcpyHostToDevice, stream.get()), "cudaMemcpyAsync");

  auto words = words_of(on_gpu);
  word_order const order{letters, text.size()};
  thrust::sort(weir::policy(memory, stream), words.begin(), words.end(), word_less{order});

  weir::device_vector<token> distinct(words.size(), memory, stream);
  weir::device_vector<std::uint64_t> occurrences(words.size(), memory, stream);
  auto const ends = thrust::reduce_by_key(weir::policy(memory, stream), words.begin(), words.end(),
                                          thrust::constant_iterator<std::uint64_t>(1), distinct.begin(),
                                          occurrences.begin(), word_equal{order});

  std::vector<token> found(static_cast<std::size_t>(ends.first - distinct.begin()));
  std::vector<std::uint64_t> times(found.size());
  copy_to_host(found, distinct);
  copy_to_host(times, occurrences);
  require(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize");

  std::string word;
  for (std::size_t i = 0; i < found.size(); ++i) {
    word.clear();
    for (std::size_t at = found[i].start; at < text.size() && is_letter(text[at]); ++at) word += lower(text[at]);
    counts[word] += times[i];
  }
}

// ---- a service ------------------------------------------------------------------------------------------------------

struct service {
  std::string name;
  std::size_t budget;

  word_counts counts = {};
  std::size_t batches = 0;
  std::string story = {};   // what happened on the way, for people
  std::string layers = {};  // what its layers say at the end
  weir::recorded_trace trace = {};
  std::string leaks = {};  // empty if there are none
  std::string error = {};
};

/// The beginning of `text`: about `bytes`, but never half a word.
std::string_view batch_of(std::string_view text, std::size_t bytes) {
  std::size_t end = std::min(std::max<std::size_t>(bytes, 1), text.size());
  while (end < text.size() && is_letter(text[end - 1]) && is_letter(text[end])) ++end;
  return text.substr(0, end);
}

/// Counts all words, in as large batches as the budget allows.
void count_in_batches(service& self, std::string_view text, weir::any_ref memory, weir::stream_ref stream) {
  std::size_t size = text.size();
  while (!text.empty()) {
    auto const batch = batch_of(text, size);
    try {
      add_words(batch, self.counts, memory, stream);
      text.remove_prefix(batch.size());
      ++self.batches;
    } catch (weir::out_of_memory const& failure) {
      size = batch.size() / 2;
      if (batch_of(text, size).size() == batch.size()) throw;  // a single word: cannot be less
      if (self.story.empty()) self.story = std::string(failure.what()) + "\n";
      self.story += "  -> out of memory with " + weir::format_bytes(batch.size()) + " of text, trying " +
                    weir::format_bytes(size) + "\n";
    }
  }
}

template <class... Layers>
std::string lines_of(Layers const&... layers) {
  weir::report out;
  (layers.describe_layer(out), ...);
  return out.lines();
}

/// What a service does with the memory that all share: a budget inside it, counted, logged and traced.
template <weir::resource Shared>
void run(service& self, std::string_view text, Shared& gpu_memory) try {
  auto const log = std::filesystem::temp_directory_path() / ("weir-quickstart-%p-" + self.name + ".csv");
  weir::stream const stream;
  weir::tag const tag(self.name);
  auto memory = weir::make(weir::share(gpu_memory)                  //
                           | weir::limit{.max_bytes = self.budget}  //
                           | weir::statistics{}                     //
                           | weir::logging{.path = log.string()}    //
                           | weir::trace{.name = self.name, .exact_times = true});
  count_in_batches(self, text, memory, stream);

  self.trace = weir::trace_of(memory);
  auto const& limit = weir::find<weir::limit_resource>(memory);
  auto const& statistics = weir::find<weir::statistics_resource>(memory);
  self.layers = lines_of(memory, statistics, limit);
  if (auto const live = statistics.numbers().allocations.current; live != 0 || limit.used() != 0)
    self.leaks = self.name + ": " + std::to_string(live) + " allocations, " + weir::format_bytes(limit.used()) + "\n";
} catch (std::exception const& failure) {
  self.error = failure.what();
}

// ---- the program ----------------------------------------------------------------------------------------------------

/// Appends a file. Returns false, with the reason in errno, if it cannot be read.
bool read_file(std::string const& path, std::string& text) {
  std::FILE* const file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) return false;
  char buffer[1 << 16];
  while (std::size_t const n = std::fread(buffer, 1, sizeof buffer, file)) text.append(buffer, n);
  int const reason = std::ferror(file) != 0 ? errno : 0;
  std::fclose(file);
  text += '\n';  // the next file starts a new word
  errno = reason;
  return reason == 0;
}

/// The files of the default folder; links are left out, since they name files that are there too.
std::vector<std::string> default_files() {
  std::vector<std::string> files;
  std::error_code missing;
  for (auto const& entry : std::filesystem::directory_iterator(default_folder, missing))
    if (entry.is_regular_file() && !entry.is_symlink()) files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  if (files.empty()) files.push_back(default_folder);  // reading that says what is wrong
  return files;
}

void print(service const& self, std::size_t top) {
  std::vector<std::pair<std::string, std::uint64_t>> ranking(self.counts.begin(), self.counts.end());
  std::sort(ranking.begin(), ranking.end(), [](auto const& a, auto const& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  std::uint64_t words = 0;
  for (auto const& entry : ranking) words += entry.second;

  std::printf("service %s: budget %s\n%s", self.name.c_str(), weir::format_bytes(self.budget).c_str(),
              self.story.c_str());
  std::printf("  %llu words, %zu of them different, in %zu %s; the most frequent:\n",
              static_cast<unsigned long long>(words), ranking.size(), self.batches,
              self.batches == 1 ? "batch" : "batches");
  for (std::size_t i = 0; i < std::min(top, ranking.size()); ++i)
    std::printf("%9llu %s\n", static_cast<unsigned long long>(ranking[i].second), ranking[i].first.c_str());
  std::printf("%s\n", self.layers.c_str());
}

int run_services(std::string_view text, std::size_t top) {
  auto memory = weir::make(weir::async{} | weir::trace{.name = "pool", .exact_times = true} |
                           weir::pool{.initial_bytes = 16_MiB});

  // Counting takes about eight times the text's size: the first budget always suffices, the second never at once.
  service services[] = {{.name = "ample", .budget = 64 * text.size() + 1_MiB},
                        {.name = "tight", .budget = std::max(2 * text.size(), 64_KiB)}};
  {
    std::vector<std::thread> threads;
    for (auto& each : services) threads.emplace_back([&] { run(each, text, memory); });
    for (auto& each : threads) each.join();
  }

  bool failed = false;
  std::string leaks;
  for (auto const& each : services) {
    print(each, top);
    leaks += each.leaks;
    if (!each.error.empty()) {
      std::fprintf(stderr, "quickstart: service %s failed: %s\n", each.name.c_str(), each.error.c_str());
      failed = true;
    }
  }
  std::printf("shared by both:\n%s\n", weir::report_of(memory).lines().c_str());
  if (auto const left = memory.numbers().requested.current; left != 0)
    leaks += "pool: " + weir::format_bytes(left) + "\n";
  std::printf("leaks: %s\n", leaks.empty() ? "none" : ("\n" + leaks).c_str());
  if (char const* const path = std::getenv("WEIR_REPORT"); path != nullptr && *path != '\0') {
    auto const all = weir::merged({services[0].trace, services[1].trace, weir::trace_of(memory)});
    weir::write_report({{"quickstart", all, weir::snapshot(memory)}}, path);
    std::printf("report: %s\n", path);
  }
  if (!failed && services[0].counts != services[1].counts) {
    std::fprintf(stderr, "quickstart: the services counted differently\n");
    failed = true;
  }
  return failed || !leaks.empty() ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> files(argv + 1, argv + argc);
  std::size_t top = 10;
  if (files.size() >= 2 && files[0] == "--top") {
    char const* const end = files[1].data() + files[1].size();
    if (auto const parsed = std::from_chars(files[1].data(), end, top); parsed.ec != std::errc() || parsed.ptr != end) {
      std::fprintf(stderr, "quickstart: --top needs a number, not \"%s\"\n", files[1].c_str());
      return 2;
    }
    files.erase(files.begin(), files.begin() + 2);
  }
  if (files.empty()) files = default_files();

  std::string text;
  for (auto const& path : files) {
    if (read_file(path, text)) continue;
    std::fprintf(stderr, "quickstart: cannot read %s: %s\n", path.c_str(), std::strerror(errno));
    return 2;
  }
  std::printf("%zu %s, %s of text\n\n", files.size(), files.size() == 1 ? "file" : "files",
              weir::format_bytes(text.size()).c_str());
  try {
    return run_services(text, top);
  } catch (std::exception const& failure) {
    std::fprintf(stderr, "quickstart: %s\n", failure.what());
    return 1;
  }
}
