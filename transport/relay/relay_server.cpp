#include "transport/relay/relay_server.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <deque>
#include <map>
#include <mutex>
#include <optional>

#include "transport/base/connection_book.hpp"
#include "transport/base/descriptor_limit.hpp"
#include "transport/base/file_descriptor.hpp"
#include "transport/base/log.hpp"
#include "transport/base/log_limit.hpp"
#include "transport/base/random_number.hpp"
#include "transport/bulk/token_bucket.hpp"
#include "transport/relay/hole_words.hpp"
#include "transport/relay/relay_flow.hpp"
#include "transport/relay/relay_pass.hpp"
#include "transport/relay/relay_socket.hpp"
#include "transport/relay/socks_door.hpp"

namespace atl {
namespace {

using Id = std::uint64_t;
constexpr Id kListener = 0;
constexpr Id kStop = 1;
constexpr Id kSecondListener = 2;
constexpr Duration kSweepEvery = std::chrono::seconds(1);
constexpr std::size_t kDescriptorsOfAConnection = 3;  // its socket and its direction's pipe
constexpr std::uint64_t kPortion = 64 * 1024;         // that a rate lets through at a time
constexpr int kAcceptedInARow = 64;
constexpr Duration kHoleTime = std::chrono::seconds(20);  // that a connection stays after it was told the other's address
// After a turn in which little came the relay rests for a moment, so that bytes that trickle in are moved together.
constexpr std::uint64_t kLittle = 256 * 1024;
constexpr ::timespec kRest{0, 500'000};

struct Connection {
  FileDescriptor socket;
  std::string host;
  SocksDoor door;
  MeetingRequest request;  // once it has shown a pass
  Id pair = 0;             // 0: it waits, or has shown no pass yet
  bool admitted = false;
  SeenAddress seen = {};
  // Of one that punches.
  bool said = false;  // what it found of its router
  HoleReady ready = HoleReady::ready;
  Id other = 0;                    // the peer's; 0: it waits
  std::optional<TimePoint> until;  // it was answered, and is closed then
};

struct Direction {
  RelayFlow flow;
  IslandId sender;
  TimePoint moved;  // when something last did
};

struct Pair {
  std::array<Id, 2> ends;
  std::array<Direction, 2> directions;
  bool queued = false;
  std::optional<TimePoint> paused;  // until a rate allows more
};

class EpollRelay final : public RelayServer {
 public:
  EpollRelay(RelaySettings settings, FileDescriptor listener, FileDescriptor second, FileDescriptor poll)
      : settings_(std::move(settings)),
        listener_(std::move(listener)),
        second_(std::move(second)),
        poll_(std::move(poll)),
        book_(settings_.limits),
        strangers_(settings_.strangers, settings_.stranger_patience) {
    if (settings_.bits_per_second > 0) {
      all_.emplace(settings_.bits_per_second, kPortion, now());
    }
  }

  [[nodiscard]] std::string bound_address() const override { return address_of(listener_.get()); }

  Status run(int stop_fd) override {
    sigset_t broken_pipe;  // splice() to an end that is closed raises it, in this thread
    ::sigemptyset(&broken_pipe);
    ::sigaddset(&broken_pipe, SIGPIPE);
    ::pthread_sigmask(SIG_BLOCK, &broken_pipe, nullptr);
    epoll_event stop{EPOLLIN, {.u64 = kStop}};
    if (::epoll_ctl(poll_.get(), EPOLL_CTL_ADD, stop_fd, &stop) != 0) {
      return Error{Code::io, std::string("relay: cannot be watched for its end: ") + std::strerror(errno)};
    }
    TimePoint next_sweep = now();
    while (true) {
      std::array<epoll_event, 64> events{};
      const int count = ::epoll_wait(poll_.get(), events.data(), static_cast<int>(events.size()), wait_ms(next_sweep));
      if (count < 0 && errno != EINTR) {
        return Error{Code::io, std::string("relay: ") + std::strerror(errno)};
      }
      for (int i = 0; i < count; ++i) {
        const Id id = events[static_cast<std::size_t>(i)].data.u64;
        if (id == kStop) {
          return {};
        }
        id == kListener ? accept_all() : id == kSecondListener ? tell_addresses() : on_ready(id);
      }
      const std::uint64_t before = bytes_;
      take_turns();
      if (bytes_ > before && bytes_ - before < kLittle && turns_.empty()) {
        (void)::nanosleep(&kRest, nullptr);
      }
      if (now() >= next_sweep) {
        sweep(now());
        next_sweep = now() + kSweepEvery;
      }
    }
  }

  [[nodiscard]] RelayFigures figures() const override {
    const std::lock_guard lock(mutex_);
    return figures_;
  }

 private:
  [[nodiscard]] int wait_ms(TimePoint next_sweep) const {
    if (!turns_.empty()) {
      return 0;
    }
    TimePoint until = next_sweep;
    for (const auto& [id, pair] : pairs_) {
      until = std::min(until, pair.paused.value_or(until));
    }
    return static_cast<int>(std::max<std::int64_t>(0, std::chrono::ceil<std::chrono::milliseconds>(until - now()).count()));
  }

  void accept_all() {
    for (int i = 0; i < kAcceptedInARow; ++i) {
      Accepted accepted = accept_from(listener_.get());
      if (!accepted.socket.is_open()) {
        return;
      }
      const Id id = next_++;
      const int socket = accepted.socket.get();
      epoll_event watched{EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, {.u64 = id}};
      if (::epoll_ctl(poll_.get(), EPOLL_CTL_ADD, socket, &watched) != 0) {
        continue;
      }
      of_descriptor_[socket] = id;
      const std::optional<int> too_many = strangers_.accepted(socket, accepted.host, now());
      connections_.emplace(
          id, Connection{
                  std::move(accepted.socket), std::move(accepted.host), {}, {}, 0, false, accepted.seen, false, HoleReady::ready, 0, {}});
      if (too_many) {
        close(of_descriptor_.at(*too_many), "it had shown no pass, and others came");
      }
    }
  }

  void tell_addresses() {
    for (int i = 0; i < kAcceptedInARow; ++i) {
      const Accepted accepted = accept_from(second_.get());
      if (!accepted.socket.is_open()) {
        return;
      }
      const Bytes bytes = to_bytes(accepted.seen);
      (void)::send(accepted.socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);  // the first bytes of a connection
    }
  }

  void on_ready(Id id) {
    const auto found = connections_.find(id);
    if (found == connections_.end()) {
      return;
    }
    Connection& connection = found->second;
    if (connection.pair != 0) {
      return queue(connection.pair);
    }
    std::array<std::byte, 512> buffer{};
    const ssize_t got = ::recv(connection.socket.get(), buffer.data(), buffer.size(), 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
      return;
    }
    if (got <= 0) {
      return close(id, "");
    }
    if (connection.request.punches && got == 1 && !connection.said) {
      return on_found(id, connection, std::to_integer<std::uint8_t>(buffer[0]));
    }
    if (connection.admitted) {
      return close(id, "it speaks before it was answered");
    }
    hear(id, connection, ByteView(buffer).first(static_cast<std::size_t>(got)));
  }

  void hear(Id id, Connection& connection, ByteView said) {
    switch (connection.door.take(said)) {
      case SocksDoor::Step::more:
        return;
      case SocksDoor::Step::greet:
        return answer(id, connection, kSocksGreeting);
      case SocksDoor::Step::wrong:
        return close(id, "it is no island");
      case SocksDoor::Step::asks:
        return admit(id, connection);
    }
  }

  // A few bytes to a connection that has been sent little yet: it takes them at once or is gone.
  void answer(Id id, const Connection& connection, ByteView bytes) {
    if (::send(connection.socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(bytes.size())) {
      close(id, "");
    }
  }

  void refuse(Id id, Connection& connection, SocksAnswer code, const std::string& why) {
    const auto bytes = socks_answer(code);
    (void)::send(connection.socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);  // it may be gone, or see the end alone
    close(id, why);
  }

  void admit(Id id, Connection& connection) {
    Result<MeetingRequest> request = read_request(settings_.secret, connection.door.name(), now());
    if (!request) {
      return refuse(id, connection, SocksAnswer::refused, request.error().why);
    }
    request->punches = connection.door.command() == SocksCommand::bind;
    if (!request->punches && !settings_.carries) {
      return refuse(id, connection, SocksAnswer::refused, "it asks for a relay, and this one carries no data");
    }
    const RelayBook::Admission admission = book_.admit(id, *request, now());
    if (admission.new_island) {
      log_info("relay: island " + request->island.text + " has come, from " + connection.host);
    }
    if (!admission.refused.empty()) {
      return refuse(id, connection, SocksAnswer::failed, admission.refused);
    }
    connection.admitted = true;
    connection.request = *request;
    strangers_.prove(connection.socket.get());
    if (request->punches) {
      connection.other = admission.partner.value_or(0);
      if (const auto partner = connections_.find(connection.other); partner != connections_.end()) {
        partner->second.other = id;
      }
      return answer(id, connection, to_bytes(HoleSeen{connection.seen, second_port_}));
    }
    if (admission.partner) {
      join(*admission.partner, id);
    }
  }

  // An island that punches has found what its router does.
  void on_found(Id id, Connection& connection, std::uint8_t said) {
    if (said != static_cast<std::uint8_t>(HoleReady::ready) && said != static_cast<std::uint8_t>(HoleReady::other_ports)) {
      return close(id, "it says something else than what its router does");
    }
    connection.said = true;
    connection.ready = static_cast<HoleReady>(said);
    if (const auto other = connections_.find(connection.other); other != connections_.end() && other->second.said) {
      introduce(id, connection, other->first, other->second);
    }
  }

  void introduce(Id a, Connection& first, Id b, Connection& second) {
    const HoleMoments moments = moments_of(round_trip_of(first.socket.get()), round_trip_of(second.socket.get()));
    const bool possible = first.ready == HoleReady::ready && second.ready == HoleReady::ready;
    HoleBegin begin;
    begin.code = possible ? SocksAnswer::joined : SocksAnswer::refused;
    const std::array<std::uint64_t, 2> token = {random_number(), random_number()};
    std::memcpy(begin.token.data(), token.data(), begin.token.size());
    first.until = second.until = now() + kHoleTime;
    introduced_ += possible ? 1 : 0;
    begin.peer = second.seen;
    begin.wait = moments.first;
    const Bytes to_first = to_bytes(begin);
    begin.peer = first.seen;
    begin.wait = moments.second;
    const Bytes to_second = to_bytes(begin);
    answer(a, first, to_first);
    if (const auto still = connections_.find(b); still != connections_.end()) {
      answer(b, still->second, to_second);
    }
  }

  void join(Id first, Id second) {
    Connection& a = connections_.at(first);
    Connection& b = connections_.at(second);
    Result<RelayFlow> there = RelayFlow::open(a.socket.get(), b.socket.get());
    Result<RelayFlow> back = RelayFlow::open(b.socket.get(), a.socket.get());
    if (!there || !back) {
      const std::string why = there ? back.error().why : there.error().why;
      refuse(first, a, SocksAnswer::failed, why);
      return refuse(second, b, SocksAnswer::failed, why);
    }
    const Id id = next_++;
    a.pair = id;
    b.pair = id;
    pairs_.emplace(id, Pair{{first, second},
                            {Direction{*std::move(there), a.request.island, now()}, Direction{*std::move(back), b.request.island, now()}},
                            false,
                            std::nullopt});
    ++joined_;
    const auto bytes = socks_answer(SocksAnswer::joined);
    answer(first, a, bytes);
    if (const auto still = connections_.find(second); still != connections_.end()) {
      answer(second, still->second, bytes);
    }
    queue(id);
  }

  void queue(Id id) {
    const auto pair = pairs_.find(id);
    if (pair != pairs_.end() && !pair->second.queued && !pair->second.paused) {
      pair->second.queued = true;
      turns_.push_back(id);
    }
  }

  // Each pair that has something to move has one turn; those that have more have it after the next look at the sockets.
  void take_turns() {
    const TimePoint present = now();
    for (auto& [id, pair] : pairs_) {
      if (pair.paused && present >= *pair.paused) {
        pair.paused.reset();
        queue(id);
      }
    }
    std::deque<Id> turns = std::exchange(turns_, {});
    for (const Id id : turns) {
      if (const auto pair = pairs_.find(id); pair != pairs_.end()) {
        pair->second.queued = false;
        pump(id, pair->second, present);
      }
    }
  }

  void pump(Id id, Pair& pair, TimePoint present) {
    bool more = false;
    for (Direction& direction : pair.directions) {
      const std::uint64_t allowance = allowed(direction.sender, pair, present);
      std::uint64_t moved = 0;
      const RelayFlow::State state = direction.flow.pump(allowance, moved);
      spend(direction.sender, moved, present);
      direction.moved = moved > 0 ? present : direction.moved;
      if (state == RelayFlow::State::broken) {
        return close(pair.ends[0], "");
      }
      more = more || state == RelayFlow::State::more;
    }
    if (pair.directions[0].flow.ended() && pair.directions[1].flow.ended()) {
      return close(pair.ends[0], "");
    }
    if (more) {
      queue(id);
    }
  }

  // What this island may send at the moment; where that is nothing the pair pauses.
  std::uint64_t allowed(const IslandId& sender, Pair& pair, TimePoint present) {
    TimePoint when = all_ ? all_->next_allowed(present, kPortion) : present;
    if (settings_.bits_per_second_of_an_island > 0) {
      TokenBucket& own = own_.try_emplace(sender, settings_.bits_per_second_of_an_island, kPortion, present).first->second;
      when = std::max(when, own.next_allowed(present, kPortion));
    } else if (!all_) {
      return UINT64_MAX;
    }
    if (when > present) {
      pair.paused = std::min(pair.paused.value_or(when), when);
      return 0;
    }
    return kPortion;
  }

  void spend(const IslandId& sender, std::uint64_t bytes, TimePoint present) {
    if (bytes == 0) {
      return;
    }
    bytes_ += bytes;
    sent_[sender] += bytes;
    if (all_) {
      all_->spend(present, bytes);
    }
    if (const auto own = own_.find(sender); own != own_.end()) {
      own->second.spend(present, bytes);
    }
  }

  // With its partner, if it has one. `why`: what is refused, for the log; empty: it ended.
  void close(Id id, const std::string& why) {
    const auto found = connections_.find(id);
    if (found == connections_.end()) {
      return;
    }
    if (!why.empty()) {
      ++refused_;
      if (const auto line = log_limit_.pass(now(), "relay: a connection from " + found->second.host + " was closed: " + why)) {
        log_warning(*line);
      }
    }
    const Id other = found->second.until ? 0 : found->second.other;
    const Id pair = found->second.pair;
    if (pair != 0) {
      const std::array<Id, 2> ends = pairs_.at(pair).ends;
      pairs_.erase(pair);
      for (const Id end : ends) {
        drop(end);
      }
      return;
    }
    drop(id);
    if (connections_.contains(other)) {
      drop(other);  // it comes again, and waits anew
    }
  }

  void drop(Id id) {
    const auto found = connections_.find(id);
    strangers_.gone(found->second.socket.get());
    of_descriptor_.erase(found->second.socket.get());
    connections_.erase(found);
    book_.gone(id, now());
  }

  void sweep(TimePoint present) {
    for (const int stranger : strangers_.take_expired(present)) {
      close(of_descriptor_.at(stranger), "it showed no pass in " + human_duration(settings_.stranger_patience));
    }
    RelayBook::Sweep swept = book_.sweep(present);
    for (const Id id : swept.waited) {
      if (const auto found = connections_.find(id); found != connections_.end()) {
        const auto bytes = socks_answer(SocksAnswer::expired);
        (void)::send(found->second.socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
        close(id, "");
      }
    }
    std::vector<Id> idle;
    for (const auto& [id, pair] : pairs_) {
      const bool is_idle = std::ranges::any_of(pair.directions, [&](const Direction& direction) {
        return !direction.flow.ended() && present - direction.moved > settings_.idle;
      });
      if (is_idle) {
        idle.push_back(pair.ends[0]);
      }
    }
    for (const Id id : idle) {
      close(id, "one of its directions had moved nothing for " + human_duration(settings_.idle));
    }
    std::vector<Id> punched;
    for (const auto& [id, connection] : connections_) {
      if (connection.until && present >= *connection.until) {
        punched.push_back(id);
      }
    }
    for (const Id id : punched) {
      close(id, "");
    }
    for (const IslandId& island : swept.left) {
      log_info("relay: island " + island.text + " has left");
      own_.erase(island);
      sent_.erase(island);
    }
    note_figures();
  }

  void note_figures() {
    RelayFigures figures{book_.islands(), strangers_.strangers(),      book_.waiting(), pairs_.size(), joined_, refused_, bytes_,
                         introduced_,     {sent_.begin(), sent_.end()}};
    const std::lock_guard lock(mutex_);
    figures_ = std::move(figures);
  }

  const RelaySettings settings_;
  FileDescriptor listener_;
  FileDescriptor second_;  // of those that punch; not open: the port is another program's
  const std::uint16_t second_port_ = second_.is_open() ? parse_address(address_of(second_.get())).value().port : std::uint16_t{0};
  FileDescriptor poll_;
  RelayBook book_;
  ConnectionBook strangers_;
  std::map<Id, Connection> connections_;
  std::map<int, Id> of_descriptor_;
  std::map<Id, Pair> pairs_;
  std::deque<Id> turns_;
  Id next_ = kSecondListener + 1;
  std::optional<TokenBucket> all_;
  std::map<IslandId, TokenBucket> own_;
  std::map<IslandId, std::uint64_t> sent_;
  std::uint64_t joined_ = 0;
  std::uint64_t refused_ = 0;
  std::uint64_t introduced_ = 0;
  std::uint64_t bytes_ = 0;
  LogLimit log_limit_;
  mutable std::mutex mutex_;
  RelayFigures figures_;
};

}  // namespace

namespace {

// At the port after this one's; not open if another program has it.
FileDescriptor listen_after(const Address& address, int listener) {
  const std::uint16_t first = parse_address(address_of(listener)).value().port;
  Result<FileDescriptor> second = Error{Code::conflict, "there is no port after it"};
  if (first < UINT16_MAX) {
    second = listen_at(Address{address.host, static_cast<std::uint16_t>(first + 1)});
  }
  if (!second) {
    log_info("relay: islands learn of routers that give each connection another port by trying only: " + second.error().why);
  }
  return second ? *std::move(second) : FileDescriptor();
}

}  // namespace

Result<std::unique_ptr<RelayServer>> RelayServer::open(RelaySettings settings) {
  ATOLL_ASSIGN(const Address address, parse_address(settings.bind));
  ATOLL_ASSIGN(FileDescriptor listener, listen_at(address));
  FileDescriptor second = listen_after(address, listener.get());
  FileDescriptor poll(::epoll_create1(EPOLL_CLOEXEC));
  epoll_event watched{EPOLLIN, {.u64 = kListener}};
  epoll_event watched_second{EPOLLIN, {.u64 = kSecondListener}};
  if (!poll.is_open() || ::epoll_ctl(poll.get(), EPOLL_CTL_ADD, listener.get(), &watched) != 0 ||
      (second.is_open() && ::epoll_ctl(poll.get(), EPOLL_CTL_ADD, second.get(), &watched_second) != 0)) {
    return Error{Code::io, std::string("relay: ") + std::strerror(errno)};
  }
  const std::size_t room = descriptor_limit() / 2 / kDescriptorsOfAConnection;
  settings.limits.connections = std::min(settings.limits.connections, room);
  settings.strangers = std::clamp<std::size_t>(descriptor_limit() / 4, 16, settings.strangers);
  return std::unique_ptr<RelayServer>(
      std::make_unique<EpollRelay>(std::move(settings), std::move(listener), std::move(second), std::move(poll)));
}

}  // namespace atl
