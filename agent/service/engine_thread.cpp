#include "agent/service/engine_thread.hpp"

#include <poll.h>

#include <algorithm>
#include <array>
#include <utility>

namespace atl::agent {
namespace {

constexpr Duration kLongestSleep = std::chrono::seconds(1);

int timeout_ms(std::optional<TimePoint> deadline) {
  const Duration until = deadline ? std::min<Duration>(*deadline - now(), kLongestSleep) : kLongestSleep;
  return static_cast<int>(std::max<std::int64_t>(0, std::chrono::ceil<std::chrono::milliseconds>(until).count()));
}

}  // namespace

EngineSettings EngineThread::with_threads(EngineSettings settings) {
  settings.beside = [this](std::function<bool()> some) { side_.run(std::move(some)); };
  settings.in_parts = [this](std::size_t count, const std::function<void(std::size_t)>& part) { workers_.each(count, part); };
  return settings;
}

EngineThread::EngineThread(EngineSettings settings, std::unique_ptr<BulkLink> link, unsigned threads)
    : workers_(threads), engine_(with_threads(std::move(settings)), std::move(link)) {
  thread_ = std::thread([this] { loop(); });
}

EngineThread::~EngineThread() {
  ending_ = true;
  commands_.push(ServeStored{});  // wakes it
  thread_.join();
}

void EngineThread::loop() {
  TimePoint next_look{};
  while (!ending_) {
    if (const TimePoint at = now(); at >= next_look) {
      pieces_sent_ = engine_.pieces_sent();
      next_look = at + kLongestSleep / 2;
    }
    while (const std::optional<EngineCommand> command = commands_.pop()) {
      engine_.step(*command);
      hand_out();
      if (ending_) {
        return;
      }
    }
    const bool more = engine_.turn();
    hand_out();
    std::array<pollfd, 2> fds = {{{commands_.fd(), POLLIN, 0}, {engine_.pollable_fd(), POLLIN, 0}}};
    ::poll(fds.data(), fds.size(), more ? 0 : timeout_ms(engine_.next_deadline()));
  }
}

void EngineThread::hand_out() {
  for (EngineAnswer& answer : engine_.take_answers()) {
    answers_.push(std::move(answer));
  }
}

void EngineThread::post(EngineCommand command) { commands_.push(std::move(command)); }

}  // namespace atl::agent
