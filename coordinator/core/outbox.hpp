// What one step of the core brings: records, messages, and when to look again. The core and its machines write into it, and read the
// time from it.
// Threads: owned by one core.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/core/core.hpp"

namespace atl::coordinator {

// When an unanswered message is said again: after `resend`, then less often, down to a quarter as often.
struct Resend {
  TimePoint next;
  Duration interval{};
};

class Outbox {
 public:
  // resend: after which an unanswered message is said again for the first time.
  Outbox(TimePoint now, Duration resend) : now_(now), resend_(resend) {}

  // Time never goes back.
  void advance_to(TimePoint now) { now_ = std::max(now, now_); }
  [[nodiscard]] TimePoint now() const { return now_; }

  void record(Record value) { ready_.records.push_back(std::move(value)); }
  void event(const RunId& run, const IslandId& island, std::string level, std::string kind, std::string text,
             std::vector<Field> fields = {});
  void post(const IslandId& island, std::uint64_t boot, Message message) {
    ready_.messages.push_back(Outgoing{island, boot, std::move(message)});
  }
  [[nodiscard]] std::size_t said() const { return ready_.messages.size() + ready_.records.size(); }
  Ready take() { return std::exchange(ready_, Ready{}); }

  // The core is to be called then, at the latest; in a millisecond, if that is past.
  void wake_at(TimePoint time);
  void sleep() { wake_.reset(); }
  [[nodiscard]] std::optional<TimePoint> wake() const { return wake_; }

  // Whether it is time to say something again; then the next time is set.
  [[nodiscard]] bool due(Resend& resend) const;
  void restart(Resend& resend) const { resend = Resend{now_ + resend_, resend_}; }

 private:
  TimePoint now_;
  Duration resend_;
  Ready ready_;
  std::optional<TimePoint> wake_;
};

// Text from an island, cut to a size that a ledger can bear.
std::string bounded(const std::string& text, std::size_t limit = 4096);

}  // namespace atl::coordinator
