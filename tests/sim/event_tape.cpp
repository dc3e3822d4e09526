#include "tests/sim/event_tape.hpp"

#include <algorithm>

#include "tests/sim/island_host.hpp"

namespace atl::sim {
namespace {

using coordinator::EventRecord;
using coordinator::Field;

template <typename T>
T field(const EventRecord& event, const std::string& key) {
  for (const Field& candidate : event.fields) {
    if (candidate.key == key && std::holds_alternative<T>(candidate.value)) {
      return std::get<T>(candidate.value);
    }
  }
  return T{};
}
std::uint64_t number(const EventRecord& event, const std::string& key) {
  return static_cast<std::uint64_t>(field<std::int64_t>(event, key));
}

std::vector<std::string> texts(const std::vector<IslandId>& ids) {
  std::vector<std::string> list;
  for (const IslandId& id : ids) {
    list.push_back(name_of(id));
  }
  return list;
}

}  // namespace

void EventTape::fail(const std::string& what) {
  if (failure_.empty()) {
    failure_ = "the events: " + what;
  }
}

void EventTape::take(const EventRecord& event) {
  using Names = std::vector<std::string>;
  using Counts = std::vector<std::uint64_t>;
  const std::uint64_t round = number(event, "round");
  const std::string name = "round " + std::to_string(round);
  if (event.kind == "membership") {
    if (number(event, "epoch") <= epoch_) {
      fail("an epoch was told twice or too late");
    }
    epoch_ = number(event, "epoch");
    memberships_[epoch_] = field<Names>(event, "members");
  } else if (event.kind == "round_planned") {
    Planned& plan = planned_[round];
    const Names members = field<Names>(event, "members");
    if (number(event, "attempt") <= plan.attempt || committed_.count(round) > 0) {
      fail(name + " was planned again without a new attempt");
    }
    const Names& active = memberships_[epoch_];
    if (number(event, "epoch") != epoch_ || std::any_of(members.begin(), members.end(), [&](const std::string& m) {
          return std::find(active.begin(), active.end(), m) == active.end();
        })) {
      fail(name + " was planned with somebody who is no member of the epoch");
    }
    plan = Planned{number(event, "attempt"), members, field<Counts>(event, "member_tokens"), false};
  } else if (event.kind == "round_retried") {
    Planned& plan = planned_[round];
    if (plan.attempt != number(event, "attempt") || plan.given_up) {
      fail(name + ": an attempt was given up that was not under way");
    }
    plan.given_up = true;
  } else if (event.kind == "round_committed") {
    const Decided decided{number(event, "attempt"), field<Names>(event, "members"), field<Counts>(event, "member_tokens"),
                          field<std::string>(event, "digest")};
    if (round > 0) {
      const Planned& plan = planned_[round];
      if (plan.given_up || plan.attempt != decided.attempt || plan.members != decided.members || plan.tokens != decided.tokens) {
        fail(name + " was committed otherwise than it was planned");
      }
      if (round > first_ && committed_.count(round - 1) == 0) {
        fail(name + " was committed before the round before it");
      }
    }
    if (!committed_.emplace(round, decided).second) {
      fail(name + " was committed twice");
    }
    planned_.erase(round);
  } else if (event.kind == "ledger_restored") {
    restored_ = true;
    committed_.clear();
    planned_.clear();
    committed_[number(event, "to")].digest = field<std::string>(event, "digest");
  } else if (event.kind == "rolled_back") {
    const auto digest = field<std::string>(event, "digest");
    const std::uint64_t to = number(event, "to");
    committed_.erase(digest.empty() ? committed_.begin() : committed_.upper_bound(to), committed_.end());
    planned_.clear();
    if (!digest.empty()) {
      // What was committed before the ledger was restored is not known here, and what a pair took by itself is nowhere told; else
      // the run goes back to what was committed.
      const auto [known, added] = committed_.try_emplace(to);
      if ((added && restored_) || (to > 0 && to < first_)) {
        known->second.digest = digest;
      } else if (known->second.digest != digest) {
        fail("the run went back to a round " + std::to_string(to) + " that was never committed");
      }
    }
  }
}

void EventTape::compare(const coordinator::EpochRecord& record) {
  const auto told = memberships_.find(record.epoch.value);
  if (told == memberships_.end() || told->second != texts(record.members)) {
    fail("epoch " + std::to_string(record.epoch.value) + " was recorded otherwise than it was told");
  }
}

void EventTape::compare(const coordinator::RoundRecord& record) {
  const std::string name = "round " + std::to_string(record.round.value);
  if (record.members.empty()) {
    return;  // the base of a new lineage, or an attempt that was given up
  }
  if (!record.committed) {
    const auto plan = planned_.find(record.round.value);
    const bool done = committed_.count(record.round.value) > 0;  // in the same transaction
    if (!done && (plan == planned_.end() || plan->second.attempt < record.attempt.value)) {
      fail(name + " was planned without an event");
    }
    return;
  }
  const auto told = committed_.find(record.round.value);
  if (told == committed_.end() || told->second.digest != to_hex(record.digest) || told->second.members != texts(record.members) ||
      (record.round.value > 0 && (told->second.tokens != each_of(record.contributions, &ContributionFacts::tokens) ||
                                  told->second.attempt != record.attempt.value))) {
    fail(name + " was recorded otherwise than it was told");
  }
}

}  // namespace atl::sim
