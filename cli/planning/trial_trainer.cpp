#include "cli/planning/trial_trainer.hpp"

#include <poll.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include "agent/engine/parameter_layout.hpp"
#include "agent/host/trainer_session.hpp"
#include "agent/island_link/arena.hpp"
#include "agent/service/data_access.hpp"
#include "cli/line/scratch_folder.hpp"
#include "strategies/composition.hpp"
#include "strategies/specification/model_kind.hpp"
#include "transport/base/own_disk.hpp"

namespace atl {
namespace fs = std::filesystem;
namespace {

using agent::TrainerSession;

constexpr Duration kMeasured = std::chrono::seconds(3);  // of steps, between two reports of the trainer
constexpr Duration kLongest = std::chrono::minutes(10);  // from ready
constexpr Duration kQuiet = std::chrono::seconds(2);     // after its last step, for a run that is over before that
constexpr Duration kStopWithin = std::chrono::seconds(10);

// Where the trainer stood at a moment.
struct Mark {
  std::uint64_t step = 0;
  double compute_seconds = 0;
  TimePoint at;
};

class Trial {
 public:
  Trial(const RunSpec& spec, std::unique_ptr<TrainerSession> session, fs::path folder)
      : spec_(spec), session_(std::move(session)), folder_(std::move(folder)) {}

  Result<TrialResult> run() {
    while (true) {
      for (agent::SessionOutput& output : session_->pump(now())) {
        ATOLL_TRY(std::visit([this](auto& value) { return take(value); }, output));
      }
      if (measured()) {
        session_->stop("the trial is over", agent::RunEnd::none, now());
        wait_for_end();
        return TrialResult{std::move(manifest_), seconds_per_step()};
      }
      wait();
    }
  }

 private:
  Status take(const agent::PrepareArena& order) {
    manifest_ = order.manifest;
    ATOLL_ASSIGN(const Composition composition, compose(spec_.strategy));
    ATOLL_ASSIGN(const ParameterLayout layout, ParameterLayout::make(order.manifest, composition.fragments));
    if (const std::uint64_t bytes = layout.total() * sizeof(float); bytes > spec_.arena_limit_bytes) {
      return Error{Code::invalid_argument,
                   "the model needs an arena of " + human_bytes(bytes) + ", [run].arena_limit is " + human_bytes(spec_.arena_limit_bytes)};
    }
    ATOLL_ASSIGN(arena_, island_link::Arena::create((folder_ / "arena").string(), layout.total() * sizeof(float)));
    island_link::ArenaLayout message = layout.arena();
    message.path = arena_.path();
    session_->arena_prepared(message);
    return {};
  }
  Status take(const agent::FormInitialState&) { return {}; }
  Status take(agent::Event& event) {
    return std::visit([this](auto& value) { return take_event(value); }, event);
  }

  template <typename Event>
  Status take_event(Event& event) {
    if constexpr (std::is_same_v<Event, agent::TrainerReady>) {
      ready_ = now();
      session_->plan(agent::PlanTrainer{session_->run(), session_->incarnation(), Step(spec_.training.steps), {}, {}});
    } else if constexpr (std::is_same_v<Event, agent::TrainerProgress>) {
      const Mark mark{event.step.value, event.compute_seconds, now()};
      first_ = first_ ? first_ : std::optional(mark);
      last_ = mark;
    } else if constexpr (std::is_same_v<Event, agent::TrainerExited>) {
      return event.error;
    }
    return {};
  }

  [[nodiscard]] bool measured() const {
    if (!ready_) {
      return false;
    }
    const bool moved = last_ && last_->step > first_->step;
    const bool over = last_ && last_->step >= spec_.training.steps;
    return (moved && last_->at - first_->at >= kMeasured) || over || (last_ && now() - last_->at >= kQuiet && moved) ||
           now() - *ready_ >= kLongest;
  }

  // The first report is left out where there are more: a program's first steps are slow.
  [[nodiscard]] double seconds_per_step() const {
    if (!last_ || last_->step == 0) {
      return 0;
    }
    const bool moved = last_->step > first_->step;
    const double steps = static_cast<double>(last_->step - (moved ? first_->step : 0));
    return (last_->compute_seconds - (moved ? first_->compute_seconds : 0)) / steps;
  }

  void wait() const {
    std::vector<pollfd> watched;
    for (const int fd : session_->watch_fds()) {
      if (fd >= 0) {
        watched.push_back({fd, POLLIN, 0});
      }
    }
    ::poll(watched.data(), watched.size(), 100);
  }

  void wait_for_end() {
    for (const TimePoint until = now() + kStopWithin; !session_->ended() && now() < until; wait()) {
      session_->pump(now());
    }
  }

  const RunSpec& spec_;
  std::unique_ptr<TrainerSession> session_;
  fs::path folder_;
  island_link::Arena arena_;
  island_link::Manifest manifest_;
  std::optional<TimePoint> ready_;
  std::optional<Mark> first_;
  std::optional<Mark> last_;
};

}  // namespace

Result<TrialResult> try_trainer(const RunSpec& spec, const agent::TrainerPrograms& trainers, const fs::path& program, std::ostream& talk) {
  ATOLL_ASSIGN(const ScratchFolder scratch, ScratchFolder::make());
  agent::SessionSettings settings;
  settings.program = program.string();
  settings.trainers = trainers;
  settings.island = "plan";
  settings.link_folder = scratch.path();
  ATOLL_ASSIGN(settings.runs, confined_to(scratch.path() / "runs"));
  std::vector<fs::path> files;
  for (const std::string& file : spec.data.files) {
    ATOLL_ASSIGN(const std::vector<fs::path> found, expand_files(file));
    files.insert(files.end(), found.begin(), found.end());
  }
  if (!files.empty()) {
    talk << "it reads " << listing_of(files) << "\n";
  }
  agent::StartTrainer order;
  order.run = RunId("r-plan");
  order.incarnation = 1;
  order.spec = spec;
  order.share.slices = std::max<std::uint32_t>(1, spec.islands.min);
  talk << "starting trainer " << spec.trainer.name << " once, to learn what it declares and how long its steps take\n" << std::flush;
  ATOLL_ASSIGN(std::unique_ptr<TrainerSession> session, TrainerSession::start(order, files, settings, now()));
  Trial trial(spec, std::move(session), scratch.path());
  Result<TrialResult> result = trial.run();
  if (!result) {
    return Error{result.error().code == Code::unavailable ? Code::io : result.error().code,  // no coordinator is missing
                 "the trial of trainer " + spec.trainer.name + ": " + result.error().why};
  }
  return result;
}

}  // namespace atl
