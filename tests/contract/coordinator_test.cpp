// The coordinator on loopback: a driver with its ledger, and real clients over ZeroMQ with CURVE.
#include <poll.h>

#include <deque>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "coordinator/service/driver.hpp"
#include "coordinator/service/init.hpp"
#include "strategies/specification/run_spec.hpp"
#include "tests/catch.hpp"
#include "tests/full_disk.hpp"
#include "tests/temporary_folder.hpp"
#include "transport/base/log.hpp"
#include "transport/identity/identity.hpp"
#include "transport/identity/join_token.hpp"
#include "transport/identity/sha256.hpp"
#include "transport/relay/relay_pass.hpp"
#include "transport/zmq/control_client.hpp"
#include "transport/zmq/control_server.hpp"

namespace of_coordinator_test {

using namespace atl;
using namespace atl::coordinator;
using namespace std::chrono_literals;
using nlohmann::json;

namespace {

struct QuietLog {
  QuietLog() {
    set_log_sink([](LogLevel, std::string_view) {});
  }
  ~QuietLog() { set_log_sink({}); }
};

struct Coordinator {
  QuietLog quiet;
  atl_test::TemporaryFolder folder;
  std::filesystem::path state = folder.path() / "state";
  std::unique_ptr<Driver> driver;
  std::string address;
  KeyPair keys;

  Coordinator() {
    REQUIRE(init_coordinator(state, {"test", "tcp://127.0.0.1:4400", "tcp://127.0.0.1:4400"}).ok());
    keys = read_key_file(coordinator_key_file(state)).value();
    start("tcp://127.0.0.1:*");
  }
  void start(const std::string& bind) {
    Ledger ledger = Ledger::open(state).value();
    auto server = ZmqControlServer::open({bind, keys, false});
    REQUIRE(server.has_value());
    address = (*server)->bound_address();
    driver = Driver::start(Settings{}, Place{"0.1.0", address, keys.public_key}, std::move(ledger), *std::move(server), now()).value();
  }
  void restart() {
    driver.reset();
    start(address);
  }
  [[nodiscard]] KeyPair operator_keys() const { return read_key_file(operator_key_file(state)).value(); }
};

// A peer with a key; it and the coordinator take turns in this thread.
class Peer {
 public:
  Peer(Coordinator& coordinator, KeyPair keys) : coordinator_(coordinator), keys_(std::move(keys)) {
    ControlClientSettings settings;
    settings.address = coordinator.address;
    settings.coordinator_key = coordinator.keys.public_key;
    settings.keys = keys_;
    settings.log_changes = false;
    client_ = ZmqControlClient::open(settings).value();
  }
  explicit Peer(Coordinator& coordinator) : Peer(coordinator, make_key_pair().value()) {}

  [[nodiscard]] const std::string& key() const { return keys_.public_key; }

  // Sends as soon as the link is up.
  void tell(const Message& message) {
    turns([&] { return client_->send(message).ok(); });
  }
  // The next message of this kind; others before it are dropped.
  template <typename Kind>
  Kind hear() {
    std::optional<Kind> heard;
    turns([&] {
      while (!inbox_.empty() && !heard) {
        if (const auto* message = std::get_if<Kind>(&inbox_.front())) {
          heard = *message;
        }
        inbox_.pop_front();
      }
      return heard.has_value();
    });
    return *heard;
  }
  template <typename Kind>
  Kind ask(const Message& message) {
    tell(message);
    return hear<Kind>();
  }
  Result<json> request(const std::string& verb, const std::string& arguments) {
    const Reply reply = ask<Reply>(Request{kProtocolVersion, ++id_, verb, arguments});
    CHECK(reply.id == id_);
    if (reply.error) {
      return *reply.error;
    }
    return json::parse(reply.document);
  }
  Result<json> request(const std::string& verb, const json& arguments = json::object()) { return request(verb, arguments.dump()); }

 private:
  template <typename Done>
  void turns(Done done) {
    const TimePoint deadline = now() + 20s;
    for (;;) {
      coordinator_.driver->step(now());
      while (auto event = client_->receive()) {
        if (auto* message = std::get_if<Message>(&*event)) {
          inbox_.push_back(std::move(*message));
        }
      }
      if (done()) {
        return;
      }
      REQUIRE(now() < deadline);
      pollfd socket = {client_->fd(), POLLIN, 0};
      ::poll(&socket, 1, 2);
    }
  }

  Coordinator& coordinator_;
  KeyPair keys_;
  std::unique_ptr<ZmqControlClient> client_;
  std::deque<Message> inbox_;
  std::uint64_t id_ = 0;
};

}  // namespace

namespace {

Peer operator_of(Coordinator& coordinator) { return Peer(coordinator, coordinator.operator_keys()); }

std::string token_secret(Peer& commander, const json& arguments = {{"role", "island"}, {"expires_ms", 60'000}}) {
  const json document = commander.request("token_create", arguments).value();
  return join_token_from_text(document.at("token").get<std::string>()).value().secret;
}

Hello hello_of(const std::string& name, std::uint64_t boot = 7) {
  Hello hello;
  hello.version = "0.1.0";
  hello.name = name;
  hello.boot = boot;
  hello.bulk_address = "tcp://127.0.0.1:1";
  hello.platform = "Linux";
  hello.data_sets = {"corpus"};
  return hello;
}

// An island that was enrolled and greeted.
void join(Peer& island, Peer& commander, const std::string& name) {
  const auto enrolled = island.ask<Enrolled>(Enrol{kProtocolVersion, token_secret(commander), name});
  CHECK(enrolled.role == "island");
  CHECK(enrolled.island == island_of(island.key()));
  CHECK(island.ask<Welcome>(hello_of(name)).island == enrolled.island);
}

json spec_json(const std::string& name = "text", std::uint64_t steps = 200) {
  RunSpec spec;
  spec.name = name;
  spec.data.set = "corpus";
  spec.training.steps = steps;
  spec.training.warmup_steps = 10;
  spec.islands.min = 2;
  spec.islands.max = 2;
  spec.rounds = 2;
  return json::parse(to_json(spec));
}

}  // namespace

TEST_CASE("a key that is not enrolled is refused whatever it says, and told what to do") {
  Coordinator coordinator;
  Peer stranger(coordinator);
  for (const Message& message :
       {Message(hello_of("x")), Message(Heartbeat{7, {}}), Message(Request{kProtocolVersion, 1, "runs", "{}"}), Message(Leave{})}) {
    const Refused refused = stranger.ask<Refused>(message);
    // An island that was led before asks again when it is unknown; a command does not.
    CHECK(refused.error.code == (std::holds_alternative<Request>(message) ? Code::unauthorized : Code::not_found));
    CHECK(refused.error.why.find("not enrolled") != std::string::npos);
    CHECK(refused.error.why.find("TOKEN") != std::string::npos);
  }
  CHECK(stranger.ask<Refused>(Enrol{kProtocolVersion, "forged", "x"}).error.code == Code::unauthorized);
  CHECK(stranger.ask<Refused>(Enrol{kProtocolVersion + 1, "forged", "x"}).error.code == Code::conflict);
}

TEST_CASE("a token enrols one island, roles are kept apart, revocation ends access at once") {
  Coordinator coordinator;
  Peer commander = operator_of(coordinator);
  Peer island(coordinator);
  const std::string secret = token_secret(commander);
  CHECK(island.ask<Enrolled>(Enrol{kProtocolVersion, secret, "cloud-a"}).role == "island");
  CHECK(island.ask<Enrolled>(Enrol{kProtocolVersion, secret, "cloud-a"}).role == "island");  // its answer was lost
  Peer second(coordinator);
  CHECK(second.ask<Refused>(Enrol{kProtocolVersion, secret, "cloud-b"}).error.code == Code::unauthorized);
  const Refused taken = second.ask<Refused>(Enrol{kProtocolVersion, token_secret(commander), "cloud-a"});
  CHECK(taken.error.code == Code::conflict);
  CHECK(taken.error.why.find("cloud-a-2") != std::string::npos);
  CHECK(island.ask<Welcome>(hello_of("cloud-a")).version == "0.1.0");

  const auto command = island.request("runs");
  REQUIRE_FALSE(command.has_value());
  CHECK(command.error().code == Code::unauthorized);
  CHECK(commander.ask<Refused>(hello_of("operator")).error.code == Code::unauthorized);
  CHECK(commander.ask<Refused>(Invite{}).error.code == Code::unauthorized);

  json list = commander.request("islands").value();
  REQUIRE(list["islands"].size() == 1);
  CHECK(list["islands"][0]["name"] == "cloud-a");
  CHECK(list["islands"][0]["state"] == "free");
  CHECK(list["islands"][0]["link"] == "up");
  CHECK(commander.request("tokens")->at("tokens").size() == 2);

  CHECK(commander.request("token_revoke", {{"id", "cloud-a"}})->at("kind") == "island");
  const Refused refused = island.ask<Refused>(Heartbeat{7, {}});
  CHECK(refused.error.code == Code::unauthorized);
  CHECK(refused.error.why.find("revoked") != std::string::npos);
  coordinator.restart();
  Peer again = operator_of(coordinator);
  list = again.request("islands").value();
  CHECK(list["islands"][0]["link"] == "revoked");
  CHECK(again.request("token_revoke", {{"id", "operator"}}).error().code == Code::conflict);  // the last one
  CHECK(again.request("token_revoke", {{"id", "t-ffffffffff"}}).error().code == Code::not_found);
}

TEST_CASE("an island's key asks how it is reached itself, and nothing else, and an operator's does not ask that") {
  Coordinator coordinator;
  const Bytes secret(32, std::byte{7});
  coordinator.driver->offer_relays({{"frankfurt", "tcp://relay.example.org:4402", secret, true}});
  Peer commander = operator_of(coordinator);
  Peer reef(coordinator);
  Peer shoal(coordinator);
  join(reef, commander, "reef");
  join(shoal, commander, "shoal");
  const auto reach = [&] { return reef.request("reach").value(); };
  CHECK(reach()["seen_host"] == "127.0.0.1");
  CHECK(reach()["addresses"] == json{"tcp://127.0.0.1:1"});
  CHECK(reach()["dialled_at"] == json::array());
  const json relay = reach()["relays"].at(0);
  CHECK(relay["name"] == "frankfurt");
  CHECK(relay["carries"] == true);
  const auto request = read_request(secret, request_with(relay["pass"].get<std::string>(), IslandId("doctor")), now());
  REQUIRE(request.has_value());
  const auto id = request->island;
  shoal.tell(Ways{{{id, Way{"", false, NotPunched::not_tried, "tcp://127.0.0.1:1"}}}});
  CHECK(commander.request("islands")->at("islands").at(1)["paths"].size() <= 1);  // what shoal said was taken
  CHECK(reach()["dialled_at"] == json{"tcp://127.0.0.1:1"});
  shoal.tell(Ways{{{id, Way{"frankfurt"}}}});
  CHECK(commander.request("ping").has_value());
  CHECK(reach()["dialled_at"] == json::array());
  CHECK(reef.request("islands").error().code == Code::unauthorized);
  CHECK_FALSE(commander.request("reach").has_value());
}

TEST_CASE("an island gets its next pass when that is due, whoever has asked for one with its key meanwhile") {
  RelayPasses passes({{"frankfurt", "tcp://relay.example.org:4402", Bytes(32, std::byte{7}), true}});
  const IslandId reef("i-1");
  const TimePoint start = from_unix_ms(1'767'225'600'000);
  REQUIRE(passes.welcome(reef, start));
  for (Duration later{}; later < kPassLifetime / 3; later += 1min) {
    CHECK(passes.made_for(reef, start + later).relays.size() == 1);
    CHECK_FALSE(passes.renewed(reef, start + later));
  }
  CHECK(passes.renewed(reef, start + kPassLifetime / 3));
}

TEST_CASE("an island's relay is offered to the others while the island is there, behind the coordinator's own") {
  using Presence = RelayPasses::Presence;
  RelayPasses passes({{"frankfurt", "tcp://relay.example.org:4402", Bytes(32, std::byte{7}), true}});
  const IslandId reef("i-1");
  const IslandId shoal("i-2");
  const TimePoint start = from_unix_ms(1'767'225'600'000);
  std::map<IslandId, Presence> there = {{reef, Presence::here}, {shoal, Presence::here}};
  const auto look = [&](Duration later) { return passes.look_at_islands([&](const IslandId& id) { return there.at(id); }, start + later); };
  const auto names_for = [&](const IslandId& island) {
    std::vector<std::string> names;
    for (const RelayOffer& relay : passes.made_for(island, start).relays) {
      names.push_back(relay.name + " " + relay.address);
    }
    return names;
  };
  const std::string first = "frankfurt tcp://relay.example.org:4402";
  REQUIRE(passes.welcome(shoal, start));
  CHECK_FALSE(passes.next_look());
  CHECK_FALSE(look(1s));

  // In the order in which they came; none is offered its own. An address that means something in the island's network only is not said.
  passes.offer(shoal, "shoal", {"tcp://192.168.1.2:4402", Digest{{std::byte{2}}}}, "203.0.113.7");
  passes.offer(reef, "reef", {"tcp://10.0.0.2:4402", Digest{{std::byte{1}}}}, "10.0.0.9");
  CHECK(look(2s));
  CHECK(passes.told_again(shoal, start));
  CHECK_FALSE(passes.told_again(reef, start));  // it is not welcome yet
  CHECK(names_for(shoal) == std::vector<std::string>{first, "of reef tcp://10.0.0.2:4402"});
  CHECK(names_for(reef) == std::vector<std::string>{first, "of shoal tcp://203.0.113.7:4402"});
  CHECK(names_for(IslandId("i-3")) == std::vector<std::string>{first, "of shoal tcp://203.0.113.7:4402", "of reef tcp://10.0.0.2:4402"});
  const std::string pass = passes.made_for(shoal, start).relays.at(1).pass;
  CHECK(read_request(as_bytes(std::string(1, '\1') + std::string(31, '\0')), request_with(pass, reef), start));

  // However often it changes, the others hear of it every few seconds.
  passes.offer(reef, "reef", {"tcp://198.51.100.1:4402", Digest{{std::byte{1}}}}, "");
  CHECK_FALSE(look(3s));
  REQUIRE(passes.next_look());
  CHECK(*passes.next_look() <= start + 8s);
  CHECK(look(8s));
  CHECK_FALSE(look(20s));

  // One that is not heard keeps its place for a while; one that was revoked does not.
  there = {{reef, Presence::away}, {shoal, Presence::gone}};
  CHECK(look(30s));
  CHECK(names_for(IslandId("i-3")) == std::vector<std::string>{first, "of reef tcp://198.51.100.1:4402"});
  CHECK_FALSE(look(20s + kRelayKept - 1s));
  CHECK(look(20s + kRelayKept));
  CHECK(names_for(shoal) == std::vector<std::string>{first});
  CHECK_FALSE(passes.next_look());
}

TEST_CASE("of many islands with a relay a few are offered") {
  RelayPasses passes({});
  const TimePoint start = from_unix_ms(1'767'225'600'000);
  for (int i = 0; i < 40; ++i) {
    const std::string name = "island-" + std::to_string(50 - i);
    passes.offer(IslandId(name), name, {"tcp://198.51.100.1:" + std::to_string(4402 + i), {}}, "");
  }
  const Relays offered = passes.made_for(IslandId("other"), start);
  REQUIRE(offered.relays.size() == kMostIslandRelays);
  CHECK(offered.relays.front().name == "of island-50");
  CHECK(offered.relays.back().name == "of island-43");
}

TEST_CASE("islands hear of another's relay, an operator has none, and one that is revoked has none any more") {
  Coordinator coordinator;
  Peer commander = operator_of(coordinator);
  Peer reef(coordinator);
  Peer shoal(coordinator);
  join(reef, commander, "reef");
  join(shoal, commander, "shoal");
  const auto relays_of = [&](Peer& island) { return island.request("reach").value()["relays"]; };
  CHECK(commander.ask<Refused>(OwnRelay{"tcp://127.0.0.1:4402", sha256(as_bytes("secret"))}).error.code == Code::unauthorized);
  CHECK(relays_of(shoal) == json::array());
  reef.tell(OwnRelay{"tcp://127.0.0.1:4402", sha256(as_bytes("secret"))});
  const Relays told = shoal.hear<Relays>();
  REQUIRE(told.relays.size() == 1);
  CHECK(told.relays.front().name == "of reef");
  CHECK(told.relays.front().address == "tcp://127.0.0.1:4402");
  CHECK(relays_of(shoal).size() == 1);
  CHECK(relays_of(reef) == json::array());
  REQUIRE(commander.request("token_revoke", {{"id", "reef"}}));
  CHECK(relays_of(shoal) == json::array());
  CHECK(reef.ask<Refused>(OwnRelay{"tcp://127.0.0.1:4402", sha256(as_bytes("secret"))}).error.code == Code::unauthorized);
}

TEST_CASE("a name is that of the island that has access now, and what is ambiguous is refused") {
  Coordinator coordinator;
  Peer commander = operator_of(coordinator);
  Peer first(coordinator);
  join(first, commander, "porto");
  const std::string old = island_of(first.key()).text;
  const json revoked = commander.request("token_revoke", {{"id", "porto"}}).value();
  CHECK(revoked["ended_id"] == old);
  CHECK(revoked["changed"] == true);
  const json repeated = commander.request("token_revoke", {{"id", "porto"}}).value();
  CHECK(repeated["ended_id"] == old);
  CHECK(repeated["changed"] == false);
  const Error drained = commander.request("drain", {{"island", "porto"}}).error();
  CHECK(drained.code == Code::conflict);
  CHECK(drained.why == "island porto (" + old + ") has no access any more: its key was revoked");

  // Several lives of one name: keys are random, so each of them is met by one order of the keys or the other.
  for (int life = 0; life < 6; ++life) {
    Peer again(coordinator);
    join(again, commander, "porto");
    const std::string id = island_of(again.key()).text;
    CHECK(commander.request("drain", {{"island", "porto"}})->at("island") == id);
    CHECK(commander.request("drain", {{"island", old}}).error().code == Code::conflict);
    const json ended = commander.request("token_revoke", {{"id", "porto"}}).value();
    CHECK(ended["ended_id"] == id);
    CHECK(ended["changed"] == true);
    CHECK(again.ask<Refused>(Heartbeat{7, {}}).error.code == Code::unauthorized);
    CHECK(commander.request("token_revoke", {{"id", "porto"}})->at("ended_id") == id);  // the last of them
  }
}

TEST_CASE("an island and an operator of one name are told apart, or neither is meant") {
  Coordinator coordinator;
  Peer commander = operator_of(coordinator);
  Peer island(coordinator);
  join(island, commander, "porto");
  Peer other(coordinator);
  const std::string secret = token_secret(commander, {{"role", "operator"}, {"expires_ms", 60'000}, {"name", "porto"}});
  CHECK(other.ask<Enrolled>(Enrol{kProtocolVersion, secret, ""}).role == "operator");
  const std::string id = island_of(island.key()).text;
  const Error either = commander.request("token_revoke", {{"id", "porto"}}).error();
  CHECK(either.code == Code::conflict);
  CHECK(either.why.find(id) != std::string::npos);
  CHECK(either.why.find(island_of(other.key()).text) != std::string::npos);
  CHECK(commander.request("drain", {{"island", "porto"}})->at("island") == id);
  CHECK(commander.request("drain", {{"island", island_of(other.key()).text}}).error().code == Code::not_found);
  CHECK(commander.request("token_revoke", {{"id", "porto"}, {"kind", "island"}})->at("ended_id") == id);
  CHECK(other.request("ping").has_value());
  CHECK(commander.request("token_revoke", {{"id", "porto"}})->at("kind") == "operator");  // the only one that has access
}

TEST_CASE("an operator elsewhere is enrolled with a token of that role") {
  Coordinator coordinator;
  Peer commander = operator_of(coordinator);
  Peer other(coordinator);
  const std::string secret = token_secret(commander, {{"role", "operator"}, {"expires_ms", 60'000}, {"name", "laptop"}});
  CHECK(other.ask<Enrolled>(Enrol{kProtocolVersion, secret, "whatever"}).role == "operator");
  Peer nameless(coordinator);
  CHECK(nameless.ask<Enrolled>(Enrol{kProtocolVersion, token_secret(commander, {{"role", "operator"}}), ""}).role == "operator");
  CHECK(nameless.request("tokens")->at("tokens").size() == 2);
  CHECK(commander.request("token_revoke", {{"id", "operator-2"}})->at("kind") == "operator");
  CHECK(other.request("ping")->at("protocol") == kProtocolVersion);
  CHECK(commander.request("token_revoke", {{"id", "laptop"}})->at("kind") == "operator");
  CHECK(other.ask<Refused>(Request{kProtocolVersion, 9, "ping", ""}).error.code == Code::unauthorized);
}

TEST_CASE("a dry run says which islands would take part and what is missing, and submits nothing") {
  Coordinator coordinator;
  Peer commander = operator_of(coordinator);
  const json arguments = {{"spec", spec_json()}, {"dry_run", true}};
  const json none = commander.request("submit", arguments).value();
  CHECK(none["enough"] == false);
  CHECK(none["islands"].empty());
  CHECK(none["reason"].get<std::string>().starts_with("waits for 2 more islands"));
  Peer lyon(coordinator);
  join(lyon, commander, "lyon");
  Peer oslo(coordinator);
  join(oslo, commander, "oslo");
  const json both = commander.request("submit", arguments).value();
  CHECK(both["run"].is_null());
  CHECK(both["created"] == false);
  CHECK(both["enough"] == true);
  CHECK(both["reason"] == "");
  REQUIRE(both["islands"].size() == 2);
  CHECK(both["islands"][0]["name"] == "lyon");
  CHECK(both["islands"][0]["takes_part"] == true);
  json elsewhere = arguments;
  elsewhere["spec"]["data"]["set"] = "images";
  const json lacking = commander.request("submit", elsewhere).value();
  CHECK(lacking["enough"] == false);
  CHECK(lacking["islands"][1]["takes_part"] == false);
  CHECK(lacking["islands"][1]["obstacle"] == "has no data set 'images'");
  CHECK(commander.request("runs")->at("runs").empty());
  REQUIRE(commander.request("submit", {{"spec", spec_json()}}));
  CHECK(commander.request("submit", arguments)->at("islands")[0]["obstacle"] == "serves run text");
  CHECK(commander.request("submit", {{"spec", spec_json()}, {"dry_run", 1}}).error().code == Code::invalid_argument);
}

TEST_CASE("a run is submitted, found, watched, cancelled and resumed, the documents have every key") {
  Coordinator coordinator;
  Peer commander = operator_of(coordinator);
  CHECK(commander.request("status").error().code == Code::not_found);
  CHECK(commander.request("runs")->at("runs").empty());

  const json submitted = commander.request("submit", {{"spec", spec_json()}}).value();
  CHECK(submitted["created"] == true);
  CHECK(submitted["state"] == "queued");
  CHECK(submitted["name"] == "text");
  CHECK_FALSE(submitted["reason"].get<std::string>().empty());
  const auto id = submitted["run"].get<std::string>();
  const json second = commander.request("submit", {{"spec", spec_json()}}).value();
  CHECK(second["created"] == true);
  CHECK(second["name"] == "text-2");

  const json runs = commander.request("runs").value();
  REQUIRE(runs["runs"].size() == 2);
  CHECK(runs["runs"][1]["id"] == id);
  CHECK(runs["runs"][1]["strategy"] == "diloco");
  CHECK(runs["runs"][1]["outer_loss"].is_null());

  for (const std::string& which : {id, id.substr(0, 9), id.substr(2, 7), std::string("text")}) {
    CHECK(commander.request("status", {{"run", which}})->at("run").at("id") == id);
  }
  CHECK(commander.request("status")->at("run").at("id") == second["run"]);
  CHECK(commander.request("status", {{"run", "r-"}}).error().code == Code::conflict);
  CHECK(commander.request("status", {{"run", "nothing"}}).error().code == Code::not_found);
  CHECK(commander.request("status", {{"run", "txet"}}).error().why.find("did you mean text?") != std::string::npos);
  CHECK(commander.request("cancel", {{"run", ""}}).error().code == Code::not_found);

  CHECK(commander.request("cancel", {{"run", id}})->at("changed") == true);
  CHECK(commander.request("cancel", {{"run", id}})->at("changed") == false);
  CHECK(commander.request("status", {{"run", id}})->at("run").at("state") == "cancelled");
  const json events = commander.request("events", {{"run", id}}).value();
  CHECK(events["ended"] == true);
  REQUIRE(events["events"].size() >= 2);
  CHECK(events["events"][0]["kind"] == "run_submitted");
  CHECK(events["next"] == events["events"].back()["sequence"]);
  CHECK(commander.request("events", {{"run", id}, {"after", events["next"]}})->at("events").empty());
  CHECK(commander.request("events", {{"run", id}, {"limit", 1}})->at("events").size() == 1);
  CHECK(commander.request("events", {{"run", id}, {"island", "nobody"}}).error().code == Code::not_found);
  CHECK(commander.request("resume", {{"run", id}})->at("changed") == true);
  CHECK(commander.request("resume", {{"run", id}})->at("changed") == false);

  coordinator.restart();
  Peer again = operator_of(coordinator);
  CHECK(again.request("runs")->at("runs").size() == 2);
  CHECK(again.request("status", {{"run", id}})->at("run").at("state") == "queued");
}

TEST_CASE("submit --name is done once") {
  Coordinator coordinator;
  Peer commander = operator_of(coordinator);
  const json arguments = {{"spec", spec_json("mine")}, {"once", true}};
  const json first = commander.request("submit", arguments).value();
  CHECK(first["created"] == true);
  CHECK(commander.request("submit", arguments)->at("created") == false);
  CHECK(commander.request("submit", arguments)->at("run") == first["run"]);
  CHECK(commander.request("submit", {{"spec", spec_json("mine", 400)}, {"once", true}}).error().code == Code::conflict);
  REQUIRE(commander.request("cancel", {{"run", "mine"}}).has_value());
  const json fresh = commander.request("submit", arguments).value();
  CHECK(fresh["created"] == true);
  CHECK(fresh["run"] != first["run"]);
  CHECK(commander.request("submit", arguments)->at("run") == fresh["run"]);
}

TEST_CASE("submit --name finds the run of that name, whatever other names the same file has") {
  Coordinator coordinator;
  Peer commander = operator_of(coordinator);
  const json named = {{"spec", spec_json("dup")}, {"once", true}};
  const json first = commander.request("submit", {{"spec", spec_json("dup")}}).value();
  const json second = commander.request("submit", {{"spec", spec_json("dup")}}).value();
  CHECK(first["name"] == "dup");
  CHECK(second["name"] == "dup-2");
  CHECK(commander.request("submit", named)->at("run") == first["run"]);
  CHECK(commander.request("submit", named)->at("name") == "dup");
  REQUIRE(commander.request("cancel", {{"run", "dup"}}).has_value());
  CHECK(commander.request("submit", named)->at("run") == second["run"]);
}

TEST_CASE("a submit whose answer was lost is answered the same when it is asked again") {
  Coordinator coordinator;
  Peer commander = operator_of(coordinator);
  const Request request{kProtocolVersion, 0x7000'0000'0000'0001ULL, "submit", json{{"spec", spec_json()}}.dump()};
  const json first = json::parse(commander.ask<Reply>(request).document);
  Peer reconnected = operator_of(coordinator);
  const json second = json::parse(reconnected.ask<Reply>(request).document);
  CHECK(first["run"] == second["run"]);
  CHECK(commander.request("runs")->at("runs").size() == 1);
  Request another = request;
  another.id += 1;
  CHECK(json::parse(commander.ask<Reply>(another).document)["run"] != first["run"]);
}

TEST_CASE("two islands are given the run that waits for them") {
  Coordinator coordinator;
  Peer commander = operator_of(coordinator);
  Peer a(coordinator);
  Peer b(coordinator);
  join(a, commander, "cloud-a");
  json spec = spec_json();
  const json submitted = commander.request("submit", {{"spec", spec}}).value();
  CHECK(submitted["reason"].get<std::string>().find("1 more island") != std::string::npos);
  join(b, commander, "cloud-b");
  const Invite invite = a.hear<Invite>();
  CHECK(invite.run.text == submitted["run"].get<std::string>());
  CHECK(b.hear<Invite>().members.size() == 2);
  CHECK(run_spec_from_json(invite.spec).has_value());

  const TimePoint patience = now() + 20s;
  IslandReport report;
  report.run = invite.run;
  report.state = "training";
  report.tokens = 4096;
  report.bytes_sent = 1000;
  a.tell(Heartbeat{7, {report}});
  json status;
  do {  // the report and the request come by different connections, in any order
    status = commander.request("status").value();
  } while (status["run"]["tokens"] == 0 && now() < patience);
  CHECK(status["run"]["state"] == "starting");
  CHECK(status["islands"].size() == 2);
  CHECK(status["run"]["data_passes"].is_null());  // nothing is committed yet
  const json data = commander.request("data", {{"run", "text"}}).value();
  CHECK(data["passes"].is_null());
  CHECK(data["parts"].size() == 2);
  CHECK(invite.share.slices == 2);
  CHECK(invite.share.stretches.at(0).classes.size() == 32);  // of 64: half of the data each
  CHECK(status["run"]["tokens"] == 4096);
  CHECK(status["islands"][0]["name"] == "cloud-a");
  CHECK(status["islands"][0]["tokens"] == 4096);
  CHECK(status["islands"][1]["tokens"].is_null());
  CHECK(commander.request("islands")->at("islands")[0]["run_name"] == "text");

  // What an island said last of a run is not lost when it stops to report on it.
  report.tokens = 8192;
  report.bytes_sent = 2000;
  a.tell(Heartbeat{7, {report}});
  a.tell(Heartbeat{7, {}});
  a.ask<Welcome>(hello_of("cloud-a"));
  status = commander.request("status").value();
  CHECK(status["islands"][0]["tokens"] == 8192);
  CHECK(status["run"]["bytes_sent"] == 2000);
  CHECK(commander.request("export", {{"run", "text"}, {"reader_key", commander.key()}}).error().code == Code::unavailable);
}

TEST_CASE("requests that are not sound are errors that name what is wrong") {
  Coordinator coordinator;
  Peer commander = operator_of(coordinator);
  const auto wrong = [&](const std::string& verb, const std::string& arguments, const std::string& named) {
    INFO(verb << " " << arguments.substr(0, 100));
    const auto answer = commander.request(verb, arguments);
    REQUIRE_FALSE(answer.has_value());
    CHECK(answer.error().code == Code::invalid_argument);
    CHECK(answer.error().why.find(named) != std::string::npos);
  };
  wrong("sumbit", "{}", "sumbit");
  wrong("runs", "{\"all\": true}", "all");
  wrong("runs", "[1,2]", "JSON object");
  wrong("runs", "{\"a\": ", "JSON object");
  wrong("status", "{\"run\": 7}", "run");
  wrong("status", "{\"run\": \"" + std::string(5000, 'x') + "\"}", "run");
  wrong("status", std::string(200'000, '['), "JSON object");
  wrong("status", "{\"run\":" + std::string(100'000, '[') + std::string(100'000, ']') + "}", "JSON object");
  wrong("events", "{\"run\": \"x\", \"limit\": 5000}", "limit");
  wrong("events", "{\"run\": \"x\", \"after\": -1}", "after");
  wrong("events", "{\"run\": \"x\", \"after\": 1e300}", "after");
  wrong("events", "{\"run\": \"x\", \"after\": 18446744073709551615}", "after");
  wrong("submit", "{}", "spec");
  wrong("submit", "{\"spec\": {}}", "");
  wrong("submit", json{{"spec", spec_json()}, {"once", "yes"}}.dump(), "once");
  wrong("token_create", "{\"role\": \"king\"}", "king");
  wrong("token_create", "{\"expires_ms\": 0}", "expires_ms");
  wrong("token_create", "{\"name\": \"a b\"}", "name");
  wrong("export", json{{"run", "x"}, {"reader_key", "short"}}.dump(), "reader_key");
  json broken = spec_json();
  broken["training"]["steps"] = 0;
  wrong("submit", json{{"spec", broken}}.dump(), "steps");
  const Reply reply = commander.ask<Reply>(Request{kProtocolVersion + 1, 99, "ping", ""});
  REQUIRE(reply.error.has_value());
  CHECK(reply.error->code == Code::conflict);
}

TEST_CASE("a full disk stops decisions, says so, and everything goes on when there is room") {
  Coordinator coordinator;
  Peer commander = operator_of(coordinator);
  Peer island(coordinator);
  join(island, commander, "cloud-a");
  const auto id = commander.request("submit", {{"spec", spec_json()}})->at("run").get<std::string>();
  {
    const atl_test::FullDisk full(1000);
    const auto refused = commander.request("submit", {{"spec", spec_json("other")}});
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.error().code == Code::io);
    CHECK(commander.request("cancel", {{"run", id}}).error().code == Code::io);
    const json status = commander.request("status", {{"run", id}}).value();
    CHECK(status["run"]["state"] == "queued");
    CHECK(status["run"]["reason"].get<std::string>().find("cannot write its ledger") != std::string::npos);
    CHECK(commander.request("token_create").error().code == Code::io);
    Peer stranger(coordinator);
    CHECK(stranger.ask<Refused>(Enrol{kProtocolVersion, "x", "y"}).error.code == Code::unavailable);
    island.tell(Heartbeat{7, {}});
  }
  coordinator.driver->step(now() + 2s);
  const json status = commander.request("status", {{"run", id}}).value();
  CHECK(status["run"]["reason"].get<std::string>().find("cannot write its ledger") == std::string::npos);
  CHECK(commander.request("islands")->at("islands")[0]["connected"] == true);
  CHECK(commander.request("cancel", {{"run", id}})->at("changed") == true);
  // What was decided before the failure was noticed is kept and recorded, not forgotten.
  coordinator.restart();
  Peer again = operator_of(coordinator);
  CHECK(again.request("runs")->at("runs").size() == 2);
}

TEST_CASE("init makes a coordinator once and names what is wrong") {
  const atl_test::TemporaryFolder folder;
  const auto state = folder.path() / "a" / "state";
  CHECK(init_coordinator(state, {"x", "nonsense", "tcp://h:1"}).error().code == Code::invalid_argument);
  CHECK(init_coordinator(state, {"x", "tcp://*:1", "tcp://*:1"}).error().code == Code::invalid_argument);
  CHECK(init_coordinator(state, {"x", "tcp://*:*", "tcp://h:1"}).error().code == Code::invalid_argument);
  CHECK_FALSE(std::filesystem::exists(state));
  REQUIRE(init_coordinator(state, default_settings()).ok());
  CHECK((std::filesystem::status(state).permissions() & std::filesystem::perms::others_all) == std::filesystem::perms::none);
  CHECK(init_coordinator(state, default_settings()).error().code == Code::conflict);
  // An init that was interrupted before its last step is completed with the keys it made.
  const KeyPair keys = read_key_file(coordinator_key_file(state)).value();
  std::filesystem::remove(settings_file(state));
  REQUIRE(init_coordinator(state, default_settings()).ok());
  CHECK(read_key_file(coordinator_key_file(state)).value() == keys);
}

}  // namespace of_coordinator_test
