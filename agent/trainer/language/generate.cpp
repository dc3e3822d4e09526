#include "agent/trainer/language/generate.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <sstream>

#include "agent/island_link/arena.hpp"
#include "agent/island_link/model_manifest.hpp"
#include "agent/storage/safetensors.hpp"
#include "agent/trainer/language/model.hpp"
#include "agent/trainer/language/sampling.hpp"
#include "agent/trainer/options.hpp"
#include "agent/trainer/torch_runtime.hpp"
#include "transport/base/rng.hpp"

namespace atl {

namespace {

using island_link::LanguageModelFile;

// The model's parameters, flat, in manifest order.
Result<at::Tensor> read_parameters(const SafetensorsFile& file, const island_link::Manifest& manifest) {
  std::uint64_t present = 0;
  for (const island_link::Parameter& parameter : manifest.parameters) {
    const TensorEntry* entry = file.header().find(parameter.name);
    if (entry == nullptr || entry->shape != parameter.shape) {
      return Error{Code::corrupt, "it has no tensor '" + parameter.name + "' of the shape that `atoll.model` says"};
    }
    present += island_link::elements(parameter);
  }
  const at::Tensor flat = at::empty({static_cast<std::int64_t>(present)}, at::kFloat);
  auto* to = flat.data_ptr<float>();
  for (const island_link::Parameter& parameter : manifest.parameters) {
    ATOLL_ASSIGN(const std::span<const float> values, file.floats(parameter.name));
    to = std::copy(values.begin(), values.end(), to);
  }
  return flat;
}

Result<std::vector<std::int64_t>> read_prompt(const std::string& text, const LanguageModelFile& file) {
  std::vector<std::int64_t> tokens;
  if (file.bytes) {
    for (const char c : text) {
      tokens.push_back(static_cast<unsigned char>(c));
    }
  } else {
    std::istringstream words(text);
    for (std::string word; words >> word;) {
      std::int64_t token = -1;
      if (std::from_chars(word.data(), word.data() + word.size(), token).ptr != word.data() + word.size()) {
        return Error{Code::invalid_argument,
                     "--prompt: this model's tokens are numbers with spaces between them, and '" + word + "' is none"};
      }
      tokens.push_back(token);
    }
  }
  if (tokens.empty()) {
    return Error{Code::invalid_argument, "--prompt is empty; the model needs at least one token to begin with"};
  }
  for (const std::int64_t token : tokens) {
    if (token < 0 || token >= static_cast<std::int64_t>(file.sizes.vocabulary)) {
      return Error{Code::invalid_argument, "--prompt: token " + std::to_string(token) + " is not in the model's vocabulary of " +
                                               std::to_string(file.sizes.vocabulary)};
    }
  }
  return tokens;
}

// Reads a growing text with a model. When the model's context is full, it begins again with the newer half of it.
class Reader {
 public:
  Reader(const Model& model, std::int64_t context) : model_(model), context_(context), memory_(model.empty_memory()) {}
  // What the model expects after these tokens, which are those of the last call and more. Cost: that of the new ones.
  at::Tensor next(std::vector<std::int64_t>& tokens) {
    std::size_t count = tokens.size() - read_;
    if (memory_.length + static_cast<std::int64_t>(count) > context_) {
      const std::int64_t kept = memory_.length == 0 ? context_ : (context_ + 1) / 2;
      count = std::min(tokens.size(), static_cast<std::size_t>(kept));
      memory_.length = 0;
    }
    read_ = tokens.size();
    const at::Tensor fresh = at::from_blob(tokens.data() + tokens.size() - count, {static_cast<std::int64_t>(count)}, at::kLong);
    return model_.logits_after(memory_, fresh.to(model_.device())).contiguous();
  }

 private:
  const Model& model_;
  std::int64_t context_;
  Model::Memory memory_;
  std::size_t read_ = 0;
};

// Text as it is made, or kept for the JSON at the end.
class Output {
 public:
  Output(bool bytes, bool keep) : bytes_(bytes), keep_(keep) {}
  void add(std::int64_t token) {
    std::string piece = bytes_ ? std::string(1, static_cast<char>(token)) : (first_ ? "" : " ") + std::to_string(token);
    first_ = false;
    if (keep_) {
      text_ += piece;
    } else {
      std::fwrite(piece.data(), 1, piece.size(), stdout);
      std::fflush(stdout);
    }
  }
  void finish(std::uint64_t tokens, double tokens_per_second) const {
    if (keep_) {
      const nlohmann::ordered_json object = {{"schema", 1}, {"text", text_}, {"tokens", tokens}, {"tokens_per_second", tokens_per_second}};
      std::puts(object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace).c_str());
    } else {
      std::puts("");
    }
  }

 private:
  bool bytes_;
  bool keep_;
  bool first_ = true;
  std::string text_;
};

Status write_text(const Options& options) {
  ATOLL_ASSIGN(const std::uint64_t count, options.integer("--tokens", 1, 1'000'000));
  ATOLL_ASSIGN(const std::uint64_t seed, options.integer("--seed", 0, ~0ULL));
  Sampling sampling;
  ATOLL_ASSIGN(sampling.temperature, options.number("--temperature", 0.0, 100.0));
  ATOLL_ASSIGN(sampling.top_k, options.integer("--top-k", 0, 1U << 31));
  ATOLL_ASSIGN(const at::Device device, device_named(options.text("--device")));
  set_arithmetic_threads(1);
  ATOLL_ASSIGN(const SafetensorsFile file, SafetensorsFile::open(options.text("--model")));
  ATOLL_ASSIGN(const LanguageModelFile described, island_link::describe_language_model(file.header().metadata));
  ATOLL_ASSIGN(const at::Tensor flat, read_parameters(file, Model::manifest(described.sizes)));
  ATOLL_ASSIGN(std::vector<std::int64_t> tokens, read_prompt(options.text("--prompt"), described));

  const at::NoGradGuard no_gradient;
  const Model model(described.sizes, described.context, flat.to(device));
  Rng rng(seed, stream_of("generate"));
  Output output(described.bytes, options.flag("--json"));
  for (const std::int64_t token : tokens) {
    output.add(token);
  }
  const auto begin = std::chrono::steady_clock::now();
  Reader reader(model, described.context);
  for (std::uint64_t i = 0; i < count; ++i) {
    const at::Tensor logits = reader.next(tokens).cpu();
    tokens.push_back(draw({logits.data_ptr<float>(), static_cast<std::size_t>(logits.numel())}, sampling, rng));
    output.add(tokens.back());
  }
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
  output.finish(count, static_cast<double>(count) / spent.count());
  return {};
}

}  // namespace

int generate(const std::vector<std::string>& arguments) {
  const auto run = [&]() -> Status {
    ATOLL_ASSIGN(const Options options, Options::parse(arguments,
                                                       {{"--model", ""},
                                                        {"--prompt", "\n"},
                                                        {"--tokens", "200"},
                                                        {"--temperature", "0.8"},
                                                        {"--top-k", "40"},
                                                        {"--seed", "1"},
                                                        {"--device", "cpu"}},
                                                       {"--json"}));
    const Status written = catching([&]() -> Status { return write_text(options); });
    return written ? written : with_context(written.error(), options.text("--model"));
  };
  if (const Status status = run(); !status) {
    std::fprintf(stderr, "generate: %s\n", status.error().why.c_str());
    return exit_status(status.error().code);
  }
  return 0;
}

}  // namespace atl
