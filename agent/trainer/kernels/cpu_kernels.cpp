#include "agent/trainer/kernels/cpu_kernels.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "agent/trainer/kernels/vectorized.hpp"

// The matrix product of the BLAS that LibTorch itself is linked with, if it has one of its own.
extern "C" void sgemm_(const char* transa, const char* transb, const int* m, const int* n, const int* k, const float* alpha, const float* a,
                       const int* lda, const float* b, const int* ldb, const float* beta, float* c, const int* ldc) __attribute__((weak));

namespace atl::kernels {

namespace {

// Rows of queries that are scored together: enough for the BLAS, few enough to leave out most of what the causal mask hides.
constexpr std::size_t kQueryBlock = 64;

// e^x after Cephes' expf: 2^n · polynomial(r), x = n·ln 2 + r.
[[gnu::always_inline]] inline float exponential(float x) {
  constexpr float kMagic = 12582912.0F;  // 1.5 · 2^23: adding it rounds to an integer
  const float above = x < -87.0F ? -87.0F : x;
  const float clamped = above > 88.0F ? 88.0F : above;  // std::min would not be inlined into code for another processor
  const float n = (clamped * 1.44269504088896341F + kMagic) - kMagic;
  const float r = (clamped - n * 0.693359375F) + n * 2.12194440e-4F;
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  const float value = p * r * r + r + 1.0F;
  return value * std::bit_cast<float>((static_cast<std::int32_t>(n) + 127) << 23);
}

// Sums in sixteen lanes, so that the compiler may use vectors without changing the order.
struct Lanes {
  float lane[16] = {};
  [[gnu::always_inline]] [[nodiscard]] float sum() const {
    float total = 0.0F;
    for (const float value : lane) {
      total += value;
    }
    return total;
  }
};

[[gnu::always_inline]] inline float dot(const float* a, const float* b, std::size_t count) {
  Lanes lanes;
  std::size_t i = 0;
  for (; i + 16 <= count; i += 16) {
    for (std::size_t l = 0; l < 16; ++l) {
      lanes.lane[l] += a[i + l] * b[i + l];
    }
  }
  float total = lanes.sum();
  for (; i < count; ++i) {
    total += a[i] * b[i];
  }
  return total;
}

[[gnu::always_inline]] inline float largest(const float* values, std::size_t count) {
  float lane[16];
  std::fill(std::begin(lane), std::end(lane), values[0]);
  std::size_t i = 0;
  for (; i + 16 <= count; i += 16) {
    for (std::size_t l = 0; l < 16; ++l) {
      lane[l] = values[i + l] > lane[l] ? values[i + l] : lane[l];
    }
  }
  float most = values[0];
  for (; i < count; ++i) {
    most = values[i] > most ? values[i] : most;
  }
  for (const float value : lane) {
    most = value > most ? value : most;
  }
  return most;
}

// values[i] ← e^(values[i] − shift); the sum of them.
[[gnu::always_inline]] inline float exponentials(float* values, std::size_t count, float shift) {
  Lanes lanes;
  std::size_t i = 0;
  for (; i + 16 <= count; i += 16) {
    for (std::size_t l = 0; l < 16; ++l) {
      values[i + l] = exponential(values[i + l] - shift);
      lanes.lane[l] += values[i + l];
    }
  }
  float total = lanes.sum();
  for (; i < count; ++i) {
    values[i] = exponential(values[i] - shift);
    total += values[i];
  }
  return total;
}

}  // namespace

ATOLL_VECTORIZED void rms_norm(const float* x, const float* w, float epsilon, std::size_t rows, std::size_t width, float* __restrict y,
                               float* __restrict r) {
  for (std::size_t row = 0; row < rows; ++row, x += width, y += width) {
    const float scale = 1.0F / std::sqrt(dot(x, x, width) / static_cast<float>(width) + epsilon);
    r[row] = scale;
    for (std::size_t i = 0; i < width; ++i) {
      y[i] = x[i] * scale * w[i];
    }
  }
}

ATOLL_VECTORIZED void rms_norm_backward(const float* dy, const float* x, const float* w, const float* r, std::size_t rows,
                                        std::size_t width, float* __restrict dx, float* __restrict dw) {
  for (std::size_t row = 0; row < rows; ++row, x += width, dy += width, dx += width) {
    const float scale = r[row];
    for (std::size_t i = 0; i < width; ++i) {
      dx[i] = dy[i] * w[i];
      dw[i] += dy[i] * x[i] * scale;
    }
    const float pull = dot(dx, x, width) * scale * scale / static_cast<float>(width);
    for (std::size_t i = 0; i < width; ++i) {
      dx[i] = scale * (dx[i] - x[i] * pull);
    }
  }
}

ATOLL_VECTORIZED void swiglu(const float* gate_up, std::size_t rows, std::size_t width, float* __restrict y) {
  for (std::size_t row = 0; row < rows; ++row, gate_up += 2 * width, y += width) {
    const float* up = gate_up + width;
    for (std::size_t i = 0; i < width; ++i) {
      y[i] = gate_up[i] / (1.0F + exponential(-gate_up[i])) * up[i];
    }
  }
}

ATOLL_VECTORIZED void swiglu_backward(const float* dy, const float* gate_up, std::size_t rows, std::size_t width,
                                      float* __restrict d_gate_up) {
  for (std::size_t row = 0; row < rows; ++row, gate_up += 2 * width, dy += width, d_gate_up += 2 * width) {
    const float* up = gate_up + width;
    float* d_up = d_gate_up + width;
    for (std::size_t i = 0; i < width; ++i) {
      const float gate = gate_up[i];
      const float sigmoid = 1.0F / (1.0F + exponential(-gate));
      d_gate_up[i] = dy[i] * up[i] * sigmoid * (1.0F + gate * (1.0F - sigmoid));
      d_up[i] = dy[i] * gate * sigmoid;
    }
  }
}

ATOLL_VECTORIZED double cross_entropy(float* logits, const std::int64_t* targets, std::size_t rows, std::size_t classes) {
  double loss = 0.0;
  for (std::size_t row = 0; row < rows; ++row, logits += classes) {
    const auto target = static_cast<std::size_t>(targets[row]);
    const float shift = largest(logits, classes);
    const float of_target = logits[target] - shift;
    const float sum = exponentials(logits, classes, shift);
    loss += static_cast<double>(std::log(sum)) - static_cast<double>(of_target);
    const float scale = 1.0F / sum;
    for (std::size_t i = 0; i < classes; ++i) {
      logits[i] *= scale;
    }
    logits[target] -= 1.0F;
  }
  return loss;
}

namespace {

// c [m × n] ← a · b + beta · c in row-major order; a transposed matrix is stored [k × m] (or [n × k]).
void product(bool transpose_a, bool transpose_b, std::size_t m, std::size_t n, std::size_t k, const float* a, std::size_t lda,
             const float* b, std::size_t ldb, float beta, float* c, std::size_t ldc) {
  // A row-major matrix is a column-major one transposed: cᵀ = bᵀ · aᵀ.
  const char first = transpose_b ? 'T' : 'N';
  const char second = transpose_a ? 'T' : 'N';
  const auto rows = static_cast<int>(n);
  const auto columns = static_cast<int>(m);
  const auto inner = static_cast<int>(k);
  const auto stride_b = static_cast<int>(ldb);
  const auto stride_a = static_cast<int>(lda);
  const auto stride_c = static_cast<int>(ldc);
  const float one = 1.0F;
  sgemm_(&first, &second, &rows, &columns, &inner, &one, b, &stride_b, a, &stride_a, &beta, c, &stride_c);
}

// to [T × D] ← from turned by its position and multiplied by `factor`; rows of from are `stride` apart.
ATOLL_VECTORIZED void rotate(const AttentionShape& shape, const float* from, std::size_t stride, float factor, float* __restrict to) {
  const std::size_t half = shape.head_width / 2;
  for (std::size_t t = 0; t < shape.length; ++t, from += stride, to += 2 * half) {
    const float* cosine = shape.cosine + t * half;
    const float* sine = shape.sine + t * half;
    for (std::size_t i = 0; i < half; ++i) {
      const float a = from[i] * factor;
      const float b = from[half + i] * factor;
      to[i] = a * cosine[i] - b * sine[i];
      to[half + i] = b * cosine[i] + a * sine[i];
    }
  }
}

// The inverse, from [T × D] to rows `stride` apart.
ATOLL_VECTORIZED void rotate_back(const AttentionShape& shape, const float* from, float factor, float* __restrict to, std::size_t stride) {
  const std::size_t half = shape.head_width / 2;
  for (std::size_t t = 0; t < shape.length; ++t, from += 2 * half, to += stride) {
    const float* cosine = shape.cosine + t * half;
    const float* sine = shape.sine + t * half;
    for (std::size_t i = 0; i < half; ++i) {
      const float a = from[i] * factor;
      const float b = from[half + i] * factor;
      to[i] = a * cosine[i] + b * sine[i];
      to[half + i] = b * cosine[i] - a * sine[i];
    }
  }
}

// Rows first … last − 1 of the scores [last − first × last] become probabilities, what lies ahead of a row zero.
ATOLL_VECTORIZED void softmax_rows(float* scores, std::size_t first, std::size_t last, float* lse) {
  for (std::size_t row = first; row < last; ++row, scores += last) {
    const std::size_t seen = row + 1;
    const float shift = largest(scores, seen);
    const float sum = exponentials(scores, seen, shift);
    lse[row] = shift + std::log(sum);
    const float scale = 1.0F / sum;
    for (std::size_t i = 0; i < seen; ++i) {
      scores[i] *= scale;
    }
    std::fill(scores + seen, scores + last, 0.0F);
  }
}

// scores become probabilities again (lse says how), and d_probabilities the gradient of the scores.
ATOLL_VECTORIZED void softmax_rows_backward(float* __restrict scores, float* __restrict d_probabilities, std::size_t first,
                                            std::size_t last, const float* lse) {
  for (std::size_t row = first; row < last; ++row, scores += last, d_probabilities += last) {
    const std::size_t seen = row + 1;
    for (std::size_t i = 0; i < seen; ++i) {
      scores[i] = exponential(scores[i] - lse[row]);
    }
    const float mean = dot(scores, d_probabilities, seen);
    for (std::size_t i = 0; i < seen; ++i) {
      d_probabilities[i] = scores[i] * (d_probabilities[i] - mean);
    }
    std::fill(scores + seen, scores + last, 0.0F);
    std::fill(d_probabilities + seen, d_probabilities + last, 0.0F);
  }
}

// Memory for one head, kept by each thread from call to call.
float* scratch(std::size_t floats) {
  thread_local std::vector<float> memory;
  if (memory.size() < floats) {
    memory.resize(floats);
  }
  return memory.data();
}

}  // namespace

bool attention_available() { return &sgemm_ != nullptr; }

void attention(const AttentionShape& shape, const float* qkv, std::size_t head, float* out, float* lse) {
  const std::size_t length = shape.length;
  const std::size_t width = shape.head_width;
  const std::size_t model = shape.heads * width;
  float* q = scratch(2 * length * width + kQueryBlock * length);
  float* k = q + length * width;
  float* scores = k + length * width;
  rotate(shape, qkv + head * width, 3 * model, 1.0F / std::sqrt(static_cast<float>(width)), q);
  rotate(shape, qkv + model + head * width, 3 * model, 1.0F, k);
  const float* v = qkv + 2 * model + head * width;
  for (std::size_t first = 0; first < length; first += kQueryBlock) {
    const std::size_t last = std::min(first + kQueryBlock, length);
    product(false, true, last - first, last, width, q + first * width, width, k, width, 0.0F, scores, last);
    softmax_rows(scores, first, last, lse);
    product(false, false, last - first, width, last, scores, last, v, 3 * model, 0.0F, out + first * model + head * width, model);
  }
}

void attention_backward(const AttentionShape& shape, const float* d_out, const float* qkv, const float* lse, std::size_t head,
                        float* d_qkv) {
  const std::size_t length = shape.length;
  const std::size_t width = shape.head_width;
  const std::size_t model = shape.heads * width;
  float* q = scratch(4 * length * width + 2 * kQueryBlock * length);
  float* k = q + length * width;
  float* dq = k + length * width;
  float* dk = dq + length * width;
  float* scores = dk + length * width;
  float* d_scores = scores + kQueryBlock * length;
  const float scale = 1.0F / std::sqrt(static_cast<float>(width));
  rotate(shape, qkv + head * width, 3 * model, scale, q);
  rotate(shape, qkv + model + head * width, 3 * model, 1.0F, k);
  const float* v = qkv + 2 * model + head * width;
  float* dv = d_qkv + 2 * model + head * width;
  // From the last block, whose rows see all keys, so that it writes every row of dk and dv and the others add.
  for (std::size_t blocks = (length + kQueryBlock - 1) / kQueryBlock; blocks-- > 0;) {
    const std::size_t first = blocks * kQueryBlock;
    const std::size_t last = std::min(first + kQueryBlock, length);
    const std::size_t rows = last - first;
    const float add = last == length ? 0.0F : 1.0F;
    const float* d_rows = d_out + first * model + head * width;
    product(false, true, rows, last, width, q + first * width, width, k, width, 0.0F, scores, last);
    product(false, true, rows, last, width, d_rows, model, v, 3 * model, 0.0F, d_scores, last);
    softmax_rows_backward(scores, d_scores, first, last, lse);
    product(true, false, last, width, rows, scores, last, d_rows, model, add, dv, 3 * model);
    product(false, false, rows, width, last, d_scores, last, k, width, 0.0F, dq + first * width, width);
    product(true, false, last, width, rows, d_scores, last, q + first * width, width, add, dk, width);
  }
  rotate_back(shape, dq, scale, d_qkv + head * width, 3 * model);
  rotate_back(shape, dk, 1.0F, d_qkv + model + head * width, 3 * model);
}

}  // namespace atl::kernels
