// `atoll relay` where it does not begin: what is wrong is named, with what to do.
#include <filesystem>

#include "tests/catch.hpp"
#include "tests/cli/command_call.hpp"
#include "tests/temporary_folder.hpp"

namespace of_relay_command_test {

using namespace atl;

TEST_CASE("a relay does not begin with a rate, a name or an address that is none, and says which") {
  const atl_test::TemporaryFolder folder;
  const std::string state = (folder.path() / "state").string();
  const auto relay = [&](std::vector<std::string> options) {
    options.insert(options.begin(), {"relay", "--state", state});
    return call(options);
  };
  const auto has = [](const Called& called, const std::string& text) { return called.err.find(text) != std::string::npos; };
  const Called rate = relay({"--rate-per-island", "fast"});
  CHECK(rate.exit == 2);
  CHECK(has(rate, "--rate-per-island"));
  const Called none = relay({"--connections", "1"});
  CHECK(none.exit == 2);
  CHECK(has(none, "at least one for each of two islands"));
  const Called nowhere = relay({"--bind", "here"});
  CHECK(nowhere.exit == 2);
  CHECK(has(nowhere, "'here' is not an address"));
  const Called star = relay({"--bind", "tcp://127.0.0.1:0", "--advertise", "tcp://*:1"});
  CHECK(star.exit == 2);
  CHECK(has(star, "is no address that an island can dial"));
  const Called name = relay({"--bind", "tcp://127.0.0.1:0", "--name", "../x"});
  CHECK(name.exit == 2);
  CHECK(has(name, "a name has 1 to 64 letters"));
  CHECK_FALSE(std::filesystem::exists(state + "/relay.ticket"));
}

TEST_CASE("a coordinator does not begin with a relay's port that is none, or without its ticket") {
  const atl_test::TemporaryFolder folder;
  const std::string state = (folder.path() / "state").string();
  REQUIRE(call({"coordinator", "init", "--state", state, "--bind", "tcp://127.0.0.1:4400"}).exit == 0);
  const Called port = call({"coordinator", "--state", state, "--relay", "70000"});
  CHECK(port.exit == 2);
  CHECK(port.err.find("--relay 70000 is no port") != std::string::npos);
  const Called holes = call({"coordinator", "--state", state, "--hole-punching", "70000"});
  CHECK(holes.exit == 2);
  CHECK(holes.err.find("--hole-punching 70000 is no port") != std::string::npos);
  const Called both = call({"coordinator", "--state", state, "--relay", "4402", "--hole-punching", "4402"});
  CHECK(both.exit == 2);
  CHECK(both.err.find("--relay helps islands to punch holes, too: leave --hole-punching out") != std::string::npos);
  const Called ticket = call({"coordinator", "--state", state, "--relay-ticket", state + "/none"});
  CHECK(ticket.exit == 4);
  CHECK(ticket.err.find("there is no relay's ticket " + state + "/none") != std::string::npos);
}

}  // namespace of_relay_command_test
