// The proof of the data ledger: what adds up, and what does not.
#include "coordinator/ledger/data_audit.hpp"

#include "coordinator/ledger/ledger.hpp"
#include "tests/catch.hpp"
#include "tests/temporary_folder.hpp"

namespace of_data_audit_test {

namespace {

using namespace atl;
using namespace atl::coordinator;

const IslandId kA("i-a");
const IslandId kB("i-b");

RoundRecord round_of(std::uint64_t number, std::vector<DataRange> data, std::vector<std::uint64_t> tokens = {64, 64},
                     std::uint32_t lineage = 0) {
  RoundRecord round;
  round.run = RunId("r-1");
  round.lineage = lineage;
  round.round = Round(number);
  round.committed = true;
  round.members = {kA, kB};
  round.unnoted = data.empty();
  data.resize(2);
  for (std::size_t i = 0; i < 2; ++i) {
    round.contributions.push_back({.tokens = tokens[i], .steps = 4, .data = data[i]});
  }
  return round;
}

RoundRecord base_of(std::uint64_t number, std::vector<DataRange> parts, std::uint32_t lineage) {
  RoundRecord base;
  base.run = RunId("r-1");
  base.lineage = lineage;
  base.round = Round(number);
  base.committed = true;
  base.checkpoint = true;
  base.parts = std::move(parts);
  return base;
}

}  // namespace

TEST_CASE("data audit: ranges that follow each other add up, whoever trained on them") {
  DataAudit audit({});
  audit.take(round_of(1, {{0, 0, 10}, {1, 0, 8}}));
  audit.take(round_of(2, {{0, 10, 20}, {1, 8, 16}}, {64, 0}));  // b's does not count
  audit.take(round_of(3, {{1, 16, 20}, {0, 20, 21}}));          // they have changed parts
  REQUIRE(audit.rounds() == 3);
  const PartAudit& first = audit.parts().at(0);
  CHECK(first.fault.empty());
  CHECK(first.position == 21);
  CHECK(first.committed == 21);
  CHECK(first.islands == std::map<IslandId, std::uint64_t>{{kA, 20}, {kB, 1}});
  const PartAudit& second = audit.parts().at(1);
  CHECK(second.fault.empty());
  CHECK(second.committed == 12);
  CHECK(second.passed_over == 8);
  CHECK(second.position == 20);
}

TEST_CASE("data audit: a sample that is committed twice, or left out, is named") {
  DataAudit twice({});
  twice.take(round_of(1, {{0, 0, 10}, {1, 0, 8}}));
  twice.take(round_of(2, {{0, 7, 20}, {1, 8, 16}}));
  CHECK(twice.parts().at(0).fault == "sequences 7 to 9 are committed twice, again in round 2");
  CHECK(twice.parts().at(1).fault.empty());

  DataAudit missing({});
  missing.take(round_of(1, {{0, 0, 10}, {1, 0, 8}}));
  missing.take(round_of(2, {{0, 12, 20}, {1, 8, 16}}));
  CHECK(missing.parts().at(0).fault == "sequences 10 to 11 are missing before round 2");
}

TEST_CASE("data audit: rounds that were lost do not count, and their samples come again") {
  DataAudit audit({{1, Round(2)}, {2, Round(3)}});
  for (std::uint64_t number = 1; number <= 5; ++number) {
    audit.take(round_of(number, {{0, 10 * (number - 1), 10 * number}, {1, 0, 0}}));  // 3 to 5 are lost
  }
  audit.take(base_of(2, {{0, 0, 20}}, 1));
  audit.take(round_of(3, {{0, 20, 25}, {1, 0, 4}}, {64, 64}, 1));
  audit.take(round_of(4, {{0, 25, 30}, {1, 4, 8}}, {64, 64}, 1));  // lost too
  audit.take(base_of(3, {{0, 0, 25}, {1, 0, 4}}, 2));
  audit.take(round_of(4, {{0, 25, 31}, {1, 4, 5}}, {64, 64}, 2));
  CHECK(audit.parts().at(0).fault.empty());
  CHECK(audit.parts().at(0).committed == 31);
  CHECK(audit.parts().at(1).fault.empty());
  CHECK(audit.parts().at(1).committed == 5);
}

TEST_CASE("data audit: a restored ledger takes over what the islands know, and a position that went back is a fault") {
  DataAudit restored({{1, Round(9)}});
  restored.take(round_of(1, {{0, 0, 10}, {1, 0, 8}}));
  restored.take(base_of(9, {{0, 0, 90}, {1, 0, 72}}, 1));
  restored.take(round_of(10, {{0, 90, 100}, {1, 72, 80}}, {64, 64}, 1));
  CHECK(restored.parts().at(0).taken_over == 80);
  CHECK(restored.parts().at(0).committed == 20);
  CHECK(restored.parts().at(0).fault.empty());

  DataAudit back({{1, Round(9)}});
  back.take(round_of(1, {{0, 0, 10}, {1, 0, 8}}));
  back.take(base_of(9, {{0, 0, 6}}, 1));
  CHECK(back.parts().at(0).fault == "sequences 6 to 9 are committed, and open again after round 9");
}

TEST_CASE("data audit: rounds of an older atoll, which noted no samples, are counted as such") {
  DataAudit audit({});
  audit.take(round_of(1, {}));
  audit.take(round_of(2, {{0, 0, 10}, {1, 0, 8}}));
  CHECK(audit.unnoted() == 1);
  CHECK(audit.rounds() == 2);
}

namespace {

DroppedRecord refusal(Fate fate, std::uint64_t round, DataRange data, std::uint64_t tokens) {
  DroppedRecord dropped;
  dropped.run = RunId("r-1");
  dropped.island = kA;
  dropped.round = Round(round);
  dropped.facts.data = data;
  dropped.fate = fate;
  dropped.facts.tokens = tokens;
  return dropped;
}

}  // namespace

TEST_CASE("data audit: what counts in no round is passed over, and each sequence is in one class") {
  // Where rounds close with a quorum the range of a contribution that counts begins where the one before it ended that did.
  DataAudit audit({});
  audit.take(refusal(Fate::too_stale, 4, {0, 20, 120}, 100));
  audit.take(refusal(Fate::too_stale, 6, {0, 20, 220, 120}, 100));
  audit.take(refusal(Fate::rejected, 8, {0, 20, 226, 222}, 4));  // before it two were overwritten
  audit.take(round_of(1, {{0, 0, 20}, {1, 0, 8}}, {20, 8}));
  audit.take(round_of(9, {{0, 20, 286, 230}, {1, 8, 16}}, {56, 8}));  // and four more
  const PartAudit& part = audit.parts().at(0);
  CHECK(part.fault.empty());
  CHECK(part.position == 286);
  CHECK(part.committed == 76);
  CHECK(part.passed_over == 210);
  CHECK(part.refused == std::map<Fate, std::uint64_t>{{Fate::too_stale, 200}, {Fate::rejected, 4}});
  CHECK(part.overwritten == 6);
  CHECK(part.islands == std::map<IslandId, std::uint64_t>{{kA, 76}});
  CHECK(audit.parts().at(1).committed == 16);
  CHECK(audit.parts().at(1).passed_over == 0);
}

TEST_CASE("data audit: a contribution that its island withdrew says why its samples are passed over, and one of nothing has no token") {
  DataAudit audit({});
  audit.take(refusal(Fate::not_finite, 1, {0, 0, 10}, 64));
  RoundRecord first = round_of(1, {{0, 0, 10}, {1, 0, 8}}, {0, 64});
  audit.take(first);
  RoundRecord second = round_of(2, {{0, 10, 20}, {1, 8, 8}}, {64, 1});
  second.contributions[1].steps = 0;
  audit.take(second);
  audit.take(round_of(3, {{0, 20, 30}, {1, 8, 9}}, {0, 64}));  // nobody says why
  const PartAudit& part = audit.parts().at(0);
  CHECK(part.committed == 10);
  CHECK(part.passed_over == 20);
  CHECK(part.refused == std::map<Fate, std::uint64_t>{{Fate::not_finite, 10}});
  CHECK(part.overwritten == 0);
  CHECK(audit.fates().at(kB).merged == 128);
}

TEST_CASE("data audit: what was in hand when an island went back counts where it counts, and once") {
  DataAudit audit({{1, Round(2)}});
  audit.take(refusal(Fate::dropped, 1, {0, 0, 10}, 64));  // it did not know that it counts
  audit.take(refusal(Fate::dropped, 4, {0, 10, 20}, 32));
  audit.take(round_of(1, {{0, 0, 10}, {1, 0, 8}}));
  audit.take(round_of(3, {{0, 10, 20}, {1, 8, 16}}));  // lost
  CHECK(audit.fates().at(kA).dropped == std::map<Fate, std::uint64_t>{{Fate::dropped, 32}});
  CHECK(audit.fates().at(kA).merged == 64);
  CHECK(audit.fates().at(kA).lost == 64);
  CHECK(audit.parts().at(0).position == 10);  // its samples come again
  CHECK(audit.parts().at(0).passed_over == 0);
}

TEST_CASE("data audit: of the ledger's own rows, planned rounds and other runs left out") {
  const atl_test::TemporaryFolder folder;
  Ledger ledger = Ledger::open(folder.path()).value();
  RunRecord run;
  run.id = RunId("r-1");
  run.name = "run";
  run.lineage = 1;
  RoundRecord planned = round_of(5, {{0, 50, 60}, {1, 40, 48}}, {64, 64}, 1);
  planned.committed = false;
  RoundRecord other = round_of(1, {{0, 0, 99}, {1, 0, 99}});
  other.run = RunId("r-2");
  const PartRecord part{RunId("r-1"), 0, 25, 400, kB};
  REQUIRE(ledger
              .write(std::vector<Record>{run, round_of(1, {{0, 0, 10}, {1, 0, 8}}), round_of(2, {{0, 10, 20}, {1, 8, 16}}),
                                         round_of(3, {{0, 20, 99}, {1, 16, 99}}), base_of(2, {{0, 0, 20}, {1, 0, 16}}, 1),
                                         round_of(3, {{1, 16, 18}, {0, 20, 25}}, {64, 64}, 1), planned, other, part})
              .ok());
  const DataAudit audit = ledger.audit_data(RunId("r-1")).value();
  CHECK(audit.rounds() == 3);
  CHECK(audit.parts().at(0).position == 25);
  CHECK(audit.parts().at(0).fault.empty());
  CHECK(audit.parts().at(1).position == 18);
  CHECK(audit.parts().at(1).fault.empty());
  CHECK(ledger.parts(RunId("r-1")).value() == std::vector<PartRecord>{part});
  const Recovered recovered = ledger.recover().value();
  CHECK(recovered.parts == std::vector<PartRecord>{part});
  CHECK(recovered.rounds.front().parts == std::vector<DataRange>{{0, 0, 20}, {1, 0, 16}});
}

TEST_CASE("data audit: what became of each island's tokens is summed by fate, those of rounds that were lost left out") {
  DataAudit audit({{1, Round(2)}});
  DroppedRecord dropped;
  dropped.island = kB;
  dropped.fate = Fate::too_stale;
  dropped.facts.tokens = 7;
  dropped.facts.overwritten = 5;
  audit.take(dropped);
  RoundRecord first = round_of(1, {{0, 0, 10}, {1, 0, 8}}, {64, 32});
  first.contributions[1].staleness = 3;
  first.contributions[0].overwritten = 6;
  audit.take(first);
  RoundRecord second = round_of(2, {{0, 10, 20}, {1, 8, 16}}, {64, 0});
  second.contributions[1].overwritten = 5;  // of a contribution that was withdrawn: the record of that says so
  second.fragment = 1;
  audit.take(second);
  audit.take(round_of(3, {{0, 20, 30}, {1, 16, 24}}));  // lost
  const TokenFates& a = audit.fates().at(kA);
  CHECK(a.merged == 128);
  CHECK(a.late == 0);
  CHECK(a.overwritten == 6);
  CHECK(a.dropped.empty());
  const TokenFates& b = audit.fates().at(kB);
  CHECK(b.merged == 0);
  CHECK(b.late == 32);
  CHECK(b.overwritten == 5);
  CHECK(b.dropped == std::map<Fate, std::uint64_t>{{Fate::too_stale, 7}});
  CHECK(audit.fragments() == 2);
}

TEST_CASE("data audit: a contribution that is told twice to count in no round is one in the ledger") {
  const atl_test::TemporaryFolder folder;
  Ledger ledger = Ledger::open(folder.path()).value();
  DroppedRecord dropped;
  dropped.run = RunId("r-1");
  dropped.island = kA;
  dropped.round = Round(4);
  dropped.facts.data = DataRange{1, 20, 30};
  dropped.fate = Fate::overrun;
  dropped.facts.tokens = 9;
  DroppedRecord again = dropped;  // a round is of one fragment: an island that says another one adds no row
  again.facts.fragment = 7;
  const std::vector<Record> records{dropped, again};
  REQUIRE(ledger.write(records).ok());
  REQUIRE(ledger.write(records).ok());
  CHECK(ledger.audit_data(RunId("r-1"))->fates().at(kA).dropped.at(Fate::overrun) == 9);
  CHECK(ledger.audit_data(RunId("r-2"))->fates().empty());
}

}  // namespace of_data_audit_test
