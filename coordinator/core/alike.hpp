// Islands that train exactly what another one trains, though each has a part of the data of its own.
//
// Two independent islands never contribute the same values. Where they do, their program reads the same data in the same order: what they
// compute counts as that of one. Contributions are compared by their fingerprints, of the same round and fragment.
// Threads: owned by one core.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "transport/base/ids.hpp"

namespace atl::coordinator {

class AlikeIslands {
 public:
  // A contribution of the island that has this part of the data; 0 is no fingerprint. An island's newest counts.
  void look(const IslandId& island, std::uint32_t part, Round round, std::uint32_t fragment, std::uint64_t fingerprint);
  // All that were found, if some were since this was told last. The first two are told at once, further ones once in a later round.
  std::optional<std::vector<IslandId>> take_news(Round round);
  // In the order of their ids; empty: each trains on its own.
  [[nodiscard]] std::vector<IslandId> islands() const;

 private:
  struct Newest {
    std::uint32_t part = 0;
    Round round;
    std::uint32_t fragment = 0;
    std::uint64_t fingerprint = 0;
  };
  std::map<IslandId, Newest> newest_;
  std::set<IslandId> found_;
  std::size_t told_ = 0;  // of them
  Round told_in_;
};

}  // namespace atl::coordinator
