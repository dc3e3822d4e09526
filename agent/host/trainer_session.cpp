#include "agent/host/trainer_session.hpp"

#include <algorithm>
#include <limits>
#include <system_error>
#include <utility>

#include "agent/engine/built_in_model.hpp"
#include "agent/host/trainer_command.hpp"
#include "agent/island_link/arena.hpp"
#include "agent/storage/checkpoint.hpp"
#include "agent/storage/content_shelf.hpp"
#include "strategies/composition.hpp"
#include "strategies/specification/model_kind.hpp"
#include "transport/base/bytes.hpp"
#include "transport/base/log.hpp"
#include "transport/base/plain_text.hpp"

namespace atl::agent {
namespace fs = std::filesystem;
namespace {

// From the `stop` message to SIGTERM, and from a failure that it has said to its end.
// From a message that it did not take to SIGKILL: one that dies says of what within this time.
constexpr auto kDeafPatience = std::chrono::seconds(1);
constexpr int kMostMessagesAtOnce = 256;  // so that one that talks without end keeps its agent from nothing

double or_nan(const std::optional<double>& value) { return value.value_or(std::numeric_limits<double>::quiet_NaN()); }

}  // namespace

void log_kernels(const std::string& island, const RunId& run, const island_link::Hello& hello) {
  if (hello.kernels) {
    log_info("run " + run.text + ", island " + island + ": the trainer computes with " + make_plain(*hello.kernels, TextRule::text, 256));
  }
}

TrainerSession::TrainerSession(StartTrainer order, std::vector<std::string> files, SessionSettings settings, island_link::AgentEnd link,
                               TrainerHost host)
    : order_(std::move(order)), files_(std::move(files)), settings_(std::move(settings)), link_(std::move(link)), host_(std::move(host)) {}

Result<std::unique_ptr<TrainerSession>> TrainerSession::start(const StartTrainer& order, const std::vector<fs::path>& files,
                                                              const SessionSettings& settings, TimePoint now) {
  const std::string path = (settings.link_folder / ("trainer-" + std::to_string(order.incarnation))).string();
  std::error_code ignored;
  fs::remove(path, ignored);
  ATOLL_ASSIGN(island_link::AgentEnd link, island_link::AgentEnd::bind(path));
  ATOLL_ASSIGN(TrainerCommand command, trainer_command(settings, order.run, order.spec, path));
  ATOLL_ASSIGN(TrainerHost host, TrainerHost::start(std::move(command), now));
  std::vector<std::string> names;
  names.reserve(files.size());
  for (const fs::path& file : files) {
    names.push_back(file.string());
  }
  std::unique_ptr<TrainerSession> session(new TrainerSession(order, std::move(names), settings, std::move(link), std::move(host)));
  session->started_ = now;
  session->update_expectation(now);
  return session;
}

std::vector<int> TrainerSession::watch_fds() const {
  std::vector<int> fds = host_.watch_fds();
  fds.push_back(link_.fd());
  return fds;
}

TimePoint TrainerSession::next_check() const {
  TimePoint check = more_to_read_ ? TimePoint{} : host_.next_check();
  if (stopping_) {
    check = std::min(check, *stopping_ + stop_patience());
  }
  return has_time_to_start() && !to_be_attached() ? std::min(check, started_ + order_.spec.trainer.start_within) : check;
}

std::vector<SessionOutput> TrainerSession::pump(TimePoint now) {
  std::vector<SessionOutput> out;
  if (ended_) {
    return out;
  }
  read_link(now, out);
  if (stopping_ && now >= *stopping_ + stop_patience()) {
    if (end_ != RunEnd::none && !std::exchange(late_, true)) {
      log_warning("run " + order_.run.text + ", island " + settings_.island + ": the trainer did not end within " +
                  human_duration(stop_patience()) + " of the run's end ([trainer].finish_within), and is ended");
    }
    host_.stop(now);
  }
  update_expectation(now);
  if (has_time_to_start() && !to_be_attached() && now >= started_ + order_.spec.trainer.start_within) {
    host_.kill("was not ready within " + human_duration(order_.spec.trainer.start_within) + " ([trainer].start_within)" +
               (preparing_.empty() ? "" : ", when it was " + preparing_));
  }
  if (failure_ && !stopping_) {  // it was refused, or has failed, and ends by itself
    end_by_ = end_by_.value_or(now + kStopPatience);
    if (now >= *end_by_) {
      host_.kill("did not end after it had failed");
    }
  }
  if (!deaf_.empty()) {
    deaf_until_ = deaf_until_.value_or(now + kDeafPatience);
    if (now >= *deaf_until_) {
      host_.kill("does not take the agent's messages: " + deaf_);
    }
  }
  if (const std::optional<TrainerExit> exit = host_.pump(now)) {
    do {
      read_link(now, out);  // what it said last
    } while (more_to_read_);
    take_exit(*exit, out);
  }
  return out;
}

void TrainerSession::read_link(TimePoint now, std::vector<SessionOutput>& out) {
  more_to_read_ = false;
  for (int i = 0; i < kMostMessagesAtOnce; ++i) {
    Result<std::optional<island_link::TrainerMessage>> message = link_.receive();
    if (!message) {
      failure_ = "said something that is no message of the island link: " + message.error().why;
      host_.kill("broke the island link's protocol: " + message.error().why);
      return;
    }
    if (!*message) {
      return;
    }
    host_.note_progress(now);
    if (!std::holds_alternative<island_link::Preparing>(**message)) {
      busy_since_.reset();
    }
    std::visit(
        [&](const auto& said) {
          if constexpr (requires { hear(said, out); }) {
            hear(said, out);
          } else {
            failure_ = "said '" + std::string(island_link::type_of(**message)) + "', which belongs to a task, and it has none";
            host_.kill("broke the island link's protocol");
          }
        },
        **message);
  }
  more_to_read_ = true;
}

void TrainerSession::take_exit(const TrainerExit& exit, std::vector<SessionOutput>& out) {
  ended_ = true;
  if (stopping_) {
    note_last_exit(exit);
    return;
  }
  std::string why = "the trainer " + exit.why;
  if (failure_) {
    why = "the trainer failed: " + *failure_;
  } else if (exit.clean) {
    why += " though nobody asked it to";
  }
  const bool killed = exit.signal != 0 || exit.status > 128;  // a shell ends so where a signal ended its child
  const std::string words = failure_.value_or(killed ? "" : exit.last_lines);
  out.push_back(Event(TrainerExited{order_.run, order_.incarnation, permanent_, Error{Code::unavailable, why}, words}));
}

// The run is completed whatever the trainer does behind its loop, so this is for its owner's eyes. How a program ended that had joined by
// itself nobody knows but who started it: the status is that of its stand-in, and what failed in it, it has said itself.
void TrainerSession::note_last_exit(const TrainerExit& exit) const {
  const std::string why = !attaches() ? exit.clean ? "" : exit.why : failure_ ? "failed: " + *failure_ : "";
  if (end_ != RunEnd::none && !why.empty()) {
    log_warning("run " + order_.run.text + ", island " + settings_.island + ": after the run's end the trainer " + why);
  }
}

void TrainerSession::send(const island_link::AgentMessage& message) {
  if (const Status sent = link_.send(message); !sent && !ended_ && deaf_.empty()) {
    deaf_ = sent.error().why;  // it may be dying: pump hears of what
  }
}

std::vector<std::uint32_t> TrainerSession::all_fragments() const {
  std::vector<std::uint32_t> all;
  for (std::uint32_t fragment = 0; fragment < fragments_; ++fragment) {
    all.push_back(fragment);
  }
  return all;
}

// A trainer of one's own may load and compile for long before it is ready: for that the run file has a time of its own.
bool TrainerSession::has_time_to_start() const { return !ready_ && has_own_trainer(order_.spec); }

bool TrainerSession::attaches() const {
  const auto program = settings_.trainers.find(order_.spec.trainer.name);
  return program != settings_.trainers.end() && program->second.attaches();
}

// It should be moving while it starts, while it answers a request, and while it has steps to do before it needs a result.
// One that has said what it is busy with has as much time for that as for its start.
void TrainerSession::update_expectation(TimePoint now) {
  const bool to_do = requested_ || (!to_publish_.empty() && waiting_for_.empty());
  host_.expect_progress((!ready_ && !has_time_to_start()) || (to_do && !busy_since_), now);
  const Duration most = std::max(settings_.hang_after, order_.spec.trainer.start_within);
  if (busy_since_ && now >= *busy_since_ + most) {
    host_.kill("was " + preparing_ + " for " + human_duration(now - *busy_since_));
  }
}

// ------------------------------------------------------------------------------------------------------------------- hearing

void TrainerSession::hear(const island_link::Hello& message, std::vector<SessionOutput>&) {
  if (to_be_attached()) {
    started_ = now();
  }
  said_hello_ = true;
  version_ = make_plain(message.version, TextRule::name, 128);
  const std::uint32_t ranks = order_.spec.trainer.ranks;
  if (message.protocol != island_link::kProtocol || (ranks != 0 && message.ranks != ranks)) {
    failure_ = message.protocol != island_link::kProtocol
                   ? "the trainer " + make_plain(message.trainer, TextRule::text, 64) + " speaks version " +
                         std::to_string(message.protocol) + " of the island link, this agent version " +
                         std::to_string(island_link::kProtocol)
                   : "it has " + std::to_string(message.ranks) + (message.ranks == 1 ? " rank" : " ranks") + ", and the run asks for " +
                         std::to_string(ranks) + " ([trainer].ranks)";
    permanent_ = true;
    send(island_link::Stop{*failure_});
    return;
  }
  finishes_ = message.finishes.value_or(false);
  log_kernels(settings_.island, order_.run, message);
  send(configuration());
}

void TrainerSession::hear(const island_link::Manifest& message, std::vector<SessionOutput>& out) {
  island_link::Manifest manifest = message;
  parameters_ = island_link::elements(message.parameters);
  if (order_.spec.trainer.same_code) {
    manifest.description = manifest.description.value_or("") + " (version " + version_ + ")";
  }
  out.push_back(PrepareArena{order_.run, order_.incarnation, std::move(manifest), settings_.island});
}

void TrainerSession::hear(const island_link::Ready& message, std::vector<SessionOutput>& out) {
  ready_ = true;
  first_position_ = message.position;
  last_position_ = message.position;
  if (!std::exchange(announced_, true)) {
    out.push_back(
        Event(TrainerReady{order_.run, order_.incarnation, Step(message.step), message.position, static_cast<std::uint32_t>(fragments_),
                           finishes_, message.tokens_available / tokens_per_sequence(order_.spec), parameters_}));
  }
}

void TrainerSession::hear(const island_link::PublishedNow&, std::vector<SessionOutput>& out) {
  requested_ = false;
  out.push_back(FormInitialState{order_.run, order_.incarnation});
}

void TrainerSession::hear(const island_link::Published& message, std::vector<SessionOutput>& out) {
  to_publish_.erase(Round(message.round));
  if (waits_for_results()) {
    waiting_for_.insert(Round(message.round));
  }
  TrainerPublished event;
  event.run = order_.run;
  event.incarnation = order_.incarnation;
  event.round = Round(message.round);
  event.facts.fragment = message.fragment;
  event.step = Step(message.step);
  event.position = message.position;
  event.facts.tokens = message.tokens;
  event.facts.steps = message.steps;
  event.facts.training_loss = or_nan(message.loss);
  event.nonfinite = message.nonfinite;
  event.local_loss = or_nan(message.local_validation_loss);
  event.bad_step = message.bad_step ? std::optional(Step(*message.bad_step)) : std::nullopt;
  // A round of a small model may be over before the first `progress`.
  const double computed = message.compute_seconds - progress_.compute_seconds;
  if (computed > 0 && progress_.tokens_per_second == 0) {
    progress_.tokens_per_second = static_cast<double>(message.tokens) / computed;
  }
  progress_.compute_seconds = std::max(progress_.compute_seconds, message.compute_seconds);
  tell_progress(message.step, message.position, message.loss, out);
  note_pause(Round(message.round), message.fragment, message.step, 0);
  out.push_back(Event(event));
}

void TrainerSession::note_pause(Round round, std::uint32_t fragment, std::uint64_t step, double waited) {
  if (!settings_.spans) {
    return;
  }
  const TimePoint at = now();
  const TimePoint stood = at - from_seconds(std::max(waited, 0.0));
  if (step > span_step_ && stood > span_start_) {
    settings_.spans->add(order_.run, Span{SpanKind::steps, round, fragment, {}, span_start_, stood - span_start_, step - span_step_});
  }
  if (waited > 0) {
    settings_.spans->add(order_.run, Span{SpanKind::wait, round, fragment, {}, stood, at - stood, 0});
  }
  span_start_ = at;
  span_step_ = step;
}

void TrainerSession::hear(const island_link::Merged& message, std::vector<SessionOutput>& out) {
  TrainerMerged event;
  event.run = order_.run;
  event.incarnation = order_.incarnation;
  event.round = Round(message.round);
  event.fragment = message.fragment;
  event.step = Step(message.step);
  event.position = message.position;
  event.wait_seconds = message.wait_seconds;
  event.outer_loss = or_nan(message.validation_loss);
  event.save = message.saved ? TrainerSave::done : message.saving.value_or(false) ? TrainerSave::going_on : TrainerSave::none;
  event.save_error = message.save_error.value_or("");
  if (event.save == TrainerSave::going_on) {
    saving_[save_folder(event.round).text()] = event.round;
  }
  out.push_back(Event(event));
  note_pause(event.round, event.fragment, message.step, message.wait_seconds);
  merge_wait_ += message.wait_seconds;
  progress_.wait_seconds = std::max(progress_.wait_seconds, merge_wait_);
  progress_.step = std::max(progress_.step, Step(message.step));
  out.push_back(Event(progress_));
}

void TrainerSession::hear(const island_link::Loaded& message, std::vector<SessionOutput>& out) {
  requested_ = false;
  span_start_ = now();
  span_step_ = message.step;
  sequences_before_ += last_position_ - std::min(first_position_, last_position_);
  first_position_ = message.position;
  last_position_ = message.position;
  out.push_back(Event(TrainerLoaded{order_.run, order_.incarnation, Step(message.step), message.position}));
}

void TrainerSession::hear(const island_link::Saved& message, std::vector<SessionOutput>& out) {
  if (const auto saving = saving_.extract(message.directory)) {
    out.push_back(Event(TrainerSaved{order_.run, order_.incarnation, saving.mapped(), message.error.value_or("")}));
  }
}

void TrainerSession::hear(const island_link::Evaluated& message, std::vector<SessionOutput>& out) {
  out.push_back(Event(TrainerEvaluated{order_.run, order_.incarnation, Step(message.step), or_nan(message.loss)}));
}

void TrainerSession::hear(const island_link::Progress& message, std::vector<SessionOutput>& out) {
  progress_.tokens_per_second = message.tokens_per_second;
  progress_.compute_seconds = message.compute_seconds;
  progress_.wait_seconds = message.wait_seconds;
  tell_progress(message.step, message.position, message.loss, out);
}

void TrainerSession::tell_progress(std::uint64_t step, std::uint64_t position, const std::optional<double>& loss,
                                   std::vector<SessionOutput>& out) {
  last_position_ = position;
  const std::uint64_t sequences = sequences_before_ + position - std::min(first_position_, position);
  progress_.run = order_.run;
  progress_.incarnation = order_.incarnation;
  progress_.step = Step(step);
  progress_.tokens = sequences * tokens_per_sequence(order_.spec);
  progress_.training_loss = or_nan(loss);
  out.push_back(Event(progress_));
}

void TrainerSession::hear(const island_link::Failed& message, std::vector<SessionOutput>&) {
  failure_ = make_plain(message.why, TextRule::text, 1000);
  permanent_ = permanent_ || message.permanent.value_or(false);
}

void TrainerSession::hear(const island_link::Preparing& message, std::vector<SessionOutput>& out) {
  if (message.data && !message.data->empty() && !std::exchange(said_data_, true)) {
    out.push_back(Event(TrainerSaid{order_.run, order_.incarnation, {}, {}, make_plain(*message.data, TextRule::text, 1000)}));
  }
  preparing_ = make_plain(message.what, TextRule::name, 256);
  if (ready_) {
    busy_since_ = busy_since_.value_or(now());
    return;
  }
  if (const auto line =
          preparing_lines_.pass(now(), "run " + order_.run.text + ", island " + settings_.island + ": the trainer is " + preparing_)) {
    log_info(*line);
  }
}

void TrainerSession::hear(const island_link::Metrics& message, std::vector<SessionOutput>& out) {
  TrainerSaid said{order_.run, order_.incarnation, {}, {}};
  for (const island_link::Metric& metric : message.values) {
    if (said.metrics.size() < kMaxOwnMetrics) {
      said.metrics.push_back({make_plain(metric.name, TextRule::name, island_link::kLongestMetricName), or_nan(metric.value)});
    }
  }
  out.push_back(Event(std::move(said)));
}

void TrainerSession::hear(const island_link::Enough& message, std::vector<SessionOutput>& out) {
  out.push_back(Event(TrainerSaid{order_.run, order_.incarnation, {}, make_plain(message.why, TextRule::text, 300)}));
}

// -------------------------------------------------------------------------------------------------------------------- orders

island_link::Configure TrainerSession::configuration() const {
  const RunSpec& spec = order_.spec;
  island_link::Configure message;
  message.run = order_.run.text;
  message.island = settings_.island;
  message.seed = spec.seed;
  put_model(spec, message);
  const DataShare& share = order_.share;
  message.data = {files_, spec.data.format, spec.data.validation_fraction, share.slice, share.slices, share.classes, share.stretches};
  message.training = spec.training;
  if (const Result<Digest> clustering = digest_from_hex(spec.work.sha256); clustering && !spec.work.run.empty()) {
    const DiskPath path = content_path(settings_.runs / spec.work.run, *clustering);
    message.work = island_link::Work{spec.work.task, {island_link::TaskInput{"clustering", path.text(), spec.work.sha256, 0}}};
    for (const std::string& images : spec.work.images) {
      if (const Result<Digest> digest = digest_from_hex(images)) {
        const std::string task = "images/" + std::to_string(message.work->inputs.size() - 1);
        message.work->inputs.push_back({task, content_path(settings_.runs / spec.work.run, *digest).text(), images, 0});
      }
    }
  }
  const Result<Composition> composition = compose(spec.strategy);
  message.payload =
      composition && composition->payload == PayloadKind::gradient ? island_link::Payload::gradient : island_link::Payload::parameters;
  if (order_.checkpoint || order_.step.value > 0 || order_.position > 0) {
    island_link::Resume resume;
    if (order_.checkpoint) {
      resume.directory =
          (settings_.runs / order_.run.text / "checkpoints" / std::to_string(order_.checkpoint->value) / kTrainerFolder).text();
    }
    resume.step = order_.step.value;
    resume.position = order_.position;
    message.resume = resume;
  }
  message.saves_beside = true;
  return message;
}

void TrainerSession::arena_prepared(const Result<island_link::ArenaLayout>& layout) {
  if (!layout) {
    abort(layout.error());
    return;
  }
  fragments_ = layout->fragments.size();
  send(*layout);
}

void TrainerSession::abort(const Error& error) {
  failure_ = error.why;
  permanent_ = error.code == Code::invalid_argument;
  host_.kill(error.why);
}

void TrainerSession::publish_initial() {
  requested_ = true;
  send(island_link::PublishNow{all_fragments()});
  send(island_link::Evaluate{});  // the loss that the run starts from
}

void TrainerSession::load(Step step, std::uint64_t position) {
  requested_ = true;
  to_publish_.clear();
  waiting_for_.clear();
  send(island_link::Load{all_fragments(), step.value, position});
  if (step == Step(0) && !order_.spec.model.from.empty()) {
    send(island_link::Evaluate{});  // the loss that the run starts from
  }
}

void TrainerSession::plan(const PlanTrainer& order) {
  if (span_start_ == TimePoint()) {
    span_start_ = now();  // its first steps
  }
  island_link::Plan plan;
  plan.until_step = order.until.value;
  for (const PublishOrder& publish : order.publish) {
    to_publish_.insert(publish.round);
    plan.publish.push_back({publish.round.value, publish.fragment, publish.step.value, publish.evaluate_local});
  }
  for (const MergeOrder& merge : order.merge) {
    island_link::MergeOrder said{merge.round.value, merge.fragment,   merge.step.value, merge.alpha,
                                 merge.evaluate,    merge.parameters, std::nullopt};
    if (merge.save) {
      const DiskPath folder = save_folder(merge.round);
      static_cast<void>(folder.remove());  // of the same round, given up: what cannot be removed is replaced, or said by the trainer
      said.save = folder.text();
    }
    if (waits_for_results() && !to_publish_.contains(merge.round)) {
      waiting_for_.insert(merge.round);  // its contribution came with the checkpoint
    }
    plan.merge.push_back(said);
  }
  send(plan);
}

// Where it saves its state of a round; the checkpoint that is written there makes it complete. The engine may be writing beside it already.
DiskPath TrainerSession::save_folder(Round round) const {
  const DiskPath partial = settings_.runs / order_.run.text / "checkpoints" / ("." + std::to_string(round.value) + ".partial");
  if (const Status made = partial.make_folders(); !made) {
    log_warning("run " + order_.run.text + ": the trainer has no folder to save in: " + made.error().why);
  }
  return partial / kTrainerFolder;
}

void TrainerSession::finish(const FinishTrainer& order) {
  if (finishes_) {
    to_publish_.erase(to_publish_.upper_bound(order.round), to_publish_.end());
    send(island_link::Finish{order.round.value, order.now, save_folder(order.round).text()});
  }
}

void TrainerSession::skip(const SkipTrainer& order) {
  if (finishes_) {
    send(island_link::Skip{order.step.value});
  }
}

void TrainerSession::tell_tokens(const TellTokens& order) {
  if (finishes_) {
    send(island_link::Committed{order.committed, order.of});
  }
}

void TrainerSession::deal(const DealData& order) {
  if (finishes_) {
    send(island_link::Dealt{order.share.slice, order.share.slices, order.share.classes, order.share.stretches});
  }
}

void TrainerSession::give(const GiveResult& order) {
  waiting_for_.erase(order.round);
  send(island_link::RoundResult{order.round.value, order.fragment, true});
}

void TrainerSession::stop(const std::string& why, RunEnd end, TimePoint now) {
  if (!stopping_ && !ended_) {
    stopping_ = now;
    end_ = end;
    const bool complete = end != RunEnd::none;
    send(island_link::Stop{why, complete ? std::optional(true) : std::nullopt,
                           end == RunEnd::completed_first ? std::optional(true) : std::nullopt});
  }
}

}  // namespace atl::agent
