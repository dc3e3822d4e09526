// What the link asks of the kernel for its connections.
//
// ZeroMQ opens and owns them; a received message tells the descriptor of its connection. An option that the kernel refuses stays as it was:
// each of them only makes things better. Buffers are left to the kernel, which sizes them by the path (net.ipv4.tcp_rmem, tcp_wmem); a size
// that is set would end that.
// Threads: any.
#pragma once

#include <cstdint>
#include <string>

namespace atl {

// No more than this lies in the kernel beyond what the path holds: more would only keep later frames waiting.
inline constexpr int kUnsentBytes = 512 << 10;
void limit_unsent(int descriptor);

// For a path with a long round trip: BBR where the kernel has it and lets us. It does not take each loss for a full queue.
void use_far_congestion_control(int descriptor);

// Whether what this side sends over a connection, or its acknowledgements, wait in a queue of the path: its round trips, as the kernel
// smooths them, are half as long again as the shortest, and some milliseconds more.
bool waits_in_queue(int descriptor);

// Bytes that have come over a connection; 0 of a descriptor that is none.
std::uint64_t received_over(int descriptor);

// For people.
struct TcpFacts {
  std::string usual;             // congestion control of a near path: "cubic"
  std::string far;               // of a far one: "bbr", or the usual
  std::uint64_t send_bytes = 0;  // at most in one connection's buffer, as the kernel sizes it; 0: not known
  std::uint64_t receive_bytes = 0;
};
TcpFacts tcp_facts();

}  // namespace atl
