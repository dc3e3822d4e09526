// The emulator with real sockets of this machine. Its pace on virtual time is emulated_stream_test.cpp's; the bounds here allow for a busy
// machine.
#include "transport/emulated/link_emulator.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/catch.hpp"
#include "tests/refused_calls.hpp"
#include "tests/skip.hpp"
#include "transport/base/file_descriptor.hpp"

namespace of_link_emulator_test {

using namespace atl;
using namespace std::chrono_literals;

namespace {

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

// A server's socket of an island.
struct Listener {
  Listener() : socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = loopback(0);
    socklen_t length = sizeof address;
    REQUIRE(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), length) == 0);
    REQUIRE(::listen(socket.get(), 16) == 0);
    ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &length);
    port = ntohs(address.sin_port);
  }
  [[nodiscard]] FileDescriptor accept() const {
    FileDescriptor accepted(::accept(socket.get(), nullptr, nullptr));
    no_delay(accepted);
    return accepted;
  }
  static void no_delay(const FileDescriptor& socket) {
    const int one = 1;
    ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  }
  FileDescriptor socket;
  std::uint16_t port = 0;
};

FileDescriptor dial(std::uint16_t port) {
  FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in address = loopback(port);
  REQUIRE(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  const timeval patience{30, 0};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  Listener::no_delay(socket);
  return socket;
}

// Two islands, the first of which dials the second.
struct TwoIslands {
  explicit TwoIslands(const char* terms) : emulator(LinkEmulator::start(parse_link(terms).value()).value()) {
    first = emulator->add_line();
    second = emulator->add_line();
    door = emulator->add_door(second, listener.port, first).value();
  }
  void connect() {
    near = dial(door);
    far = listener.accept();
  }
  Listener listener;
  std::unique_ptr<LinkEmulator> emulator;
  std::size_t first = 0;
  std::size_t second = 0;
  std::uint16_t door = 0;
  FileDescriptor near;
  FileDescriptor far;
};

// Byte i of what is sent in the tests.
char byte_at(std::uint64_t i) { return static_cast<char>((i * 2654435761U) >> 13); }

void send_all(int socket, std::uint64_t bytes) {
  std::vector<char> block(64 << 10);
  for (std::uint64_t at = 0; at < bytes;) {
    const std::size_t some = std::min<std::uint64_t>(block.size(), bytes - at);
    for (std::size_t i = 0; i < some; ++i) {
      block[i] = byte_at(at + i);
    }
    for (std::size_t sent = 0; sent < some;) {
      const ssize_t now_sent = ::send(socket, block.data() + sent, some - sent, MSG_NOSIGNAL);
      if (now_sent <= 0) {
        return;
      }
      sent += static_cast<std::size_t>(now_sent);
    }
    at += some;
  }
}

// How many came, and whether each was the right one.
std::pair<std::uint64_t, bool> receive_all(int socket) {
  std::vector<char> block(256 << 10);
  std::uint64_t came = 0;
  bool right = true;
  while (true) {
    const ssize_t some = ::recv(socket, block.data(), block.size(), 0);
    if (some <= 0) {
      return {came, right && some == 0};
    }
    for (std::size_t i = 0; i < static_cast<std::size_t>(some); ++i) {
      right = right && block[i] == byte_at(came + i);
    }
    came += static_cast<std::uint64_t>(some);
  }
}

// The shortest of eight round trips of a byte.
Duration shortest_round_trip(TwoIslands& islands) {
  islands.connect();
  std::thread echo([&] {
    char byte = 0;
    while (::recv(islands.far.get(), &byte, 1, 0) == 1 && ::send(islands.far.get(), &byte, 1, MSG_NOSIGNAL) == 1) {
    }
  });
  Duration shortest = 1h;
  for (int i = 0; i < 8; ++i) {
    const TimePoint start = now();
    char byte = 'x';
    REQUIRE(::send(islands.near.get(), &byte, 1, MSG_NOSIGNAL) == 1);
    REQUIRE(::recv(islands.near.get(), &byte, 1, 0) == 1);
    shortest = std::min(shortest, now() - start);
  }
  ::shutdown(islands.near.get(), SHUT_WR);
  echo.join();
  return shortest;
}

}  // namespace

TEST_CASE("link emulator: a round trip takes what the terms say") {
  TwoIslands islands("60ms,1gbit,0");
  const Duration shortest = shortest_round_trip(islands);
  CHECK(seconds(shortest) >= 0.060);
  CHECK(seconds(shortest) <= 0.072);
}

TEST_CASE("link emulator: a round trip takes as long where epoll_pwait2 is missing or refused") {
  for (const int number : {ENOSYS, EPERM}) {
    const int code = atl_test::exit_code_without({SYS_epoll_pwait2}, number, [] {
      ::alarm(60);
      TwoIslands islands("60ms,1gbit,0");
      const double shortest = seconds(shortest_round_trip(islands));
      return shortest < 0.060 ? 1 : shortest > 0.072 ? 2 : 0;
    });
    if (code == atl_test::kNoFilters) {
      ATL_SKIP("this system has no seccomp filters");
    }
    CHECK(code == 0);
  }
}

TEST_CASE("link emulator: both directions carry their rate at once, every byte in its place, and an end is passed on") {
  TwoIslands islands("20ms,80mbit,0");
  islands.connect();
  constexpr std::uint64_t kBytes = 10'000'000;  // a second
  const TimePoint start = now();
  std::thread there([&] {
    send_all(islands.near.get(), kBytes);
    ::shutdown(islands.near.get(), SHUT_WR);
  });
  std::thread back([&] {
    send_all(islands.far.get(), kBytes);
    ::shutdown(islands.far.get(), SHUT_WR);
  });
  std::pair<std::uint64_t, bool> far;
  std::thread reader([&] { far = receive_all(islands.far.get()); });
  const auto near = receive_all(islands.near.get());
  reader.join();
  const double took = seconds(now() - start);
  there.join();
  back.join();
  CHECK(near == std::pair(kBytes, true));
  CHECK(far == std::pair(kBytes, true));
  CHECK(took >= 1.0);
  CHECK(took <= 1.5);
}

TEST_CASE("link emulator: with loss every byte comes all the same") {
  TwoIslands islands("4ms,max,2%");
  islands.connect();
  std::thread there([&] {
    send_all(islands.near.get(), 1'000'000);
    ::shutdown(islands.near.get(), SHUT_WR);
  });
  CHECK(receive_all(islands.far.get()) == std::pair<std::uint64_t, bool>(1'000'000, true));
  there.join();
}

TEST_CASE("link emulator: many small messages fill no pipe for good") {
  TwoIslands islands("30ms,max,0");
  islands.connect();
  constexpr std::uint64_t kMessages = 20'000;
  std::thread there([&] {
    for (std::uint64_t i = 0; i < kMessages; ++i) {
      const char byte = byte_at(i);
      ::send(islands.near.get(), &byte, 1, MSG_NOSIGNAL);
    }
    ::shutdown(islands.near.get(), SHUT_WR);
  });
  CHECK(receive_all(islands.far.get()) == std::pair(kMessages, true));
  there.join();
}

TEST_CASE("link emulator: whose island does not listen hears it a round trip later, and one that goes takes the other with it") {
  std::unique_ptr<LinkEmulator> emulator = LinkEmulator::start(parse_link("50ms,1gbit,0").value()).value();
  const std::size_t line = emulator->add_line();
  std::uint16_t nobody = 0;
  {
    const Listener gone;
    nobody = gone.port;
  }
  const TimePoint start = now();
  const FileDescriptor refused = dial(emulator->add_door(line, nobody, line).value());
  char byte = 0;
  CHECK(::recv(refused.get(), &byte, 1, 0) <= 0);
  CHECK(seconds(now() - start) >= 0.050);
  CHECK(!emulator->add_door(7, nobody, line));

  TwoIslands islands("50ms,1gbit,0");
  islands.connect();
  const linger at_once{1, 0};
  ::setsockopt(islands.far.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  islands.far = FileDescriptor();
  CHECK(::recv(islands.near.get(), &byte, 1, 0) <= 0);
}

TEST_CASE("link emulator: an emulator that goes ends its connections") {
  TwoIslands islands("1s,1gbit,0");
  const FileDescriptor waits = dial(islands.door);
  islands.emulator.reset();
  char byte = 0;
  CHECK(::recv(waits.get(), &byte, 1, 0) <= 0);
}

}  // namespace of_link_emulator_test
