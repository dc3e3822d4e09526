// Who is there: every admitted island with its key, the instance of its agent that was let in, when it was last heard, and what it holds.
//
// An identity belongs to one agent at a time. A hello with another boot number is a restart, or a second agent: the old instance is asked
// first, and has Settings::probe to show that it is alive. An island that is silent for Settings::dead_after is lost.
// What follows from an arrival or a loss for the runs is the core's business.
// Threads: owned by one core.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/core/outbox.hpp"
#include "transport/base/log_limit.hpp"

namespace atl::coordinator {

// A hello of another instance than the one that was let in.
struct Probe {
  std::uint64_t boot = 0;
  Hello hello;
  TimePoint since;
};

// An island that is on its way out.
struct Departure {
  std::optional<std::string> asked;    // `drain`: why; it has not said yet that it leaves
  std::optional<std::string> leaving;  // it said so: why
  bool contributes = false;            // leaving: its contribution to the round in hand is coming
};

struct Island {
  static constexpr std::uint32_t kMostEvents = 30;  // of its own a minute: each stays in the ledger
  IslandRecord record;
  bool greeted = false;  // its Hello was accepted, and it is not silent
  std::uint64_t boot = 0;
  TimePoint heard;  // with what was excused: its silence is counted from here
  TimePoint spoke;  // its newest message came
  TimePoint told_to_greet;
  Departure departure;
  std::optional<Probe> probe;
  std::map<RunId, HeldRun> held;              // of its hello; checkpoints are kept up to date
  std::string seen_host;                      // the address that its connection comes from; empty: not known
  double uplink_budget = 0;                   // of its hello, in bits a second; 0: none
  std::uint64_t link_memory_bytes = 0;        // of its hello; 0: it does not say
  std::string kernels;                        // of its hello
  std::vector<std::string> trainers;          // of its hello
  std::vector<std::string> copies;            // of its hello: where it may keep and read copies of checkpoints
  std::vector<std::uint64_t> outlived;        // boots before this one, the newest last: their late hellos are no new agents'
  std::string place;                          // of its hello: of agents with the same place the later one has outlived the earlier
  std::map<RunId, IslandReport> reports;      // of its newest heartbeat
  std::optional<TimePoint> unreported_since;  // its heartbeats say nothing of a run, or of that in which it is one of a group
  LogLimit events{kMostEvents};               // that it tells for people
  RunId lent_to;                              // in which it trains an expert with others; empty: none
  std::deque<TimePoint> changes;              // when it last came, came back or changed its address, within a minute
  std::optional<TimePoint> told_restless;     // that it does so too often

  [[nodiscard]] bool leaving() const { return departure.leaving.has_value(); }
};

// That an island is let in, with what it says of itself in its hello.
struct Arrival {
  bool new_boot = false;
  bool moved = false;  // others reach it at another address than before
  bool here = false;   // it was here all the time: only what is said above is news
};

// So often within a minute an island may come, come back as another agent or change its address: each makes every other island dial it, and
// an epoch of its run. What goes beyond that is not looked at before the minute is over.
inline constexpr std::size_t kMostChanges = 12;

class Islands {
 public:
  explicit Islands(Settings settings) : settings_(std::move(settings)) {}

  // ---- what happens
  // An event of what the island may say as often as it likes: those of a minute beyond its share are counted, and not kept.
  void tell(const RunId& run, const IslandId& id, std::string level, std::string kind, const std::string& text, std::vector<Field> fields,
            Outbox& out);
  // After a restart of the coordinator: islands have the usual time from `now` on to be heard again.
  void recover(std::vector<IslandRecord> known, std::map<IslandId, std::string> former_names, TimePoint now);
  void admit(const IslandId& id, const std::string& name, const std::string& public_key, Outbox& out);
  // Forgets all but its name.
  void revoke(const IslandId& id);
  // Whether the message is one of the instance that was let in, to be looked at. A hello never is: it goes to greet(). Whoever is not
  // let in is told what to do.
  bool hears(const IslandId& id, std::uint64_t boot, const Message& message, Outbox& out);
  // `hello.runs` names runs that the coordinator knows. Nothing: refused, or known already, or another instance is asked first.
  std::optional<Arrival> greet(const IslandId& id, std::uint64_t boot, const Hello& hello, Outbox& out);
  // The old instance had its time to show that it is alive: this one is to take its place, once the old one is lost().
  [[nodiscard]] std::optional<Probe> successor(const Island& island, Outbox& out) const;
  std::optional<Arrival> succeed(const IslandId& id, const Probe& successor, Outbox& out);
  // Why an island counts as lost from now on; nothing: it does not.
  [[nodiscard]] std::optional<std::string> silence(const Island& island, Outbox& out) const;
  void lost(const IslandId& id);
  // A heartbeat told of these runs.
  void report(const IslandId& id, std::vector<IslandReport> reports, TimePoint now);
  void leave(const IslandId& id, const Leave& leave, Outbox& out);
  // It said what it would say, and is let go.
  void gone(const IslandId& id) { islands_.at(id).greeted = false; }
  // Asks it to leave. Errors: not_found; conflict when it is not connected.
  Status drain(const IslandId& id, const std::string& why, Outbox& out);
  // The contribution that it announced with its Leave is there, or comes too late.
  void contributed(const IslandId& id);

  // ---- the runs that it works for
  // From now on its heartbeats are expected to tell of the runs in which it has a place.
  void expect_reports(const IslandId& id);
  void expect_reports_from(const IslandId& id, TimePoint now) { islands_.at(id).unreported_since = now; }
  // It trains an expert with others in this run.
  void lend(const IslandId& id, const RunId& group);
  void take_back(const IslandId& id, const RunId& group);

  // ---- what it holds of a run, as far as is known
  [[nodiscard]] const HeldRun& held(const IslandId& id, const RunId& run) const;
  // Its memory is not the run's state any more.
  void not_live(const IslandId& id, const RunId& run);
  // Its memory is the state of this round.
  void live(const IslandId& id, const RunId& run, const HeldCheckpoint& state);
  void keeps(const IslandId& id, const RunId& run, const HeldCheckpoint& checkpoint);
  void keeps_not(const IslandId& id, const RunId& run, Round round);
  // The run was removed: nothing is known of it on any island.
  void forget_run(const RunId& run);

  // ---- what is asked
  [[nodiscard]] const std::map<IslandId, Island>& all() const { return islands_; }
  [[nodiscard]] const Island* find(const IslandId& id) const;
  [[nodiscard]] const Island& at(const IslandId& id) const { return islands_.at(id); }
  [[nodiscard]] bool alive(const IslandId& id) const;
  // Something came from it since then, and it is not lost: what it said that it holds is still there.
  [[nodiscard]] bool spoke_since(const IslandId& id, TimePoint since) const { return alive(id) && at(id).spoke > since; }
  // So much of everybody's silence does not count.
  void excuse(Duration silence);
  [[nodiscard]] bool leaving(const IslandId& id) const;
  // Connected, and means to stay.
  [[nodiscard]] bool stays(const IslandId& id) const { return alive(id) && !leaving(id); }
  // A heartbeat that changes no decision: of an island that is known to live, with a report where there was one.
  // Whether its newest report of a run says that its trainer is ready; nothing: it has reported nothing of that run.
  [[nodiscard]] std::optional<bool> trains(const IslandId& id, const RunId& run) const;
  [[nodiscard]] bool is_routine(const IslandId& id, const Heartbeat& heartbeat) const;
  // The name of one that was revoked is remembered; of one that never was there it is the id.
  [[nodiscard]] const std::string& name_of(const IslandId& id) const;
  [[nodiscard]] std::vector<std::string> names_of(const std::vector<IslandId>& ids) const;
  [[nodiscard]] Member member_of(const IslandId& id) const;
  void see(const IslandId& id, const std::string& host);
  // What has to be done that `other` can dial it, for people: which port is opened, or that it must be reached at another address.
  [[nodiscard]] std::string opening_for(const IslandId& id, const IslandId& other) const;
  [[nodiscard]] std::vector<Member> members_of(const std::vector<IslandId>& ids) const;

  // To the instance that was let in, if it is connected.
  void send(const IslandId& id, Message message, Outbox& out) const;

 private:
  // Why this agent cannot be one of the coordinator's islands.
  [[nodiscard]] std::optional<Error> incompatible(const Hello& hello) const;
  std::optional<Arrival> accept(Island& island, std::uint64_t boot, const Hello& hello, Outbox& out);
  // It has not come or changed its address too often; else that is told, once a minute.
  [[nodiscard]] bool may_change(Island& island, Outbox& out) const;
  void note_hello(Island& island, std::uint64_t boot, const Hello& hello, Outbox& out);

  Settings settings_;
  std::map<IslandId, Island> islands_;
  std::map<IslandId, std::string> former_names_;  // of revoked ones
};

}  // namespace atl::coordinator
