// Error feedback: what a codec's rounding took from a contribution is added to the fragment's next one.
//
//   sent_t = decode(encode(Δ_t + e_t)),   e_{t+1} = Δ_t + e_t − sent_t,   e_0 = 0
// (Seide et al., Interspeech 2014; Karimireddy et al., arXiv:1901.09847, Algorithm 1, with our codecs as the compressor). The
// residual e belongs to one island and one fragment. So Σ sent = Σ Δ − e: what was sent never lags further behind what was
// trained than one rounding error, however coarse the codec. Streaming DiLoCo does not use it; it is off by default.
// Threads: pure function.
#pragma once

#include <cstddef>
#include <span>

#include "strategies/codec.hpp"
#include "transport/base/result.hpp"

namespace atl {

// values    [n] f32: the contribution; the residual is added in place.
// residual  [n] f32: becomes values − decoded; unchanged on error.
// Errors: those of encode; then `values` holds the sum.
// Cost: besides encode one pass over both and one decoding; a scratch of one piece.
Result<Bytes> encoding_with_feedback(const CodecSettings& settings, std::span<float> values, std::span<float> residual,
                                     EncodePosition at = {});

}  // namespace atl
