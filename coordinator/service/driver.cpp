#include "coordinator/service/driver.hpp"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <type_traits>

#include "transport/base/log.hpp"

namespace atl::coordinator {
namespace {

constexpr Duration kAway = std::chrono::milliseconds(200);  // that a step takes: more is told to the core
constexpr Duration kLedgerRetry = std::chrono::seconds(1);
constexpr Duration kReportsEvery = std::chrono::seconds(10);
constexpr std::size_t kMaxInstances = 4;        // of one identity at a time; the core tells them apart
constexpr std::size_t kMaxHeld = 4'000;         // messages; islands repeat what is lost
constexpr std::size_t kMaxFreshSpans = 65'536;  // held between two writes
constexpr std::size_t kMaxReports = 16;         // runs that one island can report on at a time
constexpr std::size_t kBatch = 256;             // messages
constexpr std::size_t kMaxAnswered = 16;
constexpr int kQuestionsAfterAStep = 4;
constexpr std::uint64_t kUniqueIds = 1ULL << 32U;  // smaller request ids are not unique across processes: they are counted from 1
constexpr Duration kLongestPoll = std::chrono::hours(1);

template <typename Kind, typename... Kinds>
bool is_one_of(const Message& message) {
  return std::holds_alternative<Kind>(message) || (std::holds_alternative<Kinds>(message) || ...);
}

bool from_island(const Message& message) {
  return is_one_of<Hello, Heartbeat, atl::Ready, Exchanged, ExchangeFailed, Withdrawn, Merged, PairQuery, PairAnswer, Checkpointed,
                   CaughtUp, IslandEvent, Timeline, RunEnded, Leave, AssignmentReport, TaskImages, PathReport, Copied, Holds, Ways,
                   OwnRelay>(message);
}

LogLevel level_of(const std::string& level) {
  return level == "error" ? LogLevel::error : level == "warning" ? LogLevel::warning : level == "debug" ? LogLevel::debug : LogLevel::info;
}

}  // namespace

Driver::Driver(Place place, Ledger ledger, std::unique_ptr<ControlServer> server)
    : ledger_(std::move(ledger)), server_(std::move(server)), place_(std::move(place)) {}
Driver::~Driver() = default;

Result<std::unique_ptr<Driver>> Driver::start(Settings settings, Place place, Ledger ledger, std::unique_ptr<ControlServer> server,
                                              TimePoint now) {
  std::unique_ptr<Driver> driver(new Driver(std::move(place), std::move(ledger), std::move(server)));
  ATOLL_ASSIGN(Admission admission, Admission::load(driver->ledger_.database()));
  driver->admission_ = std::make_unique<Admission>(std::move(admission));
  ATOLL_ASSIGN(driver->totals_, driver->ledger_.totals());
  ATOLL_ASSIGN(Recovered recovered, driver->ledger_.recover());
  std::erase_if(recovered.islands, [&](const IslandRecord& island) {
    const EnrolledKey* key = driver->admission_->find(island.public_key);
    const bool former = key == nullptr || key->revoked;
    if (former) {
      recovered.former_names[island.id] = island.name;
    }
    return former;
  });
  settings.version = driver->place_.version;
  driver->core_ = std::make_unique<Core>(std::move(settings), std::move(recovered), now);
  // A crash between enrolling a key and recording its island leaves the core behind: tell it again.
  std::map<IslandId, bool> known;
  for (const IslandView& island : driver->core_->islands(now)) {
    known[island.id] = true;
  }
  for (const auto& [text, key] : driver->admission_->keys()) {
    if (key.role == Role::island && !key.revoked && !known.contains(key.island)) {
      driver->core_->admit(now, key.island, key.name, key.public_key);
    }
  }
  driver->requests_ = std::make_unique<Requests>(driver->place_, *driver->core_, driver->ledger_, *driver->admission_);
  return driver;
}

// ---------------------------------------------------------------------------------------------------------------- the loop

void Driver::step(TimePoint now) {
  const auto begun = std::chrono::steady_clock::now();
  if (blocked_since_ && now >= retry_at_ && write_pending(now)) {
    ledger_recovered(now);
  }
  // What came in together is recorded together: one fsync for a batch, and no flood keeps time from passing.
  for (std::size_t taken = kBatch; taken == kBatch;) {
    taken = 0;
    while (taken < kBatch) {
      const std::optional<Received> received = server_->receive();
      if (!received) {
        break;
      }
      take(now, *received);
      ++taken;
    }
    if (!blocked_since_) {
      if (const std::optional<TimePoint> due = core_->next_deadline(); due && now >= *due) {
        core_->tick(now);
      }
      flush(now);
    }
  }
  if (reports_due_ && now >= *reports_due_) {
    write_reports(now);
  }
  look_at_relays(now);
  if (const Duration away = std::chrono::steady_clock::now() - begun; away > kAway) {
    core_->was_away(away);  // nobody is lost because of the coordinator's own disk
  }
}

std::optional<TimePoint> Driver::next_deadline() const {
  std::optional<TimePoint> next = blocked_since_ ? std::optional(retry_at_) : core_->next_deadline();
  if (reports_due_ && (!next || *reports_due_ < *next)) {
    next = reports_due_;
  }
  if (const std::optional<TimePoint> look = passes_.next_look(); look && (!next || *look < *next)) {
    next = look;
  }
  return next;
}

// What other threads ask is of the documents that change nothing, and waits behind what islands and operators say.
void Driver::answer(TimePoint now, Questions& questions) {
  for (int count = 0; count < kQuestionsAfterAStep; ++count) {
    const std::optional<Questions::Question> question = questions.take();
    if (!question) {
      return;
    }
    if (question->verb == "spans") {
      write_reports(now);  // with what came a moment ago
    }
    const Request request{kProtocolVersion, 0, question->verb, question->arguments};
    question->answer(Requests::changes(request.verb) ? Error{Code::unauthorized, "the page changes nothing: use atoll " + request.verb}
                                                     : requests_->answer(now, request));
  }
}

Status Driver::run(int stop_fd, Questions& questions) {
  for (;;) {
    step(now());
    answer(now(), questions);
    const std::optional<TimePoint> next = next_deadline();
    const Duration wait = next ? std::clamp(*next - now(), Duration::zero(), kLongestPoll) : kLongestPoll;
    // Rounded up, so that the deadline has passed when poll returns.
    const auto wait_ms = std::chrono::duration_cast<std::chrono::milliseconds>(wait + std::chrono::microseconds(999));
    pollfd sockets[3] = {{server_->fd(), POLLIN, 0}, {stop_fd, POLLIN, 0}, {questions.fd(), POLLIN, 0}};
    if (::poll(sockets, 3, static_cast<int>(wait_ms.count())) < 0 && errno != EINTR) {
      return Error{Code::internal, std::string("poll failed: ") + std::strerror(errno)};
    }
    if (core_->superseded() && !blocked_since_) {
      write_reports(now());
      return Error{Code::conflict,
                   "island " + core_->superseded()->island + " has met " + core_->superseded()->by.text() +
                       " of this coordinator: another one was started from a copy of this store and leads the islands now. "
                       "This one has stopped, and commits nothing any more; started again it says how to go on with it all the same"};
    }
    if (sockets[1].revents != 0) {
      if (!blocked_since_) {
        flush(now());
      }
      write_reports(now());
      return blocked_since_
                 ? Status{Error{Code::io, "stopped while the ledger could not be written; what was not announced was not decided"}}
                 : Status{};
    }
  }
}

// --------------------------------------------------------------------------------------------------------------- admission

void Driver::take(TimePoint now, const Received& received) {
  if (!received.message) {
    const Error& error = received.message.error();
    if (const auto line = log_limit_.pass(now, "a peer with key " + received.public_key + " sent no message: " + error.why)) {
      log_warning(*line);
    }
    if (error.code == Code::conflict) {
      refuse(received.connection, error);
    }
    return;
  }
  const Message& message = *received.message;
  if (const auto* enrol = std::get_if<Enrol>(&message)) {
    take_enrol(now, received, *enrol);
    return;
  }
  const auto* request = std::get_if<Request>(&message);
  const EnrolledKey* key = admission_->find(received.public_key);
  if (key == nullptr || key->revoked) {
    const std::string what = key == nullptr ? "is not enrolled here" : "(" + key->name + ") was revoked";
    const std::string how =
        request != nullptr
            ? "ask an operator for a token (`atoll token create --role operator`) and run `atoll token use --join-file FILE` with that "
              "TOKEN in FILE"
            : "ask an operator for a token (`atoll token create`) and run `atoll agent --join-file FILE` with that TOKEN in FILE";
    if (const auto line =
            log_limit_.pass(now, "refused " + std::string(kind_of(message)) + ": the key " + received.public_key + " " + what)) {
      log_warning(*line);
    }
    // An agent that was led by this coordinator before does not take it for final that it is unknown: the store may be an older copy.
    const Code code = key == nullptr && from_island(message) ? Code::not_found : Code::unauthorized;
    refuse(received.connection, Error{code, "this key " + what + "; " + how});
    return;
  }
  if (request != nullptr && key->role == Role::operator_) {
    take_request(now, received, *request);
  } else if (request != nullptr && request->verb == "reach" && key->role == Role::island) {
    // Its doctor asks, on a connection of its own.
    const Relays relays = passes_.made_for(key->island, now);
    (void)server_->send(received.connection, Reply{request->id, std::nullopt, requests_->reach(key->island, received.host, relays)});
  } else if (request != nullptr) {
    const Error error{Code::unauthorized,
                      "the key of island '" + key->name + "' may not command; commands need an operator's key (--key FILE)"};
    (void)server_->send(received.connection, Reply{request->id, error, ""});
  } else if (const auto* relay = std::get_if<OwnRelay>(&message); relay != nullptr && key->role == Role::island) {
    passes_.offer(key->island, key->name, *relay, received.host);
  } else if (from_island(message) && key->role == Role::island) {
    if (std::holds_alternative<Hello>(message)) {
      core_->see(key->island, received.host);
    }
    take_island_message(now, received.connection, key->island, message);
  } else {
    refuse(received.connection, Error{Code::unauthorized, "the key of " + std::string(to_string(key->role)) + " '" + key->name +
                                                              "' may not send " + std::string(kind_of(message)) +
                                                              "; an agent needs an identity of its own (`atoll agent --join-file FILE`)"});
  }
}

void Driver::refuse(ConnectionId connection, Error error) {
  // A peer that is gone already has its answer.
  (void)server_->send(connection, Refused{std::move(error)});
}

void Driver::take_enrol(TimePoint now, const Received& received, const Enrol& enrol) {
  Result<EnrolledKey> key = blocked_since_
                                ? Error{Code::unavailable, "the coordinator cannot write its ledger at the moment; try again later"}
                                : admission_->enrol(received.public_key, enrol, now);
  if (!key) {
    if (const auto line = log_limit_.pass(now, "refused to enrol the key " + received.public_key + ": " + key.error().why)) {
      log_warning(*line);
    }
    // Its own disk is no reason to turn somebody away for good.
    const Code code = key.error().code == Code::io ? Code::unavailable : key.error().code;
    refuse(received.connection, Error{code, key.error().why});
    return;
  }
  if (key->role == Role::island) {
    core_->admit(now, key->island, key->name, key->public_key);
  }
  log_info("enrolled " + std::string(to_string(key->role)) + " '" + key->name + "' (" + key->island.text + ")");
  if (flush(now)) {
    (void)server_->send(received.connection, Enrolled{std::string(to_string(key->role)), key->island, key->name});
  }
}

void Driver::take_request(TimePoint now, const Received& received, const Request& request) {
  const ConnectionId connection = received.connection;
  for (const Answered& answer : answered_) {
    if (answer.public_key == received.public_key && answer.request == request) {
      (void)server_->send(connection, answer.reply);
      return;
    }
  }
  if (!Requests::changes(request.verb) && !blocked_since_) {
    flush(now);  // what came in just before the question is shown once it is durable
  }
  if (request.verb == "spans") {
    write_reports(now);  // with what came a moment ago
  }
  Result<std::string> document = requests_->answer(now, request);
  if (document && Requests::changes(request.verb) && !flush(now)) {
    document = Error{Code::io, "the coordinator cannot write its ledger; it keeps '" + request.verb + "' and does it once it can"};
  }
  Reply reply{request.id, std::nullopt, ""};
  if (document) {
    reply.document = *std::move(document);
  } else {
    reply.error = document.error();
  }
  if (!reply.error && request.id >= kUniqueIds && Requests::changes(request.verb)) {
    answered_.push_back({received.public_key, request, reply});
    if (answered_.size() > kMaxAnswered) {
      answered_.pop_front();
    }
  }
  const Status sent = server_->send(connection, reply);
  if (!sent && sent.error().code == Code::invalid_argument) {
    (void)server_->send(connection, Reply{request.id, with_context(sent.error(), "the answer to " + request.verb), ""});
  }
}

// ----------------------------------------------------------------------------------------------------------------- islands

void Driver::take_island_message(TimePoint now, ConnectionId connection, const IslandId& island, Message message) {
  if (const auto* hello = std::get_if<Hello>(&message); hello != nullptr && hello->protocol != kProtocolVersion) {
    refuse(connection, protocol_mismatch(hello->protocol, kProtocolVersion));
    return;
  }
  if (blocked_since_) {
    hold(connection, island, std::move(message));
    return;
  }
  feed(now, connection, island, std::move(message));
}

// Heartbeats replace their predecessors: of them only the newest says anything.
void Driver::hold(ConnectionId connection, const IslandId& island, Message message) {
  if (std::holds_alternative<Heartbeat>(message)) {
    for (Held& held : held_) {
      if (held.connection == connection && std::holds_alternative<Heartbeat>(held.message)) {
        held.message = std::move(message);
        return;
      }
    }
  }
  if (held_.size() == kMaxHeld) {
    held_.pop_front();
  }
  held_.push_back({connection, island, std::move(message)});
}

void Driver::feed(TimePoint now, ConnectionId connection, const IslandId& island, Message message) {
  const std::uint64_t boot = boot_of(connection, island, message);
  if (auto* heartbeat = std::get_if<Heartbeat>(&message)) {
    send_passes(connection, passes_.renewed(island, now));
    if (stops_reporting(island, *heartbeat)) {
      write_reports(now);  // from now on views find its last figures in the ledger alone
    }
    const std::size_t count = std::min(heartbeat->reports.size(), kMaxReports);
    for (std::size_t i = 0; i < count; ++i) {
      IslandReport& report = heartbeat->reports[i];
      if (totals_.knows(report.run, island) || is_member(now, report.run, island)) {
        report = totals_.add(island, std::move(report));
      }
      fresh_reports_.insert_or_assign({report.run, island}, report);
      reports_due_ = reports_due_.value_or(now + kReportsEvery);
    }
  } else if (const auto* exchanged = std::get_if<Exchanged>(&message); exchanged != nullptr && exchanged->seconds > 0) {
    requests_->note_rate(island, {static_cast<double>(exchanged->bytes_sent) * 8 / exchanged->seconds,
                                  static_cast<double>(exchanged->bytes_received) * 8 / exchanged->seconds});
  }
  if (const auto* timeline = std::get_if<Timeline>(&message)) {
    if (fresh_spans_.size() < kMaxFreshSpans && is_member(now, timeline->run, island)) {
      for (const Span& span : timeline->spans) {
        const IslandSpan item{timeline->run, island, span, {}};
        const std::vector<WaitCause> causes =
            span.kind == SpanKind::wait ? core_->wait_causes(item.run, island, span.round) : std::vector<WaitCause>();
        for (IslandSpan& part : parts_of_wait(item, causes)) {
          fresh_spans_.push_back(std::move(part));
        }
      }
      reports_due_ = reports_due_.value_or(now + kReportsEvery);
    }
    return;
  }
  if (const auto* images = std::get_if<TaskImages>(&message)) {
    if (const Status noted = requests_->note_images(now, island, *images); !noted) {
      if (const auto line = log_limit_.pass(now, noted.error().why)) {
        log_warning(*line);
      }
    }
    return;
  }
  core_->step(now, island, boot, message);
  if (std::holds_alternative<RunEnded>(message)) {
    write_reports(now);  // what it reported last, a moment ago
  }
  if (const auto* told = std::get_if<Checkpointed>(&message); told != nullptr && !told->error && is_member(now, told->run, island)) {
    if (const Status written = ledger_.write_checkpoint(island, *told); !written) {
      if (const auto line = log_limit_.pass(now, "cannot remember the checkpoint of " + island.text + ": " + written.error().why)) {
        log_warning(*line);
      }
    }
  }
}

// Remembers on which runs an island reports; true if there is one that it reported on before and does not now.
bool Driver::stops_reporting(const IslandId& island, const Heartbeat& heartbeat) {
  std::vector<RunId>& before = reporting_[island];
  const bool stops = std::ranges::any_of(
      before, [&](const RunId& run) { return std::ranges::find(heartbeat.reports, run, &IslandReport::run) == heartbeat.reports.end(); });
  before.clear();
  for (const IslandReport& report : heartbeat.reports) {
    if (before.size() < kMaxReports) {
      before.push_back(report.run);
    }
  }
  return stops;
}

bool Driver::is_member(TimePoint now, const RunId& id, const IslandId& island) const {
  const std::optional<RunView> run = core_->run(now, id);
  return run && std::any_of(run->memberships.begin(), run->memberships.end(),
                            [&](const MembershipView& membership) { return membership.island == island; });
}

// A Hello or Heartbeat says which process speaks on this connection; other messages are that process's.
std::uint64_t Driver::boot_of(ConnectionId connection, const IslandId& island, const Message& message) {
  std::vector<Instance>& instances = instances_[island];
  const auto* hello = std::get_if<Hello>(&message);
  const auto* heartbeat = std::get_if<Heartbeat>(&message);
  if (hello == nullptr && heartbeat == nullptr) {
    const auto found = std::find_if(instances.begin(), instances.end(), [&](const Instance& i) { return i.connection == connection; });
    return found == instances.end() ? 0 : found->boot;
  }
  const std::uint64_t boot = hello != nullptr ? hello->boot : heartbeat->boot;
  std::erase_if(instances, [&](const Instance& i) { return i.connection == connection || i.boot == boot; });
  instances.push_back({boot, connection});
  if (instances.size() > kMaxInstances) {
    instances.erase(instances.begin());
  }
  return boot;
}

// ------------------------------------------------------------------------------------------------------- records, then messages

bool Driver::flush(TimePoint now) {
  if (blocked_since_) {
    // Something was decided although nothing may be announced (a request): it waits behind the rest.
    coordinator::Ready more = core_->take_ready();
    std::move(more.records.begin(), more.records.end(), std::back_inserter(pending_.records));
    std::move(more.messages.begin(), more.messages.end(), std::back_inserter(pending_.messages));
    return false;
  }
  pending_ = core_->take_ready();
  return write_pending(now);
}

bool Driver::write_pending(TimePoint now) {
  if (const Status written = ledger_.write(pending_.records); !written) {
    ledger_failed(now, written.error());
    return false;
  }
  log_events();
  announce();
  const bool ended = std::ranges::any_of(pending_.records, [](const Record& record) {
    const auto* run = std::get_if<RunRecord>(&record);
    return run != nullptr && has_ended(run->state);
  });
  pending_ = {};
  if (ended) {
    write_reports(now);  // what its islands reported last outlives a crash that comes with the end
  }
  return true;
}

void Driver::ledger_failed(TimePoint now, const Error& error) {
  if (!blocked_since_) {
    blocked_since_ = now;
    log_error(error.why + "; nothing is decided or announced until the ledger can be written again");
  }
  retry_at_ = now + kLedgerRetry;
  requests_->note_ledger(error);
}

void Driver::ledger_recovered(TimePoint now) {
  log_info("the ledger can be written again, after " + human_duration(now - *blocked_since_));
  blocked_since_.reset();
  requests_->note_ledger(std::nullopt);
  // What islands said meanwhile counts as said now: nobody is lost because of the coordinator's own disk.
  while (!held_.empty() && !blocked_since_) {
    Held held = std::move(held_.front());
    held_.pop_front();
    feed(now, held.connection, held.island, std::move(held.message));
    flush(now);
  }
}

void Driver::announce() {
  for (const Outgoing& outgoing : pending_.messages) {
    const auto found = instances_.find(outgoing.island);
    if (found == instances_.end()) {
      continue;
    }
    for (const Instance& instance : found->second) {
      if (instance.boot == outgoing.boot) {
        // A lost message is asked for again; a broken connection is replaced by the island.
        if (const Status sent = server_->send(instance.connection, outgoing.message); !sent) {
          log_debug("could not send " + std::string(kind_of(outgoing.message)) + " to " + outgoing.island.text + ": " + sent.error().why);
        }
        if (std::holds_alternative<Welcome>(outgoing.message)) {
          send_passes(instance.connection, passes_.welcome(outgoing.island, now()));
        }
      }
    }
  }
}

// One that is lost is made anew: with the next connection, or when it is due.
void Driver::send_passes(ConnectionId connection, const std::optional<Relays>& relays) {
  if (relays) {
    (void)server_->send(connection, *relays);
  }
}

// Those of islands, which come and go.
void Driver::look_at_relays(TimePoint now) {
  using Presence = RelayPasses::Presence;
  const auto presence_of = [this](const IslandId& island) {
    const std::optional<bool> connected = core_->is_connected(island);
    return !connected ? Presence::gone : *connected ? Presence::here : Presence::away;
  };
  if (!passes_.look_at_islands(presence_of, now)) {
    return;
  }
  for (const auto& [island, instances] : instances_) {
    for (const Instance& instance : instances) {
      if (presence_of(island) == Presence::here) {  // none for one that was revoked
        send_passes(instance.connection, passes_.told_again(island, now));
      }
    }
  }
}

void Driver::log_events() const {
  for (const Record& record : pending_.records) {
    if (const auto* event = std::get_if<EventRecord>(&record)) {
      log(level_of(event->level), (event->run.empty() ? "" : event->run.text + ": ") + event->text);
    }
  }
}

void Driver::write_reports(TimePoint now) {
  if (blocked_since_) {
    reports_due_ = retry_at_ + kReportsEvery;
    return;
  }
  std::vector<std::pair<IslandId, IslandReport>> reports;
  const std::vector<RunView> runs = core_->runs(now);
  std::set<RunId> known;
  std::ranges::transform(runs, std::inserter(known, known.end()), &RunView::id);
  std::erase_if(fresh_spans_, [&](const IslandSpan& span) { return !known.contains(span.run); });  // its run was removed meanwhile
  for (const RunView& run : runs) {
    for (const MembershipView& membership : run.memberships) {
      const auto found = fresh_reports_.find({run.id, membership.island});
      if (found != fresh_reports_.end()) {
        reports.emplace_back(membership.island, std::move(found->second));
      }
    }
  }
  fresh_reports_.clear();
  reports_due_.reset();
  Status written = ledger_.write_reports(reports, totals_);
  if (written) {
    written = ledger_.write_spans(fresh_spans_);
  }
  fresh_spans_.clear();
  if (!written) {
    // Newer ones follow; whether decisions can be recorded shows when there is one.
    if (const auto line = log_limit_.pass(now, "cannot remember what islands report: " + written.error().why)) {
      log_warning(*line);
    }
  }
}

}  // namespace atl::coordinator
