// Questions: what other threads of the coordinator's process ask it, and the answers.
//
// The page and the metrics are served by threads of their own. They see the same documents as an operator (coordinator/api/documents.md),
// and only those that change nothing. Such a thread leaves its question here and waits. The coordinator's thread takes a question when it
// has nothing more urgent, and never waits for anybody: few questions wait at a time, and who asks in vain hears so at once.
// Threads: ask() any; fd(), take() and stop() the coordinator's.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "transport/base/result.hpp"
#include "transport/base/time.hpp"

namespace atl::coordinator {

class Questions {
 public:
  struct Question {
    std::string verb;
    std::string arguments;  // a JSON object
    std::function<void(Result<std::string>)> answer;
  };

  // Errors: io when the process has no descriptors left.
  static Result<std::unique_ptr<Questions>> open();
  ~Questions();
  Questions(const Questions&) = delete;
  Questions& operator=(const Questions&) = delete;

  // The document. Errors: the coordinator's own; unavailable if there is no answer within `patience`, if too many wait, or after stop().
  Result<std::string> ask(const std::string& verb, const std::string& arguments, Duration patience);

  // Readable while a question waits.
  [[nodiscard]] int fd() const { return fd_; }
  std::optional<Question> take();
  // From now on nobody gets an answer; who waits is told.
  void stop();

  static constexpr std::size_t kMostWaiting = 64;

 private:
  explicit Questions(int fd) : fd_(fd) {}

  int fd_ = -1;  // an eventfd
  std::mutex mutex_;
  std::condition_variable answered_;
  std::deque<Question> waiting_;
  bool stopped_ = false;
};

}  // namespace atl::coordinator
