// What committed rounds counted, of one round or of many that follow each other in a lineage: the ledger keeps older rounds so.
//
// Ranges of a part that follow each other become one range, and counts become sums. So what the proof of the data ledger says of many
// rounds is the same whether it takes them one by one or as one (data_audit.hpp). Threads: plain values.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "coordinator/core/record.hpp"

namespace atl::coordinator {

// What became of the tokens that an island trained on and contributed, summed over the fragments: each step counts once for each of them.
struct TokenFates {
  std::uint64_t merged = 0;  // into the round of its time
  std::uint64_t late = 0;    // into a later one
  std::uint64_t overwritten = 0;
  std::map<Fate, std::uint64_t> dropped;
  std::uint64_t lost = 0;  // in rounds that were lost with every copy
  friend bool operator==(const TokenFates&, const TokenFates&) = default;
};

// What a member's contribution to a round holds. One that holds nothing has a token all the same, so that it is an answer: of a trainer
// that has done all its steps, say, where a quorum closes rounds.
std::uint64_t tokens_held(const RoundRecord& round, std::size_t member);
// It counts in this round after all: its island did not know.
bool counts_in(const RoundRecord& round, const DroppedRecord& dropped);

// The sequences of contributions that count in no round, by part. What an island only had in hand when it went on from another state comes
// again, and is not among them.
class Refusals {
 public:
  void add(const DroppedRecord& dropped);
  // How many of the sequences from `from` up to before `to` were refused, and for what. Cost: a walk of the part's refusals from there on.
  [[nodiscard]] std::map<Fate, std::uint64_t> within(std::uint32_t part, std::uint64_t from, std::uint64_t to) const;

 private:
  struct Refused {
    std::uint64_t from = 0;
    Fate fate = Fate::rejected;
  };
  std::map<std::uint32_t, std::multimap<std::uint64_t, Refused>> parts_;  // by where they end
};

// "sequences 3 to 8", without `to` itself.
std::string sequences_text(std::uint64_t from, std::uint64_t to);

struct CountedPart {
  std::uint64_t from = 0;      // the first sequence that these rounds count
  std::uint64_t position = 0;  // sequences from there up to here
  std::uint64_t committed = 0;
  std::uint64_t passed_over = 0;              // those of no contribution that counted: refused or overwritten, or nobody knows why
  std::map<Fate, std::uint64_t> refused;      // of those passed over
  std::uint64_t overwritten = 0;              // of those passed over
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
  static CountedRounds of(const RoundRecord& round, const Refusals& refusals);
  // "round 3", "rounds 3 to 9".
  [[nodiscard]] std::string name() const;
  // Rounds after these, of the same lineage.
  void append(const CountedRounds& next);
};

// As the ledger keeps it. Errors: corrupt for a text that is none of these.
std::string to_text(const CountedRounds& counted);
Status read_counts(CountedRounds& counted, const std::string& text);

}  // namespace atl::coordinator
