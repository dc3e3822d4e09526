// The islands that hold what is to be fetched, and which of them can be dialled from here.
//
// An island behind a router has what others have and cannot be dialled. So all are dialled at once, before anything is asked of one, and
// what became of each is kept in words with its name. Threads: one caller; dialling takes a thread for each island.
#pragma once

#include <string>
#include <vector>

#include "transport/base/time.hpp"
#include "transport/bulk/blob_fetch.hpp"
#include "transport/control/message.hpp"

namespace atl {

class Holders {
 public:
  // Dials each island once. Blocks until all have answered, `patience` at most for each of an island's addresses.
  static Holders dial(const std::vector<Member>& islands, Duration patience);

  // Those of `islands` that answered, the nearest first.
  [[nodiscard]] std::vector<Member> reached(const std::vector<Member>& islands) const;
  // These dropped out of a fetch, or delivered nothing.
  void failed(const std::vector<DroppedSource>& sources);
  // Why there is nothing from any of them, by their names: "island a: …; island b: …".
  [[nodiscard]] std::string failures() const { return failures_of(nullptr); }
  [[nodiscard]] std::string failures(const std::vector<Member>& islands) const { return failures_of(&islands); }

 private:
  struct Holder {
    Member island;
    Duration round_trip{};
    std::string failure;  // empty: none yet
  };
  [[nodiscard]] std::string failures_of(const std::vector<Member>* islands) const;

  std::vector<Holder> holders_;  // each island once
};

// Adds those that are not in the list.
void add_islands(std::vector<Member>& list, const std::vector<Member>& more);

}  // namespace atl
