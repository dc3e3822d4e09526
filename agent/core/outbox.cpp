#include "agent/core/outbox.hpp"

namespace atl::agent {
namespace {

constexpr std::size_t kUnsaidEvents = 64;

}  // namespace

void Outbox::tell(RunId run, std::string level, std::string kind, std::string text) {
  effect(Notice{(run.empty() ? std::string() : "run " + run.text + ": ") + text, level});  // whoever reads this agent's log sees it, too
  IslandEvent event{std::move(run), std::move(level), std::move(kind), std::move(text)};
  if (linked_) {
    send(std::move(event));
    return;
  }
  unsaid_.push_back(std::move(event));
  if (unsaid_.size() > kUnsaidEvents) {
    unsaid_.pop_front();
  }
}

void Outbox::set_linked(bool linked) {
  linked_ = linked;
  while (linked_ && !unsaid_.empty()) {
    send(std::move(unsaid_.front()));
    unsaid_.pop_front();
  }
}

}  // namespace atl::agent
