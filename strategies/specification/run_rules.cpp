#include "strategies/specification/run_rules.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <ranges>
#include <set>
#include <utility>

#include "transport/base/bytes.hpp"

namespace atl {
namespace {

using Problems = std::vector<RunProblem>;

std::string in_digits(std::uint64_t value) { return std::to_string(value); }

// A run of phases: every expert has one island, and there are no rounds.
bool of_experts(const RunSpec& spec) { return spec.strategy.group == Group::expert; }

void check_model(const RunSpec& spec, Problems& problems) {
  const ModelSpec& model = spec.model;
  const auto check_memory = [&](std::string_view section, std::string_view key, std::vector<std::string_view> with) {
    if (const double bytes = model_parameter_bytes(spec); bytes > static_cast<double>(spec.arena_limit_bytes)) {
      problems.push_back({section, key,
                          "the model's parameters take " + human_bytes(static_cast<std::uint64_t>(std::min(bytes, 1e18))) +
                              ", more than run.arena_limit (" + human_bytes(spec.arena_limit_bytes) + ")",
                          std::move(with)});
    }
  };
  const ModelKind kind = model_kind(spec);
  if (kind == ModelKind::own) {
    check_memory("trainer", "parameters", {"run.arena_limit"});
    return;
  }
  if (of_experts(spec) || kind == ModelKind::diffusion) {
    if (model.width % model.heads != 0 || model.width % 4 != 0) {
      problems.push_back({"model",
                          "width",
                          "width " + in_digits(model.width) + " must be a multiple of heads (" + in_digits(model.heads) + ") and of 4",
                          {"model.heads"}});
    } else if (!of_experts(spec)) {
      check_memory("model", "width", {"run.arena_limit", "model.layers", "model.feed_forward"});
    }
    return;
  }
  if (model.width % model.heads != 0) {
    problems.push_back(
        {"model", "heads", "heads " + in_digits(model.heads) + " does not divide width " + in_digits(model.width), {"model.width"}});
  } else if (model.width / model.heads % 2 != 0) {
    problems.push_back({"model",
                        "heads",
                        "width / heads is " + in_digits(model.width / model.heads) +
                            ", but rotary positions need an even number; choose width a multiple of " +
                            in_digits(2 * std::uint64_t{model.heads}),
                        {"model.width"}});
  }
  check_memory("model", "width", {"run.arena_limit", "model.layers", "model.feed_forward", "model.vocabulary"});
  if (spec.data.format == "bytes" && model.vocabulary < 256) {
    problems.push_back({"model",
                        "vocabulary",
                        "vocabulary is " + in_digits(model.vocabulary) + ", but data.format = \"bytes\" has 256 tokens",
                        {"data.format"}});
  }
}

// What the run begins with. `submit` pins files and runs, so that a run file need not.
void check_origin(const RunSpec& spec, Problems& problems) {
  const ModelSpec& model = spec.model;
  if (model.from.empty() && !model.sha256.empty()) {
    problems.push_back({"model", "sha256", "sha256 has no effect without from", {"model.from"}});
  }
  if (model.from.starts_with("https://") && model.sha256.empty()) {
    problems.push_back({"model",
                        "from",
                        "an address needs sha256, so that every island begins with the same bytes (`curl -L URL | sha256sum` prints it)",
                        {"model.sha256"}});
  }
}

void check_trainer(const RunSpec& spec, Problems& problems) {
  if (!has_own_trainer(spec)) {
    return;
  }
  const StrategySpec& strategy = spec.strategy;
  if (of_experts(spec)) {
    problems.push_back({"trainer",
                        "name",
                        "a trainer of one's own cannot do the tasks of strategy.name = \"decentralized-diffusion\"",
                        {"strategy.name"}});
  }
  const bool by_layers = strategy.grouping == FragmentKind::sequential || strategy.grouping == FragmentKind::strided;
  if (by_layers && strategy.fragments == 0) {
    problems.push_back(
        {"strategy",
         "fragments",
         "fragments is needed: only the trainer knows how many layers its model has; give fragments = 4, say (embeddings and "
         "head are one more by themselves), or grouping = \"balanced\"",
         {"trainer.name", "strategy.grouping", "strategy.name"}});
  }
  if (spec.trainer.settings.size() > kLargestTrainerSettings) {
    problems.push_back({"trainer", "settings",
                        "settings has " + in_digits(spec.trainer.settings.size()) + " bytes as JSON; at most " +
                            in_digits(kLargestTrainerSettings) + " are handed over"});
  }
}

void check_diffusion(const RunSpec& spec, Problems& problems) {
  const DiffusionSettings& diffusion = spec.diffusion;
  if (!of_experts(spec)) {
    return;
  }
  if (model_kind(spec) != ModelKind::diffusion) {
    problems.push_back({"data",
                        "format",
                        "format = \"" + spec.data.format +
                            "\" holds tokens, and strategy.name = \"decentralized-diffusion\" trains on images; formats of images are "
                            "idx, cifar10, images, npy, safetensors",
                        {"strategy.name"}});
  }
  if (diffusion.fine_clusters < diffusion.experts) {
    problems.push_back({"diffusion",
                        "fine_clusters",
                        "fine_clusters " + in_digits(diffusion.fine_clusters) + " is less than experts " + in_digits(diffusion.experts),
                        {"diffusion.experts"}});
  }
  if (diffusion.distill_steps > 0 && diffusion.experts == 1) {
    problems.push_back(
        {"diffusion", "distill_steps", "with one expert there is nothing to distil: it is one dense model already", {"diffusion.experts"}});
  }
  if (diffusion.balance != 0 && diffusion.balance < 1) {
    problems.push_back(
        {"diffusion", "balance", "a balance below 1 is impossible: some cluster has at least the mean size; use 0 for no limit"});
  }
  if (diffusion.router_width % diffusion.router_heads != 0 || diffusion.router_width % 4 != 0) {
    problems.push_back({"diffusion",
                        "router_width",
                        "router_width " + in_digits(diffusion.router_width) + " must be a multiple of router_heads (" +
                            in_digits(diffusion.router_heads) + ") and of 4",
                        {"diffusion.router_heads"}});
  }
}

// What is copied are the checkpoints of rounds.
void check_copy(const RunSpec& spec, Problems& problems) {
  if (!spec.checkpoint.copy.empty() && spec.strategy.group == Group::expert) {
    problems.push_back({"checkpoint",
                        "copy",
                        "copy is for runs of rounds; with strategy.name = \"" + spec.strategy.name +
                            "\" every task's checkpoint lies on several islands: remove copy, and use atoll export",
                        {"strategy.name"}});
  }
}

// Images that lie on several islands, a part on each.
void check_spread(const RunSpec& spec, Problems& problems) {
  const DataSpec& data = spec.data;
  if (data.spread == 0) {
    return;
  }
  if (!of_experts(spec)) {
    problems.push_back(
        {"data",
         "spread",
         "spread is for strategy.name = \"decentralized-diffusion\"; of the other strategies every island needs the whole data set",
         {"strategy.name"}});
  } else if (!data.url.empty()) {
    problems.push_back({"data", "spread", "spread needs data.set or data.files: a url gives every island the same images", {"data.url"}});
  } else if (data.spread > spec.islands.max) {
    problems.push_back({"data",
                        "spread",
                        "spread " + in_digits(data.spread) + " is more than islands.max " + in_digits(spec.islands.max) +
                            ": each of these islands packs one part",
                        {"islands.max"}});
  }
}

void check_data(const RunSpec& spec, Problems& problems) {
  const DataSpec& data = spec.data;
  const int sources = int{!data.set.empty()} + int{!data.files.empty()} + int{!data.url.empty()};
  if (sources == 0 && !has_own_trainer(spec)) {
    problems.push_back({"data", "", "no data: give exactly one of set, files, url", {"data.set", "data.files", "data.url"}});
  } else if (sources > 1) {
    std::string_view second = data.files.empty() ? "url" : data.set.empty() ? "url" : "files";
    problems.push_back({"data", second, "exactly one of set, files, url can be given"});
  }
  if (!data.url.empty() && data.sha256.empty()) {
    problems.push_back({"data",
                        "url",
                        "url needs sha256, so that every island trains on the same bytes (`curl -L URL | sha256sum` prints it)",
                        {"data.sha256"}});
  }
  if (data.url.empty() && !data.sha256.empty()) {
    problems.push_back({"data", "sha256", "sha256 has no effect without url", {"data.url"}});
  }
}

void check_training(const RunSpec& spec, Problems& problems) {
  const TrainingSpec& training = spec.training;
  if (training.batch % training.accumulation != 0) {
    problems.push_back({"training",
                        "accumulation",
                        "accumulation " + in_digits(training.accumulation) + " does not divide batch " + in_digits(training.batch),
                        {"training.batch"}});
  }
  if (training.tokens > 0 && (spec.strategy.group != Group::all || spec.strategy.name == "decentralized-diffusion")) {
    problems.push_back(
        {"training",
         "tokens",
         "nothing is committed in common by strategy \"" + spec.strategy.name + "\", so there are no tokens to end by: use steps",
         {"strategy.name"}});
  }
  if (training.warmup_steps > training.steps) {
    problems.push_back({"training",
                        "warmup_steps",
                        "warmup_steps " + in_digits(training.warmup_steps) + " is more than steps " + in_digits(training.steps),
                        {"training.steps"}});
  }
  const double tokens = static_cast<double>(training.steps) * training.batch * static_cast<double>(tokens_per_sequence(spec));
  if (tokens > 9007199254740991.0) {
    problems.push_back({"training",
                        "steps",
                        "steps × batch × sequence_length is more tokens than can be counted (2^53)",
                        {"training.batch", "training.sequence_length"}});
  }
}

void check_strategy(const RunSpec& spec, Problems& problems) {
  const StrategySpec& strategy = spec.strategy;
  const bool by_layers = strategy.grouping == FragmentKind::sequential || strategy.grouping == FragmentKind::strided;
  if (by_layers && strategy.fragments > spec.model.layers && !has_own_trainer(spec)) {
    problems.push_back({"strategy",
                        "fragments",
                        "fragments " + in_digits(strategy.fragments) + " is more than model.layers " + in_digits(spec.model.layers) +
                            ": a fragment has at least one layer (embeddings and head are one more by themselves)",
                        {"model.layers", "strategy.grouping"}});
  }
  if (strategy.pace == Pace::adaptive && (strategy.payload == PayloadKind::gradient || strategy.group == Group::nobody)) {
    problems.push_back({"strategy",
                        "pace",
                        "pace \"adaptive\" has no effect where islands synchronise in every step, or never",
                        {"strategy.name", "strategy.payload", "strategy.group"}});
  }
  if (const std::uint32_t least = least_contributions(strategy.aggregator); spec.islands.max < least) {
    problems.push_back({"strategy",
                        "aggregator",
                        "aggregator \"" + std::string(name_of(strategy.aggregator)) +
                            "\" is no better than the weighted mean with fewer than " + in_digits(least) + " islands, and islands.max is " +
                            in_digits(spec.islands.max),
                        {"islands.max"}});
  }
  if (strategy.quorum > spec.islands.max) {
    problems.push_back({"strategy",
                        "quorum",
                        "quorum " + in_digits(strategy.quorum) + " is more than islands.max " + in_digits(spec.islands.max) +
                            ": no round would ever close",
                        {"islands.max"}});
  }
  if (strategy.quorum > 0 && spec.islands.min > strategy.quorum) {
    problems.push_back({"islands",
                        "min",
                        "min " + in_digits(spec.islands.min) + " is more than strategy.quorum " + in_digits(strategy.quorum) +
                            ": with so few islands a round could close, and the run would wait all the same",
                        {"strategy.quorum", "strategy.name"}});
  }
  if (strategy.quorum > 0 && spec.islands.straggler_factor > 0) {
    problems.push_back({"islands",
                        "straggler_factor",
                        "straggler_factor has no effect with a quorum, where nobody waits for stragglers",
                        {"strategy.quorum", "strategy.name"}});
  }
  if (strategy.min_inner_steps > strategy.inner_steps) {
    problems.push_back(
        {"strategy",
         "min_inner_steps",
         "min_inner_steps " + in_digits(strategy.min_inner_steps) + " is more than inner_steps " + in_digits(strategy.inner_steps),
         {"strategy.inner_steps"}});
  }
  if (strategy.inner_steps > spec.training.steps && !(of_experts(spec) && spec.islands.max <= islands_without_groups(spec))) {
    problems.push_back({"strategy",
                        "inner_steps",
                        "inner_steps " + in_digits(strategy.inner_steps) + " is more than training.steps " +
                            in_digits(spec.training.steps) + ": not one round would happen",
                        {"training.steps", "strategy.name"}});
  }
}

void check_own_overlaps(const RunSpec& spec, Problems& problems) {
  std::set<std::string> seen;
  for (const std::string& entry : spec.islands.overlap_steps) {
    const std::optional<OwnOverlap> own = parse_own_overlap(entry);
    if (!own) {
      continue;  // the key's own rule says so
    }
    if (!seen.insert(own->island).second) {
      problems.push_back({"islands", "overlap_steps", "overlap_steps names island " + own->island + " twice"});
    }
    const bool must_be_less = spec.strategy.merge_alpha == 0.0;  // else nothing that was trained would ever be sent
    if (must_be_less && spec.strategy.overlap_steps == spec.strategy.inner_steps) {
      problems.push_back({"islands",
                          "overlap_steps",
                          "overlap_steps of island " + own->island + ", " + in_digits(own->steps) +
                              ", has no effect with an overlap of the whole period, strategy.inner_steps " +
                              in_digits(spec.strategy.inner_steps) + ": every island merges when it publishes next",
                          {"strategy.overlap_steps", "strategy.name"}});
    } else if (own->steps >= spec.strategy.inner_steps + (must_be_less ? 0 : 1)) {
      problems.push_back(
          {"islands",
           "overlap_steps",
           "overlap_steps of island " + own->island + ", " + in_digits(own->steps) +
               (must_be_less ? ", must be less than strategy.inner_steps " : ", must not be more than strategy.inner_steps ") +
               in_digits(spec.strategy.inner_steps),
           {"strategy.inner_steps", "strategy.name"}});
    } else if (own->steps > 0 && spec.strategy.payload == PayloadKind::gradient) {
      problems.push_back({"islands",
                          "overlap_steps",
                          "overlap_steps has no effect where gradients are exchanged in every step",
                          {"strategy.payload", "strategy.name"}});
    }
  }
}

void check_islands(const RunSpec& spec, Problems& problems) {
  const IslandsSpec& islands = spec.islands;
  check_own_overlaps(spec, problems);
  if (islands.min > islands.max) {
    problems.push_back(
        {"islands", "min", "min " + in_digits(islands.min) + " is more than max " + in_digits(islands.max), {"islands.max"}});
  }
  if (islands.straggler_factor > 0 && islands.straggler_factor < 1) {
    problems.push_back({"islands", "straggler_factor", "straggler_factor must be at least 1, or 0 for no such limit"});
  }
  if (spec.strategy.group_size > 2 && islands.max < spec.strategy.group_size) {
    problems.push_back({"strategy",
                        "group_size",
                        "group_size " + in_digits(spec.strategy.group_size) + " is more than [islands].max " + in_digits(islands.max) +
                            ": nobody would ever meet",
                        {"islands.max"}});
  }
  if (islands.straggler_factor > 0 && spec.strategy.group == Group::pairs) {
    problems.push_back(
        {"islands",
         "straggler_factor",
         "straggler_factor has no effect in pairs, where nobody waits for all; deadline and strategy.max_skew bound the wait for a partner",
         {"strategy.group", "strategy.name"}});
  }
  if (islands.names.empty()) {
    return;
  }
  if (const std::set<std::string> distinct(islands.names.begin(), islands.names.end()); distinct.size() != islands.names.size()) {
    problems.push_back({"islands", "names", "names lists an island twice"});
  } else if (distinct.size() < islands.min) {
    problems.push_back({"islands",
                        "names",
                        "names lists " + in_digits(distinct.size()) + " islands, fewer than min " + in_digits(islands.min),
                        {"islands.min"}});
  }
}

}  // namespace

std::optional<OwnOverlap> parse_own_overlap(std::string_view entry) {
  const std::size_t equals = entry.find('=');
  if (equals == std::string_view::npos || equals == 0) {
    return std::nullopt;
  }
  OwnOverlap own{std::string(entry.substr(0, equals)), 0};
  const std::string_view digits = entry.substr(equals + 1);
  const auto [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), own.steps);
  return failure == std::errc() && end == digits.data() + digits.size() && own.steps <= 1'000'000'000 ? std::optional(own) : std::nullopt;
}

std::string_view features_file(std::string_view features) {
  for (const std::string_view kind : {"npy:", "torchscript:"}) {
    if (features.starts_with(kind)) {
      return features.substr(kind.size());
    }
  }
  return {};
}

std::string_view run_to_begin_from(std::string_view from) { return from.starts_with("run:") ? from.substr(4) : std::string_view(); }

std::optional<HubModel> hub_model_to_begin_from(std::string_view from) {
  // Names between slashes, as many at most.
  const auto are_names = [](std::string_view text, std::ptrdiff_t most) {
    const auto of_name = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.'; };
    const auto whole = [&](const auto& part) { return !part.empty() && part.front() != '.' && std::ranges::all_of(part, of_name); };
    return !text.empty() && text.size() <= 200 && std::ranges::count(text, '/') < most &&
           std::ranges::all_of(std::views::split(text, '/'), whole);
  };
  const std::size_t at = from.find('@');
  HubModel model{std::string(from.substr(0, at).substr(std::min<std::size_t>(3, from.size()))),
                 at == std::string_view::npos ? "main" : std::string(from.substr(at + 1))};
  const bool proper = from.starts_with("hf:") && are_names(model.repository, 2) && are_names(model.revision, 8);
  return proper ? std::optional(std::move(model)) : std::nullopt;
}

bool is_commit(std::string_view revision) {
  return revision.size() == 40 && revision.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

bool begins_from_file(const RunSpec& spec) {
  const std::string& from = spec.model.from;
  return !from.empty() && !from.starts_with("https://") && !from.starts_with("hf:") && run_to_begin_from(from).empty();
}

std::uint32_t islands_without_groups(const RunSpec& spec) { return spec.diffusion.experts + (spec.diffusion.experts > 1 ? 1 : 0); }

std::uint64_t own_overlap(const RunSpec& spec, std::string_view island) {
  for (const std::string& entry : spec.islands.overlap_steps) {
    if (const std::optional<OwnOverlap> own = parse_own_overlap(entry); own && own->island == island) {
      return own->steps;
    }
  }
  return spec.strategy.overlap_steps;
}

double run_uplink(const RunSpec& spec) {
  const Result<double> rate = parse_bits_per_second(spec.islands.uplink);
  return rate ? *rate : 0;
}

std::vector<RunProblem> find_contradictions(const RunSpec& spec) {
  Problems problems;
  check_model(spec, problems);
  check_origin(spec, problems);
  check_trainer(spec, problems);
  check_data(spec, problems);
  check_diffusion(spec, problems);
  check_spread(spec, problems);
  check_copy(spec, problems);
  check_training(spec, problems);
  check_strategy(spec, problems);
  check_islands(spec, problems);
  return problems;
}

Status check_run_spec(const RunSpec& spec) {
  const Problems problems = find_contradictions(spec);
  if (problems.empty()) {
    return {};
  }
  const std::string more = problems.size() > 1 ? " (and " + std::to_string(problems.size() - 1) + " more)" : "";
  return Error{Code::invalid_argument, "[" + std::string(problems.front().section) + "] " + problems.front().why + more};
}

std::uint32_t classes_of_data(const RunSpec& spec) { return std::max<std::uint32_t>(64, spec.islands.max); }

std::uint64_t sequences_of_a_round(const RunSpec& spec) {
  return std::max<std::uint64_t>(1, spec.strategy.inner_steps) * std::max<std::uint32_t>(1, spec.training.batch);
}

}  // namespace atl
