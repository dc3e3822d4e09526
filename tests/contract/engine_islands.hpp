// Islands without trainers: sync engines over real bulk links on loopback, whose arenas a test writes itself.
#pragma once

#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <memory>
#include <vector>

#include "agent/island_link/arena.hpp"
#include "agent/service/engine_thread.hpp"
#include "tests/catch.hpp"
#include "tests/temporary_folder.hpp"
#include "transport/base/own_disk.hpp"
#include "transport/identity/identity.hpp"
#include "transport/zmq/zmq_bulk_link.hpp"

namespace atl_test {

using namespace atl;
using namespace atl::agent;
using namespace std::chrono_literals;

inline const RunId kRun("r-engines");

inline RunSpec spec_of(CodecKind codec = CodecKind::f32) {
  RunSpec spec;
  spec.name = "engines";
  spec.training.steps = 1000;
  spec.strategy.codec = codec;
  spec.strategy.reduce_codec = codec;
  return spec;
}

// An island without a trainer: the test writes into the arena itself.
class Island {
 public:
  // Its model: tensors of these sizes, each in a block of its own.
  Island(int number, std::vector<std::uint64_t> sizes, std::size_t one_level_members = kOneLevelMembers) : sizes_(std::move(sizes)) {
    ZmqBulkSettings settings;
    const KeyPair keys = make_key_pair().value();
    settings.public_key = keys.public_key;
    settings.secret_key = keys.secret_key;
    settings.island = island_of(keys.public_key);
    settings.bind = "tcp://127.0.0.1:*";
    auto link = ZmqBulkLink::open(settings, std::make_shared<BlobStore>()).value();
    member = {settings.island, "island " + std::to_string(number), keys.public_key, link->bound_address()};
    EngineSettings engine_settings;
    engine_settings.self = settings.island;
    engine_settings.runs = confined_to(folder.path() / "runs").value();
    engine_settings.make_arena = shared_arenas(settings.island, folder.path() / "runs");
    engine_settings.stall_after = 3s;
    engine_settings.one_level_members = one_level_members;
    engine_settings.clock = [this] { return now() + slept.load(); };
    engine = std::make_unique<EngineThread>(engine_settings, std::move(link), 2U);
  }

  // The next answer of this type; others are dropped.
  template <typename Wanted>
  Wanted answer(Duration at_most = 30s) {
    const TimePoint until = now() + at_most;
    while (now() < until) {
      while (std::optional<EngineAnswer> got = engine->take_answer()) {
        if constexpr (std::is_same_v<Wanted, ArenaPrepared> || std::is_same_v<Wanted, ArenaFilled>) {
          if (auto* found = std::get_if<Wanted>(&*got)) {
            return std::move(*found);
          }
        } else if (auto* event = std::get_if<Event>(&*got)) {
          if (auto* found = std::get_if<Wanted>(event)) {
            return std::move(*found);
          }
          if (auto* broke = std::get_if<ExchangeBroke>(event)) {
            if (broke->attempt > void_attempt) {
              FAIL("the exchange broke: " << broke->error.why);
            }
          }
          if (auto* broke = std::get_if<CatchUpBroke>(event)) {
            FAIL("catching up broke: " << broke->error.why);
          }
        }
      }
      pollfd fd{engine->fd(), POLLIN, 0};
      ::poll(&fd, 1, 100);
    }
    FAIL("no answer came");
    throw std::logic_error("unreachable");
  }

  void open(const RunSpec& spec) {
    engine->post(OpenRun{kRun, spec});
    island_link::Manifest manifest;
    for (const std::uint64_t size : sizes_) {
      manifest.parameters.push_back(
          {"w" + std::to_string(manifest.parameters.size()), {size}, static_cast<std::int32_t>(manifest.parameters.size())});
    }
    engine->post(PrepareArena{kRun, 1, manifest});
    const ArenaPrepared prepared = answer<ArenaPrepared>();
    REQUIRE(prepared.layout.has_value());
    layout = *prepared.layout;
    arena = island_link::Arena::open(layout.path, layout.bytes).value();
  }

  Digest begin_at(float value) {
    std::fill(arena.floats().begin(), arena.floats().end(), value);
    engine->post(FormInitialState{kRun, 1});
    return answer<InitialState>().digest;
  }

  // "Trains": moves every parameter in the arena by so much, and forms the contribution.
  void contribute(Round round, float by) {
    engine->post(FillArena{kRun, 1});
    REQUIRE(answer<ArenaFilled>().status.ok());
    move(0, by);
    form(round);
  }
  std::span<float> fragment(std::uint32_t number) { return arena.range(layout.fragments.at(number)); }
  void move(std::uint32_t number, float by) {
    const std::span<float> values = fragment(number);
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] -= by * static_cast<float>(i % 7 + 1);
    }
  }
  // Of what lies in the arena.
  void form(Round round, const ContributionFacts& facts = {}) {
    engine->post(FormContribution{kRun, round, facts});
    CHECK(answer<ContributionFormed>().facts.norm > 0);
  }

  atl_test::TemporaryFolder folder;
  std::atomic<Duration> slept = Duration();  // for so long its engine did not run
  std::unique_ptr<EngineThread> engine;
  Member member;
  island_link::ArenaLayout layout;
  island_link::Arena arena;
  Attempt void_attempt;  // attempts up to it may break: they were cancelled

 private:
  std::vector<std::uint64_t> sizes_;
};

struct Islands {
  Islands(int islands, std::uint64_t values, const RunSpec& spec, std::size_t one_level_members = kOneLevelMembers)
      : Islands(islands, std::vector<std::uint64_t>{values, 3}, spec, one_level_members) {}
  Islands(int islands, const std::vector<std::uint64_t>& sizes, const RunSpec& spec, std::size_t one_level_members = kOneLevelMembers) {
    for (int i = 0; i < islands; ++i) {
      all.push_back(std::make_unique<Island>(i, sizes, one_level_members));
      members.push_back(all.back()->member);
    }
    for (auto& island : all) {
      island->open(spec);
      island->engine->post(AllowPeers{kRun, Epoch(1), members, {}});
      digest = island->begin_at(1.0F);
    }
  }
  BeginExchange exchange(Round round, Attempt attempt, const std::vector<std::uint64_t>& tokens, std::uint32_t fragment = 0) const {
    return {kRun, Epoch(1), round, attempt, fragment, members, {tokens}};
  }
  // A whole round in which island i moves by (i + 1)/1024; the digest all agree on.
  Digest whole_round(Round round) {
    std::vector<Digest> digests;
    const std::vector<std::uint64_t> tokens(all.size(), 100);
    for (std::size_t i = 0; i < all.size(); ++i) {
      all[i]->contribute(round, static_cast<float>(i + 1) / 1024.0F);
    }
    for (auto& island : all) {
      island->engine->post(exchange(round, Attempt(1), tokens));
    }
    for (auto& island : all) {
      const auto done = island->answer<ExchangeDone>();
      digests.push_back(done.digest);
      received += done.bytes_received;
      CHECK(digests.back() == digests.front());
    }
    for (auto& island : all) {
      island->engine->post(ApplyResult{kRun, round, Attempt(1), 0, digests.front()});
      CHECK_FALSE(island->answer<ResultApplied>().error.has_value());
    }
    return digest = digests.front();
  }

  std::vector<std::unique_ptr<Island>> all;
  std::vector<Member> members;
  Digest digest;
  std::uint64_t received = 0;  // by all of them, in whole rounds
};

inline std::uint64_t memory_now() {
  std::ifstream file("/proc/self/statm");
  std::uint64_t total = 0;
  std::uint64_t resident = 0;
  file >> total >> resident;
  return resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace atl_test
