#include "transport/zmq/relay_tunnels.hpp"

#include <linux/tcp.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "transport/base/address.hpp"
#include "transport/base/bytes.hpp"
#include "transport/base/file_descriptor.hpp"
#include "transport/base/log.hpp"
#include "transport/base/time.hpp"
#include "transport/proxy/proxy_dials.hpp"
#include "transport/relay/relay_flow.hpp"
#include "transport/relay/socks_door.hpp"
#include "transport/zmq/tcp_tuning.hpp"

namespace atl {
namespace {

using Id = std::uint64_t;
constexpr Id kWake = 0;
constexpr Id kDials = UINT64_MAX;
constexpr Duration kPause = std::chrono::seconds(1);     // before ZeroMQ learns of a failure, and dials again
constexpr Duration kConnect = std::chrono::seconds(10);  // for a relay to be reached and to greet

constexpr Duration kTellProxyAgain = std::chrono::minutes(10);
constexpr std::size_t kLinesRemembered = 64;

void keep_alive(int socket) {
  const auto set = [&](int level, int option, int value) { (void)::setsockopt(socket, level, option, &value, sizeof value); };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);  // a router forgets a connection that is silent
  set(IPPROTO_TCP, TCP_KEEPIDLE, 15);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
}

Result<FileDescriptor> dial(const std::string& relay) {
  ATOLL_ASSIGN(const Address address, parse_address(relay));
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found) != 0 || found == nullptr) {
    return Error{Code::unavailable, "the name of the relay at " + relay + " cannot be resolved"};
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(found, ::freeaddrinfo);
  FileDescriptor socket(::socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.is_open() || (::connect(socket.get(), found->ai_addr, found->ai_addrlen) != 0 && errno != EINPROGRESS)) {
    return Error{Code::unavailable, "the relay at " + relay + " cannot be dialled: " + std::strerror(errno)};
  }
  keep_alive(socket.get());
  return socket;
}

bool is_far(int socket) {
  constexpr std::uint32_t kFarTripUs = 10'000;
  tcp_info info{};
  socklen_t length = sizeof info;
  return ::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &length) == 0 && info.tcpi_rtt >= kFarTripUs;
}

bool is_own(int socket) {
  ucred who{};
  socklen_t length = sizeof who;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &length) == 0 && who.pid == ::getpid();
}

// What the thread says of a door's newest connection.
struct Progress {
  std::atomic<NotPunched> not_punched = NotPunched::not_tried;
  std::atomic<RelayTunnels::Tunnel::Reached> reached = RelayTunnels::Tunnel::Reached::nobody;
  std::mutex mutex;
  std::string failure;

  void begin() {
    reached = RelayTunnels::Tunnel::Reached::nobody;
    fail("");
  }
  void fail(const std::string& why) {
    const std::lock_guard lock(mutex);
    failure = why;
  }
};

// One of ZeroMQ's connections on its way.
struct Pipe {
  enum class State { dials, greets, asks, punches, joined, failed };
  Id door = 0;
  FileDescriptor near;
  FileDescriptor far;
  State state = State::greets;
  bool said = false;  // what the state begins with
  Bytes heard;        // of the relay's answer to that
  TimePoint until;    // greets: the latest that it may be asked; failed: when it is closed
  std::optional<HolePunch> punch;
  std::optional<RelayFlow> out;
  std::optional<RelayFlow> in;
  bool queued = false;
};

}  // namespace

struct RelayTunnels::Door {
  FileDescriptor listener;
  HolePunch::Whom whom;  // of one to an address: that, as the relay's, and nobody
  Leads leads = Leads::over_relay;
  std::optional<Proxy> proxy;
  Duration patience = kConnect;
  Duration pause = kPause;
  std::shared_ptr<Progress> progress = std::make_shared<Progress>();
  [[nodiscard]] bool asks() const { return !whom.request.empty(); }
};

struct RelayTunnels::Shared {
  std::mutex mutex;
  std::vector<std::pair<Id, Door>> opened;  // not yet taken by the thread
  std::vector<Id> closed;
  Id next = 1;
  bool stop = false;
  FileDescriptor wake{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  FileDescriptor poll{::epoll_create1(EPOLL_CLOEXEC)};
  std::thread thread;

  // Of the thread alone from here on.
  std::map<Id, Door> doors;
  std::map<Id, Pipe> pipes;
  std::deque<Id> turns;
  std::optional<ProxyDials> dials;
  std::map<std::string, TimePoint> told;

  void run();
  bool obey();
  void watch(int fd, Id id, std::uint32_t events) const {
    epoll_event watched{events, {.u64 = id}};
    (void)::epoll_ctl(poll.get(), EPOLL_CTL_ADD, fd, &watched);
  }
  Id number() {
    const std::lock_guard lock(mutex);
    return next++;
  }
  void accept(Id id, const Door& door);
  void look(Id id);
  void fail(Pipe& pipe, const std::string& why);
  void tell_rarely(const std::string& line);
  void drop(Id id);
  void begin_dial(Id id, const Door& door);
  void take_dialled();
  void converse(Id id, Pipe& pipe);
  bool say(Pipe& pipe, ByteView bytes);
  void punch(Id id, Pipe& pipe, TimePoint present);
  [[nodiscard]] int wait_ms() const;
  void join(Id id, Pipe& pipe);
  void pump(Id id, Pipe& pipe);
  void expire();
};

void RelayTunnels::Shared::run() {
  sigset_t broken_pipe;  // splice() to an end that is closed raises it, in this thread
  ::sigemptyset(&broken_pipe);
  ::sigaddset(&broken_pipe, SIGPIPE);
  ::pthread_sigmask(SIG_BLOCK, &broken_pipe, nullptr);
  watch(wake.get(), kWake, EPOLLIN);
  while (obey()) {
    std::array<epoll_event, 64> events{};
    const int count = ::epoll_wait(poll.get(), events.data(), static_cast<int>(events.size()), wait_ms());
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events[static_cast<std::size_t>(i)];
      const Id id = event.data.u64;
      if (const auto door = doors.find(id); door != doors.end()) {
        accept(id, door->second);
      } else if (const auto pipe = pipes.find(id); pipe != pipes.end()) {
        look(id);
      }
    }
    if (dials) {
      take_dialled();
    }
    for (const Id id : std::exchange(turns, {})) {
      if (const auto pipe = pipes.find(id); pipe != pipes.end()) {
        pipe->second.queued = false;
        pump(id, pipe->second);
      }
    }
    expire();
  }
}

int RelayTunnels::Shared::wait_ms() const {
  TimePoint until = now() + std::chrono::milliseconds(500);
  for (const auto& [id, pipe] : pipes) {
    until = pipe.state == Pipe::State::punches ? std::min(until, pipe.punch->deadline()) : until;
  }
  until = dials ? std::min(until, dials->deadline()) : until;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - now()).count();
  return turns.empty() ? static_cast<int>(std::max<std::int64_t>(0, left)) : 0;
}

// False: the end.
bool RelayTunnels::Shared::obey() {
  std::uint64_t count = 0;
  (void)!::read(wake.get(), &count, sizeof count);
  const std::lock_guard lock(mutex);
  for (auto& [id, door] : opened) {
    watch(door.listener.get(), id, EPOLLIN);
    doors.emplace(id, std::move(door));
  }
  opened.clear();
  for (const Id id : closed) {
    doors.erase(id);
    for (auto pipe = pipes.begin(); pipe != pipes.end();) {
      const Id of_pipe = pipe->first;
      const bool ends = pipe->second.door == id;
      ++pipe;
      if (ends) {
        drop(of_pipe);
      }
    }
  }
  closed.clear();
  return !stop;
}

void RelayTunnels::Shared::accept(Id id, const Door& door) {
  FileDescriptor near(::accept4(door.listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!near.is_open() || !is_own(near.get())) {
    return;
  }
  const Id number_of_pipe = number();
  Pipe& pipe = pipes[number_of_pipe];
  pipe.door = id;
  pipe.near = std::move(near);
  pipe.until = now() + kConnect;
  watch(pipe.near.get(), number_of_pipe, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
  door.progress->begin();
  if (door.proxy) {
    pipe.state = Pipe::State::dials;
    return begin_dial(number_of_pipe, door);
  }
  if (door.leads == Leads::through_holes) {
    door.progress->not_punched = NotPunched::not_tried;  // of a new attempt nothing is known
    Result<HolePunch> begun = HolePunch::begin(door.whom, poll.get(), number_of_pipe);
    if (!begun) {
      return fail(pipe, begun.error().why);
    }
    pipe.punch.emplace(*std::move(begun));
    pipe.state = Pipe::State::punches;
    return punch(number_of_pipe, pipe, now());
  }
  Result<FileDescriptor> far = dial(door.whom.relay);
  if (!far) {
    return fail(pipe, far.error().why);
  }
  pipe.far = *std::move(far);
  watch(pipe.far.get(), number_of_pipe, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
}

// What a proxy says of a peer's address it says each time.
void RelayTunnels::Shared::tell_rarely(const std::string& line) {
  const auto known = told.find(line);
  if (known != told.end() && now() - known->second < kTellProxyAgain) {
    return;
  }
  if (told.size() >= kLinesRemembered) {
    told.clear();
  }
  told[line] = now();
  log_info(line);
}

void RelayTunnels::Shared::fail(Pipe& pipe, const std::string& why) {
  const Door& door = doors.at(pipe.door);
  const std::string line = (door.asks() ? "relay tunnel: " : "bulk link: ") + why;
  if (door.proxy && door.pause > Duration::zero()) {
    tell_rarely(line);
  } else {
    log_debug(line);
  }
  door.progress->fail(why);
  pipe.state = Pipe::State::failed;
  pipe.until = now() + door.pause;
  pipe.far = FileDescriptor();
  pipe.punch.reset();
}

void RelayTunnels::Shared::drop(Id id) {
  if (dials) {
    dials->drop(id);
  }
  pipes.erase(id);
}

void RelayTunnels::Shared::begin_dial(Id id, const Door& door) {
  if (!dials) {
    dials.emplace();
    watch(dials->fd(), kDials, EPOLLIN);
  }
  const Result<Address> address = parse_address(door.whom.relay);
  if (!address) {
    return fail(pipes.at(id), address.error().why);
  }
  dials->begin(id, *door.proxy, *address, door.patience);
}

void RelayTunnels::Shared::take_dialled() {
  for (ProxyDials::Dialled& dialled : dials->advance()) {
    const auto found = pipes.find(dialled.number);
    if (found == pipes.end()) {
      continue;
    }
    Pipe& pipe = found->second;
    if (!dialled.socket) {
      fail(pipe, dialled.socket.error().why);
      continue;
    }
    pipe.far = *std::move(dialled.socket);
    keep_alive(pipe.far.get());
    pipe.state = Pipe::State::greets;
    pipe.until = now() + kConnect;
    watch(pipe.far.get(), dialled.number, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
    if (!doors.at(pipe.door).asks()) {
      join(dialled.number, pipe);
    }
  }
}

void RelayTunnels::Shared::punch(Id id, Pipe& pipe, TimePoint present) {
  const HolePunch::State state = pipe.punch->advance(present);
  std::atomic<NotPunched>& not_punched = doors.at(pipe.door).progress->not_punched;
  if (state == HolePunch::State::failed) {
    not_punched = pipe.punch->failure();
    return fail(pipe, "no hole to island " + doors.at(pipe.door).whom.peer.text + ": " + pipe.punch->why());
  }
  if (state == HolePunch::State::open) {
    not_punched = NotPunched::not_tried;
    pipe.far = pipe.punch->take();
    watch(pipe.far.get(), id, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
    pipe.punch.reset();
    join(id, pipe);
  }
}

void RelayTunnels::Shared::look(Id id) {
  Pipe& pipe = pipes.at(id);
  if (pipe.state == Pipe::State::joined) {
    if (!std::exchange(pipe.queued, true)) {
      turns.push_back(id);
    }
    return;
  }
  std::array<char, 1> end{};
  if (::recv(pipe.near.get(), end.data(), end.size(), MSG_PEEK | MSG_DONTWAIT) == 0) {
    drop(id);  // ZeroMQ does not want it any more
    return;
  }
  if (pipe.state == Pipe::State::punches) {
    punch(id, pipe, now());
  } else if (pipe.state == Pipe::State::greets || pipe.state == Pipe::State::asks) {
    converse(id, pipe);
  }
}

// False: not said, and it failed or is not connected yet.
bool RelayTunnels::Shared::say(Pipe& pipe, ByteView bytes) {
  if (pipe.said) {
    return true;
  }
  const ssize_t sent = ::send(pipe.far.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  if (sent < 0 && (errno == EAGAIN || errno == ENOTCONN || errno == EINPROGRESS || errno == EALREADY)) {
    return false;
  }
  if (sent != static_cast<ssize_t>(bytes.size())) {
    fail(pipe, std::string("the relay does not listen: ") + std::strerror(errno));
    return false;
  }
  pipe.said = true;
  return true;
}

void RelayTunnels::Shared::converse(Id id, Pipe& pipe) {
  static constexpr std::array kGreeting = {std::byte{5}, std::byte{1}, std::byte{0}};
  const bool greets = pipe.state == Pipe::State::greets;
  if (!say(pipe, greets ? ByteView(kGreeting) : ByteView(socks_request(doors.at(pipe.door).whom.request)))) {
    return;
  }
  const std::size_t expected = greets ? kSocksGreeting.size() : socks_answer(SocksAnswer::joined).size();
  std::array<std::byte, 16> buffer{};
  const ssize_t got = ::recv(pipe.far.get(), buffer.data(), expected - pipe.heard.size(), MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
    return;
  }
  if (got <= 0) {
    return fail(pipe, "the relay ended the connection");
  }
  pipe.heard.insert(pipe.heard.end(), buffer.begin(), buffer.begin() + got);
  if (pipe.heard.size() < expected) {
    return converse(id, pipe);
  }
  const auto code = std::to_integer<unsigned>(pipe.heard[1]);
  pipe.heard.clear();
  if (code != 0) {
    return fail(pipe, "the relay refused, with code " + std::to_string(code));
  }
  if (!greets) {
    return join(id, pipe);
  }
  pipe.state = Pipe::State::asks;
  pipe.said = false;
  pipe.until = TimePoint::max();  // the relay says when it has waited for long enough
  converse(id, pipe);
}

void RelayTunnels::Shared::join(Id id, Pipe& pipe) {
  Result<RelayFlow> out = RelayFlow::open(pipe.near.get(), pipe.far.get());
  Result<RelayFlow> in = RelayFlow::open(pipe.far.get(), pipe.near.get());
  if (!out || !in) {
    return fail(pipe, out ? in.error().why : out.error().why);
  }
  pipe.out.emplace(*std::move(out));
  pipe.in.emplace(*std::move(in));
  pipe.state = Pipe::State::joined;
  doors.at(pipe.door).progress->reached = Tunnel::Reached::opened;
  limit_unsent(pipe.far.get());
  if (is_far(pipe.far.get())) {
    use_far_congestion_control(pipe.far.get());
  }
  pipe.queued = true;
  turns.push_back(id);
}

void RelayTunnels::Shared::pump(Id id, Pipe& pipe) {
  std::uint64_t moved = 0;
  bool more = false;
  for (std::optional<RelayFlow>* flow : {&pipe.out, &pipe.in}) {
    moved = 0;
    const RelayFlow::State state = (*flow)->pump(UINT64_MAX, moved);
    if (state == RelayFlow::State::broken) {
      pipes.erase(id);
      return;
    }
    more = more || state == RelayFlow::State::more;
  }
  if (moved > 0) {
    doors.at(pipe.door).progress->reached = Tunnel::Reached::heard;
  }
  // ZeroMQ has no use for half of a connection.
  if (pipe.out->ended() || pipe.in->ended()) {
    pipes.erase(id);
    return;
  }
  if (more && !std::exchange(pipe.queued, true)) {
    turns.push_back(id);
  }
}

void RelayTunnels::Shared::expire() {
  const TimePoint present = now();
  for (auto& [id, pipe] : pipes) {
    if (pipe.state == Pipe::State::greets && present >= pipe.until) {
      fail(pipe, "the relay did not greet");
    } else if (pipe.state == Pipe::State::punches && present >= pipe.punch->deadline()) {
      punch(id, pipe, present);
    }
  }
  std::erase_if(pipes, [&](const auto& pipe) { return pipe.second.state == Pipe::State::failed && present >= pipe.second.until; });
}

// --------------------------------------------------------------------------------------------------------------------------------------

RelayTunnels::RelayTunnels() : shared_(std::make_shared<Shared>()) {}

RelayTunnels::~RelayTunnels() {
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->stop = true;
  }
  (void)::eventfd_write(shared_->wake.get(), 1);
  if (shared_->thread.joinable()) {
    shared_->thread.join();
  }
}

Result<std::unique_ptr<RelayTunnels::Tunnel>> RelayTunnels::open(const HolePunch::Whom& whom, Leads leads, const Proxy* proxy) {
  Door door;
  door.whom = whom;
  door.leads = leads;
  door.proxy = proxy != nullptr ? std::optional(*proxy) : std::nullopt;
  return open(std::move(door));
}

Result<std::unique_ptr<RelayTunnels::Tunnel>> RelayTunnels::open_through(const Proxy& proxy, const std::string& address, Duration patience,
                                                                         Duration pause) {
  ATOLL_TRY(parse_address(address));
  Door door;
  door.whom.relay = address;
  door.proxy = proxy;
  door.patience = patience;
  door.pause = pause;
  return open(std::move(door));
}

Result<std::unique_ptr<RelayTunnels::Tunnel>> RelayTunnels::open(Door door) {
  class Opened final : public Tunnel {
   public:
    Opened(std::shared_ptr<Shared> shared, Id id, std::string endpoint, std::shared_ptr<Progress> progress)
        : shared_(std::move(shared)), id_(id), endpoint_(std::move(endpoint)), progress_(std::move(progress)) {}
    ~Opened() override {
      const std::lock_guard lock(shared_->mutex);
      shared_->closed.push_back(id_);
      (void)::eventfd_write(shared_->wake.get(), 1);
    }
    [[nodiscard]] const std::string& endpoint() const override { return endpoint_; }
    [[nodiscard]] NotPunched not_punched() const override { return progress_->not_punched; }
    [[nodiscard]] Reached reached() const override { return progress_->reached; }
    [[nodiscard]] std::string failure() const override {
      const std::lock_guard lock(progress_->mutex);
      return progress_->failure;
    }

   private:
    std::shared_ptr<Shared> shared_;
    Id id_;
    std::string endpoint_;
    std::shared_ptr<Progress> progress_;
  };

  FileDescriptor listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  socklen_t length = sizeof name;
  // Bound to no name it gets one that nobody has, without a file.
  if (!listener.is_open() || !shared_->wake.is_open() || !shared_->poll.is_open() ||
      ::bind(listener.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(sa_family_t)) != 0 || ::listen(listener.get(), 8) != 0 ||
      ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&name), &length) != 0) {
    return Error{Code::unavailable, std::string("no socket for a relay: ") + std::strerror(errno)};
  }
  const std::string text(name.sun_path + 1, length - offsetof(sockaddr_un, sun_path) - 1);
  const std::shared_ptr<Progress> progress = door.progress;
  door.listener = std::move(listener);
  const std::lock_guard lock(shared_->mutex);
  const Id id = shared_->next++;
  shared_->opened.emplace_back(id, std::move(door));
  if (!shared_->thread.joinable()) {
    shared_->thread = std::thread([raw = shared_.get()] { raw->run(); });
  }
  (void)::eventfd_write(shared_->wake.get(), 1);
  return std::unique_ptr<Tunnel>(std::make_unique<Opened>(shared_, id, "ipc://@" + text, progress));
}

}  // namespace atl
