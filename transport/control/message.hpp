// Every message of the control link, as values. `messages.fbs` is their form on the wire and the protocol's document.
//
// Islands, operators and the coordinator exchange these and nothing else; parameters never travel here. Every message about
// a run names it, and every message about a round names (run, epoch, round, attempt): a receiver drops what is stale.
// All of them may arrive twice or late; none may be assumed to arrive.
// Threads: plain values.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "transport/base/availability.hpp"
#include "transport/base/bytes.hpp"
#include "transport/base/data_share.hpp"
#include "transport/base/fate.hpp"
#include "transport/base/generation.hpp"
#include "transport/base/ids.hpp"
#include "transport/base/not_measured.hpp"
#include "transport/base/place_couples.hpp"
#include "transport/base/result.hpp"
#include "transport/base/time.hpp"
#include "transport/control/contribution_facts.hpp"
#include "transport/control/span.hpp"
#include "transport/control/way.hpp"

namespace atl {

// Both ends must speak the same; hello compares them and names both on a mismatch.
inline constexpr std::uint32_t kProtocolVersion = 1;
inline constexpr std::size_t kMaxMessageBytes = 4ULL << 20;

// ---------------------------------------------------------------------------------------------------------------- parts

// How to find and recognise an island on the bulk link.
struct Member {
  IslandId island;
  std::string name;          // chosen by its owner; unique within a coordinator
  std::string public_key;    // Curve25519, 40 characters Z85
  std::string bulk_address;  // "tcp://host:port", or several of them (transport/base/address.hpp)
  friend bool operator==(const Member&, const Member&) = default;
};

// A complete checkpoint on an island's disk.
struct HeldCheckpoint {
  Round round;
  Digest digest;               // of the rounds up to it
  Epoch epoch = {};            // in which it was written; 0: not known
  Generation generation = {};  // by whose word; without a proof; not known: that of an older atoll
  friend bool operator==(const HeldCheckpoint&, const HeldCheckpoint&) = default;
};

// What an island has of a run when it says hello.
struct HeldRun {
  RunId run;
  Epoch epoch;        // the newest it knows
  bool live = false;  // its outer state is in memory and was never lost: it may go on where it is
  Round committed;    // newest round applied in memory; meaningful if live
  Digest digest;      // of `committed`; meaningful if live
  std::vector<HeldCheckpoint> checkpoints;
  std::uint32_t part = 0;      // of the data, and
  std::uint64_t position = 0;  // its first sequence that no round up to `committed` holds
  // By whose word it last committed a round, or took part: without a proof. Of two that hold different rounds after a coordinator's store
  // was copied, that of the newer generation holds the run's.
  Generation generation = {};
  Epoch held_in =
      {};  // the epoch of that word: it may have heard of newer ones since, in which others go on from another state; 0: not known
  // Of the state that it holds in memory, or of its newest checkpoint.
  [[nodiscard]] Epoch state_epoch() const { return live && held_in > Epoch(0) ? std::min(held_in, epoch) : epoch; }
  friend bool operator==(const HeldRun&, const HeldRun&) = default;
};

// A number that a trainer of one's own has measured, by the name that it gave it ("accuracy").
struct OwnMetric {
  std::string name;
  double value = 0;  // may be not finite
  friend bool operator==(const OwnMetric&, const OwnMetric&) = default;
};
inline constexpr std::size_t kMaxOwnMetrics = 32;

// What an island measured lately; travels with every heartbeat, shown by `status`, never decides correctness.
struct IslandReport {
  RunId run;
  std::string state;   // starting | training | waiting | exchanging | catching-up | checkpointing | finished
  std::string reason;  // of a wait: for what or whom
  Step step;
  std::uint64_t tokens = 0;  // trained on in this run by this island
  double tokens_per_second = 0;
  double compute_seconds = 0;           // of the trainer in this run
  double wait_seconds = 0;              // of the trainer in this run, at merges
  double training_loss = kNotMeasured;  // nats per token
  std::uint64_t bytes_sent = 0;         // bulk link, this run
  std::uint64_t bytes_received = 0;
  std::uint64_t agent_memory_bytes = 0;  // resident
  std::uint64_t trainer_memory_bytes = 0;
  std::uint64_t parameters = 0;         // that the trainer declared; 0: not known yet
  std::vector<OwnMetric> metrics = {};  // the newest that the trainer said, at most kMaxOwnMetrics
  std::string enough = {};              // why the trainer says that the run may end for all; empty: it does not
  bool awaits_trainer = false;          // its trainer is starting, or has ended and is started again: it cannot take a step
  friend bool operator==(const IslandReport&, const IslandReport&) = default;
};

// ------------------------------------------------------------------------------------------------ island → coordinator

struct Hello {
  std::uint32_t protocol = kProtocolVersion;
  std::string version;  // of Atoll
  std::string name;
  std::uint64_t boot = 0;  // random per process start: tells a restart from a second agent with the same identity
  std::string bulk_address;
  std::string platform;                // "Linux x86_64, 2 cores, AVX2", for people
  std::vector<std::string> data_sets;  // names its owner mapped
  std::vector<HeldRun> runs;
  std::uint32_t codec_version = 0;         // of the codecs' byte layouts (strategies/codec.hpp): all members of a run need the same
  double uplink_bits_per_second = 0;       // what its owner lets it send to the others (`agent --uplink`); 0: as much as the line bears
  std::string kernels = {};                // what its trainers multiply matrices with, for people
  std::vector<std::string> trainers = {};  // names of the training programs that its owner lets runs start
  Generation generation = {};              // the newest of its coordinator that this island has met
  std::uint64_t link_memory_bytes = 0;     // for pieces on their way (`agent --link-memory`); 0: an older agent, which does not say
  std::vector<std::string> copies = {};    // where its owner lets it keep and read copies of checkpoints (`agent --allow-copy`), and below
  std::string place = {};                  // a digest of its machine's last start and of the file that locks its state; empty: not known
  friend bool operator==(const Hello&, const Hello&) = default;
};

struct Heartbeat {
  std::uint64_t boot = 0;
  std::vector<IslandReport> reports;
  friend bool operator==(const Heartbeat&, const Heartbeat&) = default;
};

// "My contribution to this round is formed." Round 0: the initial state is formed and `digest` is its digest.
struct Ready {
  RunId run;
  Epoch epoch;
  Round round;
  Digest digest;  // round 0: of the initial outer state. Later: of the last committed round
  ContributionFacts facts = {};
  friend bool operator==(const Ready&, const Ready&) = default;
};

// "I hold the reduced result of this attempt", not yet applied.
struct Exchanged {
  RunId run;
  Epoch epoch;
  Round round;
  Attempt attempt;
  Digest digest;  // previous digest and this result
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
  double seconds = 0;
  IslandId slowest = {};       // whose pieces came last: the link that this island waited for; empty: it needed nobody's
  double arrived_seconds = 0;  // after the beginning of the exchange: when they had come
  // Of what each member gave to the result, in order; an empty one: nothing. On two levels of each strip, and of the shards of its own.
  std::vector<Digest> parts = {};
  friend bool operator==(const Exchanged&, const Exchanged&) = default;
};

struct ExchangeFailed {
  RunId run;
  Epoch epoch;
  Round round;
  Attempt attempt;
  IslandId accused;  // who did not deliver; may be empty
  Error error;
  std::vector<IslandId> missing = {};  // of whose own contributions nothing came
  friend bool operator==(const ExchangeFailed&, const ExchangeFailed&) = default;
};

// What a probe of the path from another island to this one has shown; or what was measured of it, where a measurement was asked for; or how
// it came and went, where it is watched.
struct PathReport {
  IslandId from;
  bool whole = false;
  std::string why;                     // what did not come
  std::uint32_t measurement = 0;       // as in Neighbours; 0: it was a probe, and the rest is empty
  std::uint64_t round_trip_us = 0;     // 0: nothing came
  std::uint64_t bytes_per_second = 0;  // 0: no full piece came in the time that there was
  Availability available = {};         // watched: it is this that is told, and the rest is empty; in whole milliseconds
  friend bool operator==(const PathReport&, const PathReport&) = default;
};

// By which way this island's data go to and from each island that it is connected to: all of them, each time.
struct PeerWay {
  IslandId peer;
  Way way;
  friend bool operator==(const PeerWay&, const PeerWay&) = default;
};
struct Ways {
  std::vector<PeerWay> peers;
  friend bool operator==(const Ways&, const Ways&) = default;
};

// "My contribution must not count": not finite, or the trainer failed to make one. The island stays in the epoch.
struct Withdrawn {
  RunId run;
  Epoch epoch;
  Round round;
  Error error;
  Fate fate = Fate::rejected;
  ContributionFacts facts = {};  // accounted()
  friend bool operator==(const Withdrawn&, const Withdrawn&) = default;
};

// After a committed round was applied and merged: what it brought. NaN where not measured.
struct Merged {
  RunId run;
  Round round;
  Step step;
  double outer_loss = 0;  // validation, nats per token, of the outer parameters
  double local_loss = 0;  // validation of this island's parameters before the merge
  double wait_seconds = 0;
  // Of a run whose islands keep outer states of their own (group pairs):
  IslandId partner = {};                // with whom this round was taken; empty: alone
  std::vector<float> projection = {};   // of the outer parameters after it (strategies/projection.hpp); finite
  std::vector<OwnMetric> metrics = {};  // that the trainer said for this round, at most kMaxOwnMetrics
  friend bool operator==(const Merged&, const Merged&) = default;
};

struct Checkpointed {
  RunId run;
  Round round;
  Digest digest;
  Digest file;  // SHA-256 of outer.safetensors: equal on all islands
  std::uint64_t file_bytes = 0;
  std::optional<Error> error;  // a full disk, say: the older checkpoints are still good
  friend bool operator==(const Checkpointed&, const Checkpointed&) = default;
};

// A checkpoint was copied to [checkpoint].copy; or why it was not. Said once, when it is known.
struct Copied {
  RunId run;
  Round round;
  Digest digest;                 // of the rounds up to it
  std::uint64_t bytes = 0;       // of the copy
  std::uint64_t sent_bytes = 0;  // now; the rest lay there from an earlier try
  double seconds = 0;            // that this took
  std::string place;             // where copies of this run are kept, for people
  std::optional<Error> error;    // the run goes on without this copy
  friend bool operator==(const Copied&, const Copied&) = default;
};

// "My outer state is that of this round" after a CatchUp or a Restore; or why it is not.
struct CaughtUp {
  RunId run;
  Epoch epoch;
  Round round;
  Digest digest;
  std::optional<Error> error;
  std::uint64_t entry = 0;  // of the Invite that it answers; 0: of an agent that does not know of entries
  friend bool operator==(const CaughtUp&, const CaughtUp&) = default;
};

// Something a person should know: a trainer's crash, a rejected contribution, a full disk.
struct IslandEvent {
  RunId run;          // may be empty
  std::string level;  // info | warning | error
  std::string kind;   // "trainer_crashed"
  std::string text;
  friend bool operator==(const IslandEvent&, const IslandEvent&) = default;
};

// "I cannot take part in this run" (data refused, trainer keeps failing), or "I am done with it": error absent.
struct RunEnded {
  RunId run;
  Round round;
  Digest digest;
  std::optional<Error> error;
  friend bool operator==(const RunEnded&, const RunEnded&) = default;
};

// Spans that ended since the last one; some may be lost.
struct Timeline {
  RunId run;
  std::vector<Span> spans;
  friend bool operator==(const Timeline&, const Timeline&) = default;
};

// Of which runs something lies on this island's disk: the coordinator says which of them are over. Said after every welcome, and now and
// then.
struct Holds {
  std::vector<RunId> runs;
  friend bool operator==(const Holds&, const Holds&) = default;
};

struct Leave {
  std::string why;
  bool contributes = false;  // a contribution to the round in hand is coming: worth waiting for
  friend bool operator==(const Leave&, const Leave&) = default;
};

// ------------------------------------------------------------------------------------------------ coordinator → island

struct Welcome {
  std::string version;
  IslandId island;
  std::uint64_t heartbeat_ms = 1000;
  std::uint64_t dead_after_ms = 5000;
  std::uint64_t stall_ms = 20'000;  // an exchange in which a peer delivers nothing for so long has failed
  Generation generation = {};       // of this coordinator
  friend bool operator==(const Welcome&, const Welcome&) = default;
};

// Not admitted, or no longer. A refused agent prints `error` and ends, unless the code is worth retrying.
struct Refused {
  Error error;
  friend bool operator==(const Refused&, const Refused&) = default;
};

// The other islands that are connected: try the data path from each, whether or not you train together. All of them, each time.
// With a measurement: how far each is and how fast data come from it, one after the other in this order, so long each.
struct Neighbours {
  std::vector<Member> islands;
  std::uint32_t measurement = 0;  // its number; 0: none
  std::uint32_t measure_ms = 0;
  friend bool operator==(const Neighbours&, const Neighbours&) = default;
};

// How an island comes to the state it starts from.
enum class StartFrom : std::uint8_t {
  scratch,     // initialise from the seed; round 0
  checkpoint,  // its own checkpoint of round `committed`
  peers,       // wait for CatchUp
  memory,      // it is live: go on
};

struct Invite {
  RunId run;
  std::string spec;  // RunSpec as JSON
  Epoch epoch;
  std::uint32_t part = 0;  // of the data: the island's own
  StartFrom from = StartFrom::scratch;
  Round committed;
  Digest digest;
  std::vector<Member> members;  // active ones of the epoch, in order
  std::uint64_t position = 0;   // the first sequence of the part that is not committed by round `committed`
  // Which of the coordinator's attempts at letting this island in: no two have the same number. What was said to an earlier one may
  // come after it, and must not end it.
  std::uint64_t entry = 0;
  DataShare share = {};     // what its part is made of
  PlaceCouples avoid = {};  // as in NewEpoch
  friend bool operator==(const Invite&, const Invite&) = default;
};

// The epoch's members from now on; whoever is not among them is not active.
struct NewEpoch {
  RunId run;
  Epoch epoch;
  Round committed;
  std::vector<Member> members;
  std::optional<Round> pause_after;     // the run is being paused after this round
  std::uint64_t tokens = 0;             // of the run, that are committed
  std::optional<DataShare> share = {};  // what the receiver's part of the data is made of; nothing: it is no member
  PlaceCouples avoid = {};              // of the members: whose path comes and goes or does not pass, so that pairs are drawn around it
  friend bool operator==(const NewEpoch&, const NewEpoch&) = default;
};

// What is said of each member of an exchange, in their order: one value where it is the same for all, so that what is said to an island
// does not grow with the islands.
struct ExchangeTerms {
  std::vector<std::uint64_t> tokens;      // the weights, see strategies/aggregate.hpp; 0: contributes nothing
  std::vector<std::uint8_t> shares = {};  // 0: it owns no shard; empty: everybody owns one. Never in short
  std::vector<std::uint64_t> steps = {};  // behind its tokens
  // Of its contribution. One value where the aggregator does not count them: the largest, beyond which none may go. Empty: none was said.
  std::vector<double> norms = {};
  friend bool operator==(const ExchangeTerms&, const ExchangeTerms&) = default;
};

// "Exchange now." Members contribute in this order; member j owns shard j. A member with weight 0 contributes nothing
// (it withdrew) but receives the result.
struct Exchange {
  RunId run;
  Epoch epoch;
  Round round;
  Attempt attempt;
  std::vector<IslandId> members;  // empty: all members of the epoch, in their order
  ExchangeTerms terms;
  std::uint32_t fragment = 0;
  bool rejected = false;  // the contribution of whom this is sent to does not count, in no later round either
  friend bool operator==(const Exchange&, const Exchange&) = default;
};

struct Commit {
  RunId run;
  Epoch epoch;
  Round round;
  Attempt attempt;
  Digest digest;
  bool checkpoint = false;           // write one after applying this round
  bool pause = false;                // and do not train on: the run is paused after this round
  std::uint64_t tokens = 0;          // of the run, that are committed with this round and those before it
  bool copy = false;                 // this island is to copy the checkpoint to [checkpoint].copy
  std::vector<DataRange> data = {};  // with `copy`: how far each part of the data is after the round, from 0
  friend bool operator==(const Commit&, const Commit&) = default;
};

struct Abort {
  RunId run;
  Epoch epoch;
  Round round;
  Attempt attempt;
  std::string why;
  friend bool operator==(const Abort&, const Abort&) = default;
};

// To a source: have a checkpoint of the newest committed round on disk, report it with Checkpointed, and keep the results
// of later rounds for others to fetch, until `offering` is taken back.
struct Offer {
  RunId run;
  bool offering = true;  // false: nobody needs it any more
  friend bool operator==(const Offer&, const Offer&) = default;
};

// To a joiner: copy the checkpoint of `checkpoint_round` from the sources (unless its own state is at least that new and
// its digest verified), then apply the results of the rounds up to `committed`.
struct CatchUp {
  RunId run;
  Epoch epoch;
  Round checkpoint_round;
  Digest checkpoint_file;  // SHA-256 of outer.safetensors
  std::uint64_t checkpoint_bytes = 0;
  Round committed;
  Digest digest;  // of `committed`
  std::vector<Member> sources;
  std::uint32_t part = 0;      // of the data, as in Invite
  std::uint64_t position = 0;  // the first sequence of that part that is not committed by round `committed`
  friend bool operator==(const CatchUp&, const CatchUp&) = default;
};

// A byte string of a run of phases: the result of a task, or what a task can be continued from.
struct Content {
  Digest digest;  // SHA-256 of it; empty: there is none
  std::uint64_t bytes = 0;
  std::vector<IslandId> sources;  // islands that have it
  friend bool operator==(const Content&, const Content&) = default;
};

// The result of a task that another task needs.
struct TaskInput {
  std::string task;
  Content content;
  friend bool operator==(const TaskInput&, const TaskInput&) = default;
};

// What the island has to do in a run of phases: all of it, each time; an assignment with a higher number replaces the one before.
struct Assignment {
  RunId run;
  std::uint64_t number = 0;
  std::string spec;  // JSON of the run file, complete
  std::vector<Member> members;
  std::string task;  // "experts/2"; empty: none at the moment
  std::vector<TaskInput> inputs;
  Content resume;             // what to continue the task from; empty: from the beginning
  std::vector<Content> keep;  // to have and to serve besides
  std::vector<Content> drop;  // that it told of and nobody needs of it any more; nothing else of the run is dropped
  RunId group;                // the run of rounds in which several islands train the task's expert; empty: this island alone
  Round group_round;          // that run's last round: the task goes on from what this island's trainer saved after it; 0: it is not over
  Epoch epoch = {};           // of the run, for Release
  friend bool operator==(const Assignment&, const Assignment&) = default;
};

// How the island's part in a run of phases stands: all of it, each time.
struct AssignmentReport {
  RunId run;
  std::uint64_t number = 0;  // of the newest assignment
  std::string task;
  std::string
      state;  // idle | fetching | ready (for its group) | running | done | failed | without (the state that its group's trainer saved)
  std::uint64_t step = 0;
  std::uint64_t steps = 0;
  double loss = 0;  // NaN: none
  double images_per_second = 0;
  double compute_seconds = 0;  // of this island in this run
  Content result;              // of a task that is done
  std::string facts;           // JSON, of a task that is done
  Content checkpoint;          // what the task can be continued from
  std::uint64_t checkpoint_step = 0;
  std::vector<Content> held;   // complete, on its disk
  std::optional<Error> error;  // of a task that failed; while one is fetching, why the last try brought nothing
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
  friend bool operator==(const AssignmentReport&, const AssignmentReport&) = default;
};

// Images that the model of a running task makes, as one picture: for people to look at, so some may be lost.
struct TaskImages {
  RunId run;
  std::string task;
  std::uint64_t step = 0;  // of the task
  Bytes png;               // at most kMaxPictureBytes
  friend bool operator==(const TaskImages&, const TaskImages&) = default;
};

// Let this reader (an operator's `export`, a joiner) fetch your checkpoint of this round, and keep it while it may be reading; or no
// longer.
struct Serve {
  RunId run;
  std::string reader_key;
  Round round;
  bool allowed = true;              // false: no longer, whatever the round
  std::string reader_address = {};  // of a joiner, as Member's: dial it, for it may not reach you; empty: the reader dials
  friend bool operator==(const Serve&, const Serve&) = default;
};

// Pace: the others have reached this round's synchronisation point. Come to it with the steps done so far, at least
// [strategy].min_inner_steps.
struct Cut {
  RunId run;
  Epoch epoch;
  Round round;
  friend bool operator==(const Cut&, const Cut&) = default;
};

// The island is asked to leave, as if its own owner had asked: finish the round in hand with the steps done so far, and go.
struct Drain {
  std::string why;
  friend bool operator==(const Drain&, const Drain&) = default;
};

// What an island knows of a round of a pair or group that it was drawn for (agent/engine/pair_exchange.hpp).
enum class PairWord : std::uint8_t {
  met,     // all took it together
  alone,   // each took it alone
  doubt,   // it promised to do what another decides, and knows no more
  voided,  // it has the state of another island since: what it was in the group counts no more
};
// Passed on by the coordinator between two of a group: one that promised and does not hear what was decided asks the others, and gets their
// answers once there are any. Only in the present epoch, which is the one it asks in.
struct PairQuery {
  RunId run;
  Epoch epoch;  // of the pair
  Round round;
  IslandId asker;
  IslandId asked;
  Epoch asked_in;
  friend bool operator==(const PairQuery&, const PairQuery&) = default;
};
struct PairAnswer {
  RunId run;
  Epoch epoch;  // of the pair
  Round round;
  IslandId asker;
  IslandId answerer;
  PairWord word = PairWord::doubt;
  Epoch asked_in;
  friend bool operator==(const PairAnswer&, const PairAnswer&) = default;
};

// The run is over for this island.
struct Release {
  RunId run;
  Code code = Code::cancelled;  // why the trainer stops; `cancelled` keeps the checkpoints like every other code
  bool completed = false;
  std::string why;
  Epoch epoch = {};         // of the run then: what the island was told in a newer one stands; 0: whatever it was told
  std::uint32_t place = 0;  // among the islands that have completed it, from 1; 0: it is not one of them
  friend bool operator==(const Release&, const Release&) = default;
};

// A run that is over. What the coordinator knows of it goes with it: an island that knows of more keeps what it has.
struct RunOver {
  RunId run;
  bool removed = false;             // an operator removed it: nothing of it is to stay
  std::uint64_t ended_seconds = 0;  // so long ago it ended
  Epoch epoch;                      // the newest
  Round round;                      // the newest that an island may have come to in it
  friend bool operator==(const RunOver&, const RunOver&) = default;
};

// Where islands that cannot dial each other meet (transport/relay), and what shows there that the receiver may: in the order in which they
// are tried. All of them, each time; said again before the passes run out.
struct RelayOffer {
  std::string name;
  std::string address;  // "tcp://host:port"
  std::string pass;     // transport/relay/relay_pass.hpp
  bool carries = true;  // false: islands learn there each other's address, and no data pass
  friend bool operator==(const RelayOffer&, const RelayOffer&) = default;
};
struct Relays {
  std::vector<RelayOffer> relays;
  friend bool operator==(const Relays&, const Relays&) = default;
};

// An island has a relay in its process, for others of this coordinator (`agent --relay`). Said once it is welcome, and when the address
// becomes another one; it goes with the island.
struct OwnRelay {
  std::string address;  // "tcp://host:port"
  Digest secret;        // by which it knows passes (transport/relay/relay_ticket.hpp)
  friend bool operator==(const OwnRelay&, const OwnRelay&) = default;
};

// Which of the runs that an island holds are over. Of a run that is not named nothing is to be concluded: the coordinator may have lost
// what it knew of it.
struct Over {
  std::vector<RunOver> runs;
  friend bool operator==(const Over&, const Over&) = default;
};

// ---------------------------------------------------------------------------------------- enrolment (an unknown key)

struct Enrol {
  std::uint32_t protocol = kProtocolVersion;
  std::string token_secret;
  std::string name;
  friend bool operator==(const Enrol&, const Enrol&) = default;
};

struct Enrolled {
  std::string role;  // island | operator
  IslandId island;
  std::string name;  // by which people know it; another one than was asked for if that was taken
  friend bool operator==(const Enrolled&, const Enrolled&) = default;
};

// ------------------------------------------------------------------------------------------------ operator ↔ coordinator

// What an operator asks. `verb` is one of: submit runs status islands events tokens token_create token_revoke cancel resume
// export ping; `arguments` is a JSON object (coordinator/api/documents.md has each). Needs the role operator.
struct Request {
  std::uint32_t protocol = kProtocolVersion;
  std::uint64_t id = 0;
  std::string verb;
  std::string arguments;
  friend bool operator==(const Request&, const Request&) = default;
};

// The answer: an error, or a JSON document with "schema".
struct Reply {
  std::uint64_t id = 0;
  std::optional<Error> error;
  std::string document;
  friend bool operator==(const Reply&, const Reply&) = default;
};

using Message = std::variant<Hello, Heartbeat, Ready, Exchanged, ExchangeFailed, Withdrawn, Merged, Checkpointed, CaughtUp, IslandEvent,
                             Timeline, RunEnded, Leave, Welcome, Refused, Invite, NewEpoch, Exchange, Commit, Abort, Offer, CatchUp, Serve,
                             Release, Enrol, Enrolled, Request, Reply, Drain, Cut, PairQuery, PairAnswer, Assignment, AssignmentReport,
                             PathReport, Neighbours, TaskImages, Copied, Holds, Over, Relays, Ways, OwnRelay>;

// Bounds of the wire (messages.fbs): of a name or id, of a text for people, of a list.
inline constexpr std::size_t kMaxNameBytes = 512;
inline constexpr std::size_t kMaxTextBytes = 16U << 10U;
inline constexpr std::size_t kMaxListItems = 1024;
inline constexpr std::size_t kMaxPictureBytes = 96 * 1024;
// Of a number that counts: an epoch, a round, a step, bytes, a run's tokens, an entry. Counting on from there never wraps.
inline constexpr std::uint64_t kMaxCount = std::uint64_t{1} << 62U;
// Of what one contribution holds, and of a position in a part of the data: tokens, inner steps, sequences. As many as a list has items
// still sum to less than kMaxCount.
inline constexpr std::uint64_t kMaxAmount = std::uint64_t{1} << 48U;
// Of how often a path came and went within the time that is looked back at: five minutes are 600 halves of a second.
inline constexpr std::uint32_t kMaxPathChanges = 600;
// Of a time in milliseconds: 49 days.
inline constexpr std::uint64_t kMaxMilliseconds = std::uint64_t{1} << 32U;

// The message as one FlatBuffer of at most kMaxMessageBytes. Texts for people (why, reason, text) are made plain and cut to
// kMaxTextBytes; anything else that is over its bound or not plain UTF-8 is invalid_argument naming the field.
Result<Bytes> encode(const Message& message);
// Verifies before use: garbage, an unknown kind, an out-of-range enum, a number or a frame over a bound is corrupt, never a crash. A
// message of another protocol version is conflict naming both, except Hello, Enrol, Request, Refused and Reply, which are
// read whatever the version.
Result<Message> decode(ByteView frame);
// conflict: "the sender speaks protocol version 2, the receiver version 1: …".
Error protocol_mismatch(std::uint32_t sender, std::uint32_t receiver);
// The name of a message's kind, for logs ("exchange_failed").
std::string_view kind_of(const Message& message);

}  // namespace atl
