// How far each island of a run is in its data, and which of the data it trains on next.
//
// A *part* is what one island trains on, in its order: sequences 0, 1, 2, … by its own count (transport/base/data_share.hpp). An island
// keeps its part for the whole run. Every contribution says which range of its part it was trained on; with the commit of its round the
// range is counted, and the part's position moves behind it. An island that comes back begins at the position: what it had taken and not
// contributed comes again, and nothing that is committed does. A contribution that did not count (not finite, out of all proportion) is
// passed over: its samples come again in the next pass. After a rollback the positions are those of that round, and each island comes to
// the same sequences again. Islands that keep outer states of their own say how far they are, and nothing is committed in common; in a run
// of phases tasks say which data they are of.
//
// The sequences of a part are dealt: the classes of the data are divided among the members of an epoch, in equal numbers, anew with every
// epoch whose members are others. Each member keeps what it has up to a position two rounds ahead of what it is known to have trained on,
// and hands over what lies behind that position. So nobody waits, and each sequence has one owner. What a lost island had in hand waits for
// it, and comes again in the next pass if the island stays away.
//
// Threads: owned by one core.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/core/outbox.hpp"
#include "transport/base/data_share.hpp"

namespace atl::coordinator {

class DataParts {
 public:
  static constexpr std::uint32_t kMostParts = 1U << 20U;  // no number of a part from outside is higher
  // `classes`: of the run's data; `of_a_round`: sequences that an island trains on in a round, as the run file has it.
  void belong_to(const RunId& run, std::uint32_t classes, std::uint64_t of_a_round);
  void recover(PartRecord part);
  void recover(StretchRecord stretch);
  // All records are back.
  void recovered();
  // Number of parts, so that none has this number or a higher one.
  [[nodiscard]] std::uint32_t count() const;
  [[nodiscard]] std::uint64_t position(std::uint32_t part) const;
  // In what a round of the past left; `after` null: nothing is known of it, or it is the newest.
  [[nodiscard]] std::uint64_t position(std::uint32_t part, const std::vector<DataRange>* after) const;
  // Somebody has trained.
  [[nodiscard]] bool begun() const;
  // How far every part is that was begun, from 0.
  [[nodiscard]] std::vector<DataRange> snapshot() const;

  // The island's part: the one that it has; else `had` unless that is another's; else one without an owner, or a new one. It is the
  // island's from now on.
  std::uint32_t part_of(const IslandId& island, std::optional<std::uint32_t> had, Outbox& out);
  // The data are dealt among the owners of these parts. False: as they are already.
  bool deal(std::vector<std::uint32_t> among, Outbox& out);
  // The islands may know of deals that the ledger does not have: the next deal is of sequences that nobody can have had.
  void deal_anew() { void_ = true; }
  // All rounds are lost, and nobody has anything of them: the data begin anew, too.
  void begin_anew(Outbox& out);
  // What an island needs to know to train on its part, wherever it begins.
  [[nodiscard]] DataShare share(std::uint32_t part) const;
  // An island says that it has trained up to here.
  void claim(const DataRange& data);

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
  struct Part {
    PartRecord record;
    std::map<std::uint64_t, std::vector<DataClass>> stretches;  // by the position from which each holds
    std::uint64_t claimed = 0;                                  // as far as its island is known to have trained
    std::uint64_t widest = 0;                                   // range of a contribution
  };
  Part& at(std::uint32_t number);
  // The position up to which a part stays as it was dealt, whatever is dealt next: its owner trains up to there, or has done so.
  [[nodiscard]] std::uint64_t limit(std::uint32_t part) const;
  // How far each class is when every part is at its limit.
  [[nodiscard]] std::vector<std::uint64_t> taken() const;
  // Which part has which classes from now on.
  std::map<std::uint32_t, std::vector<std::uint32_t>> hands(const std::vector<std::uint32_t>& among);
  void begin_stretch(std::uint32_t part, std::uint64_t from, std::vector<DataClass> classes, Outbox& out);

  RunId run_;
  std::uint32_t classes_ = 1;
  std::uint64_t of_a_round_ = 1;
  std::map<std::uint32_t, Part> parts_;
  std::vector<std::optional<std::uint32_t>> owners_;  // part of each class
  std::vector<std::uint32_t> dealt_;                  // parts among which they were dealt
  bool void_ = false;                                 // the islands may know of other deals
};

}  // namespace atl::coordinator
