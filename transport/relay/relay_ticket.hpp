// A relay's ticket: what a coordinator must know to send its islands there. One line of a file that only its owner reads:
//   atoll-relay NAME tcp://HOST:PORT SECRET      the secret is 64 hexadecimal digits
// Whoever has it can let islands in; what islands say to each other it does not open.
// Threads: pure functions, and files.
#pragma once

#include <filesystem>
#include <string>

#include "transport/base/bytes.hpp"
#include "transport/base/result.hpp"

namespace atl {

struct RelayTicket {
  std::string name;     // for people: "frankfurt"
  std::string address;  // "tcp://host:port", where islands reach it
  Bytes secret;
  bool carries = true;  // false, of a coordinator's own: it helps to punch holes only. Not in a file
  friend bool operator==(const RelayTicket&, const RelayTicket&) = default;
};

// The secret of the relay with this secret key (40 characters Z85). One-way: it does not give the key away.
Bytes relay_secret(const std::string& secret_key);
std::string to_text(const RelayTicket& ticket);
// Errors: invalid_argument saying what is expected.
Result<RelayTicket> ticket_from_text(std::string_view text);
// Errors: not_found; unauthorized if others may read the file; invalid_argument; io.
Result<RelayTicket> read_ticket(const std::filesystem::path& path);
// Replaces the file as a whole; only its owner can read it. Errors: io.
Status write_ticket(const std::filesystem::path& path, const RelayTicket& ticket);

}  // namespace atl
