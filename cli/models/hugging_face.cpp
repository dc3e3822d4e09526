#include "cli/models/hugging_face.hpp"

#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "agent/island_link/model_manifest.hpp"
#include "agent/storage/checkpoint.hpp"
#include "agent/storage/safetensors.hpp"
#include "transport/base/output_file.hpp"

namespace atl {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr std::size_t kBytes = 256;

Status write_text(const fs::path& path, const std::string& text, const OutputFile::Stopped& stopped) {
  ATOLL_ASSIGN(OutputFile out, OutputFile::create(path, stopped));
  ATOLL_TRY(out.write(as_bytes(text)));
  return out.finish();
}

ordered_json config_of(const island_link::LanguageModelFile& model) {
  const island_link::Model& sizes = model.sizes;
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"vocab_size", sizes.vocabulary},
          {"hidden_size", sizes.width},
          {"intermediate_size", sizes.feed_forward},
          {"num_hidden_layers", sizes.layers},
          {"num_attention_heads", sizes.heads},
          {"num_key_value_heads", sizes.heads},
          {"head_dim", sizes.width / sizes.heads},
          {"hidden_act", "silu"},
          {"max_position_embeddings", model.context},
          {"rms_norm_eps", island_link::kNormEpsilon},
          {"rope_theta", island_link::kRotaryBase},
          {"attention_bias", false},
          {"mlp_bias", false},
          {"tie_word_embeddings", sizes.tied_embeddings},
          {"bos_token_id", nullptr},
          {"eos_token_id", nullptr},
          {"torch_dtype", "float32"}};
}

// The character that stands for a byte in a byte-level vocabulary (GPT-2): itself where it is printable Latin-1, else the next one from
// U+0100 on. In UTF-8.
std::string character_of(std::size_t byte) {
  const auto printable = [](std::size_t code) { return (code > 0x20 && code < 0x7f) || (code > 0xa0 && code != 0xad); };
  std::size_t code = byte;
  if (!printable(byte)) {
    code = kBytes;
    for (std::size_t other = 0; other < byte; ++other) {
      code += printable(other) ? 0U : 1U;
    }
  }
  if (code < 0x80) {
    return {static_cast<char>(code)};
  }
  return {static_cast<char>(0xc0U | (code >> 6U)), static_cast<char>(0x80U | (code & 0x3fU))};
}

ordered_json byte_tokenizer() {
  ordered_json vocabulary = ordered_json::object();
  for (std::size_t byte = 0; byte < kBytes; ++byte) {
    vocabulary[character_of(byte)] = byte;
  }
  const ordered_json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", false}, {"use_regex", false}};
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", ordered_json::array()},
          {"normalizer", nullptr},
          {"pre_tokenizer", byte_level},
          {"post_processor", nullptr},
          {"decoder", byte_level},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"vocab", vocabulary},
            {"merges", ordered_json::array()}}}};
}

ordered_json tokenizer_config_of(const island_link::LanguageModelFile& model) {
  return {{"tokenizer_class", "PreTrainedTokenizerFast"}, {"model_max_length", model.context}, {"clean_up_tokenization_spaces", false}};
}

// In the order of the file, as many in each shard as fit.
Result<std::vector<std::vector<TensorView>>> deal(const SafetensorsFile& file, std::uint64_t shard_bytes) {
  std::vector<std::vector<TensorView>> shards;
  std::uint64_t bytes = 0;
  for (const TensorEntry& entry : file.header().tensors) {
    ATOLL_ASSIGN(const std::span<const float> values, file.floats(entry.name));
    if (shards.empty() || bytes + values.size_bytes() > shard_bytes) {
      shards.emplace_back();
      bytes = 0;
    }
    shards.back().push_back({entry.name, entry.shape, values});
    bytes += values.size_bytes();
  }
  return shards;
}

Status write_shards(const fs::path& folder, const SafetensorsFile& file, std::uint64_t shard_bytes, const OutputFile::Stopped& stopped) {
  ATOLL_ASSIGN(std::vector<std::vector<TensorView>> shards, deal(file, shard_bytes));
  std::uint64_t bytes = 0;
  ordered_json places = ordered_json::object();
  for (std::size_t k = 0; k < shards.size(); ++k) {
    std::array<char, 64> name{};
    std::snprintf(name.data(), name.size(), "model-%05zu-of-%05zu.safetensors", k + 1, shards.size());
    for (const TensorView& tensor : shards[k]) {
      places[tensor.name] = name.data();
      bytes += tensor.values.size_bytes();
    }
    ATOLL_ASSIGN(OutputFile out, OutputFile::create(folder / name.data(), stopped));
    ATOLL_TRY(write_safetensors(std::move(shards[k]), file.header().metadata, [&](ByteView piece) { return out.write(piece); }));
    ATOLL_TRY(out.finish());
  }
  const ordered_json index = {{"metadata", {{"total_size", bytes}}}, {"weight_map", places}};
  return write_text(folder / "model.safetensors.index.json", index.dump(2) + "\n", stopped);
}

Result<island_link::LanguageModelFile> language_model_in(const SafetensorsFile& file) {
  const auto& metadata = file.header().metadata;
  if (const auto trainer = metadata.find(kTrainerKey); trainer != metadata.end()) {
    return Error{Code::invalid_argument,
                 "the model is that of a trainer of one's own, which alone knows its configuration: take `-o FILE`, and in its program "
                 "`island.load(model, FILE)` and then `model.save_pretrained(FOLDER)`"};
  }
  if (!metadata.contains("atoll.model")) {
    return Error{Code::invalid_argument, "the model is no language model; take `-o FILE`"};
  }
  return island_link::describe_language_model(metadata);
}

}  // namespace

Status check_hugging_face_folder(const fs::path& folder) {
  std::error_code failure;
  if (folder.empty() || !fs::is_directory(folder_of(folder), failure)) {
    return Error{Code::invalid_argument, "--hf '" + folder.string() + "': the folder that it is to lie in is not there; create it first"};
  }
  if (fs::exists(fs::symlink_status(folder, failure)) && (!fs::is_directory(folder, failure) || !fs::is_empty(folder, failure))) {
    return Error{Code::conflict, "--hf " + folder.string() + ": is there already; remove it, or give another name"};
  }
  return {};
}

Status write_hugging_face_files(const fs::path& folder, const Interrupt* interrupt, std::uint64_t shard_bytes) {
  const OutputFile::Stopped stopped = [interrupt] { return interrupt != nullptr && interrupt->came(); };
  const fs::path whole = folder / "model.safetensors";
  ATOLL_ASSIGN(const SafetensorsFile file, SafetensorsFile::open(whole));
  ATOLL_ASSIGN(const island_link::LanguageModelFile model, language_model_in(file));
  std::vector<std::pair<const char*, ordered_json>> documents = {
      {"config.json", config_of(model)},
      {"generation_config.json", ordered_json{{"_from_model_config", true}, {"bos_token_id", nullptr}, {"eos_token_id", nullptr}}}};
  if (model.bytes) {
    documents.emplace_back("tokenizer.json", byte_tokenizer());
    documents.emplace_back("tokenizer_config.json", tokenizer_config_of(model));
  }
  for (const auto& [name, document] : documents) {
    ATOLL_TRY(write_text(folder / name, document.dump(2) + "\n", stopped));
  }
  if (file.header().tensors.empty() || file.header().tensors.back().end <= shard_bytes) {
    return {};
  }
  ATOLL_TRY(write_shards(folder, file, shard_bytes, stopped));
  std::error_code failure;
  fs::remove(whole, failure);  // `file` keeps what it has mapped
  return failure ? Status(Error{Code::io, whole.string() + ": cannot be removed: " + failure.message()}) : Status();
}

}  // namespace atl
