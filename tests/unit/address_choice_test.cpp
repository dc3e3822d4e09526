#include "transport/bulk/address_choice.hpp"

#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "transport/base/address.hpp"

namespace of_address_choice_test {

using namespace atl;

namespace {

using Addresses = std::vector<std::string>;

const std::vector<InterfaceAddress> kOwn = {{"lo", "127.0.0.1", 8, true, false},
                                            {"eth0", "192.168.1.7", 24, false, false},
                                            {"eth0", "2001:db8:1::7", 64, false, false},
                                            {"docker0", "172.17.0.1", 16, false, false},
                                            {"tailscale0", "100.101.1.7", 32, false, true},
                                            {"wlan0", "10.5.0.7", 16, false, false}};

std::string route(const std::string& host) {
  return host.starts_with("127.") ? "lo" : host.starts_with("100.101.") ? "tailscale0" : host.starts_with("10.5.") ? "wlan0" : "eth0";
}

Addresses dialled(const std::string& offered, const InterfaceRules& rules = {}) {
  return addresses_to_dial(offered, kOwn, 4401, rules, route);
}

}  // namespace

TEST_CASE("an island's addresses are one text, each once, eight at most") {
  CHECK(addresses_in("") == Addresses{});
  CHECK(addresses_in("tcp://a:1") == Addresses{"tcp://a:1"});
  CHECK(addresses_in(" tcp://a:1  tcp://b:2 ") == Addresses{"tcp://a:1", "tcp://b:2"});
  CHECK(address_text(Addresses{"tcp://a:1", "", "tcp://b:2", "tcp://a:1"}) == "tcp://a:1 tcp://b:2");
  CHECK(addresses_for_people("tcp://a:1 tcp://b:2") == "tcp://a:1, tcp://b:2");
  CHECK(first_address("tcp://a:1 tcp://b:2") == "tcp://a:1");
  CHECK(first_address("").empty());
  Addresses many;
  for (int i = 0; i < 20; ++i) {
    many.push_back("tcp://h" + std::to_string(i) + ":1");
  }
  CHECK(addresses_in(address_text(many)) == Addresses(many.begin(), many.begin() + 8));
}

TEST_CASE("an island offers what its owner named, then its networks, tunnels last, and none of its guests' bridges") {
  const Addresses named = {"tcp://gpu.example.org:7000"};
  CHECK(addresses_in(addresses_to_offer(named, kOwn, 4401, true, {})) == Addresses{"tcp://gpu.example.org:7000", "tcp://192.168.1.7:4401",
                                                                                   "tcp://[2001:db8:1::7]:4401", "tcp://10.5.0.7:4401",
                                                                                   "tcp://100.101.1.7:4401"});
  CHECK(addresses_in(addresses_to_offer({}, kOwn, 4401, false, {{}, {"wlan0", "tailscale0"}})) == Addresses{"tcp://192.168.1.7:4401"});
  CHECK(addresses_to_offer({}, kOwn, 0, true, {}).empty());
}

TEST_CASE("a network that two islands share goes before their router, and a tunnel comes last") {
  CHECK(dialled("tcp://100.101.1.9:4401 tcp://203.0.113.5:4401 tcp://192.168.1.9:4401") ==
        Addresses{"tcp://192.168.1.9:4401", "tcp://203.0.113.5:4401", "tcp://100.101.1.9:4401"});
  // Among equals as the other island has them; of a name nothing is known.
  CHECK(dialled("tcp://gpu.example.org:1 tcp://[2001:db8:9::1]:2 tcp://198.51.100.2:3") ==
        Addresses{"tcp://gpu.example.org:1", "tcp://[2001:db8:9::1]:2", "tcp://198.51.100.2:3"});
  CHECK(dialled("tcp://[2001:db8:1::9]:1 tcp://198.51.100.2:3").front() == "tcp://[2001:db8:1::9]:1");
  CHECK(dialled("tcp://198.51.100.2:3 tcp://127.0.0.1:5").front() == "tcp://127.0.0.1:5");
}

TEST_CASE("an owner's word on interfaces goes before the rest") {
  const std::string offered = "tcp://192.168.1.9:4401 tcp://100.101.1.9:4401 tcp://10.5.0.9:4401";
  CHECK(dialled(offered, {{"tailscale0"}, {}}).front() == "tcp://100.101.1.9:4401");
  CHECK(dialled(offered, {{}, {"eth0"}}) == Addresses{"tcp://10.5.0.9:4401", "tcp://100.101.1.9:4401"});
  CHECK(dialled(offered, {{"eth0"}, {"eth0"}}) == Addresses{"tcp://10.5.0.9:4401", "tcp://100.101.1.9:4401"});
  CHECK(dialled("tcp://192.168.1.9:4401", {{}, {"eth0"}}).empty());
}

TEST_CASE("what is no address, or this machine's own port, is not dialled") {
  CHECK(dialled("tcp://192.168.1.7:4401 nonsense tcp://:::: tcp://192.168.1.7:4402") == Addresses{"tcp://192.168.1.7:4402"});
  std::string many;
  for (int i = 1; i < 30; ++i) {
    many += "tcp://198.51.100." + std::to_string(i) + ":1 ";
  }
  CHECK(dialled(many).size() == 8);
}

TEST_CASE("neighbours have the bits of the prefix in common") {
  const InterfaceAddress own{"eth0", "10.5.128.7", 17, false, false};
  CHECK(is_neighbour(own, "10.5.255.255"));
  CHECK_FALSE(is_neighbour(own, "10.5.127.255"));
  CHECK_FALSE(is_neighbour(own, "2001:db8::1"));
  CHECK_FALSE(is_neighbour(own, "a.name"));
  CHECK_FALSE(is_neighbour({"x", "0.0.0.0", 0, false, false}, "10.5.0.1"));
  CHECK(is_neighbour({"x", "2001:db8:0:8::1", 61, false, false}, "2001:db8:0:f::2"));
  CHECK_FALSE(is_neighbour({"x", "2001:db8:0:8::1", 61, false, false}, "2001:db8:0:10::2"));
}

TEST_CASE("this machine's interfaces have a loopback one, over which it reaches itself") {
  const std::vector<InterfaceAddress> own = interface_addresses();
  CHECK(interface_towards("127.0.0.1", own) == "lo");
  CHECK(interface_towards("a.name", own).empty());
}

}  // namespace of_address_choice_test
