// Which of some processes of this machine has made a connection: by the kernel's tables of TCP's connections and of a process's files.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace atl {

// The place among `processes` of the one that has a TCP connection from its local port `from` to port `to` of this machine; nothing if it
// is none of them, or the connection is gone. The processes must be this user's. Cost: reads /proc/net/tcp and the processes' descriptors.
// Threads: any.
std::optional<std::size_t> owner_of_connection(std::uint16_t from, std::uint16_t to, std::span<const pid_t> processes);

}  // namespace atl
