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

}  // namespace atl::island_link
