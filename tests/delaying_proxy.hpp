// A wire in user space, for benches and tests: whoever dials `address()` reaches the target, and every byte arrives half a round trip
// later.
//
// One thread polls all connections. Each direction of a connection is a queue of chunks with the times at which they may go on, of which
// there are at most `kMostInFlight` bytes; with a rate all connections of one proxy and direction share it. It costs two copies by the
// kernel on each side, on the same cores as the ends. Threads: its own.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "transport/base/check.hpp"
#include "transport/base/time.hpp"

namespace atl_test {

class DelayingProxy {
 public:
  // bytes_per_second: of each direction; 0: as fast as it goes.
  DelayingProxy(std::uint16_t target_port, atl::Duration round_trip, double bytes_per_second)
      : target_(target_port), delay_(round_trip / 2), rate_(bytes_per_second), stop_(::eventfd(0, EFD_NONBLOCK)) {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    sockaddr_in at = loopback(0);
    ATOLL_CHECK(::bind(listener_, reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0 && ::listen(listener_, 64) == 0,
                "the proxy can listen");
    socklen_t length = sizeof at;
    ::getsockname(listener_, reinterpret_cast<sockaddr*>(&at), &length);
    address_ = "tcp://127.0.0.1:" + std::to_string(ntohs(at.sin_port));
    thread_ = std::thread([this] { run(); });
  }
  ~DelayingProxy() {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(stop_, &one, sizeof one);
    thread_.join();
    for (const auto& pipe : pipes_) {
      ::close(pipe->from);
    }
    ::close(listener_);
    ::close(stop_);
  }
  DelayingProxy(const DelayingProxy&) = delete;
  DelayingProxy& operator=(const DelayingProxy&) = delete;

  [[nodiscard]] const std::string& address() const { return address_; }
  // From now on. What is on the way already comes as it was.
  void set_rate(double bytes_per_second) { rate_ = bytes_per_second; }
  // Bytes that a connection has carried from who dialled it, and back. They are counted in the order in which they came, up to kCounted.
  static constexpr std::size_t kCounted = 64;
  [[nodiscard]] std::uint64_t carried_there(std::size_t connection) const { return carried_.at(2 * connection); }
  [[nodiscard]] std::uint64_t carried_back(std::size_t connection) const { return carried_.at(2 * connection + 1); }

 private:
  static constexpr std::size_t kChunk = 256U << 10;
  static constexpr std::uint64_t kMostInFlight = 512ULL << 20;

  struct Chunk {
    atl::TimePoint due;
    std::unique_ptr<std::byte[]> bytes;
    std::size_t size = 0;
    std::size_t sent = 0;
  };
  struct Pipe {  // one direction of one connection
    int from = -1;
    int to = -1;
    int direction = 0;
    std::deque<Chunk> queue;
    std::uint64_t held = 0;
    bool over = false;
    bool blocked = false;  // `to` takes no more for now
    std::size_t number = 0;
  };

  static sockaddr_in loopback(std::uint16_t port) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(port);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return at;
  }

  void accept() {
    const int near = ::accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK);
    if (near < 0) {
      return;
    }
    const int far = ::socket(AF_INET, SOCK_STREAM, 0);
    const sockaddr_in at = loopback(target_);
    ATOLL_CHECK(::connect(far, reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0, "the proxy reaches its target");
    ::fcntl(far, F_SETFL, O_NONBLOCK);
    const int on = 1;
    ::setsockopt(near, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    ::setsockopt(far, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    pipes_.push_back(std::make_unique<Pipe>(Pipe{near, far, 0, {}, 0, false, false, accepted_++}));
    pipes_.push_back(std::make_unique<Pipe>(Pipe{far, near, 1, {}, 0, false, false, accepted_++}));
  }

  std::unique_ptr<std::byte[]> buffer() {
    if (free_.empty()) {
      return std::make_unique_for_overwrite<std::byte[]>(kChunk);
    }
    auto bytes = std::move(free_.back());
    free_.pop_back();
    return bytes;
  }

  void read(Pipe& pipe) {
    Chunk chunk;
    chunk.bytes = buffer();
    const ssize_t got = ::recv(pipe.from, chunk.bytes.get(), kChunk, 0);
    if (got <= 0) {
      if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
        pipe.over = true;
        ::shutdown(pipe.to, SHUT_WR);
      }
      free_.push_back(std::move(chunk.bytes));
      return;
    }
    const atl::TimePoint present = atl::now();
    if (pipe.number < carried_.size()) {
      carried_[pipe.number] += static_cast<std::uint64_t>(got);
    }
    chunk.size = static_cast<std::size_t>(got);
    chunk.due = present + delay_;
    if (rate_ > 0) {
      atl::TimePoint& free_at = free_at_[static_cast<std::size_t>(pipe.direction)];
      free_at = std::max(free_at, present) + atl::from_seconds(static_cast<double>(got) / rate_);
      chunk.due = free_at + delay_;
    }
    pipe.held += chunk.size;
    pipe.queue.push_back(std::move(chunk));
  }

  void write(Pipe& pipe, atl::TimePoint present) {
    pipe.blocked = false;
    while (!pipe.queue.empty() && pipe.queue.front().due <= present) {
      Chunk& chunk = pipe.queue.front();
      const ssize_t sent = ::send(pipe.to, chunk.bytes.get() + chunk.sent, chunk.size - chunk.sent, MSG_NOSIGNAL);
      if (sent < 0) {
        pipe.blocked = errno == EAGAIN;
        if (!pipe.blocked) {
          pipe.queue.clear();
          pipe.held = 0;
        }
        return;
      }
      chunk.sent += static_cast<std::size_t>(sent);
      if (chunk.sent == chunk.size) {
        pipe.held -= chunk.size;
        free_.push_back(std::move(chunk.bytes));
        pipe.queue.pop_front();
      }
    }
  }

  // A sender is heard no further ahead than the rate: else its own queue would lie here.
  [[nodiscard]] bool may_read(const Pipe& pipe, atl::TimePoint present) const {
    const bool ahead = rate_ > 0 && free_at_[static_cast<std::size_t>(pipe.direction)] >
                                        present + std::max<atl::Duration>(delay_ / 4, std::chrono::milliseconds(10));
    return !pipe.over && !ahead && pipe.held < kMostInFlight;
  }

  void run() {
    std::vector<pollfd> items;
    while (true) {
      const atl::TimePoint present = atl::now();
      atl::TimePoint next = present + std::chrono::milliseconds(50);
      items.assign({{stop_, POLLIN, 0}, {listener_, POLLIN, 0}});
      for (const auto& pipe : pipes_) {
        write(*pipe, present);
        const bool reads = may_read(*pipe, present);
        if (!reads && !pipe->over && pipe->held < kMostInFlight) {
          next = std::min(next, present + std::chrono::milliseconds(2));
        }
        items.push_back({reads ? pipe->from : -1, POLLIN, 0});
        items.push_back({pipe->blocked ? pipe->to : -1, POLLOUT, 0});
        if (!pipe->queue.empty() && !pipe->blocked) {
          next = std::min(next, pipe->queue.front().due);
        }
      }
      const auto wait = std::max<atl::Duration>(next - atl::now(), atl::Duration::zero());
      const timespec limit{wait.count() / 1'000'000'000, wait.count() % 1'000'000'000};
      ::ppoll(items.data(), items.size(), &limit, nullptr);
      if (items[0].revents != 0) {
        return;
      }
      const std::size_t known = pipes_.size();
      for (std::size_t i = 0; i < known; ++i) {
        if (items[2 + 2 * i].revents != 0) {
          read(*pipes_[i]);
        }
      }
      if (items[1].revents != 0) {
        accept();
      }
    }
  }

  const std::uint16_t target_;
  const atl::Duration delay_;
  std::atomic<double> rate_;
  const int stop_;
  int listener_ = -1;
  std::string address_;
  std::vector<std::unique_ptr<Pipe>> pipes_;
  std::vector<std::unique_ptr<std::byte[]>> free_;
  std::array<atl::TimePoint, 2> free_at_{};
  std::array<std::atomic<std::uint64_t>, 2 * kCounted> carried_{};
  std::size_t accepted_ = 0;  // directions
  std::thread thread_;
};

}  // namespace atl_test
