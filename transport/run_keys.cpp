#include "transport/run_keys.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "transport/base/bytes.hpp"
#include "transport/run_rules.hpp"

namespace atl {
namespace {

template <auto Member>
RunKeyField of_run(RunSpec& spec) {
  return &(spec.*Member);
}
template <auto Section, auto Member>
RunKeyField of(RunSpec& spec) {
  return &(spec.*Section.*Member);
}

using Choices = std::span<const std::string_view>;
constexpr std::array<std::string_view, 8> kFormats = {"bytes", "uint16", "uint32", "idx", "cifar10", "images", "npy", "safetensors"};
constexpr std::array<std::string_view, 3> kPrecisions = {"auto", "float32", "bf16"};
constexpr std::array<std::string_view, 6> kStrategies = {"diloco", "streaming-diloco", "noloco", "data-parallel", "local", "decentralized-diffusion"};
constexpr std::array<std::string_view, 4> kGroupings = {"whole", "sequential", "strided", "balanced"};
constexpr std::array<std::string_view, 4> kGroups = {"all", "pairs", "nobody", "expert"};
constexpr std::array<std::string_view, 3> kPayloads = {"outer-gradient", "gradient", "parameters"};
constexpr std::array<std::string_view, 4> kCodecs = {"f32", "bf16", "int8", "fp4"};
constexpr std::array<std::string_view, 2> kRoundings = {"nearest", "stochastic"};
constexpr std::array<std::string_view, 2> kPaces = {"fixed", "adaptive"};
constexpr std::array<std::string_view, 4> kOuterOptimizers = {"nesterov", "heavy-ball", "sgd", "adopt"};
constexpr std::array<std::string_view, 3> kClusterings = {"features", "labels", "random"};
constexpr std::array<std::string_view, 2> kTimes = {"uniform", "logit-normal"};
constexpr std::array<std::string_view, 2> kWeightings = {"tokens", "uniform"};

bool is_alphanumeric(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

bool is_name(std::string_view text) {
  return !text.empty() && is_alphanumeric(text.front()) &&
         std::ranges::all_of(text, [](char c) { return is_alphanumeric(c) || c == '-' || c == '_' || c == '.'; });
}
bool is_own_overlap_entry(std::string_view text) {
  const std::optional<OwnOverlap> own = parse_own_overlap(text);
  return own && is_name(own->island);
}
bool is_uplink(std::string_view text) {
  const Result<double> rate = parse_bits_per_second(text);
  return rate && *rate >= kLeastUplink;
}
bool is_sha256(std::string_view text) {
  return text.size() == 64 && std::ranges::all_of(text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}
bool is_https(std::string_view text) {
  return text.starts_with("https://") && text.size() > 8 &&
         std::ranges::all_of(text, [](char c) { return c > ' ' && c < 0x7f; });
}
bool is_path(std::string_view text) {
  return !text.empty() && text.size() <= 4096 && std::ranges::none_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x20; });
}
bool is_features(std::string_view text) { return text == "pixels-pca" || is_path(features_file(text)); }
bool is_device(std::string_view text) {
  if (text == "auto" || text == "cpu") {
    return true;
  }
  if (!text.starts_with("cuda:")) {
    return false;
  }
  const std::string_view index = text.substr(5);
  return !index.empty() && index.size() <= 3 && std::ranges::all_of(index, [](char c) { return c >= '0' && c <= '9'; });
}

constexpr double kKibi = 1024.0;
constexpr double kMebi = kKibi * kKibi;
constexpr double kTebi = kMebi * kMebi;
constexpr double kExact = 9007199254740991.0;  // 2^53 − 1
constexpr std::string_view kNameForm = "letters, digits, '-', '_' and '.', beginning with a letter or digit";
using enum RunKeyType;

constexpr std::array<std::string_view, 9> kSections = {"run", "model", "data", "training", "strategy", "diffusion", "islands", "checkpoint", "guards"};

// One row a key; the README's table is printed from this.
const std::array kKeys = {
    RunKey{.section = "run", .name = "name", .type = text, .field = of_run<&RunSpec::name>, .least = 1, .most = 64, .form = kNameForm,
           .rule = is_name, .required = true, .doc = "what people call the run"},
    RunKey{.section = "run", .name = "seed", .type = integer, .field = of_run<&RunSpec::seed>, .most = kExact,
           .doc = "of the first parameters and of the order of the data"},
    RunKey{.section = "run", .name = "arena_limit", .type = size, .field = of_run<&RunSpec::arena_limit_bytes>, .least = kMebi,
           .most = 16 * kTebi, .doc = "a model whose float32 parameters need more shared memory is refused"},

    RunKey{.section = "model", .name = "layers", .type = integer, .field = of<&RunSpec::model, &ModelSpec::layers>, .least = 1, .most = 1000,
           .doc = "transformer blocks"},
    RunKey{.section = "model", .name = "width", .type = integer, .field = of<&RunSpec::model, &ModelSpec::width>, .least = 2, .most = 65536,
           .doc = "of the residual stream; a multiple of 2 × heads, with images of heads and of 4"},
    RunKey{.section = "model", .name = "heads", .type = integer, .field = of<&RunSpec::model, &ModelSpec::heads>, .least = 1, .most = 1024,
           .doc = "attention heads"},
    RunKey{.section = "model", .name = "feed_forward", .type = integer, .field = of<&RunSpec::model, &ModelSpec::feed_forward>,
           .most = 262144, .doc = "hidden width of the SwiGLU; 0: 8/3 of width, rounded up to a multiple of 32; with images that of the MLP, 0: four times the width"},
    RunKey{.section = "model", .name = "vocabulary", .type = integer, .field = of<&RunSpec::model, &ModelSpec::vocabulary>, .least = 2,
           .most = 1048576, .doc = "distinct tokens; at least 256 for bytes"},
    RunKey{.section = "model", .name = "tied_embeddings", .type = boolean, .field = of<&RunSpec::model, &ModelSpec::tied_embeddings>,
           .doc = "the output layer is the embedding, transposed"},

    RunKey{.section = "data", .name = "set", .type = text, .field = of<&RunSpec::data, &DataSpec::set>, .most = 64, .form = kNameForm,
           .rule = is_name, .doc = "a name that each agent maps to files of its own (`agent --data NAME=PATH`); exactly one of set, files, url"},
    RunKey{.section = "data", .name = "files", .type = texts, .field = of<&RunSpec::data, &DataSpec::files>, .most = 1000,
           .form = "paths without control characters", .rule = is_path,
           .doc = "paths or globs on the island, which its owner must have allowed (`agent --allow-data DIR`); with `local`, relative ones "
                  "are in the run file's folder; else in the agent's working directory"},
    RunKey{.section = "data", .name = "url", .type = text, .field = of<&RunSpec::data, &DataSpec::url>, .most = 4096,
           .form = "an https:// address", .rule = is_https, .doc = "downloaded once by each island and cached; needs sha256"},
    RunKey{.section = "data", .name = "sha256", .type = text, .field = of<&RunSpec::data, &DataSpec::sha256>, .most = 64,
           .form = "64 lower-case hexadecimal digits", .rule = is_sha256, .doc = "of what url gives; anything else is refused"},
    RunKey{.section = "data", .name = "format", .type = text, .field = of<&RunSpec::data, &DataSpec::format>, .choices = kFormats,
           .doc = "each byte is a token, or shards of tokens as nanoGPT and llm.c write them; of images: MNIST's idx (.gz too), CIFAR-10's binary version, PNG and JPEG files, NumPy arrays, safetensors shards"},
    RunKey{.section = "data", .name = "validation_fraction", .type = number, .field = of<&RunSpec::data, &DataSpec::validation_fraction>,
           .least = 0, .most = 0.5, .above_least = true, .doc = "this last part of the tokens is held out, or this part of the images, drawn from the seed"},
    RunKey{.section = "data", .name = "parts", .type = integer, .field = of<&RunSpec::data, &DataSpec::parts>, .most = 100000,
           .doc = "disjoint parts that the islands get; 0: islands.max"},
    RunKey{.section = "data", .name = "spread", .type = integer, .field = of<&RunSpec::data, &DataSpec::spread>, .most = kMaxSpread,
           .doc = "of experts: so many islands have images of their own, which together are the data set, and the others fetch them; 0: every island has the whole set"},

    RunKey{.section = "training", .name = "steps", .type = integer, .field = of<&RunSpec::training, &TrainingSpec::steps>, .least = 1,
           .most = 1e12, .required = true, .doc = "inner steps of each island"},
    RunKey{.section = "training", .name = "batch", .type = integer, .field = of<&RunSpec::training, &TrainingSpec::batch>, .least = 1,
           .most = 65536, .doc = "sequences, or images, of an inner step, on each island"},
    RunKey{.section = "training", .name = "sequence_length", .type = integer,
           .field = of<&RunSpec::training, &TrainingSpec::sequence_length>, .least = 2, .most = 1048576, .doc = "tokens of a sequence"},
    RunKey{.section = "training", .name = "accumulation", .type = integer, .field = of<&RunSpec::training, &TrainingSpec::accumulation>,
           .least = 1, .most = 65536, .doc = "micro-batches of an inner step; divides batch"},
    RunKey{.section = "training", .name = "learning_rate", .type = number, .field = of<&RunSpec::training, &TrainingSpec::learning_rate>,
           .least = 0, .most = 10, .above_least = true, .doc = "AdamW's, after the warm-up"},
    RunKey{.section = "training", .name = "warmup_steps", .type = integer, .field = of<&RunSpec::training, &TrainingSpec::warmup_steps>,
           .most = 1e12, .doc = "the learning rate rises linearly over these; where not given, at most a tenth of steps"},
    RunKey{.section = "training", .name = "final_learning_rate", .type = number,
           .field = of<&RunSpec::training, &TrainingSpec::final_learning_rate>, .least = 0, .most = 1,
           .doc = "the cosine decay ends at this fraction of learning_rate"},
    RunKey{.section = "training", .name = "weight_decay", .type = number, .field = of<&RunSpec::training, &TrainingSpec::weight_decay>,
           .least = 0, .most = 10, .doc = "of matrices; vectors have none"},
    RunKey{.section = "training", .name = "beta1", .type = number, .field = of<&RunSpec::training, &TrainingSpec::beta1>, .least = 0,
           .most = 1, .below_most = true, .doc = "AdamW's"},
    RunKey{.section = "training", .name = "beta2", .type = number, .field = of<&RunSpec::training, &TrainingSpec::beta2>, .least = 0,
           .most = 1, .below_most = true, .doc = "AdamW's"},
    RunKey{.section = "training", .name = "epsilon", .type = number, .field = of<&RunSpec::training, &TrainingSpec::epsilon>, .least = 0,
           .most = 1, .above_least = true, .doc = "AdamW's"},
    RunKey{.section = "training", .name = "clip_norm", .type = number, .field = of<&RunSpec::training, &TrainingSpec::clip_norm>,
           .least = 0, .most = 1e6, .doc = "the gradient's norm is cut to this; 0: never"},
    RunKey{.section = "training", .name = "max_steps_per_second", .type = number,
           .field = of<&RunSpec::training, &TrainingSpec::max_steps_per_second>, .least = 0, .most = 1e6,
           .doc = "to share a machine; 0: as fast as it goes"},
    RunKey{.section = "training", .name = "device", .type = text, .field = of<&RunSpec::training, &TrainingSpec::device>, .least = 1,
           .most = 16, .form = "auto, cpu or cuda:N", .rule = is_device, .doc = "auto takes the first CUDA device if there is one"},
    RunKey{.section = "training", .name = "precision", .type = text, .field = of<&RunSpec::training, &TrainingSpec::precision>,
           .choices = kPrecisions, .doc = "bf16 is autocast, on CUDA only; auto takes it there"},
    RunKey{.section = "training", .name = "threads", .type = integer, .field = of<&RunSpec::training, &TrainingSpec::threads>, .least = 1,
           .most = 1024, .doc = "of the trainer's arithmetic"},
    RunKey{.section = "training", .name = "evaluate_every", .type = integer,
           .field = of<&RunSpec::training, &TrainingSpec::evaluate_every>, .most = 1e9,
           .doc = "rounds between validations; 0: at the start and at the end only"},
    RunKey{.section = "training", .name = "evaluate_batches", .type = integer,
           .field = of<&RunSpec::training, &TrainingSpec::evaluate_batches>, .least = 1, .most = 1e6, .doc = "batches of a validation"},

    RunKey{.section = "strategy", .name = "name", .type = text, .field = of<&RunSpec::strategy, &StrategySpec::name>,
           .choices = kStrategies, .doc = "a named set of the parts below"},
    RunKey{.section = "strategy", .name = "grouping", .type = text, .field = of<&RunSpec::strategy, &StrategySpec::grouping>,
           .choices = kGroupings,
           .doc = "what is synchronised together: the whole model, consecutive or strided layers (embeddings and head are one more fragment), "
                  "or parts of equal size"},
    RunKey{.section = "strategy", .name = "fragments", .type = integer, .field = of<&RunSpec::strategy, &StrategySpec::fragments>,
           .most = 10000, .doc = "so many fragments of layers, at most model.layers, or so many balanced ones; 0: by layers_per_fragment"},
    RunKey{.section = "strategy", .name = "layers_per_fragment", .type = integer,
           .field = of<&RunSpec::strategy, &StrategySpec::layers_per_fragment>, .least = 1, .most = 1000,
           .doc = "layers that are synchronised together, where fragments is 0"},
    RunKey{.section = "strategy", .name = "inner_steps", .type = integer, .field = of<&RunSpec::strategy, &StrategySpec::inner_steps>,
           .least = 1, .most = 1e9, .doc = "H, inner steps between two synchronisations of a fragment, with adaptive pace the most that an island does; 1 with data-parallel"},
    RunKey{.section = "strategy", .name = "pace", .type = text, .field = of<&RunSpec::strategy, &StrategySpec::pace>, .choices = kPaces,
           .doc = "fixed: every island does inner_steps; adaptive: the fastest does, the others as many as they can in that time; in pairs: the slower partner as many as it can until the other has come"},
    RunKey{.section = "strategy", .name = "min_inner_steps", .type = integer, .field = of<&RunSpec::strategy, &StrategySpec::min_inner_steps>, .least = 1,
           .most = 1e12, .doc = "with adaptive pace the least that an island does for a round, however slow it is"},
    RunKey{.section = "strategy", .name = "group", .type = text, .field = of<&RunSpec::strategy, &StrategySpec::group>, .choices = kGroups,
           .doc = "with whom an island synchronises; random pairs with noloco, nobody with local; expert with decentralized-diffusion: with those that train the same expert, where there are more islands than experts, else nobody"},
    RunKey{.section = "strategy", .name = "payload", .type = text, .field = of<&RunSpec::strategy, &StrategySpec::payload>,
           .choices = kPayloads, .doc = "what is sent; gradient with data-parallel, parameters with local"},
    RunKey{.section = "strategy", .name = "codec", .type = text, .field = of<&RunSpec::strategy, &StrategySpec::codec>, .choices = kCodecs,
           .doc = "in which bits a contribution is sent"},
    RunKey{.section = "strategy", .name = "reduce_codec", .type = text, .field = of<&RunSpec::strategy, &StrategySpec::reduce_codec>,
           .choices = kCodecs, .doc = "in which bits the result of three or more islands is sent"},
    RunKey{.section = "strategy", .name = "codec_block", .type = integer, .field = of<&RunSpec::strategy, &StrategySpec::codec_block>,
           .least = 16, .most = 65536, .doc = "values that share a scale in int8 and fp4; a multiple of 16"},
    RunKey{.section = "strategy", .name = "rounding", .type = text, .field = of<&RunSpec::strategy, &StrategySpec::rounding>,
           .choices = kRoundings, .doc = "of a contribution's values; stochastic is seeded and right on average"},
    RunKey{.section = "strategy", .name = "error_feedback", .type = boolean,
           .field = of<&RunSpec::strategy, &StrategySpec::error_feedback>,
           .doc = "what the codec's rounding took from a fragment's contribution is added to its next one; takes 4 more bytes a parameter"},
    RunKey{.section = "strategy", .name = "outer_optimizer", .type = text,
           .field = of<&RunSpec::strategy, &StrategySpec::outer_optimizer>, .choices = kOuterOptimizers,
           .doc = "how the synchronised parameters move; heavy-ball is momentum without look-ahead; adopt with local and data-parallel"},
    RunKey{.section = "strategy", .name = "outer_learning_rate", .type = number,
           .field = of<&RunSpec::strategy, &StrategySpec::outer_learning_rate>, .least = 0, .most = 10, .above_least = true,
           .doc = "the outer optimiser's; none with adopt"},
    RunKey{.section = "strategy", .name = "outer_momentum", .type = number,
           .field = of<&RunSpec::strategy, &StrategySpec::outer_momentum>, .least = 0, .most = 1, .below_most = true,
           .doc = "nesterov's and heavy-ball's"},
    RunKey{.section = "strategy", .name = "merge_alpha", .type = number, .field = of<&RunSpec::strategy, &StrategySpec::merge_alpha>,
           .least = 0, .most = 1, .doc = "weight of the local parameters when the result is merged; 0 takes the global ones"},
    RunKey{.section = "strategy", .name = "overlap_steps", .type = integer, .field = of<&RunSpec::strategy, &StrategySpec::overlap_steps>,
           .most = 1e9, .doc = "τ, inner steps between a contribution and its merge; less than inner_steps"},
    RunKey{.section = "strategy", .name = "weighting", .type = text, .field = of<&RunSpec::strategy, &StrategySpec::weighting>,
           .choices = kWeightings, .doc = "a contribution counts by the tokens behind it, or as any other; uniform in pairs"},
    RunKey{.section = "strategy", .name = "group_size", .type = integer, .field = of<&RunSpec::strategy, &StrategySpec::group_size>,
           .least = 2, .most = 64, .doc = "in pairs: so many islands meet in a round, where two are not enough; what is left over takes its steps alone"},
    RunKey{.section = "strategy", .name = "outer_pull", .type = number, .field = of<&RunSpec::strategy, &StrategySpec::outer_pull>,
           .most = 10, .doc = "NoLoCo's γ: how strongly an island's outer parameters are pulled to the pair's mean (α is outer_momentum, β "
                              "outer_learning_rate); in groups of n, with k = n / (2(n − 1)), between sqrt(k)·outer_momentum and sqrt(k·(2 + outer_momentum²))"},
    RunKey{.section = "strategy", .name = "allow_unstable", .type = boolean,
           .field = of<&RunSpec::strategy, &StrategySpec::allow_unstable>, .doc = "outer_pull may be outside of that proven interval"},
    RunKey{.section = "strategy", .name = "parameters_codec", .type = text,
           .field = of<&RunSpec::strategy, &StrategySpec::parameters_codec>, .choices = kCodecs,
           .doc = "in which bits pairs send their outer parameters"},
    RunKey{.section = "strategy", .name = "max_skew", .type = integer, .field = of<&RunSpec::strategy, &StrategySpec::max_skew>,
           .most = 1e9, .doc = "in pairs: a partner that is more rounds behind is not waited for"},
    RunKey{.section = "strategy", .name = "final_merge", .type = boolean, .field = of<&RunSpec::strategy, &StrategySpec::final_merge>,
           .doc = "in pairs: the run ends with the mean of all islands' outer parameters, weighted by the tokens behind them"},

    RunKey{.section = "diffusion", .name = "experts", .type = integer, .field = of<&RunSpec::diffusion, &DiffusionSpec::experts>, .least = 1, .most = 1000,
           .doc = "of the ensemble, one for each cluster of the images; 1: one model of all images, and no router"},
    RunKey{.section = "diffusion", .name = "clusters_by", .type = text, .field = of<&RunSpec::diffusion, &DiffusionSpec::clusters_by>, .choices = kClusterings,
           .doc = "two stages of k-means over features, the labels in their order, or by chance"},
    RunKey{.section = "diffusion", .name = "features", .type = text, .field = of<&RunSpec::diffusion, &DiffusionSpec::features>, .most = 4200,
           .form = "pixels-pca, npy:FILE or torchscript:FILE", .rule = is_features,
           .doc = "what is clustered: principal components of the pixels, a NumPy array [images, width], or what a TorchScript model makes of a batch of images; FILE is on the island, which its owner must have allowed, with `local` in the run file's folder"},
    RunKey{.section = "diffusion", .name = "feature_width", .type = integer, .field = of<&RunSpec::diffusion, &DiffusionSpec::feature_width>, .least = 1, .most = 4096,
           .doc = "principal components of the pixels; at most the values of an image"},
    RunKey{.section = "diffusion", .name = "fine_clusters", .type = integer, .field = of<&RunSpec::diffusion, &DiffusionSpec::fine_clusters>, .least = 1, .most = 65536,
           .doc = "of the first stage of k-means; at least experts"},
    RunKey{.section = "diffusion", .name = "balance", .type = number, .field = of<&RunSpec::diffusion, &DiffusionSpec::balance>, .most = 1000,
           .doc = "a cluster weighs at most so many times the mean, from 1; 0: no limit"},
    RunKey{.section = "diffusion", .name = "patch", .type = integer, .field = of<&RunSpec::diffusion, &DiffusionSpec::patch>, .least = 1, .most = 64,
           .doc = "pixels of a token's side; divides the height and width of the images"},
    RunKey{.section = "diffusion", .name = "conditional", .type = boolean, .field = of<&RunSpec::diffusion, &DiffusionSpec::conditional>,
           .doc = "experts are told the class of an image, where the set has labels"},
    RunKey{.section = "diffusion", .name = "class_dropout", .type = number, .field = of<&RunSpec::diffusion, &DiffusionSpec::class_dropout>, .most = 1, .below_most = true,
           .doc = "of the training images the class is hidden, so that samples can be guided"},
    RunKey{.section = "diffusion", .name = "times", .type = text, .field = of<&RunSpec::diffusion, &DiffusionSpec::times>, .choices = kTimes,
           .doc = "how the noise levels of training are drawn"},
    RunKey{.section = "diffusion", .name = "ema", .type = number, .field = of<&RunSpec::diffusion, &DiffusionSpec::ema>, .most = 1, .below_most = true,
           .doc = "decay of the average of an expert's parameters, which is what is exported"},
    RunKey{.section = "diffusion", .name = "router_patch", .type = integer, .field = of<&RunSpec::diffusion, &DiffusionSpec::router_patch>, .most = 64,
           .doc = "pixels of a token's side for the router, which needs less detail: 7 instead of 4 is a third of its work; 0: as patch"},
    RunKey{.section = "diffusion", .name = "router_layers", .type = integer, .field = of<&RunSpec::diffusion, &DiffusionSpec::router_layers>, .least = 1, .most = 1000,
           .doc = "of the router, a smaller transformer"},
    RunKey{.section = "diffusion", .name = "router_width", .type = integer, .field = of<&RunSpec::diffusion, &DiffusionSpec::router_width>, .least = 4, .most = 65536,
           .doc = "a multiple of 4 and of router_heads"},
    RunKey{.section = "diffusion", .name = "router_heads", .type = integer, .field = of<&RunSpec::diffusion, &DiffusionSpec::router_heads>, .least = 1, .most = 1024,
           .doc = "attention heads"},
    RunKey{.section = "diffusion", .name = "router_steps", .type = integer, .field = of<&RunSpec::diffusion, &DiffusionSpec::router_steps>, .least = 1, .most = 1e12,
           .doc = "steps that the router is trained"},
    RunKey{.section = "diffusion", .name = "router_batch", .type = integer, .field = of<&RunSpec::diffusion, &DiffusionSpec::router_batch>, .least = 1, .most = 65536,
           .doc = "images of a step"},
    RunKey{.section = "diffusion", .name = "router_learning_rate", .type = number, .field = of<&RunSpec::diffusion, &DiffusionSpec::router_learning_rate>, .least = 0, .most = 10, .above_least = true,
           .doc = "AdamW's, after the warm-up"},
    RunKey{.section = "diffusion", .name = "distill_steps", .type = integer, .field = of<&RunSpec::diffusion, &DiffusionSpec::distill_steps>, .most = 1e12,
           .doc = "steps that one dense model of an expert's size is trained to give the flow that each image's own expert gives; 0: no such model"},
    RunKey{.section = "diffusion", .name = "distill_batch", .type = integer, .field = of<&RunSpec::diffusion, &DiffusionSpec::distill_batch>, .least = 1, .most = 65536,
           .doc = "images of a step of the dense model"},
    RunKey{.section = "diffusion", .name = "save_every", .type = integer, .field = of<&RunSpec::diffusion, &DiffusionSpec::save_every>, .most = 1e12,
           .doc = "steps between copies of what a task can be continued from to another island; 0: none"},

    RunKey{.section = "islands", .name = "min", .type = integer, .field = of<&RunSpec::islands, &IslandsSpec::min>, .least = 1,
           .most = 1000, .doc = "with fewer the run waits"},
    RunKey{.section = "islands", .name = "max", .type = integer, .field = of<&RunSpec::islands, &IslandsSpec::max>, .least = 1,
           .most = 1000, .doc = "further islands are not taken"},
    RunKey{.section = "islands", .name = "deadline", .type = duration, .field = of<&RunSpec::islands, &IslandsSpec::deadline>,
           .least = 1000, .most = 7 * 86400e3, .doc = "of a round: when it has passed, the round starts with those that are ready, if at least min; in pairs: the partner is not waited for any longer"},
    RunKey{.section = "islands", .name = "straggler_factor", .type = number, .field = of<&RunSpec::islands, &IslandsSpec::straggler_factor>, .least = 0,
           .most = 1e6, .doc = "a round starts without islands that need more than so many times the first one's time, at least 1; they join the next; 0: only deadline ends the wait"},
    RunKey{.section = "islands", .name = "uplink", .type = text, .field = of<&RunSpec::islands, &IslandsSpec::uplink>, .most = 32,
           .form = "a rate like \"20mbit\", at least 500kbit", .rule = is_uplink,
           .doc = "what each island sends to the others for this run, at most; `agent --uplink` holds beside it"},
    RunKey{.section = "islands", .name = "names", .type = texts, .field = of<&RunSpec::islands, &IslandsSpec::names>, .most = 1000,
           .form = "names of islands", .rule = is_name, .doc = "only these islands; empty: any"},
    RunKey{.section = "islands", .name = "overlap_steps", .type = texts, .field = of<&RunSpec::islands, &IslandsSpec::overlap_steps>,
           .most = 1000, .form = "\"NAME=STEPS\"", .rule = is_own_overlap_entry,
           .doc = "a τ of its own for an island with slower or quicker links than the others; the rounds stay those of strategy.overlap_steps"},

    RunKey{.section = "checkpoint", .name = "every_rounds", .type = integer,
           .field = of<&RunSpec::checkpoint, &CheckpointSpec::every_rounds>, .least = 1, .most = 1e9,
           .doc = "rounds between checkpoints; the last round always has one"},
    RunKey{.section = "checkpoint", .name = "keep", .type = integer, .field = of<&RunSpec::checkpoint, &CheckpointSpec::keep>, .least = 1,
           .most = 1000, .doc = "the newest checkpoints that an island keeps"},
    RunKey{.section = "guards", .name = "norm_factor", .type = number, .field = of<&RunSpec::guards, &GuardsSpec::norm_factor>, .least = 0, .most = 1e9,
           .doc = "a contribution whose norm is more than so many times the running median does not count; 0: no such guard; in pairs every island judges by the norms that it has seen"},
    RunKey{.section = "guards", .name = "quarantine_after", .type = integer, .field = of<&RunSpec::guards, &GuardsSpec::quarantine_after>, .least = 0,
           .most = 1e6, .doc = "rejections after which an island is kept out until the run is resumed; ten accepted contributions in a row forgive; 0: never"},
};

// ---- what people read --------------------------------------------------------------------------------------------

std::string plain_number(double value) {
  std::array<char, 64> buffer{};
  const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  return error == std::errc{} ? std::string(buffer.data(), end) : "?";
}

// A number of `unit`s that parse_* reads back to exactly the same: the largest unit that divides it.
struct TextUnit {
  std::uint64_t factor;
  std::string_view name;
};
std::string in_largest_unit(std::uint64_t value, std::span<const TextUnit> units) {
  for (const TextUnit& unit : units) {
    if (value >= unit.factor && value % unit.factor == 0) {
      return std::to_string(value / unit.factor) + std::string(unit.name);
    }
  }
  return std::to_string(value) + std::string(units.back().name);
}
std::string size_text(std::uint64_t bytes) {
  static constexpr std::array<TextUnit, 5> kUnits = {{{1ULL << 40, "TiB"}, {1ULL << 30, "GiB"}, {1ULL << 20, "MiB"}, {1ULL << 10, "KiB"}, {1, "B"}}};
  return in_largest_unit(bytes, kUnits);
}
std::string duration_text(std::uint64_t milliseconds) {
  static constexpr std::array<TextUnit, 5> kUnits = {{{86'400'000, "d"}, {3'600'000, "h"}, {60'000, "m"}, {1000, "s"}, {1, "ms"}}};
  return in_largest_unit(milliseconds, kUnits);
}

std::string bound_text(const RunKey& key, double bound) {
  switch (key.type) {
    case size: return size_text(static_cast<std::uint64_t>(bound));
    case duration: return duration_text(static_cast<std::uint64_t>(bound));
    case integer: return std::to_string(static_cast<std::uint64_t>(bound));
    default: return plain_number(bound);
  }
}

std::string range_text(const RunKey& key) {
  return std::string(key.above_least ? "above " : "from ") + bound_text(key, key.least) + (key.below_most ? " to below " : " to ") +
         bound_text(key, key.most);
}

Error not_allowed(const RunKey& key, const std::string& what) {
  return Error{Code::invalid_argument, what + ": " + std::string(key.name) + " is " + allowed(key)};
}

std::string in_quotes(std::string_view text) {
  std::string result = "\"";
  for (const char c : text.substr(0, 60)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      std::array<char, 8> escape{};
      std::snprintf(escape.data(), escape.size(), "\\x%02x", static_cast<unsigned>(byte));
      result += escape.data();
    } else {
      if (c == '"' || c == '\\') {
        result += '\\';
      }
      result += c;
    }
  }
  return result + (text.size() > 60 ? "…\"" : "\"");
}

// ---- checks --------------------------------------------------------------------------------------------------------

bool in_range(const RunKey& key, double value) {
  return std::isfinite(value) && (key.above_least ? value > key.least : value >= key.least) &&
         (key.below_most ? value < key.most : value <= key.most);
}

Status check_text(const RunKey& key, const std::string& value) {
  if (!key.choices.empty()) {
    if (std::ranges::find(key.choices, std::string_view(value)) == key.choices.end()) {
      return not_allowed(key, in_quotes(value) + " is not known");
    }
    return {};
  }
  if (value.empty() && key.least == 0) {
    return {};  // an optional text that is not given
  }
  if (value.size() > static_cast<std::size_t>(key.most) || !key.rule(value)) {
    return not_allowed(key, in_quotes(value) + " does not fit");
  }
  return {};
}

Status check_texts(const RunKey& key, const std::vector<std::string>& values) {
  if (values.size() > static_cast<std::size_t>(key.most)) {
    return not_allowed(key, std::to_string(values.size()) + " entries are too many");
  }
  for (const std::string& value : values) {
    if (!key.rule(value)) {
      return not_allowed(key, in_quotes(value) + " does not fit");
    }
  }
  return {};
}

Status put_integer(const RunKey& key, std::uint64_t value, RunSpec& spec) {
  if (value > static_cast<std::uint64_t>(kExact) || !in_range(key, static_cast<double>(value))) {
    return not_allowed(key, bound_text(key, static_cast<double>(value)) + " is out of range");
  }
  const RunKeyField field = key.field(spec);
  if (auto* const* narrow = std::get_if<std::uint32_t*>(&field)) {
    **narrow = static_cast<std::uint32_t>(value);
  } else if (auto* const* wide = std::get_if<std::uint64_t*>(&field)) {
    **wide = value;
  } else {
    *std::get<Duration*>(field) = std::chrono::milliseconds(value);
  }
  return {};
}

Status put_number(const RunKey& key, double value, RunSpec& spec) {
  if (!in_range(key, value)) {
    return not_allowed(key, plain_number(value) + " is out of range");
  }
  *std::get<double*>(key.field(spec)) = value;
  return {};
}

}  // namespace

std::span<const std::string_view> run_sections() { return kSections; }
std::span<const RunKey> run_keys() { return kKeys; }

const RunKey* find_run_key(std::string_view section, std::string_view name) {
  const auto found = std::ranges::find_if(kKeys, [&](const RunKey& key) { return key.section == section && key.name == name; });
  return found == kKeys.end() ? nullptr : &*found;
}

std::string allowed(const RunKey& key) {
  switch (key.type) {
    case text:
      if (!key.choices.empty()) {
        std::string all;
        for (const std::string_view choice : key.choices) {
          all += (all.empty() ? "one of " : ", ") + std::string(choice);
        }
        return all;
      }
      if (key.rule == is_name) {
        return "a text of at most " + std::to_string(static_cast<int>(key.most)) + " " + std::string(key.form);
      }
      return std::string(key.form);
    case texts: return "a list of at most " + std::to_string(static_cast<int>(key.most)) + " texts: " + std::string(key.form);
    case integer: return "an integer " + range_text(key);
    case number: return "a number " + range_text(key);
    case boolean: return "true or false";
    case size: return "a size like \"64MiB\", " + range_text(key);
    case duration: return "a time like \"30s\", " + range_text(key);
  }
  return {};
}

std::string toml_value(const RunKey& key, const RunSpec& spec) {
  const RunKeyValue value = value_of(key, spec);
  switch (key.type) {
    case text: return in_quotes(std::get<std::string>(value));
    case texts: {
      std::string list;
      for (const std::string& entry : std::get<std::vector<std::string>>(value)) {
        list += (list.empty() ? "" : ", ") + in_quotes(entry);
      }
      return "[" + list + "]";
    }
    case integer: return std::to_string(std::get<std::uint64_t>(value));
    case number: return plain_number(std::get<double>(value));
    case boolean: return std::get<bool>(value) ? "true" : "false";
    case size: return in_quotes(size_text(std::get<std::uint64_t>(value)));
    case duration: return in_quotes(duration_text(std::get<std::uint64_t>(value)));
  }
  return {};
}

std::string json_name(const RunKey& key) {
  return std::string(key.name) + (key.type == size ? "_bytes" : key.type == duration ? "_ms" : "");
}

Status assign(const RunKey& key, RunKeyValue value, RunSpec& spec) {
  switch (key.type) {
    case text:
      if (auto* given = std::get_if<std::string>(&value)) {
        ATOLL_TRY(check_text(key, *given));
        *std::get<std::string*>(key.field(spec)) = std::move(*given);
        return {};
      }
      break;
    case texts:
      if (auto* given = std::get_if<std::vector<std::string>>(&value)) {
        ATOLL_TRY(check_texts(key, *given));
        *std::get<std::vector<std::string>*>(key.field(spec)) = std::move(*given);
        return {};
      }
      break;
    case boolean:
      if (const auto* given = std::get_if<bool>(&value)) {
        *std::get<bool*>(key.field(spec)) = *given;
        return {};
      }
      break;
    case number:
      if (const auto* given = std::get_if<double>(&value)) {
        return put_number(key, *given, spec);
      }
      if (const auto* given = std::get_if<std::uint64_t>(&value)) {
        return put_number(key, static_cast<double>(*given), spec);
      }
      break;
    case integer:
    case size:
    case duration:
      if (const auto* given = std::get_if<std::uint64_t>(&value)) {
        return put_integer(key, *given, spec);
      }
      break;
  }
  return not_allowed(key, "the value has another type");
}

RunKeyValue value_of(const RunKey& key, const RunSpec& spec) {
  RunSpec copy = spec;
  return std::visit(
      [](auto* field) -> RunKeyValue {
        using Value = std::remove_pointer_t<decltype(field)>;
        if constexpr (std::is_same_v<Value, std::uint32_t>) {
          return std::uint64_t{*field};
        } else if constexpr (std::is_same_v<Value, Duration>) {
          return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(*field).count());
        } else {
          return *field;
        }
      },
      key.field(copy));
}

}  // namespace atl
