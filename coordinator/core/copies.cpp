#include "coordinator/core/copies.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "coordinator/core/core_state.hpp"
#include "transport/base/store_address.hpp"

namespace atl::coordinator {

std::optional<IslandId> decide_copier(const std::vector<CopyCandidate>& candidates, const std::map<IslandId, unsigned>& failures,
                                      const IslandId& last) {
  const auto rank = [&](const IslandId& island) {
    const auto failed = failures.find(island);
    return std::pair(failed == failures.end() ? 0U : failed->second, island == last ? 0 : 1);
  };
  std::optional<IslandId> best;
  for (const CopyCandidate& candidate : candidates) {
    if (candidate.may && (!best || rank(candidate.island) < rank(*best))) {
      best = candidate.island;
    }
  }
  return best;
}

bool Copies::ask(Round round, const std::vector<CopyCandidate>& candidates, std::vector<DataRange> data) {
  const std::optional<IslandId> chosen = decide_copier(candidates, failures_, copier_);
  if (!chosen) {
    return std::exchange(told_, true);
  }
  told_ = false;
  round_ = round;
  copier_ = *chosen;
  data_ = std::move(data);
  return true;
}

const std::vector<DataRange>* Copies::asked(const IslandId& island, Round round) const {
  return round > Round(0) && round == round_ && island == copier_ ? &data_ : nullptr;
}

void Copies::made(const IslandId& island, Round round) {
  failures_.erase(island);
  newest_ = std::max(newest_, round);
}

void Copies::roll_back(Round round) {
  if (newest_ > round) {
    newest_ = Round(0);
  }
}

// ----------------------------------------------------------------------------------------------------------- in the core

// Also of a run that is over: its last checkpoint is copied behind it.
void Core::State::on_copied(const IslandId& island, const Copied& message) {
  const auto found = runs.find(message.run);
  if (found == runs.end() || !found->second.memberships.contains(island) || found->second.spec.checkpoint.copy.empty()) {
    return;
  }
  Run& run = found->second;
  const std::string what = "the checkpoint of round " + std::to_string(message.round.value);
  const std::string place = bounded(message.place);
  std::vector<Field> fields = {Field{"round", static_cast<std::int64_t>(message.round.value)}, Field{"digest", to_hex(message.digest)},
                               Field{"place", place}};
  if (message.error) {
    run.copies.failed(island);
    islands.tell(run.about.id, island, "warning", "checkpoint_not_copied",
                 what + " was not copied by island " + islands.name_of(island) + " to " + place + ": " + bounded(message.error->why) +
                     "; the run goes on",
                 std::move(fields), out);
    return;
  }
  fields.push_back(Field{"bytes", static_cast<std::int64_t>(message.bytes)});
  if (std::isfinite(message.seconds)) {
    fields.push_back(Field{"seconds", message.seconds});
  }
  islands.tell(run.about.id, island, "info", "checkpoint_copied",
               what + " was copied by island " + islands.name_of(island) + " to " + place + ": " + human_bytes(message.bytes) + ", " +
                   human_bytes(message.sent_bytes) + " of it now",
               std::move(fields), out);
  if (run.rule->confirms(run, message.round, message.digest)) {
    run.copies.made(island, message.round);
    run.lineage.has_checkpoint(message.round);
    record(run.to_record());
  }
}

}  // namespace atl::coordinator
