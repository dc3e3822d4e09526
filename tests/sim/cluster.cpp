#include "tests/sim/cluster.hpp"

#include <algorithm>

#include "coordinator/core/network.hpp"
#include "tests/sim/trace.hpp"
#include "transport/base/log.hpp"
#include "transport/identity/generation_proof.hpp"

namespace atl::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::size_t kHistory = 8;            // messages of a way that may come again
constexpr Duration kLedgerRetry = seconds(1);  // as the coordinator's driver does
constexpr Duration kReasonsEvery = seconds(2);

}  // namespace

Cluster::Cluster(const Scenario& scenario)
    : scenario_(scenario),
      digest_(scenario.seed),
      schedule_(schedule_of_spec(scenario.spec)),
      rng_(scenario.seed, stream_of("cluster")),
      power_(scenario.seed, stream_of("power")),
      timeline_(from_unix_ms(1'700'000'000'000)),
      network_(scenario.seed ^ stream_of("network"), timeline_.now()),
      checkers_(schedule_, scenario_.spec, scenario_.one_level_members),
      begun_(timeline_.now()) {
  if (!traced()) {
    set_log_sink([](LogLevel, std::string_view) {});
  }
  network_.dial_by_address();
  for (std::uint32_t i = 0; i < scenario_.islands; ++i) {
    hosts_.push_back(std::make_unique<IslandHost>(*this, i));
  }
  set_ways();
}
Cluster::~Cluster() = default;

// Time passes for the links as for everything else.
bool Cluster::run_one(TimePoint until) {
  const std::optional<TimePoint> planned = timeline_.next();
  const std::optional<TimePoint> arrives = network_.next_event();
  if (!planned && !arrives) {
    return false;
  }
  const bool link_first = arrives && (!planned || *arrives <= *planned);
  const TimePoint next = link_first ? *arrives : *planned;
  if (next > until) {
    return false;
  }
  if (!link_first) {
    network_.advance_to(next);
    return timeline_.run_one(until);
  }
  timeline_.pass_until(next);
  network_.advance_to(next);
  for (const auto& host : hosts_) {
    host->receive();
  }
  return true;
}

std::string Cluster::host_of(const std::string& name) const {
  const auto host = std::ranges::find_if(hosts_, [&](const auto& candidate) { return candidate->name() == name; });
  return host == hosts_.end() ? name : (*host)->id().text;
}

void Cluster::cut(const std::string& from, const std::string& to) {
  cuts_.insert({from, to});
  network_.cut(host_of(from), host_of(to));
}

void Cluster::join(const std::string& from, const std::string& to) {
  cuts_.erase({from, to});
  network_.heal(host_of(from), host_of(to));
}

void Cluster::set_ways() {
  PathConditions ways;
  ways.latency = scenario_.latency;
  ways.jitter = troubled_ ? scenario_.jitter : std::min<Duration>(scenario_.jitter, milliseconds(50));
  if (troubled_) {
    ways.loss = scenario_.loss;
    ways.duplication = scenario_.duplication;
    ways.replay = scenario_.replay;
    ways.reordering = scenario_.duplication;
  }
  network_.set_conditions(ways);
  network_.clear_paths();
  for (const auto& [way, clog] : clogs_) {
    if (timeline_.now() < clog.until) {
      PathConditions slow = ways;
      slow.bytes_per_second = 100 / atl::seconds(clog.each);  // a short message is some hundred bytes
      network_.set_path(host_of(way.first), host_of(way.second), slow);
    }
  }
}

// One message after the other, slowly.
void Cluster::clog(const std::pair<std::string, std::string>& way, Duration length, Duration each) {
  clogs_[way] = Clog{timeline_.now() + length, timeline_.now(), each};
  set_ways();
  timeline_.after(length, [this] { set_ways(); });
}

Duration Cluster::draw(Duration from, Duration to) {
  return from + Duration(static_cast<Duration::rep>(rng_.below(static_cast<std::uint64_t>((to - from).count()) + 1)));
}

Clock Cluster::draw_clock() {
  if (!scenario_.skewed_clocks) {
    return Clock{timeline_.now()};
  }
  const Duration offset = draw(-std::chrono::hours(1), std::chrono::hours(1));
  return Clock{timeline_.now(), offset, 0.02 * rng_.uniform() - 0.01};
}

IslandHost* Cluster::find(const IslandId& island) {
  const auto host = std::find_if(hosts_.begin(), hosts_.end(), [&](const auto& candidate) { return candidate->id() == island; });
  return host == hosts_.end() ? nullptr : host->get();
}

void Cluster::carry(const std::string& from, const std::string& to, std::function<void()> deliver) {
  const auto depart = [&](std::function<void()> what) {
    const Duration jitter = troubled_ ? scenario_.jitter : std::min<Duration>(scenario_.jitter, milliseconds(50));
    Duration queued(0);
    if (const auto clog = clogs_.find({from, to}); clog != clogs_.end() && timeline_.now() < clog->second.until) {
      clog->second.free = std::max(clog->second.free, timeline_.now()) + clog->second.each;
      queued = clog->second.free - timeline_.now();
    }
    timeline_.after(queued + scenario_.latency + draw(Duration(0), jitter), [this, from, to, what = std::move(what)] {
      if (!cuts_.contains({from, to})) {
        what();
      }
    });
  };
  if (troubled_) {
    if (rng_.chance(scenario_.replay)) {
      std::vector<std::function<void()>>& past = history_[{from, to}];
      if (!past.empty()) {
        depart(past[rng_.below(past.size())]);
      }
      if (past.size() < kHistory) {
        past.push_back(deliver);
      } else {
        past[rng_.below(kHistory)] = deliver;
      }
    }
    if (rng_.chance(scenario_.loss)) {
      return;
    }
    if (rng_.chance(scenario_.duplication)) {
      depart(deliver);
    }
  }
  depart(std::move(deliver));
}

void Cluster::to_coordinator(IslandHost& host, const Message& said) {
  Message message = said;
  if (const auto lie = lies_.find(host.id()); lie != lies_.end()) {
    lie->second(message);
  }
  carry(host.name(), kCoordinator, [this, from = host.id(), boot = host.boot(), message] {
    if (unwritten_) {
      unheard_.push_back([this, from, boot, message] { hear(from, boot, message); });
    } else {
      hear(from, boot, message);
    }
  });
}

void Cluster::hear(const IslandId& from, std::uint64_t boot, const Message& message) {
  if (coordinator_) {
    trace(timeline_.now(), name_of(from), "coordinator", message);
    digest_.add(timeline_.now(), kCoordinator, message);
    coordinator_->step(coordinator_now(), from, boot, message);
    pump_coordinator();
  }
}

void Cluster::announce(const std::vector<coordinator::Outgoing>& messages, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const coordinator::Outgoing& out = messages[i];
    carry(kCoordinator, name_of(out.island), [this, out] {
      if (IslandHost* host = find(out.island)) {
        trace(timeline_.now(), "coordinator", name_of(out.island), out.message);
        digest_.add(timeline_.now(), name_of(out.island), out.message);
        host->from_coordinator(out.boot, out.message);
      }
    });
  }
}

// Once there is room again what was decided is written and said, and what came meanwhile is heard as if it came now.
void Cluster::retry_ledger() {
  timeline_.after(kLedgerRetry, [this, life = coordinator_life_] {
    if (coordinator_life_ != life || !unwritten_) {
      return;
    }
    if (ledger_full_until_ && timeline_.now() < *ledger_full_until_) {
      retry_ledger();
      return;
    }
    const coordinator::Ready ready = *std::exchange(unwritten_, std::nullopt);
    ledger_.apply(ready.records);
    digest_.add(timeline_.now(), kCoordinator, ready.records);
    checkers_.durable(ready.records, scenario_.spec.strategy.group != Group::all);
    announce(ready.messages, ready.messages.size());
    while (!unheard_.empty() && !unwritten_ && coordinator_life_ == life) {
      const std::function<void()> said = std::move(unheard_.front());
      unheard_.pop_front();
      said();
    }
    arm_coordinator();
  });
}

void Cluster::pump_coordinator() {
  while (coordinator_) {
    coordinator::Ready ready = coordinator_->take_ready();
    if (unwritten_) {  // an operator's request: it waits behind the rest
      std::move(ready.records.begin(), ready.records.end(), std::back_inserter(unwritten_->records));
      std::move(ready.messages.begin(), ready.messages.end(), std::back_inserter(unwritten_->messages));
      return;
    }
    if (ready.empty()) {
      break;
    }
    if (ledger_full_until_ && timeline_.now() < *ledger_full_until_ && !ready.records.empty()) {
      unwritten_ = std::move(ready);
      retry_ledger();
      return;
    }
    const bool doomed = troubled_ && scenario_.coordinator_faults && !ready.records.empty() && rng_.chance(0.002);
    if (doomed && rng_.chance(0.3)) {
      crash_coordinator();  // in the middle of the write, of which nothing is left
      timeline_.after(draw(milliseconds(100), seconds(6)), [this] { start_coordinator(); });
      return;
    }
    ledger_.apply(ready.records);
    digest_.add(timeline_.now(), kCoordinator, ready.records);
    checkers_.durable(ready.records, scenario_.spec.strategy.group != Group::all);
    if (coordinator_->superseded()) {
      crash_coordinator();  // its process ends, as soon as that is durable
      return;
    }
    announce(ready.messages, doomed ? rng_.below(ready.messages.size() + 1) : ready.messages.size());
    if (doomed) {
      crash_coordinator();  // between record and send, or among the sends
      timeline_.after(draw(milliseconds(100), seconds(6)), [this] { start_coordinator(); });
      return;
    }
  }
  check_reasons();
  arm_coordinator();
}

// What a person would see at any time. A view of a run costs more than a message, so not after every one.
void Cluster::check_reasons() {
  if (timeline_.now() < reasons_checked_ + kReasonsEvery) {
    return;
  }
  reasons_checked_ = timeline_.now();
  for (const auto& [id, record] : ledger_.runs) {
    const std::optional<coordinator::RunView> run =
        coordinator_ && !coordinator::has_ended(record.state) ? coordinator_->run(coordinator_now(), id) : std::nullopt;
    if (run && !coordinator::has_ended(run->state) && run->reason.text.empty()) {
      checkers_.fail("run " + id.text + " is " + std::string(coordinator::to_string(run->state)) + " without a reason");
    }
  }
}

void Cluster::arm_coordinator() {
  if (!coordinator_) {
    return;
  }
  std::optional<TimePoint> next = coordinator_->next_deadline();
  if (next) {
    next = coordinator_clock_.when(*next);
  }
  if (!next || (coordinator_timer_ && *coordinator_timer_ <= *next && *coordinator_timer_ > timeline_.now())) {
    return;
  }
  coordinator_timer_ = *next;
  timeline_.at(*next, [this, life = coordinator_life_, time = *next] {
    if (coordinator_ && coordinator_life_ == life && coordinator_timer_ == time) {
      coordinator_timer_.reset();
      if (coordinator_wakes_.count(timeline_.now())) {
        checkers_.fail("the coordinator wakes again and again");
      }
      if (!unwritten_) {
        coordinator_->tick(coordinator_now());
        pump_coordinator();
      }
    }
  });
}

void Cluster::crash_coordinator() {
  coordinator_.reset();
  coordinator_timer_.reset();
  unwritten_.reset();
  unheard_.clear();
  ++coordinator_life_;
}

void Cluster::start_coordinator() {
  if (coordinator_) {
    return;
  }
  coordinator::Settings settings = coordinator::settings_for_network(scenario_.wan ? "wan" : "lan").value();
  settings.version = "test";
  settings.generation_key = generation_key("the coordinator's key");
  ++ledger_.generation.starts;
  ledger_.generation.life = coordinator_life_ + 1;  // not drawn: what is drawn follows from the seed alone
  prove(ledger_.generation, settings.generation_key);
  settings.generation = ledger_.generation;
  coordinator_clock_ = draw_clock();
  coordinator_ = std::make_unique<coordinator::Core>(settings, ledger_.recovered(), coordinator_now());
  ++coordinator_life_;
  pump_coordinator();
}

void Cluster::start_coordinator_from(const LedgerCopy& older, bool restored) {
  ledger_ = older.ledger;
  for (auto& [id, run] : ledger_.runs) {
    run.restored = restored;
  }
  if (restored) {
    ++ledger_.generation.restored;
    ledger_.superseded.reset();
  }
  checkers_.older_ledger(ledger_.runs, restored ? std::nullopt : std::optional(older.tape));
  start_coordinator();
}

void Cluster::start() {
  start_coordinator();
  for (const auto& host : hosts_) {
    coordinator_->admit(coordinator_now(), host->id(), host->name(), host->key());
  }
  const Result<RunId> run = coordinator_->submit(coordinator_now(), run_id_, scenario_.spec, "", "the run file");
  ATOLL_CHECK(run.has_value(), "the run was not accepted");
  pump_coordinator();
  for (const auto& host : hosts_) {
    timeline_.after(draw(Duration(0), seconds(3)), [&host] { host->start(); });
  }
}

void Cluster::run_for(Duration duration) {
  const TimePoint end = timeline_.now() + duration;
  while (checkers_.failure().empty() && run_one(end)) {
  }
  if (checkers_.failure().empty()) {
    timeline_.pass_until(end);
    network_.advance_to(end);
  }
}

std::optional<coordinator::RunView> Cluster::view() { return coordinator_ ? coordinator_->run(coordinator_now(), run_id_) : std::nullopt; }

bool Cluster::run_until_committed(Round round, Duration patience) {
  const TimePoint end = timeline_.now() + patience;
  while (ledger_.runs[run_id_].committed < round || !ledger_.runs[run_id_].initialised) {
    if (!checkers_.failure().empty() || !run_one(end)) {
      return false;
    }
  }
  return true;
}

bool Cluster::run_until_state(coordinator::RunState state, Duration patience) {
  const TimePoint end = timeline_.now() + patience;
  while (ledger_.runs[run_id_].state != state) {
    if (!checkers_.failure().empty() || !run_one(end)) {
      return false;
    }
  }
  return true;
}

void Cluster::heal() {
  troubled_ = false;
  cuts_.clear();
  network_.heal_all();
  clogs_.clear();
  set_ways();
  history_.clear();
  ledger_full_until_.reset();
  start_coordinator();
  for (const auto& host : hosts_) {
    host->fill_disk(Duration(0));
    host->start();
  }
}

Status Cluster::pause() {
  const Status done = coordinator_->pause(coordinator_now(), run_id_);
  pump_coordinator();
  return done;
}

Status Cluster::resume() {
  const Status done = coordinator_->resume(coordinator_now(), run_id_);
  pump_coordinator();
  return done;
}

Status Cluster::remove() {
  const Result<coordinator::Removal> done = coordinator_->remove(coordinator_now(), run_id_);
  pump_coordinator();
  return done ? Status() : Status(done.error());
}

Status Cluster::drain(std::size_t index) {
  const Status done = coordinator_->drain(coordinator_now(), hosts_.at(index)->id(), "the test asked");
  pump_coordinator();
  return done;
}

void Cluster::revoke(std::size_t index) {
  coordinator_->revoke(coordinator_now(), hosts_.at(index)->id(), "the test asked");
  pump_coordinator();
}

// Nobody has the run's state, neither in memory nor on a disk: then it may wait for ever, as long as it says so.
bool Cluster::all_copies_lost() {
  for (const auto& host : hosts_) {
    for (const agent::StoredCheckpoint& checkpoint : host->stored(run_id_)) {
      if (checkers_.is_committed(checkpoint.digest)) {
        return false;
      }
    }
    const IslandRun* run = host->open_run(run_id_);
    if (run != nullptr && run->has_state() && checkers_.is_committed(run->digest())) {
      return false;
    }
  }
  return true;
}

std::string Cluster::run() {
  start();
  troubled_ = true;  // the run is accepted: its submitter has the answer
  set_ways();
  next_fault();
  run_for(scenario_.trouble);
  heal();
  // A task whose result a full disk does not take ends the run; its operator makes room.
  const auto failed_on_disk = [&] {
    const coordinator::RunRecord& told = ledger_.runs[run_id_];
    return told.state == coordinator::RunState::failed && told.reason.text.find("no space left") != std::string::npos;
  };
  const TimePoint healed = timeline_.now();
  const TimePoint end = healed + scenario_.patience;
  const std::size_t progress = checkers_.progress();
  bool paused = false;
  while (checkers_.failure().empty() && (!coordinator::has_ended(ledger_.runs[run_id_].state) || failed_on_disk())) {
    const coordinator::RunRecord& told = ledger_.runs[run_id_];
    // In pairs a run goes on with any number of islands: it may be that all who have its state are quarantined.
    const bool quarantined = std::any_of(ledger_.memberships.begin(), ledger_.memberships.end(), [](const auto& membership) {
      return membership.second.state == coordinator::MembershipState::refused &&
             membership.second.cause.find("quarantined") != std::string::npos;
    });
    const bool kept_out = (told.state == coordinator::RunState::interrupted && told.reason.text.find("quarantined") != std::string::npos) ||
                          (quarantined && scenario_.spec.strategy.group == Group::pairs);
    if (told.state == coordinator::RunState::paused || kept_out || failed_on_disk()) {
      (void)resume();  // an operator reads why it waits
      paused = true;
    }
    if (!first_progress_ && !paused && checkers_.progress() > progress) {
      first_progress_ = timeline_.now() - healed;
    }
    if (!run_one(end)) {
      const std::optional<coordinator::RunView> run = view();
      if (run && run->reason.text.find("it cannot go on") != std::string::npos && all_copies_lost()) {
        return checkers_.failure();
      }
      std::string standing = run ? std::string(coordinator::to_string(run->state)) + " at round " + std::to_string(run->committed.value) +
                                       ": " + run->reason.text
                                 : "no coordinator";
      for (const coordinator::MembershipView& membership : run ? run->memberships : std::vector<coordinator::MembershipView>{}) {
        standing += "; " + membership.name + " " + std::string(coordinator::to_string(membership.state)) + " (" + membership.reason.text +
                    "; " + membership.report.state + " " + membership.report.reason + ")";
      }
      return "no progress after healing: " + standing;
    }
  }
  // A run may fail where every island's contribution was spoilt, or where trainers were killed again and again.
  const coordinator::RunRecord& end_of_run = ledger_.runs[run_id_];
  const bool trainers_failed = end_of_run.reason.text.find("the trainer keeps failing") != std::string::npos;
  if (checkers_.failure().empty() && end_of_run.state == coordinator::RunState::failed &&
      scenario_.nonfinite + scenario_.exploding + scenario_.flipped_bits == 0 && !trainers_failed) {
    return "the run failed: " + end_of_run.reason.text;
  }
  checkers_.check_pairs();
  for (const auto& [key, task] : ledger_.tasks) {
    if (end_of_run.state == coordinator::RunState::completed && task.state != coordinator::TaskState::done) {
      checkers_.fail("the run is completed, and task " + task.task + " is not done");
    }
  }
  for (const auto& [id, run] : ledger_.runs) {
    if (!coordinator::has_ended(run.state)) {
      checkers_.fail("the run is over, and run " + id.text + " of a group is not");
    }
  }
  if (elapsed() < scenario_.at_least) {
    run_for(scenario_.at_least - elapsed());  // it is over, and stays so
  }
  if (first_progress_ && *first_progress_ > progress_bound()) {
    checkers_.fail("the first commit after healing took " + human_duration(*first_progress_) + ", the bound is " +
                   human_duration(progress_bound()));
  }
  return checkers_.failure();
}

// Whoever is missing is noticed and left out by the deadline, whoever comes catches up, and the slowest island does the steps of two
// rounds.
Duration Cluster::progress_bound() const {
  const Duration step = scenario_.step_time + scenario_.step_lag * static_cast<Duration::rep>(scenario_.islands) + milliseconds(40);
  const Duration round = step * static_cast<Duration::rep>(scenario_.spec.strategy.inner_steps + scenario_.spec.strategy.overlap_steps + 1);
  return 2 * scenario_.spec.islands.deadline + 2 * round + seconds(scenario_.wan ? 120 : 60);
}

}  // namespace atl::sim
