// How far each part of a run's data is committed, who has it, and where whoever has it next goes on.
//
// A part is with one island at a time. Every contribution says which range of its part it was trained on; with the commit of its round the
// range is counted, and the part's position moves behind it. An island that comes, comes back or takes a part over begins at the position:
// so what a lost island had taken and not contributed is issued again, and nothing that is committed is. A contribution that did not count
// (not finite, out of all proportion) is passed over: its samples come again in the next epoch of the data. After a rollback the positions
// are those of that round. Islands that keep outer states of their own say how far they are, and nothing is committed in common; in a run
// of phases tasks say which data they are of.
// Threads: owned by one core.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "coordinator/core/outbox.hpp"

namespace atl::coordinator {

class DataParts {
 public:
  // The parts of this run's data: numbers 0 to count - 1.
  void belong_to(const RunId& run, std::uint32_t count);
  void recover(PartRecord part);

  [[nodiscard]] std::uint32_t count() const { return count_; }
  [[nodiscard]] std::uint64_t position(std::uint32_t part) const;
  // In what a round of the past left; `after` null: nothing is known of it, or it is the newest.
  [[nodiscard]] std::uint64_t position(std::uint32_t part, const std::vector<DataRange>* after) const;
  // Somebody has trained.
  [[nodiscard]] bool begun() const;
  // How far every part is that was begun, from 0.
  [[nodiscard]] std::vector<DataRange> snapshot() const;

  // The part for an island: the one it had, unless somebody has it now; else the free one that is least far, the lowest of those; else one
  // that is promised to an island which is not in yet; else `otherwise`.
  struct Wish {
    std::optional<std::uint32_t> had;
    std::set<std::uint32_t> in_use;
    std::set<std::uint32_t> promised;
    std::uint32_t otherwise = 0;
  };
  [[nodiscard]] std::uint32_t choose(const Wish& wish) const;
  // The part is the island's from now on. Who had it before, if that was another one: it hands the part over.
  IslandId give(std::uint32_t part, const IslandId& island, Outbox& out);

  // Why a contribution may not count: its samples are not of the island's own part, or are committed already. Empty: it may.
  [[nodiscard]] std::string stale(std::uint32_t own_part, const DataRange& data) const;
  // `sequences`: of a pass over the part, as the contribution says; 0: not known.
  void count_in(const DataRange& data, std::uint64_t sequences, Outbox& out);
  // Rounds are lost: the parts are as far as they were; what is not among them was not begun.
  void return_to(const std::vector<DataRange>& parts, Outbox& out);
  // An island whose state is that of a committed round knows how far its part is by it. That is news only to a ledger that was restored
  // from a backup.
  void adopt(const HeldRun& held, Outbox& out);
  // How far the parts were after each of the newest committed rounds of the ledger, by taking back what the rounds after it counted.
  [[nodiscard]] std::map<Round, std::vector<DataRange>> history(const std::map<Round, const RoundRecord*>& committed, Round newest) const;

 private:
  PartRecord& part_of(std::uint32_t number);

  RunId run_;
  std::uint32_t count_ = 1;
  std::map<std::uint32_t, PartRecord> parts_;  // those that somebody has had
};

}  // namespace atl::coordinator
