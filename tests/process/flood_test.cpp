// Connections that are held open and prove nothing, at the coordinator's port and at an island's, while neither may have many descriptors.
#include <arpa/inet.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include <array>
#include <set>

#include "agent/storage/checkpoint.hpp"
#include "tests/process/cluster.hpp"
#include "transport/base/own_disk.hpp"

namespace of_flood_test {

using atl_test::Cluster;
namespace fs = std::filesystem;

namespace {

// A process of its own that holds as many connections to each port that it is told, opens those anew that are closed, and says nothing.
class Flood {
 public:
  Flood() {
    REQUIRE(::pipe(orders_.data()) == 0);
    pid_ = ::fork();
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::close(orders_[1]);
      hold(orders_[0]);
      ::_exit(0);
    }
    ::close(orders_[0]);
  }
  ~Flood() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    ::close(orders_[1]);
  }
  Flood(const Flood&) = delete;
  Flood& operator=(const Flood&) = delete;
  void at(std::uint16_t port) { REQUIRE(::write(orders_[1], &port, sizeof port) == sizeof port); }

 private:
  static constexpr int kHeld = 1800;

  static int knock(std::uint16_t port) {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address);
    return fd;
  }
  [[noreturn]] static void hold(int orders) {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &limit);
    ::fcntl(orders, F_SETFL, O_NONBLOCK);
    std::vector<std::pair<std::uint16_t, int>> held;
    while (true) {
      std::uint16_t port = 0;
      while (::read(orders, &port, sizeof port) == sizeof port) {
        for (int i = 0; i < kHeld; ++i) {
          held.emplace_back(port, knock(port));
        }
      }
      for (auto& [to, fd] : held) {
        std::array<char, 64> said{};
        const ssize_t got = ::recv(fd, said.data(), said.size(), MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK)) {
          ::close(fd);
          fd = knock(to);
        }
      }
      ::usleep(500'000);
    }
  }

  std::array<int, 2> orders_{};
  pid_t pid_ = -1;
};

std::uint16_t port_of(const std::string& address) { return static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))); }

std::string run_file(unsigned min, unsigned max, unsigned steps) {
  return "[run]\nname = \"flooded\"\n[model]\nlayers = 1\nwidth = 32\nheads = 2\n[data]\nset = \"corpus\"\n[training]\nsteps = " +
         std::to_string(steps) +
         "\nbatch = 4\nsequence_length = 16\nwarmup_steps = 1\n[strategy]\ninner_steps = 5\n[islands]\nmin = " + std::to_string(min) +
         "\nmax = " + std::to_string(max) + "\n[checkpoint]\nevery_rounds = 2\n";
}

}  // namespace

TEST_CASE(
    "process: 1,800 held connections at each port stop neither the coordinator nor an island of 1,024 descriptors, nor keep others out") {
  Flood flood;
  const rlimit few{1024, 1024};
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &few) == 0);
  Cluster cluster;
  cluster.hold_at(12);
  cluster.start_island("a");
  cluster.start_island("b");
  const std::string run = cluster.submit(run_file(2, 3, 60));
  REQUIRE(Cluster::eventually([&] { return cluster.round_of(run) >= 1; }));
  const nlohmann::json islands = nlohmann::json::parse(cluster.run({"islands", "--json"}).out);
  std::set<std::uint16_t> ports;
  for (const nlohmann::json& island : islands["islands"]) {
    ports.insert(port_of(island.value("address", "")));
  }
  REQUIRE(ports.size() == 2);
  for (const std::uint16_t port : ports) {
    flood.at(port);
  }
  flood.at(port_of(cluster.address()));
  const auto complained = [&](const std::string& name) { return cluster.log(name).find("proved nothing") != std::string::npos; };
  REQUIRE(Cluster::eventually([&] { return complained("a") && complained("b") && complained("coordinator"); }));
  // Commands are answered, an island joins, checkpoints are written, and the run ends.
  // One whose connection falls into a burst from its own address may be closed with the others, says so, and is run again.
  const auto answered = [&](const std::vector<std::string>& command) {
    atl_test::CommandResult result;
    Cluster::eventually([&] {
      result = cluster.run(command);
      return result.exit != 3;
    });
    return result;
  };
  for (int i = 0; i < 10; ++i) {
    const atl_test::CommandResult status = answered({"status", run});
    INFO(status.err);
    CHECK(status.exit == 0);
  }
  cluster.start_island("c");
  cluster.release();
  const atl_test::CommandResult waited = answered({"wait", run, "--timeout", "120s"});
  INFO(waited.out << waited.err << cluster.logs());
  CHECK(waited.exit == 0);
  CHECK(cluster.coordinator.running());
  for (const char* name : {"a", "b", "c"}) {
    CHECK(cluster.islands[name].running());
  }
  CHECK(cluster.log("c").find("joined") != std::string::npos);
  for (const char* name : {"a", "b"}) {
    const fs::path copy = cluster.folder() / (std::string(name) + "-copy");
    fs::copy(cluster.state(name) / "runs" / run / "checkpoints", copy, fs::copy_options::recursive);
    CHECK(atl::CheckpointStore::open(atl::on_this_machine(copy)).value().newest_good().has_value());
  }
}

}  // namespace of_flood_test
