// Records: what the coordinator must never forget. The ledger stores them, and a core is constructed from them.
//
// A record says how a thing is now; a record with the same key replaces the older one (the key is named at each). Events
// and metrics have no key: they are only ever added. No message of a Ready may be sent before its records are durable.
// Threads: plain values.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

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

namespace atl::coordinator {

// queued → starting → running ⇄ interrupted → completed | failed | cancelled. The last three are ends; `resume` leads back
// from paused, failed and cancelled.
enum class RunState : std::uint8_t { queued, starting, running, interrupted, paused, completed, failed, cancelled };
std::string_view to_string(RunState state);
Result<RunState> run_state_from_string(std::string_view name);
[[nodiscard]] constexpr bool has_ended(RunState state) { return state >= RunState::completed; }
// No island works for it.
[[nodiscard]] constexpr bool is_idle(RunState state) { return state >= RunState::paused; }

// Why something waits, since when, and until when at the latest (if that is bounded). Shown unchanged by `status`.
struct Reason {
  std::string text;
  TimePoint since;
  std::optional<TimePoint> until;
  friend bool operator==(const Reason&, const Reason&) = default;
};

// Key: id.
struct RunRecord {
  RunId id;
  std::string name;  // unique among runs; the run file's, or as given by `submit --name`
  std::string file;  // the specification as submitted, as JSON: a second submit of a name is compared with it
  std::string spec;  // RunSpec as JSON
  RunState state = RunState::queued;
  Reason reason;               // of the state; at an end: why it ended ("completed with 3 of 4 islands")
  std::optional<Error> error;  // of a failed run: the first cause
  TimePoint submitted;
  std::optional<TimePoint> started;  // first invitation
  std::optional<TimePoint> ended;
  Epoch epoch;                       // 0 before the first invitation
  Generation decided;                // of the coordinator that committed or rolled back last; not known: nobody did
  std::uint32_t lineage = 0;         // grows when committed rounds were lost with every copy of them (event `rolled_back`)
  bool initialised = false;          // round 0 is committed
  Round committed;                   // newest committed round
  Digest digest;                     // of `committed`
  std::uint64_t tokens = 0;          // that committed contributions were trained on, each once
  Round copied;                      // the newest checkpoint of which there is a copy in [checkpoint].copy; 0: none
  bool restored = false;             // the ledger is a backup: islands may know of rounds that were committed after it
  std::optional<Round> pause_after;  // asked for: the run is paused once this round is committed and on the disks
  std::string enough;                // why it is not paused then, but complete: an island's trainer said that the model is good enough
  friend bool operator==(const RunRecord&, const RunRecord&) = default;
};

// joining: copying state. active: in the epoch. absent: not taking part, for `cause`; comes back by itself when it can.
// refused: cannot take part (its RunEnded carried an error). ended: done with the run.
enum class MembershipState : std::uint8_t { starting, joining, active, absent, refused, ended };
std::string_view to_string(MembershipState state);
Result<MembershipState> membership_state_from_string(std::string_view name);

// A time during which an island of the run did not take part.
struct Absence {
  Round from;               // first round without it
  std::optional<Round> to;  // first round with it again; empty: never came back
  std::string cause;
  TimePoint since;
  std::optional<TimePoint> until;
  friend bool operator==(const Absence&, const Absence&) = default;
};

// An island's place in a run. Key: (run, island). Never removed: a part of the data stays with its island.
struct MembershipRecord {
  RunId run;
  IslandId island;
  std::uint32_t part = 0;
  MembershipState state = MembershipState::starting;
  std::string cause;              // of absent and refused
  std::vector<Absence> absences;  // in order; at most kMaxAbsences newest
  std::uint32_t offences = 0;     // contributions and states that were rejected lately; enough of them: quarantine
  Epoch left;                     // the first epoch without it, of absent: who left last knows best how far the run is
  friend bool operator==(const MembershipRecord&, const MembershipRecord&) = default;
};
inline constexpr std::size_t kMaxAbsences = 16;

// The active islands of an epoch, in order. Key: (run, epoch).
struct EpochRecord {
  RunId run;
  Epoch epoch;
  TimePoint time;
  Round committed;
  std::vector<IslandId> members;
  std::string why;
  PlaceCouples avoid = {};  // of the members: paths that pairs are drawn around
  friend bool operator==(const EpochRecord&, const EpochRecord&) = default;
};

// Whether a round is of no history any more: a later lineage began before it, or anew. bases: the round with which each lineage after the
// first one began.
[[nodiscard]] inline bool is_void(std::uint32_t lineage, Round round, const std::map<std::uint32_t, Round>& bases) {
  return std::any_of(bases.upper_bound(lineage), bases.end(),
                     [&](const auto& later) { return round > later.second || later.second == Round(0); });
}

// What is known of an admitted island. Key: id. Admission itself (keys and tokens) is the ledger's own matter.
struct IslandRecord {
  IslandId id;
  std::string name;
  std::string public_key;    // Z85
  std::string bulk_address;  // of the last hello
  std::string version;
  std::string platform;
  std::vector<std::string> data_sets;
  std::uint64_t boot = 0;
  TimePoint last_hello;
  friend bool operator==(const IslandRecord&, const IslandRecord&) = default;
};

// A round, from its plan on. Key: (run, lineage, round). A newer attempt replaces the plan of an older one; a committed
// round is never replaced.
struct RoundRecord {
  RunId run;
  std::uint32_t lineage = 0;
  Round round;
  Epoch epoch;
  Attempt attempt;
  bool committed = false;
  bool checkpoint = false;                       // committed, and every member was told to write a checkpoint of it
  std::vector<IslandId> members;                 // not committed and nobody: this attempt was given up
  std::vector<ContributionFacts> contributions;  // per member: recorded(); tokens 0: contributed nothing, and its data are not counted
  bool unnoted = false;                          // by an atoll that did not note samples yet: the data of the contributions are not known
  std::vector<DataRange> parts;                  // of a round with `checkpoint`: how far each part of the data is committed by it, from 0
  Digest digest;                                 // of a committed round
  TimePoint planned;
  std::optional<TimePoint> committed_at;
  std::uint32_t fragment = 0;
  friend bool operator==(const RoundRecord&, const RoundRecord&) = default;
};

// Sequences that the round's contributions hold, each once. What was passed over on the way to them is not among them.
std::uint64_t sequences_held(const RoundRecord& round);

// A contribution that counts in no round. Key: (run, lineage, island, round, fate): told twice, it is one.
std::string_view to_string(Fate fate);
Result<Fate> fate_from_string(std::string_view name);
struct DroppedRecord {
  RunId run;
  std::uint32_t lineage = 0;
  IslandId island;
  Round round;  // that it was for
  Fate fate = Fate::rejected;
  ContributionFacts facts = {};  // accounted()
  friend bool operator==(const DroppedRecord&, const DroppedRecord&) = default;
};

// How a task of a run of phases stands. Key: (run, task).
enum class TaskState : std::uint8_t { waiting, running, done, failed };
std::string_view to_string(TaskState state);
Result<TaskState> task_state_from_string(std::string_view name);
struct TaskRecord {
  RunId run;
  std::string task;
  TaskState state = TaskState::waiting;
  IslandId island;  // that works on it, or has done it
  std::uint32_t starts = 0;
  Digest result;  // of a task that is done
  std::uint64_t result_bytes = 0;
  std::string facts;  // JSON object, of a task that is done
  Digest checkpoint;  // newest that it can be continued from
  std::uint64_t checkpoint_bytes = 0;
  std::uint64_t checkpoint_step = 0;
  std::optional<TimePoint> started;  // newest start
  std::optional<TimePoint> ended;
  RunId group;                    // the run of rounds in which several islands train it; empty: one island does
  std::vector<IslandId> members;  // of that group, while it works; `island` is one of them
  friend bool operator==(const TaskRecord&, const TaskRecord&) = default;
};

// What one island trains on of a run's data (coordinator/core/data_parts.hpp). Key: (run, part).
struct PartRecord {
  RunId run;
  std::uint32_t part = 0;
  std::uint64_t position = 0;   // sequences from 0 up to here are committed; its owner goes on here
  std::uint64_t sequences = 0;  // of a pass over all data; 0: not known yet
  IslandId owner;               // whose it is
  friend bool operator==(const PartRecord&, const PartRecord&) = default;
};

// Of which classes of the run's data a part is made from a position on. It ends stretches of later positions. Key: (run, part, from).
struct StretchRecord {
  RunId run;
  std::uint32_t part = 0;
  std::uint64_t from = 0;
  std::vector<DataClass> classes;  // none: nobody trains on the part from there on
  friend bool operator==(const StretchRecord&, const StretchRecord&) = default;
};

// One key of an event's JSON object.
struct Field {
  std::string key;
  std::variant<std::string, std::int64_t, double, std::vector<std::string>, std::vector<std::uint64_t>> value;
  friend bool operator==(const Field&, const Field&) = default;
};

// A change of state or something else a person should know.
struct EventRecord {
  TimePoint time;
  RunId run;          // may be empty
  IslandId island;    // may be empty
  std::string level;  // debug (of the tape only: `atoll events`) | info | warning | error
  std::string kind;   // "round_committed"
  std::string text;   // one line
  std::vector<Field> fields;
  friend bool operator==(const EventRecord&, const EventRecord&) = default;
};

// What a round brought on one island.
struct MetricRecord {
  TimePoint time;
  RunId run;
  IslandId island;
  Round round;
  Step step;
  ContributionFacts facts = unmeasured();  // of which the training loss, the norm and the tokens are kept
  double outer_loss = kNotMeasured;
  double local_loss = kNotMeasured;
  double wait_seconds = kNotMeasured;
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
  friend bool operator==(const MetricRecord&, const MetricRecord&) = default;
};

// An island has met a newer coordinator with the same key, started from a copy of this store: this store decides nothing any more.
struct Superseded {
  Generation by;
  std::string island;  // its name
  TimePoint time;
  friend bool operator==(const Superseded&, const Superseded&) = default;
};

// A run that an operator removed. Key: run. With it goes every other record of the run; it stays, for islands that were away.
struct RemovedRecord {
  RunId run;
  std::string name;
  TimePoint time;
  Epoch epoch;          // the newest
  Round round;          // the newest that an island may have come to in it
  bool lifted = false;  // the run was restored from a copy: it is not removed any more
  friend bool operator==(const RemovedRecord&, const RemovedRecord&) = default;
};

using Record = std::variant<RunRecord, MembershipRecord, EpochRecord, IslandRecord, RoundRecord, PartRecord, StretchRecord, EventRecord,
                            MetricRecord, TaskRecord, Superseded, DroppedRecord, RemovedRecord>;

// What a core starts from: everything in the ledger that it needs. Order does not matter.
struct Recovered {
  std::vector<RunRecord> runs;
  std::vector<MembershipRecord> memberships;
  std::vector<EpochRecord> epochs;               // the newest of each run; older ones are ignored
  std::vector<IslandRecord> islands;             // admitted ones
  std::map<IslandId, std::string> former_names;  // of islands whose keys were revoked: runs still tell of them
  std::vector<PartRecord> parts;
  std::vector<StretchRecord> stretches;
  std::vector<RoundRecord> rounds;  // of each run's present lineage; a core keeps what it needs
  std::vector<TaskRecord> tasks;    // of runs of phases
  std::vector<RemovedRecord> removed;
};

}  // namespace atl::coordinator
