// The coordinator with 100 islands over 1,000 rounds: memory, requests and rounds a second. Islands are scripted (no sockets), the
// ledger is real. Usage: bench_coordinator [ISLANDS [ROUNDS]]
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "coordinator/service/driver.hpp"
#include "coordinator/service/init.hpp"
#include "strategies/specification/run_spec.hpp"
#include "tests/scripted_islands.hpp"
#include "tests/temporary_folder.hpp"
#include "transport/base/log.hpp"

using namespace atl;
using namespace atl::coordinator;

namespace {

double resident_mib() {
  std::ifstream file("/proc/self/statm");
  double total = 0;
  double resident = 0;
  file >> total >> resident;
  return resident * static_cast<double>(::sysconf(_SC_PAGESIZE)) / (1 << 20);
}

double ms_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

// Milliseconds from a request to its reply.
double ask(Driver& driver, atl_test::ScriptedIslands& islands, const std::string& key, TimePoint time, const char* verb,
           const std::string& arguments) {
  const auto start = std::chrono::steady_clock::now();
  islands.request(key, Request{kProtocolVersion, 1, verb, arguments});
  driver.step(time);
  if (islands.reply().error) {
    std::fprintf(stderr, "%s: %s\n", verb, islands.reply().error->why.c_str());
    std::exit(1);
  }
  return ms_since(start);
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t count = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 100;
  const std::uint64_t rounds = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1000;
  set_log_sink([](LogLevel, std::string_view) {});
  const atl_test::TemporaryFolder folder;
  const auto state = folder.path() / "state";
  if (const Status made = init_coordinator(state, default_settings()); !made) {
    std::fprintf(stderr, "%s\n", made.error().why.c_str());
    return 1;
  }
  const std::string operator_key = read_key_file(operator_key_file(state)).value().public_key;
  Ledger ledger = Ledger::open(state).value();
  TimePoint time = now();
  auto server = std::make_unique<atl_test::ScriptedIslands>(count);
  atl_test::ScriptedIslands& islands = *server;
  {
    Admission admission = Admission::load(ledger.database()).value();
    for (std::size_t i = 0; i < count; ++i) {
      if (!admission.admit(islands.key(i), Role::island, islands.name(i), time)) {
        return 1;
      }
    }
  }
  auto driver =
      Driver::start(Settings{}, Place{"0.1.0", "tcp://127.0.0.1:4400", read_key_file(coordinator_key_file(state)).value().public_key},
                    std::move(ledger), std::move(server), time)
          .value();
  std::printf("%zu islands, %llu rounds, %u cores; state in %s\n", count, static_cast<unsigned long long>(rounds),
              std::thread::hardware_concurrency(), folder.path().c_str());
  std::printf("empty:            %6.1f MiB resident\n", resident_mib());

  RunSpec spec;
  spec.name = "bench";
  spec.data.set = "corpus";
  spec.training.steps = rounds * 10;
  spec.strategy.inner_steps = 10;
  spec.islands.min = static_cast<std::uint32_t>(count);
  spec.islands.max = static_cast<std::uint32_t>(count);
  spec.rounds = rounds;
  ask(*driver, islands, operator_key, time, "submit", "{\"spec\":" + to_json(spec) + "}");
  islands.say_hello();

  const auto start = std::chrono::steady_clock::now();
  double worst_ms = 0;
  std::uint64_t next_report = rounds / 10;
  while (islands.commits() < count * (rounds + 1)) {
    time += std::chrono::seconds(1);
    islands.beat();
    driver->step(time);
    const std::uint64_t round = islands.commits() / count;
    if (round > next_report) {
      const double ms = ask(*driver, islands, operator_key, time, "status", "{}");
      worst_ms = std::max(worst_ms, ms);
      std::printf("round %-6llu      %6.1f MiB resident, status %.1f ms\n", static_cast<unsigned long long>(round), resident_mib(), ms);
      next_report += std::max<std::uint64_t>(1, rounds / 10);
    }
  }
  const double seconds = ms_since(start) / 1000;
  std::printf("rounds:           %6.0f a second (%.2f ms each, %.1f us for each island)\n", static_cast<double>(rounds) / seconds,
              1000 * seconds / static_cast<double>(rounds), 1e6 * seconds / static_cast<double>(rounds * count));
  for (const auto& [verb, arguments] : std::initializer_list<std::pair<const char*, const char*>>{
           {"ping", ""}, {"runs", ""}, {"status", "{}"}, {"islands", ""}, {"events", "{\"run\":\"bench\"}"}, {"tokens", ""}}) {
    std::printf("%-8s          %6.2f ms\n", verb, ask(*driver, islands, operator_key, time, verb, arguments));
  }
  std::printf("ledger:           %6.1f MiB on disk\n", static_cast<double>(std::filesystem::file_size(state / "ledger.db")) / (1 << 20));
  return 0;
}
