// The log that people read.
#include "cli/line/log_sink.hpp"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/catch.hpp"

namespace of_log_sink_test {

using namespace atl;

TEST_CASE("what is said thousands of times is printed a few times") {
  std::ostringstream err;
  install_log_sink(err, LogLevel::info, false);
  for (int i = 0; i < 5000; ++i) {
    log_warning("too many open files");
    log_info("round " + std::to_string(i));
  }
  log_warning("another thing");
  set_log_sink({});
  const std::string text = err.str();
  const auto count = [&](const std::string& part) {
    std::size_t found = 0;
    for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
      ++found;
    }
    return found;
  };
  CHECK(count("too many open files") == 5);
  CHECK(count("another thing") == 1);
  CHECK(count("round ") == 5000);
}

// A stream whose reader stands still until it is let go.
class Held : public std::stringbuf {
 public:
  void let_go() {
    const std::scoped_lock lock(mutex_);
    free_ = true;
    go_.notify_all();
  }
  void wait_for(const std::string& text) {
    std::unique_lock lock(mutex_);
    go_.wait(lock, [&] { return str().ends_with(text); });
  }

 protected:
  std::streamsize xsputn(const char* text, std::streamsize size) override {
    std::unique_lock lock(mutex_);
    go_.wait(lock, [&] { return free_; });
    const std::streamsize written = std::stringbuf::xsputn(text, size);
    go_.notify_all();
    return written;
  }

 private:
  std::mutex mutex_;
  std::condition_variable go_;
  bool free_ = false;
};

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) {
    lines.push_back(line.substr(9));  // without the time
  }
  return lines;
}

TEST_CASE("who logs beside waits for no reader, and nothing is lost that there is room for") {
  Held held;
  std::ostream err(&held);
  install_log_sink(err, LogLevel::info, false, LogWrites::beside);
  std::vector<std::string> said;
  for (int i = 0; i < 1000; ++i) {  // a log that were written here would stand for ever
    said.push_back("line " + std::to_string(i));
    log_info(said.back());
  }
  held.let_go();
  set_log_sink({});
  CHECK(lines_of(held.str()) == said);
}

TEST_CASE("of more lines than may wait the last ones are kept and the others counted") {
  Held held;
  std::ostream err(&held);
  install_log_sink(err, LogLevel::info, false, LogWrites::beside);
  constexpr int kSaid = 10'000;
  for (int i = 0; i < kSaid; ++i) {
    log_info("line " + std::to_string(i));
  }
  held.let_go();
  held.wait_for("line " + std::to_string(kSaid - 1) + "\n");
  log_info("at last");
  set_log_sink({});
  const std::vector<std::string> lines = lines_of(held.str());
  REQUIRE(lines.size() >= 3);
  CHECK(lines.back() == "at last");
  CHECK(std::ranges::count(lines, "line " + std::to_string(kSaid - 1)) == 1);
  const std::size_t lost = kSaid + 1 + 1 - lines.size();  // all that was said and the line that counts, without what is there
  CHECK(lost > 4000);
  CHECK(std::ranges::count(lines,
                           "warning: the log is written too slowly where it goes: " + std::to_string(lost) + " lines were left out") == 1);
}

TEST_CASE("the thread that writes the log takes no signal from those who wait for one") {
  std::ostringstream err;
  sigset_t before;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &before);
  install_log_sink(err, LogLevel::info, false, LogWrites::beside);
  sigset_t after;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &after);
  CHECK(::sigismember(&after, SIGTERM) == ::sigismember(&before, SIGTERM));
  // Of all threads only this one may be given SIGTERM, and it blocks it: were the writer able to take it, this process would end here.
  sigset_t term;
  ::sigemptyset(&term);
  ::sigaddset(&term, SIGTERM);
  ::pthread_sigmask(SIG_BLOCK, &term, nullptr);
  ::kill(::getpid(), SIGTERM);
  timespec patience{1, 0};
  CHECK(::sigtimedwait(&term, nullptr, &patience) == SIGTERM);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  set_log_sink({});
}

}  // namespace of_log_sink_test
