// The coordinator's core: decides who takes part in which run, when a round is exchanged, and when it is committed.
//
// A state machine without I/O, after etcd's raft. The driver feeds it messages, operators' commands and the time, then
// calls take_ready() and does what it says in order: make the records durable, then send the messages. A core that is
// constructed from the ledger's records goes on where the old one was: islands repeat what they last said until they are
// answered, so a message may be lost at any place and at any time.
//
// The rules (docs/architecture.md, "A round" and "Joining, leaving, coming back"):
//  - A round commits when all members of one attempt report the same digest; a minority is left out of the epoch and has
//    to catch up. Everything else leads to the next attempt from the retained contributions.
//  - Only an island whose state was verified against a committed round counts towards `min` or serves state to others.
//  - Whoever waits has a reason: every decision that makes someone wait is a pure decide_* function that returns it.
// Threads: one thread owns a core.
// Cost: a routine heartbeat is O(1); any other step is O(islands); memory is bounded by runs × islands and does not grow with rounds.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/core/record.hpp"
#include "coordinator/core/view.hpp"
#include "strategies/specification/run_spec.hpp"
#include "transport/control/message.hpp"

namespace atl::coordinator {

// Times that a core works with. The defaults are those of the preset `lan` (network.hpp).
struct Settings {
  std::string version;                                  // of Atoll, for Welcome
  std::uint32_t codec_version = 0;                      // an island of another one is refused: peers could not read what it sends
  Duration heartbeat = std::chrono::seconds(1);         // how often an island speaks
  Duration dead_after = std::chrono::seconds(5);        // silent for so long: lost
  Duration stall_after = std::chrono::seconds(20);      // an exchange in which a peer delivers nothing for so long has failed
  Duration settle = std::chrono::seconds(2);            // after the last arrival, before a run starts with fewer than max
  Duration probe = std::chrono::seconds(2);             // for an old instance to show that it is alive
  Duration resend = std::chrono::seconds(2);            // unanswered messages are repeated; grows to four times this
  Duration accusation_grace = std::chrono::seconds(1);  // after the first failure report of an attempt, for the others'
  Duration join_hold = std::chrono::seconds(10);        // planning waits at most so long for a joiner that is nearly there
  Duration restore_grace = std::chrono::seconds(10);    // before committed rounds are given up for an older checkpoint
  Duration rejoin_delay = std::chrono::seconds(5);      // after an expulsion; doubles up to rejoin_delay_max
  Duration rejoin_delay_max = std::chrono::seconds(60);
  Duration told_wait = std::chrono::seconds(2);      // a wait that stands for so long becomes an event
  Duration stands_after = std::chrono::seconds(60);  // a round whose attempts fail for so long interrupts its run
  Generation generation;                             // this coordinator's
  Bytes generation_key;                              // what generations are proven with
  std::vector<std::string> relays;                   // names of those where islands meet that cannot dial each other
};

// A message to one instance of an island's agent. `boot` is what that instance said in its Hello: two agents that use one
// identity are told apart by it.
struct Outgoing {
  IslandId island;
  std::uint64_t boot = 0;
  Message message;
};

// In this order: first make all records durable (in one transaction), then send the messages.
struct Ready {
  std::vector<Record> records;
  std::vector<Outgoing> messages;
  [[nodiscard]] bool empty() const { return records.empty() && messages.empty(); }
};

// Where an operator fetches a run's parameters.
struct ExportSource {
  Member island;
  Round round;
  Digest digest;
  Digest file;  // SHA-256 of outer.safetensors
  std::uint64_t file_bytes = 0;
};

// A checkpoint of which there is a copy in a store, as its note there says: what a run goes on from where everything else is lost.
struct CopyToGoOnFrom {
  Round round;
  Digest digest;                     // of the rounds up to it
  Epoch epoch;                       // in which it was written
  std::vector<DataRange> data = {};  // how far each part of the data was
};

// Where an operator fetches the result of a task.
struct TaskResult {
  std::string task;
  Digest digest;
  std::uint64_t bytes = 0;
  std::vector<Member> sources;
};

// An island that has, or may have, something of a run on its disk.
struct Holder {
  IslandId island;
  std::string name;
  bool connected = false;  // it hears at once; others when they come back
};
struct Removal {
  std::vector<Holder> islands;  // by name
};

class Core {
 public:
  Core(Settings settings, Recovered recovered, TimePoint now);
  ~Core();
  Core(Core&&) noexcept;
  Core& operator=(Core&&) noexcept;

  // ---- what happens
  // A message from an authenticated island. `boot`: of the instance, as the Hello or Heartbeat on its connection said; 0 if
  // it has said none yet on this connection. Kinds that an island has no business to send are dropped.
  void step(TimePoint now, const IslandId& island, std::uint64_t boot, const Message& message);
  // The address that an island's connection comes from, where its router's is the one that others would have to dial. For people.
  void see(const IslandId& island, const std::string& host);
  // A key was enrolled, or taken back. An island that was never admitted is not heard.
  void admit(TimePoint now, const IslandId& island, const std::string& name, const std::string& public_key);
  void revoke(TimePoint now, const IslandId& island, const std::string& why);
  // Nobody serves this key any more: it was an operator's, or an island's.
  void withdraw_reader(TimePoint now, const std::string& reader_key);
  // For so long nobody listened to the islands, as where the ledger's disk was slow: their silence of that time is not theirs.
  void was_away(Duration away);
  // Time has passed. Call at next_deadline(), at the latest.
  void tick(TimePoint now);
  // When tick() has something to do if nothing else happens. Empty: never.
  [[nodiscard]] std::optional<TimePoint> next_deadline() const;

  // ---- what operators ask
  // A new run, with the id `fresh`, which no run had before. `name` (of `submit --name`) may be empty: then the spec's name is taken,
  // with a number behind it if it is in use. A second submit with the same non-empty name and the same file returns the first's id.
  // With `copy` the run has the id `fresh` already, and goes on from there instead of from the seed.
  // Errors: conflict when a run of that name has another file, or one with that id is there; invalid_argument for an impossible spec.
  Result<RunId> submit(TimePoint now, const RunId& fresh, const RunSpec& spec, const std::string& name, const std::string& file,
                       const std::optional<CopyToGoOnFrom>& copy = std::nullopt);
  // Errors: not_found; conflict when the run has ended (for resume: has not).
  Status cancel(TimePoint now, const RunId& run, const std::string& why);
  // Also goes on with a paused run.
  Status resume(TimePoint now, const RunId& run);
  // The run stops after the round in hand, with a checkpoint of it on every island, and its trainers are freed.
  // Errors: not_found; conflict when the run has ended, or is one of islands on their own.
  Status pause(TimePoint now, const RunId& run);
  // Forgets a run that has ended, with the groups that worked for it, for good, and has the islands remove what they hold of it, unless
  // their owners keep it; who is away learns it when it comes back. With `rehearse` nothing is done. Errors: not_found; conflict when the
  // run has not ended, or is part of another.
  Result<Removal> remove(TimePoint now, const RunId& run, bool rehearse = false);
  // Asks an island to leave as if its owner had: it finishes the round in hand with the steps done so far.
  // Errors: not_found; conflict when it is not connected.
  Status drain(TimePoint now, const IslandId& island, const std::string& why);
  // Has the connected islands measure the paths between them, each for so long: an island all of its paths one after the other, all
  // islands at once. It takes of their links what it can get; islands() has what came of it, with the number that is returned.
  // Errors: unavailable with fewer than two islands, or with more than try their paths.
  Result<std::uint32_t> measure_paths(TimePoint now, Duration each);
  // The connected islands that have a checkpoint, each with its newest one, the newest of all first; up to 32. Each is told to let
  // `reader_key` fetch it, for some may be out of that reader's reach. With `island` it is that one alone, and of a run whose islands keep
  // states of their own the checkpoint is its own model's, from before all were merged. Errors: not_found; unavailable when no connected
  // island has one.
  Result<std::vector<ExportSource>> serve(TimePoint now, const RunId& run, const std::string& reader_key,
                                          const std::optional<IslandId>& island = std::nullopt);
  // The results of all tasks of a run of phases whose ensemble is put together, for this reader. Errors: not_found, invalid_argument for a
  // run of rounds, unavailable before the end or while no connected island has one of them.
  Result<std::vector<TaskResult>> serve_results(TimePoint now, const RunId& run, const std::string& reader_key);

  // ---- what must be done. Empties it: a driver that fails to make the records durable must keep the Ready and try again.
  Ready take_ready();

  // ---- what is asked (values, no pointers into the core)
  // The newer generation that an island has met, once one said so: this core does nothing any more, and whoever runs it ends.
  [[nodiscard]] const std::optional<Superseded>& superseded() const;
  [[nodiscard]] std::vector<RunView> runs(TimePoint now) const;  // by time of submission
  [[nodiscard]] std::optional<RunView> run(TimePoint now, const RunId& id) const;
  [[nodiscard]] std::vector<IslandView> islands(TimePoint now) const;  // by name
  // Nothing: it has no access, or never had.
  [[nodiscard]] std::optional<bool> is_connected(const IslandId& island) const;
  [[nodiscard]] ReachView reach(const IslandId& island) const;  // costs a look at each island, for islands may ask
  // Nothing is submitted.
  [[nodiscard]] StartView rehearse_start(TimePoint now, const RunSpec& spec) const;
  // What this island waited for before it merged this round, one after the other; of an island's newest few hundred waits, empty for
  // others.
  [[nodiscard]] std::vector<WaitCause> wait_causes(const RunId& run, const IslandId& island, Round round) const;

  struct State;  // of the core's own files

 private:
  std::unique_ptr<State> state_;
};

}  // namespace atl::coordinator
