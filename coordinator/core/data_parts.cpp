// The data ledger: how far each part of the data is committed, who has it, and where whoever has it next goes on.
//
// A part is with one island at a time. Every contribution says which range of its part it was trained on; with the commit of its round the
// range is counted, and the part's position moves behind it. An island that comes, comes back or takes a part over begins at the position:
// so what a lost island had taken and not contributed is issued again, and nothing that is committed is. A contribution that did not count
// (not finite, out of all proportion) is passed over: its samples come again in the next epoch. After a rollback the positions are those of
// that round. Islands that keep outer states of their own say how far they are, and nothing is committed in common; in a run of phases
// tasks take the place of parts (phases.hpp).
#include <algorithm>

#include "coordinator/core/core_state.hpp"

namespace atl::coordinator {

std::uint32_t Core::State::parts_of(const Run& run) const {
  return std::max<std::uint32_t>(1, run.spec.data.parts > 0 ? run.spec.data.parts : run.spec.islands.max);
}

std::uint64_t Core::State::position_of(const Run& run, std::uint32_t part) const {
  const auto found = run.parts.find(part);
  return found == run.parts.end() ? 0 : found->second.position;
}

std::uint64_t Core::State::position_at(const Run& run, std::uint32_t part, Round round) const {
  const auto past = run.parts_at.find(round);
  if (round == run.record.committed || past == run.parts_at.end()) {
    return position_of(run, part);
  }
  const auto at = std::ranges::find(past->second, part, &DataRange::part);
  return at == past->second.end() ? 0 : at->to;
}

// The part it had, unless somebody has it now; else the free one that is least far, the lowest of those; else one of a joiner that is not
// in yet.
std::uint32_t Core::State::free_part(const Run& run, const IslandId& island) const {
  std::set<std::uint32_t> in_use;
  std::set<std::uint32_t> promised;
  for (const auto& [id, membership] : run.memberships) {
    const MembershipState state = membership.record.state;
    if (id != island && state == MembershipState::joining) {
      promised.insert(membership.record.part);
    } else if (id != island && state != MembershipState::absent && state != MembershipState::refused) {
      in_use.insert(membership.record.part);
    }
  }
  const auto own = run.memberships.find(island);
  if (own != run.memberships.end() && in_use.count(own->second.record.part) == 0 && promised.count(own->second.record.part) == 0) {
    return own->second.record.part;
  }
  const std::uint32_t parts = parts_of(run);
  std::optional<std::uint32_t> best;
  for (const bool any : {false, true}) {
    for (std::uint32_t part = 0; part < parts && (!best || !any); ++part) {
      const bool free = in_use.count(part) == 0 && (any || promised.count(part) == 0);
      if (free && (!best || position_of(run, part) < position_of(run, *best))) {
        best = part;
      }
    }
  }
  return best.value_or(static_cast<std::uint32_t>(run.memberships.size()) % parts);
}

// A joiner to whom this part was promised has to wait for another one.
void Core::State::claim_part(Run& run, const Membership& owner) {
  for (auto& [id, membership] : run.memberships) {
    if (id != owner.record.island && membership.record.state == MembershipState::joining && membership.record.part == owner.record.part) {
      vacate(run, membership, MembershipState::absent,
             "its part of the data went to " + islands.name_of(owner.record.island) + ", which came back");
      membership.retry_at = now();
    }
  }
}

void Core::State::give_part(Run& run, MembershipRecord& membership) {
  if (run.phased()) {
    return;  // its tasks say which data they are of
  }
  membership.part = free_part(run, membership.island);
  PartRecord& part = run.parts[membership.part];
  if (part.owner == membership.island) {
    return;
  }
  const IslandId before = std::exchange(part.owner, membership.island);
  part.run = run.record.id;
  part.part = membership.part;
  record(part);
  if (!before.empty()) {
    event(run.record.id, membership.island, "info", "data_handed_over",
          "part " + std::to_string(membership.part) + " of the data of run " + run.record.name + " goes from " + islands.name_of(before) +
              " to " + islands.name_of(membership.island) + ", from sequence " + std::to_string(part.position) + " on",
          {Field{"part", static_cast<std::int64_t>(membership.part)}, Field{"position", static_cast<std::int64_t>(part.position)}});
  }
}

// Why a contribution may not count: its samples are not this island's to train on, or are committed already. Empty: it may.
std::string Core::State::stale_data(const Run& run, const Membership& membership, const DataRange& data) const {
  const bool empty = data.sequences() == 0;
  if (data == DataRange{}) {
    return "";  // it says of none
  }
  if (data.part != membership.record.part) {
    return "its contribution is of part " + std::to_string(data.part) + " of the data, it has part " +
           std::to_string(membership.record.part);
  }
  if (empty) {
    return "";  // of the steps that the round before it holds
  }
  const std::uint64_t position = position_of(run, data.part);
  if (data.from < position) {
    return "its contribution holds samples that are committed already: part " + std::to_string(data.part) + " from sequence " +
           std::to_string(data.from) + " on, which is committed up to sequence " + std::to_string(position);
  }
  return "";
}

std::vector<DataRange> Core::State::snapshot(const Run& run) const {
  std::vector<DataRange> parts;
  for (const auto& [number, part] : run.parts) {
    if (part.position > 0) {
      parts.push_back(DataRange{number, 0, part.position});
    }
  }
  return parts;
}

void Core::State::count_data(Run& run, const Contribution& contribution) {
  if (contribution.data.sequences() == 0) {
    return;
  }
  PartRecord& part = run.parts[contribution.data.part];
  part.run = run.record.id;
  part.part = contribution.data.part;
  part.position = std::max(part.position, contribution.data.to);
  part.sequences = contribution.sequences > 0 ? contribution.sequences : part.sequences;
  record(part);
}

// Rounds are lost: the parts are as far as they were; what is not among them was not begun.
void Core::State::return_data(Run& run, const std::vector<DataRange>& parts) {
  for (auto& [number, part] : run.parts) {
    const auto at = std::ranges::find(parts, number, &DataRange::part);
    const std::uint64_t position = at == parts.end() ? 0 : at->to;
    if (std::exchange(part.position, position) != position) {
      record(part);
    }
  }
}

// After a restart: how far the parts were after each of the newest rounds, by taking back what the rounds after it counted.
void Core::State::undo_data(Run& run, const std::vector<RoundRecord>& rounds) {
  std::map<Round, const RoundRecord*> committed;
  for (const RoundRecord& round : rounds) {
    if (round.run == run.record.id && round.lineage == run.record.lineage && round.committed && round.round <= run.record.committed) {
      committed[round.round] = &round;
    }
  }
  std::map<std::uint32_t, std::uint64_t> positions;
  for (const auto& [number, part] : run.parts) {
    positions[number] = part.position;
  }
  Round expected = run.record.committed;
  for (auto at = committed.rbegin(); at != committed.rend() && at->first == expected; ++at) {
    std::vector<DataRange>& parts = run.parts_at[at->first];
    parts.clear();
    for (const auto& [number, position] : positions) {
      parts.push_back(DataRange{number, 0, position});
    }
    for (const DataRange& range : at->second->data) {
      if (range.sequences() > 0) {
        positions[range.part] = std::min(positions[range.part], range.from);
      }
    }
    expected = Round(expected.value == 0 ? 0 : expected.value - 1);
  }
}

// An island whose state is that of a committed round knows how far its part is by it. That is news only to a ledger that was restored from
// a backup.
void Core::State::adopt_data(Run& run, const HeldRun& held) {
  if (held.position <= position_of(run, held.part) || held.part >= parts_of(run)) {
    return;
  }
  PartRecord& part = run.parts[held.part];
  part.run = run.record.id;
  part.part = held.part;
  part.position = held.position;
  record(part);
}

}  // namespace atl::coordinator
