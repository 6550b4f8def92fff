// needs: tsan
#include <weir/adaptors/detail/log_file.hpp>

#include <doctest/doctest.h>

#include <sys/resource.h>
#include <sys/wait.h>

#include <csignal>
#include <filesystem>
#include <thread>

#include "support/temporary_folder.hpp"
#include "support/test_source.hpp"

using namespace weir::test;
using weir::detail::log_file;

namespace {

weir::detail::log_file_options at(std::string const& path, std::size_t buffer_bytes = 4096) {
  return {.path = path, .mode = 0600, .follow_links = false, .buffer_bytes = buffer_bytes};
}

unsigned mode_of(std::string const& path) {
  return static_cast<unsigned>(std::filesystem::status(path).permissions()) & 0777U;
}

/// Runs `work` in a child that then exits as any program does; the child's status.
int in_child(auto work) {
  std::fflush(nullptr);  // or the child prints it again
  ::pid_t const child = ::fork();
  if (child == 0) {
    work();
    std::exit(0);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  return status;
}

}  // namespace

// First in this file: the log's own exit function is registered when the first log is opened, here in the child.
TEST_CASE("what is logged after the exit functions of the log itself still arrives") {
  temporary_folder const folder;
  std::string const path = folder / "log";
  static std::string later;  // static: exit functions take no arguments
  static log_file* log = nullptr;
  later = folder / "later";
  CHECK(in_child([&] {
          std::atexit([] {
            log->append("very late\n", false);  // registered earlier, so it runs later
            log_file::open(at(later), "").append("opened very late\n", false);
          });
          log = &log_file::open(at(path), "header\n");
        }) == 0);
  CHECK(text_of(path) == "header\nvery late\n");
  CHECK(text_of(later) == "opened very late\n");
}

TEST_CASE("lines wait in the buffer until it is full, until they are wanted, or until the end") {
  temporary_folder const folder;
  std::string const path = folder / "log";
  log_file& log = log_file::open(at(path, 512), "header\n");
  CHECK(text_of(path) == "header\n");
  std::string const line(199, 'a');
  log.append(line + "\n", false);
  log.append(line + "\n", false);
  CHECK(text_of(path) == "header\n");
  log.append(line + "\n", false);  // the third does not fit: the first two go out, whole
  CHECK(text_of(path).size() == 7 + 400);
  log.flush();
  CHECK(text_of(path).size() == 7 + 600);
  log.append("now\n", true);
  CHECK(text_of(path).size() == 7 + 604);
  log.append("late\n", false);
  log.release();
  CHECK(text_of(path).size() == 7 + 609);
}

TEST_CASE("without a buffer each line is written at once") {
  temporary_folder const folder;
  std::string const path = folder / "log";
  log_file& log = log_file::open(at(path, 0), "");
  log.append("a\n", false);
  CHECK(text_of(path) == "a\n");
  log.release();
}

TEST_CASE("a log that exists is emptied, and nobody else may read the new one") {
  temporary_folder const folder;
  std::string const path = folder / "log";
  std::ofstream(path) << "old and longer than the header\n";
  std::filesystem::permissions(path, std::filesystem::perms(0644));
  log_file& log = log_file::open(at(path), "header\n");
  CHECK(text_of(path) == "header\n");
  CHECK(mode_of(path) == 0600);
  log.release();
}

TEST_CASE("the mode is what was asked for") {
  temporary_folder const folder;
  auto options = at(folder / "log");
  options.mode = 0640;
  ::mode_t const mask = ::umask(022);
  log_file& log = log_file::open(options, "");
  ::umask(mask);
  CHECK(mode_of(options.path) == 0640);
  log.release();
}

TEST_CASE("a symbolic link is followed only where that was asked for") {
  temporary_folder const folder;
  std::string const target = folder / "target", link = folder / "link";
  std::ofstream(target) << "precious\n";
  std::filesystem::create_symlink(target, link);
  std::string const what = message_of<std::system_error>([&] { log_file::open(at(link), "header\n"); });
  CHECK(contains(what, "a symbolic link"));
  CHECK(contains(what, link));
  CHECK(text_of(target) == "precious\n");
  auto options = at(link);
  options.follow_links = true;
  log_file& log = log_file::open(options, "header\n");
  log.release();
  CHECK(text_of(target) == "header\n");
}

TEST_CASE("what cannot be opened or written is an error with the path and the reason") {
  temporary_folder const folder;
  std::string const missing = message_of<std::system_error>([&] { log_file::open(at(folder / "no/log\n"), ""); });
  CHECK(contains(missing, folder / "no/log\\n"));
  CHECK(contains(missing, "No such file or directory"));
  CHECK(contains(message_of<std::system_error>([] { log_file::open(at("/dev/full"), "header\n"); }), "No space left"));
  CHECK(contains(message_of<std::system_error>([&] { log_file::open(at(folder / "."), ""); }), "Is a directory"));
  std::string const pipe = folder / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);  // nobody reads it: opening it must not hang
  CHECK(contains(message_of<std::system_error>([&] { log_file::open(at(pipe), ""); }), "No such device or address"));
}

TEST_CASE("two users of one file share it, whatever they call it") {
  temporary_folder const folder;
  std::string const path = folder / "log";
  log_file& first = log_file::open(at(path), "header\n");
  first.append("1\n", false);
  log_file& second = log_file::open(at(folder / "./log"), "header\n");
  CHECK(&first == &second);
  second.append("2\n", false);
  first.release();
  CHECK(text_of(path) == "header\n");
  second.append("3\n", false);
  second.release();
  CHECK(text_of(path) == "header\n1\n2\n3\n");
}

TEST_CASE("who shares a file leaves its mode as the first wanted it") {
  temporary_folder const folder;
  auto options = at(folder / "log");
  options.mode = 0640;
  ::mode_t const mask = ::umask(022);
  log_file& first = log_file::open(options, "");
  ::umask(mask);
  log_file& second = log_file::open(at(options.path), "");
  CHECK(&first == &second);
  CHECK(mode_of(options.path) == 0640);
  second.release();
  first.release();
}

TEST_CASE("lines that cannot be written are counted, and no half line stays behind") {
  temporary_folder const folder;
  std::string const path = folder / "log";
  log_file& log = log_file::open(at(path), "header\n");
  auto const before = std::signal(SIGXFSZ, SIG_IGN);
  rlimit old{};
  ::getrlimit(RLIMIT_FSIZE, &old);
  rlimit const small{.rlim_cur = 7 + 5, .rlim_max = old.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &small);
  for (char const* line : {"aaa\n", "bbb\n", "ccc\n"}) log.append(line, false);
  errno = 123;
  log.flush();
  int const after = errno;
  ::setrlimit(RLIMIT_FSIZE, &old);
  CHECK(after == 123);
  CHECK(log.lost() == 2);
  CHECK(text_of(path) == "header\naaa\n");
  log.append("ddd\n", true);  // there is room again
  CHECK(text_of(path) == "header\naaa\nddd\n");
  CHECK(log.lost() == 2);
  log.release();
  std::signal(SIGXFSZ, before);
}

TEST_CASE("a log that is never released is complete when the process has exited") {
  temporary_folder const folder;
  std::string const path = folder / "log";
  static log_file* log = nullptr;  // reachable, so no leak in the eyes of a checker
  CHECK(in_child([&] {
          log = &log_file::open(at(path), "header\n");
          std::atexit([] { log->append("in an exit function\n", false); });
          log->append("in main\n", false);
        }) == 0);
  CHECK(text_of(path) == "header\nin main\nin an exit function\n");
}

TEST_CASE("a forked child writes nothing of its parent's lines") {
  temporary_folder const folder;
  std::string const path = folder / "log";
  log_file& log = log_file::open(at(path), "header\n");
  log.append("once\n", false);
  CHECK(in_child([&] {
          log.append("of the child\n", true);
          log.release();
        }) == 0);
  CHECK(text_of(path) == "header\n");
  log.release();
  CHECK(text_of(path) == "header\nonce\n");
}

TEST_CASE("a forked child may write a log of its own") {
  temporary_folder const folder;
  std::string const path = folder / "log";
  log_file& log = log_file::open(at(folder / "parent"), "");
  CHECK(in_child([&] { log_file::open(at(path), "header\n").append("of the child\n", false); }) == 0);
  CHECK(text_of(path) == "header\nof the child\n");
  // Even under its parent's name it gets one of its own, not the object that must not write.
  CHECK(in_child([&] { log_file::open(at(folder / "parent"), "").append("again\n", false); }) == 0);
  CHECK(text_of(folder / "parent") == "again\n");
  log.release();
}

TEST_CASE("eight threads: every line arrives once and whole") {
  temporary_folder const folder;
  std::string const path = folder / "log";
  std::vector<std::thread> threads;
  constexpr int lines = 500;
  log_file& log = log_file::open(at(path, 300), "");
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      log_file& mine = log_file::open(at(path), "");  // opening and closing among the writers
      for (int i = 0; i < lines; ++i) mine.append(std::to_string(t) + "," + std::to_string(i) + "\n", i % 100 == 0);
      mine.release();
    });
  for (auto& thread : threads) thread.join();
  log.release();
  std::vector<int> next(8);
  for (auto const& record : records_of(path)) {
    REQUIRE(record.size() == 2);
    CHECK(std::stoi(record[1]) == next.at(std::stoul(record[0]))++);
  }
  for (int const count : next) CHECK(count == lines);
}
