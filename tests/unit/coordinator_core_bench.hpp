// A coordinator's core with scripted islands: what it sends and records is looked at.
#pragma once

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "coordinator/core/core.hpp"
#include "strategies/specification/run_spec.hpp"

namespace atl_test {

using namespace atl;
using namespace atl::coordinator;
using std::chrono::milliseconds;
using namespace std::chrono_literals;

inline RunSpec spec_for(std::uint32_t min, std::uint32_t max, std::uint64_t rounds) {
  RunSpec spec;
  spec.name = "run";
  spec.islands.min = min;
  spec.islands.max = max;
  spec.strategy.inner_steps = 10;
  spec.training.steps = rounds * 10;
  spec.rounds = rounds;
  return spec;
}

struct Bench {
  TimePoint now = from_unix_ms(1'700'000'000'000);
  Core core{Settings{}, Recovered{}, now};
  RunId run{"r-1"};

  void join(const std::string& name, std::uint64_t boot = 1) {
    core.admit(now, IslandId(name), name, "key-" + name);
    hello(name, boot);
  }
  void hello(const std::string& name, std::uint64_t boot, const std::string& place = "") {
    Hello message;
    message.name = name;
    message.boot = boot;
    message.place = place;
    core.step(now, IslandId(name), boot, message);
  }
  // Each of these says it, as it first came.
  template <typename M>
  void from_each(const std::vector<std::string>& names, const M& message) {
    for (const std::string& name : names) {
      core.step(now, IslandId(name), 1, message);
    }
  }
  template <typename M>
  std::vector<M> sent(const std::string& island, std::uint64_t boot = 1) {
    std::vector<M> found;
    for (const Outgoing& out : last.messages) {
      if (out.island == IslandId(island) && out.boot == boot && std::holds_alternative<M>(out.message)) {
        found.push_back(std::get<M>(out.message));
      }
    }
    return found;
  }
  void take() {
    last = core.take_ready();
    for (const Record& record : last.records) {
      if (const auto* event = std::get_if<EventRecord>(&record)) {
        ++events[event->kind];
      }
    }
  }
  [[nodiscard]] int told(const std::string& kind) const { return events.contains(kind) ? events.at(kind) : 0; }
  coordinator::Ready last;
  std::map<std::string, int> events;  // how many of each kind
};

inline Digest digest(std::uint64_t value) {
  Digest d;
  std::memcpy(d.bytes.data(), &value, sizeof value);
  return d;
}

}  // namespace atl_test
