#include "transport/zmq/tcp_tuning.hpp"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <sstream>

#include "transport/base/file_descriptor.hpp"

namespace atl {
namespace {

constexpr std::string_view kFar = "bbr";

bool use(int descriptor, std::string_view algorithm) {
  return ::setsockopt(descriptor, IPPROTO_TCP, TCP_CONGESTION, algorithm.data(), static_cast<socklen_t>(algorithm.size())) == 0;
}

// All zero of a descriptor that is no TCP connection.
tcp_info info_of(int descriptor) {
  tcp_info info{};
  socklen_t length = sizeof info;
  return ::getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &length) == 0 ? info : tcp_info{};
}

// The last of the numbers in a file of /proc: the largest buffer.
std::uint64_t last_number(const char* path) {
  std::ifstream file(path);
  std::uint64_t last = 0;
  for (std::uint64_t number = 0; file >> number;) {
    last = number;
  }
  return last;
}

}  // namespace

void limit_unsent(int descriptor) { ::setsockopt(descriptor, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kUnsentBytes, sizeof kUnsentBytes); }

bool waits_in_queue(int descriptor) {
  constexpr std::uint32_t kJitter = 5'000;  // microseconds
  const tcp_info info = info_of(descriptor);
  const std::uint64_t shortest = info.tcpi_min_rtt;
  return shortest > 0 && info.tcpi_rtt >= shortest + shortest / 2 + kJitter;
}

std::uint64_t received_over(int descriptor) { return info_of(descriptor).tcpi_bytes_received; }

void use_far_congestion_control(int descriptor) { use(descriptor, kFar); }

TcpFacts tcp_facts() {
  TcpFacts facts;
  const FileDescriptor probe(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  std::array<char, 32> name{};
  socklen_t length = name.size() - 1;
  if (probe.get() >= 0 && ::getsockopt(probe.get(), IPPROTO_TCP, TCP_CONGESTION, name.data(), &length) == 0) {
    facts.usual = name.data();
  }
  facts.far = probe.get() >= 0 && use(probe.get(), kFar) ? std::string(kFar) : facts.usual;
  facts.send_bytes = last_number("/proc/sys/net/ipv4/tcp_wmem");
  facts.receive_bytes = last_number("/proc/sys/net/ipv4/tcp_rmem");
  return facts;
}

}  // namespace atl
