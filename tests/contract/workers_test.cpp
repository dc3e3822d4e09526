// Threads that help with what falls into parts.
#include "agent/service/workers.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <limits>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "strategies/codec.hpp"
#include "strategies/outer_optimizer.hpp"
#include "tests/catch.hpp"
#include "transport/base/bytes.hpp"
#include "transport/base/rng.hpp"

namespace of_workers_test {

using namespace atl;
using atl::agent::Workers;

TEST_CASE("workers do each part once, again and again, and the caller works with them") {
  for (const unsigned threads : {1U, 2U, 5U}) {
    Workers workers(threads);
    for (const std::size_t count : {0U, 1U, 2U, 3U, 100U, 7U}) {
      std::vector<std::atomic<unsigned>> times(count);
      for (int again = 0; again < 50; ++again) {
        workers.each(count, [&](std::size_t i) { ++times[i]; });
      }
      for (const std::atomic<unsigned>& each : times) {
        CHECK(each == 50);
      }
    }
  }
}

TEST_CASE("workers work at one time") {
  Workers workers(3);
  std::atomic<int> there{0};
  std::mutex mutex;
  std::set<std::thread::id> who;
  workers.each(3, [&](std::size_t) {
    {
      const std::lock_guard lock(mutex);
      who.insert(std::this_thread::get_id());
    }
    ++there;
    for (int i = 0; i < 10'000 && there < 3; ++i) {  // in vain, if one thread did them in turn
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  CHECK(who.size() == 3);
}

TEST_CASE("an outer step in parts is the whole one, bit for bit, and leaves the state alone where a value is not finite") {
  constexpr std::size_t kValues = 900'001;
  Workers workers(4);
  const InParts in_parts = [&](std::size_t count, const std::function<void(std::size_t)>& part) { workers.each(count, part); };
  const auto floats = [](std::uint64_t seed) {
    Rng rng(seed);
    std::vector<float> values(kValues);
    for (float& value : values) {
      value = static_cast<float>(rng.uniform() - 0.5);
    }
    return values;
  };
  struct Kind {
    CodecSettings codec;
    bool rounded;
  };
  for (const Kind& kind : {Kind{{}, false}, Kind{{CodecKind::int8}, false}, Kind{{CodecKind::bf16}, true}, Kind{{CodecKind::fp4}, true}}) {
    std::vector<std::vector<std::byte>> terms;
    for (const std::uint64_t seed : {1U, 2U}) {
      terms.emplace_back(encoded_bytes(kind.codec, kValues));
      REQUIRE(encode(kind.codec, floats(seed), terms.back()));
    }
    const auto step = [&](const InParts& parts, std::vector<float>& parameters, std::vector<float>& momentum, Bytes& rounded) {
      const std::vector<EncodedTerm> weighed = {{terms[0], 0.25F, 0.0}, {terms[1], 0.75F, 0.0}};
      OuterState state{parameters, momentum, {}};
      if (kind.rounded) {
        state.momentum = {};
        state.rounded.bytes = rounded;
        state.rounded.at.seed = 7;
      }
      return outer_step({kind.codec, weighed}, {OuterOptimizerKind::nesterov, 0.7, 0.9}, state, parts);
    };
    std::vector<float> parameters = floats(3);
    std::vector<float> momentum = floats(4);
    Bytes rounded(2 * kValues);
    std::vector<float> others = parameters;
    std::vector<float> other_momentum = momentum;
    Bytes other_rounded = rounded;
    REQUIRE(step(one_after_another, parameters, momentum, rounded));
    REQUIRE(step(in_parts, others, other_momentum, other_rounded));
    CHECK(parameters == others);
    CHECK(momentum == other_momentum);
    CHECK(rounded == other_rounded);
    if (kind.codec.kind == CodecKind::f32) {
      const float nan = std::numeric_limits<float>::quiet_NaN();
      std::memcpy(terms[1].data() + 4 * 700'000, &nan, sizeof nan);
      const Status refused = step(in_parts, others, other_momentum, other_rounded);
      REQUIRE_FALSE(refused);
      CHECK(refused.error().why == step(one_after_another, others, other_momentum, other_rounded).error().why);
      CHECK(refused.error().why.find("700000") != std::string::npos);
      CHECK(parameters == others);
      CHECK(momentum == other_momentum);
    }
  }
}

}  // namespace of_workers_test
