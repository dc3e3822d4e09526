#include "transport/emulated/link_emulator.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <deque>
#include <map>
#include <mutex>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "transport/base/log.hpp"
#include "transport/emulated/emulated_connection.hpp"

namespace atl {
namespace {

constexpr std::uint64_t kStop = ~0ULL;
constexpr std::uint64_t kDoor = 1ULL << 63;  // a door's number is with it; else a connection's, twice, and which side
constexpr int kWaitingAtDoor = 128;
constexpr Duration kIdle = std::chrono::seconds(10);

Error failed(const std::string& what) { return Error{Code::io, "the emulated link: " + what + ": " + std::strerror(errno)}; }

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

// A sender's queue is to be where it is on a real path, in its own socket, and not here: with a limit to the rate little is read ahead.
// Packets as on a network keep the window small with which a sender begins, and so its own buffer.
void be_a_path(int socket, const LinkTerms& terms) {
  constexpr double kReadAheadBelow = 2e9;
  const int one = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  if (terms.bits_per_second > 0) {
    const int segment = static_cast<int>(kSegmentBytes);
    ::setsockopt(socket, IPPROTO_TCP, TCP_MAXSEG, &segment, sizeof segment);
  }
  if (terms.bits_per_second > 0 && terms.bits_per_second < kReadAheadBelow) {
    const int bytes = std::clamp(static_cast<int>(terms.bits_per_second / 8 * 2e-3), 32 << 10, 256 << 10);
    ::setsockopt(socket, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
  }
}

struct Door {
  FileDescriptor socket;
  std::size_t line;
  std::uint16_t port;
  std::uint16_t target;
  LinkEmulator::Dialler dialler;
};

struct AccessLine {
  LineWay out;
  LineWay in;
};

class Emulator final : public LinkEmulator {
 public:
  Emulator(const LinkTerms& terms, FileDescriptor epoll, FileDescriptor stop)
      : terms_(terms), epoll_(std::move(epoll)), stop_(std::move(stop)), thread_([this] { run(); }) {}
  ~Emulator() override {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(stop_.get(), &one, sizeof one);
    thread_.join();
  }
  Emulator(const Emulator&) = delete;
  Emulator& operator=(const Emulator&) = delete;

  std::size_t add_line() override {
    const std::lock_guard lock(mutex_);
    const LineWay way{terms_.bits_per_second / 8, TimePoint{}};
    lines_.push_back({way, way});
    return lines_.size() - 1;
  }

  using LinkEmulator::add_door;
  Result<std::uint16_t> add_door(std::size_t line, std::uint16_t port, Dialler dialler) override {
    FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!socket.is_open()) {
      return failed("no socket for a door");
    }
    be_a_path(socket.get(), terms_);
    sockaddr_in address = loopback(0);
    socklen_t length = sizeof address;
    if (::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 || ::listen(socket.get(), kWaitingAtDoor) != 0 ||
        ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0) {
      return failed("no port for a door");
    }
    const std::lock_guard lock(mutex_);
    if (line >= lines_.size()) {
      return Error{Code::invalid_argument, "the emulated link: there is no line " + std::to_string(line)};
    }
    const int fd = socket.get();
    doors_.push_back({std::move(socket), line, ntohs(address.sin_port), port, std::move(dialler)});
    watch(fd, kDoor | (doors_.size() - 1), EPOLLIN | EPOLLET);
    return ntohs(address.sin_port);
  }

 private:
  void watch(int fd, std::uint64_t name, std::uint32_t events) {
    epoll_event event{};
    event.events = events;
    event.data.u64 = name;
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event);
  }

  void run() {
    sigset_t all;
    sigfillset(&all);
    ::pthread_sigmask(SIG_BLOCK, &all, nullptr);  // splice(2) into a closed connection sends SIGPIPE
    ::prctl(PR_SET_TIMERSLACK, 1UL);              // nanoseconds: a path is not late
    watch(stop_.get(), kStop, EPOLLIN);
    std::array<epoll_event, 64> events{};
    while (true) {
      const int came = wait_for(events, std::max(Duration{}, next_deadline() - now()));
      for (int i = 0; i < came; ++i) {
        const epoll_event& event = events[static_cast<std::size_t>(i)];
        if (event.data.u64 == kStop) {
          return;
        }
        if ((event.data.u64 & kDoor) != 0) {
          accept_at(event.data.u64 & ~kDoor);
        } else {
          note(event);
        }
      }
      dial_due();
      move_all();
    }
  }

  // To the nanosecond by epoll_pwait2 (Linux 5.11). Where that is missing or refused, epoll's own descriptor is waited for, and then asked.
  int wait_for(std::span<epoll_event> events, Duration left) {
    const timespec timeout{static_cast<time_t>(left.count() / 1'000'000'000), static_cast<long>(left.count() % 1'000'000'000)};
    const int most = static_cast<int>(events.size());
    if (in_one_call_) {
      const auto came = static_cast<int>(::syscall(SYS_epoll_pwait2, epoll_.get(), events.data(), most, &timeout, nullptr, 0));
      if (came >= 0 || (errno != ENOSYS && errno != EPERM)) {
        return came;
      }
      in_one_call_ = false;
    }
    pollfd anything{epoll_.get(), POLLIN, 0};
    return ::ppoll(&anything, 1, &timeout, nullptr) > 0 ? ::epoll_wait(epoll_.get(), events.data(), most, 0) : 0;
  }

  TimePoint next_deadline() {
    const TimePoint present = now();
    if (unfinished_) {
      return present;
    }
    TimePoint next = present + kIdle;
    for (const auto& [number, connection] : connections_) {
      next = std::min(next, connection->next_deadline().value_or(next));
    }
    return next;
  }

  void note(const epoll_event& event) {
    const auto known = connections_.find(event.data.u64 / 2);
    if (known == connections_.end()) {
      return;
    }
    const bool dialler = event.data.u64 % 2 == 0;
    if ((event.events & EPOLLERR) != 0) {
      known->second->broken();
    }
    if ((event.events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP)) != 0) {
      known->second->readable(dialler);
    }
    if ((event.events & EPOLLOUT) != 0) {
      known->second->writable(dialler);
    }
  }

  void accept_at(std::size_t number) {
    const Door* door = nullptr;
    {
      const std::lock_guard lock(mutex_);
      door = &doors_[number];  // a door stays where it is, and as it is
    }
    while (true) {
      sockaddr_in from{};
      socklen_t length = sizeof from;
      FileDescriptor socket(::accept4(door->socket.get(), reinterpret_cast<sockaddr*>(&from), &length, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!socket.is_open()) {
        if (errno != EAGAIN && errno != ECONNABORTED) {
          log_warning(failed("a connection is not accepted").why);
        }
        return;
      }
      const int one = 1;
      ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
      const std::optional<std::size_t> line = door->dialler(ntohs(from.sin_port), door->port);
      add_connection(*door, std::move(socket), line);
    }
  }

  EmulatedConnection::Line line_of(std::size_t line) { return {&lines_[line].out, &lines_[line].in}; }

  void add_connection(const Door& door, FileDescriptor socket, std::optional<std::size_t> line) {
    const std::uint64_t number = next_connection_++;
    const int fd = socket.get();
    const std::lock_guard lock(mutex_);
    EmulatedConnection::Side side{std::move(socket), line && *line < lines_.size() ? line_of(*line) : EmulatedConnection::Line{}};
    targets_[number] = door.target;
    connections_[number] = std::make_unique<EmulatedConnection>(terms_, std::move(side), line_of(door.line), stock_, number, now());
    watch(fd, 2 * number, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
  }

  // Whose handshake is over. One whose island does not listen ends.
  void dial_due() {
    for (const auto& [number, connection] : connections_) {
      if (!connection->dial_at() || *connection->dial_at() > now()) {
        continue;
      }
      FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
      const sockaddr_in address = loopback(targets_.at(number));
      be_a_path(socket.get(), terms_);
      if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 && errno != EINPROGRESS) {
        connection->broken();
        continue;
      }
      const int fd = socket.get();
      connection->dialled(std::move(socket));
      watch(fd, 2 * number + 1, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
    }
  }

  // Until nothing moves; each connection in turn, and another one first each time.
  void move_all() {
    std::vector<EmulatedConnection*> all;
    for (const auto& [number, connection] : connections_) {
      all.push_back(connection.get());
    }
    constexpr int kPassesInARow = 256;  // then what epoll has to say is heard
    bool moved = !all.empty();
    for (int pass = 0; moved && pass < kPassesInARow; ++pass) {
      moved = false;
      const std::size_t first = turn_++ % all.size();
      for (std::size_t i = 0; i < all.size(); ++i) {
        moved = all[(first + i) % all.size()]->move(now()) || moved;
      }
    }
    unfinished_ = moved;
    std::erase_if(connections_, [&](const auto& item) { return item.second->over() && targets_.erase(item.first) == 1; });
  }

  const LinkTerms terms_;
  const FileDescriptor epoll_;
  bool in_one_call_ = true;  // waiting; the thread's own
  const FileDescriptor stop_;
  std::mutex mutex_;  // of what follows
  std::deque<AccessLine> lines_;
  std::deque<Door> doors_;
  // The thread's own.
  PipeStock stock_;
  std::map<std::uint64_t, std::unique_ptr<EmulatedConnection>> connections_;
  std::map<std::uint64_t, std::uint16_t> targets_;  // the port behind each connection's door
  std::uint64_t next_connection_ = 0;
  std::size_t turn_ = 0;
  bool unfinished_ = false;
  std::thread thread_;  // the last: it begins when all else is there
};

}  // namespace

Result<std::unique_ptr<LinkEmulator>> LinkEmulator::start(const LinkTerms& terms) {
  FileDescriptor epoll(::epoll_create1(EPOLL_CLOEXEC));
  FileDescriptor stop(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll.is_open() || !stop.is_open()) {
    return failed("no file descriptors left (ulimit -n)");
  }
  return std::unique_ptr<LinkEmulator>(std::make_unique<Emulator>(terms, std::move(epoll), std::move(stop)));
}

}  // namespace atl
