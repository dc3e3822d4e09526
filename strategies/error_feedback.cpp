#include "strategies/error_feedback.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "strategies/vectorised.hpp"

namespace atl {
namespace {

constexpr std::size_t kAboutAPass = std::size_t{1} << 16;

ATOLL_VECTORISED void add(const float* __restrict residual, std::size_t count, float* __restrict values) {
  for (std::size_t i = 0; i < count; ++i) {
    values[i] += residual[i];
  }
}

ATOLL_VECTORISED void take_rest(const float* __restrict values, const float* __restrict sent, std::size_t count,
                                float* __restrict residual) {
  for (std::size_t i = 0; i < count; ++i) {
    residual[i] = values[i] - sent[i];
  }
}

}  // namespace

Result<Bytes> encoding_with_feedback(const CodecSettings& settings, std::span<float> values, std::span<float> residual, EncodePosition at) {
  if (residual.size() != values.size()) {
    return Error{Code::invalid_argument, "a residual of " + std::to_string(residual.size()) + " values does not fit a contribution of " +
                                             std::to_string(values.size())};
  }
  add(residual.data(), values.size(), values.data());
  ATOLL_ASSIGN(Bytes out, encoding_of(settings, values, at));
  const std::size_t chunk = values_at_once(kAboutAPass, settings);
  std::vector<float> sent(std::min(chunk, values.size()));
  for (std::size_t done = 0; done < values.size(); done += chunk) {
    const std::size_t count = std::min(chunk, values.size() - done);
    const std::span<float> part = std::span(sent).first(count);
    ATOLL_TRY(decode(settings, encoded_part(settings, out, done, count), part));
    take_rest(values.data() + done, part.data(), count, residual.data() + done);
  }
  return out;
}

}  // namespace atl
