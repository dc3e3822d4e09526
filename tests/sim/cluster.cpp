#include "tests/sim/cluster.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "coordinator/core/network.hpp"
#include "transport/identity/generation_proof.hpp"

namespace atl::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
const std::string kCoordinator = "coordinator";

std::string short_of(const std::vector<Content>& contents) {
  std::string all;
  for (const Content& content : contents) {
    all += " " + to_hex(content.digest).substr(0, 4);
  }
  return all;
}

// ATOLL_SIM_TRACE=1 prints every message that arrives at a core, to read the history of one seed.
void trace(TimePoint now, const std::string& from, const std::string& to, const Message& message) {
  static const bool wanted = std::getenv("ATOLL_SIM_TRACE") != nullptr;
  if (!wanted || std::holds_alternative<Heartbeat>(message)) {
    return;
  }
  std::string detail;
  std::visit(
      [&](const auto& m) {
        if constexpr (requires { m.run.text; }) {
          detail += m.run.text == "r-1" ? "" : " of " + m.run.text;
        }
        if constexpr (requires { m.epoch; }) {
          detail += " epoch " + std::to_string(m.epoch.value);
        }
        if constexpr (requires { m.round; }) {
          detail += " round " + std::to_string(m.round.value);
        }
        if constexpr (requires { m.attempt; }) {
          detail += " attempt " + std::to_string(m.attempt.value);
        }
        if constexpr (requires { m.tokens + 1; }) {
          detail += " tokens " + std::to_string(m.tokens);
        }
        if constexpr (requires { m.data.from; }) {
          detail += " part " + std::to_string(m.data.part) + ":" + std::to_string(m.data.from) + "-" + std::to_string(m.data.to);
        }
        if constexpr (requires { m.pause_after->value; }) {
          detail += m.pause_after ? " pause after " + std::to_string(m.pause_after->value) : "";
        }
        if constexpr (requires { m.committed; }) {
          detail += " committed " + std::to_string(m.committed.value);
        }
        if constexpr (requires {
                        m.parts;
                        m.position;
                      }) {
          detail += " part " + std::to_string(m.part) + " at " + std::to_string(m.position);
        }
        if constexpr (requires { m.from; }) {
          detail += " from " + std::to_string(static_cast<int>(m.from));
        }
        if constexpr (requires { m.error.why; }) {
          detail += " error " + m.error.why;
        } else if constexpr (requires { m.error->why; }) {
          detail += m.error ? " error " + m.error->why : "";
        }
        if constexpr (requires {
                        m.number;
                        m.task;
                      }) {
          detail += " " + std::to_string(m.number) + " " + m.task;
        }
        if constexpr (requires { m.group_round; }) {
          detail += m.group.empty() ? "" : " in " + m.group.text + " after round " + std::to_string(m.group_round.value);
        }
        if constexpr (requires { m.drop; }) {
          detail += " from " + to_hex(m.resume.digest).substr(0, 4) + ", keeps" + short_of(m.keep) + ", drops" + short_of(m.drop) + ",";
        }
        if constexpr (requires {
                        m.held;
                        m.state;
                      }) {
          detail += " " + m.state + ", holds" + short_of(m.held) + ", to go on from " + to_hex(m.checkpoint.digest).substr(0, 4);
        }
        if constexpr (requires { m.kind; }) {
          detail += " " + m.kind + ": " + m.text;
        }
        if constexpr (requires { m.members.front().name; }) {
          for (const Member& member : m.members) {
            detail += " " + member.name;
          }
        }
      },
      message);
  std::printf("%8.3f %s → %s %s%s\n", static_cast<double>(unix_ms(now) - 1'700'000'000'000) / 1000, from.c_str(), to.c_str(),
              std::string(kind_of(message)).c_str(), detail.c_str());
}

void trace(const coordinator::EventRecord& event) {
  static const bool wanted = std::getenv("ATOLL_SIM_TRACE") != nullptr;
  if (wanted) {
    std::printf("%8.3f %s: %s\n", static_cast<double>(unix_ms(event.time) - 1'700'000'000'000) / 1000, event.kind.c_str(),
                event.text.c_str());
  }
}

constexpr std::size_t kHistory = 8;            // messages of a way that may come again
constexpr Duration kLedgerRetry = seconds(1);  // as the coordinator's driver does
constexpr Duration kReasonsEvery = seconds(2);

}  // namespace

void Cluster::trace_effect(const IslandId& island, const agent::Effect& effect) {
  static const bool wanted = std::getenv("ATOLL_SIM_TRACE") != nullptr;
  if (!wanted) {
    return;
  }
  static const char* const kNames[] = {"start trainer",
                                       "stop trainer",
                                       "load trainer",
                                       "plan trainer",
                                       "give result",
                                       "open run",
                                       "allow peers",
                                       "form initial state",
                                       "form contribution",
                                       "prepare pair",
                                       "meet partner",
                                       "leave pairs",
                                       "hear of pair",
                                       "renounce pair",
                                       "form merge contribution",
                                       "begin exchange",
                                       "cancel exchange",
                                       "apply result",
                                       "adopt parameters",
                                       "begin checkpoint",
                                       "write checkpoint",
                                       "load checkpoint",
                                       "catch up",
                                       "keep results",
                                       "close run",
                                       "open content",
                                       "fetch content",
                                       "adopt content",
                                       "drop content",
                                       "start task",
                                       "stop task",
                                       "exit",
                                       "finish trainer",
                                       "skip trainer"};
  std::string detail;
  std::visit(
      [&](const auto& e) {
        if constexpr (requires { e.round.value; }) {
          detail += " round " + std::to_string(e.round.value);
        }
        if constexpr (requires { e.digest; }) {
          detail += " " + to_hex(e.digest).substr(0, 4);
        }
        if constexpr (requires { e.content.digest; }) {
          detail += " " + to_hex(e.content.digest).substr(0, 4);
        }
        if constexpr (requires { e.resume.digest; }) {
          detail += " " + e.task + " from " + to_hex(e.resume.digest).substr(0, 4);
        }
        if constexpr (requires { e.step.value; }) {
          detail += " step " + std::to_string(e.step.value);
        }
        if constexpr (requires { e.until.value; }) {
          detail += " until " + std::to_string(e.until.value) + " from round " +
                    (e.publish.empty() ? "?" : std::to_string(e.publish.front().round.value));
        }
      },
      effect);
  std::printf("%8.3f %s does: %s%s\n", static_cast<double>(unix_ms(timeline_.now()) - 1'700'000'000'000) / 1000, island.text.c_str(),
              kNames[effect.index()], detail.c_str());
}

void Ledger::apply(const std::vector<coordinator::Record>& records) {
  for (const coordinator::Record& record : records) {
    std::visit(
        [&](const auto& r) {
          using R = std::decay_t<decltype(r)>;
          if constexpr (std::is_same_v<R, coordinator::RunRecord>) {
            runs[r.id] = r;
          } else if constexpr (std::is_same_v<R, coordinator::MembershipRecord>) {
            memberships[{r.run, r.island}] = r;
          } else if constexpr (std::is_same_v<R, coordinator::EpochRecord>) {
            epochs[r.run] = r;
          } else if constexpr (std::is_same_v<R, coordinator::IslandRecord>) {
            islands[r.id] = r;
          } else if constexpr (std::is_same_v<R, coordinator::RoundRecord>) {
            rounds[{r.run, r.lineage, r.round}] = r;
          } else if constexpr (std::is_same_v<R, coordinator::PartRecord>) {
            parts[{r.run, r.part}] = r;
          } else if constexpr (std::is_same_v<R, coordinator::TaskRecord>) {
            tasks[{r.run, r.task}] = r;
          } else if constexpr (std::is_same_v<R, coordinator::Superseded>) {
            superseded = r;
          } else if constexpr (std::is_same_v<R, coordinator::EventRecord>) {
            ++events[r.kind];
            trace(r);
          }
        },
        record);
  }
}

coordinator::Recovered Ledger::recovered() const {
  coordinator::Recovered recovered;
  for (const auto& [key, value] : runs) {
    recovered.runs.push_back(value);
  }
  for (const auto& [key, value] : memberships) {
    recovered.memberships.push_back(value);
  }
  for (const auto& [key, value] : epochs) {
    recovered.epochs.push_back(value);
  }
  for (const auto& [key, value] : islands) {
    recovered.islands.push_back(value);
  }
  for (const auto& [key, value] : parts) {
    recovered.parts.push_back(value);
  }
  for (const auto& [key, value] : tasks) {
    recovered.tasks.push_back(value);
  }
  for (const auto& [key, value] : rounds) {
    if (value.lineage == runs.at(value.run).lineage) {
      recovered.rounds.push_back(value);
    }
  }
  return recovered;
}

Cluster::Cluster(const Scenario& scenario)
    : scenario_(scenario),
      schedule_(schedule_of_spec(scenario.spec)),
      rng_(scenario.seed, stream_of("cluster")),
      timeline_(from_unix_ms(1'700'000'000'000)),
      checkers_(schedule_, scenario_.spec),
      begun_(timeline_.now()) {
  for (std::uint32_t i = 0; i < scenario_.islands; ++i) {
    hosts_.push_back(std::make_unique<IslandHost>(*this, i));
  }
}
Cluster::~Cluster() = default;

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
      if (cuts_.empty() || reachable(from, to)) {
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

void Cluster::to_coordinator(const IslandId& from, std::uint64_t boot, const Message& message) {
  carry(from.text, kCoordinator, [this, from, boot, message] {
    if (unwritten_) {
      unheard_.push_back([this, from, boot, message] { hear(from, boot, message); });
    } else {
      hear(from, boot, message);
    }
  });
}

void Cluster::hear(const IslandId& from, std::uint64_t boot, const Message& message) {
  if (coordinator_) {
    trace(timeline_.now(), from.text, "coordinator", message);
    coordinator_->step(coordinator_now(), from, boot, message);
    pump_coordinator();
  }
}

void Cluster::announce(const std::vector<coordinator::Outgoing>& messages, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const coordinator::Outgoing& out = messages[i];
    carry(kCoordinator, out.island.text, [this, out] {
      if (IslandHost* host = find(out.island)) {
        trace(timeline_.now(), "coordinator", out.island.text, out.message);
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
    coordinator_->admit(coordinator_now(), host->id(), host->id().text, host->key());
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
  while (checkers_.failure().empty() && timeline_.run_one(end)) {
  }
  timeline_.pass_until(checkers_.failure().empty() ? end : timeline_.now());
}

std::optional<coordinator::RunView> Cluster::view() { return coordinator_ ? coordinator_->run(coordinator_now(), run_id_) : std::nullopt; }

bool Cluster::run_until_committed(Round round, Duration patience) {
  const TimePoint end = timeline_.now() + patience;
  while (ledger_.runs[run_id_].committed < round || !ledger_.runs[run_id_].initialised) {
    if (!checkers_.failure().empty() || !timeline_.run_one(end)) {
      return false;
    }
  }
  return true;
}

bool Cluster::run_until_state(coordinator::RunState state, Duration patience) {
  const TimePoint end = timeline_.now() + patience;
  while (ledger_.runs[run_id_].state != state) {
    if (!checkers_.failure().empty() || !timeline_.run_one(end)) {
      return false;
    }
  }
  return true;
}

void Cluster::heal() {
  troubled_ = false;
  cuts_.clear();
  clogs_.clear();
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

Status Cluster::drain(std::size_t index) {
  const Status done = coordinator_->drain(coordinator_now(), hosts_.at(index)->id(), "the test asked");
  pump_coordinator();
  return done;
}

void Cluster::next_fault() {
  const double wait = -std::log(1.0 - rng_.uniform()) * atl::seconds(scenario_.between_faults);
  timeline_.after(from_seconds(wait), [this] {
    if (troubled_) {
      fault();
      next_fault();
    }
  });
}

void Cluster::cut_for_a_while(std::vector<std::pair<std::string, std::string>> ways) {
  cuts_.insert(ways.begin(), ways.end());
  timeline_.after(draw(milliseconds(300), seconds(15)), [this, ways = std::move(ways)] {
    for (const auto& way : ways) {
      cuts_.erase(way);
    }
  });
}

// Nothing comes from it, or reaches it, or both.
void Cluster::isolate(const std::string& name) {
  const std::uint64_t which = rng_.below(3);
  std::vector<std::pair<std::string, std::string>> ways;
  const auto cut_with = [&](const std::string& other) {
    if (which != 0) {
      ways.emplace_back(name, other);
    }
    if (which != 1) {
      ways.emplace_back(other, name);
    }
  };
  cut_with(kCoordinator);
  for (const auto& host : hosts_) {
    if (host->id().text != name) {
      cut_with(host->id().text);
    }
  }
  cut_for_a_while(std::move(ways));
}

// What only a larger world has.
void Cluster::large_fault() {
  IslandHost& host = *hosts_[rng_.below(hosts_.size())];
  const std::string other = rng_.chance(0.4) ? kCoordinator : hosts_[rng_.below(hosts_.size())]->id().text;
  const Duration length = draw(seconds(1), seconds(30));
  switch (rng_.below(5)) {
    case 0:
    case 1:
      if (scenario_.clogs) {
        const std::pair<std::string, std::string> way =
            rng_.chance(0.5) ? std::pair(host.id().text, other) : std::pair(other, host.id().text);
        clogs_[way] = Clog{timeline_.now() + length, timeline_.now(), draw(milliseconds(100), seconds(3))};
      }
      break;
    case 2:
      if (scenario_.full_disks) {
        ledger_full_until_ = timeline_.now() + length;
      }
      break;
    case 3:
      if (scenario_.full_disks) {
        host.fill_disk(length);
      }
      break;
    default:
      if (scenario_.partitions) {
        isolate(host.id().text);
      }
      break;
  }
}

void Cluster::fault() {
  if (scenario_.at_least > Duration(0) && rng_.chance(0.3)) {
    large_fault();
    return;
  }
  IslandHost& host = *hosts_[rng_.below(hosts_.size())];
  const std::uint64_t kind = rng_.below(12);
  if (kind >= 10) {
    if (coordinator_ && kind == 10) {
      (void)drain(rng_.below(hosts_.size()));
    } else if (coordinator_ && pause()) {
      timeline_.after(draw(seconds(1), seconds(10)), [this] {
        if (coordinator_) {
          (void)resume();
        }
      });
    }
    return;
  }
  if (kind < 3 && scenario_.agent_faults) {
    host.crash();
    if (scenario_.lost_disks > 0 && rng_.chance(scenario_.lost_disks)) {
      host.lose_disk();
    }
    timeline_.after(draw(milliseconds(100), seconds(12)), [&host] { host.start(); });
  } else if (kind == 3 && scenario_.agent_faults) {
    host.crash_trainer();
  } else if (kind == 4 && scenario_.agent_faults) {
    host.leave();
  } else if (kind < 7 && scenario_.coordinator_faults) {
    crash_coordinator();
    timeline_.after(draw(milliseconds(100), seconds(8)), [this] { start_coordinator(); });
  } else if (scenario_.partitions) {
    // One direction between two hosts, or everything from or to one.
    const std::string a = host.id().text;
    const std::string b = rng_.chance(0.4) ? kCoordinator : hosts_[rng_.below(hosts_.size())]->id().text;
    const std::pair<std::string, std::string> way = rng_.chance(0.5) ? std::pair(a, b) : std::pair(b, a);
    std::vector<std::pair<std::string, std::string>> ways = {way};
    if (rng_.chance(0.3)) {
      ways.emplace_back(way.second, way.first);
    }
    cut_for_a_while(std::move(ways));
  }
}

// Nobody has the run's state, neither in memory nor on a disk: then it may wait for ever, as long as it says so.
bool Cluster::all_copies_lost() {
  for (const auto& host : hosts_) {
    const auto held = host->disk().find(run_id_);
    for (const DiskCheckpoint& checkpoint : held == host->disk().end() ? std::vector<DiskCheckpoint>{} : held->second) {
      if (checkers_.is_committed(checkpoint.meta.digest)) {
        return false;
      }
    }
    if (host->up() && host->process()->engine && host->process()->engine->has_state &&
        checkers_.is_committed(host->process()->engine->digest)) {
      return false;
    }
  }
  return true;
}

std::string Cluster::run() {
  start();
  troubled_ = true;  // the run is accepted: its submitter has the answer
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
    if (!timeline_.run_one(end)) {
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
