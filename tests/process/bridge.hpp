// Networks of their own for islands, whose links a test breaks.
//
// Each island is in a network namespace of its own; all are joined by a bridge. A port of the bridge with a smaller MTU than the devices at
// both of its ends drops what is larger, and tells nobody. Needs root, `ip`, `tc` and the kernel's bridge and veth.
#pragma once

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "tests/catch.hpp"

namespace atl_test {

inline bool sh(const std::string& command) { return std::system((command + " > /dev/null 2>&1").c_str()) == 0; }

// Networks of their own for some islands, and one for everybody else, joined by a bridge. This thread is in the latter while it lives.
class Bridge {
 public:
  explicit Bridge(int islands) : home_(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC)) {
    ok_ = home_ >= 0 && ::unshare(CLONE_NEWNET) == 0;
    middle_ = ::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    ok_ =
        ok_ && sh("ip link set lo up && ip link add br0 type bridge && ip link set br0 mtu 1500 up && ip addr add 10.77.0.254/24 dev br0");
    for (int i = 1; i <= islands && ok_; ++i) {
      ok_ = ::unshare(CLONE_NEWNET) == 0;
      inside_.push_back(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
      const std::string number = std::to_string(i);
      const std::string network = "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(inside_.back());
      enter(middle_);
      ok_ = ok_ && sh("ip link add v" + number + " mtu 1500 type veth peer name e" + number + " netns " + network + " && ip link set v" +
                      number + " master br0 up");
      enter(inside_.back());
      ok_ = ok_ && sh("ip link set lo up && ip addr add 10.77.0." + number + "/24 dev e" + number + " && ip link set e" + number +
                      " gso_max_segs 1 && ip link set e" + number + " up");
      enter(middle_);
    }
  }
  Bridge(const Bridge&) = delete;
  Bridge& operator=(const Bridge&) = delete;
  ~Bridge() {
    enter(home_);
    for (const int fd : inside_) {
      ::close(fd);
    }
    for (const int fd : {middle_, home_}) {
      if (fd >= 0) {
        ::close(fd);
      }
    }
  }
  [[nodiscard]] bool ok() const { return ok_; }
  // Does something in the network of one island, counted from 1.
  template <typename F>
  void inside(int island, F what) const {
    enter(inside_.at(static_cast<std::size_t>(island) - 1));
    what();
    enter(middle_);
  }
  // Packets that are larger than this vanish on their way to and from this island.
  static void largest_packet(int island, int bytes) {
    REQUIRE(sh("ip link set v" + std::to_string(island) + " mtu " + std::to_string(bytes)));
  }
  // Nothing comes to this island, or from it.
  static void cut(int island) { REQUIRE(sh("ip link set v" + std::to_string(island) + " down")); }
  static void join(int island) { REQUIRE(sh("ip link set v" + std::to_string(island) + " up")); }
  // Isolated islands reach everybody else, and not each other.
  static void isolate(int island, bool isolated = true) {
    REQUIRE(sh("bridge link set dev v" + std::to_string(island) + " isolated " + (isolated ? "on" : "off")));
  }
  // What the island sends passes, and nothing comes to it: no packet is as small as the bucket.
  static void deafen(int island) { REQUIRE(sh("tc qdisc add dev v" + std::to_string(island) + " root tbf rate 8kbit burst 16b limit 1")); }
  static void undeafen(int island) { REQUIRE(sh("tc qdisc del dev v" + std::to_string(island) + " root")); }

 private:
  static void enter(int network) { (void)::setns(network, CLONE_NEWNET); }

  int home_;
  int middle_ = -1;
  std::vector<int> inside_;
  bool ok_ = false;
};

}  // namespace atl_test
