#include "agent/core/session.hpp"

#include <algorithm>

namespace atl::agent {

Session::Session(Identity identity, const Settings& settings, TimePoint now, Outbox& out)
    : identity_(std::move(identity)),
      out_(&out),
      hello_again_(settings.hello_again),
      resend_(settings.resend),
      next_hello_(now),
      next_heartbeat_(now),
      next_resend_(now) {}

void Session::lose(TimePoint now) {
  reset();
  next_hello_ = now + hello_again_;
}

bool Session::note(const Generation& generation) {
  if (!(identity_.generation < generation)) {
    return false;
  }
  identity_.generation = generation;
  return true;
}

bool Session::welcome(const Welcome& message) {
  if (message.heartbeat_ms > 0) {
    heartbeat_ = std::chrono::milliseconds(std::clamp<std::uint64_t>(message.heartbeat_ms, 10, 60'000));
  }
  if (message.stall_ms > 0) {
    stall_after_ = std::chrono::milliseconds(std::clamp<std::uint64_t>(message.stall_ms, 1000, 3'600'000));
  }
  if (welcomed()) {
    return false;
  }
  out_->set_linked(true);
  return true;
}

void Session::say_hello(TimePoint now, std::vector<HeldRun> runs) {
  next_hello_ = now + hello_again_;
  Hello hello;
  hello.version = identity_.version;
  hello.name = identity_.name;
  hello.boot = identity_.boot;
  hello.bulk_address = identity_.bulk_address;
  hello.platform = identity_.platform;
  hello.data_sets = identity_.data_sets;
  hello.codec_version = identity_.codec_version;
  hello.uplink_bits_per_second = identity_.uplink_bits_per_second;
  hello.link_memory_bytes = identity_.link_memory_bytes;
  hello.kernels = identity_.kernels;
  hello.trainers = identity_.trainers;
  hello.generation = identity_.generation;
  hello.copies = identity_.copies;
  hello.place = identity_.place;
  hello.runs = std::move(runs);
  out_->send(std::move(hello));
}

void Session::beat(TimePoint now, std::vector<IslandReport> reports) {
  next_heartbeat_ = now + heartbeat_;
  Heartbeat message;
  message.boot = identity_.boot;
  message.reports = std::move(reports);
  out_->send(std::move(message));
}

TimePoint Session::next_deadline() const { return welcomed() ? std::min(next_heartbeat_, next_resend_) : next_hello_; }

}  // namespace atl::agent
