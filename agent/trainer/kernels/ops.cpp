#include "agent/trainer/kernels/ops.hpp"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/version.h>

#include <cmath>
#include <limits>
#include <vector>

#include "agent/island_link/model_manifest.hpp"
#include "agent/trainer/kernels/cpu_kernels.hpp"
#include "transport/base/check.hpp"

namespace atl::ops {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

constexpr auto kEpsilon = static_cast<float>(island_link::kNormEpsilon);
constexpr bool kFusedAttention = TORCH_VERSION_MAJOR >= 2;

bool on_processor(const at::Tensor& tensor) { return tensor.is_cpu() && tensor.scalar_type() == at::kFloat && tensor.is_contiguous(); }

std::size_t extent(const at::Tensor& tensor, std::int64_t dimension) { return static_cast<std::size_t>(tensor.size(dimension)); }

// Calls body(first, count) over all rows, on as many threads as LibTorch has been given.
template <typename Body>
void over_rows(std::size_t rows, std::size_t least, const Body& body) {
  at::parallel_for(0, static_cast<std::int64_t>(rows), static_cast<std::int64_t>(least), [&](std::int64_t first, std::int64_t last) {
    body(static_cast<std::size_t>(first), static_cast<std::size_t>(last - first));
  });
}

struct RmsNorm : torch::autograd::Function<RmsNorm> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& w) {
    const std::size_t rows = extent(x, 0);
    const std::size_t width = extent(x, 1);
    const at::Tensor y = at::empty_like(x);
    const at::Tensor r = at::empty({x.size(0)}, x.options());
    const auto* from = x.data_ptr<float>();
    const auto* weight = w.data_ptr<float>();
    auto* to = y.data_ptr<float>();
    auto* scale = r.data_ptr<float>();
    over_rows(rows, 256, [&](std::size_t first, std::size_t count) {
      kernels::rms_norm(from + first * width, weight, kEpsilon, count, width, to + first * width, scale + first);
    });
    context->save_for_backward({x, w, r});
    return y;
  }
  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor dy = gradients[0].contiguous();
    const at::Tensor& x = saved[0];
    const std::size_t rows = extent(x, 0);
    const std::size_t width = extent(x, 1);
    const at::Tensor dx = at::empty_like(x);
    // Each chunk of rows has its own sum for w; the chunks do not depend on the threads, so the result does not either.
    constexpr std::size_t kChunk = 512;
    const std::size_t chunks = (rows + kChunk - 1) / kChunk;
    at::Tensor sums = at::zeros({static_cast<std::int64_t>(chunks), x.size(1)}, x.options());
    const auto* gradient = dy.data_ptr<float>();
    const auto* from = x.data_ptr<float>();
    const auto* weight = saved[1].data_ptr<float>();
    const auto* scale = saved[2].data_ptr<float>();
    auto* to = dx.data_ptr<float>();
    auto* sum = sums.data_ptr<float>();
    over_rows(chunks, 1, [&](std::size_t first, std::size_t count) {
      for (std::size_t chunk = first; chunk < first + count; ++chunk) {
        const std::size_t row = chunk * kChunk;
        kernels::rms_norm_backward(gradient + row * width, from + row * width, weight, scale + row, std::min(kChunk, rows - row), width,
                                   to + row * width, sum + chunk * width);
      }
    });
    return {dx, chunks == 1 ? sums.select(0, 0) : sums.sum(0)};
  }
};

struct SwiGlu : torch::autograd::Function<SwiGlu> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& gate_up) {
    const std::size_t width = extent(gate_up, 1) / 2;
    const at::Tensor y = at::empty({gate_up.size(0), gate_up.size(1) / 2}, gate_up.options());
    const auto* from = gate_up.data_ptr<float>();
    auto* to = y.data_ptr<float>();
    over_rows(extent(gate_up, 0), 64,
              [&](std::size_t first, std::size_t count) { kernels::swiglu(from + first * 2 * width, count, width, to + first * width); });
    context->save_for_backward({gate_up});
    return y;
  }
  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const at::Tensor gate_up = context->get_saved_variables()[0];
    const at::Tensor dy = gradients[0].contiguous();
    const std::size_t width = extent(gate_up, 1) / 2;
    const at::Tensor d_gate_up = at::empty_like(gate_up);
    const auto* gradient = dy.data_ptr<float>();
    const auto* from = gate_up.data_ptr<float>();
    auto* to = d_gate_up.data_ptr<float>();
    over_rows(extent(gate_up, 0), 64, [&](std::size_t first, std::size_t count) {
      kernels::swiglu_backward(gradient + first * width, from + first * 2 * width, count, width, to + first * 2 * width);
    });
    return {d_gate_up};
  }
};

struct Attention : torch::autograd::Function<Attention> {
  static kernels::AttentionShape shape_of(std::int64_t length, std::int64_t heads, const at::Tensor& qkv, const at::Tensor& cosine,
                                          const at::Tensor& sine) {
    return {static_cast<std::size_t>(length), static_cast<std::size_t>(heads), extent(qkv, 1) / 3 / static_cast<std::size_t>(heads),
            cosine.data_ptr<float>(), sine.data_ptr<float>()};
  }
  static at::Tensor forward(AutogradContext* context, const at::Tensor& qkv, const at::Tensor& cosine, const at::Tensor& sine,
                            std::int64_t length, std::int64_t heads) {
    const kernels::AttentionShape shape = shape_of(length, heads, qkv, cosine, sine);
    const std::size_t width = shape.heads * shape.head_width;
    const std::size_t sequences = extent(qkv, 0) / shape.length;
    const at::Tensor out = at::empty({qkv.size(0), static_cast<std::int64_t>(width)}, qkv.options());
    const at::Tensor lse = at::empty({static_cast<std::int64_t>(sequences * shape.heads), length}, qkv.options());
    const auto* from = qkv.data_ptr<float>();
    auto* to = out.data_ptr<float>();
    auto* sums = lse.data_ptr<float>();
    over_rows(sequences * shape.heads, 1, [&](std::size_t first, std::size_t count) {
      for (std::size_t i = first; i < first + count; ++i) {
        const std::size_t row = i / shape.heads * shape.length;
        kernels::attention(shape, from + row * 3 * width, i % shape.heads, to + row * width, sums + i * shape.length);
      }
    });
    context->save_for_backward({qkv, cosine, sine, lse});
    context->saved_data["length"] = length;
    context->saved_data["heads"] = heads;
    return out;
  }
  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor& qkv = saved[0];
    const kernels::AttentionShape shape =
        shape_of(context->saved_data["length"].toInt(), context->saved_data["heads"].toInt(), qkv, saved[1], saved[2]);
    const std::size_t width = shape.heads * shape.head_width;
    const at::Tensor d_out = gradients[0].contiguous();
    const at::Tensor d_qkv = at::empty_like(qkv);
    const auto* gradient = d_out.data_ptr<float>();
    const auto* from = qkv.data_ptr<float>();
    const auto* sums = saved[3].data_ptr<float>();
    auto* to = d_qkv.data_ptr<float>();
    over_rows(extent(qkv, 0) / shape.length * shape.heads, 1, [&](std::size_t first, std::size_t count) {
      for (std::size_t i = first; i < first + count; ++i) {
        const std::size_t row = i / shape.heads * shape.length;
        kernels::attention_backward(shape, gradient + row * width, from + row * 3 * width, sums + i * shape.length, i % shape.heads,
                                    to + row * 3 * width);
      }
    });
    return {d_qkv, {}, {}, {}, {}};
  }
};

struct CrossEntropy : torch::autograd::Function<CrossEntropy> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& logits, const at::Tensor& targets) {
    const std::size_t rows = extent(logits, 0);
    const std::size_t classes = extent(logits, 1);
    auto* values = logits.data_ptr<float>();
    const auto* wanted = targets.data_ptr<std::int64_t>();
    constexpr std::size_t kChunk = 256;
    std::vector<double> sums((rows + kChunk - 1) / kChunk);
    over_rows(sums.size(), 1, [&](std::size_t first, std::size_t count) {
      for (std::size_t chunk = first; chunk < first + count; ++chunk) {
        const std::size_t row = chunk * kChunk;
        sums[chunk] = kernels::cross_entropy(values + row * classes, wanted + row, std::min(kChunk, rows - row), classes);
      }
    });
    double sum = 0.0;
    for (const double part : sums) {
      sum += part;
    }
    context->saved_data["gradient"] = logits.detach();  // which the kernel has put there
    return at::full({}, sum / static_cast<double>(rows), logits.options());
  }
  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    at::Tensor gradient = context->saved_data["gradient"].toTensor();
    gradient.mul_(gradients[0].item<float>() / static_cast<float>(gradient.size(0)));
    return {gradient, {}};
  }
};

// x [B, H, T, D] turned by its positions, which begin at `from`.
at::Tensor rotate(const at::Tensor& x, const Rotary& rotary, std::int64_t from) {
  const std::int64_t half = x.size(3) / 2;
  const at::Tensor first = x.narrow(3, 0, half);
  const at::Tensor second = x.narrow(3, half, half);
  const at::Tensor cosine = rotary.cosine.narrow(0, from, x.size(2)).to(x.scalar_type());
  const at::Tensor sine = rotary.sine.narrow(0, from, x.size(2)).to(x.scalar_type());
  return at::cat({first * cosine - second * sine, second * cosine + first * sine}, 3);
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

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& w) { return on_processor(x) ? RmsNorm::apply(x, w) : composed::rms_norm(x, w); }

at::Tensor swiglu(const at::Tensor& gate_up) { return on_processor(gate_up) ? SwiGlu::apply(gate_up) : composed::swiglu(gate_up); }

at::Tensor attention(const at::Tensor& qkv, std::int64_t length, std::int64_t heads, const Rotary& rotary) {
  if (!kFusedAttention && on_processor(qkv) && kernels::attention_available()) {
    return Attention::apply(qkv, rotary.cosine, rotary.sine, length, heads);
  }
  return composed::attention(qkv, length, heads, rotary);
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
  return on_processor(logits) ? CrossEntropy::apply(logits, targets) : composed::cross_entropy(logits, targets);
}

namespace composed {

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& w) { return x * at::rsqrt(x.square().mean(-1, true) + kEpsilon) * w; }

at::Tensor swiglu(const at::Tensor& gate_up) {
  const std::int64_t width = gate_up.size(1) / 2;
  return at::silu(gate_up.narrow(1, 0, width)) * gate_up.narrow(1, width, width);
}

at::Tensor attention(const at::Tensor& qkv, std::int64_t length, std::int64_t heads, const Rotary& rotary) {
  const std::int64_t sequences = qkv.size(0) / length;
  const std::int64_t head_width = qkv.size(1) / 3 / heads;
  const at::Tensor parts = qkv.view({sequences, length, 3, heads, head_width}).permute({2, 0, 3, 1, 4});
  const at::Tensor q = rotate(parts.select(0, 0), rotary, 0);
  const at::Tensor k = rotate(parts.select(0, 1), rotary, 0);
  const at::Tensor v = parts.select(0, 2);
#if TORCH_VERSION_MAJOR >= 2
  const at::Tensor out = at::scaled_dot_product_attention(q, k, v, {}, 0.0, true);
#else
  const at::Tensor mask = at::full({length, length}, -std::numeric_limits<float>::infinity(), qkv.options()).triu(1);
  const at::Tensor scores = at::matmul(q, k.transpose(2, 3)) * (1.0 / std::sqrt(static_cast<double>(head_width))) + mask;
  const at::Tensor out = at::matmul(at::softmax(scores, -1), v);
#endif
  return out.transpose(1, 2).reshape({qkv.size(0), heads * head_width});
}

at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& targets) {
  return at::cross_entropy_loss(logits.to(at::kFloat), targets);
}

}  // namespace composed

}  // namespace atl::ops
