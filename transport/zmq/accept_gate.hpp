// Keeps a listening ZeroMQ socket from being flooded: whoever has proven nothing yet is bounded in number and in time.
//
// ZeroMQ accepts everybody and has no limit of its own; with the process's descriptors used up nothing else can be opened, no checkpoint
// and no ledger. The gate listens to the socket's monitor, keeps the connections in a book (connection_book.hpp), and shuts those down that
// the book gives up; ZeroMQ then closes them as it does with every connection that ends. There are never more strangers than a quarter of
// the descriptors that the process may have, so that the rest stays for files and for known peers. Threads: that of the socket.
#pragma once

#include <optional>
#include <string>

#include "transport/base/connection_book.hpp"
#include "transport/base/result.hpp"
#include "transport/base/time.hpp"

namespace atl {

inline constexpr std::size_t kMostStrangers = 256;
inline constexpr Duration kStrangerPatience = std::chrono::seconds(15);
inline constexpr Duration kLoudLook = std::chrono::milliseconds(250);

class AcceptGate {
 public:
  // Of a ROUTER socket that is not bound yet. `name` is for the log and for people: "the bulk link". Errors: io.
  static Result<AcceptGate> open(void* context, void* socket, std::string name);
  ~AcceptGate();
  AcceptGate(AcceptGate&& other) noexcept;
  AcceptGate& operator=(AcceptGate&& other) = delete;
  AcceptGate(const AcceptGate&) = delete;
  AcceptGate& operator=(const AcceptGate&) = delete;

  // The monitor's socket, to be polled with ZMQ_POLLIN, and its descriptor for a poll loop.
  [[nodiscard]] void* monitor() const { return monitor_; }
  [[nodiscard]] int fd() const;
  // Whoever says more than so many bytes within kLoudLook is closed, proven or not; 0: nobody is. For a socket without a limit of its own.
  void set_most_said(std::uint64_t bytes) { most_said_ = bytes; }
  // Reads what happened and closes whom it must. Cheap when nothing did.
  void pump(TimePoint now);
  // The descriptor is that of the message's connection (ZmqMessage::source).
  void prove(int descriptor, TimePoint now) {
    pump(now);  // what came before the message: the number may have been another connection's
    book_.prove(descriptor);
  }
  void doubt(int descriptor, TimePoint now) { book_.doubt(descriptor, now); }
  // When to pump at the latest.
  [[nodiscard]] std::optional<TimePoint> next_deadline() const { return book_.next_deadline(); }

 private:
  AcceptGate(void* socket, void* monitor, std::string name);
  [[nodiscard]] std::string proved_nothing() const;
  void shut(int descriptor, TimePoint now, const std::string& why);

  void* socket_;
  void* monitor_;
  std::string name_;
  ConnectionBook book_;
  std::optional<TimePoint> told_;
  std::uint64_t most_said_ = 0;
  TimePoint looked_{};
};

}  // namespace atl
