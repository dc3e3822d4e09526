// Views: how runs and islands are at this moment, for `status`, `runs` and `islands`.
// Threads: plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/core/paths.hpp"
#include "coordinator/core/record.hpp"
#include "transport/base/availability.hpp"
#include "transport/control/message.hpp"

namespace atl::coordinator {

// What an island waited for, in all.
struct WaitView {
  std::string what;    // ready | link | commit
  std::string island;  // names; of a link the receiver
  std::string from;    // of a link the sender
  std::string text;    // for people: "the link a → b"
  double seconds = 0;
};

// What one wait of an island's trainer was for, in part.
struct WaitCause {
  IslandId peer;     // whom it waited for: the one to be ready, or a link's sender; empty: nobody of the islands
  std::string text;  // for people, as in WaitView
  double seconds = 0;
};

// An island's place in a run, with what it last reported.
struct MembershipView {
  IslandId island;
  std::string name;
  MembershipState state = MembershipState::starting;
  Reason reason;  // why it is not training at the moment; text empty: nothing to say
  std::uint32_t part = 0;
  double share = 0;  // of the committed tokens, smoothed over rounds
  bool connected = false;
  std::string kernels = {};  // what its built-in trainer computes with and on; empty: not said yet, or there is none
  std::optional<TimePoint> last_seen;
  std::vector<Absence> absences;
  IslandReport report;          // run empty: none yet
  std::vector<WaitView> waits;  // longest first; since the coordinator was started
};

// The run of rounds in which several islands train an expert.
struct GroupView {
  RunId run;  // empty: one island does
  std::string name;
  std::vector<std::string> members;  // names, while they do
  Round round;                       // newest committed one of that run
  std::uint64_t rounds = 0;
  std::uint64_t images = 0;  // that its committed contributions were trained on
};

// A task of a run of phases.
struct TaskView {
  std::string task;
  std::string phase;
  TaskState state = TaskState::waiting;
  std::string island;      // name; empty: none yet
  std::uint64_t step = 0;  // of the trainer, while it runs
  std::uint64_t steps = 0;
  double loss = 0;  // NaN: none
  std::uint64_t checkpoint_step = 0;
  std::uint32_t copies = 0;  // connected islands that hold its result, or while it runs its checkpoint
  Digest result;
  std::uint64_t result_bytes = 0;
  std::string facts;  // JSON
  std::uint32_t starts = 0;
  GroupView group;
  std::optional<TimePoint> started;
  std::optional<TimePoint> ended;
};

// What comes and goes faster than its loss is noticed: the path between two islands, or the link of one.
struct UnsteadyView {
  std::string from;  // name; empty: it is the link of `to`
  std::string to;
  Availability available;
  std::string text;                // for people
  std::optional<TimePoint> until;  // it has to be steady until then
};

// Two islands whose data do not go directly.
struct IndirectView {
  IslandId a;
  IslandId b;
  std::string name_of_a;
  std::string name_of_b;
  Way way;
  double bytes_per_second = 0;  // as last measured, of the slower direction; 0: not measured
  std::string why = {};         // no better way is taken
};

// A run is its record, with what is of this moment. Its reason is never empty while the run waits for anything.
struct RunView : RunRecord {
  std::uint64_t rounds = 0;  // of the whole run
  Round last_own;            // of those that islands commit by themselves, each with an outer state of its own; 0: none
  std::uint32_t min = 0;
  std::uint32_t max = 0;
  std::optional<Round> round;               // in flight
  std::optional<Attempt> attempt;           // of it; empty while contributions are collected
  double spread = 0;                        // in pairs: root mean squared distance of the islands to their mean, estimated
  Round spread_round;                       // when all had done this round; 0: not known yet
  std::vector<MembershipView> memberships;  // by part
  std::vector<UnsteadyView> unsteady;       // paths between its islands, and their links
  std::vector<IndirectView> indirect;       // pairs of its islands
  std::vector<std::string> phases;          // in order
  std::vector<TaskView> tasks;              // of a run of phases, in order
  RunId part_of;                            // the run of phases that it trains an expert for; empty: none
};

// Whether data came to an island from another one when it tried, and what was measured of the path between them.
struct PathView {
  std::string from;  // name
  bool passes = false;
  std::string why;  // not
  std::optional<MeasuredPath> measured;
  std::optional<Way> way = {};    // nothing: not known
  std::string why_indirect = {};  // no better way is taken; empty: it is direct
};

struct IslandView {
  IslandId id;
  std::string name;
  std::string state;  // connected | away | probing
  Reason reason;      // what it does or waits for
  RunId run;          // that it serves; may be empty
  std::string version;
  std::string platform;
  std::string bulk_address;
  std::string seen_host;  // the address that its connection comes from; empty: not heard of since the coordinator's restart
  std::vector<std::string> data_sets;
  std::optional<TimePoint> last_seen;
  double uplink_budget_bits_per_second = 0;  // its owner's; 0: none, or not heard of since the coordinator's restart
  std::vector<PathView> paths;               // from other islands, as far as that is known
  std::uint64_t link_memory_bytes = 0;       // its owner's budget for pieces on their way; 0: not known
};

// Where an island says that it is reached, and at which of that others dial it now.
struct ReachView {
  std::string bulk_address;
  std::vector<std::string> dialled;
};

// What a run would begin with if it were submitted now.
struct StartCandidateView {
  IslandId island;
  std::string name;
  bool takes_part = false;
  std::string obstacle;  // why it cannot serve the run; empty: it can
};
struct StartView {
  bool enough = false;                      // at least as many islands as the run needs
  std::string wait;                         // for whom it would wait; empty: for nobody
  std::vector<StartCandidateView> islands;  // that the run file admits, by name
  std::vector<std::string> apart;           // of each two that would take part and cannot exchange data: who, why, what to open
};

}  // namespace atl::coordinator
