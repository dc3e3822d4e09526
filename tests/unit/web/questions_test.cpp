// What other threads ask the coordinator: answered by its thread, bounded, and never a reason for it to wait.
#include "coordinator/service/questions.hpp"

#include <poll.h>

#include <atomic>
#include <thread>
#include <vector>

#include "tests/catch.hpp"

namespace of_web_questions_test {

using namespace atl;
using namespace atl::coordinator;

namespace {

bool readable(int fd, int wait_ms) {
  pollfd one{fd, POLLIN, 0};
  return ::poll(&one, 1, wait_ms) == 1;
}

constexpr Duration kLong = std::chrono::seconds(30);

}  // namespace

TEST_CASE("a question wakes the coordinator and gets its answer") {
  const auto questions = std::move(Questions::open()).value();
  CHECK_FALSE(readable(questions->fd(), 0));
  std::thread asks([&] { CHECK(*questions->ask("status", "{}", kLong) == "document"); });
  CHECK(readable(questions->fd(), 10'000));
  auto question = questions->take();
  REQUIRE(question);
  CHECK(question->verb == "status");
  question->answer(std::string("document"));
  asks.join();
  CHECK_FALSE(questions->take());
  CHECK_FALSE(readable(questions->fd(), 0));
}

TEST_CASE("who asks in vain hears so, and an answer that comes too late goes nowhere") {
  const auto questions = std::move(Questions::open()).value();
  const auto unanswered = questions->ask("status", "{}", Duration{});
  REQUIRE_FALSE(unanswered);
  CHECK(unanswered.error().code == Code::unavailable);
  questions->take()->answer(std::string("late"));
  for (std::size_t i = 0; i < Questions::kMostWaiting + 3; ++i) {
    CHECK_FALSE(questions->ask("status", "{}", Duration{}));
  }
  std::size_t waited = 0;
  while (questions->take()) {
    ++waited;
  }
  CHECK(waited == Questions::kMostWaiting);
}

TEST_CASE("when the coordinator stops everybody who waits is told") {
  const auto questions = std::move(Questions::open()).value();
  std::atomic<int> told = 0;
  std::vector<std::thread> asking;
  for (int i = 0; i < 4; ++i) {
    asking.emplace_back([&] { told += questions->ask("runs", "{}", kLong) ? 0 : 1; });
  }
  CHECK(readable(questions->fd(), 10'000));
  questions->stop();
  for (std::thread& thread : asking) {
    thread.join();
  }
  CHECK(told == 4);
  CHECK_FALSE(questions->ask("runs", "{}", kLong));
}

}  // namespace of_web_questions_test
