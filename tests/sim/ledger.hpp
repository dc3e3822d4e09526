// A coordinator's ledger in memory: the newest record of each key, as the SQLite one keeps them.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "coordinator/core/core.hpp"

namespace atl::sim {

// What the coordinator made durable.
struct Ledger {
  std::map<RunId, coordinator::RunRecord> runs;
  std::map<std::pair<RunId, IslandId>, coordinator::MembershipRecord> memberships;
  std::map<RunId, coordinator::EpochRecord> epochs;
  std::map<IslandId, coordinator::IslandRecord> islands;
  std::map<std::tuple<RunId, std::uint32_t, Round>, coordinator::RoundRecord> rounds;
  std::map<std::pair<RunId, std::uint32_t>, coordinator::PartRecord> parts;
  std::map<std::tuple<RunId, std::uint32_t, std::uint64_t>, coordinator::StretchRecord> stretches;
  std::map<std::pair<RunId, std::string>, coordinator::TaskRecord> tasks;
  std::map<std::tuple<RunId, std::uint32_t, IslandId, Round, Fate>, coordinator::DroppedRecord> dropped;
  std::map<RunId, coordinator::RemovedRecord> removed;
  std::map<std::string, std::size_t> events;  // by kind
  std::vector<std::string> disputes;          // what those said that tell of results that differ
  Generation generation;
  std::optional<coordinator::Superseded> superseded;

  void remove(const coordinator::RemovedRecord& run);
  void apply(const std::vector<coordinator::Record>& records);
  [[nodiscard]] coordinator::Recovered recovered() const;
};

}  // namespace atl::sim
