// One round's exchange of 10 M float32 parameters on loopback, islands as threads of this process: against memcpy of the same
// bytes and against one plain ZeroMQ stream. Both ends share this machine's cores, so a lone island does better.
//   bench_exchange [islands=2] [rounds=10]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "transport/bulk/exchange_attempt.hpp"
#include "transport/identity/identity.hpp"
#include "transport/zmq/zmq_bulk_link.hpp"
#include "transport/zmq/zmq_message.hpp"

namespace {

using namespace atl;

constexpr std::size_t kElements = 10'000'000;
const RunId kRun("bench");

struct Island {
  KeyPair keys;
  IslandId id;
  std::shared_ptr<BlobStore> store = std::make_shared<BlobStore>();
  std::unique_ptr<ZmqBulkLink> link;
  std::vector<float> contribution = std::vector<float>(kElements, 1.5F);
};

std::optional<ReduceFailure> sum(const ReducePiece& task) {
  auto* out = reinterpret_cast<float*>(task.reduced.data());
  std::memcpy(out, task.contributions[0].data(), task.reduced.size());
  for (const ByteView contribution : task.contributions.subspan(1)) {
    const auto* in = reinterpret_cast<const float*>(contribution.data());
    for (std::size_t i = 0; i < task.elements; ++i) {
      out[i] += in[i];
    }
  }
  return std::nullopt;
}

void exchange(Island& island, const std::vector<IslandId>& members, Round round) {
  const auto bytes = [](std::uint64_t count) { return 4 * count; };
  ExchangePlan plan{kRun,      Epoch(1),
                    round,     Attempt(1),
                    members,   std::vector<std::uint64_t>(members.size(), 1),
                    island.id, cut_pieces(kElements, members.size(), 16, bytes, bytes)};
  auto attempt =
      ExchangeAttempt::begin(std::move(plan), Payload{std::as_bytes(std::span(island.contribution)), nullptr}, sum, *island.store, now())
          .value();
  while (!attempt->done()) {
    const bool received = island.link->receive(now(), *attempt);
    const bool reduced = attempt->reduce_one();
    for (const OutgoingWant& want : attempt->take_wants(now())) {
      if (!island.link->want(want)) {
        attempt->not_sent(now(), want);
      }
    }
    if (attempt->failure()) {
      std::printf("failed: %s\n", attempt->failure()->error.why.c_str());
      std::exit(1);
    }
    if (!received && !reduced) {
      island.link->wait(std::chrono::milliseconds(50));
    }
  }
}

// Seconds of the median round.
double measure(std::size_t count, unsigned rounds, bool insecure) {
  std::vector<Island> islands(count);
  std::vector<Member> members;
  std::vector<IslandId> ids;
  for (Island& island : islands) {
    island.keys = make_key_pair().value();
    island.id = island_of(island.keys.public_key);
    ZmqBulkSettings settings;
    settings.island = island.id;
    settings.public_key = island.keys.public_key;
    settings.secret_key = island.keys.secret_key;
    settings.bind = "tcp://127.0.0.1:0";
    settings.insecure = insecure;
    island.link = ZmqBulkLink::open(settings, island.store).value();
    members.push_back(Member{island.id, "", island.keys.public_key, island.link->bound_address()});
    ids.push_back(island.id);
  }
  for (Island& island : islands) {
    if (const Status status = island.link->set_peers(members); !status) {
      std::printf("failed: %s\n", status.error().why.c_str());
      std::exit(1);
    }
    island.store->set_readers(kRun, ids);
  }
  std::vector<double> times;
  for (std::uint64_t round = 1; round <= rounds; ++round) {
    const TimePoint start = now();
    std::vector<std::thread> threads;
    for (Island& island : islands) {
      threads.emplace_back([&island, &ids, round] { exchange(island, ids, Round(round)); });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    times.push_back(seconds(now() - start));
    for (Island& island : islands) {
      island.store->finish_rounds_before(kRun, Round(round + 1));
    }
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

double measure_memcpy() {
  std::vector<float> from(kElements, 1.0F);
  std::vector<float> to(kElements, 2.0F);
  std::vector<double> times;
  for (int i = 0; i < 9; ++i) {
    const TimePoint start = now();
    std::memcpy(to.data(), from.data(), 4 * kElements);
    times.push_back(seconds(now() - start));
    from[0] += to[static_cast<std::size_t>(i)];
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

// One stream in 256 KiB messages, one way.
double measure_zmq() {
  void* context = zmq_ctx_new();
  void* in = zmq_socket(context, ZMQ_PULL);
  zmq_bind(in, "tcp://127.0.0.1:*");
  char endpoint[128] = {};
  std::size_t length = sizeof endpoint;
  zmq_getsockopt(in, ZMQ_LAST_ENDPOINT, endpoint, &length);
  constexpr std::size_t kMessage = 256U << 10;
  constexpr std::size_t kMessages = 4 * kElements / kMessage * 10;
  std::vector<std::byte> bytes(kMessage);
  std::thread sender([&] {
    void* out = zmq_socket(context, ZMQ_PUSH);
    zmq_connect(out, endpoint);
    for (std::size_t i = 0; i < kMessages; ++i) {
      zmq_send(out, bytes.data(), bytes.size(), 0);
    }
    zmq_close(out);
  });
  zmq_msg_t message;
  zmq_msg_init(&message);
  zmq_msg_recv(&message, in, 0);
  const TimePoint start = now();
  for (std::size_t i = 1; i < kMessages; ++i) {
    zmq_msg_recv(&message, in, 0);
  }
  const double elapsed = seconds(now() - start);
  zmq_msg_close(&message);
  sender.join();
  zmq_close(in);
  zmq_ctx_term(context);
  return elapsed * (4.0 * kElements) / static_cast<double>(kMessage * (kMessages - 1));
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t islands = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 2;
  const auto rounds = static_cast<unsigned>(argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 10);
  if (islands < 2 || islands > 16 || rounds == 0) {
    std::printf("usage: bench_exchange [islands 2-16] [rounds]\n");
    return 2;
  }
  const double whole = 4.0 * kElements / 1e9;
  const double received = islands == 2 ? whole : 2 * static_cast<double>(islands - 1) / static_cast<double>(islands) * whole;
  std::printf("%u cores; %zu islands, 10 M float32; %.3f GB received by each a round, as much sent\n", std::thread::hardware_concurrency(),
              islands, received);
  const double copy = whole / measure_memcpy();
  const double stream = whole / measure_zmq();
  std::printf("memcpy of one contribution     %6.2f GB/s\n", copy);
  std::printf("one plain ZeroMQ stream        %6.2f GB/s one way\n", stream);
  for (const bool insecure : {true, false}) {
    const double time = measure(islands, rounds, insecure);
    const double all = received * static_cast<double>(islands) / time;
    std::printf(
        "exchange, %-20s %6.2f GB/s received by each, %5.2f GB/s through this machine: %.2f x a plain stream, %.3f x memcpy; %.0f ms a "
        "round\n",
        insecure ? "plain" : "sealed", received / time, all, all / stream, received / time / copy, time * 1000);
  }
  return 0;
}
