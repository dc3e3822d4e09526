// What doctor makes of what the coordinator and its relays saw of an island.
#include "cli/doctor/doctor.hpp"
#include "tests/catch.hpp"

namespace of_doctor_reach_test {

using namespace atl;

namespace {

ReachFacts at_home() {
  ReachFacts facts;
  facts.seen_host = "203.0.113.7";
  facts.own = {"127.0.0.1", "192.168.1.2"};
  facts.listens = {"192.168.1.2", 4401};
  facts.sightings = {{"relay frankfurt", {"203.0.113.7", 40'000}}, {"its second port", {"203.0.113.7", 40'000}}};
  facts.why_no_more = "start the coordinator with --relay PORT or --hole-punching PORT";
  facts.relay = true;
  return facts;
}

std::string text_of(const ReachFacts& facts) { return judge_reach(facts).front().text; }
Health health_of(const ReachFacts& facts) { return judge_reach(facts).front().health; }
std::string opened(const ReachFacts& facts) {
  const std::vector<Finding> findings = judge_reach(facts);
  return findings.size() < 2 ? "" : findings.at(1).text;
}
bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("doctor reach: whether a router can be punched follows from two places that saw one port, and from nothing less") {
  ReachFacts facts = at_home();
  CHECK(
      text_of(facts) ==
      "others see 203.0.113.7, which is a router's: this machine has 192.168.1.2; it gives one port of this machine the same port towards "
      "each of 2 places: holes can be punched through it; no port of the router is passed on; no IPv6");
  CHECK(health_of(facts) == Health::good);
  facts.sightings[1].at.port = 40'001;
  CHECK(has(text_of(facts), "another port for each connection (40000 for relay frankfurt, 40001 for its second port; a symmetric NAT)"));
  CHECK(health_of(facts) == Health::good);
  facts.relay = false;
  CHECK(has(text_of(facts), "islands that it cannot dial it does not reach: start the coordinator with --relay PORT"));
  CHECK(health_of(facts) == Health::doubtful);
  facts.sightings.pop_back();
  CHECK(has(text_of(facts), "whether holes can be punched through it cannot be told: " + facts.why_no_more));
  CHECK(health_of(facts) == Health::doubtful);
}

TEST_CASE("doctor reach: places in this machine's own network say nothing of the router, and neither do those in another one") {
  ReachFacts facts = at_home();
  facts.sightings = {{"relay cellar", {"192.168.1.2", 50'000}}, {"its second port", {"192.168.1.2", 50'000}}};
  CHECK(has(text_of(facts), "cannot be told"));
  facts.sightings = {{"relay cellar", {"10.0.0.9", 50'000}}, {"relay oslo", {"203.0.113.7", 40'000}}};
  CHECK(has(text_of(facts), "others see 203.0.113.7"));
  CHECK(has(text_of(facts), "cannot be told"));
  facts.sightings.push_back({"its second port", {"203.0.113.7", 40'000}});
  CHECK(has(text_of(facts), "each of 2 places: holes can be punched"));
}

TEST_CASE("doctor reach: where the coordinator does not say what it sees, nothing is claimed") {
  CHECK(has(text_of(ReachFacts()), "cannot be told: the coordinator did not say"));
  CHECK(opened(ReachFacts()).empty());
}

TEST_CASE("doctor reach: no private address is called public, and an administrator is asked for what this machine lacks") {
  ReachFacts facts = at_home();
  const std::string rest = ": other machines of our group connect to it (Atoll).";
  CHECK(opened(facts) == "for an administrator: Please pass TCP port 4401 of 203.0.113.7 on to 192.168.1.2, port 4401" + rest);
  facts.seen_host = "10.9.0.4";
  facts.sightings.clear();
  CHECK(has(text_of(facts), "others see 10.9.0.4, which is a router's: this machine has 192.168.1.2 (the first is private, too"));
  facts.own.emplace_back("10.9.0.4");
  CHECK(
      has(text_of(facts), "10.9.0.4, which is private: both are in one network, and what islands elsewhere see cannot be told from here"));
  CHECK(opened(facts) ==
        "for an administrator: Please let TCP connections to 10.9.0.4, port 4401, through the firewall of this network" + rest);
  facts.own.emplace_back("2001:db8::7");
  facts.own.emplace_back("198.51.100.7");
  facts.seen_host = "198.51.100.7";
  CHECK(text_of(facts) == "others see this machine's own address, 198.51.100.7: no router is in between; IPv6: 2001:db8::7");
  CHECK(opened(facts) == "for an administrator: Please let TCP connections to 198.51.100.7, port 4401, through the firewall" + rest);
  facts.seen_host = "127.0.0.1";
  CHECK(has(text_of(facts), "the coordinator is on this machine"));
  CHECK(opened(facts).empty());
}

TEST_CASE("doctor reach: nothing has to be opened where the router passes a port on, or where an island dials from elsewhere") {
  ReachFacts facts = at_home();
  facts.mapped = "tcp://203.0.113.7:4402";
  CHECK(has(text_of(facts), "it passes tcp://203.0.113.7:4402 on to this island"));
  CHECK(opened(facts).empty());
  facts.mapped.clear();
  facts.sightings.clear();
  facts.dialled = {"tcp://192.168.1.2:4401"};
  CHECK_FALSE(opened(facts).empty());
  CHECK(health_of(facts) == Health::doubtful);
  facts.dialled.emplace_back("tcp://203.0.113.7:4401");
  CHECK(has(text_of(facts), "another island dials it at tcp://203.0.113.7:4401 now"));
  CHECK(opened(facts).empty());
  CHECK(health_of(facts) == Health::good);
}

}  // namespace of_doctor_reach_test
