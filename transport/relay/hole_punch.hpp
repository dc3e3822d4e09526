// One attempt of an island to reach a peer through both their routers: it asks a relay for the peer's address (hole_words.hpp), dials the
// peer at the moment that the relay named while the peer dials it, and lets nothing pass before the peer has shown the relay's token.
//
// All its sockets have one local port, so that its router gives them one public port. A dial that is refused is made again in step with
// the peer's, for a few seconds; the kernel repeats one that nobody answers. For as long it listens at that port, too, where no router is
// in the way: whoever comes from another address than the peer's is closed without a word. Never blocks, except for the look-up of the
// relay's name. Threads: one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "transport/base/file_descriptor.hpp"
#include "transport/base/ids.hpp"
#include "transport/base/result.hpp"
#include "transport/base/time.hpp"
#include "transport/control/way.hpp"
#include "transport/relay/hole_words.hpp"

namespace atl {

class HolePunch {
 public:
  // At the relay "tcp://host:port", with the pass that it gave; `poll` is an epoll instance whose events of `number` lead to `advance`.
  // Errors: unavailable if the relay cannot be dialled.
  struct Whom {
    std::string relay;
    std::string request;  // relay_pass.hpp
    IslandId self;
    IslandId peer;
    std::uint16_t own_port = 0;  // that it dials from; 0: any free one
  };
  static Result<HolePunch> begin(const Whom& whom, int poll, std::uint64_t number);

  enum class State {
    works,
    waits,   // for the peer to come to the relay: for as long as that lets it
    open,    // `take` has the connection
    failed,  // see `failure`
  };
  State advance(TimePoint now);
  // When to advance at the latest.
  [[nodiscard]] TimePoint deadline() const { return deadline_; }
  // Of one that is open; it is not in the epoll instance any more.
  FileDescriptor take() { return std::move(far_); }
  // not_tried: the two did not meet at the relay, which says nothing of their routers.
  [[nodiscard]] NotPunched failure() const { return failure_; }
  [[nodiscard]] const std::string& why() const { return why_; }
  // Where the relay saw this port of the machine: with its own port, then with its second one, where that could be dialled.
  [[nodiscard]] const std::vector<SeenAddress>& sightings() const { return sightings_; }
  [[nodiscard]] std::uint16_t second_port() const { return seen_.second_port; }
  [[nodiscard]] std::uint16_t own_port() const;

 private:
  enum class Step { greets, asks, compares, waits, pauses, dials, proves, open, failed };
  HolePunch(Whom whom, int poll, std::uint64_t number) : whom_(std::move(whom)), poll_(poll), number_(number) {}

  // Each returns whether there is more to do at once.
  bool take_step(TimePoint now);
  bool greet();
  bool ask(TimePoint now);
  bool compare(TimePoint now);
  bool hear_begin(TimePoint now);
  bool dial();
  bool look_at_dial(TimePoint now);
  void accept_peer();
  bool prove();

  bool fail(NotPunched failure, const std::string& why);
  bool say_ready(HoleReady ready);
  // Until `whole` has come; false: not yet, or it failed.
  bool hear(const FileDescriptor& socket, std::size_t whole, const std::string& who);
  Result<FileDescriptor> socket_from_own_port();
  void watch(const FileDescriptor& socket) const;

  Whom whom_;
  int poll_;
  std::uint64_t number_;
  Step step_ = Step::greets;
  Bytes relay_address_;  // a sockaddr
  Bytes own_port_;       // another: where all sockets are bound
  FileDescriptor relay_;
  FileDescriptor second_;
  FileDescriptor listener_;
  FileDescriptor far_;
  bool said_ = false;
  Bytes heard_;
  HoleSeen seen_;
  std::vector<SeenAddress> sightings_;
  HoleBegin begin_;
  TimePoint deadline_;
  TimePoint first_dial_;
  NotPunched failure_ = NotPunched::not_tried;
  std::string why_;
};

}  // namespace atl
