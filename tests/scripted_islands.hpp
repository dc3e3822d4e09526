// Islands that do what the coordinator says, without agents, trainers or sockets: a ControlServer whose peers are a script.
//
// Every island answers at once and keeps to the protocol; time is an argument. For measuring the coordinator itself.
#pragma once

#include <cstring>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "transport/control/control_link.hpp"
#include "transport/identity/identity.hpp"

namespace atl_test {

class ScriptedIslands : public atl::ControlServer {
 public:
  explicit ScriptedIslands(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      Island island;
      island.key = atl::make_key_pair().value().public_key;
      island.name = "island-" + std::to_string(i);
      islands_.push_back(std::move(island));
    }
  }

  [[nodiscard]] std::size_t size() const { return islands_.size(); }
  [[nodiscard]] const std::string& key(std::size_t i) const { return islands_[i].key; }
  [[nodiscard]] const std::string& name(std::size_t i) const { return islands_[i].name; }

  void say_hello() {
    for (std::size_t i = 0; i < islands_.size(); ++i) {
      atl::Hello hello;
      hello.version = "0.1.0";
      hello.name = islands_[i].name;
      hello.boot = 1000 + i;
      hello.bulk_address = "tcp://10.0.0.1:" + std::to_string(10'000 + i);
      hello.platform = "Linux x86_64, 2 cores, AVX2";
      hello.data_sets = {"corpus"};
      if (const Island& island = islands_[i]; island.initialised) {
        hello.runs.push_back({island.run, island.epoch, true, island.committed, digest_of(island.committed), {}});
      }
      put(i, hello);
    }
  }
  void beat() {
    for (std::size_t i = 0; i < islands_.size(); ++i) {
      Island& island = islands_[i];
      atl::Heartbeat heartbeat{1000 + i, {}};
      if (!island.run.empty()) {
        atl::IslandReport report;
        report.run = island.run;
        report.state = "training";
        report.step = atl::Step(island.committed.value * 10);
        report.tokens = island.committed.value * 20'480;
        report.tokens_per_second = 11'000;
        report.compute_seconds = static_cast<double>(island.committed.value);
        report.training_loss = 2;
        report.bytes_sent = island.committed.value * 4'000'000;
        heartbeat.reports.push_back(report);
      }
      put(i, std::move(heartbeat));
    }
  }
  // An operator's request; its reply is `reply()` after the next step.
  void request(const std::string& key, atl::Request request) {
    inbox_.push_back({atl::ConnectionId(kOperator), key, atl::Message(std::move(request))});
  }
  [[nodiscard]] const atl::Reply& reply() const { return reply_; }
  [[nodiscard]] std::uint64_t commits() const { return commits_; }

  std::optional<atl::Received> receive() override {
    if (inbox_.empty()) {
      return std::nullopt;
    }
    atl::Received received = std::move(inbox_.front());
    inbox_.pop_front();
    return received;
  }
  atl::Status send(atl::ConnectionId connection, const atl::Message& message) override {
    if (connection.value == kOperator) {
      reply_ = std::get<atl::Reply>(message);
      return {};
    }
    const std::size_t i = connection.value - 1;
    if (std::holds_alternative<atl::Welcome>(message)) {
      say_ready(i);
    } else if (const auto* invite = std::get_if<atl::Invite>(&message)) {
      take(i, *invite);
    } else if (const auto* membership = std::get_if<atl::NewEpoch>(&message)) {
      islands_[i].epoch = membership->epoch;
      say_ready(i);
    } else if (const auto* exchange = std::get_if<atl::Exchange>(&message)) {
      put(i, atl::Exchanged{exchange->run, exchange->epoch, exchange->round, exchange->attempt, digest_of(exchange->round), 4'000'000,
                            4'000'000, 0.4});
    } else if (const auto* commit = std::get_if<atl::Commit>(&message)) {
      take(i, *commit);
    }
    return {};
  }
  void drop(std::string_view, atl::Error) override {}
  void readmit(std::string_view) override {}
  [[nodiscard]] int fd() const override { return -1; }

 private:
  static constexpr std::uint64_t kOperator = 1U << 20U;
  struct Island {
    std::string key;
    std::string name;
    atl::RunId run;
    atl::Epoch epoch;
    atl::Round committed;
    bool initialised = false;
  };

  static atl::Digest digest_of(atl::Round round) {
    atl::Digest digest;
    const std::uint64_t number = round.value + 1;
    std::memcpy(digest.bytes.data(), &number, sizeof number);
    return digest;
  }
  void put(std::size_t i, atl::Message message) { inbox_.push_back({atl::ConnectionId(i + 1), islands_[i].key, std::move(message)}); }
  void say_ready(std::size_t i) {
    const Island& island = islands_[i];
    if (island.run.empty()) {
      return;
    }
    const atl::Round round = island.initialised ? island.committed.next() : atl::Round(0);
    put(i, atl::Ready{island.run, island.epoch, round, digest_of(island.committed), {20'480, 10, 2.0, 0.1}});
  }
  void take(std::size_t i, const atl::Invite& invite) {
    Island& island = islands_[i];
    if (island.run != invite.run) {
      island.initialised = false;
      island.committed = atl::Round(0);
    }
    island.run = invite.run;
    island.epoch = invite.epoch;
    say_ready(i);
  }
  void take(std::size_t i, const atl::Commit& commit) {
    Island& island = islands_[i];
    if (island.initialised && commit.round <= island.committed) {
      return;
    }
    island.initialised = true;
    island.committed = commit.round;
    ++commits_;
    put(i, atl::Merged{commit.run, commit.round, atl::Step(commit.round.value * 10),
                       2.0 + 1.0 / static_cast<double>(1 + commit.round.value), 2.5, 0.1});
    if (commit.checkpoint) {
      put(i, atl::Checkpointed{commit.run, commit.round, commit.digest, commit.digest, 7'000'000, std::nullopt});
    }
    say_ready(i);
  }

  std::vector<Island> islands_;
  std::deque<atl::Received> inbox_;
  atl::Reply reply_;
  std::uint64_t commits_ = 0;
};

// A server that can be handed to one driver after another: the islands outlive a coordinator.
class BorrowedIslands : public atl::ControlServer {
 public:
  explicit BorrowedIslands(ScriptedIslands& islands) : islands_(islands) {}
  std::optional<atl::Received> receive() override { return islands_.receive(); }
  atl::Status send(atl::ConnectionId connection, const atl::Message& message) override { return islands_.send(connection, message); }
  void drop(std::string_view, atl::Error) override {}
  void readmit(std::string_view) override {}
  [[nodiscard]] int fd() const override { return -1; }

 private:
  ScriptedIslands& islands_;
};

}  // namespace atl_test
