// Fragments, shards and pieces: everything exactly once.
#include <algorithm>
#include <map>
#include <set>

#include "strategies/codec.hpp"
#include "strategies/fragments.hpp"
#include "tests/catch.hpp"
#include "transport/base/rng.hpp"
#include "transport/base/shards.hpp"
#include "transport/bulk/exchange_attempt.hpp"

namespace of_strategies_fragments_test {

using namespace atl;

namespace {

ParameterInfo parameter(std::string name, std::int32_t block, std::int64_t count) {
  return {std::move(name), {count}, block, static_cast<std::uint64_t>(count)};
}

// Embeddings, `blocks` transformer blocks of two parameters each, a final norm and a head.
std::vector<ParameterInfo> transformer(std::int32_t blocks) {
  std::vector<ParameterInfo> manifest{{"embedding", {10, 4}, kEmbeddings, 40}};
  for (std::int32_t block = 0; block < blocks; ++block) {
    manifest.push_back(parameter("block" + std::to_string(block) + ".attention", block, 100 + block));
    manifest.push_back(parameter("block" + std::to_string(block) + ".mlp", block, 50));
  }
  manifest.push_back(parameter("norm", blocks, 4));
  manifest.push_back({"head", {4, 10}, blocks, 40});
  return manifest;
}

// For each fragment, the blocks in it.
std::vector<std::set<std::int32_t>> blocks_of(const std::vector<ParameterInfo>& manifest, const ArenaLayout& layout) {
  std::vector<std::set<std::int32_t>> blocks(layout.fragments.size());
  for (const ArenaEntry& entry : layout.entries) {
    for (std::size_t fragment = 0; fragment < layout.fragments.size(); ++fragment) {
      const FragmentRange& range = layout.fragments[fragment];
      if (entry.offset >= range.offset && entry.offset < range.offset + range.count) {
        blocks[fragment].insert(manifest[entry.parameter].block);
      }
    }
  }
  return blocks;
}

}  // namespace

TEST_CASE("fragments: the whole model is one, in the manifest's order", "[strategies]") {
  const auto manifest = transformer(2);
  const auto layout = lay_out(manifest, {}).value();
  REQUIRE(layout.fragments == std::vector<FragmentRange>{{0, layout.total}});
  CHECK(layout.total == 40 + 100 + 50 + 101 + 50 + 4 + 40);
  REQUIRE(layout.entries.size() == manifest.size());
  for (std::uint32_t i = 0; i < manifest.size(); ++i) {
    CHECK(layout.entries[i].parameter == i);
  }
  CHECK(layout.entries[2].offset == 140);
}

TEST_CASE("fragments: strided and sequential blocks, with embeddings and head as one more", "[strategies]") {
  const auto manifest = transformer(7);
  const auto strided = lay_out(manifest, {FragmentKind::strided, 0, 3}).value();
  CHECK(blocks_of(manifest, strided) == std::vector<std::set<std::int32_t>>{{0, 3, 6}, {1, 4}, {2, 5}, {kEmbeddings, 7}});
  const auto sequential = lay_out(manifest, {FragmentKind::sequential, 0, 3}).value();
  CHECK(blocks_of(manifest, sequential) == std::vector<std::set<std::int32_t>>{{0, 1, 2}, {3, 4, 5}, {6}, {kEmbeddings, 7}});
  // Streaming DiLoCo's own numbers: 24, 48 and 108 layers in threes are 8, 16 and 36 fragments, and one for the embeddings.
  CHECK(lay_out(transformer(24), {FragmentKind::strided, 0, 3}).value().fragments.size() == 9);
  CHECK(lay_out(transformer(48), {FragmentKind::strided, 0, 3}).value().fragments.size() == 17);
  CHECK(lay_out(transformer(108), {FragmentKind::strided, 0, 3}).value().fragments.size() == 37);
  CHECK(lay_out(transformer(2), {FragmentKind::strided, 0, 100}).value().fragments.size() == 2);
}

TEST_CASE("fragments: balanced ones differ by little and hold everything", "[strategies]") {
  Rng rng(5);
  for (int attempt = 0; attempt < 200; ++attempt) {
    std::vector<ParameterInfo> manifest;
    const std::size_t count = 1 + rng.below(40);
    std::uint64_t total = 0;
    std::uint64_t largest = 0;
    for (std::size_t i = 0; i < count; ++i) {
      manifest.push_back(parameter("p" + std::to_string(i), kNoBlock, 1 + static_cast<std::int64_t>(rng.below(1000))));
      total += manifest.back().count;
      largest = std::max(largest, manifest.back().count);
    }
    const auto fragments = static_cast<std::uint32_t>(1 + rng.below(count));
    const auto layout = lay_out(manifest, {FragmentKind::balanced, fragments}).value();
    REQUIRE(check_layout(manifest, layout));
    REQUIRE(layout.fragments.size() == fragments);
    REQUIRE(layout.total == total);
    for (const FragmentRange& fragment : layout.fragments) {
      REQUIRE(fragment.count <= total / fragments + largest);
    }
  }
}

TEST_CASE("fragments: balanced ones are at most 4/3 of the best there are", "[strategies]") {
  Rng rng(6);
  for (int attempt = 0; attempt < 300; ++attempt) {
    std::vector<ParameterInfo> manifest;
    const std::size_t count = 2 + rng.below(7);
    for (std::size_t i = 0; i < count; ++i) {
      manifest.push_back(parameter("p" + std::to_string(i), kNoBlock, 1 + static_cast<std::int64_t>(rng.below(50))));
    }
    const auto fragments = static_cast<std::uint32_t>(2 + rng.below(std::min<std::uint64_t>(count - 1, 3)));
    std::size_t ways = 1;
    for (std::size_t i = 0; i < count; ++i) {
      ways *= fragments;
    }
    std::uint64_t best = ~0ULL;  // of all ways to put them into fragments
    for (std::size_t way = 0; way < ways; ++way) {
      std::vector<std::uint64_t> sizes(fragments);
      for (std::size_t i = 0, rest = way; i < count; ++i, rest /= fragments) {
        sizes[rest % fragments] += manifest[i].count;
      }
      best = std::min(best, *std::ranges::max_element(sizes));
    }
    const auto layout = lay_out(manifest, {FragmentKind::balanced, fragments}).value();
    REQUIRE(3 * std::ranges::max(layout.fragments, {}, &FragmentRange::count).count <= 4 * best);
  }
}

TEST_CASE("fragments: the one of the embeddings is known, however the model is cut", "[strategies]") {
  const auto of_embeddings = [](const std::vector<ParameterInfo>& manifest, const FragmentPlan& plan) {
    const auto layout = lay_out(manifest, plan).value();
    std::vector<bool> found;
    for (std::uint32_t fragment = 0; fragment < layout.fragments.size(); ++fragment) {
      found.push_back(is_of_embeddings(manifest, layout, fragment));
    }
    return found;
  };
  CHECK(of_embeddings(transformer(7), {FragmentKind::strided, 0, 3}) == std::vector<bool>{false, false, false, true});
  CHECK(of_embeddings(transformer(7), {FragmentKind::sequential, 0, 3}) == std::vector<bool>{false, false, false, true});
  CHECK(of_embeddings(transformer(7), {}) == std::vector<bool>{false});  // there is no other
  // A large embedding has a balanced fragment nearly for itself.
  auto large = transformer(3);
  large[0].shape = {500};
  large[0].count = 500;
  const auto balanced = of_embeddings(large, {FragmentKind::balanced, 3});
  CHECK(std::ranges::count(balanced, true) == 1);
  CHECK(balanced[0]);
  // A model without blocks, and one with a single block, name none.
  std::vector<ParameterInfo> unnamed{parameter("a", kNoBlock, 90), parameter("b", kNoBlock, 10)};
  CHECK(of_embeddings(unnamed, {FragmentKind::balanced, 2}) == std::vector<bool>{false, false});
  std::vector<ParameterInfo> single{parameter("a", 0, 90), parameter("b", 0, 10)};
  CHECK(of_embeddings(single, {FragmentKind::balanced, 2}) == std::vector<bool>{false, false});
}

TEST_CASE("fragments: manifests and plans that cannot be are refused, naming the parameter", "[strategies]") {
  const auto refused = [](const std::vector<ParameterInfo>& manifest, const FragmentPlan& plan, const std::string& says) {
    const auto layout = lay_out(manifest, plan);
    REQUIRE_FALSE(layout);
    CHECK(layout.error().code == Code::invalid_argument);
    CHECK(layout.error().why.find(says) != std::string::npos);
  };
  refused({}, {}, "no parameters");
  refused({parameter("", 0, 1)}, {}, "no name");
  refused({parameter("a", 0, 1), parameter("a", 0, 1)}, {}, "'a'");
  refused({{"a", {2, 3}, 0, 5}}, {}, "'a'");
  refused({{"a", {-2, -3}, 0, 6}}, {}, "negative");
  refused({{"a", {1LL << 40, 1LL << 40}, 0, 0}}, {}, "larger than the largest arena");
  refused({parameter("a", 0, 1LL << 48), parameter("b", 0, 1)}, {}, "larger than the largest arena");
  refused({parameter("a", 0, 0)}, {}, "no value");
  refused({parameter("a", kNoBlock, 3), parameter("b", 0, 3)}, {FragmentKind::strided, 0, 3}, "balanced");
  refused({parameter("a", -7, 3)}, {FragmentKind::sequential, 0, 3}, "balanced");
  refused({parameter("a", kEmbeddings, 3)}, {FragmentKind::strided, 0, 3}, "no transformer block");
  refused({parameter("a", 0, 3), parameter("b", 2, 3), parameter("c", 2, 3)}, {FragmentKind::strided, 0, 1}, "block 1");
  refused({parameter("a", 0, 3), parameter("b", 2'000'000'000, 3)}, {FragmentKind::strided, 0, 1}, "without gaps");
  refused(transformer(3), {FragmentKind::strided, 0, 0}, "at least one block");
  refused(transformer(3), {FragmentKind::balanced, 0}, "at least one fragment");
  refused(transformer(3), {FragmentKind::strided, 4}, "3 blocks, which do not make 4");
  refused({parameter("a", 0, 3)}, {FragmentKind::balanced, 2}, "do not make 2");
  refused({parameter("a", 0, 3), parameter("b", 0, 0)}, {FragmentKind::balanced, 2}, "no value");
}

TEST_CASE("fragments: a layout that was changed is noticed", "[strategies]") {
  const auto manifest = transformer(4);
  const auto good = lay_out(manifest, {FragmentKind::strided, 0, 2}).value();
  REQUIRE(check_layout(manifest, good));
  const auto refused = [&](auto&& change) {
    ArenaLayout layout = good;
    change(layout);
    CHECK_FALSE(check_layout(manifest, layout));
  };
  ArenaLayout cut = good;
  cut.fragments[0].count -= 1;
  CHECK(check_layout(manifest, cut).error().why.find("reaches over the end of its fragment") != std::string::npos);
  refused([](ArenaLayout& layout) { layout.total += 1; });
  refused([](ArenaLayout& layout) { layout.entries[1].offset += 1; });
  refused([](ArenaLayout& layout) { layout.entries[1].parameter = layout.entries[0].parameter; });
  refused([](ArenaLayout& layout) { layout.entries[1].parameter = 1000; });
  refused([](ArenaLayout& layout) { layout.entries.pop_back(); });
  refused([](ArenaLayout& layout) { layout.fragments.pop_back(); });
  refused([](ArenaLayout& layout) { layout.fragments[0].count += 1; });
  refused([](ArenaLayout& layout) { layout.fragments[1].offset -= 1; });
  refused([](ArenaLayout& layout) { layout.fragments.push_back({layout.total, 0}); });
  refused([](ArenaLayout& layout) { layout.fragments.push_back({0, layout.total}); });
}

TEST_CASE("shards: they cover a fragment exactly, in order, aligned and even", "[strategies]") {
  for (const std::uint64_t granularity : {1ULL, 16ULL, 256ULL}) {
    for (std::uint32_t members = 1; members <= 9; ++members) {
      for (const std::uint64_t count : {0ULL, 1ULL, 15ULL, 16ULL, 17ULL, 255ULL, 1000ULL, 4096ULL, 123'457ULL, (1ULL << 48) + 3}) {
        const auto shards = split_shards(count, members, granularity).value();
        REQUIRE(shards.size() == members);
        std::uint64_t end = 0;
        for (const Shard& shard : shards) {
          REQUIRE(shard.offset == end);
          REQUIRE((shard.count == 0 || shard.offset % granularity == 0));
          REQUIRE(shard.count <= shards.front().count);
          REQUIRE(shard.count + 2 * granularity > shards.front().count);
          end += shard.count;
        }
        REQUIRE(end == count);
      }
    }
  }
  CHECK_FALSE(split_shards(10, 0, 1));
  CHECK_FALSE(split_shards(10, 2, 0));
}

TEST_CASE("shards: the granularity suits both codecs of an exchange", "[strategies]") {
  CHECK(shard_granularity({CodecKind::f32, 256, {}}, {CodecKind::bf16, 256, {}}) == 16);
  CHECK(shard_granularity({CodecKind::fp4, 256, {}}, {CodecKind::bf16, 256, {}}) == 256);
  CHECK(shard_granularity({CodecKind::fp4, 48, {}}, {CodecKind::int8, 32, {}}) == 96);
}

TEST_CASE("pieces: those of an exchange cover each member's shard exactly, in whole granules of both codecs", "[strategies]") {
  const CodecSettings f32{CodecKind::f32, 256, {}};
  const CodecSettings int8{CodecKind::int8, 48, {}};
  const CodecSettings fp4{CodecKind::fp4, 256, {}};
  for (const auto& [codec, reduced] : {std::pair(f32, f32), std::pair(int8, f32), std::pair(fp4, int8)}) {
    const std::uint64_t granule = shard_granularity(codec, reduced);
    for (const std::uint64_t count : {0ULL, 1ULL, 16ULL, 1000ULL, 100'001ULL}) {
      for (const std::size_t members : {1U, 2U, 5U}) {
        for (const std::uint64_t most : {std::uint64_t{1}, granule, 3 * granule + 1, std::uint64_t{1} << 16}) {
          const auto bytes_in = [](const CodecSettings& in) { return [in](std::uint64_t values) { return encoded_bytes(in, values); }; };
          const ExchangeLayout layout = cut_pieces(count, members, granule, bytes_in(codec), bytes_in(reduced), most);
          const std::vector<Shard> shards = split_shards(count, members, granule).value();
          REQUIRE(layout.shards.size() == members + 1);
          for (std::size_t member = 0; member < members; ++member) {
            REQUIRE(layout.elements[layout.shards[member]] == shards[member].offset);
          }
          for (std::size_t piece = 0; piece < layout.pieces(); ++piece) {
            const std::uint64_t values = layout.elements[piece + 1] - layout.elements[piece];
            REQUIRE(values > 0);
            REQUIRE(values <= std::max(granule, most));
            REQUIRE(layout.elements[piece] % granule == 0);
            REQUIRE(layout.contribution[piece + 1] - layout.contribution[piece] == encoded_bytes(codec, values));
            REQUIRE(layout.reduced[piece + 1] - layout.reduced[piece] == encoded_bytes(reduced, values));
          }
          REQUIRE(layout.elements.back() == count);
          REQUIRE(layout.contribution.back() == encoded_bytes(codec, count));
          REQUIRE(layout.reduced.back() == encoded_bytes(reduced, count));
        }
      }
    }
  }
}

}  // namespace of_strategies_fragments_test
