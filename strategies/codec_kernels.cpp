#include "strategies/codec_kernels.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "strategies/vectorised.hpp"

namespace atl::kernels {
namespace {

constexpr std::uint32_t kMagnitude = 0x7fffffffU;
constexpr float kSmallestAbsmax = 0x1p-100F;
constexpr std::size_t kScratch = 1024;  // values decoded at a time before they are added: stays in the first-level cache

template <typename T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

template <typename T>
void store(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

// 24 random bits as a float in [0, 1).
inline float unit(std::uint32_t word) { return static_cast<float>(static_cast<std::int32_t>(word >> 8)) * 0x1p-24F; }

// Code 0…7 of r = |x| / s by nearest: above 1.5 · 2^j the next magnitude, which adding half to the mantissa finds.
inline std::int32_t fp4_magnitude(float r) {
  const auto bits = static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(r) + 0x00400000U);
  const std::int32_t code = (bits >> 23) - 126;
  const std::int32_t least = r >= 0.5F ? 1 : 0;
  return code > least ? code : least;  // at most 7: r ≤ 64 but for rounding
}

// 2^(code − 1), or 0 for code 0, exactly; negative with the sign bit. Code 8 ("minus zero") is 0.
inline float fp4_value(std::uint32_t code) {
  const std::uint32_t magnitude = code & 7U;
  const std::uint32_t bits = ((magnitude + 126U) << 23) | ((code & 8U) << 28);
  return std::bit_cast<float>(magnitude == 0 ? 0U : bits);
}

}  // namespace

ATOLL_VECTORISED std::uint32_t max_magnitude_f32(const std::byte* bytes, std::size_t count) {
  std::int32_t largest = 0;
  for (std::size_t i = 0; i < count; ++i) {
    largest = std::max(largest, static_cast<std::int32_t>(load<std::uint32_t>(bytes + 4 * i) & kMagnitude));
  }
  return static_cast<std::uint32_t>(largest);
}

std::uint32_t max_magnitude(const float* values, std::size_t count) {
  return max_magnitude_f32(reinterpret_cast<const std::byte*>(values), count);
}

ATOLL_VECTORISED std::uint32_t max_magnitude_bf16(const std::byte* bytes, std::size_t count) {
  std::int16_t largest = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const auto magnitude = static_cast<std::int16_t>(load<std::uint16_t>(bytes + 2 * i) & 0x7fffU);
    largest = largest < magnitude ? magnitude : largest;
  }
  return static_cast<std::uint32_t>(largest) << 16;
}

namespace {

constexpr std::size_t kLanes = 32;  // more than the compiler unrolls, which would keep it from vectorising
constexpr std::size_t kDrawn = 4 * kLanes;

// base's philox for 32 consecutive counters at once, in lanes that vectorise: words[4·lane + i].
ATOLL_VECTORISED void random_lanes(std::uint64_t seed, std::uint64_t block, std::uint32_t* __restrict words) {
  std::uint32_t a[kLanes], b[kLanes], c[kLanes] = {}, d[kLanes] = {};
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    a[lane] = static_cast<std::uint32_t>(block + lane);
    b[lane] = static_cast<std::uint32_t>((block + lane) >> 32);
  }
  auto key0 = static_cast<std::uint32_t>(seed);
  auto key1 = static_cast<std::uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const std::uint64_t product0 = std::uint64_t{0xD2511F53U} * a[lane];
      const std::uint64_t product1 = std::uint64_t{0xCD9E8D57U} * c[lane];
      a[lane] = static_cast<std::uint32_t>(product1 >> 32) ^ b[lane] ^ key0;
      b[lane] = static_cast<std::uint32_t>(product1);
      c[lane] = static_cast<std::uint32_t>(product0 >> 32) ^ d[lane] ^ key1;
      d[lane] = static_cast<std::uint32_t>(product0);
    }
    key0 += 0x9E3779B9U;
    key1 += 0xBB67AE85U;
  }
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    words[4 * lane] = a[lane];
    words[4 * lane + 1] = b[lane];
    words[4 * lane + 2] = c[lane];
    words[4 * lane + 3] = d[lane];
  }
}

}  // namespace

void random_words(std::uint64_t seed, std::uint64_t position, std::uint32_t* words, std::size_t count) {
  std::size_t done = 0;
  for (; count - done >= kDrawn; done += kDrawn) {
    random_lanes(seed, (position + done) / 4, words + done);
  }
  if (done < count) {
    std::array<std::uint32_t, kDrawn> last;
    random_lanes(seed, (position + done) / 4, last.data());
    std::copy_n(last.begin(), count - done, words + done);
  }
}

ATOLL_VECTORISED void encode_bf16(const float* __restrict values, std::size_t count, std::byte* __restrict bytes) {
  for (std::size_t i = 0; i < count; ++i) {
    const auto bits = std::bit_cast<std::uint32_t>(values[i]);
    const std::uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
    const std::uint32_t overflow = (rounded & 0x7fffU) == 0x7f80U ? 1U : 0U;
    store(bytes + 2 * i, static_cast<std::uint16_t>(rounded - overflow));
  }
}

ATOLL_VECTORISED void encode_bf16_stochastic(const float* __restrict values, const std::uint32_t* __restrict random, std::size_t count,
                                             std::byte* __restrict bytes) {
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t rounded = (std::bit_cast<std::uint32_t>(values[i]) + (random[i] & 0xffffU)) >> 16;
    const std::uint32_t overflow = (rounded & 0x7fffU) == 0x7f80U ? 1U : 0U;
    store(bytes + 2 * i, static_cast<std::uint16_t>(rounded - overflow));
  }
}

ATOLL_VECTORISED void decode_bf16(const std::byte* __restrict bytes, std::size_t count, float* __restrict values) {
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = std::bit_cast<float>(static_cast<std::uint32_t>(load<std::uint16_t>(bytes + 2 * i)) << 16);
  }
}

// absmax/127, rounded up to 17 significant bits: with 7 bits of code the product is exact.
float int8_scale(float absmax) {
  if (absmax < kSmallestAbsmax) {
    return 0.0F;
  }
  const auto bits = std::bit_cast<std::uint32_t>(absmax / 127.0F);
  return std::min(std::bit_cast<float>((bits + 0x7fU) & ~0x7fU), kMaxInt8Scale);
}

float fp4_scale(float absmax) { return absmax < kSmallestAbsmax ? 0.0F : absmax * 0x1p-6F; }

namespace {

// Adding it to |r| < 2^22 leaves the integer nearest to r, ties to even, in the low bits.
constexpr float kShift = 0x1.8p23F;

inline std::uint8_t int8_code(std::int32_t code) {
  const std::int32_t below = code < 127 ? code : 127;
  return static_cast<std::uint8_t>(below > -127 ? below : -127);
}

inline std::int32_t nearest_integer(float r) {
  return static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(r + kShift) - std::bit_cast<std::uint32_t>(kShift));
}

}  // namespace

ATOLL_VECTORISED void encode_int8(const float* __restrict values, std::size_t count, float scale, std::byte* __restrict codes) {
  const float inverse = 1.0F / scale;
  for (std::size_t i = 0; i < count; ++i) {
    store(codes + i, int8_code(nearest_integer(values[i] * inverse)));
  }
}

// floor(r + u): the nearest integer, less one where that is above.
ATOLL_VECTORISED void encode_int8_stochastic(const float* __restrict values, const std::uint32_t* __restrict random, std::size_t count,
                                             float scale, std::byte* __restrict codes) {
  const float inverse = 1.0F / scale;
  for (std::size_t i = 0; i < count; ++i) {
    const float r = values[i] * inverse + unit(random[i]);
    const std::int32_t nearest = nearest_integer(r);
    store(codes + i, int8_code(nearest - (static_cast<float>(nearest) > r ? 1 : 0)));
  }
}

ATOLL_VECTORISED void decode_int8(const std::byte* __restrict codes, std::size_t count, float scale, float* __restrict values) {
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>(static_cast<std::int8_t>(codes[i])) * scale;
  }
}

namespace {

inline std::uint32_t fp4_code(float value, float inverse) {
  const std::uint32_t sign = (std::bit_cast<std::uint32_t>(value) >> 28) & 8U;
  const auto magnitude = static_cast<std::uint32_t>(fp4_magnitude(std::fabs(value) * inverse));
  return magnitude == 0 ? 0U : (sign | magnitude);
}

// Up with the probability of the distance from the lower neighbour: 0, 1, 2, 4 … 64.
inline std::uint32_t fp4_code_stochastic(float value, float inverse, std::uint32_t random) {
  const std::uint32_t sign = (std::bit_cast<std::uint32_t>(value) >> 28) & 8U;
  const float r = std::fabs(value) * inverse;
  const auto bits = static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(r));
  // All ones where r ≥ 1, else 0; bits of a float that is not negative order as it does. Masks, because branches do not vectorise.
  const std::int32_t one_or_more = bits < 0x3f800000 ? 0 : -1;
  const std::int32_t low_bits = bits & 0x7f800000 & one_or_more;
  const auto low = std::bit_cast<float>(low_bits);
  const auto gap = std::bit_cast<float>(low_bits | (0x3f800000 & ~one_or_more));
  const std::int32_t exponent = ((bits >> 23) - 126) & one_or_more;
  const std::int32_t code = exponent + (r - low > unit(random) * gap ? 1 : 0);
  const auto magnitude = static_cast<std::uint32_t>(code < 7 ? code : 7);
  return magnitude == 0 ? 0U : (sign | magnitude);
}

}  // namespace

ATOLL_VECTORISED void encode_fp4(const float* __restrict values, std::size_t count, float scale, std::byte* __restrict codes) {
  const float inverse = 1.0F / scale;
  for (std::size_t i = 0; i < count / 2; ++i) {
    codes[i] = static_cast<std::byte>(fp4_code(values[2 * i], inverse) | (fp4_code(values[2 * i + 1], inverse) << 4));
  }
  if (count % 2 != 0) {
    codes[count / 2] = static_cast<std::byte>(fp4_code(values[count - 1], inverse));
  }
}

ATOLL_VECTORISED void encode_fp4_stochastic(const float* __restrict values, const std::uint32_t* __restrict random, std::size_t count,
                                            float scale, std::byte* __restrict codes) {
  const float inverse = 1.0F / scale;
  for (std::size_t i = 0; i < count / 2; ++i) {
    codes[i] = static_cast<std::byte>(fp4_code_stochastic(values[2 * i], inverse, random[2 * i]) |
                                      (fp4_code_stochastic(values[2 * i + 1], inverse, random[2 * i + 1]) << 4));
  }
  if (count % 2 != 0) {
    codes[count / 2] = static_cast<std::byte>(fp4_code_stochastic(values[count - 1], inverse, random[count - 1]));
  }
}

ATOLL_VECTORISED void decode_fp4(const std::byte* __restrict codes, std::size_t count, float scale, float* __restrict values) {
  for (std::size_t i = 0; i < count / 2; ++i) {
    const auto pair = static_cast<std::uint32_t>(codes[i]);
    values[2 * i] = fp4_value(pair & 15U) * scale;
    values[2 * i + 1] = fp4_value(pair >> 4) * scale;
  }
  if (count % 2 != 0) {
    values[count - 1] = fp4_value(static_cast<std::uint32_t>(codes[count / 2]) & 15U) * scale;
  }
}

ATOLL_VECTORISED void accumulate(const float* __restrict values, float weight, std::size_t count, float* __restrict sum) {
  for (std::size_t i = 0; i < count; ++i) {
    sum[i] = sum[i] + weight * values[i];
  }
}

void decode(const CodecSettings& settings, const std::byte* bytes, std::size_t count, float* values) {
  switch (settings.kind) {
    case CodecKind::f32:
      if (count > 0) {
        std::memcpy(values, bytes, 4 * count);
      }
      return;
    case CodecKind::bf16:
      decode_bf16(bytes, count, values);
      return;
    case CodecKind::int8:
    case CodecKind::fp4:
      for (std::size_t done = 0; done < count;) {
        const std::size_t block = std::min<std::size_t>(settings.block, count - done);
        const auto scale = load<float>(bytes);
        if (settings.kind == CodecKind::int8) {
          decode_int8(bytes + 4, block, scale, values + done);
        } else {
          decode_fp4(bytes + 4, block, scale, values + done);
        }
        bytes += encoded_bytes(settings, block);
        done += block;
      }
      return;
  }
}

void decode_accumulate(const CodecSettings& settings, const std::byte* bytes, float weight, std::size_t count, float* sum) {
  std::array<float, kScratch> scratch;
  const bool blocks = settings.kind == CodecKind::int8 || settings.kind == CodecKind::fp4;
  const std::size_t stride = blocks ? settings.block : kScratch;
  for (std::size_t done = 0; done < count;) {
    const std::size_t block = std::min(stride, count - done);
    if (!blocks) {
      decode(settings, bytes, block, scratch.data());
      accumulate(scratch.data(), weight, block, sum + done);
    } else {
      const auto scale = load<float>(bytes);
      for (std::size_t part = 0; part < block; part += kScratch) {  // kScratch is even: parts begin at whole bytes
        const std::size_t values = std::min(kScratch, block - part);
        if (settings.kind == CodecKind::int8) {
          decode_int8(bytes + 4 + part, values, scale, scratch.data());
        } else {
          decode_fp4(bytes + 4 + part / 2, values, scale, scratch.data());
        }
        accumulate(scratch.data(), weight, values, sum + done + part);
      }
    }
    bytes += encoded_bytes(settings, block);
    done += block;
  }
}

}  // namespace atl::kernels
