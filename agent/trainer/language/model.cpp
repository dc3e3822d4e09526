#include "agent/trainer/language/model.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cmath>
#include <cstring>
#include <string>

#include "agent/island_link/arena.hpp"
#include "agent/island_link/model_manifest.hpp"
#include "agent/trainer/tensor_values.hpp"
#include "transport/base/rng.hpp"

namespace atl {

using island_link::Manifest;
using island_link::Parameter;

namespace {

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

}  // namespace

Manifest Model::manifest(const island_link::Model& sizes) { return island_link::model_manifest(sizes); }

Model::Model(const island_link::Model& sizes, std::int64_t sequence_length, const at::Tensor& flat)
    : sizes_(sizes), flat_(flat), rotary_(ops::rotary(sequence_length, sizes.width / sizes.heads, flat.device())) {
  std::int64_t at = 0;
  const std::int64_t d = sizes.width;
  const std::int64_t f = sizes.feed_forward;
  const auto leaf = [&](const std::vector<std::int64_t>& shape) {
    std::int64_t count = 1;
    for (const std::int64_t extent : shape) {
      count *= extent;
    }
    // A variable of its own over the same memory: changes of `flat` between steps are no concern of the graph's.
    const at::Tensor tensor = flat.narrow(0, at, count).view(shape).variable_data().set_requires_grad(true);
    leaves_.push_back({tensor, at, shape.size() > 1});
    at += count;
    return tensor;
  };
  embedding_ = leaf({sizes.vocabulary, d});
  for (std::uint32_t i = 0; i < sizes.layers; ++i) {
    Layer layer;
    layer.attention_norm = leaf({d});
    layer.qkv = leaf({3 * d, d});
    layer.output = leaf({d, d});
    layer.feed_norm = leaf({d});
    layer.gate_up = leaf({2 * f, d});
    layer.down = leaf({d, f});
    layers_.push_back(layer);
  }
  norm_ = leaf({d});
  head_ = sizes.tied_embeddings ? embedding_ : leaf({sizes.vocabulary, d});
  ATOLL_CHECK(at == flat.numel(), "the model and its manifest differ");
}

void Model::initialize(std::uint64_t seed) {
  const at::NoGradGuard no_gradient;
  std::int64_t from = 0;
  for (const Parameter& parameter : manifest(sizes_).parameters) {
    const at::Tensor values = flat_.narrow(0, from, static_cast<std::int64_t>(island_link::elements(parameter)));
    if (parameter.shape.size() > 1) {
      const bool residual = ends_with(parameter.name, "o_proj.weight") || ends_with(parameter.name, "down_proj.weight");
      fill_with_normals(values, seed, stream_of(parameter.name), 0.02 / (residual ? std::sqrt(2.0 * sizes_.layers) : 1.0));
    } else {
      values.fill_(1.0);
    }
    from += values.numel();
  }
}

// x + y · weightᵀ.
at::Tensor Model::add_product(const at::Tensor& x, const at::Tensor& y, const at::Tensor& weight) const {
  // Under autocast the sum stays in float32 while the product does not.
  return x.is_cpu() ? at::addmm(x, y, weight.t()) : x + at::linear(y, weight);
}

at::Tensor Model::logits(const at::Tensor& tokens) const {
  const std::int64_t length = tokens.size(1);
  at::Tensor x = at::embedding(embedding_, tokens.reshape({-1}));
  for (const Layer& layer : layers_) {
    const at::Tensor qkv = at::linear(ops::rms_norm(x, layer.attention_norm), layer.qkv);
    x = add_product(x, ops::attention(qkv, length, sizes_.heads, rotary_), layer.output);
    const at::Tensor gate_up = at::linear(ops::rms_norm(x, layer.feed_norm), layer.gate_up);
    x = add_product(x, ops::swiglu(gate_up), layer.down);
  }
  return at::linear(ops::rms_norm(x, norm_), head_);
}

Model::Memory Model::empty_memory() const {
  Memory memory;
  const std::int64_t heads = sizes_.heads;
  for (std::uint32_t i = 0; i < sizes_.layers; ++i) {
    for (std::vector<at::Tensor>* side : {&memory.keys, &memory.values}) {
      side->push_back(at::empty({heads, rotary_.cosine.size(0), sizes_.width / heads}, flat_.options()));
    }
  }
  return memory;
}

at::Tensor Model::logits_after(Memory& memory, const at::Tensor& tokens) const {
  const at::NoGradGuard no_gradient;
  at::Tensor x = at::embedding(embedding_, tokens);
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    const at::Tensor qkv = at::linear(ops::rms_norm(x, layer.attention_norm), layer.qkv);
    x = add_product(x, ops::attention_after(qkv, memory.length, sizes_.heads, rotary_, memory.keys[i], memory.values[i]), layer.output);
    const at::Tensor gate_up = at::linear(ops::rms_norm(x, layer.feed_norm), layer.gate_up);
    x = add_product(x, ops::swiglu(gate_up), layer.down);
  }
  memory.length += tokens.size(0);
  return at::linear(ops::rms_norm(x.narrow(0, x.size(0) - 1, 1), norm_), head_).view({-1});
}

at::Tensor Model::loss(const at::Tensor& tokens) const {
  const std::int64_t length = tokens.size(1) - 1;
  const at::Tensor targets = tokens.narrow(1, 1, length).reshape({-1});
  return ops::cross_entropy(logits(tokens.narrow(1, 0, length)), targets);
}

}  // namespace atl
