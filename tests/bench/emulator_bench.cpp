// What the emulated path carries, on this machine: bytes a second without delay beside a bare loopback connection, CPU seconds of the
// emulator a GB, and for some terms the round trip and the rate that a connection sees.
//   bench_emulator [seconds=3]
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "transport/base/file_descriptor.hpp"
#include "transport/emulated/link_emulator.hpp"

namespace {

using namespace atl;

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

void no_delay(int socket) {
  const int one = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

struct Ends {
  FileDescriptor near;
  FileDescriptor far;
};

// A connection through the emulator, or past it.
Ends connect_through(LinkEmulator* emulator) {
  FileDescriptor listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = loopback(0);
  socklen_t length = sizeof address;
  if (::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 || ::listen(listener.get(), 1) != 0) {
    std::printf("cannot listen on loopback\n");
    std::exit(1);
  }
  ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length);
  if (emulator != nullptr) {
    const std::size_t near = emulator->add_line();
    address = loopback(emulator->add_door(emulator->add_line(), ntohs(address.sin_port), near).value());
  }
  Ends ends{FileDescriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), FileDescriptor()};
  if (::connect(ends.near.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) {
    std::printf("cannot connect\n");
    std::exit(1);
  }
  ends.far = FileDescriptor(::accept(listener.get(), nullptr, nullptr));
  no_delay(ends.near.get());
  no_delay(ends.far.get());
  return ends;
}

double cpu_seconds(int who) {
  rusage usage{};
  ::getrusage(who, &usage);
  const auto of = [](const timeval& time) { return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec); };
  return of(usage.ru_utime) + of(usage.ru_stime);
}

struct Carried {
  double bytes_per_second = 0;
  double sender_cpu = 0;  // seconds a GB, as the next two
  double receiver_cpu = 0;
  double between_cpu = 0;
};

// From the first byte's arrival on, for so long.
Carried carry(const Ends& ends, double for_seconds) {
  double sender_cpu = 0;
  const double before = cpu_seconds(RUSAGE_SELF);
  std::thread sender([&] {
    const std::vector<char> block(1 << 20, 'x');
    while (::send(ends.near.get(), block.data(), block.size(), MSG_NOSIGNAL) > 0) {
    }
    sender_cpu = cpu_seconds(RUSAGE_THREAD);
  });
  const double receiver_before = cpu_seconds(RUSAGE_THREAD);
  std::vector<char> block(1 << 20);
  const TimePoint first = ::recv(ends.far.get(), block.data(), 1, 0) == 1 ? now() : TimePoint{};
  std::uint64_t bytes = 1;
  TimePoint last = first;
  while (seconds(last - first) < for_seconds) {
    bytes += static_cast<std::uint64_t>(std::max<ssize_t>(0, ::recv(ends.far.get(), block.data(), block.size(), 0)));
    last = now();
  }
  ::shutdown(ends.far.get(), SHUT_RDWR);
  ::shutdown(ends.near.get(), SHUT_RDWR);
  sender.join();
  const double receiver_cpu = cpu_seconds(RUSAGE_THREAD) - receiver_before;
  const double gb = static_cast<double>(bytes) / 1e9;
  const double all = cpu_seconds(RUSAGE_SELF) - before;
  return {static_cast<double>(bytes) / seconds(last - first), sender_cpu / gb, receiver_cpu / gb, (all - sender_cpu - receiver_cpu) / gb};
}

// The shortest of twenty.
Duration round_trip(const Ends& ends) {
  std::thread echo([&] {
    char byte = 0;
    for (int i = 0; i < 20 && ::recv(ends.far.get(), &byte, 1, 0) == 1; ++i) {
      ::send(ends.far.get(), &byte, 1, MSG_NOSIGNAL);
    }
  });
  Duration shortest = std::chrono::hours(1);
  char byte = 'x';
  for (int i = 0; i < 20; ++i) {
    const TimePoint start = now();
    if (::send(ends.near.get(), &byte, 1, MSG_NOSIGNAL) != 1 || ::recv(ends.near.get(), &byte, 1, 0) != 1) {
      std::printf("the connection broke\n");
      std::exit(1);
    }
    shortest = std::min(shortest, now() - start);
  }
  echo.join();
  return shortest;
}

void print(const char* what, const Carried& carried) {
  std::printf("%-28s %6.2f GB/s   CPU s/GB: sender %.2f, receiver %.2f, between %.2f\n", what, carried.bytes_per_second / 1e9,
              carried.sender_cpu, carried.receiver_cpu, carried.between_cpu);
}

}  // namespace

int main(int argc, char** argv) {
  const double for_seconds = argc > 1 ? std::strtod(argv[1], nullptr) : 3;
  if (!(for_seconds > 0 && for_seconds <= 60)) {
    std::printf("usage: bench_emulator [seconds, at most 60]\n");
    return 2;
  }
  std::printf("%u cores; one connection, one way\n", std::thread::hardware_concurrency());
  print("bare loopback", carry(connect_through(nullptr), for_seconds));
  for (const char* text : {"0,max,0", "20ms,max,0", "100ms,max,0", "300ms,max,0"}) {
    const auto emulator = LinkEmulator::start(parse_link(text).value()).value();
    print(text, carry(connect_through(emulator.get()), for_seconds));
  }
  std::printf("%-18s %12s %8s %14s %8s\n", "terms", "round trip", "off by", "Mbit/s", "off by");
  for (const char* text : {"0.2ms,100mbit,0", "20ms,100mbit,0", "300ms,100mbit,0", "0.2ms,1gbit,0", "20ms,1gbit,0", "100ms,1gbit,0",
                           "300ms,1gbit,0", "100ms,5gbit,0"}) {
    const LinkTerms terms = parse_link(text).value();
    const auto emulator = LinkEmulator::start(terms).value();
    const double trip = seconds(round_trip(connect_through(emulator.get())));
    const double rate = carry(connect_through(emulator.get()), for_seconds).bytes_per_second * 8;
    std::printf("%-18s %9.3f ms %7.2f%% %14.2f %7.2f%%\n", text, trip * 1e3, (trip / seconds(terms.round_trip) - 1) * 100, rate / 1e6,
                (rate / terms.bits_per_second - 1) * 100);
  }
  return 0;
}
