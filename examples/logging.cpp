// Every allocation and free goes to a CSV file, which RMM's tools can replay, and which is read again here.
#include <weir/adaptors/limit.hpp>
#include <weir/adaptors/logging.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sources/async.hpp>

#include <cstdio>
#include <fstream>
#include <string>

using namespace weir::literals;

int main() {
  std::string const path = "example-memory.csv";
  {
    auto memory = weir::make(weir::async{} | weir::limit{1_MiB} | weir::logging{.path = path});
    weir::stream const stream;
    void* const a = memory.allocate(stream, 1000);
    void* const b = memory.allocate(stream, 500_KiB);
    try {
      memory.allocate(stream, 1_GiB);
    } catch (weir::out_of_memory const&) {
      std::puts("one request was refused; the log has it already");
    }
    memory.deallocate(stream, b, 500_KiB);
    memory.deallocate(stream, a, 1000);
    stream.synchronize();
  }  // here the rest of the lines is written

  int allocations = 0, frees = 0, failures = 0;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::puts(line.c_str());
    allocations += line.find(",allocate,") != std::string::npos;
    frees += line.find(",free,") != std::string::npos;
    failures += line.find(",allocate failure,") != std::string::npos;
  }
  file.close();
  std::remove(path.c_str());
  return allocations == 2 && frees == 2 && failures == 1 ? 0 : 1;
}
