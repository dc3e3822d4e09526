// Events: everything that can happen to an agent, as values for its core.
//
// They come from the control link, the trainer host, the sync engine and the operating system. Every event about a run names
// it, and events about a trainer name its incarnation, because the answer to an order may come after the core has moved on.
// Threads: plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "agent/core/pending_round.hpp"
#include "agent/core/trainer_save.hpp"
#include "transport/base/bytes.hpp"
#include "transport/base/ids.hpp"
#include "transport/base/result.hpp"
#include "transport/control/message.hpp"

namespace atl::agent {

// To whom in the core an event belongs.
enum class Addressee : std::uint8_t {
  core,     // the agent as a whole
  trainer,  // the run in hand, if it has this trainer
  engine,   // the run in hand
  tasks,    // the run of phases in hand
};

// ---- control link ------------------------------------------------------------------------------------------------------

// The link is (re)connected, or lost. A link that cannot tell says LinkUp once: the core repeats what is not answered.
struct LinkUp {
  static constexpr Addressee kTo = Addressee::core;
  std::string bulk_address = {};  // at which others reach this island now; empty: where they did
};
struct LinkDown {
  static constexpr Addressee kTo = Addressee::core;
};
struct FromCoordinator {
  static constexpr Addressee kTo = Addressee::core;
  Message message;
};

// ---- trainer host. `incarnation` is that of the StartTrainer which this answers to. ------------------------------------------

// The trainer is up: manifest seen, arena laid out and mapped. For `scratch` it holds the initial parameters of the seed.
struct TrainerReady {
  static constexpr Addressee kTo = Addressee::trainer;
  RunId run;
  std::uint64_t incarnation = 0;
  Step step;
  std::uint64_t position = 0;    // in its part of the data
  std::uint32_t fragments = 1;   // of the arena
  bool finishes = false;         // it can be told that a round is its last (FinishTrainer)
  std::uint64_t sequences = 0;   // of an epoch of its part; 0: not known
  std::uint64_t parameters = 0;  // that it declared, single numbers
};
// A trainer has measured numbers of its own, says that the run may end for all, or what it reads.
struct TrainerSaid {
  static constexpr Addressee kTo = Addressee::trainer;
  RunId run;
  std::uint64_t incarnation = 0;
  std::vector<OwnMetric> metrics;  // at most kMaxOwnMetrics
  std::string enough;              // why; empty: it does not say so
  std::string data = {};           // what it reads; empty: it does not say so
};
// LoadTrainer is done: the trainer stands at that step with the outer parameters.
struct TrainerLoaded {
  static constexpr Addressee kTo = Addressee::trainer;
  RunId run;
  std::uint64_t incarnation = 0;
  Step step;
  std::uint64_t position = 0;
};
// A PublishOrder is done: the fragment is in the arena as it was after `step`.
struct TrainerPublished {
  static constexpr Addressee kTo = Addressee::trainer;
  RunId run;
  std::uint64_t incarnation = 0;
  Round round;
  Step step;
  std::uint64_t position = 0;
  ContributionFacts facts = {};      // its fragment; tokens and steps since that one's previous publish, and the loss, NaN where not finite
  bool nonfinite = false;            // a loss or gradient of those steps was not finite
  double local_loss = kNotMeasured;  // validation; NaN: not asked
  std::optional<Step> bad_step = {};  // the first whose loss was not finite, where the trainer says it
};
// A MergeOrder is done: the trainer has taken the round's result.
struct TrainerMerged {
  static constexpr Addressee kTo = Addressee::trainer;
  RunId run;
  std::uint64_t incarnation = 0;
  Round round;
  std::uint32_t fragment = 0;
  Step step;
  std::uint64_t position = 0;
  double wait_seconds = 0;
  double outer_loss = kNotMeasured;      // validation; NaN: not asked
  TrainerSave save = TrainerSave::none;  // in the directory that the order named; if it goes on, TrainerSaved says how it ended
  std::string save_error;                // why there is none; empty: it was not asked
};
// The state that a trainer was saving lies in the directory of its order, or does not.
struct TrainerSaved {
  static constexpr Addressee kTo = Addressee::trainer;
  RunId run;
  std::uint64_t incarnation = 0;
  Round round;
  std::string error;  // empty: it lies there
};
// The validation loss of its present parameters; while it stands at step 0 those are the run's initial ones.
struct TrainerEvaluated {
  static constexpr Addressee kTo = Addressee::trainer;
  RunId run;
  std::uint64_t incarnation = 0;
  Step step;
  double loss = kNotMeasured;  // NaN: no data held out, or not finite
};
// How far it is. Cheap, several a second at most.
struct TrainerProgress {
  static constexpr Addressee kTo = Addressee::trainer;
  RunId run;
  std::uint64_t incarnation = 0;
  Step step;
  std::uint64_t tokens = 0;  // since the trainer started
  double tokens_per_second = 0;
  double training_loss = kNotMeasured;
  double compute_seconds = 0;  // since the trainer started
  double wait_seconds = 0;
};
// It is gone: could not be started (data refused: `permanent`), crashed, hung and was killed, or ended unasked. `error` says
// status or signal and the last lines it printed.
struct TrainerExited {
  static constexpr Addressee kTo = Addressee::trainer;
  RunId run;
  std::uint64_t incarnation = 0;
  bool permanent = false;  // trying again cannot help: the owner does not allow the data, the model does not fit
  Error error;
  std::string words = {};  // its own last ones, which come again if it fails alike; empty where it was killed, or said nothing
};

// ---- sync engine -----------------------------------------------------------------------------------------------------------

// FormInitialState is done: the arena's parameters are the outer state of round 0, and `digest` is its digest D_0.
// Of given parameters ([model].from): this island may lack them; the digest is empty then.
struct InitialState {
  static constexpr Addressee kTo = Addressee::engine;
  RunId run;
  Digest digest;
  std::string lacks = {};  // why
};
struct ContributionFormed {
  static constexpr Addressee kTo = Addressee::engine;
  RunId run;
  Round round;
  ContributionFacts facts = {};  // those of the order, with what the engine found: norm, base and fingerprint
};
// Not finite (corrupt), say. The round goes on without it.
struct ContributionFailed {
  static constexpr Addressee kTo = Addressee::engine;
  RunId run;
  Round round;
  Error error;
};
// The reduced result of this attempt is held, not applied. digest = D_r, of D_{r-1} and the encoded result.
struct ExchangeDone {
  static constexpr Addressee kTo = Addressee::engine;
  RunId run;
  Round round;
  Attempt attempt;
  Digest digest;
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
  double seconds = 0;
  IslandId slowest = {};           // whose pieces came last; empty: nobody's were needed
  double arrived_seconds = 0;      // after the beginning of the exchange: when they had come
  std::vector<Digest> parts = {};  // Exchanged::parts; none in pairs
  IslandId partner = {};           // in pairs: whom it met, of a larger group the first; empty: alone
  std::string why = {};            // in pairs: why alone, though there was a partner
  std::vector<double> norms = {};  // in pairs: of the others' contributions, where they were met and looked at
  bool rejected = false;           // in pairs: alone, because the partner's contribution does not count
  IslandId behind = {};            // in pairs: who was too far behind to wait for; empty: nobody
};
// In pairs: the partner has come to this round's synchronisation point, or is past it. Said once.
struct PartnerAhead {
  static constexpr Addressee kTo = Addressee::engine;
  RunId run;
  Round round;
};
// This island promised its group to do what one of it decides, and does not hear what: the others are to be asked. Said again while it
// lasts.
struct PairInDoubt {
  static constexpr Addressee kTo = Addressee::engine;
  RunId run;
  Epoch epoch;
  Round round;
  Epoch asked_in;
  std::vector<IslandId> asked;
};
// RenouncePair is done: this island knows no more than the asker, and believes no verdict any more that it reads itself.
struct PairRenounced {
  static constexpr Addressee kTo = Addressee::engine;
  RunId run;
  Epoch epoch;
  Round round;
  IslandId asker;
  Epoch asked_in;
};
struct ExchangeBroke {
  static constexpr Addressee kTo = Addressee::engine;
  RunId run;
  Round round;
  Attempt attempt;
  IslandId accused;  // who did not deliver; may be empty
  Error error;
  std::vector<IslandId> missing = {};  // of whose own contributions nothing came
};
// What a probe of the path from a peer to this island has shown.
struct PathTried {
  static constexpr Addressee kTo = Addressee::core;
  IslandId from;
  bool whole = false;
  std::string why;
};
// How the path from a peer, which is watched, came and went.
struct PathWatched {
  static constexpr Addressee kTo = Addressee::core;
  IslandId from;
  Availability available;
};
// How far a peer is and how fast data come from it; nothing came where both are 0.
struct PathMeasured {
  static constexpr Addressee kTo = Addressee::core;
  std::uint32_t measurement = 0;
  IslandId from;
  Duration round_trip{};
  double bytes_per_second = 0;
};
// ApplyResult is done: the outer state is that of `round`, and the result is in the arena for the trainer's merge.
// An error (a result that is not finite) leaves the outer state as it was.
struct ResultApplied {
  static constexpr Addressee kTo = Addressee::engine;
  RunId run;
  Round round;
  std::optional<Error> error;
  std::vector<float> projection = {};  // in pairs: of the outer parameters (strategies/projection.hpp)
  // Contributions to later rounds that were formed anew against the new outer parameters (Anchor::newest), with their norms. Their rounds
  // are those of that moment (Rounds::now_for).
  std::vector<std::pair<Round, double>> reformed = {};
};
// OfferParameters is done.
struct ParametersOffered {
  static constexpr Addressee kTo = Addressee::engine;
  RunId run;
  Round round;
  std::uint32_t fragment = 0;
};
// HandOver is done: what the trainer goes on from is in the arena.
struct HandedOver {
  static constexpr Addressee kTo = Addressee::engine;
  RunId run;
  Round round;
  std::uint32_t fragment = 0;
  std::optional<Error> error;
};
struct CheckpointWritten {
  static constexpr Addressee kTo = Addressee::engine;
  RunId run;
  Round round;
  Digest digest;
  Digest file;  // SHA-256 of outer.safetensors
  std::uint64_t file_bytes = 0;
  bool trainer_state = false;  // the trainer's own state is in it
  Step step;
  std::uint64_t position = 0;
  std::uint32_t part = 0;
};
// RemoveStored is done: nothing is left, or the checkpoints of these rounds; or why not.
struct StoredRemoved {
  static constexpr Addressee kTo = Addressee::core;
  RunId run;
  bool all = true;
  std::vector<Round> left = {};
  std::optional<Error> error = {};
};
// What CopyCheckpoint came to.
struct CopyEnded {
  static constexpr Addressee kTo = Addressee::core;
  Copied copied;
};
// The copy of a checkpoint is here, whole and verified, as STATE/runs/RUN/kFetchedCopy; or why not.
struct CopyFetched {
  static constexpr Addressee kTo = Addressee::engine;
  RunId run;
  Round round;
  Digest digest;
  Digest file;  // SHA-256 of it
  std::uint64_t file_bytes = 0;
  std::optional<Error> error = {};
};
// AdoptParameters is done: the trainer may write into the arena again.
struct ParametersAdopted {
  static constexpr Addressee kTo = Addressee::engine;
  RunId run;
  Round round;
  std::optional<Error> error;  // not finite, say: the outer state is not that of the round
};
struct CheckpointFailed {
  static constexpr Addressee kTo = Addressee::engine;
  RunId run;
  Round round;
  Error error;
};
// LoadCheckpoint is done: the outer state is that of `round`, digest-checked.
struct CheckpointLoaded {
  static constexpr Addressee kTo = Addressee::engine;
  RunId run;
  Round round;
  Digest digest;
  std::vector<PendingRound> pending = {};  // contributions to later rounds that it holds, oldest first
};
// The checkpoint does not verify; it is not offered again.
struct CheckpointBroken {
  static constexpr Addressee kTo = Addressee::engine;
  RunId run;
  Round round;
  Error error;
};
// CatchUpFromPeers is done: the outer state is that of `round`.
struct CatchUpDone {
  static constexpr Addressee kTo = Addressee::engine;
  RunId run;
  Round round;
  Digest digest;
  std::uint64_t number = 0;  // of the order
};
struct CatchUpBroke {
  static constexpr Addressee kTo = Addressee::engine;
  RunId run;
  Error error;
  std::uint64_t number = 0;
};

// ---- runs of phases. `start` is that of the StartTask which this answers to. ----------------------------------------------------

struct TaskProgressed {
  static constexpr Addressee kTo = Addressee::tasks;
  RunId run;
  std::uint64_t start = 0;
  std::uint64_t step = 0;
  std::uint64_t steps = 0;
  double loss = 0;  // NaN: none
  double images_per_second = 0;
  double compute_seconds = 0;  // since the task was started
};
// A file that the task can be continued from lies there; at the end (`done`) its result.
struct TaskWrote {
  static constexpr Addressee kTo = Addressee::tasks;
  RunId run;
  std::uint64_t start = 0;
  std::string path;
  std::uint64_t step = 0;
  bool done = false;
  std::string facts;  // of the result
};
// Images that its model makes, for people.
struct TaskDrew {
  static constexpr Addressee kTo = Addressee::tasks;
  RunId run;
  std::uint64_t start = 0;
  std::uint64_t step = 0;
  Bytes png;  // at most kMaxPictureBytes
};
// The trainer is gone before the task was done.
struct TaskEnded {
  static constexpr Addressee kTo = Addressee::tasks;
  RunId run;
  std::uint64_t start = 0;
  bool refused = false;    // this island cannot: its owner does not allow the data, there is no trainer
  bool permanent = false;  // the trainer said why: another try would end alike
  Error error;
};
// This lies on the disk, complete, and is served.
struct ContentHeld {
  static constexpr Addressee kTo = Addressee::tasks;
  RunId run;
  Content content;          // without sources
  std::uint64_t start = 0;  // adopted from this task's start; 0: fetched, or found on the disk
  std::uint64_t step = 0;
  std::uint64_t bytes_sent = 0;  // bulk link, of this run so far
  std::uint64_t bytes_received = 0;
};
// All that lay on the disk at OpenContent has been said.
struct ContentOpened {
  static constexpr Addressee kTo = Addressee::tasks;
  RunId run;
};
struct ContentMissed {
  static constexpr Addressee kTo = Addressee::tasks;
  RunId run;
  Digest digest;
  std::uint64_t start = 0;  // of an adoption
  Error error;
};

// ---- the operating system ----------------------------------------------------------------------------------------------------

// Now and then, for the reports: resident memory.
struct Gauges {
  static constexpr Addressee kTo = Addressee::core;
  std::uint64_t agent_memory_bytes = 0;
  std::uint64_t trainer_memory_bytes = 0;
};
// What the island says of itself has changed, and the coordinator hears of it.
struct SelfChanged {
  static constexpr Addressee kTo = Addressee::core;
  std::optional<double> uplink_bits_per_second = {};  // what its owner lets it send; 0: no limit
  std::optional<std::string> kernels = {};            // what its trainers compute with and on, for people
};
// SIGTERM, or the owner asked: finish the round in hand and go.
struct LeaveAsked {
  static constexpr Addressee kTo = Addressee::core;
  std::string why;
};

using Event =
    std::variant<LinkUp, LinkDown, FromCoordinator, TrainerReady, TrainerLoaded, TrainerPublished, TrainerMerged, TrainerSaved,
                 TrainerEvaluated, TrainerProgress, TrainerSaid, TrainerExited, InitialState, ContributionFormed, ContributionFailed,
                 ExchangeDone, ExchangeBroke, PartnerAhead, PairInDoubt, PairRenounced, ResultApplied, ParametersOffered, HandedOver,
                 ParametersAdopted, CheckpointWritten, CheckpointFailed, CheckpointLoaded, CheckpointBroken, CatchUpDone, CatchUpBroke,
                 TaskProgressed, TaskWrote, TaskDrew, TaskEnded, ContentHeld, ContentOpened, ContentMissed, PathTried, PathWatched,
                 PathMeasured, Gauges, SelfChanged, CopyEnded, CopyFetched, StoredRemoved, LeaveAsked>;

}  // namespace atl::agent
