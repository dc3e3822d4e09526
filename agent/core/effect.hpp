// Effects: everything an agent's core asks its driver to do, as values. Each says which event answers it.
//
// The driver does them in the order given, each to its addressee's queue: trainer host, sync engine, process. It need not wait for
// one to finish before it starts the next, except where the addressee is the same.
// Threads: plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "agent/core/pending_round.hpp"
#include "agent/core/readers.hpp"
#include "agent/core/trainer_save.hpp"
#include "strategies/specification/run_spec.hpp"
#include "transport/base/bytes.hpp"
#include "transport/base/generation.hpp"
#include "transport/base/ids.hpp"
#include "transport/base/result.hpp"
#include "transport/base/time.hpp"
#include "transport/base/usual_norms.hpp"
#include "transport/control/message.hpp"

namespace atl::agent {

// ---- trainer host ----------------------------------------------------------------------------------------------------------

// Start a trainer (ending one that still runs) up to the point where its arena is mapped. With `checkpoint` it resumes its own
// state (parameters, optimiser, counters) from that checkpoint's trainer directory; without, it starts from the seed with a fresh
// optimiser. Contributions that are retained survive it. → TrainerReady or TrainerExited.
struct StartTrainer {
  RunId run;
  std::uint64_t incarnation = 0;  // grows with every start
  RunSpec spec;
  std::uint32_t part = 0;  // of the data, and what it is made of
  DataShare share;
  std::optional<Round> checkpoint;
  Step step;
  std::uint64_t position = 0;
};
// Whether the run is completed and this island has its last parameters; the first of those islands is the one that writes for all.
enum class RunEnd : std::uint8_t { none, completed, completed_first };
// No answer: a stopped trainer is not reported as exited.
struct StopTrainer {
  RunId run;
  std::string why;
  RunEnd end = RunEnd::none;  // of a completed run: the trainer takes what was ordered last, and has its time to finish
};
// Copy the engine's outer parameters of all fragments into the arena and tell the trainer to take them (`load`): it drops all orders it
// has, also one it waits in, and stands at that step. → TrainerLoaded.
struct LoadTrainer {
  RunId run;
  std::uint64_t incarnation = 0;
  Step step;
  std::uint64_t position = 0;
};
struct PublishOrder {
  Round round;
  std::uint32_t fragment = 0;
  Step step;
  bool evaluate_local = false;
};
struct MergeOrder {
  Round round;
  std::uint32_t fragment = 0;
  Step step;
  double alpha = 0;  // weight of the local parameters
  bool evaluate = false;
  bool parameters = false;  // payload gradient: the trainer writes its parameters into the arena before it says merged
  bool save = false;        // its own state, into the directory of the coming checkpoint of this round
};
// Orders ahead; the trainer runs to `until` at most. Added to those it has. → TrainerPublished and TrainerMerged, one each.
struct PlanTrainer {
  RunId run;
  std::uint64_t incarnation = 0;
  Step until;
  std::vector<PublishOrder> publish;
  std::vector<MergeOrder> merge;
};
// `round` is the trainer's last for now: it drops the orders for later ones, takes no step beyond this round's merge and saves its own
// state after it (as MergeOrder::save). With `now` the round's publish is due at the step where it is. → TrainerPublished and
// TrainerMerged, as planned.
struct FinishTrainer {
  RunId run;
  std::uint64_t incarnation = 0;
  Round round;
  bool now = false;
};
// The trainer stands at `step` now; the steps between are not done (pace). What is due there is done as planned. No answer of its own.
struct SkipTrainer {
  RunId run;
  std::uint64_t incarnation = 0;
  Step step;
};
// What the island's part of the data is made of from now on. No answer.
struct DealData {
  RunId run;
  std::uint64_t incarnation = 0;
  DataShare share;
};
// The run's islands have committed so many of the tokens after which the run ends: the trainer's learning rate follows them. No answer.
struct TellTokens {
  RunId run;
  std::uint64_t incarnation = 0;
  std::uint64_t committed = 0;
  std::uint64_t of = 0;
};
// The result of a round lies in the arena; the trainer merges it at its MergeOrder. No answer but TrainerMerged.
struct GiveResult {
  RunId run;
  std::uint64_t incarnation = 0;
  Round round;
  std::uint32_t fragment = 0;
};

// ---- sync engine -----------------------------------------------------------------------------------------------------------

// The engine serves this run from now on, with nothing of it in memory.
struct OpenRun {
  RunId run;
  RunSpec spec;
};
// Who may open bulk connections for this run: members of the epoch, and joiners that the coordinator named. Replaces the set.
struct AllowPeers {
  RunId run;
  Epoch epoch;
  std::vector<Member> members;
  std::vector<Reader> readers;  // that may only fetch checkpoints and results
};
// Try the data path from each of these, whatever the runs: they do the same. Replaces the list. → PathTried for each.
// With a measurement (not 0): measure each path for so long, one after the other. → PathMeasured for each.
struct TryPaths {
  std::vector<Member> islands;
  std::uint32_t measurement = 0;
  Duration measure_each{};
};
// Take the initial parameters from the trainer's arena (`publish_now`), or as [model].from says, as the outer state of round 0.
// → InitialState.
struct FormInitialState {
  RunId run;
  std::uint64_t incarnation = 0;
  std::string file = {};  // of the given parameters, found by the agent's service; empty: the arena
};
// Form and retain the contribution to this round from what the trainer published. → ContributionFormed or ContributionFailed.
struct FormContribution {
  RunId run;
  Round round;
  ContributionFacts facts = {};  // as the trainer published it; they go into the checkpoints that this round is in flight for
};
// A round closed before this contribution to it was there: it is one to the round `to` now; 0: to none, it is dropped. No answer.
struct PostponeContribution {
  RunId run;
  Round round;
  Round to;
};
// Exchange the retained contribution; `members` in order, with a weight each. Ends an earlier attempt of the round. A member whose own
// weight is 0 sends nothing, and may have no contribution. With one member nothing is sent. → ExchangeDone or ExchangeBroke.
struct BeginExchange {
  RunId run;
  Epoch epoch;
  Round round;
  Attempt attempt;
  std::uint32_t fragment = 0;
  std::vector<Member> members;
  ExchangeTerms terms;                       // nothing in short
  std::optional<Duration> stall_after = {};  // a peer that delivers nothing for so long has failed; empty: as the engine was set
};
// Whom this island meets in a round to come is known: serve them its outer parameters of the fragment and read theirs, beside the inner
// steps. In place of one for another epoch, unless that one is bound by a promise. No answer.
struct PreparePair {
  RunId run;
  Epoch epoch;
  Round round;
  std::uint32_t fragment = 0;
  std::vector<IslandId> group;  // in order, this island among them
  bool patient = false;         // this island is ahead of most others: a partner is waited for however far behind it is
};
// The contribution is formed: meet the partner, or go alone by the deadline at the latest (agent/engine/pair_exchange.hpp). Without a
// partner: alone. → ExchangeDone or, where this island itself failed, ExchangeBroke.
struct MeetPartner {
  RunId run;
  Epoch epoch;
  Round round;
  Attempt attempt;
  std::uint32_t fragment = 0;
  std::vector<IslandId> group;  // in order, this island among them; fewer than two: nobody to meet
  TimePoint deadline;
  NormGuard guard = {};    // against the partner's contribution
  bool withdrawn = false;  // the own contribution does not count: the round is over without a step
  bool patient = false;    // as in PreparePair
};
// The epoch is another: a pair of an older one that has not begun to meet is dropped, one that has goes alone unless it is bound;
// if all others of its group left, also then. No answer but that of MeetPartner.
struct LeavePairs {
  RunId run;
  Epoch epoch;
  std::vector<IslandId> members;
};
// What another of the group answers by way of the coordinator. No answer but that of MeetPartner.
struct HearOfPair {
  RunId run;
  Epoch epoch;
  Round round;
  IslandId from;
  Epoch asked_in;
  PairWord word = PairWord::doubt;
};
// Another asks what was decided, and this island is asked while it is not. → PairRenounced where it is in doubt too; else no answer.
struct RenouncePair {
  RunId run;
  Epoch epoch;
  Round round;
  IslandId asker;
  Epoch asked_in;
};
// Form the contribution to a round that merges all islands' outer parameters. → ContributionFormed or ContributionFailed.
struct FormMergeContribution {
  RunId run;
  Round round;
  std::uint32_t fragment = 0;
};
// The attempt is void: stop it or drop its result; keep the contribution. No answer.
struct CancelExchange {
  RunId run;
  Round round;
  Attempt attempt;
};
// The attempt's result is committed: take the outer step (with payload gradient: write the mean gradient into the arena), put the
// fragment into the arena for the trainer, drop the contribution, keep the result if results are kept. With `behind` the trainer has not
// come to this round: the arena stays as it is, and the parameters before the step are the base of what it has under way. → ResultApplied.
struct ApplyResult {
  RunId run;
  Round round;
  Attempt attempt;
  std::uint32_t fragment = 0;
  Digest digest;
  bool behind = false;
};
// The trainer has given the fragment's range of the arena back, and newer outer parameters than its own are there: put them into the arena.
// They are what its next contribution is formed against. → ParametersOffered.
struct OfferParameters {
  RunId run;
  Round round;  // whose result they are
  std::uint32_t fragment = 0;
};
// Where the exchange of a fragment takes its whole period, ApplyResult leaves the arena alone. Then, once the trainer has published for the
// fragment's next round, or will not: put what it goes on from into the arena. → HandedOver.
struct HandOver {
  RunId run;
  Round round;
  std::uint32_t fragment = 0;
};
// Payload gradient: the arena holds the parameters after the optimiser's step of `round`; they are the outer state now. →
// ParametersAdopted.
struct AdoptParameters {
  RunId run;
  Round round;
};
// The outer state, which is that of `round`, is to become a checkpoint: write it now, and the contributions to later rounds as they are and
// as they are formed; the outer state may move on before WriteCheckpoint finishes it. No answer but that of WriteCheckpoint.
struct BeginCheckpoint {
  RunId run;
  Round round;
  Digest digest;
};
// Finish the checkpoint of `round` that was begun, or write the outer state as one if it still is that of `round`; with `trainer_save` the
// trainer has saved its own beside it, or does so still. Removes all but the `keep` that were written last. A checkpoint of the round that
// exists and is complete is enough. → CheckpointWritten or CheckpointFailed.
struct WriteCheckpoint {
  RunId run;
  Epoch epoch;
  Round round;
  Digest digest;
  TrainerSave trainer_save = TrainerSave::none;  // if it goes on, the checkpoint is completed after EndTrainerState
  Step step;
  std::uint64_t position = 0;
  std::uint32_t keep = 3;
  std::set<Round> needed = {};  // older ones that somebody may be reading: kept too
  std::uint32_t part = 0;       // of the data, where the trainer is at `position`
  Generation generation = {};   // of the coordinator by whose word the round is committed
};
// The trainer's state of a checkpoint that waits for it is there, or does not come.
struct EndTrainerState {
  RunId run;
  Round round;
  bool saved = false;
};
// A checkpoint that lies on the disk is to be copied to the run's store; nobody waits for it. A newer one of the run takes the place of one
// that is not begun. → CopyEnded.
struct CopyCheckpoint {
  RunId run;
  std::string to;          // [checkpoint].copy
  bool own_state = false;  // each island of the run has a state of its own: so has this copy
  std::uint32_t keep = 3;  // copies, the newest
  Round round;
  Epoch epoch;
  Digest digest;
  Digest file;  // SHA-256 of outer.safetensors
  std::uint64_t file_bytes = 0;
  std::vector<DataRange> data;  // how far each part of the data is after the round
};
// Fetch the copy of this checkpoint from the run's store into STATE/runs/RUN/kFetchedCopy. → CopyFetched.
inline constexpr const char* kFetchedCopy = "fetched.safetensors";
struct FetchCopy {
  RunId run;
  std::string from;  // [checkpoint].copy
  Round round;
  Digest digest;
};
// A copy that was fetched, and what the checkpoint that becomes of it says of this island.
struct FetchedCopy {
  Epoch epoch;
  Step step;
  std::uint32_t part = 0;  // of the data
  std::uint64_t position = 0;
  Digest file;  // SHA-256 of it
  std::uint64_t file_bytes = 0;
  Generation generation = {};  // of the coordinator that ordered it
};
// Read the outer state, and the contributions to rounds in flight, from the own checkpoint. Ends a catching up that is under way, which is
// not answered then. → CheckpointLoaded or CheckpointBroken.
struct LoadCheckpoint {
  RunId run;
  Round round;
  Digest digest;                            // expected
  std::optional<FetchedCopy> fetched = {};  // that becomes a checkpoint first
};
// Come to round `order.committed` from the sources: if results after the own round lead to `order.digest`, with those alone; else from the
// sources' checkpoint. Every piece is digest-checked. A call with a newer `committed` replaces the one under way and resumes it.
// → CatchUpDone or CatchUpBroke.
struct CatchUpFromPeers {
  CatchUp order;
  bool has_state = false;  // the outer state in memory is that of `own_round`
  Round own_round;
  Digest own_digest;
  std::uint64_t number = 0;  // the answer repeats it
};
// Keep the results of committed rounds from now on for joiners, or no longer. No answer.
struct KeepResults {
  RunId run;
  bool keep = true;
};
// A run that is over, and not open: remove what lies on the disk of it, or all checkpoints but the newest. → StoredRemoved.
struct RemoveStored {
  RunId run;
  bool all = true;
  std::string why;
  Duration least_age{};  // of the newest checkpoint by this machine's clock: a younger one stays, whatever the coordinator's clock says
};
// The run is over here: drop everything of it from memory, end its exchanges. Checkpoints stay on disk. No answer.
struct CloseRun {
  RunId run;
};

// ---- runs of phases ------------------------------------------------------------------------------------------------------------

// Serve what lies on disk of this run by its digest. → ContentHeld for each, then ContentOpened.
struct OpenContent {
  RunId run;
};
// Fetch this from its sources. → ContentHeld or ContentMissed. One that is under way or held already is not fetched again.
struct FetchContent {
  RunId run;
  Content content;
};
// A file that the task of this start has written becomes content. → ContentHeld with start and step, or ContentMissed.
struct AdoptContent {
  RunId run;
  std::uint64_t start = 0;
  std::string path;
  std::uint64_t step = 0;  // of a checkpoint; 0: the result
};
// No longer needed here. No answer.
struct DropContent {
  RunId run;
  Digest digest;
};
// Start the trainer on a task whose inputs are held (ending one that still runs). → TaskProgressed, TaskWrote, TaskEnded.
struct StartTask {
  RunId run;
  std::uint64_t start = 0;  // grows with every one
  RunSpec spec;
  std::string task;
  std::vector<TaskInput> inputs;
  Content resume;
  RunId group;        // it goes on from what this run's trainer saved here,
  Round group_round;  // after this round; 0: from `resume`
};
// No answer: a stopped task is not reported as ended.
struct StopTask {
  RunId run;
  std::string why;
};

// ---- the process -------------------------------------------------------------------------------------------------------------

// Write this down before anything else is done: the newest coordinator that this island has met. No answer.
struct RememberGeneration {
  Generation generation;
};
// For the island's log. No answer.
struct Notice {
  std::string text;
  std::string level = "warning";  // info, warning or error
};
// The agent is done: end the process. `error` empty: as asked.
struct Exit {
  std::optional<Error> error;
  std::optional<TimePoint> until = {};  // of one that was asked to leave: its trainer is ended then, whatever it has in hand
};

using Effect =
    std::variant<StartTrainer, StopTrainer, LoadTrainer, PlanTrainer, GiveResult, OpenRun, AllowPeers, TryPaths, FormInitialState,
                 FormContribution, PreparePair, MeetPartner, LeavePairs, HearOfPair, RenouncePair, FormMergeContribution,
                 PostponeContribution, BeginExchange, CancelExchange, ApplyResult, OfferParameters, HandOver, AdoptParameters,
                 BeginCheckpoint, WriteCheckpoint, EndTrainerState, CopyCheckpoint, FetchCopy, LoadCheckpoint, CatchUpFromPeers,
                 KeepResults, CloseRun, RemoveStored, OpenContent, FetchContent, AdoptContent, DropContent, StartTask, StopTask, Exit,
                 FinishTrainer, SkipTrainer, TellTokens, DealData, RememberGeneration, Notice>;

}  // namespace atl::agent
