// The pairing: who meets whom in a round. A pure function of (seed, round, members), so that every island that knows the
// members of the epoch knows its partners of every round to come without asking anybody.
//
// Members are known by their places in the list, not by their ids: in an epoch's list they stand in the order of their parts of the data,
// so that the same run file comes to the same model whoever the islands are. With P members and groups of n:
//   left over  s = P mod n members sit out. Lap after lap, all places stand in an order that is drawn from (seed, lap); the rounds take
//   them
//              from it, s at a time. So while the membership stays, nobody sits out a second time before everybody has once, except that a
//              lap that s does not divide begins in the middle of a round; and any two sit out together, and meet, equally often. With
//              n = 2 one sits out at a time, the order is the same in every lap, and everyone does so exactly once in any P consecutive
//              rounds.
//   groups     the others are shuffled (Fisher–Yates, Philox stream of the round) and cut into groups of n: every matching is
//              equally likely, and rounds are independent.
//   avoided    of couples that are better not in one group another shuffle is taken as long as there is one, so that every matching without
//              them is equally likely. Pairs for which that takes too long are searched for, and somebody else sits out where it has to be;
//              where there is no matching without them, or none is found in bounded time, the one with the fewest is taken.
// NoLoCo (arXiv:2506.10911) draws a permutation too, but needs P divisible by n and knows no membership that changes.
// Threads: pure functions. Cost: O(P log P), a few microseconds for a hundred islands.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "transport/base/ids.hpp"
#include "transport/base/place_couples.hpp"

namespace atl {

// The group of `self` in this round, itself included, in the order of the members; only `self` if it is left over.
// `members` without repetition, `self` among them; group_size ≥ 2.
std::vector<IslandId> group_of(const IslandId& self, std::uint64_t seed, Round round, std::span<const IslandId> members,
                               std::uint32_t group_size = 2, const PlaceCouples& avoided = {});

// All groups of the round, those left over as groups of one; every member in exactly one.
std::vector<std::vector<IslandId>> pairing(std::uint64_t seed, Round round, std::span<const IslandId> members, std::uint32_t group_size = 2,
                                           const PlaceCouples& avoided = {});

}  // namespace atl
