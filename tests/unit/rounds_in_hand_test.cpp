// The rounds that an island has in hand: what it says of each, and what becomes of them.
#include "agent/core/rounds.hpp"
#include "agent/core/rules/partners.hpp"
#include "agent/core/rules/rule_settings.hpp"
#include "tests/catch.hpp"

namespace of_rounds_in_hand_test {

namespace {

using namespace atl;
using namespace atl::agent;
using Phase = RoundInHand::Phase;

RunTerms terms(const std::string& strategy = "diloco") {
  RunSpec spec;
  spec.name = "run";
  spec.strategy = named_strategy(strategy).value();
  spec.training.steps = 40;
  spec.rounds = 10;
  return RunTerms(RunId("r-1"), spec, compose(spec.strategy).value());
}

ContributionFacts facts(std::uint64_t from, std::uint64_t to, std::uint32_t part = 0) {
  ContributionFacts value;
  value.tokens = 100;
  value.steps = 4;
  value.data = DataRange{part, from, to};
  return value;
}

PendingRound pending(std::uint64_t round, std::uint64_t from, std::uint64_t to, std::uint32_t part = 0) {
  PendingRound value;
  value.round = Round(round);
  value.facts = facts(from, to, part);
  value.facts.norm = 2;
  return value;
}

Digest digest(int number) {
  Digest value;
  value.bytes[0] = std::byte{static_cast<unsigned char>(number)};
  return value;
}

}  // namespace

TEST_CASE("a round says in each phase what the coordinator has to hear of it, in the present epoch") {
  RoundInHand round(RunId("r-1"), Round(3), 1);
  ContributionFacts published = facts(0, 8);
  published.fragment = 1;
  round.describe(published);
  CHECK_FALSE(round.said(Epoch(2), digest(2)));
  round.form(0.5);
  const std::optional<Message> formed = round.said(Epoch(2), digest(2));
  REQUIRE(formed);
  const auto& ready = std::get<atl::Ready>(*formed);
  CHECK(ready.epoch == Epoch(2));
  CHECK(ready.round == Round(3));
  CHECK(ready.facts.fragment == 1);
  CHECK(ready.facts.tokens == 100);
  CHECK(ready.facts.norm == 0.5);
  CHECK(ready.digest == digest(2));
  CHECK(std::get<atl::Ready>(*round.said(Epoch(5), digest(2))).epoch == Epoch(5));
  round.begin_exchange(Attempt(1));
  CHECK_FALSE(round.said(Epoch(2), digest(2)));
  CHECK(round.in_exchange());
  round.fail(ExchangeFailed{});
  CHECK(std::holds_alternative<ExchangeFailed>(*round.said(Epoch(2), digest(2))));
  round.abort();
  CHECK(std::holds_alternative<atl::Ready>(*round.said(Epoch(2), digest(2))));
  round.begin_exchange(Attempt(2));
  round.finish_exchange(Exchanged{});
  CHECK(std::holds_alternative<Exchanged>(*round.said(Epoch(2), digest(2))));
  round.apply();
  CHECK_FALSE(round.said(Epoch(2), digest(2)));
  CHECK_FALSE(round.in_exchange());
}

TEST_CASE("a contribution that was withdrawn stays withdrawn when an attempt is given up") {
  RoundInHand round(RunId("r-1"), Round(3), 0);
  round.withdraw(Epoch(1), Error{Code::corrupt, "not finite"});
  round.begin_exchange(Attempt(1));
  round.abort();
  CHECK(round.is(Phase::withdrawn));
  CHECK(std::holds_alternative<Withdrawn>(*round.said(Epoch(1), Digest{})));
}

TEST_CASE("rounds in hand are applied in their order, and each is merged once") {
  const RunTerms run = terms();
  Outbox out;
  Rounds rounds(run, settings_of_rule(run).contributions, out);
  rounds.add(Round(1), 0).describe(facts(0, 8));
  rounds.add(Round(2), 0).describe(facts(8, 16));
  CHECK(rounds.published_to(0) == 16);
  CHECK(rounds.exchanging(Round(1), Attempt(1)) == nullptr);
  rounds.find(Round(1))->begin_exchange(Attempt(1));
  CHECK(rounds.exchanging(Round(1), Attempt(2)) == nullptr);
  REQUIRE(rounds.exchanging(Round(1), Attempt(1)) != nullptr);
  Exchanged exchanged;
  exchanged.digest = digest(1);
  rounds.find(Round(1))->finish_exchange(exchanged);
  rounds.apply(Round(1));
  CHECK(rounds.applying());
  CHECK(std::get<ApplyResult>(out.take().effects.front()).digest == digest(1));
  CHECK(rounds.take_applied(Round(1), true).number() == Round(1));
  CHECK_FALSE(rounds.contains(Round(1)));
  CHECK(rounds.merging());
  CHECK(rounds.oldest_merging().checkpoint);
  CHECK(rounds.take_merging(Round(1)).digest == digest(1));
  CHECK_FALSE(rounds.merging());
}

TEST_CASE("a checkpoint that did not wait for the trainer is not written once more when that has merged") {
  const RunTerms run = terms();
  Outbox out;
  Rounds rounds(run, settings_of_rule(run).contributions, out);
  rounds.add(Round(1), 0).finish_exchange(Exchanged{});
  rounds.apply(Round(1));
  rounds.take_applied(Round(1), true);
  rounds.checkpoint_early(Round(2));
  CHECK(rounds.find_merging(Round(1))->checkpoint);
  rounds.checkpoint_early(Round(1));
  CHECK_FALSE(rounds.take_merging(Round(1)).checkpoint);
}

TEST_CASE("rounds that lead nowhere are dropped, and their exchanges are cancelled") {
  const RunTerms run = terms();
  Outbox out;
  Rounds rounds(run, settings_of_rule(run).contributions, out);
  rounds.add(Round(1), 0).form(1);
  rounds.add(Round(2), 0).begin_exchange(Attempt(3));
  rounds.drop();
  CHECK(rounds.empty());
  const std::vector<Effect> effects = out.take().effects;
  REQUIRE(effects.size() == 1);
  CHECK(std::get<CancelExchange>(effects.front()).attempt == Attempt(3));
}

TEST_CASE("contributions of a checkpoint are of use in their order, and while their samples are this island's") {
  const RunTerms run = terms();
  const auto resumed = [&](const std::vector<PendingRound>& pending) {
    Outbox out;
    Rounds rounds(run, settings_of_rule(run).contributions, out);
    rounds.resume(pending, Round(4), 1, 40);
    CHECK(rounds.resuming() == !rounds.empty());
    return rounds.numbers();
  };
  CHECK(resumed({pending(5, 40, 48, 1), pending(6, 48, 56, 1)}) == std::set<Round>{Round(5), Round(6)});
  CHECK(resumed({pending(6, 48, 56, 1)}).empty());  // the one before was withdrawn
  CHECK(resumed({pending(5, 40, 48, 0)}).empty());  // of another part
  CHECK(resumed({pending(5, 32, 48, 1)}).empty());  // counted already
  CHECK(resumed({pending(5, 40, 48, 1), pending(6, 50, 56, 1)}).size() == 1);
}

TEST_CASE("a contribution that begins before what is counted can never be counted") {
  const RunTerms run = terms();
  Outbox out;
  Rounds rounds(run, settings_of_rule(run).contributions, out);
  rounds.add(Round(5), 0).describe(facts(40, 48));
  CHECK_FALSE(rounds.overlap(0, 40));
  CHECK(rounds.overlap(0, 44));
  CHECK_FALSE(rounds.overlap(1, 44));
  rounds.find(Round(5))->apply();  // counted: it is why
  CHECK_FALSE(rounds.overlap(0, 48));
}

TEST_CASE("an island remembers whom it met, and what norms contributions usually have, its rejected ones left out") {
  const RunTerms run = terms("noloco");
  Partners partners(run.spec.guards.norm_factor);
  ExchangeDone done;
  done.round = Round(1);
  done.partner = IslandId("b");
  done.norms = {1.0};
  RoundInHand round(run.id, Round(1), 0);
  round.form(1.0);
  round.begin_exchange(Attempt(1), Epoch(2));
  partners.note(round, done);
  CHECK(partners.met(Epoch(2), Round(1)));
  CHECK_FALSE(partners.met(Epoch(1), Round(1)));
  done.round = Round(2);
  done.partner = IslandId();
  RoundInHand alone(run.id, Round(2), 0);
  alone.begin_exchange(Attempt(1), Epoch(2));
  partners.note(alone, done);
  CHECK_FALSE(partners.met(Epoch(2), Round(2)));
  partners.publish(100);
  partners.publish(50);
  partners.reject(50);
  CHECK(partners.weight() == 100);
  partners.reject(1000);
  CHECK(partners.weight() == 1);
}

TEST_CASE("an island is ahead of the others once most of them, and two at least, were too far behind since it met anybody") {
  const auto behind = [](Partners& partners, std::uint64_t number, const char* who, const char* met = "") {
    RoundInHand round(RunId("r-1"), Round(number), 0);
    round.begin_exchange(Attempt(1), Epoch(2));
    ExchangeDone done;
    done.round = Round(number);
    done.behind = IslandId(who);
    done.partner = IslandId(met);
    partners.note(round, done);
  };
  Partners of_five(10);
  behind(of_five, 1, "b");
  behind(of_five, 2, "b");
  CHECK_FALSE(of_five.ahead_of_most(4));  // a slow one
  behind(of_five, 3, "c");
  CHECK_FALSE(of_five.ahead_of_most(4));  // half are slow
  behind(of_five, 4, "");                 // sat out
  behind(of_five, 5, "d");
  CHECK(of_five.ahead_of_most(4));
  behind(of_five, 6, "", "e");
  CHECK_FALSE(of_five.ahead_of_most(4));
  Partners of_two(10);
  behind(of_two, 1, "b");
  CHECK_FALSE(of_two.ahead_of_most(1));  // who of two is slow, nobody can say
}

}  // namespace of_rounds_in_hand_test
