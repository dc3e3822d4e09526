// What goes wrong in a cluster, and when: drawn from the seed.
#include <chrono>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "tests/sim/cluster.hpp"

namespace atl::sim {

using std::chrono::milliseconds;
using std::chrono::seconds;

void Cluster::next_fault() {
  const double wait = -std::log(1.0 - rng_.uniform()) * atl::seconds(scenario_.between_faults);
  timeline_.after(from_seconds(wait), [this] {
    if (troubled_) {
      fault();
      next_fault();
    }
  });
}

void Cluster::cut_for_a_while(std::vector<std::pair<std::string, std::string>> ways) {
  for (const auto& [from, to] : ways) {
    cut(from, to);
  }
  timeline_.after(draw(milliseconds(300), seconds(15)), [this, ways = std::move(ways)] {
    for (const auto& [from, to] : ways) {
      join(from, to);
    }
  });
}

// Nothing comes from it, or reaches it, or both.
void Cluster::isolate(const std::string& name) {
  const std::uint64_t which = rng_.below(3);
  std::vector<std::pair<std::string, std::string>> ways;
  const auto cut_with = [&](const std::string& other) {
    if (which != 0) {
      ways.emplace_back(name, other);
    }
    if (which != 1) {
      ways.emplace_back(other, name);
    }
  };
  cut_with(kCoordinator);
  for (const auto& host : hosts_) {
    if (host->name() != name) {
      cut_with(host->name());
    }
  }
  cut_for_a_while(std::move(ways));
}

// What only a larger world has.
void Cluster::large_fault() {
  IslandHost& host = *hosts_[rng_.below(hosts_.size())];
  const std::string other = rng_.chance(0.4) ? kCoordinator : hosts_[rng_.below(hosts_.size())]->name();
  const Duration length = draw(seconds(1), seconds(30));
  switch (rng_.below(5)) {
    case 0:
    case 1:
      if (scenario_.clogs) {
        const std::pair<std::string, std::string> way = rng_.chance(0.5) ? std::pair(host.name(), other) : std::pair(other, host.name());
        clog(way, length, draw(milliseconds(100), seconds(3)));
      }
      break;
    case 2:
      if (scenario_.full_disks) {
        ledger_full_until_ = timeline_.now() + length;
      }
      break;
    case 3:
      if (scenario_.full_disks) {
        host.fill_disk(length);
      }
      break;
    default:
      if (scenario_.partitions) {
        isolate(host.name());
      }
      break;
  }
}

void Cluster::fault() {
  if (scenario_.at_least > Duration(0) && rng_.chance(0.3)) {
    large_fault();
    return;
  }
  IslandHost& host = *hosts_[rng_.below(hosts_.size())];
  const std::uint64_t kind = rng_.below(12);
  if (kind >= 10) {
    if (coordinator_ && kind == 10) {
      (void)drain(rng_.below(hosts_.size()));
    } else if (coordinator_ && pause()) {
      timeline_.after(draw(seconds(1), seconds(10)), [this] {
        if (coordinator_) {
          (void)resume();
        }
      });
    }
    return;
  }
  if (kind < 3 && scenario_.agent_faults) {
    host.crash();
    if (power_.chance(0.3)) {
      host.lose_power();
    }
    if (scenario_.lost_disks > 0 && rng_.chance(scenario_.lost_disks)) {
      host.lose_disk();
    }
    timeline_.after(draw(milliseconds(100), seconds(12)), [&host] { host.start(); });
  } else if (kind == 3 && scenario_.agent_faults) {
    host.crash_trainer();
  } else if (kind == 4 && scenario_.agent_faults) {
    host.leave();
  } else if (kind < 7 && scenario_.coordinator_faults) {
    crash_coordinator();
    timeline_.after(draw(milliseconds(100), seconds(8)), [this] { start_coordinator(); });
  } else if (scenario_.partitions) {
    // One direction between two hosts, or everything from or to one.
    const std::string a = host.name();
    const std::string b = rng_.chance(0.4) ? kCoordinator : hosts_[rng_.below(hosts_.size())]->name();
    const std::pair<std::string, std::string> way = rng_.chance(0.5) ? std::pair(a, b) : std::pair(b, a);
    std::vector<std::pair<std::string, std::string>> ways = {way};
    if (rng_.chance(0.3)) {
      ways.emplace_back(way.second, way.first);
    }
    cut_for_a_while(std::move(ways));
  }
}

}  // namespace atl::sim
