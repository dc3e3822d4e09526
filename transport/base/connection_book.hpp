// Who is connected to a listening socket, and has shown nothing yet: they are few, and not for long.
//
// A connection is a stranger until its owner says that it has proven something (`prove`). There are at most `most_strangers`; one more
// closes the oldest stranger of the address that has most of them, so that a flood from one address costs others nothing. A stranger that
// has proven nothing after `patience` is closed, too. Proven connections are closed by this only
// for what they bring (`take_loud`). Cost: 100 bytes a connection; O(log n) a
// call, O(strangers) where one must go. Threads: a plain value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "transport/base/time.hpp"

namespace atl {

class ConnectionBook {
 public:
  ConnectionBook(std::size_t most_strangers, Duration patience) : most_strangers_(most_strangers), patience_(patience) {}

  // A connection from that address (its host, without a port) under this descriptor. Returns whom to close for it, if anybody; that one is
  // out of the book.
  std::optional<int> accepted(int descriptor, std::string host, TimePoint now);
  void gone(int descriptor);
  void prove(int descriptor);
  // It turned out that it has proven nothing: its patience begins now.
  void doubt(int descriptor, TimePoint now);
  // Strangers whose patience is over; they are out of the book.
  std::vector<int> take_expired(TimePoint now);

  // Notes what has come over each connection so far; those over which more than `most` has come since the last time.
  std::vector<int> take_loud(std::uint64_t most, const std::function<std::uint64_t(int descriptor)>& received);

  [[nodiscard]] std::optional<TimePoint> next_deadline() const;
  [[nodiscard]] std::size_t strangers() const { return strangers_; }

 private:
  struct Entry {
    std::string host;
    TimePoint since;
    bool proven = false;
    std::uint64_t received = 0;  // bytes, when it was looked at last
  };
  [[nodiscard]] int least_wanted() const;

  std::size_t most_strangers_;
  Duration patience_;
  std::map<int, Entry> entries_;
  std::size_t strangers_ = 0;
};

}  // namespace atl
