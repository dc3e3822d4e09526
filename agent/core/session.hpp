// The link to the coordinator: who this island says it is, whether it was welcomed, and when it speaks again.
//
// A message may be lost at any time. So the island says hello until it is welcomed, then its heartbeat, and now and then everything that
// is not answered; what that is the core knows.
// Threads: owned by one Core.
#pragma once

#include <utility>
#include <vector>

#include "agent/core/outbox.hpp"
#include "agent/core/settings.hpp"
#include "transport/base/time.hpp"
#include "transport/control/message.hpp"

namespace atl::agent {

class Session {
 public:
  // out outlives it.
  Session(Identity identity, const Settings& settings, TimePoint now, Outbox& out);

  [[nodiscard]] const Identity& identity() const { return identity_; }
  [[nodiscard]] const IslandId& island() const { return identity_.island; }
  [[nodiscard]] bool welcomed() const { return out_->linked(); }
  // How long a peer in an exchange may deliver nothing, as the coordinator says.
  [[nodiscard]] Duration stall_after() const { return stall_after_; }

  // The other islands reach this one there from now on.
  void move_to(const std::string& bulk_address) { identity_.bulk_address = bulk_address; }
  // Its owner lets it send so many bits a second from now on.
  void set_uplink(double bits_per_second) { identity_.uplink_bits_per_second = bits_per_second; }
  void set_kernels(const std::string& text) { identity_.kernels = text; }
  // The link was lost, or the coordinator refused this island: it has to be welcomed again.
  void lose(TimePoint now);
  void reset() { out_->set_linked(false); }
  // Whether the coordinator is the newest that this island has met. An older one, started from a copy of the newer one's store, leads
  // nobody: it hears of the newer one with the next hello, and stops.
  [[nodiscard]] bool heeds(const Generation& generation) const { return !(generation < identity_.generation); }
  // True once: then the island's owner is told.
  bool first_oddity() { return !std::exchange(told_of_oddity_, true); }
  // True if it is newer than any before: that is to be remembered.
  bool note(const Generation& generation);
  // True if the island was not welcome before: then the events that were kept for people are said.
  bool welcome(const Welcome& message);

  // The next hello is said then, not before.
  void postpone_hello(TimePoint time) { next_hello_ = time; }
  void say_hello(TimePoint now, std::vector<HeldRun> runs);
  void beat(TimePoint now, std::vector<IslandReport> reports);
  // What is not answered is said now; the next time is due later.
  void note_resend(TimePoint now) { next_resend_ = now + resend_; }

  [[nodiscard]] bool hello_due(TimePoint now) const { return !welcomed() && now >= next_hello_; }
  [[nodiscard]] bool heartbeat_due(TimePoint now) const { return welcomed() && now >= next_heartbeat_; }
  [[nodiscard]] bool resend_due(TimePoint now) const { return welcomed() && now >= next_resend_; }
  [[nodiscard]] TimePoint next_deadline() const;

 private:
  Identity identity_;
  Outbox* out_;
  Duration hello_again_;
  Duration resend_;
  Duration heartbeat_ = std::chrono::seconds(1);
  Duration stall_after_ = std::chrono::seconds(20);
  TimePoint next_hello_;
  TimePoint next_heartbeat_;
  TimePoint next_resend_;
  bool told_of_oddity_ = false;
};

}  // namespace atl::agent
