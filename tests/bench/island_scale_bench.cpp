// Runs of 8 to 1,024 islands, simulated: what a round takes of an island, and of the coordinator.
//
// The exchange is the real one on the simulated network: every island has an access line of one rate and every path one latency. Time is
// virtual. "On paper" is the bytes that an island sends at the rate of its line, and the hops, each a want and a piece. The coordinator is
// the real core, whose islands answer at once (tests/scripted_islands.hpp): messages and records of a committed round are counted.
// Usage: bench_island_scale [ISLANDS…]
#include <malloc.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "coordinator/core/core.hpp"
#include "tests/scripted_islands.hpp"
#include "transport/bulk/exchange_attempt.hpp"
#include "transport/simulated/simulated_network.hpp"

using namespace atl;

namespace {

constexpr std::uint64_t kValues = 1 << 16;  // of float32
constexpr Duration kLatency = std::chrono::milliseconds(20);
constexpr double kLineBytesPerSecond = 125e3;  // 65,536 values on 1 Mbit/s take as long as 65 million on 1 Gbit/s

[[noreturn]] void give_up(const std::string& why) {
  std::fprintf(stderr, "%s\n", why.c_str());
  std::exit(1);
}

// The sum of float32, each term once.
std::optional<ReduceFailure> sum_floats(const ReducePiece& piece) {
  std::vector<float> sum(piece.elements);
  std::vector<float> values(piece.elements);
  for (const ByteView term : piece.contributions) {
    std::memcpy(values.data(), term.data(), term.size());
    for (std::size_t i = 0; i < sum.size(); ++i) {
      sum[i] += values[i];
    }
  }
  std::memcpy(piece.reduced.data(), sum.data(), piece.reduced.size());
  return std::nullopt;
}

struct Island {
  IslandId id;
  std::shared_ptr<BlobStore> store = std::make_shared<BlobStore>();
  std::unique_ptr<BulkLink> link;
  std::unique_ptr<ExchangeAttempt> exchange;
  bool done = false;
};

struct ExchangeFigures {
  std::uint64_t most_bytes = 0;  // that an island received
  std::uint64_t most_sent = 0;
  std::size_t most_peers = 0;
  double seconds = 0;
  double on_paper = 0;
};

class LargeExchange {
 public:
  LargeExchange(std::size_t islands, std::size_t one_level) : grid_(cut_grid(islands, {}, one_level)) {
    PathConditions conditions;
    conditions.latency = kLatency;
    network_.set_conditions(conditions);
    for (std::size_t i = 0; i < islands; ++i) {
      plan_.members.emplace_back("i" + std::to_string(i));
    }
    plan_.run = RunId("r");
    plan_.weights.assign(islands, 1);
    plan_.grid = grid_;
    const auto bytes = [](std::uint64_t count) { return count * 4; };
    plan_.layout = cut_pieces(kValues, grid_ ? grid_->owners.size() : islands, 16, bytes, bytes, 2048);
    for (std::size_t i = 0; i < islands; ++i) {
      islands_.push_back(std::make_unique<Island>());
      Island& island = *islands_.back();
      island.id = plan_.members[i];
      island.link = network_.bulk_link(island.id, island.store);
      island.link->set_uplink(kLineBytesPerSecond * 8);
      island.store->set_readers(plan_.run, plan_.members);
    }
    for (std::size_t i = 0; i < islands; ++i) {
      std::vector<Member> peers;
      for (const std::size_t peer : peers_of(i)) {
        peers.push_back({plan_.members[peer], "", "", ""});
      }
      most_peers_ = std::max(most_peers_, peers.size());
      if (const Status set = islands_[i]->link->set_peers(peers); !set) {
        give_up(set.error().why);
      }
    }
    network_.advance_to(network_.now() + 3 * kLatency);  // all are connected
  }

  ExchangeFigures run() {
    const TimePoint start = network_.now();
    const auto own = std::make_shared<std::vector<float>>(kValues, 1.0F);  // the same of all: memory
    ExchangeAttempt::Settings settings;
    settings.buffers = std::make_shared<ReceiveBuffers>();
    for (const auto& island : islands_) {
      ExchangePlan plan = plan_;
      plan.self = island->id;
      auto begun = ExchangeAttempt::begin(std::move(plan), Payload{std::as_bytes(std::span(*own)), own}, sum_floats, *island->store, start,
                                          settings);
      if (!begun) {
        give_up(begun.error().why);
      }
      island->exchange = std::move(begun).value();
    }
    std::size_t done = 0;
    while (done < islands_.size()) {
      for (const auto& island : islands_) {
        if (!island->done && step(*island)) {
          island->done = true;
          ++done;
        } else if (island->done) {
          while (island->link->receive(network_.now(), *island->exchange)) {
          }
        }
      }
      if (done < islands_.size()) {
        const std::optional<TimePoint> event = network_.next_event();
        const TimePoint soon = network_.now() + std::chrono::milliseconds(1);  // many events at a time
        network_.advance_to(event ? std::max(*event, soon) : soon);
      }
    }
    ExchangeFigures exchanged;
    exchanged.seconds = seconds(network_.now() - start);
    exchanged.most_peers = most_peers_;
    for (const auto& island : islands_) {
      exchanged.most_bytes = std::max(exchanged.most_bytes, island->exchange->progress().bytes_received);
      exchanged.most_sent = std::max(exchanged.most_sent, island->store->bytes_served(plan_.run));
    }
    exchanged.on_paper = static_cast<double>(exchanged.most_sent) / kLineBytesPerSecond + (grid_ ? 4 : 2) * 2 * seconds(kLatency);
    return exchanged;
  }

 private:
  [[nodiscard]] std::vector<std::size_t> peers_of(std::size_t member) const {
    if (grid_) {
      return peers_in(*grid_, member);
    }
    std::vector<std::size_t> all;
    for (std::size_t other = 0; other < plan_.members.size(); ++other) {
      if (other != member) {
        all.push_back(other);
      }
    }
    return all;
  }

  bool step(Island& island) {
    const TimePoint now = network_.now();
    while (island.link->receive(now, *island.exchange)) {
    }
    while (island.exchange->reduce_one()) {
    }
    send_wants(*island.link, *island.exchange, now);
    return island.exchange->done();
  }

  std::optional<ExchangeGrid> grid_;
  SimulatedNetwork network_{1};
  ExchangePlan plan_;
  std::vector<std::unique_ptr<Island>> islands_;
  std::size_t most_peers_ = 0;
};

struct Decided {
  double messages = 0;  // of a round, that the coordinator sends
  double records = 0;
  double bytes = 0;
  double cpu_ms = 0;
};

double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec) + static_cast<double>(usage.ru_utime.tv_usec) / 1e6;
}

// Rounds of a run of all islands, committed by the coordinator's core.
Decided decide(std::size_t islands) {
  constexpr std::uint64_t kWarm = 3;
  constexpr std::uint64_t kRounds = 4;
  TimePoint now = from_unix_ms(1'767'225'600'000);
  coordinator::Core core(coordinator::Settings{}, coordinator::Recovered{}, now);
  atl_test::ScriptedIslands script(islands);
  std::map<IslandId, std::size_t> place;
  for (std::size_t i = 0; i < islands; ++i) {
    const IslandId id = island_of(script.key(i));
    place[id] = i;
    core.admit(now, id, script.name(i), script.key(i));
  }
  RunSpec spec;
  spec.data.set = "corpus";
  spec.training.steps = 1'000'000;
  spec.strategy.inner_steps = 10;
  spec.islands.min = static_cast<std::uint32_t>(islands);
  spec.islands.max = static_cast<std::uint32_t>(islands);
  spec.rounds = 100'000;
  if (const auto run = core.submit(now, RunId("r-1"), spec, "wide", "file"); !run) {
    give_up(run.error().why);
  }
  script.say_hello();
  Decided decided;
  double since = 0;
  while (script.commits() < islands * (1 + kWarm + kRounds)) {
    const bool counts = script.commits() >= islands * (1 + kWarm);
    if (counts && since == 0) {
      since = cpu_seconds();
    }
    const std::optional<Received> received = script.receive();
    if (received) {
      const std::size_t i = received->connection.value - 1;
      core.step(now, island_of(script.key(i)), 1000 + i, *received->message);
    } else {
      now += std::chrono::seconds(1);
      script.beat();
      core.tick(now);
    }
    const coordinator::Ready ready = core.take_ready();
    decided.records += counts ? static_cast<double>(ready.records.size()) : 0;
    for (const coordinator::Outgoing& out : ready.messages) {
      decided.messages += counts ? 1 : 0;
      decided.bytes += counts ? static_cast<double>(encode(out.message)->size()) : 0;
      (void)script.send(ConnectionId(place.at(out.island) + 1), out.message);
    }
  }
  decided.cpu_ms = (cpu_seconds() - since) * 1000 / kRounds;
  decided.messages /= kRounds;
  decided.records /= kRounds;
  decided.bytes /= kRounds;
  return decided;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::size_t> counts = {8, 16, 32, 33, 64, 128, 256, 512, 1024};
  if (argc > 1) {
    counts.clear();
    for (int i = 1; i < argc; ++i) {
      counts.push_back(std::strtoul(argv[i], nullptr, 10));
    }
  }
  std::printf("%llu values of float32; every island's line %.0f kB/s, every path %.0f ms one way\n",
              static_cast<unsigned long long>(kValues), kLineBytesPerSecond / 1e3, seconds(kLatency) * 1e3);
  std::printf("%8s %7s %6s %12s %12s %10s %10s | %9s %8s %10s %9s\n", "islands", "levels", "peers", "received B", "sent B", "round s",
              "paper s", "messages", "records", "kB sent", "CPU ms");
  for (const std::size_t islands : counts) {
    for (const bool two : {false, true}) {
      const std::size_t one_level = two ? kOneLevelMembers : islands;
      if (two ? islands <= kOneLevelMembers : islands > 64) {
        continue;  // there are no two levels; all islands with all others take too much memory
      }
      const ExchangeFigures exchanged = LargeExchange(islands, one_level).run();
      std::printf("%8zu %7d %6zu %12llu %12llu %10.2f %10.2f |", islands, two ? 2 : 1, exchanged.most_peers,
                  static_cast<unsigned long long>(exchanged.most_bytes), static_cast<unsigned long long>(exchanged.most_sent),
                  exchanged.seconds, exchanged.on_paper);
      std::fflush(stdout);
      ::malloc_trim(0);
      if (two || islands <= kOneLevelMembers) {
        const Decided decided = decide(islands);
        std::printf(" %9.0f %8.0f %10.1f %9.1f", decided.messages, decided.records, decided.bytes / 1e3, decided.cpu_ms);
      }
      std::printf("\n");
      std::fflush(stdout);
    }
  }
  return 0;
}
