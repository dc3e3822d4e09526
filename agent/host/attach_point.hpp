// Where a trainer that its user started joins an island: in a notebook, under Slurm, in a debugger.
//
// The agent starts a stand-in, `atoll trainer --attach SOCKET`, as it would start a trainer. The stand-in binds SOCKET (a local stream
// socket that only this user can open) and waits. The first program of this user that connects is told the path of the island link, as
// one line, and keeps the connection; from then on it is the trainer, and the stand-in ends when it does. The next stand-in waits for the
// next program, or for the same one again.
// Threads: `stand_in` belongs in a process of its own.
#pragma once

#include <filesystem>
#include <string>

#include "transport/base/result.hpp"

namespace atl {

// The socket of a trainer's name: STATE/trainers/NAME.
std::filesystem::path attach_socket(const std::filesystem::path& state, const std::string& name);

// Errors: invalid_argument if the system takes no path of this length; says what to do.
Status check_attach_socket(const std::string& socket);

// Returns when the program that joined has ended, its status always 1: nobody asked it to.
// Errors: invalid_argument for a path that is too long; io.
Result<int> stand_in(const std::string& socket, const std::string& link);

}  // namespace atl
