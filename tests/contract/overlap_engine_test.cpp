// Sync engines with several fragments: rounds in flight together, codecs on the wire, checkpoints in the middle, memory; and one round of
// Streaming DiLoCo computed once more by other code.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "agent/storage/checkpoint.hpp"
#include "tests/contract/engine_islands.hpp"
#include "transport/base/rng.hpp"

using namespace atl;
using namespace atl::agent;
using atl_test::Island;
using atl_test::Islands;
using atl_test::kRun;
using atl_test::memory_now;

namespace {

RunSpec fragments_of(std::uint32_t fragments, CodecKind codec, CodecKind reduce_codec) {
  RunSpec spec = atl_test::spec_of(codec);
  spec.strategy.reduce_codec = reduce_codec;
  spec.strategy.grouping = FragmentKind::balanced;
  spec.strategy.fragments = fragments;
  spec.strategy.inner_steps = 30;
  spec.strategy.overlap_steps = 20;
  return spec;
}

Digest apply(Island& island, const ExchangeDone& done, std::uint32_t fragment) {
  island.engine->post(ApplyResult{kRun, done.round, done.attempt, fragment, done.digest});
  const ResultApplied applied = island.answer<ResultApplied>();
  INFO((applied.error ? applied.error->why : ""));
  CHECK_FALSE(applied.error.has_value());
  return done.digest;
}

[[maybe_unused]] std::uint64_t peak_memory_since_reset() {  // sanitizers have memory of their own
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("VmHWM:", 0) == 0) {
      return std::stoull(line.substr(6)) * 1024;
    }
  }
  return 0;
}

}  // namespace

TEST_CASE("overlap: results may be there in any order, they are told and applied in that of the rounds") {
  Islands group(2, {1000, 1000, 1000}, fragments_of(3, CodecKind::f32, CodecKind::f32));
  REQUIRE(group.all[0]->layout.fragments.size() == 3);
  for (std::uint32_t fragment = 0; fragment < 3; ++fragment) {
    for (std::size_t i = 0; i < 2; ++i) {
      group.all[i]->move(fragment, static_cast<float>(i + 1) / 1024.0F);
      group.all[i]->form(Round(fragment + 1), {.fragment = fragment});
    }
  }
  for (const std::uint32_t fragment : {2U, 1U, 0U}) {
    for (auto& island : group.all) {
      island->engine->post(group.exchange(Round(fragment + 1), Attempt(1), {100, 100}, fragment));
    }
  }
  std::vector<Digest> digests;
  for (std::uint32_t fragment = 0; fragment < 3; ++fragment) {
    std::vector<ExchangeDone> done;
    for (auto& island : group.all) {
      done.push_back(island->answer<ExchangeDone>());
      CHECK(done.back().round == Round(fragment + 1));
      CHECK(done.back().digest == done.front().digest);
    }
    if (fragment == 0) {
      // The third round's result is not taken before its turn.
      group.all[0]->engine->post(ApplyResult{kRun, Round(3), Attempt(1), 2, done[0].digest});
      CHECK(group.all[0]->answer<ResultApplied>().error.has_value());
    }
    for (std::size_t i = 0; i < 2; ++i) {
      apply(*group.all[i], done[i], fragment);
    }
  }
  // Each fragment took one Nesterov step (0.7, 0.9) of the mean 1.5/1024 · (i mod 7 + 1).
  for (auto& island : group.all) {
    for (std::uint32_t fragment = 0; fragment < 3; ++fragment) {
      for (const std::size_t at : {0U, 1U, 6U, 7U, 999U}) {
        const double gradient = 1.5 / 1024.0 * static_cast<double>(at % 7 + 1);
        CHECK(static_cast<double>(island->fragment(fragment)[at]) == Approx(1.0 - 0.7 * 1.9 * gradient).epsilon(1e-6));
      }
    }
  }
}

TEST_CASE("overlap: an attempt of one round is repeated while the others of later rounds stand") {
  Islands group(3, {900, 900}, fragments_of(2, CodecKind::fp4, CodecKind::int8));
  for (std::uint32_t fragment = 0; fragment < 2; ++fragment) {
    for (std::size_t i = 0; i < 3; ++i) {
      group.all[i]->move(fragment, static_cast<float>(i + 1) / 1024.0F);
      group.all[i]->form(Round(fragment + 1), {.fragment = fragment});
    }
  }
  for (const std::uint32_t fragment : {1U, 0U}) {
    for (std::size_t i = 0; i < 2; ++i) {  // the third never comes
      group.all[i]->engine->post(group.exchange(Round(fragment + 1), Attempt(1), {1, 1, 1}, fragment));
    }
  }
  group.all[2].reset();
  std::vector<Digest> last;
  for (std::size_t i = 0; i < 2; ++i) {
    Island& island = *group.all[i];
    island.void_attempt = Attempt(1);
    for (const std::uint32_t fragment : {0U, 1U}) {
      const Round round(fragment + 1);
      island.engine->post(CancelExchange{kRun, round, Attempt(1)});
      island.engine->post(BeginExchange{kRun, Epoch(2), round, Attempt(2), fragment, {group.members[0], group.members[1]}, {{1, 1}}});
    }
  }
  for (std::uint32_t fragment = 0; fragment < 2; ++fragment) {
    std::vector<ExchangeDone> done;  // by both, before either applies: until then the other may still be reading
    for (std::size_t i = 0; i < 2; ++i) {
      done.push_back(group.all[i]->answer<ExchangeDone>());
    }
    for (std::size_t i = 0; i < 2; ++i) {
      last.push_back(apply(*group.all[i], done[i], fragment));
    }
  }
  CHECK(last[0] == last[1]);
  CHECK(last[2] == last[3]);
}

TEST_CASE("overlap: the codecs that a run chooses are the bytes that travel") {
  constexpr std::uint64_t kValues = 10'000;  // 40 blocks of at most 256
  const auto bytes = [](CodecKind codec) -> std::uint64_t {
    return codec == CodecKind::f32    ? 4 * kValues
           : codec == CodecKind::bf16 ? 2 * kValues
           : codec == CodecKind::int8 ? kValues + 40 * 4
                                      : kValues / 2 + 40 * 4;
  };
  const auto received = [](int islands, CodecKind codec, CodecKind reduce_codec) {
    Islands group(islands, {kValues, 64}, fragments_of(2, codec, reduce_codec));
    const std::vector<std::uint64_t> tokens(group.all.size(), 10);
    std::uint32_t large = group.all[0]->layout.fragments[0].count == kValues ? 0 : 1;
    for (auto& island : group.all) {
      island->move(large, 0.001F);
      island->form(Round(1), {.fragment = large});
      island->engine->post(group.exchange(Round(1), Attempt(1), tokens, large));
    }
    std::uint64_t sum = 0;
    for (auto& island : group.all) {
      const ExchangeDone done = island->answer<ExchangeDone>();
      sum += done.bytes_received;
      CHECK_FALSE(done.slowest.empty());
      CHECK(done.slowest != island->member.island);
    }
    return sum;
  };
  constexpr std::array kAll = {CodecKind::f32, CodecKind::bf16, CodecKind::int8, CodecKind::fp4};
  for (const CodecKind codec : kAll) {
    INFO(name_of(codec));
    CHECK(received(2, codec, codec) == 2 * bytes(codec));
    // Three: everybody reads its shard of two others, and the two shards of the result that are not its own.
    for (const CodecKind reduced : {CodecKind::f32, CodecKind::int8}) {
      CHECK(received(3, codec, reduced) == 2 * bytes(codec) + 2 * bytes(reduced));
    }
  }
}

namespace {

// E3M0 with a scale for each 256 values, written down once more from strategies/codec.hpp: what decodes from an encoded value.
std::vector<float> as_fp4(const std::vector<float>& values) {
  std::vector<float> decoded;
  for (std::size_t begin = 0; begin < values.size(); begin += 256) {
    const std::size_t end = std::min(values.size(), begin + 256);
    float largest = 0;
    for (std::size_t i = begin; i < end; ++i) {
      largest = std::max(largest, std::abs(values[i]));
    }
    const double scale = static_cast<double>(largest) / 64.0;
    for (std::size_t i = begin; i < end; ++i) {
      const double magnitude = std::abs(static_cast<double>(values[i]));
      double nearest = magnitude >= 0.5 * scale ? 1.0 : 0.0;
      for (double level = 2.0; level <= 64.0; level *= 2.0) {
        nearest = magnitude >= 0.75 * level * scale ? level : nearest;  // 0.75 · level lies between it and half of it
      }
      decoded.push_back(static_cast<float>(std::copysign(nearest * scale, static_cast<double>(values[i]))));
    }
  }
  return decoded;
}

}  // namespace

// Two rounds of one fragment by scalar code, in double behind the codec: contribution against the outer value, E3M0, mean by tokens,
// Nesterov with a momentum of its own. Between them the islands go on from the merge with alpha one half.
TEST_CASE("Streaming DiLoCo Alg. 2: the engine's rounds are those of an independent scalar computation") {
  constexpr std::size_t kValues = 1000;
  RunSpec spec = fragments_of(2, CodecKind::fp4, CodecKind::f32);
  spec.strategy.outer_learning_rate = 0.4;
  spec.strategy.outer_momentum = 0.9;
  spec.strategy.merge_alpha = 0.5;
  Islands group(3, {kValues, kValues}, spec);
  const std::vector<std::uint64_t> tokens = {100, 200, 700};
  Rng rng(11, stream_of("scalar"));
  std::vector<double> outer(kValues, 1.0);
  std::vector<double> momentum(kValues, 0.0);
  std::vector<std::vector<float>> local(3, std::vector<float>(kValues, 1.0F));
  for (std::uint64_t round = 1; round <= 2; ++round) {
    std::vector<double> mean(kValues, 0.0);
    for (std::size_t island = 0; island < 3; ++island) {
      std::vector<float> contribution(kValues);
      for (std::size_t i = 0; i < kValues; ++i) {
        local[island][i] -= 0.01F * static_cast<float>(rng.normal());
        contribution[i] = static_cast<float>(outer[i]) - local[island][i];
      }
      const std::vector<float> sent = as_fp4(contribution);
      for (std::size_t i = 0; i < kValues; ++i) {
        mean[i] += static_cast<double>(tokens[island]) / 1000.0 * static_cast<double>(sent[i]);
      }
      std::copy(local[island].begin(), local[island].end(), group.all[island]->fragment(1).begin());
      group.all[island]->form(Round(round), {.fragment = 1});
      group.all[island]->engine->post(group.exchange(Round(round), Attempt(1), tokens, 1));
    }
    for (std::size_t i = 0; i < kValues; ++i) {
      momentum[i] = 0.9 * momentum[i] + mean[i];
      outer[i] -= 0.4 * (mean[i] + 0.9 * momentum[i]);
    }
    std::vector<ExchangeDone> done;
    for (auto& island : group.all) {
      done.push_back(island->answer<ExchangeDone>());
    }
    for (std::size_t island = 0; island < 3; ++island) {
      apply(*group.all[island], done[island], 1);
      const std::span<float> given = group.all[island]->fragment(1);
      for (std::size_t i = 0; i < kValues; ++i) {
        INFO("round " << round << ", island " << island << ", value " << i);
        REQUIRE(static_cast<double>(given[i]) == Approx(outer[i]).epsilon(1e-6));
        REQUIRE(group.all[island]->fragment(0)[i] == 1.0F);
        // Two trainings further, and half of each: the next contribution is still against the outer value.
        local[island][i] = 0.5F * (local[island][i] - 0.002F) + 0.5F * given[i];
      }
    }
    for (std::size_t i = 0; i < kValues; ++i) {
      outer[i] = static_cast<double>(group.all[0]->fragment(1)[i]);  // rounded to float32, as the contribution sees it
    }
  }
}

TEST_CASE("overlap: from a checkpoint with rounds in flight and residuals a run comes to the same digests again") {
  RunSpec spec = fragments_of(3, CodecKind::fp4, CodecKind::int8);
  spec.strategy.error_feedback = true;
  spec.strategy.rounding = Rounding::stochastic;
  Islands group(1, {640, 640, 640}, spec);
  Island& island = *group.all[0];
  const auto train_and_form = [&](std::uint64_t round) {
    const auto fragment = static_cast<std::uint32_t>((round - 1) % 3);
    Rng rng(round, stream_of("training"));
    for (float& value : island.fragment(fragment)) {
      value -= 0.01F * static_cast<float>(rng.normal());
    }
    island.form(Round(round), {.tokens = 100 + round, .steps = 10, .training_loss = 1.5, .fragment = fragment});
  };
  const auto exchange_and_apply = [&](std::uint64_t round, std::uint64_t attempt) {
    const auto fragment = static_cast<std::uint32_t>((round - 1) % 3);
    island.engine->post(group.exchange(Round(round), Attempt(static_cast<std::uint32_t>(attempt)), {1}, fragment));
    return apply(island, island.answer<ExchangeDone>(), fragment);
  };
  Digest third;
  for (std::uint64_t round = 1; round <= 3; ++round) {
    train_and_form(round);
    third = exchange_and_apply(round, 1);
  }
  train_and_form(4);
  train_and_form(5);
  island.engine->post(BeginCheckpoint{kRun, Round(3), third});
  train_and_form(6);  // on the way to the merge at which the trainer saves
  std::vector<Digest> undisturbed = {exchange_and_apply(4, 1)};
  island.engine->post(WriteCheckpoint{kRun, Epoch(1), Round(3), third, TrainerSave::none, Step(40), 400, 3, {}});
  CHECK(island.answer<CheckpointWritten>().round == Round(3));
  for (std::uint64_t round = 5; round <= 10; ++round) {
    if (round >= 7) {
      train_and_form(round);
    }
    undisturbed.push_back(exchange_and_apply(round, 1));
  }

  island.engine->post(LoadCheckpoint{kRun, Round(3), third});
  const CheckpointLoaded loaded = island.answer<CheckpointLoaded>();
  REQUIRE(loaded.pending.size() == 3);
  for (std::uint64_t i = 0; i < 3; ++i) {
    CHECK(loaded.pending[i].round == Round(4 + i));
    CHECK(loaded.pending[i].facts.norm > 0);
    CHECK(loaded.pending[i].facts == ContributionFacts{.tokens = 104 + i,
                                                       .steps = 10,
                                                       .training_loss = 1.5,
                                                       .norm = loaded.pending[i].facts.norm,
                                                       .fragment = static_cast<std::uint32_t>(i),
                                                       .base = Round(3)});
  }
  std::vector<Digest> again;
  for (std::uint64_t round = 4; round <= 10; ++round) {
    if (round >= 7) {
      train_and_form(round);
    }
    again.push_back(exchange_and_apply(round, 2));
  }
  CHECK(again == undisturbed);

  // A flipped bit in what was in flight is noticed.
  const auto file = island.folder.path() / "runs" / kRun.text / "checkpoints" / "3" / kRoundsFolder / "5";
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekg(100);
  const char flipped = static_cast<char>(stream.get() ^ 0x10);
  stream.seekp(100);
  stream.put(flipped);
  stream.close();
  island.engine->post(LoadCheckpoint{kRun, Round(3), third});
  CHECK(island.answer<CheckpointBroken>().error.why.find("rounds/5") != std::string::npos);
}

TEST_CASE("overlap: what was rounded before makes no contribution longer than what is said of it") {
  RunSpec spec = fragments_of(1, CodecKind::fp4, CodecKind::int8);
  spec.strategy.error_feedback = true;
  Islands group(2, {640}, spec);
  // The learning rate falls: what is trained is nothing beside what the codec left over of the round before.
  for (std::uint64_t round = 1; round <= 3; ++round) {
    BeginExchange order = group.exchange(Round(round), Attempt(1), {100, 100});
    double largest = 0;
    for (auto& island : group.all) {
      Rng rng(round, stream_of("training"));
      for (float& value : island->fragment(0)) {
        value -= (round == 1 ? 0.01F : 1e-7F) * static_cast<float>(rng.normal());
      }
      island->engine->post(FormContribution{kRun, Round(round)});
      largest = std::max(largest, island->answer<ContributionFormed>().facts.norm);
    }
    order.terms.norms = {largest, 0.0};
    for (auto& island : group.all) {
      island->engine->post(order);
    }
    std::vector<ExchangeDone> done;  // a round is applied once all have exchanged: whoever applies it serves its attempt no more
    for (auto& island : group.all) {
      done.push_back(island->answer<ExchangeDone>());
    }
    for (std::size_t i = 0; i < group.all.size(); ++i) {
      apply(*group.all[i], done[i], 0);
    }
  }
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_CASE("overlap: a round takes at most two fragments of memory beyond the outer state") {
  constexpr std::uint64_t kFragment = 1'000'000;
  constexpr std::uint64_t kBytes = kFragment * sizeof(float);
  for (const CodecKind codec : {CodecKind::f32, CodecKind::fp4}) {
    INFO(name_of(codec));
    Islands group(3, std::vector<std::uint64_t>(8, kFragment),
                  fragments_of(8, codec, codec == CodecKind::fp4 ? CodecKind::int8 : CodecKind::f32));
    std::uint64_t round = 0;
    const auto all_fragments = [&] {
      for (std::uint32_t fragment = 0; fragment < 8; ++fragment) {
        ++round;
        for (auto& island : group.all) {
          island->move(fragment, 0.001F);
          island->form(Round(round), {.fragment = fragment});
          island->engine->post(group.exchange(Round(round), Attempt(1), {1, 1, 1}, fragment));
        }
        std::vector<ExchangeDone> done;
        for (auto& island : group.all) {
          done.push_back(island->answer<ExchangeDone>());
        }
        for (std::size_t i = 0; i < group.all.size(); ++i) {
          apply(*group.all[i], done[i], fragment);
        }
      }
    };
    all_fragments();  // every page of the outer state has been touched
    const std::uint64_t before = memory_now();
    std::ofstream("/proc/self/clear_refs") << "5";
    all_fragments();
    const std::uint64_t peak = peak_memory_since_reset();
    INFO("before " << before << ", peak " << peak << ": " << (peak - std::min(peak, before)) / 3 << " for each island, a fragment has "
                   << kBytes);
    REQUIRE(peak > 0);
    CHECK(peak <= before + 3 * 2 * kBytes);
  }
}
#endif
