// The guards of a run: which norms contributions usually have, what islands have done against the rules, and who is kept out.
// When results differ, those who do not agree on what one of them gave are remembered: what nobody can tell at once, more of it may.
//
// A contribution or a state that is rejected is an offence of its island. Enough offences, without ten accepted contributions in a row
// between them, are a quarantine, until an operator resumes the run.
// Threads: owned by one core.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "coordinator/core/decide.hpp"
#include "transport/base/usual_norms.hpp"

namespace atl::coordinator {

class Guards {
 public:
  // norm_factor: a norm above so many times the usual one does not count; 0: none does. quarantine_after: so many offences; 0: never.
  void set(double norm_factor, std::uint32_t quarantine_after);
  void recover(const IslandId& island, std::uint32_t offences) { conduct_[island].offences = offences; }

  // Of this round's contributions to a fragment: whose do not count.
  [[nodiscard]] NormDecision judge(std::uint32_t fragment, std::vector<JudgedNorm> norms) const;
  // A contribution that was committed.
  void usual(std::uint32_t fragment, const JudgedNorm& accepted) {
    const KnownNorm known = accepted.of_one_round();
    norms_.add(fragment, known.norm, known.steps);
  }

  // A contribution was accepted. True: its island's offences are forgotten by it; only where they may be (`forgivable`).
  bool accepted(const IslandId& island, bool forgivable);
  // Something was rejected. The cause, if the island is to be kept out from now on.
  std::optional<std::string> offend(const IslandId& island, const std::string& what);
  // Two islands do not agree on what one of them gave to this round. Whom enough others have been at odds with by now, as giver or as
  // reader; nobody: it cannot be told which of the two it is. Both sum nothing for others for a while, longer each time; of the two one
  // that is trusted goes on.
  std::vector<IslandId> dispute(const Dispute& dispute, Round round, std::optional<std::size_t> needed);
  // Who of an exchange sums (AttemptPlan::shares): as `shares` has it without those, unless nobody would be left.
  [[nodiscard]] std::vector<std::uint8_t> sums_in(Round round, const std::vector<IslandId>& members,
                                                  std::vector<std::uint8_t> shares) const;
  // All is forgotten. True: there was something.
  bool pardon(const IslandId& island);
  [[nodiscard]] std::uint32_t offences(const IslandId& island) const;
  [[nodiscard]] bool quarantined(const IslandId& island) const;

 private:
  struct Conduct {
    std::uint32_t offences = 0;
    unsigned good_rounds = 0;    // contributions accepted in a row
    std::set<IslandId> readers;  // with whom it does not agree on what it gave them
    std::set<IslandId> givers;   // and on what they gave it
    unsigned disputes = 0;
    Round sums_after;
  };
  double norm_factor_ = 0;
  std::uint32_t quarantine_after_ = 0;
  UsualNorms norms_;
  std::map<IslandId, Conduct> conduct_;
};

}  // namespace atl::coordinator
