// Connections through a proxy, by libcurl: it speaks SOCKS5 and HTTP's CONNECT with the proxy, names and passwords included, and what is
// left is a socket whose other end is the address that was asked for.
//
// Any number at once, without a thread: `fd` is readable when there is something to do. A proxy that takes a connection and says nothing
// costs the patience of its dial and no more. What fails says why in one line for people, and whom to ask; no line has a password.
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "transport/base/address.hpp"
#include "transport/base/file_descriptor.hpp"
#include "transport/base/result.hpp"
#include "transport/base/time.hpp"
#include "transport/proxy/proxy_rules.hpp"

namespace atl {

class ProxyDials {
 public:
  ProxyDials();
  ~ProxyDials();
  ProxyDials(const ProxyDials&) = delete;
  ProxyDials& operator=(const ProxyDials&) = delete;

  // A dial is known by its owner's number. What comes of it, a failure to begin included, is said by `advance`.
  void begin(std::uint64_t number, const Proxy& proxy, const Address& target, Duration patience);
  // Nobody waits for it any more.
  void drop(std::uint64_t number);

  struct Dialled {
    std::uint64_t number = 0;
    // Non-blocking, and not inherited by programs that are started. Errors: unavailable.
    Result<FileDescriptor> socket;
  };
  // What ended since the last call.
  std::vector<Dialled> advance();
  // Readable when there may be something to advance.
  [[nodiscard]] int fd() const;
  // When to advance at the latest; TimePoint::max() without a dial.
  [[nodiscard]] TimePoint deadline() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// One of them, waited for. Errors: unavailable.
Result<FileDescriptor> dial_through(const Proxy& proxy, const Address& target, Duration patience);

}  // namespace atl
