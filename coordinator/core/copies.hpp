// Copies of a run's checkpoints in the store that [checkpoint] copy names: who makes the next one, and the newest that is there.
//
// Of a state that all islands share one island makes the copy: whoever made the last one, if it may and can. It is asked with the commit of
// the round, and tells what came of it; nobody waits for that. Of an island that failed another one takes over with the next checkpoint.
// Islands with states of their own copy these without being asked.
// Threads: owned by one core.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "transport/base/data_share.hpp"
#include "transport/base/ids.hpp"

namespace atl::coordinator {

// A member that holds the round's result.
struct CopyCandidate {
  IslandId island;
  bool may = false;  // its owner lets it write there
};

// Who is to copy the next checkpoint: of those that may, the one with the fewest failures in a row; of these the one that copied last, else
// the first. Nobody: none may.
std::optional<IslandId> decide_copier(const std::vector<CopyCandidate>& candidates, const std::map<IslandId, unsigned>& failures,
                                      const IslandId& last);

class Copies {
 public:
  explicit Copies(Round newest = {}) : newest_(newest) {}

  // Asks one of them for the checkpoint of this round. False: none may, and that was not told yet.
  bool ask(Round round, const std::vector<CopyCandidate>& candidates, std::vector<DataRange> data);
  // How far the data are after the round, if the island is the one that was asked to copy its checkpoint; else null.
  [[nodiscard]] const std::vector<DataRange>* asked(const IslandId& island, Round round) const;
  void made(const IslandId& island, Round round);
  void failed(const IslandId& island) { ++failures_[island]; }
  // The run goes on from this round: there may be copies of newer ones, and they are of no use.
  void roll_back(Round round);

  // Of which a whole copy is there; 0: there is none.
  [[nodiscard]] Round newest() const { return newest_; }

 private:
  Round newest_;
  Round round_;      // that was asked for last
  IslandId copier_;  // of it
  std::vector<DataRange> data_;
  std::map<IslandId, unsigned> failures_;  // in a row
  bool told_ = false;                      // that nobody may
};

}  // namespace atl::coordinator
