#include "agent/engine/span_log.hpp"

namespace atl::agent {

void SpanLog::add(const RunId& run, Span span) {
  const std::lock_guard lock(mutex_);
  if (spans_.size() == kHeld) {
    spans_.pop_front();
  }
  spans_.emplace_back(run, std::move(span));
}

std::vector<Timeline> SpanLog::take() {
  std::deque<std::pair<RunId, Span>> taken;
  {
    const std::lock_guard lock(mutex_);
    taken.swap(spans_);
  }
  std::vector<Timeline> timelines;
  for (auto& [run, span] : taken) {
    if (timelines.empty() || timelines.back().run != run || timelines.back().spans.size() == kMaxListItems) {
      timelines.push_back(Timeline{run, {}});
    }
    timelines.back().spans.push_back(std::move(span));
  }
  return timelines;
}

}  // namespace atl::agent
