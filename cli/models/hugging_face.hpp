// A built-in language model as a folder that Hugging Face's transformers loads: AutoModelForCausalLM.from_pretrained(FOLDER).
//
//   model.safetensors         the parameters; of a larger model model-00001-of-0000N.safetensors and model.safetensors.index.json
//   config.json               a Llama of these sizes: its arithmetic is that of the built-in model
//   generation_config.json
//   tokenizer.json            where tokens are bytes: a byte-level BPE without merges, whose token of a byte is its value
//   tokenizer_config.json     likewise
// Threads: one.
#pragma once

#include <cstdint>
#include <filesystem>

#include "cli/line/interrupt.hpp"
#include "transport/base/result.hpp"

namespace atl {

// From how many bytes of parameters on they are dealt over several files, none of them larger unless one tensor is.
inline constexpr std::uint64_t kShardBytes = 5'000'000'000;

// Whether a folder can be written there, before anything is fetched. Errors: invalid_argument for an empty name or one whose folder is not
// there; conflict for what is there and no empty folder.
Status check_hugging_face_folder(const std::filesystem::path& folder);

// Puts the files beside an exported model's `model.safetensors` in `folder`, which is there. Where the model is larger than `shard_bytes`
// its shards take its place. Errors: invalid_argument for a model that is no built-in language model; corrupt; those of OutputFile;
// cancelled when interrupted.
Status write_hugging_face_files(const std::filesystem::path& folder, const Interrupt* interrupt = nullptr,
                                std::uint64_t shard_bytes = kShardBytes);

}  // namespace atl
