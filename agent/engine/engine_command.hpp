// What the driver asks the sync engine, and what comes back. Most of it is the core's own effects and events.
// Threads: plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>

#include "agent/core/effect.hpp"
#include "agent/core/event.hpp"
#include "agent/island_link/messages.hpp"

namespace atl::agent {

// Lay out and map the arena for this trainer. → ArenaPrepared.
struct PrepareArena {
  RunId run;
  std::uint64_t incarnation = 0;
  island_link::Manifest manifest;
  std::string island = {};  // its name, for messages
};
// Copy the outer parameters into the arena. → ArenaFilled.
struct FillArena {
  RunId run;
  std::uint64_t incarnation = 0;
};
// Serve the newest checkpoints of a run on disk that is not open (an export after its end).
struct ServeStored {
  RunId run;
};

// What the island's owner lets it send to the others from now on, in bits a second, whatever runs allow; 0: no limit.
struct SetUplink {
  double bits_per_second = 0;
};

// Where this island meets others that it cannot dial, nor they it.
struct SetRelays {
  std::vector<RelayOffer> relays;
};

using EngineCommand = std::variant<OpenRun, AllowPeers, TryPaths, FormInitialState, FormContribution, PreparePair, MeetPartner, LeavePairs,
                                   HearOfPair, RenouncePair, FormMergeContribution, PostponeContribution, BeginExchange, CancelExchange,
                                   ApplyResult, OfferParameters, HandOver, AdoptParameters, BeginCheckpoint, WriteCheckpoint,
                                   EndTrainerState, LoadCheckpoint, CatchUpFromPeers, KeepResults, CloseRun, RemoveStored, OpenContent,
                                   FetchContent, AdoptContent, DropContent, PrepareArena, FillArena, ServeStored, SetUplink, SetRelays>;

struct ArenaPrepared {
  RunId run;
  std::uint64_t incarnation = 0;
  Result<island_link::ArenaLayout> layout;
};
struct ArenaFilled {
  RunId run;
  std::uint64_t incarnation = 0;
  Status status;
};

// The trainer wrote into the arena out of turn (arena_watch.hpp).
struct ArenaMisused {
  RunId run;
  std::string why;
};

// The ways to those that the link is connected to are others now.
struct WaysChanged {
  Ways ways;
};

using EngineAnswer = std::variant<Event, ArenaPrepared, ArenaFilled, ArenaMisused, WaysChanged>;

}  // namespace atl::agent
