// One trainer from its start to its end: the process and the conversation with it over the island link.
//
// Speaks agent/island_link/README.md on the agent's side: configures the trainer, hands it the arena, passes orders on and turns what
// it says into the core's events. What needs the sync engine (arena, initial state) it asks for as engine commands.
// A trainer that has something to do and says nothing for a long time is killed by its host; one that waits for the agent is not.
// Threads: one, that of the driver.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "agent/engine/engine_command.hpp"
#include "agent/engine/span_log.hpp"
#include "agent/host/trainer_host.hpp"
#include "agent/host/trainer_programs.hpp"
#include "agent/island_link/agent_end.hpp"
#include "transport/base/disk.hpp"
#include "transport/base/log_limit.hpp"
#include "transport/base/result.hpp"
#include "transport/base/time.hpp"

namespace atl::agent {

struct SessionSettings {
  std::string program;                // the executable; it is run as `PROGRAM trainer`
  TrainerPrograms trainers;           // what runs with a trainer of their own start
  std::string island;                 // its name, for messages
  std::filesystem::path link_folder;  // of the socket; this user's alone
  DiskPath runs;                      // STATE/runs
  std::uint64_t memory_limit_bytes = 0;
  Duration hang_after = std::chrono::minutes(5);
  std::shared_ptr<SpanLog> spans;  // where the trainer's time went; empty: not kept
};

// The agent's log names what its trainers compute with, if they say it.
void log_kernels(const std::string& island, const RunId& run, const island_link::Hello& hello);

using SessionOutput = std::variant<Event, PrepareArena, FormInitialState>;

class TrainerSession {
 public:
  // Errors: those of TrainerHost and AgentEnd.
  static Result<std::unique_ptr<TrainerSession>> start(const StartTrainer& order, const std::vector<std::filesystem::path>& files,
                                                       const SessionSettings& settings, TimePoint now);

  [[nodiscard]] const RunSpec& spec() const { return order_.spec; }
  [[nodiscard]] std::vector<int> watch_fds() const;
  [[nodiscard]] TimePoint next_check() const;
  // Reads what came, notices its end. Call when a descriptor is readable, and at next_check.
  std::vector<SessionOutput> pump(TimePoint now);

  // ---- orders; those for another incarnation are the caller's to drop
  void arena_prepared(const Result<island_link::ArenaLayout>& layout);
  void publish_initial();
  void load(Step step, std::uint64_t position);
  void plan(const PlanTrainer& order);
  void give(const GiveResult& order);
  void finish(const FinishTrainer& order);
  void skip(const SkipTrainer& order);
  void tell_tokens(const TellTokens& order);
  void deal(const DealData& order);
  // Ends it for this reason, which its TrainerExited will name.
  void abort(const Error& error);
  // Asks it to end; its end is not an event. After a completed run it has the run file's time to finish. Safe to call again.
  void stop(const std::string& why, RunEnd end, TimePoint now);
  // It does what stands behind its loop, after a completed run.
  [[nodiscard]] bool finishing() const { return stopping_ && end_ != RunEnd::none && !ended_; }
  // Its process is gone.
  [[nodiscard]] bool ended() const { return ended_; }

  [[nodiscard]] const RunId& run() const { return order_.run; }
  [[nodiscard]] std::uint64_t incarnation() const { return order_.incarnation; }
  [[nodiscard]] std::uint64_t resident_bytes() const { return host_.resident_bytes(); }

 private:
  TrainerSession(StartTrainer order, std::vector<std::string> files, SessionSettings settings, island_link::AgentEnd link,
                 TrainerHost host);
  void hear(const island_link::Hello& message, std::vector<SessionOutput>& out);
  void hear(const island_link::Manifest& message, std::vector<SessionOutput>& out);
  void hear(const island_link::Ready& message, std::vector<SessionOutput>& out);
  void hear(const island_link::PublishedNow& message, std::vector<SessionOutput>& out);
  void hear(const island_link::Published& message, std::vector<SessionOutput>& out);
  void hear(const island_link::Merged& message, std::vector<SessionOutput>& out);
  void hear(const island_link::Loaded& message, std::vector<SessionOutput>& out);
  void hear(const island_link::Saved& message, std::vector<SessionOutput>& out);
  void hear(const island_link::Evaluated& message, std::vector<SessionOutput>& out);
  void hear(const island_link::Progress& message, std::vector<SessionOutput>& out);
  void hear(const island_link::Failed& message, std::vector<SessionOutput>& out);
  void hear(const island_link::Preparing& message, std::vector<SessionOutput>& out);
  void hear(const island_link::Metrics& message, std::vector<SessionOutput>& out);
  void hear(const island_link::Enough& message, std::vector<SessionOutput>& out);
  void read_link(TimePoint now, std::vector<SessionOutput>& out);
  void take_exit(const TrainerExit& exit, std::vector<SessionOutput>& out);
  void send(const island_link::AgentMessage& message);
  void tell_progress(std::uint64_t step, std::uint64_t position, const std::optional<double>& loss, std::vector<SessionOutput>& out);
  // The trainer stands between two stretches of steps: after this step, having waited so long for that round's result.
  void note_pause(Round round, std::uint32_t fragment, std::uint64_t step, double waited);
  [[nodiscard]] island_link::Configure configuration() const;
  [[nodiscard]] std::vector<std::uint32_t> all_fragments() const;
  [[nodiscard]] DiskPath save_folder(Round round) const;
  void update_expectation(TimePoint now);
  [[nodiscard]] bool has_time_to_start() const;
  // From `stop` on.
  [[nodiscard]] Duration stop_patience() const { return end_ == RunEnd::none ? kStopPatience : order_.spec.trainer.finish_within; }
  void note_last_exit(const TrainerExit& exit) const;
  [[nodiscard]] bool attaches() const;
  // It has not come, and comes when its user likes.
  [[nodiscard]] bool to_be_attached() const { return !said_hello_ && attaches(); }
  // The trainer may stand for as long as a result takes. Where rounds close with a quorum it never does.
  [[nodiscard]] bool waits_for_results() const { return order_.spec.strategy.quorum == 0; }

  StartTrainer order_;
  std::vector<std::string> files_;
  SessionSettings settings_;
  island_link::AgentEnd link_;
  TrainerHost host_;
  std::size_t fragments_ = 0;
  std::uint64_t parameters_ = 0;
  std::uint64_t first_position_ = 0;  // since it was started or loaded
  std::uint64_t last_position_ = 0;
  std::uint64_t sequences_before_ = 0;   // trained on before it was loaded
  TrainerProgress progress_;             // newest
  LogLimit preparing_lines_{20};         // of the log: as fast as it likes it may say what it prepares
  bool said_data_ = false;               // what it reads is told once
  bool more_to_read_ = false;            // it said more than is heard at once
  double merge_wait_ = 0;                // seconds that its merges waited
  std::map<std::string, Round> saving_;  // by folder: states that it writes beside its steps
  bool ready_ = false;                   // it stands where it was told to start
  bool requested_ = false;               // publish_now or load is under way
  bool finishes_ = false;                // it said so
  bool announced_ = false;               // the core knows that it is ready
  std::set<Round> to_publish_;           // ordered, not published yet
  std::set<Round> waiting_for_;          // published, its result not given yet
  TimePoint span_start_;                 // of the steps that are under way
  std::uint64_t span_step_ = 0;          // the step before the first of them
  std::optional<TimePoint> stopping_;
  RunEnd end_ = RunEnd::none;
  bool late_ = false;  // it had its time to finish
  bool ended_ = false;
  bool permanent_ = false;
  TimePoint started_;
  bool said_hello_ = false;
  std::string version_;                  // of the trainer, as it says
  std::string preparing_;                // what it said last that it is doing
  std::optional<TimePoint> busy_since_;  // with that, once it was ready; until its next message
  std::string deaf_;                     // why a message could not be sent
  std::optional<TimePoint> deaf_until_;
  std::optional<TimePoint> end_by_;     // after it has failed
  std::optional<std::string> failure_;  // what it said, or we found, before it ended
};

}  // namespace atl::agent
