// What committed rounds counted, of one round or of many that follow each other in a lineage: the ledger keeps older rounds so.
//
// Ranges of a part that follow each other become one range, and counts become sums. So what the proof of the data ledger says of many
// rounds is the same whether it takes them one by one or as one (data_audit.hpp). Threads: plain values.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "coordinator/core/record.hpp"

namespace atl::coordinator {

// What became of the tokens that an island trained on and contributed, summed over the fragments: each step counts once for each of them.
struct TokenFates {
  std::uint64_t merged = 0;  // into the round of its time
  std::uint64_t late = 0;    // into a later one
  std::uint64_t overwritten = 0;
  std::map<Fate, std::uint64_t> dropped;
  friend bool operator==(const TokenFates&, const TokenFates&) = default;
};

// "sequences 3 to 8", without `to` itself.
std::string sequences_text(std::uint64_t from, std::uint64_t to);

struct CountedPart {
  std::uint64_t from = 0;      // the first sequence that these rounds count
  std::uint64_t position = 0;  // sequences from there up to here
  std::uint64_t committed = 0;
  std::uint64_t passed_over = 0;
  std::map<IslandId, std::uint64_t> islands;  // who committed how many
  std::string fault;                          // the first range that does not follow the one before it
  friend bool operator==(const CountedPart&, const CountedPart&) = default;

  // These rounds come after those that were counted so far.
  void append(const CountedPart& next, const std::string& name);
};

struct CountedRounds {
  RunId run;
  std::uint32_t lineage = 0;
  Round first;
  Round last;
  std::uint64_t rounds = 0;   // round 0 is none
  std::uint64_t unnoted = 0;  // that were committed by an atoll that did not note samples yet
  std::uint32_t fragments = 1;
  std::map<std::uint32_t, CountedPart> parts;
  std::map<IslandId, TokenFates> fates;  // without what was dropped
  friend bool operator==(const CountedRounds&, const CountedRounds&) = default;

  // Of one committed round with members.
  static CountedRounds of(const RoundRecord& round);
  // "round 3", "rounds 3 to 9".
  [[nodiscard]] std::string name() const;
  // Rounds after these, of the same lineage.
  void append(const CountedRounds& next);
};

// As the ledger keeps it. Errors: corrupt for a text that is none of these.
std::string to_text(const CountedRounds& counted);
Status read_counts(CountedRounds& counted, const std::string& text);

}  // namespace atl::coordinator
