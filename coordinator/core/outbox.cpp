#include "coordinator/core/outbox.hpp"

#include <algorithm>

#include "transport/base/planted.hpp"

namespace atl::coordinator {

std::string bounded(const std::string& text, std::size_t limit) { return text.size() <= limit ? text : text.substr(0, limit) + "…"; }

void Outbox::event(const RunId& run, const IslandId& island, std::string level, std::string kind, std::string text,
                   std::vector<Field> fields) {
  record(EventRecord{now_, run, island, std::move(level), std::move(kind), std::move(text), std::move(fields)});
}

void Outbox::wake_at(TimePoint time) {
  const TimePoint soonest = std::max(time, now_ + std::chrono::milliseconds(1));
  wake_ = wake_ ? std::min(*wake_, soonest) : soonest;
}

bool Outbox::due(Resend& resend) const {
  if (now_ < resend.next) {
    return false;
  }
  resend.interval = std::min(resend.interval * 2, resend_ * 4);
  resend.next = now_ + std::max(resend.interval, resend_);
  return !ATOLL_PLANTED(no_resend);
}

}  // namespace atl::coordinator
