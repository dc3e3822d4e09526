#include "strategies/codec.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "strategies/codec_kernels.hpp"

namespace atl {
namespace {

constexpr std::uint32_t kMaxBlock = 65536;
constexpr std::uint64_t kLookedAtAPart = 256U << 10;  // values, by one thread
constexpr std::size_t kCheckedAtOnce = 4096;          // values checked, then encoded, while they are in the cache; a multiple of 16

bool has_blocks(const CodecSettings& settings) { return settings.kind == CodecKind::int8 || settings.kind == CodecKind::fp4; }

Error not_finite(std::uint64_t position, float value) {
  return {Code::corrupt,
          "value " + std::to_string(position) + " is not finite (" + (std::isnan(value) ? "nan" : (value > 0 ? "inf" : "-inf")) + ")"};
}

// The first value that is not finite; there is one.
Error first_not_finite(std::span<const float> values, std::uint64_t position) {
  const auto found = std::find_if(values.begin(), values.end(), [](float value) { return !std::isfinite(value); });
  return not_finite(position + static_cast<std::uint64_t>(found - values.begin()), found == values.end() ? 0.0F : *found);
}

// One block of int8 or fp4, its scale first. `random` is empty for rounding to nearest.
void encode_block(CodecKind kind, std::span<const float> values, float absmax, std::span<const std::uint32_t> random, std::byte* out) {
  const float scale = kind == CodecKind::int8 ? kernels::int8_scale(absmax) : kernels::fp4_scale(absmax);
  std::memcpy(out, &scale, sizeof scale);
  std::byte* codes = out + sizeof scale;
  if (scale == 0.0F) {
    std::memset(codes, 0, kind == CodecKind::int8 ? values.size() : (values.size() + 1) / 2);
  } else if (kind == CodecKind::int8) {
    random.empty() ? kernels::encode_int8(values.data(), values.size(), scale, codes)
                   : kernels::encode_int8_stochastic(values.data(), random.data(), values.size(), scale, codes);
  } else {
    random.empty() ? kernels::encode_fp4(values.data(), values.size(), scale, codes)
                   : kernels::encode_fp4_stochastic(values.data(), random.data(), values.size(), scale, codes);
  }
}

void encode_chunk(const CodecSettings& settings, std::span<const float> values, std::uint32_t largest,
                  std::span<const std::uint32_t> random, std::byte* out) {
  switch (settings.kind) {
    case CodecKind::f32:
      std::memcpy(out, values.data(), values.size_bytes());
      return;
    case CodecKind::bf16:
      random.empty() ? kernels::encode_bf16(values.data(), values.size(), out)
                     : kernels::encode_bf16_stochastic(values.data(), random.data(), values.size(), out);
      return;
    case CodecKind::int8:
    case CodecKind::fp4:
      encode_block(settings.kind, values, std::bit_cast<float>(largest), random, out);
      return;
  }
}

Result<float> bound_of_scales(const CodecSettings& settings, std::span<const std::byte> bytes) {
  const bool wide = settings.kind == CodecKind::int8;
  const float limit = wide ? kernels::kMaxInt8Scale : kernels::kMaxFp4Scale;
  const std::uint64_t stride = encoded_bytes(settings, settings.block);
  float largest = 0.0F;
  for (std::uint64_t block = 0; block * stride < bytes.size(); ++block) {
    float scale;
    std::memcpy(&scale, bytes.data() + block * stride, sizeof scale);
    if (!(scale >= 0.0F && scale <= limit)) {  // false for NaN too
      return Error{Code::corrupt, "the scale of encoded block " + std::to_string(block) + " is negative, not finite or too large"};
    }
    largest = std::max(largest, scale);
  }
  return largest * (wide ? 128.0F : 64.0F);
}

Result<float> bound_of_values(const CodecSettings& settings, std::span<const std::byte> bytes, std::uint64_t count) {
  const bool wide = settings.kind == CodecKind::f32;
  const auto magnitude = wide ? kernels::max_magnitude_f32 : kernels::max_magnitude_bf16;
  if (const std::uint32_t largest = magnitude(bytes.data(), count); largest < kernels::kInfinityBits) {
    return std::bit_cast<float>(largest);
  }
  const std::size_t width = wide ? 4 : 2;
  std::uint64_t index = 0;
  while (magnitude(bytes.data() + index * width, 1) < kernels::kInfinityBits) {
    ++index;
  }
  return Error{Code::corrupt, "encoded value " + std::to_string(index) + " is not finite"};
}

}  // namespace

Status check_codec(const CodecSettings& settings) {
  if (has_blocks(settings) && (settings.block == 0 || settings.block % 16 != 0 || settings.block > kMaxBlock)) {
    return Error{Code::invalid_argument, "a codec's block must be a multiple of 16 from 16 to " + std::to_string(kMaxBlock) + ", not " +
                                             std::to_string(settings.block)};
  }
  return {};
}

std::uint32_t piece_granularity(const CodecSettings& settings) { return has_blocks(settings) ? settings.block : 16; }

std::uint64_t shard_granularity(const CodecSettings& contribution, const CodecSettings& reduced) {
  return std::lcm(std::uint64_t{piece_granularity(contribution)}, std::uint64_t{piece_granularity(reduced)});
}

std::uint64_t values_at_once(std::uint64_t about, const CodecSettings& one, const CodecSettings& other) {
  const std::uint64_t granule = shard_granularity(one, other);
  return std::max(about / granule, std::uint64_t{1}) * granule;
}

std::uint64_t encoded_bytes(const CodecSettings& settings, std::uint64_t count) {
  switch (settings.kind) {
    case CodecKind::f32:
      return 4 * count;
    case CodecKind::bf16:
      return 2 * count;
    case CodecKind::int8:
    case CodecKind::fp4:
      break;
  }
  const std::uint64_t blocks = count / settings.block;
  const std::uint64_t rest = count % settings.block;
  const auto codes = [&](std::uint64_t values) { return settings.kind == CodecKind::int8 ? values : (values + 1) / 2; };
  return blocks * (4 + codes(settings.block)) + (rest == 0 ? 0 : 4 + codes(rest));
}

bool can_encode(const CodecSettings& settings, std::uint64_t bytes, std::uint64_t count) {
  return count <= (1ULL << 58) && bytes == encoded_bytes(settings, count);
}

std::span<const std::byte> encoded_from(const CodecSettings& settings, std::span<const std::byte> encoding, std::uint64_t first) {
  return encoding.subspan(encoded_bytes(settings, first));
}

std::span<const std::byte> encoded_part(const CodecSettings& settings, std::span<const std::byte> encoding, std::uint64_t first,
                                        std::uint64_t count) {
  return encoded_from(settings, encoding, first).first(encoded_bytes(settings, count));
}

Status encode(const CodecSettings& settings, std::span<const float> values, std::span<std::byte> out, EncodePosition at) {
  ATOLL_TRY(check_codec(settings));
  if (at.position % piece_granularity(settings) != 0) {
    return Error{Code::invalid_argument, "a piece at value " + std::to_string(at.position) + " does not begin at a multiple of " +
                                             std::to_string(piece_granularity(settings))};
  }
  if (out.size() != encoded_bytes(settings, values.size())) {
    return Error{Code::invalid_argument, std::to_string(values.size()) + " values encode to " +
                                             std::to_string(encoded_bytes(settings, values.size())) + " bytes, but there is room for " +
                                             std::to_string(out.size())};
  }
  const std::size_t chunk = has_blocks(settings) ? settings.block : kCheckedAtOnce;
  const bool stochastic = settings.rounding == Rounding::stochastic && settings.kind != CodecKind::f32;
  std::vector<std::uint32_t> random(stochastic ? std::min(chunk, values.size()) : 0);
  std::byte* next = out.data();
  for (std::size_t done = 0; done < values.size();) {
    const auto part = values.subspan(done, std::min(chunk, values.size() - done));
    const std::uint32_t largest = kernels::max_magnitude(part.data(), part.size());
    if (largest >= kernels::kInfinityBits) {
      return first_not_finite(part, at.position + done);
    }
    if (stochastic) {
      kernels::random_words(at.seed, at.position + done, random.data(), part.size());
    }
    encode_chunk(settings, part, largest, random, next);
    next += encoded_bytes(settings, part.size());
    done += part.size();
  }
  return {};
}

Result<Bytes> encoding_of(const CodecSettings& settings, std::span<const float> values, EncodePosition at) {
  Bytes out(encoded_bytes(settings, values.size()));
  ATOLL_TRY(encode(settings, values, out, at));
  return out;
}

Result<float> encoded_bound(const CodecSettings& settings, std::span<const std::byte> bytes, std::uint64_t count, const InParts& in_parts) {
  ATOLL_TRY(check_codec(settings));
  if (!can_encode(settings, bytes.size(), count)) {
    return Error{Code::corrupt, std::to_string(bytes.size()) + " bytes are not an encoding of " + std::to_string(count) + " values in " +
                                    std::string(name_of(settings.kind))};
  }
  const auto bound = [&](std::span<const std::byte> some, std::uint64_t values) {
    return has_blocks(settings) ? bound_of_scales(settings, some) : bound_of_values(settings, some, values);
  };
  const std::uint64_t part = values_at_once(kLookedAtAPart, settings);
  if (count <= part) {
    return bound(bytes, count);
  }
  std::vector<std::optional<float>> bounds((count + part - 1) / part);
  in_parts(bounds.size(), [&](std::size_t i) {
    const std::uint64_t values = std::min(part, count - i * part);
    const Result<float> of_part = bound(encoded_part(settings, bytes, i * part, values), values);
    bounds[i] = of_part ? std::optional(*of_part) : std::nullopt;
  });
  if (!std::ranges::all_of(bounds, [](const auto& found) { return found.has_value(); })) {
    return bound(bytes, count);  // which says where
  }
  return **std::ranges::max_element(bounds);
}

Status check_encoded(const CodecSettings& settings, std::span<const std::byte> bytes, std::uint64_t count, const InParts& in_parts) {
  const Result<float> bound = encoded_bound(settings, bytes, count, in_parts);
  return bound ? Status{} : Status{bound.error()};
}

Status decode(const CodecSettings& settings, std::span<const std::byte> bytes, std::span<float> values) {
  ATOLL_TRY(check_encoded(settings, bytes, values.size()));
  kernels::decode(settings, bytes.data(), values.size(), values.data());
  return {};
}

Status decode_accumulate(const CodecSettings& settings, std::span<const std::byte> bytes, float weight, std::span<float> sum) {
  ATOLL_TRY(check_encoded(settings, bytes, sum.size()));
  kernels::decode_accumulate(settings, bytes.data(), weight, sum.size(), sum.data());
  return {};
}

}  // namespace atl
