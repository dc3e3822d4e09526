// The place of an agent's one trainer: who sits there, what it is about to load, how it is to end, and which start waits for it.
//
// A trainer of a completed run keeps the place until its program has ended, or its time to finish is over ([trainer].finish_within). It
// loads the run's last parameters before it is asked to end.
// Threads: one, that of the driver.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "agent/core/effect.hpp"
#include "agent/host/trainer_session.hpp"
#include "agent/service/preparation.hpp"
#include "transport/base/result.hpp"
#include "transport/base/time.hpp"

namespace atl::agent {

class TrainerSeat {
 public:
  // Both outlive it.
  TrainerSeat(const SessionSettings& settings, Preparation& preparation) : settings_(&settings), preparation_(&preparation) {}

  // Null where nobody sits there.
  [[nodiscard]] TrainerSession* session() const { return session_.get(); }
  // Somebody sits there, or is about to.
  [[nodiscard]] bool taken() const { return session_ != nullptr || starting_.has_value(); }
  // The one that was started by this order, or null.
  [[nodiscard]] TrainerSession* session(const RunId& run, std::uint64_t incarnation) const;
  // Whether another run has to wait, because the trainer of a completed one has time to finish. Says so in the log.
  [[nodiscard]] bool kept_from(const RunId& next) const;

  // Ends who sits there, unless it has time to finish: then this waits.
  void start(const StartTrainer& order);
  // The data of a start are there. An error: it cannot be started. Success also where another start, or a stop, came meanwhile.
  Status begin(PreparedTrainer& data, TimePoint now);
  void stop(const StopTrainer& order, TimePoint now);
  // False: it is not this trainer. Else the arena is to be filled, and `filled` to be told of it.
  bool load(const LoadTrainer& order);
  void filled(const ArenaFilled& answer, TimePoint now);
  // What the trainer says. After it has ended the place is free, and a start that waits goes on.
  std::vector<SessionOutput> pump(TimePoint now);
  // It is told to end and has not: how long that may take, from now on.
  Duration end(TimePoint now);
  void clear();

 private:
  void stop_session(const StopTrainer& order, TimePoint now);

  const SessionSettings* settings_;
  Preparation* preparation_;
  std::optional<StartTrainer> starting_;  // its data are being prepared, or it waits
  bool waits_ = false;
  std::unique_ptr<TrainerSession> session_;
  std::optional<LoadTrainer> loading_;
  std::optional<StopTrainer> ending_;  // once it was told to load
};

}  // namespace atl::agent
