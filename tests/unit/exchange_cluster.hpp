// Islands that exchange over the simulated network, and the sum that all of them must end with.
#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "transport/base/exchange_grid.hpp"
#include "transport/base/rng.hpp"
#include "transport/bulk/exchange_attempt.hpp"
#include "transport/simulated/simulated_network.hpp"

namespace atl_test {

using namespace atl;
using namespace std::chrono_literals;

inline constexpr std::uint64_t kGranule = 16;

inline std::vector<float> floats_of(std::uint64_t seed, std::size_t count) {
  Rng rng(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    value = static_cast<float>(rng.normal());
  }
  return values;
}

inline Payload payload_of(const std::vector<float>& values) {
  const auto copy = std::make_shared<std::vector<float>>(values);
  return Payload{std::as_bytes(std::span(*copy)), copy};
}

// sum of weight · contribution in member order, in float32.
inline void add_weighted(ByteView contribution, std::uint64_t weight, std::span<float> sum) {
  for (std::size_t i = 0; i < sum.size(); ++i) {
    float value = 0;
    std::memcpy(&value, contribution.data() + 4 * i, 4);
    sum[i] += static_cast<float>(weight) * value;
  }
}

inline std::optional<ReduceFailure> reduce_floats(const ReducePiece& task) {
  std::vector<float> sum(task.elements, 0.0F);
  for (std::size_t i = 0; i < task.contributions.size(); ++i) {
    add_weighted(task.contributions[i], task.weights[i], sum);
  }
  std::memcpy(task.reduced.data(), sum.data(), task.reduced.size());
  return std::nullopt;
}

inline ExchangeLayout layout_of(std::size_t elements, std::size_t members, std::uint64_t piece_elements,
                                std::span<const std::uint8_t> shares = {}) {
  const auto bytes = [](std::uint64_t count) { return count * 4; };
  return cut_pieces(elements, members, kGranule, bytes, bytes, piece_elements, shares);
}

struct Island {
  IslandId id;
  std::shared_ptr<BlobStore> store = std::make_shared<BlobStore>();
  std::unique_ptr<BulkLink> link;
  std::unique_ptr<ExchangeAttempt> exchange;
  TimePoint begins;  // hears of the exchange then
  // Of the result, as it came: the bytes, and how often each was there.
  std::map<std::size_t, std::pair<Bytes, std::vector<unsigned>>> came;
  std::shared_ptr<PathWindows> paths;
  std::shared_ptr<ReceiveBuffers> buffers = std::make_shared<ReceiveBuffers>();
};

struct Case {
  std::size_t elements = 1000;
  std::uint64_t piece_elements = 64;
  std::vector<std::uint64_t> weights;
  Duration late{};  // islands begin at random instants up to this
  std::uint64_t reduce_window = 0;
  std::vector<std::uint8_t> shares = {};
  bool packed = false;
  std::uint64_t budget = 0;  // of windows that follow the paths; 0: they are fixed
  std::size_t one_level = kOneLevelMembers;
};

class Cluster {
 public:
  Cluster(std::uint64_t seed, const Case& what, const PathConditions& conditions) : what_(what), network_(seed) {
    network_.set_conditions(conditions);
    for (std::size_t i = 0; i < what.weights.size(); ++i) {
      ids_.emplace_back("i" + std::to_string(i));
      members_.push_back(Member{ids_.back(), "", "", ""});
      values_.push_back(floats_of(seed * 100 + i, what.elements));
    }
    Rng rng(seed, stream_of("begin"));
    for (const IslandId& id : ids_) {
      auto island = std::make_unique<Island>();
      island->id = id;
      island->begins = network_.now() + Duration(static_cast<Duration::rep>(rng.uniform() * static_cast<double>(what.late.count())));
      island->link = network_.bulk_link(id, island->store);
      island->paths = what.budget > 0 ? std::make_shared<PathWindows>(what.budget) : nullptr;
      islands_.push_back(std::move(island));
    }
    grid_ = cut_grid(ids_.size(), what.shares, what.one_level);
    for (std::size_t i = 0; i < islands_.size(); ++i) {
      std::vector<Member> peers = members_;
      if (grid_) {  // on two levels nobody knows more than those
        peers.clear();
        for (const std::size_t peer : peers_in(*grid_, i)) {
          peers.push_back(members_[peer]);
        }
      }
      REQUIRE(islands_[i]->link->set_peers(peers));
      islands_[i]->store->set_readers(RunId("r"), ids_);
    }
  }

  // Until all are done, one has failed or the time is over.
  bool run(Duration at_most) {
    const TimePoint end = network_.now() + at_most;
    while (!finished() && !failed() && network_.now() < end) {
      TimePoint next = end;
      for (const auto& island : islands_) {
        step(*island);
        if (!island->exchange) {
          next = std::min(next, std::max(island->begins, network_.now() + 1ns));
        } else if (const auto deadline = island->exchange->next_deadline()) {
          next = std::min(next, std::max(*deadline, network_.now() + 1ns));
        }
      }
      if (finished() || failed()) {
        break;  // at this instant
      }
      if (const auto event = network_.next_event()) {
        next = std::min(next, *event);
      }
      network_.advance_to(next);
    }
    return finished();
  }

  void step(Island& island) {
    const TimePoint now = network_.now();
    if (!island.exchange && now >= island.begins) {
      begin(island, Attempt(1));
    }
    if (!island.exchange) {
      return;
    }
    while (island.link->receive(now, *island.exchange)) {
    }
    while (island.exchange->reduce_one()) {
    }
    note_ready(island);
    for (const OutgoingWant& want : island.exchange->take_wants(now)) {
      if (!island.link->want(want)) {
        island.exchange->not_sent(now, want);
      }
    }
  }

  static void note_ready(Island& island) {
    const std::vector<Payload> parts = island.exchange->parts();
    for (const ResultBytes& bytes : island.exchange->take_ready()) {
      auto& [copy, times] = island.came[bytes.part];
      const ByteView part = parts.at(bytes.part).bytes;
      copy.resize(part.size());
      times.resize(part.size());
      REQUIRE(bytes.offset + bytes.length <= part.size());
      std::copy_n(part.begin() + static_cast<std::ptrdiff_t>(bytes.offset), bytes.length,
                  copy.begin() + static_cast<std::ptrdiff_t>(bytes.offset));
      std::for_each_n(times.begin() + static_cast<std::ptrdiff_t>(bytes.offset), bytes.length, [](unsigned& count) { ++count; });
    }
  }

  ExchangePlan plan_of(const IslandId& island, Attempt attempt) const {
    ExchangePlan plan{RunId("r"), Epoch(1), Round(1), attempt, ids_, what_.weights, island, {}};
    plan.grid = grid_;
    plan.layout = grid_ ? layout_of(what_.elements, grid_->owners.size(), what_.piece_elements)
                        : layout_of(what_.elements, ids_.size(), what_.piece_elements, what_.shares);
    return plan;
  }

  void begin(Island& island, Attempt attempt) {
    ExchangePlan plan = plan_of(island.id, attempt);
    ExchangeAttempt::Settings settings;
    plan.packed = what_.packed;
    settings.wants.paths = island.paths;
    settings.buffers = island.buffers;
    if (what_.reduce_window > 0) {
      settings.reduce_window_bytes = what_.reduce_window;
    }
    auto begun = ExchangeAttempt::begin(std::move(plan), own_payload(island), reduce_floats, *island.store, network_.now(), settings);
    REQUIRE(begun);
    island.exchange = std::move(begun).value();
    island.came.clear();
  }

  Payload own_payload(const Island& island) const {
    for (std::size_t i = 0; i < ids_.size(); ++i) {
      if (ids_[i] == island.id) {
        return what_.weights[i] > 0 ? payload_of(values_[i]) : Payload{};
      }
    }
    return {};
  }

  bool finished() const {
    return std::all_of(islands_.begin(), islands_.end(), [](const auto& island) { return island->exchange && island->exchange->done(); });
  }

  bool failed() const {
    return std::any_of(islands_.begin(), islands_.end(),
                       [](const auto& island) { return island->exchange && island->exchange->failure(); });
  }

  // The weighted sum every island ends with, from its ExchangeResult.
  std::vector<float> sum_at(std::size_t island) const {
    const ExchangeResult result = islands_[island]->exchange->result();
    std::vector<float> sum(what_.elements, 0.0F);
    if (result.gathered) {
      for (std::size_t i = 0; i < result.parts.size(); ++i) {
        add_weighted(result.parts[i].bytes, result.weights[i], sum);
      }
    } else {
      REQUIRE(result.parts.size() == 1);
      REQUIRE(result.parts[0].bytes.size() == sum.size() * 4);
      std::memcpy(sum.data(), result.parts[0].bytes.data(), sum.size() * 4);
    }
    return sum;
  }

  std::vector<float> expected() const {
    std::vector<float> sum(what_.elements, 0.0F);
    std::vector<std::size_t> order;  // groups
    std::map<std::size_t, std::vector<float>> of_group;
    for (std::size_t i = 0; i < ids_.size(); ++i) {
      if (what_.weights[i] == 0) {
        continue;
      }
      if (!grid_) {
        add_weighted(std::as_bytes(std::span(values_[i])), what_.weights[i], sum);
        continue;
      }
      const auto [group, added] = of_group.try_emplace(grid_->group[i], what_.elements, 0.0F);
      if (added) {
        order.push_back(group->first);
      }
      add_weighted(std::as_bytes(std::span(values_[i])), what_.weights[i], group->second);
    }
    for (const std::size_t group : order) {
      add_weighted(std::as_bytes(std::span(of_group[group])), 1, sum);
    }
    return sum;
  }

  void check_equal() const {
    const std::vector<float> reference = expected();
    for (std::size_t i = 0; i < islands_.size(); ++i) {
      const std::vector<float> sum = sum_at(i);
      CHECK(std::memcmp(sum.data(), reference.data(), sum.size() * 4) == 0);
      const std::vector<Payload> parts = islands_[i]->exchange->result().parts;
      for (std::size_t part = 0; part < parts.size(); ++part) {  // what was told of each byte, once, when it was there, holds at the end
        const auto found = islands_[i]->came.find(part);
        REQUIRE((found != islands_[i]->came.end() || parts[part].bytes.empty()));
        if (found != islands_[i]->came.end()) {
          CHECK(std::ranges::equal(found->second.first, parts[part].bytes));
          CHECK(std::ranges::all_of(found->second.second, [](unsigned count) { return count == 1; }));
        }
      }
    }
  }

  SimulatedNetwork& network() { return network_; }
  std::vector<std::unique_ptr<Island>>& islands() { return islands_; }
  [[nodiscard]] const std::optional<ExchangeGrid>& grid() const { return grid_; }

 private:
  Case what_;
  SimulatedNetwork network_;
  std::vector<IslandId> ids_;
  std::vector<Member> members_;
  std::optional<ExchangeGrid> grid_;
  std::vector<std::vector<float>> values_;
  std::vector<std::unique_ptr<Island>> islands_;
};

inline PathConditions hostile(Rng& rng) {
  PathConditions conditions;
  conditions.latency = Duration(static_cast<Duration::rep>(rng.below(100'000'000)));
  conditions.jitter = 30ms;
  conditions.loss = rng.uniform() * 0.3;
  conditions.duplication = rng.uniform() * 0.2;
  conditions.reordering = rng.uniform() * 0.3;
  conditions.replay = rng.uniform() * 0.3;
  conditions.bytes_per_second = rng.chance(0.5) ? 20'000.0 : 0;
  return conditions;
}

}  // namespace atl_test
