// One round's exchange of float32 parameters, islands as threads of this process: on loopback against memcpy of the same bytes and against
// one plain ZeroMQ stream, or over a wire in user space with a round trip and a rate. Both ends share this machine's cores, so a lone
// island does better; CPU seconds per GB and island hold on a busy machine too (not with a wire, whose copies they would count).
//   bench_exchange [islands=2] [rounds=10] [millions=10] [round trip ms=0] [Mbit/s=0: as fast as it goes]
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "tests/delaying_proxy.hpp"
#include "transport/base/address.hpp"
#include "transport/bulk/exchange_attempt.hpp"
#include "transport/bulk/link_memory.hpp"
#include "transport/identity/identity.hpp"
#include "transport/zmq/zmq_bulk_link.hpp"
#include "transport/zmq/zmq_message.hpp"

namespace {

using namespace atl;

const RunId kRun("bench");

struct Wire {
  Duration round_trip{};
  double bytes_per_second = 0;
  [[nodiscard]] bool there() const { return round_trip > Duration::zero() || bytes_per_second > 0; }
};

struct Setting {
  std::size_t islands = 2;
  unsigned rounds = 10;
  std::size_t elements = 10'000'000;
  Wire wire;
};

double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto in_seconds = [](const timeval& time) { return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec); };
  return in_seconds(usage.ru_utime) + in_seconds(usage.ru_stime);
}

struct Island {
  explicit Island(std::size_t elements) : contribution(elements, 1.5F) {
    wants.paths = std::make_shared<PathWindows>(share_out(kLinkMemory).windows);
  }

  KeyPair keys;
  IslandId id;
  std::shared_ptr<BlobStore> store = std::make_shared<BlobStore>();
  std::unique_ptr<ZmqBulkLink> link;
  std::unique_ptr<atl_test::DelayingProxy> wire;  // before its address
  WantSettings wants;
  std::shared_ptr<ReceiveBuffers> buffers = std::make_shared<ReceiveBuffers>();
  std::vector<float> contribution;
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
                    island.id, cut_pieces(island.contribution.size(), members.size(), 16, bytes, bytes)};
  ExchangeAttempt::Settings settings;
  settings.wants = island.wants;
  settings.buffers = island.buffers;
  const Payload own{std::as_bytes(std::span(island.contribution)), nullptr};
  auto attempt = ExchangeAttempt::begin(std::move(plan), own, sum, *island.store, now(), settings).value();
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

struct Measured {
  double seconds = 0;      // of the median round
  double first = 0;        // of the first
  double cpu_seconds = 0;  // of this process, a round
};

std::vector<std::unique_ptr<Island>> open_islands(const Setting& setting, bool insecure) {
  std::vector<std::unique_ptr<Island>> islands;
  std::vector<Member> members;
  std::vector<IslandId> ids;
  for (std::size_t i = 0; i < setting.islands; ++i) {
    Island& island = *islands.emplace_back(std::make_unique<Island>(setting.elements));
    island.keys = make_key_pair().value();
    island.id = island_of(island.keys.public_key);
    ZmqBulkSettings settings;
    settings.island = island.id;
    settings.public_key = island.keys.public_key;
    settings.secret_key = island.keys.secret_key;
    settings.bind = "tcp://127.0.0.1:0";
    settings.insecure = insecure;
    island.link = ZmqBulkLink::open(settings, island.store).value();
    std::string address = island.link->bound_address();
    if (setting.wire.there()) {
      island.wire = std::make_unique<atl_test::DelayingProxy>(parse_address(address).value().port, setting.wire.round_trip,
                                                              setting.wire.bytes_per_second);
      address = island.wire->address();
    }
    members.push_back(Member{island.id, "", island.keys.public_key, address});
    ids.push_back(island.id);
  }
  for (const auto& island : islands) {
    if (const Status status = island->link->set_peers(members); !status) {
      std::printf("failed: %s\n", status.error().why.c_str());
      std::exit(1);
    }
    island->store->set_readers(kRun, ids);
  }
  return islands;
}

void wait_for_connections(const std::vector<std::unique_ptr<Island>>& islands) {
  for (const auto& island : islands) {
    const auto connected = [&] {
      const std::vector<PeerTraffic> rows = island->link->traffic();
      return rows.size() + 1 == islands.size() && std::ranges::all_of(rows, &PeerTraffic::connected);
    };
    while (!connected()) {
      island->link->wait(std::chrono::milliseconds(1));
      std::this_thread::yield();
    }
  }
}

Measured measure(const Setting& setting, bool insecure) {
  const std::vector<std::unique_ptr<Island>> islands = open_islands(setting, insecure);
  wait_for_connections(islands);
  std::vector<IslandId> ids;
  for (const auto& island : islands) {
    ids.push_back(island->id);
  }
  std::vector<double> times;
  Measured measured;
  const double cpu = cpu_seconds();
  for (std::uint64_t round = 1; round <= setting.rounds; ++round) {
    const TimePoint start = now();
    std::vector<std::thread> threads;
    for (const auto& island : islands) {
      threads.emplace_back([&island = *island, &ids, round] { exchange(island, ids, Round(round)); });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    times.push_back(seconds(now() - start));
    for (const auto& island : islands) {
      island->store->finish_rounds_before(kRun, Round(round + 1));
    }
  }
  measured.cpu_seconds = (cpu_seconds() - cpu) / setting.rounds;
  measured.first = times.front();
  std::sort(times.begin(), times.end());
  measured.seconds = times[times.size() / 2];
  return measured;
}

double measure_memcpy(std::size_t elements) {
  std::vector<float> from(elements, 1.0F);
  std::vector<float> to(elements, 2.0F);
  std::vector<double> times;
  for (int i = 0; i < 9; ++i) {
    const TimePoint start = now();
    std::memcpy(to.data(), from.data(), 4 * elements);
    times.push_back(seconds(now() - start));
    from[0] += to[static_cast<std::size_t>(i)];
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

// Bytes a second of one stream in 256 KiB messages, one way.
double measure_zmq() {
  void* context = zmq_ctx_new();
  void* in = zmq_socket(context, ZMQ_PULL);
  zmq_bind(in, "tcp://127.0.0.1:*");
  char endpoint[128] = {};
  std::size_t length = sizeof endpoint;
  zmq_getsockopt(in, ZMQ_LAST_ENDPOINT, endpoint, &length);
  constexpr std::size_t kMessage = 256U << 10;
  constexpr std::size_t kMessages = (400ULL << 20) / kMessage;
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
  return static_cast<double>(kMessage * (kMessages - 1)) / elapsed;
}

}  // namespace

int main(int argc, char** argv) {
  const auto number = [&](int place, double otherwise) { return argc > place ? std::strtod(argv[place], nullptr) : otherwise; };
  Setting setting;
  setting.islands = static_cast<std::size_t>(number(1, 2));
  setting.rounds = static_cast<unsigned>(number(2, 10));
  setting.elements = static_cast<std::size_t>(number(3, 10) * 1e6);
  setting.wire = {from_seconds(number(4, 0) / 1000), number(5, 0) * 1e6 / 8};
  if (setting.islands < 2 || setting.islands > 16 || setting.rounds == 0 || setting.elements < setting.islands * 16 ||
      (setting.wire.bytes_per_second > 0 && setting.islands > 2)) {
    std::printf("usage: bench_exchange [islands 2-16] [rounds] [millions] [round trip ms] [Mbit/s, of two islands]\n");
    return 2;
  }
  const double whole = 4.0 * static_cast<double>(setting.elements) / 1e9;
  const auto islands = static_cast<double>(setting.islands);
  const double received = setting.islands == 2 ? whole : 2 * (islands - 1) / islands * whole;
  std::printf("%u cores; %zu islands, %g M float32; %.4f GB received by each a round, as much sent; wire: %g ms, %g Mbit/s\n",
              std::thread::hardware_concurrency(), setting.islands, static_cast<double>(setting.elements) / 1e6, received, number(4, 0),
              number(5, 0));
  const double copy = whole / measure_memcpy(setting.elements);
  const double stream = measure_zmq() / 1e9;
  std::printf("memcpy of one contribution     %6.2f GB/s\n", copy);
  std::printf("one plain ZeroMQ stream        %6.2f GB/s one way\n", stream);
  for (const bool insecure : {true, false}) {
    const Measured measured = measure(setting, insecure);
    std::printf(
        "exchange, %-6s %6.3f GB/s received by each (first round %.3f), %.2f CPU s per GB and island; %.1f ms a round; %.2f x memcpy\n",
        insecure ? "plain" : "sealed", received / measured.seconds, received / measured.first, measured.cpu_seconds / received / islands,
        measured.seconds * 1000, received / measured.seconds / copy);
  }
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  std::printf("peak memory %.0f MiB\n", static_cast<double>(usage.ru_maxrss) / 1024);
  return 0;
}
