#include "agent/service/driver.hpp"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include "agent/core/core.hpp"
#include "agent/faults/rehearsed_links.hpp"
#include "agent/host/task_session.hpp"
#include "agent/host/trainer_facts.hpp"
#include "agent/service/address_watch.hpp"
#include "agent/service/agent_metrics.hpp"
#include "agent/service/checkpoint_copier.hpp"
#include "agent/service/engine_thread.hpp"
#include "agent/service/joining.hpp"
#include "agent/service/leave_watch.hpp"
#include "agent/service/own_port.hpp"
#include "agent/service/part_settings.hpp"
#include "agent/service/preparation.hpp"
#include "agent/service/standing_notes.hpp"
#include "agent/service/state_watch.hpp"
#include "agent/service/surroundings.hpp"
#include "agent/service/trainer_seat.hpp"
#include "agent/service/uplink_watch.hpp"
#include "agent/storage/membership_file.hpp"
#include "agent/storage/stored_runs.hpp"
#include "transport/base/address.hpp"
#include "transport/base/log.hpp"
#include "transport/base/own_disk.hpp"
#include "transport/base/room_on_disk.hpp"
#include "transport/base/service_manager.hpp"
#include "transport/mapping/port_mapping.hpp"
#include "transport/relay/relay_thread.hpp"
#include "transport/relay/relay_ticket.hpp"
#include "transport/zmq/control_client.hpp"
#include "transport/zmq/zmq_bulk_link.hpp"

namespace atl::agent {
namespace fs = std::filesystem;
namespace {

constexpr auto kGaugeEvery = std::chrono::seconds(2);
constexpr auto kLongestRetry = std::chrono::milliseconds(500);  // a coordinator that comes back is found within this

// ------------------------------------------------------------------------------------------------------------------- the loop

template <typename M>
const M* message_in(const LinkEvent& event) {
  const auto* message = std::get_if<Message>(&event);
  return message == nullptr ? nullptr : std::get_if<M>(message);
}

class Driver {
 public:
  Driver(const AgentOptions& options, std::string bound, std::string dialled, SessionSettings session, Core core,
         std::unique_ptr<ControlClient> control, std::unique_ptr<EngineThread> engine, std::unique_ptr<AskedTrainer> asked,
         std::unique_ptr<PortMapping> mapping, const StopSignals& signals, const StateLock& lock)
      : options_(options),
        bound_(std::move(bound)),
        dialled_(std::move(dialled)),
        session_(std::move(session)),
        core_(std::move(core)),
        control_(std::move(control)),
        engine_(std::move(engine)),
        asked_(std::move(asked)),
        mapping_(std::move(mapping)),
        signals_(signals),
        leave_watch_({options.leave_file, options.leave_command, options.state, options.leave_idle}),
        state_watch_(lock),
        uplink_watch_(options.uplink),
        copier_({session_.island, options.state / "runs", options.copies, options.store}),
        preparation_({options.data, options.state / "cache", options.allow_loopback_http, session_.runs}),
        seat_(session_, preparation_) {}

  Status run() {
    if (!options_.metrics.empty()) {
      ATOLL_ASSIGN(metrics_, AgentMetrics::start({options_.metrics, session_.island, options_.version, options_.state}));
    }
    if (options_.relay) {
      ATOLL_ASSIGN(relay_, RelayThread::start(*options_.relay, "island " + session_.island + "'s"));
      log_info("island " + session_.island + ": islands that cannot dial each other meet at its relay, " + relay_->bound_address());
    }
    tell_service_manager("READY=1\nSTATUS=waits for the coordinator at " + dialled_);
    while (!ended_) {
      if (!turn()) {
        sleep();
      }
    }
    tell_service_manager("STOPPING=1");
    end_trainer();
    copier_.finish(outcome_.ok() ? std::min<Duration>(kLastCopy, options_.leave_within) : Duration::zero());
    return outcome_;
  }

 private:
  // Takes in everything that is there; false if there was nothing.
  bool turn() {
    const TimePoint at = now();
    take_signals(at);
    if (const std::optional<std::string> why = leave_watch_.pump(at, options_.leave_idle && has_work())) {
      log_info("island " + session_.island + ": leaving: " + *why);
      pending_.push_back(LeaveAsked{*why});
    }
    if (const std::optional<Error> lost = state_watch_.pump(at)) {
      log_error("island " + session_.island + ": leaving: " + lost->why + "; put it back and start the agent again");
      pending_.push_back(LeaveAsked{lost->why});
    }
    if (const std::optional<double> uplink = uplink_watch_.pump(at)) {
      log_info("island " + session_.island + " may send " + uplink_text(*uplink) + " from now on");
      engine_->post(SetUplink{*uplink});
      pending_.push_back(SelfChanged{.uplink_bits_per_second = *uplink});
    }
    while (std::optional<LinkEvent> event = control_->receive()) {
      take(*std::move(event));
    }
    while (std::optional<EngineAnswer> answer = engine_->take_answer()) {
      std::visit([&](auto& value) { take(value); }, *answer);
    }
    while (std::optional<Prepared> prepared = preparation_.take()) {
      std::visit([&](auto& value) { take(value, at); }, *prepared);
    }
    while (std::optional<Event> event = copier_.take()) {
      pending_.push_back(*std::move(event));
    }
    pump_trainer(at);
    pump_task(at);
    hear_trainer();
    if (at >= next_gauge_) {
      next_gauge_ = at + kGaugeEvery;
      pending_.push_back(Gauges{resident_bytes(), trainer() ? trainer()->resident_bytes() : task_ ? task_->resident_bytes() : 0});
      tell_spans();
      look_at_addresses();
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
    standing_notes_.note(core_.standing(), session_.island);
    return busy || ended_;
  }

  void sleep() {
    std::vector<pollfd> fds;
    for (const int fd : {signals_.fd(), control_->fd(), engine_->fd(), preparation_.fd(), copier_.fd()}) {
      fds.push_back({fd, POLLIN, 0});
    }
    TimePoint until = std::min(next_gauge_, core_.next_deadline().value_or(next_gauge_));
    until = std::min(until, leave_watch_.next_check().value_or(until));
    if (trainer()) {
      for (const int fd : trainer()->watch_fds()) {
        fds.push_back({fd, POLLIN, 0});
      }
      until = std::min(until, trainer()->next_check());
    }
    if (asked_ && asked_->fd() >= 0) {
      fds.push_back({asked_->fd(), POLLIN, 0});
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
    if (metrics_) {
      metrics_->connected(linked_);
    }
    if (!std::holds_alternative<Message>(event)) {
      tell_service_manager((linked_ ? "STATUS=connected to the coordinator at " : "STATUS=waits for the coordinator at ") + dialled_);
    }
    if (std::holds_alternative<atl::LinkUp>(event)) {
      // A machine that changed its network is reached elsewhere now.
      say_addresses();
      const Status known = options_.coordinator.empty() ? Status() : remember_address(options_.state, options_.coordinator);
      if (!known) {
        log_warning("the coordinator's address is not remembered: " + known.error().why);
      }
    } else if (std::holds_alternative<atl::LinkDown>(event)) {
      pending_.push_back(agent::LinkDown{});
    } else if (const auto* relays = message_in<Relays>(event)) {
      engine_->post(SetRelays{relays->relays});
    } else if (auto* message = std::get_if<Message>(&event)) {
      const bool welcome = std::holds_alternative<Welcome>(*message);
      pending_.push_back(FromCoordinator{std::move(*message)});
      if (welcome) {
        tell_ways();
        tell_relay();
      }
    } else {
      log_warning("the coordinator sent something that is no message: " + std::get<Error>(event).why);
    }
  }

  void look_at_addresses() {
    const bool other_networks = address_watch_.changed();
    if (mapping_ && other_networks) {
      mapping_->look_again();
    }
    const bool other_mapping = mapping_ && mapping_->changed();
    if (other_mapping) {
      remember_mapping(options_.state, mapping_->address());
    }
    if ((other_networks || other_mapping) && linked_) {
      say_addresses();
      tell_relay();
    }
  }

  // What the coordinator is told once it is connected, and when this machine's networks change meanwhile.
  void say_addresses() {
    const Result<std::string> addresses =
        advertised_addresses(options_.advertise, options_.interfaces, bound_, dialled_, mapping_ ? mapping_->address() : std::string());
    pending_.push_back(agent::LinkUp{addresses ? *addresses : std::string()});
  }

  // Said once it is welcome, and at every change.
  void tell_ways() {
    if (linked_) {
      (void)control_->send(ways_);  // a link that breaks now comes up again, and then they are said
    }
  }
  // Others dial it where they dial this island first, at the relay's own port.
  void tell_relay() {
    const Result<std::string> island = advertised_addresses(options_.advertise, options_.interfaces, bound_, dialled_, {});
    Result<Address> address = island ? parse_address(first_address(*island)) : island.error();
    if (!relay_ || !linked_ || !address) {
      return;
    }
    address->port = parse_address(relay_->bound_address()).value().port;
    OwnRelay own{to_string(*address), {}};
    std::ranges::copy(options_.relay->secret, own.secret.bytes.begin());
    (void)control_->send(own);  // as ways are
  }
  void take(WaysChanged& changed) {
    ways_ = std::move(changed.ways);
    tell_ways();
  }
  void take(Event& event) { pending_.push_back(std::move(event)); }
  void take(ArenaPrepared& answer) {
    if (TrainerSession* trainer = seat_.session(answer.run, answer.incarnation)) {
      trainer->arena_prepared(answer.layout);
    }
  }
  void take(ArenaMisused& answer) {
    if (trainer() && trainer()->run() == answer.run && !trainer()->ended()) {
      trainer()->abort(Error{Code::unavailable, answer.why});
    }
  }
  void take(ArenaFilled& answer) { seat_.filled(answer, now()); }

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

  void take(PreparedTrainer& data, TimePoint at) {
    if (const Status begun = seat_.begin(data, at); !begun) {
      pending_.push_back(TrainerExited{data.order.run, data.order.incarnation, !worth_retrying(begun.error().code), begun.error()});
    }
  }

  void take(PreparedParameters& found, TimePoint) {
    if (seat_.session(found.order.run, found.order.incarnation) == nullptr) {
      return;
    }
    if (!found.file) {
      const Error& error = found.file.error();
      pending_.push_back(TrainerExited{found.order.run, found.order.incarnation, !worth_retrying(error.code),
                                       with_context(error, "the parameters that the run begins with")});
    } else if (const auto* lacking = std::get_if<Lacking>(&*found.file)) {
      pending_.push_back(InitialState{found.order.run, Digest{}, lacking->why});
    } else {
      found.order.file = std::get<fs::path>(*found.file).string();
      engine_->post(found.order);
    }
  }

  void pump_trainer(TimePoint at) {
    for (SessionOutput& output : seat_.pump(at)) {
      if (auto* event = std::get_if<Event>(&output)) {
        pending_.push_back(std::move(*event));
      } else if (auto* arena = std::get_if<PrepareArena>(&output)) {
        engine_->post(std::move(*arena));
      } else {
        engine_->post(std::get<FormInitialState>(output));
      }
    }
    if (starting_task_ && task_waits_ && !trainer()) {
      task_waits_ = false;
      preparation_.begin(*starting_task_);
    }
  }

  // What the built-in trainer says of itself, once.
  void hear_trainer() {
    const std::optional<TrainerFacts> facts = asked_ ? asked_->take() : std::nullopt;
    if (!facts) {
      return;
    }
    asked_.reset();
    const std::vector<std::string> gpus = gpus_of();
    const std::string text = computes_text(*facts, gpus);
    if (text.empty()) {
      return;
    }
    log_info("island " + session_.island + ": trainers are to compute with " + text);
    pending_.push_back(SelfChanged{.kernels = text});
    if (const std::string idle = idle_gpus_text(*facts, gpus); !idle.empty()) {
      log_warning("island " + session_.island + ": " + idle);
    }
  }

  void pump_task(TimePoint at) {
    if (!task_) {
      return;
    }
    for (Event& event : task_->pump(at)) {
      if (const auto* over = std::get_if<TaskEnded>(&event); over != nullptr && !over->error.why.empty()) {
        log_warning("run " + over->run.text + ", island " + session_.island + ": the task's process ended: " + over->error.why);
      }
      pending_.push_back(std::move(event));
    }
    if (task_->ended()) {
      task_.reset();
    }
  }

  // An island of a run waits for others and for a trainer that starts; outside of one somebody may read here, an export or a joiner.
  [[nodiscard]] bool has_work() {
    const std::uint64_t before = std::exchange(pieces_sent_, engine_->pieces_sent());
    return pieces_sent_ != before || seat_.taken() || task_ || starting_task_ || copier_.busy() || core_.belongs();
  }

  [[nodiscard]] TrainerSession* trainer() const { return seat_.session(); }

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
      if (const auto* heartbeat = std::get_if<Heartbeat>(&message); metrics_ && heartbeat != nullptr) {
        metrics_->note(*heartbeat);
      }
      if (const Status sent = control_->send(message); !sent && sent.error().code != Code::unavailable) {
        log_warning("a message to the coordinator was not sent: " + sent.error().why);
      }
    }
    for (const Effect& effect : ready.effects) {
      std::visit([&](const auto& order) { carry_out(order, at); }, effect);
    }
  }

  void carry_out(const StartTrainer& order, TimePoint) { seat_.start(order); }
  void carry_out(const StartTask& order, TimePoint) {
    task_.reset();
    starting_task_ = order;
    task_waits_ = seat_.kept_from(order.run);
    if (!task_waits_) {
      preparation_.begin(order);
    }
  }
  void carry_out(const StopTask& order, TimePoint at) {
    starting_task_.reset();
    if (task_ && task_->run() == order.run) {
      task_->stop(order.why, at);
    }
  }
  void carry_out(const StopTrainer& order, TimePoint at) { seat_.stop(order, at); }
  void carry_out(const LoadTrainer& order, TimePoint) {
    if (seat_.load(order)) {
      engine_->post(FillArena{order.run, order.incarnation});
    }
  }
  void carry_out(const PlanTrainer& order, TimePoint) {
    tell(order, [&](TrainerSession& trainer) { trainer.plan(order); });
  }
  void carry_out(const GiveResult& order, TimePoint) {
    tell(order, [&](TrainerSession& trainer) { trainer.give(order); });
  }
  void carry_out(const FinishTrainer& order, TimePoint) {
    tell(order, [&](TrainerSession& trainer) { trainer.finish(order); });
  }
  void carry_out(const SkipTrainer& order, TimePoint) {
    tell(order, [&](TrainerSession& trainer) { trainer.skip(order); });
  }
  void carry_out(const TellTokens& order, TimePoint) {
    tell(order, [&](TrainerSession& trainer) { trainer.tell_tokens(order); });
  }
  // Orders for a trainer that is gone are void.
  template <typename Order, typename Tell>
  void tell(const Order& order, const Tell& tell_trainer) {
    if (TrainerSession* trainer = seat_.session(order.run, order.incarnation)) {
      tell_trainer(*trainer);
    }
  }
  void carry_out(const DealData& order, TimePoint) {
    tell(order, [&](TrainerSession& trainer) { trainer.deal(order); });
  }
  void carry_out(const FormInitialState& order, TimePoint) {
    TrainerSession* trainer = seat_.session(order.run, order.incarnation);
    if (trainer == nullptr) {
      return;
    }
    if (trainer->spec().model.from.empty()) {
      trainer->publish_initial();
      return;
    }
    preparation_.begin(order, trainer->spec());
  }
  // A coordinator that was never joined by a token (`--insecure`) has no place that could be written down.
  void carry_out(const RememberGeneration& order, TimePoint) {
    Result<CoordinatorPlace> place = read_coordinator(options_.state);
    if (!place || state_watch_.lost()) {
      return;
    }
    place->generation = order.generation;
    if (const Status written = write_coordinator(options_.state, *place); !written) {
      log_warning("the coordinator's generation is not remembered: " + written.error().why);
    }
  }
  void carry_out(const CopyCheckpoint& order, TimePoint) { copier_.copy(order); }
  void carry_out(const FetchCopy& order, TimePoint) { copier_.fetch(order); }
  void carry_out(const Notice& order, TimePoint) {
    const LogLevel level = order.level == "error" ? LogLevel::error : order.level == "info" ? LogLevel::info : LogLevel::warning;
    log(level, "island " + session_.island + ": " + order.text);
  }
  void carry_out(const agent::Exit& order, TimePoint) {
    ended_ = true;
    leave_by_ = order.until;
    const std::optional<Error>& lost = state_watch_.lost();
    outcome_ = order.error ? Status(*order.error) : lost ? Status(*lost) : Status();
    if (outcome_) {
      log_info("island " + session_.island + ": has left");
    }
  }
  // Everything else is the sync engine's.
  template <typename Order>
  void carry_out(const Order& order, TimePoint) {
    engine_->post(EngineCommand(order));
  }

  // Lets the trainer end by itself, within reason; the rest is the host's destructor. A second signal ends it at once.
  void end_trainer() {
    task_.reset();  // what it saved is kept; the rest is done again
    TimePoint until = now() + seat_.end(now());
    const bool limited = leave_by_ && *leave_by_ < until;
    until = limited ? *leave_by_ : until;
    bool at_once = !outcome_.ok() && outcome_.error().code == Code::cancelled;
    while (!at_once && trainer() && now() < until) {
      while (std::optional<EngineAnswer> answer = engine_->take_answer()) {
        if (const auto* filled = std::get_if<ArenaFilled>(&*answer)) {
          seat_.filled(*filled, now());
        }
      }
      (void)seat_.pump(now());
      std::vector<pollfd> fds = {{signals_.fd(), POLLIN, 0}, {engine_->fd(), POLLIN, 0}};
      for (const int fd : trainer() ? trainer()->watch_fds() : std::vector<int>{}) {
        fds.push_back({fd, POLLIN, 0});
      }
      if (trainer()) {
        ::poll(fds.data(), fds.size(), 100);
      }
      if (signals_.take()) {
        outcome_ = Error{Code::cancelled, "ended at once by a second signal"};
        at_once = true;
      }
    }
    if (limited && !at_once && trainer()) {
      log_warning("run " + trainer()->run().text + ", island " + session_.island + ": the trainer had not ended within " +
                  human_duration(options_.leave_within) + " of the signal to leave (--leave-within), and is ended");
    }
    seat_.clear();
  }

  const AgentOptions& options_;
  std::string bound_;    // where the bulk link listens
  std::string dialled_;  // where the coordinator is
  SessionSettings session_;
  Core core_;
  std::unique_ptr<ControlClient> control_;
  std::unique_ptr<EngineThread> engine_;
  std::unique_ptr<AskedTrainer> asked_;   // nothing: it has answered
  std::unique_ptr<PortMapping> mapping_;  // empty: no router is asked
  std::uint64_t pieces_sent_ = 0;         // by the engine, when it was last looked at
  const StopSignals& signals_;
  LeaveWatch leave_watch_;
  StateWatch state_watch_;
  UplinkWatch uplink_watch_;
  CheckpointCopier copier_;
  Preparation preparation_;
  std::unique_ptr<AgentMetrics> metrics_;  // empty: nobody asked for them
  std::unique_ptr<RelayThread> relay_;     // likewise
  std::deque<Event> pending_;
  Ways ways_;  // that the bulk link told last
  TrainerSeat seat_;
  std::optional<StartTask> starting_task_;  // its data are being prepared, or it waits
  bool task_waits_ = false;                 // for the trainer of the run before
  std::unique_ptr<TaskSession> task_;
  TimePoint next_gauge_{};
  AddressWatch address_watch_;
  bool linked_ = false;
  bool asked_to_leave_ = false;
  bool ended_ = false;
  std::optional<TimePoint> leave_by_;  // of one that was asked to leave
  Status outcome_;
  StandingNotes standing_notes_;
};

}  // namespace

namespace {

// A new key would be a stranger to the coordinator that this island has joined.
Status check_key_is_there(const AgentOptions& options) {
  std::error_code ignored;
  const fs::path key = options.state / "keys" / "island";
  if (fs::exists(key, ignored) || !options.join_token.empty() || !read_coordinator(options.state)) {
    return {};
  }
  return Error{Code::not_found,
               key.string() +
                   " is gone, the key by which the coordinator knows this island: put it back from a copy, or join as a new "
                   "island with a new token (--join-file)"};
}

}  // namespace

Status run_agent(const AgentOptions& given) {
  AgentOptions options = given;
  // Before any thread.
  auto asked = std::make_unique<AskedTrainer>(options.program.empty() ? "/proc/self/exe" : options.program);
  const StopSignals signals;
  std::error_code failure;
  options.state = fs::absolute(options.state, failure);
  ATOLL_ASSIGN(const StateLock lock, StateLock::take(options.state));
  KeyPair keys;
  const auto begin = [&]() -> Status {
    ATOLL_TRY(keep_private(options.state));
    ATOLL_TRY(check_key_is_there(options));
    ATOLL_ASSIGN(keys, read_or_make_key_file(options.state / "keys" / "island"));
    return {};
  };
  ATOLL_TRY(once_there_is_room(options.state, signals.fd(), begin));
  const IslandId island = island_of(keys.public_key);
  if (options.relay) {
    options.relay->secret = relay_secret(keys.secret_key);
  }
  const Entrance entrance{
      options.state,        options.join_token, options.coordinator, options.insecure, options.name.empty() ? host_name() : options.name,
      !options.name.empty()};
  ATOLL_ASSIGN(ControlClientSettings control_settings, find_coordinator(entrance, keys, signals.fd()));
  const std::string name = name_of_island(entrance);
  control_settings.retry_most = kLongestRetry;

  ATOLL_ASSIGN(const ZmqBulkSettings bulk, settings_of_link(options, keys, control_settings.address));
  ATOLL_ASSIGN(std::unique_ptr<ZmqBulkLink> link, open_bulk_link(bulk, options.state, std::make_shared<BlobStore>()));
  const std::string bound = link->bound_address();
  ATOLL_ASSIGN(const std::string address, advertised_addresses(options.advertise, options.interfaces, bound, control_settings.address, {}));
  std::unique_ptr<PortMapping> mapping;
  if (options.port_mapping && options.advertise.empty() && may_be_mapped(bound, address)) {
    mapping = std::make_unique<PortMapping>(parse_address(bound).value().port);
  }

  remove_old_arenas();
  ATOLL_ASSIGN(const EngineSettings engine_settings, settings_of_engine(options, island));
  const std::shared_ptr<Rehearsal>& rehearsal = engine_settings.rehearsal;
  std::unique_ptr<BulkLink> bulk_link = rehearsal ? rehearsed(std::move(link), rehearsal) : std::move(link);
  auto engine = std::make_unique<EngineThread>(engine_settings, std::move(bulk_link),
                                               options.threads > 0 ? options.threads : threads_for(std::thread::hardware_concurrency()));
  engine->post(SetUplink{options.uplink.rate_at(local_week_time())});
  remove_doomed(engine_settings.runs);
  std::vector<StoredRun> stored = stored_runs(engine_settings.runs);
  for (const StoredRun& run : stored) {
    engine->post(ServeStored{run.run});
    engine->post(OpenContent{run.run});
  }

  std::optional<LinkFolder> link_folder;
  const auto make_link = [&]() -> Status {
    ATOLL_ASSIGN(LinkFolder made, LinkFolder::make(options.state));
    link_folder.emplace(std::move(made));
    return {};
  };
  ATOLL_TRY(once_there_is_room(options.state, signals.fd(), make_link));
  ATOLL_ASSIGN(SessionSettings session, settings_of_sessions(options, engine_settings));
  session.island = name;
  session.link_folder = link_folder->path();
  Identity identity = identity_of(options, control_settings.coordinator_key);
  identity.island = island;
  identity.name = name;
  identity.bulk_address = address;
  identity.place = lock.place();
  ATOLL_ASSIGN(std::unique_ptr<ControlClient> control, ZmqControlClient::open(control_settings));
  control = rehearsal ? rehearsed(std::move(control), rehearsal) : std::move(control);
  Settings core_settings;
  core_settings.leave_limit = options.leave_within;
  core_settings.keep_ended = options.keep_ended;
  core_settings.keep_removed = options.keep_removed;
  log_info("island " + name + " (" + island.text + "): other islands reach it at " + addresses_for_people(address));
  if (const Proxy* proxy = own_proxy().towards_address(control_settings.address)) {
    log_info("the coordinator, and islands that are not in this machine's networks, are reached through the proxy " + proxy->shown +
             " (from " + proxy->source + ")");
  }
  Driver driver(options, bound, control_settings.address, std::move(session),
                Core(std::move(identity), core_settings, std::move(stored), now()), std::move(control), std::move(engine), std::move(asked),
                std::move(mapping), signals, lock);
  remember_mapping(options.state, "");
  const auto ended = driver.run();
  remember_mapping(options.state, "");
  return ended;
}

}  // namespace atl::agent
