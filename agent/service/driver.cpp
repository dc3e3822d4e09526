#include "agent/service/driver.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "agent/core/core.hpp"
#include "agent/faults/rehearsed_links.hpp"
#include "agent/host/blas_kernels.hpp"
#include "agent/host/task_session.hpp"
#include "agent/host/trainer_session.hpp"
#include "agent/island_link/arena.hpp"
#include "agent/service/engine_thread.hpp"
#include "agent/service/joining.hpp"
#include "agent/service/leave_watch.hpp"
#include "agent/service/value_queue.hpp"
#include "agent/storage/membership_file.hpp"
#include "agent/storage/stored_runs.hpp"
#include "strategies/codec.hpp"
#include "strategies/specification/run_rules.hpp"
#include "transport/base/address.hpp"
#include "transport/base/log.hpp"
#include "transport/base/own_disk.hpp"
#include "transport/http/fetch.hpp"
#include "transport/identity/join_token.hpp"
#include "transport/zmq/control_client.hpp"
#include "transport/zmq/zmq_bulk_link.hpp"

namespace atl::agent {
namespace fs = std::filesystem;
namespace {

constexpr auto kGaugeEvery = std::chrono::seconds(2);
constexpr auto kTellFetchEvery = std::chrono::seconds(5);
constexpr auto kLastWait = std::chrono::seconds(5);             // for the trainer's end, when the agent ends
constexpr auto kLongestRetry = std::chrono::milliseconds(500);  // a coordinator that comes back is found within this
constexpr std::size_t kLongestLinkPath = 80;                    // of a local socket's folder

std::uint64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::uint64_t total = 0;
  std::uint64_t resident = 0;
  file >> total >> resident;
  return resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

std::uint64_t random_number() {
  std::uint64_t value = 0;
  ATOLL_CHECK(::getrandom(&value, sizeof value, 0) == sizeof value, "the system has random numbers");
  return value;
}

// SIGTERM and SIGINT as a descriptor, blocked in every thread from here on.
class StopSignals {
 public:
  StopSignals() {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    ::pthread_sigmask(SIG_BLOCK, &set, &before_);
    fd_ = ::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    ::signal(SIGPIPE, SIG_IGN);
  }
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  ~StopSignals() {
    ::close(fd_);
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  [[nodiscard]] int fd() const { return fd_; }
  // True if another one came.
  [[nodiscard]] bool take() const {
    signalfd_siginfo info{};
    return ::read(fd_, &info, sizeof info) == sizeof info;
  }

 private:
  int fd_ = -1;
  sigset_t before_{};
};

// A private folder for the trainer's socket; the state directory's path may be too long for one.
class LinkFolder {
 public:
  static Result<LinkFolder> make(const fs::path& state) {
    std::error_code failure;
    LinkFolder folder;
    folder.path_ = state / "link";
    if (folder.path_.string().size() > kLongestLinkPath) {
      std::string name = (fs::temp_directory_path(failure) / "atoll-XXXXXX").string();
      if (::mkdtemp(name.data()) == nullptr) {
        return Error{Code::io, name + ": no folder for the trainer's socket can be made"};
      }
      folder.path_ = name;
    } else {
      fs::remove_all(folder.path_, failure);
      ATOLL_TRY(on_this_machine(folder.path_).make_folders());
      fs::permissions(folder.path_, fs::perms::owner_all, failure);
    }
    return folder;
  }
  LinkFolder(LinkFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  LinkFolder& operator=(LinkFolder&&) = delete;
  LinkFolder(const LinkFolder&) = delete;
  LinkFolder& operator=(const LinkFolder&) = delete;
  ~LinkFolder() {
    std::error_code ignored;
    if (!path_.empty()) {
      fs::remove_all(path_, ignored);
    }
  }
  [[nodiscard]] const fs::path& path() const { return path_; }

 private:
  LinkFolder() = default;
  fs::path path_;
};

// The data of a trainer that is about to start, found or fetched on a thread of its own.
struct PreparedData {
  StartTrainer order;
  Result<std::vector<fs::path>> files;
};
struct PreparedTask {
  StartTask order;
  Result<std::vector<fs::path>> files;
};
using Prepared = std::variant<PreparedData, PreparedTask>;
Result<std::vector<fs::path>> no_files() { return std::vector<fs::path>(); }

Result<fs::path> fetch_data(const std::string& url, const std::string& sha256, const fs::path& cache, bool loopback_http,
                            const RunId& run) {
  FetchSettings settings;
  settings.url = url;
  ATOLL_ASSIGN(settings.sha256, digest_from_hex(sha256));
  settings.cache = cache;
  settings.allow_loopback_http = loopback_http;
  TimePoint told = now();
  settings.progress = [&](const FetchProgress& progress) {
    if (now() - told >= kTellFetchEvery) {
      told = now();
      log_info("run " + run.text + ": " + human_bytes(progress.received_bytes) + " of " +
               (progress.total_bytes > 0 ? human_bytes(progress.total_bytes) : std::string("?")) + " fetched from " + url);
    }
    return true;
  };
  return fetch(settings);
}

// ------------------------------------------------------------------------------------------------------------------- the loop

class Driver {
 public:
  Driver(const AgentOptions& options, SessionSettings session, Core core, std::unique_ptr<ControlClient> control,
         std::unique_ptr<EngineThread> engine, const StopSignals& signals)
      : options_(options),
        session_(std::move(session)),
        core_(std::move(core)),
        control_(std::move(control)),
        engine_(std::move(engine)),
        signals_(signals),
        leave_watch_({options.leave_file, options.leave_command, options.state}) {}

  Status run() {
    while (!ended_) {
      if (!turn()) {
        sleep();
      }
    }
    end_trainer();
    return outcome_;
  }

 private:
  // Takes in everything that is there; false if there was nothing.
  bool turn() {
    const TimePoint at = now();
    take_signals(at);
    if (const std::optional<std::string> why = leave_watch_.pump(at)) {
      log_info("island " + session_.island + ": leaving: " + *why);
      pending_.push_back(LeaveAsked{*why});
    }
    while (std::optional<LinkEvent> event = control_->receive()) {
      take(*std::move(event));
    }
    while (std::optional<EngineAnswer> answer = engine_->take_answer()) {
      std::visit([&](auto& value) { take(value); }, *answer);
    }
    while (std::optional<Prepared> data = prepared_->pop()) {
      std::visit([&](auto& prepared) { take(prepared, at); }, *data);
    }
    pump_trainer(at);
    pump_task(at);
    if (at >= next_gauge_) {
      next_gauge_ = at + kGaugeEvery;
      pending_.push_back(Gauges{resident_bytes(), trainer_ ? trainer_->resident_bytes() : task_ ? task_->resident_bytes() : 0});
      tell_spans();
    }
    bool busy = !pending_.empty();
    while (!pending_.empty()) {
      const Event event = std::move(pending_.front());
      pending_.pop_front();
      core_.step(at, event);
      carry_out(core_.take_ready(), at);
    }
    if (const std::optional<TimePoint> deadline = core_.next_deadline(); deadline && at >= *deadline) {
      core_.tick(at);
      busy = true;
    }
    carry_out(core_.take_ready(), at);
    tell_standing();
    return busy || ended_;
  }

  void sleep() {
    std::vector<pollfd> fds = {
        {signals_.fd(), POLLIN, 0}, {control_->fd(), POLLIN, 0}, {engine_->fd(), POLLIN, 0}, {prepared_->fd(), POLLIN, 0}};
    TimePoint until = std::min(next_gauge_, core_.next_deadline().value_or(next_gauge_));
    until = std::min(until, leave_watch_.next_check().value_or(until));
    if (trainer_) {
      for (const int fd : trainer_->watch_fds()) {
        fds.push_back({fd, POLLIN, 0});
      }
      until = std::min(until, trainer_->next_check());
    }
    if (task_) {
      for (const int fd : task_->watch_fds()) {
        fds.push_back({fd, POLLIN, 0});
      }
      until = std::min(until, task_->next_check());
    }
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(until - now()).count();
    ::poll(fds.data(), fds.size(), static_cast<int>(std::clamp<std::int64_t>(ms, 0, 1000)));
  }

  void take_signals(TimePoint) {
    while (signals_.take()) {
      if (std::exchange(asked_to_leave_, true)) {
        log_warning("a second signal: ending at once");
        ended_ = true;
        outcome_ = Error{Code::cancelled, "ended at once by a second signal"};
        return;
      }
      log_info("island " + session_.island + ": leaving; the round in hand is finished first (a second signal ends at once)");
      pending_.push_back(LeaveAsked{"asked to stop"});
    }
  }

  void take(LinkEvent event) {
    linked_ = std::holds_alternative<atl::LinkUp>(event) || (linked_ && !std::holds_alternative<atl::LinkDown>(event));
    if (std::holds_alternative<atl::LinkUp>(event)) {
      pending_.push_back(agent::LinkUp{});
    } else if (std::holds_alternative<atl::LinkDown>(event)) {
      pending_.push_back(agent::LinkDown{});
    } else if (auto* message = std::get_if<Message>(&event)) {
      pending_.push_back(FromCoordinator{std::move(*message)});
    } else {
      log_warning("the coordinator sent something that is no message: " + std::get<Error>(event).why);
    }
  }

  void take(Event& event) { pending_.push_back(std::move(event)); }
  void take(ArenaPrepared& answer) {
    if (for_trainer(answer.run, answer.incarnation)) {
      trainer_->arena_prepared(answer.layout);
    }
  }
  void take(ArenaFilled& answer) {
    if (!for_trainer(answer.run, answer.incarnation) || !loading_) {
      return;
    }
    if (answer.status) {
      trainer_->load(loading_->step, loading_->position);
    } else {
      trainer_->abort(answer.status.error());
    }
    loading_.reset();
  }

  void take(PreparedTask& data, TimePoint at) {
    if (!starting_task_ || starting_task_->start != data.order.start) {
      return;  // another start came, or a stop
    }
    starting_task_.reset();
    Result<std::unique_ptr<TaskSession>> session =
        data.files ? TaskSession::start(data.order, *data.files, session_, at) : Result<std::unique_ptr<TaskSession>>(data.files.error());
    if (!session) {
      pending_.push_back(TaskEnded{data.order.run, data.order.start, !worth_retrying(session.error().code), false, session.error()});
      return;
    }
    task_ = *std::move(session);
  }

  void take(PreparedData& data, TimePoint at) {
    if (!starting_ || starting_->incarnation != data.order.incarnation || starting_->run != data.order.run) {
      return;  // another start came, or a stop
    }
    starting_.reset();
    Result<std::unique_ptr<TrainerSession>> session = data.files ? TrainerSession::start(data.order, *data.files, session_, at)
                                                                 : Result<std::unique_ptr<TrainerSession>>(data.files.error());
    if (!session) {
      pending_.push_back(TrainerExited{data.order.run, data.order.incarnation, !worth_retrying(session.error().code), session.error()});
      return;
    }
    trainer_ = *std::move(session);
  }

  void pump_trainer(TimePoint at) {
    if (!trainer_) {
      return;
    }
    for (SessionOutput& output : trainer_->pump(at)) {
      if (auto* event = std::get_if<Event>(&output)) {
        pending_.push_back(std::move(*event));
      } else if (auto* arena = std::get_if<PrepareArena>(&output)) {
        engine_->post(std::move(*arena));
      } else {
        engine_->post(std::get<FormInitialState>(output));
      }
    }
    if (trainer_->ended()) {
      trainer_.reset();
    }
  }

  void pump_task(TimePoint at) {
    if (!task_) {
      return;
    }
    for (Event& event : task_->pump(at)) {
      pending_.push_back(std::move(event));
    }
    if (task_->ended()) {
      task_.reset();
    }
  }

  [[nodiscard]] bool for_trainer(const RunId& run, std::uint64_t incarnation) const {
    return trainer_ && trainer_->run() == run && trainer_->incarnation() == incarnation;
  }

  // Lost ones are missed in a picture, nowhere else.
  void tell_spans() {
    if (linked_) {
      for (Timeline& timeline : session_.spans->take()) {
        (void)control_->send(std::move(timeline));
      }
    }
  }

  void carry_out(const Ready& ready, TimePoint at) {
    for (const Message& message : ready.messages) {
      if (std::holds_alternative<RunEnded>(message) || std::holds_alternative<Leave>(message)) {
        tell_spans();  // the last ones come before the run is over
      }
      if (const Status sent = control_->send(message); !sent && sent.error().code != Code::unavailable) {
        log_warning("a message to the coordinator was not sent: " + sent.error().why);
      }
    }
    for (const Effect& effect : ready.effects) {
      std::visit([&](const auto& order) { carry_out(order, at); }, effect);
    }
  }

  // The files of a run, if it names any: a trainer of one's own may have data of its own.
  static Result<std::vector<fs::path>> files_of(const RunSpec& spec, const DataPermissions& permissions, const Downloader& download) {
    const bool own = spec.data.set.empty() && spec.data.files.empty() && spec.data.url.empty() && has_own_trainer(spec);
    const bool reads = spec.work.images.empty();  // else a group's islands have the images as results of its run
    return reads && !own ? resolve_data(spec.data, permissions, download) : no_files();
  }

  void carry_out(const StartTrainer& order, TimePoint) {
    trainer_.reset();
    loading_.reset();
    starting_ = order;
    std::thread([order, permissions = options_.data, cache = options_.state / "cache", http = options_.allow_loopback_http,
                 queue = prepared_] {
      const Downloader download = [&](const std::string& url, const std::string& sha256) {
        return fetch_data(url, sha256, cache, http, order.run);
      };
      queue->push(PreparedData{order, files_of(order.spec, permissions, download)});
    }).detach();
  }
  void carry_out(const StartTask& order, TimePoint) {
    task_.reset();
    starting_task_ = order;
    std::thread([order, permissions = options_.data, cache = options_.state / "cache", http = options_.allow_loopback_http,
                 queue = prepared_] {
      const Downloader download = [&](const std::string& url, const std::string& sha256) {
        return fetch_data(url, sha256, cache, http, order.run);
      };
      // Where the data set is spread only its packing reads files of the owner's.
      const bool spread = order.spec.data.spread > 0;
      const bool packs = order.task.starts_with("images/");
      const bool of_owner = order.spec.diffusion.features.starts_with("npy:") && spread ? packs : order.task.starts_with("features");
      PreparedTask prepared{order, packs || !spread ? resolve_data(order.spec.data, permissions, download) : no_files()};
      if (of_owner && prepared.files) {
        if (Result<std::string> features = resolve_features(order.spec.diffusion.features, permissions)) {
          prepared.order.spec.diffusion.features = *std::move(features);
        } else {
          prepared.files = features.error();
        }
      }
      queue->push(std::move(prepared));
    }).detach();
  }
  void carry_out(const StopTask& order, TimePoint at) {
    starting_task_.reset();
    if (task_ && task_->run() == order.run) {
      task_->stop(order.why, at);
    }
  }
  void carry_out(const StopTrainer& order, TimePoint at) {
    starting_.reset();
    loading_.reset();
    if (trainer_ && trainer_->run() == order.run) {
      trainer_->stop(order.why, at);
    }
  }
  void carry_out(const LoadTrainer& order, TimePoint) {
    if (for_trainer(order.run, order.incarnation)) {
      loading_ = order;
      engine_->post(FillArena{order.run, order.incarnation});
    }
  }
  void carry_out(const PlanTrainer& order, TimePoint) {
    if (for_trainer(order.run, order.incarnation)) {
      trainer_->plan(order);
    }
  }
  void carry_out(const GiveResult& order, TimePoint) {
    if (for_trainer(order.run, order.incarnation)) {
      trainer_->give(order);
    }
  }
  void carry_out(const FinishTrainer& order, TimePoint) {
    if (for_trainer(order.run, order.incarnation)) {
      trainer_->finish(order);
    }
  }
  void carry_out(const SkipTrainer& order, TimePoint) {
    if (for_trainer(order.run, order.incarnation)) {
      trainer_->skip(order);
    }
  }
  void carry_out(const FormInitialState& order, TimePoint) {
    if (for_trainer(order.run, order.incarnation)) {
      trainer_->publish_initial();
    }
  }
  // A coordinator that was never joined by a token (`--insecure`) has no place that could be written down.
  void carry_out(const RememberGeneration& order, TimePoint) {
    Result<CoordinatorPlace> place = read_coordinator(options_.state);
    if (!place) {
      return;
    }
    place->generation = order.generation;
    if (const Status written = write_coordinator(options_.state, *place); !written) {
      log_warning("the coordinator's generation is not remembered: " + written.error().why);
    }
  }
  void carry_out(const Notice& order, TimePoint) { log_warning(order.text); }
  void carry_out(const agent::Exit& order, TimePoint) {
    ended_ = true;
    outcome_ = order.error ? Status(*order.error) : Status();
  }
  // Everything else is the sync engine's.
  template <typename Order>
  void carry_out(const Order& order, TimePoint) {
    engine_->post(EngineCommand(order));
  }

  void tell_standing() {
    const Standing standing = core_.standing();
    if (standing.run == told_.run && standing.state == told_.state && standing.active == told_.active) {
      return;
    }
    if (!standing.run.empty()) {
      const bool rare =
          standing.run != told_.run || standing.active != told_.active || standing.state == "catching-up" || standing.state == "finished";
      log(rare ? LogLevel::info : LogLevel::debug, "run " + standing.run.text + ", island " + session_.island + ": " + standing.state +
                                                       (standing.reason.empty() ? "" : ": " + standing.reason) + " (round " +
                                                       std::to_string(standing.committed.value) + ")");
    }
    told_ = standing;
  }

  // Lets the trainer end by itself, within reason; the rest is the host's destructor.
  void end_trainer() {
    task_.reset();  // what it saved is kept; the rest is done again
    if (!trainer_) {
      return;
    }
    const TimePoint until = now() + kLastWait;
    trainer_->stop("the agent ends", now());
    const bool at_once = !outcome_.ok() && outcome_.error().code == Code::cancelled;
    while (!at_once && !trainer_->ended() && now() < until) {
      (void)trainer_->pump(now());
      std::vector<pollfd> fds = {{signals_.fd(), POLLIN, 0}};
      for (const int fd : trainer_->watch_fds()) {
        fds.push_back({fd, POLLIN, 0});
      }
      if (!trainer_->ended()) {
        ::poll(fds.data(), fds.size(), 100);
      }
      if (signals_.take()) {
        outcome_ = Error{Code::cancelled, "ended at once by a second signal"};
        break;
      }
    }
    trainer_.reset();
  }

  const AgentOptions& options_;
  SessionSettings session_;
  Core core_;
  std::unique_ptr<ControlClient> control_;
  std::unique_ptr<EngineThread> engine_;
  const StopSignals& signals_;
  LeaveWatch leave_watch_;
  std::shared_ptr<ValueQueue<Prepared>> prepared_ = std::make_shared<ValueQueue<Prepared>>();
  std::deque<Event> pending_;
  std::optional<StartTrainer> starting_;  // its data are being prepared
  std::unique_ptr<TrainerSession> trainer_;
  std::optional<LoadTrainer> loading_;
  std::optional<StartTask> starting_task_;  // its data are being prepared
  std::unique_ptr<TaskSession> task_;
  TimePoint next_gauge_{};
  bool linked_ = false;
  bool asked_to_leave_ = false;
  bool ended_ = false;
  Status outcome_;
  Standing told_;
};

// ------------------------------------------------------------------------------------------------------------------ beginning

// Where the coordinator is: from the token (enrolling with it), from the options, or as stored.
Result<ControlClientSettings> find_coordinator(const AgentOptions& options, const KeyPair& keys, const std::string& name, int stop_fd) {
  ControlClientSettings settings;
  settings.keys = keys;
  settings.insecure = options.insecure;
  settings.address = options.coordinator;
  settings.retry_most = kLongestRetry;
  if (!options.join_token.empty()) {
    ATOLL_ASSIGN(const JoinToken token, join_token_from_text(options.join_token));
    settings.coordinator_key = token.coordinator_key;
    settings.address = options.coordinator.empty() ? token.coordinator_address : options.coordinator;
    if (token.role != "island") {
      return Error{Code::invalid_argument,
                   "this token is for an " + token.role + ", not for an island; make one with `atoll token create --role island`"};
    }
    const Result<Enrolled> enrolled = enrol(settings, token.secret, name, stop_fd);
    if (!enrolled) {
      return enrolled.error();
    }
    const Result<CoordinatorPlace> before = read_coordinator(options.state);
    CoordinatorPlace joined{settings.address, settings.coordinator_key};
    if (before && before->key == joined.key) {
      joined.generation = before->generation;
    }
    ATOLL_TRY(write_coordinator(options.state, joined));
    log_info("joined the coordinator at " + settings.address + " as island " + enrolled->island.text + " (" + name + ")");
    return settings;
  }
  const Result<CoordinatorPlace> place = read_coordinator(options.state);
  if (!place && (settings.address.empty() || !options.insecure)) {
    return place.error();
  }
  settings.coordinator_key = place ? place->key : std::string();
  if (settings.address.empty()) {
    settings.address = place->address;
  }
  return settings;
}

Result<std::string> own_program() {
  std::error_code failure;
  const fs::path path = fs::read_symlink("/proc/self/exe", failure);
  if (failure) {
    return Error{Code::io, "/proc/self/exe cannot be read: " + failure.message()};
  }
  return path.string();
}

// Arenas that killed agents left behind, of whatever island: as large as a model each.
void remove_old_arenas() {
  for (const std::string& path : island_link::remove_abandoned_arenas("/dev/shm", "atoll-i-")) {
    log_info("removed " + path + ", which an agent that was killed had left");
  }
}

// What an agent keeps, trainers' states included, is its owner's alone, and so is what an older version left.
Status keep_private(const fs::path& state) {
  ::umask(0077);
  ATOLL_TRY(on_this_machine(state / "runs").make_folders());
  ATOLL_TRY(on_this_machine(state / "trainers").make_folders());
  if (::chmod((state / "runs").c_str(), 0700) != 0) {
    return Error{Code::io, (state / "runs").string() + ": cannot be made private to its owner: " + std::strerror(errno)};
  }
  return {};
}

}  // namespace

Status run_agent(const AgentOptions& given) {
  AgentOptions options = given;
  const char* core_type = std::getenv(kCoreTypeVariable);
  const Kernels kernels = choose_kernels(core_type == nullptr ? std::nullopt : std::optional<std::string>(core_type));  // before any thread
  const StopSignals signals;
  std::error_code failure;
  options.state = fs::absolute(options.state, failure);
  ATOLL_ASSIGN(const StateLock lock, StateLock::take(options.state));
  ATOLL_TRY(keep_private(options.state));
  ATOLL_ASSIGN(const KeyPair keys, read_or_make_key_file(options.state / "keys" / "island"));
  const IslandId island = island_of(keys.public_key);
  const std::string name = options.name.empty() ? host_name() : options.name;
  ATOLL_ASSIGN(const ControlClientSettings control_settings, find_coordinator(options, keys, name, signals.fd()));

  ZmqBulkSettings bulk;
  bulk.island = island;
  bulk.public_key = keys.public_key;
  bulk.secret_key = keys.secret_key;
  bulk.insecure = options.insecure;
  bulk.uplink_bits_per_second = options.uplink_bits_per_second;
  ATOLL_ASSIGN(const Address coordinator, parse_address(control_settings.address));
  const bool here = coordinator.is_loopback() && options.advertise.empty();
  bulk.bind = !options.bind.empty() ? options.bind : here || options.insecure ? "tcp://127.0.0.1:*" : "tcp://*:*";
  ATOLL_ASSIGN(std::unique_ptr<ZmqBulkLink> link, ZmqBulkLink::open(bulk, std::make_shared<BlobStore>()));
  ATOLL_ASSIGN(const std::string address, advertised_address(options.advertise, link->bound_address(), control_settings.address));

  remove_old_arenas();
  EngineSettings engine_settings;
  const auto spans = std::make_shared<SpanLog>();
  engine_settings.self = island;
  engine_settings.spans = spans;
  ATOLL_ASSIGN(engine_settings.runs, confined_to(options.state / "runs"));
  engine_settings.make_arena = shared_arenas(island, options.state / "runs");
  const std::shared_ptr<Rehearsal> rehearsal = options.faults.empty() ? nullptr : std::make_shared<Rehearsal>(options.faults);
  engine_settings.rehearsal = rehearsal;
  std::unique_ptr<BulkLink> bulk_link = rehearsal ? rehearsed(std::move(link), rehearsal) : std::move(link);
  auto engine = std::make_unique<EngineThread>(engine_settings, std::move(bulk_link));
  std::vector<StoredRun> stored = stored_runs(engine_settings.runs);
  for (const StoredRun& run : stored) {
    engine->post(ServeStored{run.run});
    engine->post(OpenContent{run.run});
  }

  ATOLL_ASSIGN(const LinkFolder link_folder, LinkFolder::make(options.state));
  SessionSettings session;
  session.island = name;
  session.spans = spans;
  session.link_folder = link_folder.path();
  session.runs = engine_settings.runs;
  session.memory_limit_bytes = options.trainer_memory_bytes;
  session.hang_after = options.trainer_hang_after;
  session.program = options.program;
  session.trainers = options.trainers;
  if (session.program.empty()) {
    ATOLL_ASSIGN(session.program, own_program());
  }
  if (!kernels.core_type.empty()) {
    session.environment[kCoreTypeVariable] = kernels.core_type;
  }
  Identity identity;
  identity.kernels = kernels.text;
  identity.island = island;
  identity.name = name;
  identity.version = options.version;
  identity.boot = random_number();
  identity.bulk_address = address;
  identity.platform = platform_text();
  identity.codec_version = kCodecVersion;
  identity.uplink_bits_per_second = options.uplink_bits_per_second;
  if (const Result<CoordinatorPlace> place = read_coordinator(options.state); place && place->key == control_settings.coordinator_key) {
    identity.generation = place->generation;
  }
  for (const auto& [set, path] : options.data.sets) {
    identity.data_sets.push_back(set);
  }
  for (const auto& [trainer, program] : options.trainers) {
    identity.trainers.push_back(trainer);
  }
  ATOLL_ASSIGN(std::unique_ptr<ControlClient> control, ZmqControlClient::open(control_settings));
  control = rehearsal ? rehearsed(std::move(control), rehearsal) : std::move(control);
  Settings core_settings;
  core_settings.leave_limit = options.leave_within;
  log_info("island " + name + " (" + island.text + "): other islands reach it at " + address);
  log_info("island " + name + ": trainers are to compute with " + kernels.text);
  Driver driver(options, std::move(session), Core(std::move(identity), core_settings, std::move(stored), now()), std::move(control),
                std::move(engine), signals);
  return driver.run();
}

}  // namespace atl::agent
