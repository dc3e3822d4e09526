// Bench: whole rounds of 10 M float32 parameters between two islands on loopback, through the sync engine as an agent runs it:
// real links, sealed, each island's engine a thread of this process. Both share this machine's cores.
//   bench_round [rounds=9]
#include <poll.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "agent/engine/round_result.hpp"
#include "agent/island_link/arena.hpp"
#include "agent/service/engine_thread.hpp"
#include "strategies/outer_optimizer.hpp"
#include "tests/temporary_folder.hpp"
#include "transport/base/own_disk.hpp"
#include "transport/identity/identity.hpp"
#include "transport/zmq/zmq_bulk_link.hpp"

namespace {

using namespace atl;
using namespace atl::agent;

constexpr std::size_t kValues = 10'000'000;
const RunId kRun("bench");

[[noreturn]] void give_up(const std::string& why) {
  std::fprintf(stderr, "bench_round: %s\n", why.c_str());
  std::exit(1);
}

double median(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

// Median seconds of `work`.
template <typename Work>
double measure(int times, const Work& work) {
  std::vector<double> all;
  for (int i = 0; i < times; ++i) {
    const TimePoint start = now();
    work();
    all.push_back(seconds(now() - start));
  }
  return median(std::move(all));
}

// An island whose trainer is this program, which writes into the arena.
struct Island {
  explicit Island(int number) {
    const KeyPair keys = make_key_pair().value();
    ZmqBulkSettings settings;
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
    engine = std::make_unique<EngineThread>(engine_settings, std::move(link), 2U);
  }

  // The next answer of this type.
  template <typename Wanted>
  Wanted answer() {
    for (const TimePoint until = now() + std::chrono::minutes(2); now() < until;) {
      while (std::optional<EngineAnswer> got = engine->take_answer()) {
        if (auto* event = std::get_if<Event>(&*got)) {
          if (auto* broke = std::get_if<ExchangeBroke>(event)) {
            give_up("the exchange broke: " + broke->error.why);
          }
          if constexpr (!std::is_same_v<Wanted, ArenaPrepared> && !std::is_same_v<Wanted, ArenaFilled>) {
            if (auto* found = std::get_if<Wanted>(event)) {
              return std::move(*found);
            }
          }
        }
        if constexpr (std::is_same_v<Wanted, ArenaPrepared> || std::is_same_v<Wanted, ArenaFilled>) {
          if (auto* found = std::get_if<Wanted>(&*got)) {
            return std::move(*found);
          }
        }
      }
      pollfd fd{engine->fd(), POLLIN, 0};
      ::poll(&fd, 1, 100);
    }
    give_up("no answer came");
  }

  void open(const RunSpec& spec, const std::vector<Member>& members) {
    engine->post(OpenRun{kRun, spec});
    island_link::Manifest manifest;
    manifest.parameters = {{"w", {kValues}, 0}};
    engine->post(PrepareArena{kRun, 1, manifest});
    const ArenaPrepared prepared = answer<ArenaPrepared>();
    if (!prepared.layout) {
      give_up(prepared.layout.error().why);
    }
    arena = island_link::Arena::open(prepared.layout->path, prepared.layout->bytes).value();
    engine->post(AllowPeers{kRun, Epoch(1), members, {}});
    std::fill(arena.floats().begin(), arena.floats().end(), 1.0F);
    engine->post(FormInitialState{kRun, 1});
    answer<InitialState>();
  }

  atl_test::TemporaryFolder folder;
  std::unique_ptr<EngineThread> engine;
  Member member;
  island_link::Arena arena;
};

struct RoundTimes {
  std::vector<double> form, exchange, apply, idle;
};

// One round: both trainers have published; then each engine forms, exchanges, and applies, as the driver orders it.
void round_of(std::vector<std::unique_ptr<Island>>& islands, const std::vector<Member>& members, Round round, RoundTimes& times) {
  for (auto& island : islands) {
    for (float& value : island->arena.floats()) {
      value -= 1.0F / 1024.0F;
    }
  }
  const TimePoint published = now();
  for (auto& island : islands) {
    island->engine->post(FormContribution{kRun, round});
  }
  for (auto& island : islands) {
    island->answer<ContributionFormed>();
  }
  const TimePoint formed = now();
  for (auto& island : islands) {
    island->engine->post(BeginExchange{kRun, Epoch(1), round, Attempt(1), 0, members, {{100, 100}}});
  }
  std::vector<Digest> digests;
  for (auto& island : islands) {
    digests.push_back(island->answer<ExchangeDone>().digest);
  }
  const TimePoint exchanged = now();
  if (digests[0] != digests[1]) {
    give_up("the islands' digests differ");
  }
  for (auto& island : islands) {
    island->engine->post(ApplyResult{kRun, round, Attempt(1), 0, digests[0]});
  }
  for (auto& island : islands) {
    if (const ResultApplied applied = island->answer<ResultApplied>(); applied.error) {
      give_up(applied.error->why);
    }
  }
  const TimePoint ready = now();
  times.form.push_back(seconds(formed - published));
  times.exchange.push_back(seconds(exchanged - formed));
  times.apply.push_back(seconds(ready - exchanged));
  times.idle.push_back(seconds(ready - published));
}

std::string first_line_with(const char* path, const std::string& start) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(start)) {
      return line;
    }
  }
  return "unknown";
}

}  // namespace

int main(int argc, char** argv) {
  const auto rounds = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 9;
  if (rounds == 0 || rounds > 10'000) {
    std::fprintf(stderr, "usage: bench_round [rounds 1-10000]\n");
    return 2;
  }
  std::printf("%s; %u cores; load %s; %s\n", first_line_with("/proc/cpuinfo", "model name").c_str(), std::thread::hardware_concurrency(),
              first_line_with("/proc/loadavg", "").c_str(), ATOLL_BENCH_FLAGS);
  std::printf("2 islands, %zu float32, codec f32; median of %lu rounds\n", kValues, rounds);

  std::vector<float> from(kValues, 1.0F);
  std::vector<float> to(kValues, 2.0F);
  const double bytes = 4.0 * kValues;
  const double copy = 2 * bytes / measure(9, [&] {
                        std::memcpy(to.data(), from.data(), 4 * kValues);
                        from[0] += to[1];
                      });
  const std::vector<float> gradient(kValues, 1e-3F);
  RoundResult result;
  result.values = kValues;
  result.terms = {{std::as_bytes(std::span(gradient)), 0.5F}, {std::as_bytes(std::span(gradient)), 0.5F}};
  OuterOptimizer optimizer;
  // Reads two contributions, parameters and momentum; writes parameters and momentum.
  const double step = 6 * bytes / measure(9, [&] {
                        if (!outer_step(result.reduced(Aggregator::weighted_mean, {}), optimizer, OuterState{to, from})) {
                          give_up("the outer step was refused");
                        }
                      });
  Digest digest_of_rounds;
  const double digest = measure(5, [&] { digest_of_rounds = digest_after(digest_of_rounds, result); });

  RunSpec spec;
  spec.name = "bench";
  spec.training.steps = 1'000'000;
  spec.strategy.codec = CodecKind::f32;
  spec.strategy.reduce_codec = CodecKind::f32;
  std::vector<std::unique_ptr<Island>> islands;
  std::vector<Member> members;
  for (int i = 0; i < 2; ++i) {
    islands.push_back(std::make_unique<Island>(i));
    members.push_back(islands.back()->member);
  }
  for (auto& island : islands) {
    island->open(spec, members);
  }
  RoundTimes times;
  for (std::uint64_t round = 1; round <= rounds; ++round) {
    round_of(islands, members, Round(round), times);
  }
  std::printf("memcpy                    %7.2f GB/s read and written\n", copy / 1e9);
  std::printf("outer step, fused         %7.2f GB/s read and written, %.2f of memcpy\n", step / 1e9, step / copy);
  std::printf("digest of a result        %7.1f ms\n", digest * 1e3);
  std::printf("forming the contribution  %7.1f ms\n", median(times.form) * 1e3);
  std::printf("exchange, digest included %7.1f ms, %.2f GB/s received by each\n", median(times.exchange) * 1e3,
              bytes / median(times.exchange) / 1e9);
  std::printf("applying the result       %7.1f ms\n", median(times.apply) * 1e3);
  std::printf("trainer idle              %7.1f ms from published to result ready\n", median(times.idle) * 1e3);
  return 0;
}
