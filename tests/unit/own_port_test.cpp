// The port at which other islands reach an agent, and what a daemon says to its service manager.
#include "agent/service/own_port.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <fstream>

#include "tests/catch.hpp"
#include "tests/temporary_folder.hpp"
#include "transport/base/address.hpp"
#include "transport/base/service_manager.hpp"
#include "transport/identity/identity.hpp"

namespace of_own_port_test {

using namespace atl;

namespace {

ZmqBulkSettings settings_with(std::string bind) {
  const KeyPair keys = make_key_pair().value();
  ZmqBulkSettings settings;
  settings.island = island_of(keys.public_key);
  settings.public_key = keys.public_key;
  settings.secret_key = keys.secret_key;
  settings.bind = std::move(bind);
  return settings;
}

std::unique_ptr<ZmqBulkLink> open_at(const std::filesystem::path& state, const std::string& bind = "") {
  return agent::open_bulk_link(settings_with(bind), state, std::make_shared<BlobStore>()).value();
}

std::uint16_t port_of(const ZmqBulkLink& link) { return parse_address(link.bound_address()).value().port; }

std::string port_file(const std::filesystem::path& state) {
  std::ifstream stream(state / "port");
  std::string text;
  std::getline(stream, text);
  return text;
}

}  // namespace

TEST_CASE("an agent has the same port at every start") {
  const atl_test::TemporaryFolder folder;
  const std::uint16_t first = port_of(*open_at(folder.path()));  // 4401, where nobody has it
  CHECK(port_file(folder.path()) == std::to_string(first));
  CHECK(port_of(*open_at(folder.path())) == first);
}

TEST_CASE("a port that somebody has is gone around, and asked for again at the next start") {
  const atl_test::TemporaryFolder folder;
  auto others = open_at(folder.path(), "tcp://*:*");
  CHECK(port_file(folder.path()).empty());  // a port that was given need not be remembered
  const std::uint16_t taken = port_of(*others);
  folder.write("port", std::to_string(taken) + "\n");
  CHECK(port_of(*open_at(folder.path())) != taken);
  CHECK(port_file(folder.path()) == std::to_string(taken));
  others.reset();
  CHECK(port_of(*open_at(folder.path())) == taken);
}

TEST_CASE("a port file that holds no port is no memory of one") {
  for (const char* text : {"", "0", "65536", "-1", "44x"}) {
    const atl_test::TemporaryFolder folder;
    folder.write("port", text);
    const std::uint16_t port = port_of(*open_at(folder.path()));
    CHECK(port_file(folder.path()) == std::to_string(port));
  }
}

TEST_CASE("a service manager that wants to know is told, and nobody else is") {
  const atl_test::TemporaryFolder folder;
  const std::string path = (folder.path() / "notify").string();
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  REQUIRE(path.size() < sizeof address.sun_path);
  path.copy(address.sun_path, path.size());
  const int socket = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  REQUIRE(::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  std::array<char, 64> text{};
  tell_service_manager("READY=1");
  CHECK(::recv(socket, text.data(), text.size(), MSG_DONTWAIT) == -1);
  ::setenv("NOTIFY_SOCKET", path.c_str(), 1);
  tell_service_manager("READY=1\nSTATUS=waits");
  ::setenv("NOTIFY_SOCKET", "not a path", 1);
  tell_service_manager("STATUS=lost");
  ::unsetenv("NOTIFY_SOCKET");
  CHECK(::recv(socket, text.data(), text.size(), MSG_DONTWAIT) == 20);
  CHECK(std::string(text.data(), 20) == "READY=1\nSTATUS=waits");
  CHECK(::recv(socket, text.data(), text.size(), MSG_DONTWAIT) == -1);
  ::close(socket);
}

}  // namespace of_own_port_test
