#include "agent/island_link/model_manifest.hpp"

#include <charconv>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace atl::island_link {
namespace {

Result<std::uint32_t> read_size(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_unsigned() || found->get<std::uint64_t>() > 1U << 24) {
    return Error{Code::corrupt, std::string("its `atoll.model` has no proper ") + key};
  }
  return found->get<std::uint32_t>();
}

// An export names the tokens in `atoll.format`, a checkpoint in `atoll.data_format`; without either the vocabulary decides.
bool tokens_are_bytes(const std::map<std::string, std::string>& metadata, std::uint32_t vocabulary) {
  for (const char* key : {"atoll.format", "atoll.data_format"}) {
    const auto found = metadata.find(key);
    if (found != metadata.end() && (found->second == "bytes" || found->second == "uint16" || found->second == "uint32")) {
      return found->second == "bytes";
    }
  }
  return vocabulary <= 256;
}

}  // namespace

Result<Model> checked_model(Model sizes) {
  if (sizes.layers == 0 || sizes.width == 0 || sizes.heads == 0 || sizes.vocabulary < 2) {
    return Error{Code::invalid_argument, "model: layers, width and heads must be at least 1 and vocabulary at least 2"};
  }
  if (sizes.width % sizes.heads != 0 || sizes.width / sizes.heads % 2 != 0) {
    return Error{Code::invalid_argument,
                 "model: width " + std::to_string(sizes.width) + " must be an even multiple of heads " + std::to_string(sizes.heads)};
  }
  sizes.feed_forward = feed_forward_width(sizes);
  return sizes;
}

Result<LanguageModelFile> describe_language_model(const std::map<std::string, std::string>& metadata) {
  const auto text = metadata.find("atoll.model");
  if (text == metadata.end()) {
    return Error{Code::corrupt, "its metadata lack `atoll.model`: no language model that Atoll wrote"};
  }
  const nlohmann::json model = nlohmann::json::parse(text->second, nullptr, false);
  if (!model.is_object()) {
    return Error{Code::corrupt, "its `atoll.model` is not a JSON object"};
  }
  LanguageModelFile file;
  ATOLL_ASSIGN(file.sizes.layers, read_size(model, "layers"));
  ATOLL_ASSIGN(file.sizes.width, read_size(model, "width"));
  ATOLL_ASSIGN(file.sizes.heads, read_size(model, "heads"));
  ATOLL_ASSIGN(file.sizes.feed_forward, read_size(model, "feed_forward"));
  ATOLL_ASSIGN(file.sizes.vocabulary, read_size(model, "vocabulary"));
  const auto tied = model.find("tied_embeddings");
  file.sizes.tied_embeddings = tied != model.end() && tied->is_boolean() && tied->get<bool>();
  ATOLL_ASSIGN(file.sizes, checked_model(file.sizes));
  file.bytes = tokens_are_bytes(metadata, file.sizes.vocabulary);
  if (const auto length = metadata.find("atoll.sequence_length"); length != metadata.end()) {
    const char* end = length->second.data() + length->second.size();
    if (std::from_chars(length->second.data(), end, file.context).ptr != end || file.context < 1 || file.context > 1U << 20) {
      return Error{Code::corrupt, "its `atoll.sequence_length` is no proper number"};
    }
  }
  return file;
}

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
