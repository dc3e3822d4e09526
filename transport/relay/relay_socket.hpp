// A relay's listening sockets and the connections that they accept, as descriptors.
// Threads: any.
#pragma once

#include <string>

#include "transport/base/address.hpp"
#include "transport/base/file_descriptor.hpp"
#include "transport/base/result.hpp"
#include "transport/base/time.hpp"
#include "transport/relay/hole_words.hpp"

namespace atl {

// Non-blocking. Errors: invalid_argument for an address that this machine does not have; conflict if the port is in use; io.
Result<FileDescriptor> listen_at(const Address& address);
// "tcp://0.0.0.0:4402".
std::string address_of(int listener);

struct Accepted {
  FileDescriptor socket;  // non-blocking; not open: there is none at the moment
  std::string host;
  SeenAddress seen;  // where it comes from
};
Accepted accept_from(int listener);
// The round trip of a connection, as the kernel has measured it; 0: not known.
Duration round_trip_of(int socket);

}  // namespace atl
