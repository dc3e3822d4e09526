#include "agent/trainer/ops.hpp"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>
#include <vector>

#include "agent/island_link/model_manifest.hpp"
#include "transport/base/check.hpp"

namespace atl::ops {

namespace {

// x [B, H, T, D] turned by its positions, which begin at `from`.
at::Tensor rotate(const at::Tensor& x, const Rotary& rotary, std::int64_t from) {
  const std::vector<at::Tensor> halves = x.chunk(2, 3);
  const at::Tensor cosine = rotary.cosine.narrow(0, from, x.size(2));
  const at::Tensor sine = rotary.sine.narrow(0, from, x.size(2));
  return at::cat({halves[0] * cosine - halves[1] * sine, halves[1] * cosine + halves[0] * sine}, 3).to(x.scalar_type());
}

}  // namespace

Rotary rotary(std::int64_t length, std::int64_t head_width, at::Device device) {
  const at::Tensor cosine = at::empty({length, head_width / 2}, at::kFloat);
  const at::Tensor sine = at::empty({length, head_width / 2}, at::kFloat);
  for (std::int64_t t = 0; t < length; ++t) {
    for (std::int64_t i = 0; i < head_width / 2; ++i) {
      const double angle =
          static_cast<double>(t) * std::pow(island_link::kRotaryBase, -2.0 * static_cast<double>(i) / static_cast<double>(head_width));
      cosine.data_ptr<float>()[t * (head_width / 2) + i] = static_cast<float>(std::cos(angle));
      sine.data_ptr<float>()[t * (head_width / 2) + i] = static_cast<float>(std::sin(angle));
    }
  }
  return {cosine.to(device), sine.to(device)};
}

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& w) { return at::rms_norm(x, {x.size(-1)}, w, island_link::kNormEpsilon); }

at::Tensor swiglu(const at::Tensor& gate_up) {
  const std::vector<at::Tensor> halves = gate_up.chunk(2, 1);
  return at::silu(halves[0]) * halves[1];
}

at::Tensor attention(const at::Tensor& qkv, std::int64_t length, std::int64_t heads, const Rotary& rotary) {
  const std::int64_t sequences = qkv.size(0) / length;
  const std::int64_t head_width = qkv.size(1) / 3 / heads;
  const std::vector<at::Tensor> parts = qkv.view({sequences, length, 3, heads, head_width}).permute({2, 0, 3, 1, 4}).unbind(0);
  const at::Tensor out =
      at::scaled_dot_product_attention(rotate(parts[0], rotary, 0), rotate(parts[1], rotary, 0), parts[2], {}, 0.0, /*is_causal=*/true);
  return out.transpose(1, 2).reshape({qkv.size(0), heads * head_width});
}

at::Tensor attention_after(const at::Tensor& qkv, std::int64_t first, std::int64_t heads, const Rotary& rotary, at::Tensor& keys,
                           at::Tensor& values) {
  const std::int64_t count = qkv.size(0);
  const std::int64_t head_width = qkv.size(1) / 3 / heads;
  const std::int64_t seen = first + count;
  ATOLL_CHECK(seen <= keys.size(1), "keys and values have no place for that position");
  const at::Tensor parts = qkv.view({count, 3, heads, head_width}).permute({1, 2, 0, 3});
  const at::Tensor turned = rotate(parts.narrow(0, 0, 2), rotary, first);  // [2, heads, n, D]
  keys.narrow(1, first, count).copy_(turned.select(0, 1));
  values.narrow(1, first, count).copy_(parts.select(0, 2));
  at::Tensor scores =
      at::matmul(turned.select(0, 0), keys.narrow(1, 0, seen).transpose(1, 2)) * (1.0 / std::sqrt(static_cast<double>(head_width)));
  if (count > 1) {
    scores += at::full({count, seen}, -std::numeric_limits<float>::infinity(), qkv.options()).triu(first + 1);
  }
  return at::matmul(at::softmax(scores, -1), values.narrow(1, 0, seen)).transpose(0, 1).reshape({count, heads * head_width});
}

at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& targets) {
  return at::cross_entropy_loss(logits.to(at::kFloat), targets);
}

}  // namespace atl::ops
