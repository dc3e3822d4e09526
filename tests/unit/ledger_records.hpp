// Records for tests of the ledger, with something in every field.
#pragma once

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/ledger/ledger.hpp"

namespace atl_test {

using namespace atl;
using namespace atl::coordinator;
using namespace std::chrono_literals;

inline const TimePoint kStart = from_unix_ms(1'767'225'600'123);

inline Digest digest(std::uint64_t number) {
  Digest digest;
  std::memcpy(digest.bytes.data(), &number, sizeof number);
  return digest;
}

inline RunRecord run_record(const std::string& id = "r-1", std::uint64_t committed = 0) {
  RunRecord run;
  run.id = RunId(id);
  run.name = "text";
  run.file = "[run]\nname = \"text\"\n";
  run.spec = "{\"name\":\"text\"}";
  run.state = RunState::running;
  run.reason = {"round 8: waits for b", kStart, kStart + 10min};
  run.submitted = kStart;
  run.started = kStart + 1s;
  run.epoch = Epoch(2);
  run.initialised = true;
  run.committed = Round(committed);
  run.digest = digest(committed);
  run.tokens = 1234;
  return run;
}

inline RoundRecord round_record(std::uint64_t number, bool committed, bool checkpoint = false) {
  RoundRecord round;
  round.run = RunId("r-1");
  round.round = Round(number);
  round.epoch = Epoch(2);
  round.attempt = Attempt(1);
  round.committed = committed;
  round.checkpoint = checkpoint;
  round.members = {IslandId("i-a"), IslandId("i-b")};
  round.contributions = {{.tokens = 100}, {.tokens = 18'446'744'073'709'551'615ULL}};
  round.planned = kStart;
  if (committed) {
    round.digest = digest(number);
    round.committed_at = kStart + 1s;
  }
  return round;
}

inline EventRecord event_record(std::uint64_t number, std::string level = "info") {
  return {kStart + std::chrono::seconds(number),
          RunId("r-1"),
          IslandId(number % 2 == 0 ? "i-a" : "i-b"),
          std::move(level),
          "round_committed",
          "round " + std::to_string(number),
          {{"round", static_cast<std::int64_t>(number)}, {"seconds", 0.5}, {"why", std::string("\"q\"")}}};
}

inline Status write(Ledger& ledger, std::vector<Record> records) { return ledger.write(records); }

}  // namespace atl_test
