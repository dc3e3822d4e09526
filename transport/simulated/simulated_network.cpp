#include "transport/simulated/simulated_network.hpp"

#include <algorithm>
#include <utility>

#include "transport/base/check.hpp"
#include "transport/simulated/simulated_paths.hpp"

namespace atl {
namespace {

constexpr std::size_t kRemembered = 16;  // deliveries a path, for replay

Duration draw(Rng& rng, Duration bound) {
  return bound <= Duration::zero() ? Duration::zero()
                                   : Duration(static_cast<Duration::rep>(rng.below(static_cast<std::uint64_t>(bound.count()))));
}

}  // namespace

void SimulatedNetwork::State::at(TimePoint time, Event event) {
  events.emplace(std::pair(std::max(time, now), sequence++), std::move(event));
}

const PathConditions& SimulatedNetwork::State::path(const Path& key) const {
  const auto found = conditions.find(key);
  return found == conditions.end() ? defaults : found->second;
}

TimePoint SimulatedNetwork::State::transmit(const Path& key, std::uint64_t bytes, bool ordered, const Event& deliver) {
  const PathConditions& with = path(key);
  Traffic& past = traffic[key];
  TimePoint departs = std::max(now, past.free_at);
  if (with.bytes_per_second > 0) {
    departs += from_seconds(static_cast<double>(bytes) / with.bytes_per_second);
  }
  past.free_at = departs;
  while (!past.queue.empty() && past.queue.front()->departs <= now) {
    past.queue.pop_front();
  }
  bool in_order = false;
  // A frame passes if the path is whole when it would arrive.
  const auto send = [&](TimePoint arrives, const Event& event) {
    Event pass = [this, key, event] {
      if (!cuts.contains(key)) {
        event();
      }
    };
    if (with.bytes_per_second > 0) {
      past.queue.push_back(std::make_shared<Queued>(Queued{departs, arrives, in_order, 0, std::move(pass)}));
      arrive(past.queue.back());
    } else {
      at(arrives, std::move(pass));
    }
  };
  if (with.replay > 0 && rng.chance(with.replay) && !past.past.empty()) {
    send(departs + with.latency + draw(rng, with.reordering_delay), past.past[rng.below(past.past.size())]);
  }
  if (with.loss > 0 && rng.chance(with.loss)) {
    return departs;
  }
  TimePoint arrives = departs + with.latency + draw(rng, with.jitter);
  if (with.reordering > 0 && rng.chance(with.reordering)) {
    arrives += draw(rng, with.reordering_delay);
  } else if (ordered) {
    arrives = std::max(arrives, past.last_arrival);
    past.last_arrival = arrives;
    in_order = true;
  }
  if (with.duplication > 0 && rng.chance(with.duplication)) {
    send(arrives + draw(rng, with.reordering_delay), deliver);
  }
  if (with.replay > 0) {
    if (past.past.size() < kRemembered) {
      past.past.push_back(deliver);
    } else {
      past.past[past.next_past++ % kRemembered] = deliver;
    }
  }
  send(arrives, deliver);
  return departs;
}

void SimulatedNetwork::State::arrive(const std::shared_ptr<Queued>& frame) {
  at(frame->arrives, [frame, moves = frame->moves] {
    if (frame->moves == moves) {
      frame->event();
    }
  });
}

void SimulatedNetwork::State::change_conditions(const std::function<void()>& change) {
  std::map<Path, double> former;
  for (const auto& [key, past] : traffic) {
    if (past.free_at > now) {
      former[key] = path(key).bytes_per_second;
    }
  }
  change();
  for (const auto& known : former) {
    const Path& key = known.first;
    const double before = known.second;
    const double rate = path(key).bytes_per_second;
    if (rate == before || before <= 0) {
      continue;
    }
    Traffic& past = traffic[key];
    const auto departure = [&](TimePoint planned) { return rate <= 0 ? now : now + from_seconds(seconds(planned - now) * before / rate); };
    TimePoint last = now;
    for (const std::shared_ptr<Queued>& frame : past.queue) {
      if (frame->departs > now) {
        const Duration on_the_way = frame->arrives - frame->departs;
        frame->departs = departure(frame->departs);
        frame->arrives = frame->departs + on_the_way;
        if (frame->ordered) {
          last = frame->arrives = std::max(frame->arrives, last);
        }
        ++frame->moves;
        arrive(frame);
      } else if (frame->ordered) {
        last = std::max(last, frame->arrives);
      }
    }
    past.free_at = departure(past.free_at);
    past.last_arrival = last;
  }
  forget_departures(*this);
}

void SimulatedNetwork::State::reconsider() {
  reconsider_bulk_links(*this);
  reconsider_control_links(*this);
}

SimulatedNetwork::SimulatedNetwork(std::uint64_t seed, TimePoint start) : state_(std::make_unique<State>(seed, start)) {}
SimulatedNetwork::~SimulatedNetwork() {
  ATOLL_CHECK(state_->bulk.empty() && state_->server == nullptr && state_->clients.empty(), "a simulated network outlives its links");
}

TimePoint SimulatedNetwork::now() const { return state_->now; }

std::optional<TimePoint> SimulatedNetwork::next_event() const {
  return state_->events.empty() ? std::nullopt : std::optional(state_->events.begin()->first.first);
}

void SimulatedNetwork::advance_to(TimePoint time) {
  while (!state_->events.empty() && state_->events.begin()->first.first <= time) {
    auto node = state_->events.extract(state_->events.begin());
    state_->now = node.key().first;
    node.mapped()();
  }
  state_->now = std::max(state_->now, time);
}

void SimulatedNetwork::set_conditions(const PathConditions& conditions) {
  state_->change_conditions([&] { state_->defaults = conditions; });
}
void SimulatedNetwork::set_path(const std::string& from, const std::string& to, const PathConditions& conditions) {
  state_->change_conditions([&] { state_->conditions[{from, to}] = conditions; });
}
void SimulatedNetwork::clear_paths() {
  state_->change_conditions([&] { state_->conditions.clear(); });
}

void SimulatedNetwork::cut(const std::string& from, const std::string& to) {
  state_->cuts.emplace(from, to);
  state_->reconsider();
}
void SimulatedNetwork::heal(const std::string& from, const std::string& to) {
  state_->cuts.erase({from, to});
  state_->reconsider();
}
void SimulatedNetwork::heal_all() {
  state_->cuts.clear();
  state_->reconsider();
}

void SimulatedNetwork::dial_by_address() { state_->addresses_needed = true; }

void SimulatedNetwork::reach_at(const std::string& host, const std::string& address) {
  state_->reached_at[host] = address;
  state_->reconsider();
}

std::unique_ptr<BulkLink> SimulatedNetwork::bulk_link(const IslandId& island, std::shared_ptr<BlobStore> store) {
  return make_simulated_bulk_link(*state_, island, std::move(store));
}
std::unique_ptr<ControlServer> SimulatedNetwork::control_server() { return make_simulated_control_server(*state_); }
std::unique_ptr<ControlClient> SimulatedNetwork::control_client(const std::string& host, const std::string& public_key) {
  return make_simulated_control_client(*state_, host, public_key);
}

}  // namespace atl
