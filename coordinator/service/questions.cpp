#include "coordinator/service/questions.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <utility>

namespace atl::coordinator {

Result<std::unique_ptr<Questions>> Questions::open() {
  const int fd = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (fd < 0) {
    return Error{Code::io, std::string("cannot make an event descriptor: ") + std::strerror(errno)};
  }
  return std::unique_ptr<Questions>(new Questions(fd));
}

Questions::~Questions() { ::close(fd_); }

Result<std::string> Questions::ask(const std::string& verb, const std::string& arguments, Duration patience) {
  // Who asks may give up before the answer comes, so what it comes into belongs to both.
  const auto reply = std::make_shared<std::optional<Result<std::string>>>();
  std::unique_lock lock(mutex_);
  if (stopped_) {
    return Error{Code::unavailable, "the coordinator stops"};
  }
  if (waiting_.size() >= kMostWaiting) {
    return Error{Code::unavailable, "the coordinator is busy; try again in a moment"};
  }
  waiting_.push_back({verb, arguments, [this, reply](Result<std::string> document) {
                        const std::lock_guard answering(mutex_);
                        *reply = std::move(document);
                        answered_.notify_all();
                      }});
  const std::uint64_t one = 1;
  (void)!::write(fd_, &one, sizeof one);  // cannot fail before 2^64 questions wait
  answered_.wait_for(lock, patience, [&] { return reply->has_value() || stopped_; });
  if (reply->has_value()) {
    return std::move(**reply);
  }
  return Error{Code::unavailable, stopped_ ? "the coordinator stops" : "the coordinator did not answer in time; try again in a moment"};
}

std::optional<Questions::Question> Questions::take() {
  const std::lock_guard lock(mutex_);
  if (waiting_.empty()) {
    std::uint64_t count = 0;
    (void)!::read(fd_, &count, sizeof count);  // nothing waits, so nothing may wake the coordinator
    return std::nullopt;
  }
  Question question = std::move(waiting_.front());
  waiting_.pop_front();
  return question;
}

void Questions::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  waiting_.clear();
  answered_.notify_all();
}

}  // namespace atl::coordinator
