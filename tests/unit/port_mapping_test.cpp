// What a router may say of its public address, and which islands ask one.
#include "transport/mapping/port_mapping.hpp"

#include "agent/service/joining.hpp"
#include "tests/catch.hpp"

namespace of_port_mapping_test {

using namespace atl;

TEST_CASE("a router's public address is one of IPv4 that another machine may have, and nothing else is offered") {
  CHECK(can_be_public("203.0.113.7"));
  CHECK(can_be_public("100.64.0.1"));  // of a provider's network: islands in it can dial it
  CHECK(can_be_public("10.0.0.1"));    // of the router beyond
  for (const char* no : {"0.0.0.0", "0.1.2.3", "127.0.0.1", "169.254.1.1", "224.0.0.1", "255.255.255.255", "2001:db8::1", "router", "",
                         "1.2.3", "1.2.3.4 tcp://1.2.3.5:80"}) {
    CHECK_FALSE(can_be_public(no));
  }
}

TEST_CASE("no router is asked for a port where the island listens at one interface, or has an address that needs none") {
  CHECK_FALSE(agent::may_be_mapped("tcp://[::]:4401", "tcp://127.0.0.1:4401"));
  CHECK_FALSE(agent::may_be_mapped("tcp://[::]:4401", "tcp://203.0.113.7:4401"));
  CHECK_FALSE(agent::may_be_mapped("tcp://[::]:4401", "tcp://[fd00::1]:4401"));
  CHECK_FALSE(agent::may_be_mapped("tcp://[::]:4401", "tcp://192.168.255.254:4401"));  // no interface of this machine's
  CHECK_FALSE(agent::may_be_mapped("tcp://192.168.1.7:4401", "tcp://192.168.1.7:4401"));
  CHECK_FALSE(agent::may_be_mapped("", ""));
}

TEST_CASE("a router's port goes in front of the addresses that an island offers") {
  const std::string offered =
      agent::advertised_addresses({}, {}, "tcp://192.168.1.7:4401", "tcp://127.0.0.1:4400", "tcp://203.0.113.7:4402").value();
  CHECK(offered == "tcp://203.0.113.7:4402 tcp://192.168.1.7:4401");
}

}  // namespace of_port_mapping_test
