#include "agent/engine/built_in_model.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <system_error>

#include "agent/engine/parameter_layout.hpp"
#include "agent/island_link/model_manifest.hpp"
#include "agent/storage/durable_file.hpp"
#include "agent/storage/given_tensors.hpp"
#include "strategies/specification/model_kind.hpp"
#include "transport/base/own_disk.hpp"
#include "transport/base/plain_text.hpp"

namespace atl {

void put_model(const RunSpec& spec, island_link::Configure& order) {
  switch (model_kind(spec)) {
    case ModelKind::diffusion:
      order.diffusion = spec.diffusion;
      [[fallthrough]];
    case ModelKind::language:
      order.model = spec.model;
      return;
    case ModelKind::own:
      order.trainer = island_link::OwnTrainer{spec.trainer.name, spec.trainer.ranks, spec.trainer.tokens_per_sample,
                                              spec.trainer.settings.empty() ? "{}" : spec.trainer.settings};
      return;
  }
}

namespace {

// One parameter for each fragment that there will be, of equal size: all that is known before a trainer has said what it has.
island_link::Manifest stand_in_manifest(const RunSpec& spec) {
  const StrategySpec& strategy = spec.strategy;
  const bool by_layers = strategy.grouping == FragmentKind::sequential || strategy.grouping == FragmentKind::strided;
  const std::uint32_t cuts = strategy.grouping == FragmentKind::whole ? 1 : std::max(strategy.fragments, 1U);
  const std::uint32_t fragments = cuts + (by_layers ? 1 : 0);
  const std::uint64_t values = std::max<std::uint64_t>(parse_count(spec.trainer.parameters).value_or(0) / fragments, 1);
  island_link::Manifest manifest;
  for (std::uint32_t fragment = 0; fragment < fragments; ++fragment) {
    manifest.parameters.push_back({"fragment " + std::to_string(fragment), {values}, static_cast<std::int32_t>(fragment)});
  }
  return manifest;
}

using Json = nlohmann::json;

void add_to(std::string& list, const std::string& item) { list += (list.empty() ? "" : "; ") + item; }

std::string shown(const Json& value) { return make_plain(value.dump(-1, ' ', false, Json::error_handler_t::replace), TextRule::name, 80); }

// What the configuration says, or what a LlamaConfig is without it.
Json setting(const Json& config, const char* key, const Json& otherwise) {
  const auto found = config.find(key);
  return found == config.end() || found->is_null() ? otherwise : *found;
}

bool is_number(const Json& value, double wanted) {
  return value.is_number() && std::abs(value.get<double>() - wanted) <= 1e-6 * wanted;  // some were float32 once
}

// What no [model] can say: the built-in model has one arithmetic.
std::string other_arithmetic(const Json& config) {
  std::string others;
  const Json kinds = setting(config, "architectures", Json::array({"LlamaForCausalLM"}));
  if (setting(config, "model_type", "") != "llama" || !kinds.is_array() || std::ranges::find(kinds, "LlamaForCausalLM") == kinds.end()) {
    return "its model_type is " + shown(setting(config, "model_type", "")) + " and its architectures " + shown(kinds) +
           ", and there llama and LlamaForCausalLM";
  }
  const Json heads = setting(config, "num_attention_heads", 32);
  if (const Json shared = setting(config, "num_key_value_heads", heads); shared != heads) {
    add_to(others,
           shown(heads) + " heads share num_key_value_heads " + shown(shared) + " (grouped-query attention), and there each has its own");
  }
  const Json rope = setting(config, "rope_parameters", setting(config, "rope_scaling", Json::object()));
  const Json base = setting(config, "rope_theta", rope.is_object() ? setting(rope, "rope_theta", island_link::kRotaryBase) : rope);
  const Json scaled = rope.is_object() ? setting(rope, "rope_type", setting(rope, "type", "default")) : rope;
  const auto other = [&](const char* key, const Json& value, const Json& ours, bool same) {
    if (!same) {
      add_to(others, std::string(key) + " is " + shown(value) + ", and there " + shown(ours));
    }
  };
  other("rope_theta", base, island_link::kRotaryBase, is_number(base, island_link::kRotaryBase));
  other("rope_type", scaled, "default", scaled == "default");
  const Json epsilon = setting(config, "rms_norm_eps", 1e-6);
  other("rms_norm_eps", epsilon, island_link::kNormEpsilon, is_number(epsilon, island_link::kNormEpsilon));
  const Json activation = setting(config, "hidden_act", "silu");
  other("hidden_act", activation, "silu", activation == "silu");
  for (const char* bias : {"attention_bias", "mlp_bias"}) {
    other(bias, setting(config, bias, false), false, setting(config, bias, false) == false);
  }
  const Json width = setting(config, "hidden_size", 4096);
  if (const Json head = setting(config, "head_dim", nullptr); head.is_number_unsigned() && heads.is_number_unsigned() &&
                                                              width.is_number_unsigned() &&
                                                              head.get<double>() * heads.get<double>() != width.get<double>()) {
    add_to(others, shown(heads) + " heads have head_dim " + shown(head) + ", and there together hidden_size " + shown(width));
  }
  return others;
}

// What [model] says otherwise, and should say.
std::string other_sizes(const Json& config, const ModelSpec& model) {
  std::string others;
  const auto compare = [&](const char* key, const Json& otherwise, const char* ours, const Json& value) {
    if (const Json theirs = setting(config, key, otherwise); theirs != value) {
      add_to(others, std::string(key) + " is " + shown(theirs) + ", and model." + ours + " " + shown(value) + ": write " + ours + " = " +
                         shown(theirs));
    }
  };
  compare("num_hidden_layers", 32, "layers", model.layers);
  compare("hidden_size", 4096, "width", model.width);
  compare("num_attention_heads", 32, "heads", model.heads);
  compare("intermediate_size", 11008, "feed_forward", island_link::feed_forward_width(model));
  compare("vocab_size", 32000, "vocabulary", model.vocabulary);
  compare("tie_word_embeddings", false, "tied_embeddings", model.tied_embeddings);
  return others;
}

Status suits_config(const std::filesystem::path& path, const ModelSpec& model) {
  constexpr std::size_t kMostConfig = 1U << 20U;
  ATOLL_ASSIGN(const Bytes content, read_file(on_this_machine(path), kMostConfig));
  const Json config = Json::parse(as_text(content), nullptr, false);
  if (!config.is_object()) {
    return Error{Code::corrupt, path.string() + ": it is no JSON object"};
  }
  if (const std::string others = other_arithmetic(config); !others.empty()) {
    return Error{Code::invalid_argument, path.string() +
                                             ": it is not the built-in model, but can be trained by a trainer of one's own "
                                             "([trainer]): " +
                                             others};
  }
  const std::string others = other_sizes(config, model);
  return others.empty() ? Status() : Status(Error{Code::invalid_argument, path.string() + " says another model than [model]: " + others});
}

}  // namespace

Status suits_model(const std::filesystem::path& given, const RunSpec& spec) {
  std::error_code failure;
  const bool language = model_kind(spec) == ModelKind::language;
  if (language && std::filesystem::is_directory(given, failure)) {
    ATOLL_TRY(suits_config(given / kConfigFile, spec.model));
  }
  ATOLL_ASSIGN(const GivenTensors tensors, GivenTensors::open(given));
  const Status fits = language ? holds_parameters(tensors, manifest_of(spec)) : Status();
  return fits ? fits : Status(with_context(fits.error(), given.string()));
}

island_link::Manifest manifest_of(const RunSpec& spec) {
  switch (model_kind(spec)) {
    case ModelKind::language:
      return island_link::model_manifest(spec.model);
    case ModelKind::diffusion:
      return island_link::image_model_manifest(spec.model, {1, spec.diffusion.patch, 0, 0});
    case ModelKind::own:
      break;
  }
  return stand_in_manifest(spec);
}

Result<std::vector<std::uint64_t>> fragment_values(const RunSpec& spec, const FragmentPlan& plan) {
  ATOLL_ASSIGN(const ParameterLayout layout, ParameterLayout::make(manifest_of(spec), plan));
  std::vector<std::uint64_t> values;
  for (const island_link::Fragment& fragment : layout.fragments()) {
    values.push_back(fragment.count);
  }
  return values;
}

}  // namespace atl
