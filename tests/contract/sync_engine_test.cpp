// Sync engines over real bulk links on loopback: rounds of two and three, attempts that are repeated, joiners, memory.
#include "agent/engine/sync_engine.hpp"

#include <poll.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "agent/engine/built_in_model.hpp"
#include "agent/engine/round_result.hpp"
#include "agent/island_link/arena.hpp"
#include "agent/storage/checkpoint.hpp"
#include "tests/catch.hpp"
#include "tests/contract/engine_islands.hpp"
#include "tests/temporary_folder.hpp"
#include "transport/base/own_disk.hpp"
#include "transport/identity/identity.hpp"
#include "transport/zmq/zmq_bulk_link.hpp"

using namespace atl;
using namespace atl::agent;
using namespace std::chrono_literals;
using atl_test::Island;
using atl_test::Islands;
using atl_test::kRun;
using atl_test::memory_now;
using atl_test::spec_of;

namespace {

// Nesterov 0.7, 0.9 in double for a constant gradient.
double after_rounds(double gradient, int rounds) {
  double value = 1.0;
  double momentum = 0;
  for (int i = 0; i < rounds; ++i) {
    momentum = 0.9 * momentum + gradient;
    value -= 0.7 * (gradient + 0.9 * momentum);
  }
  return value;
}

// Ends of TCP connections that this process has.
std::size_t established_connections() {
  std::set<std::string> own;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    if (target.starts_with("socket:[")) {
      own.insert(target.substr(8, target.size() - 9));
    }
  }
  std::ifstream table("/proc/self/net/tcp");
  std::string line;
  std::getline(table, line);
  std::size_t count = 0;
  while (std::getline(table, line)) {
    std::istringstream row(line);
    std::vector<std::string> fields;
    for (std::string field; row >> field;) {
      fields.push_back(field);
    }
    count += fields.size() > 9 && fields[3] == "01" && own.contains(fields[9]) ? 1U : 0U;
  }
  return count;
}

}  // namespace

TEST_CASE("sync engine: rounds on one level and on two give the same digest on all islands and the arithmetic's result") {
  for (const int islands : {1, 2, 3, 6, 7}) {
    for (const CodecKind codec : {CodecKind::f32, CodecKind::bf16}) {
      INFO(islands << " islands, " << name_of(codec));
      Islands group(islands, 100'000, spec_of(codec), 3);
      for (std::uint64_t round = 1; round <= 3; ++round) {
        group.whole_round(Round(round));
      }
      double mean = 0;
      for (int i = 1; i <= islands; ++i) {
        mean += i / 1024.0 / islands;
      }
      for (auto& island : group.all) {
        for (const std::size_t at : {0U, 1U, 6U, 99'999U, 100'002U}) {
          const double expected = after_rounds(mean * static_cast<double>(at % 7 + 1), 3);
          CHECK(static_cast<double>(island->arena.floats()[at]) == Approx(expected).epsilon(codec == CodecKind::f32 ? 1e-6 : 2e-3));
        }
      }
    }
  }
}

TEST_CASE("sync engine: on two levels an island is connected to its group and its column, and to nobody else") {
  const auto connections = [](std::size_t one_level_members) {
    const std::size_t before = established_connections();
    Islands group(9, 10'000, spec_of(), one_level_members);
    for (std::uint64_t round = 1; round <= 2; ++round) {
      group.whole_round(Round(round));
    }
    return established_connections() - before;
  };
  const std::size_t of_a_pair = 2 * 2;  // two streams, and both ends of each are here
  CHECK(connections(3) <= 9 * 4 / 2 * of_a_pair);
  CHECK(connections(9) > 9 * 4 / 2 * of_a_pair);
}

TEST_CASE("sync engine: of many islands those are dialled with which rounds are taken in pairs") {
  const auto most_connections = [](std::size_t one_level_members) {
    RunSpec spec = spec_of();
    spec.strategy = named_strategy("noloco").value();
    const std::size_t before = established_connections();
    Islands islands(8, 1000, spec, one_level_members);
    std::size_t most = 0;
    for (std::uint64_t number = 1; number <= 7; ++number) {
      for (std::size_t i = 0; i < 8; ++i) {  // with another one in each round
        const std::vector<IslandId> pair = {islands.members[i].island, islands.members[i ^ number].island};
        islands.all[i]->engine->post(PreparePair{kRun, Epoch(1), Round(number), 0, pair});
      }
      std::this_thread::sleep_for(300ms);
      most = std::max(most, established_connections() - before);
    }
    return most;
  };
  const std::size_t of_a_pair = 2 * 2;                  // two streams, and both ends of each are here
  CHECK(most_connections(1) <= 8 * 3 / 2 * of_a_pair);  // the last three partners
  CHECK(most_connections(8) == 8 * 7 / 2 * of_a_pair);
}

TEST_CASE("sync engine: radial-directional rounds on one level and on two, and a joiner that has only the results") {
  for (const int islands : {2, 3, 6}) {
    for (const CodecKind codec : {CodecKind::f32, CodecKind::int8}) {
      INFO(islands << " islands, " << name_of(codec));
      RunSpec spec = spec_of(codec);
      spec.strategy.aggregator = Aggregator::radial_directional;
      spec.strategy.outer_optimizer = OuterOptimizerKind::sgd;
      spec.strategy.outer_learning_rate = 1.0;
      Islands group(islands, 100'000, spec, 3);
      Island& source = *group.all[0];
      source.engine->post(KeepResults{kRun, true});
      source.engine->post(WriteCheckpoint{kRun, Epoch(1), Round(0), group.digest, TrainerSave::none, Step(0), 0, 3});
      const CheckpointWritten written = source.answer<CheckpointWritten>();
      // Island i moves every value i of the islands' number apart, by i + 1: the directions are at right angles.
      BeginExchange order = group.exchange(Round(1), Attempt(1), std::vector<std::uint64_t>(group.all.size(), 100));
      order.terms.norms.clear();
      for (std::size_t i = 0; i < group.all.size(); ++i) {
        Island& island = *group.all[i];
        island.engine->post(FillArena{kRun, 1});
        REQUIRE(island.answer<ArenaFilled>().status.ok());
        for (std::size_t at = i; at < island.arena.floats().size(); at += group.all.size()) {
          island.arena.floats()[at] -= static_cast<float>(i + 1);
        }
        island.engine->post(FormContribution{kRun, Round(1)});
        order.terms.norms.push_back(island.answer<ContributionFormed>().facts.norm);
      }
      for (auto& island : group.all) {
        island->engine->post(order);
      }
      const Digest digest = group.all[0]->answer<ExchangeDone>().digest;
      for (std::size_t i = 1; i < group.all.size(); ++i) {
        CHECK(group.all[i]->answer<ExchangeDone>().digest == digest);
      }
      for (auto& island : group.all) {  // once all have the result: a round that is committed is given to nobody who still exchanges
        island->engine->post(ApplyResult{kRun, Round(1), Attempt(1), 0, digest});
        REQUIRE_FALSE(island->answer<ResultApplied>().error.has_value());
      }
      // Norms ρ·(i + 1) and right angles: the length is ρ·(islands + 1)/2, and each direction has 1/√islands of it.
      const double moved = (islands + 1) / 2.0 / std::sqrt(islands);
      for (const std::size_t at : {0U, 1U, 2U, 77'777U, 99'999U}) {
        CHECK(static_cast<double>(source.arena.floats()[at]) == Approx(1.0 - moved).margin(codec == CodecKind::f32 ? 1e-4 : 2e-2));
      }
      Island joiner(9, {100'000, 3}, 3);
      for (auto& island : group.all) {
        island->engine->post(AllowPeers{kRun, Epoch(1), group.members, {{joiner.member.public_key}}});
      }
      std::vector<Member> everyone = group.members;
      everyone.push_back(joiner.member);
      joiner.engine->post(OpenRun{kRun, spec});
      joiner.engine->post(AllowPeers{kRun, Epoch(1), everyone, {}});
      const CatchUp catch_up{kRun, Epoch(1), Round(0), written.file, written.file_bytes, Round(1), digest, {source.member}};
      joiner.engine->post(CatchUpFromPeers{catch_up, false, Round(0), Digest()});
      CHECK(joiner.answer<CatchUpDone>().digest == digest);
      joiner.engine->post(WriteCheckpoint{kRun, Epoch(1), Round(1), digest, TrainerSave::none, Step(1), 1, 3});
      source.engine->post(WriteCheckpoint{kRun, Epoch(1), Round(1), digest, TrainerSave::none, Step(1), 1, 3});
      CHECK(joiner.answer<CheckpointWritten>().file == source.answer<CheckpointWritten>().file);
    }
  }
}

TEST_CASE("sync engine: whoever tells a smaller norm than its contribution has is accused") {
  for (const std::size_t islands : {2U, 3U}) {
    RunSpec spec = spec_of();
    spec.strategy.aggregator = Aggregator::radial_directional;
    Islands group(static_cast<int>(islands), 10'000, spec);
    BeginExchange order = group.exchange(Round(1), Attempt(1), std::vector<std::uint64_t>(islands, 100));
    for (std::size_t i = 0; i < islands; ++i) {
      group.all[i]->contribute(Round(1), 1.0F);
      order.terms.norms.push_back(i == 1 ? 1e-3 : 1e3);
    }
    for (auto& island : group.all) {
      island->void_attempt = Attempt(1);
      island->engine->post(order);
    }
    const ExchangeBroke broke = group.all[0]->answer<ExchangeBroke>();
    INFO(broke.error.why);
    CHECK(broke.accused == group.members[1].island);
    CHECK(broke.error.code == Code::corrupt);
  }
}

TEST_CASE("sync engine: an island that was stopped for a while does not take its own silence for that of the others") {
  Islands group(2, 50'000, spec_of());
  for (auto& island : group.all) {
    island->contribute(Round(1), 1.0F / 1024.0F);
  }
  const BeginExchange order = group.exchange(Round(1), Attempt(1), {1, 1});
  group.all[0]->engine->post(order);
  std::this_thread::sleep_for(500ms);  // it has asked
  group.all[0]->slept = 5s;
  std::this_thread::sleep_for(1500ms);  // and has looked since
  group.all[1]->engine->post(order);
  CHECK(group.all[0]->answer<ExchangeDone>().digest == group.all[1]->answer<ExchangeDone>().digest);
}

TEST_CASE("sync engine: what travels packed comes to the same digests in fewer bytes") {
  for (const int islands : {2, 3}) {
    for (const CodecKind codec : {CodecKind::f32, CodecKind::int8, CodecKind::fp4}) {
      INFO(islands << " islands, " << name_of(codec));
      RunSpec spec = spec_of(codec);
      Islands plain(islands, 300'000, spec);
      spec.strategy.packing = Packing::zstd;
      Islands packed(islands, 300'000, spec);
      for (std::uint64_t round = 1; round <= 2; ++round) {
        CHECK(plain.whole_round(Round(round)) == packed.whole_round(Round(round)));
      }
      CHECK(packed.received < plain.received / 2);  // the same seven values again and again
    }
  }
}

TEST_CASE("sync engine: a repeated attempt uses the retained contributions, without the one who went away") {
  Islands group(3, 50'000, spec_of());
  for (std::size_t i = 0; i < 3; ++i) {
    group.all[i]->contribute(Round(1), static_cast<float>(i + 1) / 1024.0F);
  }
  for (std::size_t i = 0; i < 2; ++i) {  // the third never comes
    group.all[i]->engine->post(group.exchange(Round(1), Attempt(1), {1, 1, 1}));
  }
  group.all[2].reset();
  for (std::size_t i = 0; i < 2; ++i) {
    group.all[i]->void_attempt = Attempt(1);
    group.all[i]->engine->post(CancelExchange{kRun, Round(1), Attempt(1)});
    BeginExchange again{kRun, Epoch(2), Round(1), Attempt(2), 0, {group.members[0], group.members[1]}, {{1, 3}}};
    group.all[i]->engine->post(again);
  }
  const Digest one = group.all[0]->answer<ExchangeDone>().digest;
  CHECK(group.all[1]->answer<ExchangeDone>().digest == one);
  for (std::size_t i = 0; i < 2; ++i) {
    group.all[i]->engine->post(ApplyResult{kRun, Round(1), Attempt(2), 0, one});
    CHECK_FALSE(group.all[i]->answer<ResultApplied>().error.has_value());
    CHECK(static_cast<double>(group.all[i]->arena.floats()[0]) == Approx(after_rounds((1 + 3 * 2) / 4.0 / 1024.0, 1)).epsilon(1e-6));
  }
}

TEST_CASE("sync engine: a member without weight sends nothing and receives the result") {
  Islands group(2, 10'000, spec_of());
  group.all[0]->contribute(Round(1), 1.0F / 1024.0F);
  for (auto& island : group.all) {
    island->engine->post(group.exchange(Round(1), Attempt(1), {5, 0}));
  }
  const ExchangeDone first = group.all[0]->answer<ExchangeDone>();
  const ExchangeDone second = group.all[1]->answer<ExchangeDone>();
  CHECK(first.digest == second.digest);
  CHECK(second.bytes_sent == 0);
  CHECK(second.bytes_received == first.bytes_sent);
}

TEST_CASE("sync engine: a contribution that is not finite is refused, and the state stays as it was") {
  Islands group(1, 1'000, spec_of());
  Island& island = *group.all[0];
  island.engine->post(FillArena{kRun, 1});
  REQUIRE(island.answer<ArenaFilled>().status.ok());
  island.arena.floats()[17] = std::numeric_limits<float>::infinity();
  island.engine->post(FormContribution{kRun, Round(1)});
  const ContributionFailed failed = island.answer<ContributionFailed>();
  CHECK(failed.error.code == Code::corrupt);
  CHECK(failed.error.why.find("17") != std::string::npos);
  island.engine->post(FillArena{kRun, 1});
  REQUIRE(island.answer<ArenaFilled>().status.ok());
  CHECK(island.arena.floats()[17] == 1.0F);
}

TEST_CASE("sync engine: a result that is not the committed one is not applied") {
  Islands group(1, 1'000, spec_of());
  Island& island = *group.all[0];
  island.contribute(Round(1), 0.5F);
  island.engine->post(group.exchange(Round(1), Attempt(1), {1}));
  Digest other = island.answer<ExchangeDone>().digest;
  other.bytes[0] ^= std::byte{1};
  island.engine->post(ApplyResult{kRun, Round(1), Attempt(1), 0, other});
  const ResultApplied refused = island.answer<ResultApplied>();
  REQUIRE(refused.error.has_value());
  CHECK(refused.error->code == Code::corrupt);
}

TEST_CASE("sync engine: a joiner copies a checkpoint and the results after it, one that missed rounds only those") {
  Islands group(2, 300'000, spec_of());
  group.whole_round(Round(1));
  Island& source = *group.all[0];
  source.engine->post(KeepResults{kRun, true});
  source.engine->post(WriteCheckpoint{kRun, Epoch(1), Round(1), group.digest, TrainerSave::none, Step(10), 100, 3});
  const CheckpointWritten written = source.answer<CheckpointWritten>();
  const Digest at_one = group.digest;
  for (const Round later : {Round(2), Round(3)}) {  // which may not push out what a joiner was told of
    group.whole_round(later);
    source.engine->post(
        WriteCheckpoint{kRun, Epoch(1), later, group.digest, TrainerSave::none, Step(10 * later.value), 100 * later.value, 1, {Round(1)}});
    CHECK(source.answer<CheckpointWritten>().round == later);
  }

  Island joiner(9, {300'000, 3});
  std::vector<Member> everyone = group.members;
  everyone.push_back(joiner.member);
  for (auto& island : group.all) {
    island->engine->post(AllowPeers{kRun, Epoch(1), group.members, {{joiner.member.public_key}}});
  }
  joiner.engine->post(OpenRun{kRun, spec_of()});
  joiner.engine->post(AllowPeers{kRun, Epoch(1), everyone, {}});
  CatchUp order{kRun, Epoch(1), Round(1), written.file, written.file_bytes, Round(3), group.digest, {source.member}};
  joiner.engine->post(CatchUpFromPeers{order, false, Round(0), Digest()});
  const CatchUpDone done = joiner.answer<CatchUpDone>();
  CHECK(done.round == Round(3));
  CHECK(done.digest == group.digest);
  joiner.engine->post(WriteCheckpoint{kRun, Epoch(1), Round(3), group.digest, TrainerSave::none, Step(30), 300, 3});
  source.engine->post(WriteCheckpoint{kRun, Epoch(1), Round(3), group.digest, TrainerSave::none, Step(31), 301, 3});
  CHECK(joiner.answer<CheckpointWritten>().file == source.answer<CheckpointWritten>().file);

  // Back at round 1, from the own checkpoint: only the results are fetched.
  source.engine->post(WriteCheckpoint{kRun, Epoch(1), Round(3), group.digest, TrainerSave::none, Step(31), 301, 3});
  group.all[1]->engine->post(WriteCheckpoint{kRun, Epoch(1), Round(3), group.digest, TrainerSave::none, Step(31), 301, 3});
  group.all[1]->answer<CheckpointWritten>();
  source.engine->post(LoadCheckpoint{kRun, Round(1), at_one});
  CHECK(source.answer<CheckpointLoaded>().digest == at_one);
}

TEST_CASE("sync engine: a checkpoint waits for what its trainer writes beside its steps, and does without it where that does not come") {
  Islands group(1, 1'000, spec_of());
  Island& island = *group.all[0];
  const std::filesystem::path checkpoints = island.folder.path() / "runs" / kRun.text / "checkpoints";
  const auto begin = [&](Round round) {
    group.whole_round(round);
    island.engine->post(WriteCheckpoint{kRun, Epoch(1), round, group.digest, TrainerSave::going_on, Step(10), 100, 9});
    const std::filesystem::path partial = checkpoints / ("." + std::to_string(round.value) + ".partial");
    std::filesystem::create_directories(partial / "trainer.writing");
    std::ofstream(partial / "trainer.writing" / "state") << "half of it";
    return partial;
  };
  const std::filesystem::path first = begin(Round(1));
  group.whole_round(Round(2));  // the engine goes on
  std::filesystem::rename(first / "trainer.writing", first / "trainer");
  island.engine->post(EndTrainerState{kRun, Round(1), true});
  const CheckpointWritten whole = island.answer<CheckpointWritten>();
  CHECK((whole.round == Round(1) && whole.trainer_state));
  CHECK(std::filesystem::exists(checkpoints / "1" / "trainer" / "state"));

  begin(Round(3));
  island.engine->post(EndTrainerState{kRun, Round(3), false});
  const CheckpointWritten without = island.answer<CheckpointWritten>();
  CHECK((without.round == Round(3) && !without.trainer_state));
  CHECK_FALSE(std::filesystem::exists(checkpoints / "3" / "trainer.writing"));

  begin(Round(4));
  island.engine->post(LoadCheckpoint{kRun, Round(1), whole.digest});  // its folder becomes somebody else's
  const CheckpointWritten cut = island.answer<CheckpointWritten>();
  CHECK((cut.round == Round(4) && !cut.trainer_state));
  CHECK(island.answer<CheckpointLoaded>().round == Round(1));
}

TEST_CASE("sync engine: a joiner that hears of a commit before its sources do copies nothing twice, and waits for the result") {
  Islands group(2, 300'000, spec_of());
  group.whole_round(Round(1));
  Island& source = *group.all[0];
  source.engine->post(KeepResults{kRun, true});
  source.engine->post(WriteCheckpoint{kRun, Epoch(1), Round(1), group.digest, TrainerSave::none, Step(10), 100, 3});
  const CheckpointWritten written = source.answer<CheckpointWritten>();
  for (auto& island : group.all) {
    island->contribute(Round(2), 1.0F / 1024.0F);
    island->engine->post(group.exchange(Round(2), Attempt(1), {100, 100}));
  }
  const Digest digest = source.answer<ExchangeDone>().digest;

  Island joiner(9, {300'000, 3});
  std::vector<Member> everyone = group.members;
  everyone.push_back(joiner.member);
  source.engine->post(AllowPeers{kRun, Epoch(1), group.members, {{joiner.member.public_key}}});
  joiner.engine->post(OpenRun{kRun, spec_of()});
  joiner.engine->post(AllowPeers{kRun, Epoch(1), everyone, {}});
  CatchUp order{kRun, Epoch(1), Round(1), written.file, written.file_bytes, Round(2), digest, {source.member}};
  joiner.engine->post(CatchUpFromPeers{order, false, Round(0), Digest()});
  std::this_thread::sleep_for(1s);  // it has the checkpoint by then, and has asked for the result
  while (const auto answer = joiner.engine->take_answer()) {
    CHECK(std::holds_alternative<WaysChanged>(*answer));  // which way a peer is reached is no answer to an order
  }
  source.engine->post(ApplyResult{kRun, Round(2), Attempt(1), 0, digest});
  CHECK(joiner.answer<CatchUpDone>().digest == digest);
}

TEST_CASE("sync engine: what an agent that was killed had kept for joiners is removed when its run is opened again") {
  Island island(0, {1'000});
  const std::filesystem::path kept = island.folder.path() / "runs" / kRun.text / "results";
  std::filesystem::create_directories(kept);
  std::ofstream(kept / "7") << "a result";
  island.open(spec_of());
  CHECK_FALSE(std::filesystem::exists(kept));
}

TEST_CASE("sync engine: a momentum in bf16 halves its part of checkpoints and copies, and is the same bits on islands that load or join") {
  RunSpec spec = spec_of();
  spec.strategy.outer_state = OuterStateFormat::bf16;
  Islands group(2, 300'000, spec);
  Islands plain(2, 300'000, spec_of());
  const auto write = [](Island& island, Round round, const Digest& digest) {
    island.engine->post(WriteCheckpoint{kRun, Epoch(1), round, digest, TrainerSave::none, Step(10), 100, 3});
    return island.answer<CheckpointWritten>();
  };
  group.whole_round(Round(1));
  plain.whole_round(Round(1));
  CHECK(group.digest == plain.digest);  // of the results, which are the same in the first round
  Island& source = *group.all[0];
  Island& other = *group.all[1];
  source.engine->post(KeepResults{kRun, true});
  const Digest at_one = group.digest;
  const CheckpointWritten written = write(source, Round(1), at_one);
  CHECK(write(other, Round(1), at_one).file == written.file);
  const CheckpointWritten wide = write(*plain.all[0], Round(1), plain.digest);
  const std::uint64_t values = 300'003;
  CHECK(wide.file_bytes - written.file_bytes >= 2 * values - 64);  // but for the lengths of texts in the header
  CHECK(wide.file_bytes - written.file_bytes <= 2 * values + 64);
  for (const Round later : {Round(2), Round(3)}) {
    group.whole_round(later);
  }
  const CheckpointWritten newest = write(source, Round(3), group.digest);

  other.engine->post(LoadCheckpoint{kRun, Round(1), at_one});
  CHECK(other.answer<CheckpointLoaded>().digest == at_one);
  const CatchUp results{kRun, Epoch(1), Round(1), written.file, written.file_bytes, Round(3), group.digest, {source.member}};
  other.engine->post(CatchUpFromPeers{results, true, Round(1), at_one});
  CHECK(other.answer<CatchUpDone>().round == Round(3));
  CHECK(write(other, Round(3), group.digest).file == newest.file);

  Island joiner(9, {300'000, 3});
  std::vector<Member> everyone = group.members;
  everyone.push_back(joiner.member);
  source.engine->post(AllowPeers{kRun, Epoch(1), group.members, {{joiner.member.public_key}}});
  joiner.engine->post(OpenRun{kRun, spec});
  joiner.engine->post(AllowPeers{kRun, Epoch(1), everyone, {}});
  joiner.engine->post(CatchUpFromPeers{results, false, Round(0), Digest()});
  CHECK(joiner.answer<CatchUpDone>().digest == group.digest);
  CHECK(write(joiner, Round(3), group.digest).file == newest.file);

  // A run that keeps its momentum otherwise does not read it for its own.
  for (const bool wants_bf16 : {false, true}) {
    const Island& from = wants_bf16 ? *plain.all[0] : source;
    const DiskPath folder = confined_to(from.folder.path() / "other").value();
    auto run =
        IslandRun::open(kRun, wants_bf16 ? spec : spec_of(), from.member.island, folder, shared_arenas(from.member.island, "")).value();
    const std::filesystem::path file = from.folder.path() / "runs" / kRun.text / "checkpoints" / "1" / kOuterFile;
    const Status loaded = run->load_outer(on_this_machine(file));
    REQUIRE_FALSE(loaded);
    CHECK(loaded.error().code == Code::corrupt);
    CHECK(loaded.error().why.find(wants_bf16 ? "is F32, and this run keeps it as BF16 (outer_state = \"bf16\")"
                                             : "is BF16, and this run keeps it as F32 (outer_state = \"f32\")") != std::string::npos);
    CHECK_FALSE(run->has_state());
  }
}

TEST_CASE("sync engine: what ended long ago by the coordinator's clock and not by the disk's stays") {
  Island a(1, {100});
  const std::filesystem::path run = a.folder.path() / "runs" / "r-ended";
  std::filesystem::create_directories(run / "checkpoints" / "7");
  const bool all = GENERATE(true, false);
  a.engine->post(RemoveStored{RunId("r-ended"), all, "it ended 31 days ago", 24h});
  const StoredRemoved young = a.answer<StoredRemoved>();
  REQUIRE(young.error);
  CHECK(young.error->why.find("it ended 31 days ago, says the coordinator; by this machine's clock its newest checkpoint was written") ==
        0);
  CHECK(std::filesystem::exists(run / "checkpoints" / "7"));
  std::filesystem::last_write_time(run / "checkpoints" / "7", std::filesystem::file_time_type::clock::now() - 25h);
  a.engine->post(RemoveStored{RunId("r-ended"), true, "it ended 31 days ago", 24h});
  CHECK_FALSE(a.answer<StoredRemoved>().error);
  CHECK_FALSE(std::filesystem::exists(run));
}

TEST_CASE("sync engine: a checkpoint with a flipped bit is refused and says so") {
  Islands group(1, 5'000, spec_of());
  Island& island = *group.all[0];
  island.engine->post(WriteCheckpoint{kRun, Epoch(1), Round(0), group.digest, TrainerSave::none, Step(0), 0, 3});
  island.answer<CheckpointWritten>();
  const auto file = island.folder.path() / "runs" / kRun.text / "checkpoints" / "0" / kOuterFile;
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekp(5000);
  stream.put('\x5a');
  stream.close();
  island.engine->post(LoadCheckpoint{kRun, Round(0), group.digest});
  CHECK(island.answer<CheckpointBroken>().error.code == Code::corrupt);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_CASE("sync engine: at most 16 bytes a parameter and 100 MiB, and no more after many rounds") {
  constexpr std::uint64_t kValues = 8'000'000;
  const std::uint64_t before = memory_now();
  Islands group(2, kValues, spec_of());
  std::uint64_t after_a_few = 0;
  for (std::uint64_t round = 1; round <= 12; ++round) {
    group.whole_round(Round(round));
    if (round == 3) {
      after_a_few = memory_now();
    }
  }
  const std::uint64_t after = memory_now();
  const std::uint64_t mapped_here = 2 * kValues * sizeof(float);  // the test's own mapping of each arena is counted again
  CHECK(after - before <= 2 * (16 * kValues + (100ULL << 20)) + mapped_here);
  CHECK(after <= after_a_few + (32ULL << 20));
}
#endif

TEST_CASE("round result: there and back, and nothing that is not one") {
  const double norm = GENERATE(0.0, 7.25);  // of an aggregator that counts norms
  const std::vector<float> values = {1, 2, 3, 4, 5};
  RoundResult result;
  result.round = Round(7);
  result.fragment = 1;
  result.values = 5;
  result.terms = {{std::as_bytes(std::span(values)), 0.25F, norm}, {std::as_bytes(std::span(values)), 0.75F, norm}};
  atl_test::TemporaryFolder folder;
  REQUIRE(write_result(on_this_machine(folder.path() / "r"), result).ok());
  const StoredResult stored = StoredResult::open(on_this_machine(folder.path() / "r")).value();
  CHECK(digest_after(Digest(), stored.result()) == digest_after(Digest(), result));
  CHECK(stored.result().terms[1].norm == norm);
  const Bytes good = read_file(on_this_machine(folder.path() / "r"), 1 << 20).value();
  for (std::size_t size = 0; size < good.size(); ++size) {
    CHECK_FALSE(parse_result(ByteView(good).first(size)).has_value());
  }
  Bytes longer = good;
  longer.push_back(std::byte{0});
  CHECK_FALSE(parse_result(longer).has_value());
  int different = 0;
  for (std::size_t at = 0; at < good.size(); ++at) {
    Bytes bad = good;
    bad[at] ^= std::byte{0x10};
    const Result<RoundResult> parsed = parse_result(bad);
    different += !parsed || digest_after(Digest(), *parsed) != digest_after(Digest(), result) ? 1 : 0;
  }
  CHECK(different == static_cast<int>(good.size()));
}
