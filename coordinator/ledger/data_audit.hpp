// The proof of the data ledger: adds up what each committed round counted, and says where it does not come out.
//
// Every committed round names, for each member, the range of a part that its contribution was trained on. Taken in order, the ranges of a
// part must follow each other without a gap and without an overlap, from sequence 0 up to the part's position: then each sample was
// committed once, or passed over by name. Rounds that were lost with every copy (an older lineage, after the round that the next one begins
// with) do not count. Threads: plain values.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "coordinator/core/record.hpp"
#include "coordinator/ledger/counted_rounds.hpp"

namespace atl::coordinator {

struct PartAudit {
  std::uint64_t position = 0;                 // sequences from 0 up to here are accounted for
  std::uint64_t committed = 0;                // of them: in contributions that counted
  std::uint64_t passed_over = 0;              // of them: in none that counted
  std::map<Fate, std::uint64_t> refused;      // of those passed over: in contributions that count in no round
  std::uint64_t overwritten = 0;              // of those passed over: a result took the place of what was trained on them
  std::uint64_t taken_over = 0;               // in rounds that a restored ledger took over from the islands, without their details
  std::map<IslandId, std::uint64_t> islands;  // who committed how many
  std::string fault;                          // the first thing that is wrong; empty: each sequence once, in order
};

class DataAudit {
 public:
  // The first round of each lineage after 0: rounds of older ones that come after it are void.
  explicit DataAudit(std::map<std::uint32_t, Round> bases) : bases_(std::move(bases)) {}
  // First the contributions that count in no round; then committed rounds, by lineage and round, older ones as what they counted together.
  void take(const DroppedRecord& dropped);
  void take(const RoundRecord& round);
  void take(const CountedRounds& counted);
  [[nodiscard]] const std::map<std::uint32_t, PartAudit>& parts() const { return parts_; }
  [[nodiscard]] const std::map<IslandId, TokenFates>& fates() const { return fates_; }
  // Into how many the parameters are divided, as far as rounds of them were committed.
  [[nodiscard]] std::uint32_t fragments() const { return fragments_; }
  [[nodiscard]] std::uint64_t rounds() const { return rounds_; }
  // Rounds that were committed by an atoll that did not note samples yet: of them nothing can be said.
  [[nodiscard]] std::uint64_t unnoted() const { return unnoted_; }

 private:
  void take_base(const RoundRecord& round);
  void forget_what_counts(const RoundRecord& round);

  std::map<std::uint32_t, Round> bases_;
  Refusals refusals_;
  std::map<std::tuple<std::uint32_t, Round, IslandId>, DroppedRecord> in_hand_;  // when their islands went on from another state
  std::map<std::uint32_t, PartAudit> parts_;
  std::map<IslandId, TokenFates> fates_;
  std::uint32_t fragments_ = 1;
  std::uint64_t rounds_ = 0;
  std::uint64_t unnoted_ = 0;
};

}  // namespace atl::coordinator
