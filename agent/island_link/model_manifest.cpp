#include "agent/island_link/model_manifest.hpp"

#include <string>
#include <utility>
#include <vector>

namespace atl::island_link {

std::uint32_t feed_forward_width(const Model& sizes) {
  return sizes.feed_forward != 0 ? sizes.feed_forward : ((8 * sizes.width + 2) / 3 + 31) / 32 * 32;
}

Manifest model_manifest(const Model& sizes) {
  const std::uint64_t d = sizes.width;
  const std::uint64_t f = feed_forward_width(sizes);
  const auto last = static_cast<std::int32_t>(sizes.layers);
  Manifest manifest;
  const auto add = [&manifest](const std::string& name, std::vector<std::uint64_t> shape, std::int32_t block) {
    manifest.parameters.push_back({name, std::move(shape), block});
  };
  add("model.embed_tokens.weight", {sizes.vocabulary, d}, -1);
  for (std::int32_t block = 0; block < last; ++block) {
    const std::string layer = "model.layers." + std::to_string(block) + ".";
    add(layer + "input_layernorm.weight", {d}, block);
    add(layer + "self_attn.q_proj.weight", {d, d}, block);
    add(layer + "self_attn.k_proj.weight", {d, d}, block);
    add(layer + "self_attn.v_proj.weight", {d, d}, block);
    add(layer + "self_attn.o_proj.weight", {d, d}, block);
    add(layer + "post_attention_layernorm.weight", {d}, block);
    add(layer + "mlp.gate_proj.weight", {f, d}, block);
    add(layer + "mlp.up_proj.weight", {f, d}, block);
    add(layer + "mlp.down_proj.weight", {d, f}, block);
  }
  add("model.norm.weight", {d}, last);
  if (!sizes.tied_embeddings) {
    add("lm_head.weight", {sizes.vocabulary, d}, last);
  }
  return manifest;
}

Manifest image_model_manifest(const Model& sizes, const ImageModel& images) {
  const std::uint64_t d = sizes.width;
  const std::uint64_t f = sizes.feed_forward == 0 ? 4 * d : sizes.feed_forward;
  const std::uint64_t patch_values = std::uint64_t{images.patch} * images.patch * images.channels;
  Manifest manifest;
  const auto add = [&](const std::string& name, std::vector<std::uint64_t> shape, std::int32_t block) {
    manifest.parameters.push_back({name, std::move(shape), block});
  };
  const auto linear = [&](const std::string& name, std::uint64_t in, std::uint64_t out, std::int32_t block) {
    add(name + ".weight", {out, in}, block);
    add(name + ".bias", {out}, block);
  };
  linear("x_embedder.proj", patch_values, d, -1);
  linear("t_embedder.mlp.0", 2 * kTimeFrequencies, d, -1);
  linear("t_embedder.mlp.2", d, d, -1);
  if (images.classes > 0) {
    add("y_embedder.embedding_table.weight", {std::uint64_t{images.classes} + 1, d}, -1);
  }
  if (images.outputs > 0) {
    add("class_token", {1, d}, -1);
  }
  const auto last = static_cast<std::int32_t>(sizes.layers);
  for (std::int32_t layer = 0; layer < last; ++layer) {
    const std::string block = "blocks." + std::to_string(layer) + ".";
    linear(block + "attn.qkv", d, 3 * d, layer);
    linear(block + "attn.proj", d, d, layer);
    linear(block + "mlp.fc1", d, f, layer);
    linear(block + "mlp.fc2", f, d, layer);
    linear(block + "adaLN_modulation.1", d, 6 * d, layer);
  }
  linear("final_layer.linear", d, images.outputs > 0 ? images.outputs : patch_values, last);
  linear("final_layer.adaLN_modulation.1", d, 2 * d, last);
  return manifest;
}

}  // namespace atl::island_link
