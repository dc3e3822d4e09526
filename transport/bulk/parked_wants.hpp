// Wants that wait at their owner until what they ask for is there.
//
// They are ordered by what they ask for, so that a piece that becomes ready finds those who wait for it without a look at the others; each
// reader has at most so many, of which the oldest goes first. Cost: O(log n) to park and for each want that is taken; 500 bytes a want.
// Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "transport/base/ids.hpp"
#include "transport/bulk/piece.hpp"
#include "transport/bulk/want_queue.hpp"

namespace atl {

// A want whose waiting is over.
struct ParkedWant {
  IslandId reader;
  Want want;
  std::uint64_t connection = 0;  // over which it came last; 0: not known
};

class ParkedWants {
 public:
  explicit ParkedWants(std::size_t most_per_reader) : most_per_reader_(most_per_reader) {}

  // A want that waits already is parked once; its answer goes over the connection over which it came last.
  void park(const IslandId& reader, const WantOver& asked);
  void drop_reader(const IslandId& reader);

  // Takes out all that are chosen, in the order of what they ask for.
  std::vector<ParkedWant> take(const std::function<bool(const Want&)>& chosen);
  // The same of one blob, of the wants that begin in [begin, end).
  std::vector<ParkedWant> take(const BlobId& blob, std::uint64_t begin, std::uint64_t end, const std::function<bool(const Want&)>& chosen);

  [[nodiscard]] std::size_t size() const { return waiting_.size(); }

 private:
  struct Key {
    Want want;
    IslandId reader;
    friend auto operator<=>(const Key&, const Key&) = default;
  };
  struct Place {
    std::uint64_t number = 0;  // under which its reader has it
    std::uint64_t connection = 0;
  };
  using Waiting = std::map<Key, Place>;
  Waiting::iterator remove(Waiting::iterator place);

  std::size_t most_per_reader_;
  std::uint64_t next_ = 0;
  Waiting waiting_;
  std::map<IslandId, std::map<std::uint64_t, Waiting::iterator>> by_reader_;  // oldest first; no empty ones
};

}  // namespace atl
