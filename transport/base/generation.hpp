// One life of a coordinator over one store: which of two coordinators with the same key is the newer.
//
// A coordinator writes its generation down at its start, before it says anything, and tells it with every Welcome. Islands remember the
// newest and say it with every Hello. So two coordinators that were started from copies of one store find out about each other at the
// first island that has met both: the older one stops.
#pragma once

#include <cstdint>
#include <string>
#include <tuple>

#include "transport/base/bytes.hpp"
#include "transport/base/time.hpp"

namespace atl {

struct Generation {
  std::uint64_t restored = 0;  // seconds since 1970 when the store was last restored from a backup: who restores means to go on with that
  std::uint64_t starts = 0;    // how often a coordinator was started on it since
  std::uint64_t life = 0;      // random: decides between two that were started from equal copies
  Digest proof;                // that a coordinator with this key issued it (transport/identity/generation_proof.hpp)

  [[nodiscard]] bool known() const { return restored != 0 || starts != 0; }
  // "start 4", "start 4 after the restore of 2026-03-01T12:00:00Z"
  [[nodiscard]] std::string text() const {
    return "start " + std::to_string(starts) +
           (restored == 0 ? "" : " after the restore of " + iso_time(from_unix_ms(static_cast<std::int64_t>(restored * 1000))));
  }
  friend bool operator==(const Generation&, const Generation&) = default;
  friend bool operator<(const Generation& a, const Generation& b) {
    return std::tie(a.restored, a.starts, a.life) < std::tie(b.restored, b.starts, b.life);
  }
};

}  // namespace atl
