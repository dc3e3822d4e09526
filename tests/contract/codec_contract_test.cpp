// The codecs' contract: one suite over every codec, block size and rounding.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "strategies/aggregate.hpp"
#include "strategies/codec.hpp"
#include "strategies/codec_kernels.hpp"
#include "tests/catch.hpp"
#include "tests/mean.hpp"
#include "transport/base/bytes.hpp"
#include "transport/base/rng.hpp"

namespace of_codec_contract_test {

using namespace atl;

namespace {

std::vector<CodecSettings> every_codec() {
  std::vector<CodecSettings> all{{CodecKind::f32, 256, Rounding::nearest}};
  for (const Rounding rounding : {Rounding::nearest, Rounding::stochastic}) {
    all.push_back({CodecKind::bf16, 256, rounding});
    for (const std::uint32_t block : {16U, 48U, 256U, 4096U}) {
      all.push_back({CodecKind::int8, block, rounding});
      all.push_back({CodecKind::fp4, block, rounding});
    }
  }
  return all;
}

std::string name(const CodecSettings& codec) {
  return std::string(name_of(codec.kind)) + ", block " + std::to_string(codec.block) +
         (codec.rounding == Rounding::nearest ? ", nearest" : ", stochastic");
}

Bytes encoded(const CodecSettings& codec, std::span<const float> values, EncodePosition at = {}) {
  Result<Bytes> bytes = encoding_of(codec, values, at);
  REQUIRE(bytes);
  REQUIRE(can_encode(codec, bytes->size(), values.size()));
  REQUIRE_FALSE(can_encode(codec, bytes->size() + 1, values.size()));
  return *std::move(bytes);
}

std::vector<float> decoded(const CodecSettings& codec, const Bytes& bytes, std::size_t count) {
  std::vector<float> values(count, -1.0F);
  REQUIRE(decode(codec, bytes, values));
  return values;
}

// Values of every kind: normal, sparse, of wildly different sizes, tiny, equal, zero.
std::vector<std::vector<float>> inputs() {
  std::vector<std::vector<float>> all;
  Rng rng(7);
  for (const std::size_t count : {0, 1, 2, 3, 15, 16, 17, 255, 256, 257, 1000, 4097, 9001}) {
    std::vector<float> normal(count), sparse(count), wild(count), same(count, -0.37F), zeros(count), tiny(count),
        negative_zeros(count, -0.0F);
    for (std::size_t i = 0; i < count; ++i) {
      normal[i] = static_cast<float>(rng.normal() * 1e-3);
      sparse[i] = rng.chance(0.02) ? static_cast<float>(rng.normal()) : 0.0F;
      wild[i] = static_cast<float>(std::ldexp(rng.normal(), static_cast<int>(rng.below(60)) - 30));
      tiny[i] = std::bit_cast<float>(static_cast<std::uint32_t>(rng.below(1 << 23)));  // denormals
    }
    for (auto* values : {&normal, &sparse, &wild, &same, &zeros, &tiny, &negative_zeros}) {
      all.push_back(std::move(*values));
    }
  }
  constexpr float kLargest = std::numeric_limits<float>::max();
  all.push_back({kLargest, -kLargest, 1.0F, 0.0F, std::numeric_limits<float>::denorm_min()});
  all.push_back({0x1p-100F, -0x1p-101F, 0x1.8p-127F});
  return all;
}

// The largest error the contract allows for x in a block with this absmax.
double allowed_error(const CodecSettings& codec, double x, double absmax) {
  const bool nearest = codec.rounding == Rounding::nearest;
  const double size = std::fabs(x);
  switch (codec.kind) {
    case CodecKind::f32:
      return 0.0;
    case CodecKind::bf16:
      return std::max(size * (nearest ? 0x1p-8 : 0x1p-7), 0x1p-133);
    case CodecKind::int8:
      return absmax < 0x1p-100 ? absmax : absmax / 126.9 * (nearest ? 0.51 : 1.01) + (absmax > 0x1.FAp+127 ? absmax * 0.01 : 0.0);
    case CodecKind::fp4: {
      const double scale = absmax / 64;
      if (absmax < 0x1p-100) {
        return absmax;
      }
      const double step = size < scale ? scale * (nearest ? 0.5 : 1.0) : size * (nearest ? 1.0 / 3.0 : 1.0);
      return step * (1 + 1e-6);
    }
  }
  return 0.0;
}

}  // namespace

TEST_CASE("codec: the error is within the contract's bound, in order and in size", "[codec]") {
  for (const CodecSettings& codec : every_codec()) {
    for (const auto& values : inputs()) {
      INFO(name(codec) << ", " << values.size() << " values");
      const Bytes bytes = encoded(codec, values, {.position = 0, .seed = 3});
      const auto back = decoded(codec, bytes, values.size());
      const std::size_t block = codec.kind == CodecKind::int8 || codec.kind == CodecKind::fp4 ? codec.block : 1;
      bool within = true;
      for (std::size_t start = 0; start < values.size(); start += block) {
        const std::size_t end = std::min(start + block, values.size());
        double absmax = 0;
        for (std::size_t i = start; i < end; ++i) {
          absmax = std::max(absmax, std::fabs(static_cast<double>(values[i])));
        }
        for (std::size_t i = start; i < end; ++i) {
          const double error = std::fabs(static_cast<double>(back[i]) - static_cast<double>(values[i]));
          if (!(error <= allowed_error(codec, static_cast<double>(values[i]), absmax))) {
            within = false;
            FAIL_CHECK("value " << i << ": " << values[i] << " became " << back[i]);
          }
        }
      }
      REQUIRE(within);
    }
  }
}

TEST_CASE("codec: f32 keeps every finite bit pattern, bf16 those it can hold", "[codec]") {
  Rng rng(11);
  std::vector<float> any;
  std::vector<float> halves;
  while (any.size() < 5000) {
    const std::uint32_t bits = rng.next_u32();
    if (std::isfinite(std::bit_cast<float>(bits))) {
      any.push_back(std::bit_cast<float>(bits));
      halves.push_back(std::bit_cast<float>(bits & 0xffff0000U));
    }
  }
  const auto same = [](const std::vector<float>& a, const std::vector<float>& b) {
    return std::memcmp(a.data(), b.data(), 4 * a.size()) == 0;
  };
  const CodecSettings f32{CodecKind::f32, 256, Rounding::nearest};
  CHECK(same(decoded(f32, encoded(f32, any), any.size()), any));
  for (const Rounding rounding : {Rounding::nearest, Rounding::stochastic}) {
    const CodecSettings bf16{CodecKind::bf16, 256, rounding};
    CHECK(same(decoded(bf16, encoded(bf16, halves), halves.size()), halves));
  }
}

TEST_CASE("codec: encoding what was decoded gives the same bytes", "[codec]") {
  for (const CodecSettings& codec : every_codec()) {
    if (codec.rounding == Rounding::stochastic) {
      continue;
    }
    for (const auto& values : inputs()) {
      INFO(name(codec) << ", " << values.size() << " values");
      const auto once = encoded(codec, values);
      const auto back = decoded(codec, once, values.size());
      REQUIRE(encoded(codec, back) == once);
    }
  }
}

TEST_CASE("codec: pieces encoded alone are the bytes of the whole, and decode alone", "[codec]") {
  for (const CodecSettings& codec : every_codec()) {
    for (const auto& values : inputs()) {
      INFO(name(codec) << ", " << values.size() << " values");
      const auto whole = encoded(codec, values, {.position = 0, .seed = 5});
      const auto reference = decoded(codec, whole, values.size());
      const std::uint64_t granule = piece_granularity(codec);
      Bytes joined;
      std::vector<float> back;
      for (std::size_t at = 0; at < values.size(); at += 3 * granule) {
        const auto part = std::span(values).subspan(at, std::min<std::size_t>(3 * granule, values.size() - at));
        const auto bytes = encoded(codec, part, {.position = at, .seed = 5});
        REQUIRE(bytes.size() == encoded_bytes(codec, part.size()));
        REQUIRE(std::ranges::equal(encoded_part(codec, whole, at, part.size()), bytes));
        REQUIRE(encoded_from(codec, whole, at).data() == whole.data() + joined.size());
        joined.insert(joined.end(), bytes.begin(), bytes.end());
        const auto piece_values = decoded(codec, bytes, part.size());
        back.insert(back.end(), piece_values.begin(), piece_values.end());
      }
      REQUIRE(joined == whole);
      REQUIRE(back == reference);
    }
  }
}

TEST_CASE("codec: values at once are whole pieces of both codecs, and at least one", "[codec]") {
  for (const CodecSettings& one : every_codec()) {
    for (const CodecSettings& other : every_codec()) {
      for (const std::uint64_t about : {0, 1, 100, 4096, 65536}) {
        const std::uint64_t values = values_at_once(about, one, other);
        REQUIRE(values > 0);
        REQUIRE(values % piece_granularity(one) == 0);
        REQUIRE(values % piece_granularity(other) == 0);
        REQUIRE((values <= about || values == shard_granularity(one, other)));
      }
    }
  }
}

TEST_CASE("codec: accumulating is the weighted mean of the decoded values, bit for bit", "[codec]") {
  for (const CodecSettings& codec : every_codec()) {
    Rng rng(13);
    const std::size_t count = 5003;
    std::vector<std::vector<float>> plain(3, std::vector<float>(count));
    std::vector<std::span<const float>> views;
    std::vector<float> sum(count, 0.0F);
    const std::vector<float> weights{0.2F, 0.5F, 0.3F};
    for (std::size_t member = 0; member < plain.size(); ++member) {
      for (float& value : plain[member]) {
        value = static_cast<float>(rng.normal());
      }
      const auto bytes = encoded(codec, plain[member], {.position = 0, .seed = member});
      plain[member] = decoded(codec, bytes, count);
      views.emplace_back(plain[member]);
      REQUIRE(decode_accumulate(codec, bytes, weights[member], sum));
    }
    std::vector<float> mean(count);
    atl_test::weighted_mean(views, weights, mean);
    INFO(name(codec));
    REQUIRE(std::memcmp(sum.data(), mean.data(), 4 * count) == 0);
  }
}

TEST_CASE("codec: bytes at an odd address decode the same", "[codec]") {
  for (const CodecSettings& codec : every_codec()) {
    std::vector<float> values(1000);
    Rng rng(17);
    for (float& value : values) {
      value = static_cast<float>(rng.normal());
    }
    Bytes room(encoded_bytes(codec, values.size()) + 1);
    const auto odd = std::span(room).subspan(1);
    REQUIRE(encode(codec, values, odd));
    std::vector<float> back(values.size());
    REQUIRE(decode(codec, odd, back));
    REQUIRE(back == decoded(codec, encoded(codec, values), values.size()));
  }
}

TEST_CASE("codec: a value that is not finite is named, wherever it is", "[codec]") {
  for (const CodecSettings& codec : every_codec()) {
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity(), std::numeric_limits<float>::signaling_NaN()}) {
      for (const std::size_t where : {0, 1, 255, 256, 4096, 4999}) {
        std::vector<float> values(5000, 0.25F);
        values[where] = bad;
        values.back() = bad;
        Bytes bytes(encoded_bytes(codec, values.size()));
        const Status status = encode(codec, values, bytes, {.position = 4096 * 48, .seed = 0});
        REQUIRE_FALSE(status);
        CHECK(status.error().code == Code::corrupt);
        CHECK(status.error().why.find("value " + std::to_string(4096 * 48 + where) + " ") != std::string::npos);
      }
    }
  }
}

TEST_CASE("codec: encoded bytes that do not hold finite values are refused and change nothing", "[codec]") {
  for (const CodecSettings& codec : every_codec()) {
    INFO(name(codec));
    const std::vector<float> values(300, 1.5F);
    const auto good = encoded(codec, values);
    std::vector<float> out(values.size(), 9.0F);
    const std::vector<float> before = out;
    const auto refused = [&](const Bytes& bytes) {
      const Status plain = decode(codec, bytes, out);
      const Status summed = decode_accumulate(codec, bytes, 0.5F, out);
      REQUIRE_FALSE(plain);
      REQUIRE_FALSE(summed);
      CHECK(plain.error().code == Code::corrupt);
      REQUIRE(out == before);
    };
    Bytes longer = good;
    longer.push_back({});
    refused(longer);
    refused(Bytes(good.begin(), good.end() - 1));
    refused({});
    // Every bit pattern that stands for no number, in the first field (a value, or a block's scale).
    for (const std::uint32_t bits : {0x7f800000U, 0xff800000U, 0x7fc00000U, 0xffffffffU}) {
      Bytes bad = good;
      const std::uint32_t field = codec.kind == CodecKind::bf16 ? bits >> 16 : bits;
      std::copy_n(std::as_bytes(std::span(&field, 1)).begin(), codec.kind == CodecKind::bf16 ? 2 : 4, bad.begin());
      refused(bad);
    }
    if (codec.kind == CodecKind::int8 || codec.kind == CodecKind::fp4) {
      for (const float scale : {-1.0F, 0x1p+122F, std::numeric_limits<float>::max()}) {
        Bytes bad = good;
        std::memcpy(bad.data(), &scale, 4);
        refused(bad);
      }
    }
  }
}

TEST_CASE("codec: whatever bytes are accepted decode to finite values", "[codec]") {
  Rng rng(19);
  for (const CodecSettings& codec : every_codec()) {
    for (int attempt = 0; attempt < 200; ++attempt) {
      const std::size_t count = rng.below(200);
      Bytes bytes(encoded_bytes(codec, count));
      for (std::byte& byte : bytes) {
        byte = static_cast<std::byte>(rng.next_u32());
      }
      std::vector<float> values(count);
      const auto bound = encoded_bound(codec, bytes, count);
      REQUIRE(bound.has_value() == decode(codec, bytes, values).ok());
      for (const float value : values) {
        REQUIRE(std::isfinite(value));
        REQUIRE((!bound || std::fabs(value) <= *bound));
      }
    }
  }
}

TEST_CASE("codec: rounding is to the nearest value there is", "[codec]") {
  Rng rng(23);
  std::vector<float> values(16);
  for (int attempt = 0; attempt < 500; ++attempt) {
    double absmax = 0;
    for (float& value : values) {
      value = static_cast<float>(rng.normal());
      absmax = std::max(absmax, std::fabs(static_cast<double>(value)));
    }
    const CodecSettings fp4{CodecKind::fp4, 16, Rounding::nearest};
    const auto coarse = decoded(fp4, encoded(fp4, values), values.size());
    const CodecSettings int8{CodecKind::int8, 16, Rounding::nearest};
    const auto bytes = encoded(int8, values);
    const auto fine = decoded(int8, bytes, values.size());
    float scale;
    std::memcpy(&scale, bytes.data(), 4);
    REQUIRE(static_cast<double>(scale) >= absmax / 127 * (1 - 1e-7));
    REQUIRE(static_cast<double>(scale) <= absmax / 126.9);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double x = static_cast<double>(values[i]);
      double best = std::fabs(x);  // the distance to zero
      for (int code = 1; code <= 7; ++code) {
        best = std::min(best, std::fabs(std::fabs(x) - absmax / 64 * std::ldexp(1.0, code - 1)));
      }
      REQUIRE(std::fabs(static_cast<double>(coarse[i]) - x) <= best * (1 + 1e-5) + 1e-9);
      // c·s needs no rounding.
      REQUIRE(static_cast<double>(fine[i]) == static_cast<double>(static_cast<std::int8_t>(bytes[4 + i])) * static_cast<double>(scale));
      const double nearest = std::nearbyint(x / static_cast<double>(scale)) * static_cast<double>(scale);
      REQUIRE(std::fabs(static_cast<double>(fine[i]) - x) <= std::fabs(nearest - x) * (1 + 1e-4) + 1e-7 * absmax);
    }
  }
  // bf16: ties to even, on both sides of a representable value.
  const CodecSettings bf16{CodecKind::bf16, 256, Rounding::nearest};
  const std::vector<float> ties{0x1.01p+0F, 0x1.03p+0F, -0x1.01p+0F, 0x1.010002p+0F, 0x1.00fffep+0F};
  CHECK(decoded(bf16, encoded(bf16, ties), ties.size()) == std::vector<float>{1.0F, 0x1.04p+0F, -1.0F, 0x1.02p+0F, 1.0F});
}

TEST_CASE("codec: fp4 has the fifteen values of E3M0 and its stated byte layout", "[codec]") {
  const CodecSettings codec{CodecKind::fp4, 16, Rounding::nearest};
  const std::vector<float> values{64, -32, 16, -8, 4, -2, 1, -1, 0.49F, -0.5F, 1.5F, 3, 6, -48, -0.0F};
  const auto bytes = encoded(codec, values);
  REQUIRE(bytes.size() == 4 + 8);
  // 64 -32 | 16 -8 | 4 -2 | 1 -1 | 0.49 -0.5 | 1.5 3 | 6 -48 | -0: the earlier value in the low half; ties go up.
  CHECK(to_hex(bytes) == "0000803fe7c5a3919032f400");  // the scale, 1, first
  CHECK(decoded(codec, bytes, values.size()) == std::vector<float>{64, -32, 16, -8, 4, -2, 1, -1, 0, -1, 2, 4, 8, -64, 0});
  // The other direction: every code, minus zero included.
  const Bytes codes = from_hex("0000003f1032547698badcfe").value();
  CHECK(decoded(codec, codes, 16) == std::vector<float>{0, 0.5F, 1, 2, 4, 8, 16, 32, 0, -0.5F, -1, -2, -4, -8, -16, -32});
}

TEST_CASE("codec: the stated byte layouts of bf16 and int8", "[codec]") {
  const CodecSettings bf16{CodecKind::bf16, 256, Rounding::nearest};
  CHECK(to_hex(encoded(bf16, std::vector<float>{1.0F, -2.0F})) == "803f00c0");
  const CodecSettings int8{CodecKind::int8, 16, Rounding::nearest};
  CHECK(to_hex(encoded(int8, std::vector<float>{127, -127, 1, -2, 0.5F, 1.5F, 0})) == "0000803f7f8101fe000200");
}

TEST_CASE("codec: stochastic rounding is unbiased and a function of seed and position", "[codec]") {
  for (const CodecSettings& codec : every_codec()) {
    if (codec.rounding == Rounding::nearest) {
      continue;
    }
    INFO(name(codec));
    // Blocks whose largest value pins the scale, and one value between two codes everywhere else.
    std::vector<float> values(codec.block * 64, 0.3137F);
    for (std::size_t i = 0; i < values.size(); i += codec.block) {
      values[i] = 1.0F;
    }
    double sum = 0;
    std::size_t terms = 0;
    for (std::uint64_t seed = 0; seed < 64; ++seed) {
      const auto back = decoded(codec, encoded(codec, values, {.position = 0, .seed = seed}), values.size());
      for (std::size_t i = 0; i < back.size(); ++i) {
        if (i % codec.block != 0) {
          sum += static_cast<double>(back[i]);
          ++terms;
        }
      }
    }
    // Six standard deviations of a mean whose terms spread by at most a step: 0.25 (fp4), 1/127 (int8), 2^-9 (bf16).
    const double step = codec.kind == CodecKind::fp4 ? 0.25 : (codec.kind == CodecKind::int8 ? 1.0 / 127 : 0x1p-9);
    CHECK(sum / static_cast<double>(terms) == Approx(0.3137).margin(6 * 0.5 * step / std::sqrt(static_cast<double>(terms))));
    CHECK(encoded(codec, values, {.position = 0, .seed = 1}) == encoded(codec, values, {.position = 0, .seed = 1}));
    CHECK(encoded(codec, values, {.position = 0, .seed = 1}) != encoded(codec, values, {.position = 0, .seed = 2}));
    CHECK(encoded(codec, values, {.position = 0, .seed = 1}) != encoded(codec, values, {.position = 16ULL * codec.block, .seed = 1}));
  }
}

TEST_CASE("codec: the random numbers of stochastic rounding are base's, by position", "[codec]") {
  for (const std::uint64_t position : {0ULL, 16ULL, 4096ULL, (1ULL << 34) - 16, (1ULL << 50) + 16}) {
    for (const std::size_t count : {1U, 16U, 63U, 64U, 65U, 200U}) {
      std::vector<std::uint32_t> words(count);
      kernels::random_words(0x123456789abcdefULL, position, words.data(), count);
      for (std::size_t i = 0; i < count; ++i) {
        const std::uint64_t block = (position + i) / 4;
        const auto expected =
            philox({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), 0, 0}, {0x89abcdefU, 0x01234567U});
        REQUIRE(words[i] == expected[i % 4]);
      }
    }
  }
}

TEST_CASE("codec: settings that are not allowed", "[codec]") {
  for (const std::uint32_t block : {0U, 8U, 24U, 65552U}) {
    const CodecSettings codec{CodecKind::int8, block, Rounding::nearest};
    CHECK_FALSE(check_codec(codec));
    Bytes bytes(16);
    std::vector<float> values(16);
    CHECK_FALSE(decode(codec, bytes, values));
    CHECK_FALSE(encode(codec, values, bytes));
  }
  const CodecSettings codec{CodecKind::int8, 32, Rounding::nearest};
  std::vector<float> values(32);
  Bytes bytes(encoded_bytes(codec, 32));
  CHECK(encode(codec, values, bytes, {.position = 64, .seed = 0}));
  CHECK(encode(codec, values, bytes, {.position = 16, .seed = 0}).error().code == Code::invalid_argument);
  CHECK(encode(codec, values, std::span(bytes).first(35)).error().code == Code::invalid_argument);
  CHECK(encoded_bytes({CodecKind::fp4, 256, Rounding::nearest}, 513) == 2 * (4 + 128) + 4 + 1);
}

}  // namespace of_codec_contract_test
