#include "strategies/specification/run_keys.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "strategies/specification/run_rules.hpp"
#include "transport/base/bytes.hpp"

namespace atl {
namespace {

template <auto Member>
RunKeyField of_run(RunSpec& spec) {
  return &(spec.*Member);
}
template <auto Section, auto Member>
RunKeyField of(RunSpec& spec) {
  auto& field = spec.*Section.*Member;
  if constexpr (Choice<std::remove_reference_t<decltype(field)>>) {
    return reinterpret_cast<std::uint8_t*>(&field);  // the enum's underlying type, which may alias anything
  } else {
    return &field;
  }
}

using Choices = std::span<const std::string_view>;
constexpr std::array<std::string_view, 8> kFormats = {"bytes", "uint16", "uint32", "idx", "cifar10", "images", "npy", "safetensors"};
constexpr std::array<std::string_view, 3> kPrecisions = {"auto", "float32", "bf16"};
constexpr std::array<std::string_view, 6> kStrategies = {"diloco", "streaming-diloco",       "noloco", "data-parallel",
                                                         "local",  "decentralized-diffusion"};
constexpr std::array<std::string_view, 3> kClusterings = {"features", "labels", "random"};
constexpr std::array<std::string_view, 2> kTimes = {"uniform", "logit-normal"};

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
bool is_count(std::string_view text) { return parse_count(text).has_value(); }
bool is_sha256(std::string_view text) {
  return text.size() == 64 && std::ranges::all_of(text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}
bool is_https(std::string_view text) {
  return text.starts_with("https://") && text.size() > 8 && std::ranges::all_of(text, [](char c) { return c > ' ' && c < 0x7f; });
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

constexpr std::array<std::string_view, 10> kSections = {"run",      "model",     "trainer", "data",       "training",
                                                        "strategy", "diffusion", "islands", "checkpoint", "guards"};

// One row a key; the table in docs/run-file.md is printed from this.
const std::array kKeys = {
    RunKey{.section = "run",
           .name = "name",
           .type = text,
           .field = of_run<&RunSpec::name>,
           .least = 1,
           .most = 64,
           .form = kNameForm,
           .rule = is_name,
           .required = true,
           .doc = "Name of the run, as people see it."},
    RunKey{.section = "run",
           .name = "seed",
           .type = integer,
           .field = of_run<&RunSpec::seed>,
           .most = kExact,
           .doc = "Seed of the initial parameters and of the order of the data."},
    RunKey{.section = "run",
           .name = "arena_limit",
           .type = size,
           .field = of_run<&RunSpec::arena_limit_bytes>,
           .least = kMebi,
           .most = 16 * kTebi,
           .doc = "Most shared memory that the parameters may take. A model whose float32 parameters need more is refused."},

    RunKey{.section = "model",
           .name = "layers",
           .type = integer,
           .field = of<&RunSpec::model, &ModelSpec::layers>,
           .least = 1,
           .most = 1000,
           .doc = "Number of transformer blocks."},
    RunKey{.section = "model",
           .name = "width",
           .type = integer,
           .field = of<&RunSpec::model, &ModelSpec::width>,
           .least = 2,
           .most = 65536,
           .doc = "Width of the residual stream. Must be a multiple of 2 × heads; for image models, of heads and of 4."},
    RunKey{.section = "model",
           .name = "heads",
           .type = integer,
           .field = of<&RunSpec::model, &ModelSpec::heads>,
           .least = 1,
           .most = 1024,
           .doc = "Number of attention heads in a block."},
    RunKey{.section = "model",
           .name = "feed_forward",
           .type = integer,
           .field = of<&RunSpec::model, &ModelSpec::feed_forward>,
           .most = 262144,
           .doc = "Hidden width of the feed-forward layers. 0 chooses the width: for text (SwiGLU) 8/3 of width, rounded up to a multiple "
                  "of 32; for images (MLP) four times width."},
    RunKey{.section = "model",
           .name = "vocabulary",
           .type = integer,
           .field = of<&RunSpec::model, &ModelSpec::vocabulary>,
           .least = 2,
           .most = 1048576,
           .doc = "Number of distinct tokens. Must be at least 256 if the data are bytes."},
    RunKey{.section = "model",
           .name = "tied_embeddings",
           .type = boolean,
           .field = of<&RunSpec::model, &ModelSpec::tied_embeddings>,
           .doc = "Whether the output layer is the transposed token embedding."},

    RunKey{.section = "trainer",
           .name = "name",
           .type = text,
           .field = of<&RunSpec::trainer, &TrainerSpec::name>,
           .most = 64,
           .form = kNameForm,
           .rule = is_name,
           .doc =
               "Name of a training program of the islands' owners, which takes the built-in trainer's place (`agent --trainer "
               "NAME=COMMAND`). There is no [model] then, and [data] is optional. [trainer.settings] is handed to the program as it is."},
    RunKey{.section = "trainer",
           .name = "ranks",
           .type = integer,
           .field = of<&RunSpec::trainer, &TrainerSpec::ranks>,
           .most = 100000,
           .doc = "Number of processes that the trainer must have on each island. 0 means any number."},
    RunKey{.section = "trainer",
           .name = "start_within",
           .type = duration,
           .field = of<&RunSpec::trainer, &TrainerSpec::start_within>,
           .least = 1000,
           .most = 7.0 * 86'400'000,
           .doc = "Time that the trainer has from its start until it is ready. Silence is no reason to end it before."},
    RunKey{.section = "trainer",
           .name = "parameters",
           .type = text,
           .field = of<&RunSpec::trainer, &TrainerSpec::parameters>,
           .most = 32,
           .form = "a number like \"1.3B\" or \"350M\"",
           .rule = is_count,
           .doc = "Number of synchronised parameters, for `plan` and `validate`. The trainer's own word counts in a run."},
    RunKey{.section = "trainer",
           .name = "tokens_per_sample",
           .type = integer,
           .field = of<&RunSpec::trainer, &TrainerSpec::tokens_per_sample>,
           .least = 1,
           .most = 1e9,
           .doc = "What a sample of the trainer counts in tokens."},
    RunKey{.section = "trainer",
           .name = "same_code",
           .type = boolean,
           .field = of<&RunSpec::trainer, &TrainerSpec::same_code>,
           .doc = "Whether an island whose trainer says another version than the others' is refused. The Python package says the digest of "
                  "the program's main file."},

    RunKey{.section = "data",
           .name = "set",
           .type = text,
           .field = of<&RunSpec::data, &DataSpec::set>,
           .most = 64,
           .form = kNameForm,
           .rule = is_name,
           .doc = "Name of a data set, which each agent maps to files of its own (`agent --data NAME=PATH`). Give exactly one of set, "
                  "files and url."},
    RunKey{.section = "data",
           .name = "files",
           .type = texts,
           .field = of<&RunSpec::data, &DataSpec::files>,
           .most = 1000,
           .form = "paths without control characters",
           .rule = is_path,
           .doc = "Paths or globs on the island. The island's owner must have allowed them (`agent --allow-data DIR`). Relative paths "
                  "begin at the run file's folder with `local`, and else at the agent's working directory."},
    RunKey{.section = "data",
           .name = "url",
           .type = text,
           .field = of<&RunSpec::data, &DataSpec::url>,
           .most = 4096,
           .form = "an https:// address",
           .rule = is_https,
           .doc = "Address of a file, which each island downloads once and caches. Needs sha256."},
    RunKey{.section = "data",
           .name = "sha256",
           .type = text,
           .field = of<&RunSpec::data, &DataSpec::sha256>,
           .most = 64,
           .form = "64 lower-case hexadecimal digits",
           .rule = is_sha256,
           .doc = "SHA-256 of the file at url. A file with another digest is refused."},
    RunKey{.section = "data",
           .name = "format",
           .type = text,
           .field = of<&RunSpec::data, &DataSpec::format>,
           .choices = kFormats,
           .doc = "Format of the files. For text: bytes (each byte is a token), or uint16 and uint32 (shards of tokens as nanoGPT and "
                  "llm.c write them). For images: idx (MNIST, also as .gz), cifar10 (its binary version), images (PNG and JPEG files), npy "
                  "(NumPy arrays), safetensors (shards)."},
    RunKey{.section = "data",
           .name = "validation_fraction",
           .type = number,
           .field = of<&RunSpec::data, &DataSpec::validation_fraction>,
           .least = 0,
           .most = 0.5,
           .above_least = true,
           .doc = "Fraction of the data that is held out for validation: the last tokens, or images that are drawn with the seed."},
    RunKey{.section = "data",
           .name = "parts",
           .type = integer,
           .field = of<&RunSpec::data, &DataSpec::parts>,
           .most = 100000,
           .doc = "Number of disjoint parts of the data, of which each island has one. 0 means islands.max."},
    RunKey{.section = "data",
           .name = "spread",
           .type = integer,
           .field = of<&RunSpec::data, &DataSpec::spread>,
           .most = kMaxSpread,
           .doc = "For decentralized-diffusion: number of islands that have images of their own. Together these images are the data set, "
                  "and the other islands fetch them. 0 means that every island has the whole set."},

    RunKey{.section = "training",
           .name = "steps",
           .type = integer,
           .field = of<&RunSpec::training, &TrainingSpec::steps>,
           .least = 1,
           .most = 1e12,
           .required = true,
           .doc = "Number of inner steps of each island in the whole run."},
    RunKey{.section = "training",
           .name = "batch",
           .type = integer,
           .field = of<&RunSpec::training, &TrainingSpec::batch>,
           .least = 1,
           .most = 65536,
           .doc = "Number of sequences, or images, in an inner step of one island."},
    RunKey{.section = "training",
           .name = "sequence_length",
           .type = integer,
           .field = of<&RunSpec::training, &TrainingSpec::sequence_length>,
           .least = 2,
           .most = 1048576,
           .doc = "Number of tokens in a sequence."},
    RunKey{.section = "training",
           .name = "accumulation",
           .type = integer,
           .field = of<&RunSpec::training, &TrainingSpec::accumulation>,
           .least = 1,
           .most = 65536,
           .doc = "Number of micro-batches in an inner step. Must divide batch."},
    RunKey{.section = "training",
           .name = "learning_rate",
           .type = number,
           .field = of<&RunSpec::training, &TrainingSpec::learning_rate>,
           .least = 0,
           .most = 10,
           .above_least = true,
           .doc = "AdamW's learning rate after the warm-up."},
    RunKey{
        .section = "training",
        .name = "warmup_steps",
        .type = integer,
        .field = of<&RunSpec::training, &TrainingSpec::warmup_steps>,
        .most = 1e12,
        .doc =
            "Number of inner steps over which the learning rate rises linearly. If the run file does not say, at most a tenth of steps."},
    RunKey{.section = "training",
           .name = "final_learning_rate",
           .type = number,
           .field = of<&RunSpec::training, &TrainingSpec::final_learning_rate>,
           .least = 0,
           .most = 1,
           .doc = "Fraction of learning_rate at which the cosine decay ends."},
    RunKey{.section = "training",
           .name = "weight_decay",
           .type = number,
           .field = of<&RunSpec::training, &TrainingSpec::weight_decay>,
           .least = 0,
           .most = 10,
           .doc = "AdamW's weight decay. It applies to matrices; vectors have none."},
    RunKey{.section = "training",
           .name = "beta1",
           .type = number,
           .field = of<&RunSpec::training, &TrainingSpec::beta1>,
           .least = 0,
           .most = 1,
           .below_most = true,
           .doc = "AdamW's decay of the first moment."},
    RunKey{.section = "training",
           .name = "beta2",
           .type = number,
           .field = of<&RunSpec::training, &TrainingSpec::beta2>,
           .least = 0,
           .most = 1,
           .below_most = true,
           .doc = "AdamW's decay of the second moment."},
    RunKey{.section = "training",
           .name = "epsilon",
           .type = number,
           .field = of<&RunSpec::training, &TrainingSpec::epsilon>,
           .least = 0,
           .most = 1,
           .above_least = true,
           .doc = "AdamW's epsilon, the summand in the denominator."},
    RunKey{.section = "training",
           .name = "clip_norm",
           .type = number,
           .field = of<&RunSpec::training, &TrainingSpec::clip_norm>,
           .least = 0,
           .most = 1e6,
           .doc = "Largest norm of a gradient. A larger gradient is scaled down to this norm. 0 means no limit."},
    RunKey{.section = "training",
           .name = "max_steps_per_second",
           .type = number,
           .field = of<&RunSpec::training, &TrainingSpec::max_steps_per_second>,
           .least = 0,
           .most = 1e6,
           .doc = "Most inner steps per second, for a machine that is shared. 0 means no limit."},
    RunKey{.section = "training",
           .name = "device",
           .type = text,
           .field = of<&RunSpec::training, &TrainingSpec::device>,
           .least = 1,
           .most = 16,
           .form = "auto, cpu or cuda:N",
           .rule = is_device,
           .doc = "Device that trains. auto takes the first CUDA device if there is one, else the CPU."},
    RunKey{.section = "training",
           .name = "precision",
           .type = text,
           .field = of<&RunSpec::training, &TrainingSpec::precision>,
           .choices = kPrecisions,
           .doc = "Precision of the arithmetic. bf16 is autocast and needs CUDA. auto takes bf16 on CUDA, and float32 elsewhere."},
    RunKey{.section = "training",
           .name = "threads",
           .type = integer,
           .field = of<&RunSpec::training, &TrainingSpec::threads>,
           .least = 1,
           .most = 1024,
           .doc = "Number of CPU threads of the trainer's arithmetic."},
    RunKey{.section = "training",
           .name = "evaluate_every",
           .type = integer,
           .field = of<&RunSpec::training, &TrainingSpec::evaluate_every>,
           .most = 1e9,
           .doc = "Number of rounds between two validations. 0 means only at the start and at the end."},
    RunKey{.section = "training",
           .name = "evaluate_batches",
           .type = integer,
           .field = of<&RunSpec::training, &TrainingSpec::evaluate_batches>,
           .least = 1,
           .most = 1e6,
           .doc = "Number of batches in a validation."},

    RunKey{.section = "strategy",
           .name = "name",
           .type = text,
           .field = of<&RunSpec::strategy, &StrategySpec::name>,
           .choices = kStrategies,
           .doc = "Named set of values for the keys below."},
    RunKey{.section = "strategy",
           .name = "grouping",
           .type = text,
           .field = of<&RunSpec::strategy, &StrategySpec::grouping>,
           .choices = kFragmentKinds,
           .doc = "What is synchronised together: the whole model, consecutive layers (sequential), layers at equal distances (strided), "
                  "or slices of equal size (balanced). Where layers are grouped, embeddings and head are one more fragment."},
    RunKey{.section = "strategy",
           .name = "fragments",
           .type = integer,
           .field = of<&RunSpec::strategy, &StrategySpec::fragments>,
           .most = 10000,
           .doc = "Number of fragments. For layers it is at most model.layers. 0 means that layers_per_fragment decides."},
    RunKey{.section = "strategy",
           .name = "layers_per_fragment",
           .type = integer,
           .field = of<&RunSpec::strategy, &StrategySpec::layers_per_fragment>,
           .least = 1,
           .most = 1000,
           .doc = "Number of layers in a fragment, if fragments is 0."},
    RunKey{.section = "strategy",
           .name = "inner_steps",
           .type = integer,
           .field = of<&RunSpec::strategy, &StrategySpec::inner_steps>,
           .least = 1,
           .most = 1e9,
           .doc = "H: number of inner steps between two synchronisations of a fragment. With adaptive pace, the most that an island does. "
                  "1 with data-parallel."},
    RunKey{
        .section = "strategy",
        .name = "offset",
        .type = integer,
        .field = of<&RunSpec::strategy, &StrategySpec::offset>,
        .most = 1e9,
        .doc = "Number of inner steps before the first synchronisation of the first fragment. At most inner_steps. 0 means inner_steps."},
    RunKey{.section = "strategy",
           .name = "pace",
           .type = text,
           .field = of<&RunSpec::strategy, &StrategySpec::pace>,
           .choices = kPaces,
           .doc = "How many inner steps an island does for a round. fixed: every island does inner_steps. adaptive: the fastest island "
                  "does inner_steps, and the others do as many as they can in that time. In pairs, adaptive means that the slower partner "
                  "does as many as it can until the other has come."},
    RunKey{.section = "strategy",
           .name = "min_inner_steps",
           .type = integer,
           .field = of<&RunSpec::strategy, &StrategySpec::min_inner_steps>,
           .least = 1,
           .most = 1e12,
           .doc = "Fewest inner steps that an island does for a round with adaptive pace, however slow it is."},
    RunKey{.section = "strategy",
           .name = "group",
           .type = text,
           .field = of<&RunSpec::strategy, &StrategySpec::group>,
           .choices = kGroups,
           .doc = "With whom an island synchronises: with all islands, in random pairs, with nobody, or with the islands "
                  "that train the same expert (decentralized-diffusion with more islands than experts)."},
    RunKey{
        .section = "strategy",
        .name = "payload",
        .type = text,
        .field = of<&RunSpec::strategy, &StrategySpec::payload>,
        .choices = kPayloads,
        .doc = "What an island sends: the way that its parameters have come since the last synchronisation (outer-gradient), the gradient "
               "of a step, or its parameters. The mean of gradients and parameters is taken as it is (outer_optimizer = adopt)."},
    RunKey{.section = "strategy",
           .name = "codec",
           .type = text,
           .field = of<&RunSpec::strategy, &StrategySpec::codec>,
           .choices = kCodecKinds,
           .doc = "Number format in which a contribution is sent."},
    RunKey{.section = "strategy",
           .name = "reduce_codec",
           .type = text,
           .field = of<&RunSpec::strategy, &StrategySpec::reduce_codec>,
           .choices = kCodecKinds,
           .doc = "Number format in which the result of three or more islands is sent."},
    RunKey{.section = "strategy",
           .name = "codec_block",
           .type = integer,
           .field = of<&RunSpec::strategy, &StrategySpec::codec_block>,
           .least = 16,
           .most = 65536,
           .doc = "Number of values that share a scale in int8 and fp4. Must be a multiple of 16."},
    RunKey{.section = "strategy",
           .name = "rounding",
           .type = text,
           .field = of<&RunSpec::strategy, &StrategySpec::rounding>,
           .choices = kRoundings,
           .doc = "How the codec rounds a contribution's values. stochastic is seeded, and right on average."},
    RunKey{.section = "strategy",
           .name = "error_feedback",
           .type = boolean,
           .field = of<&RunSpec::strategy, &StrategySpec::error_feedback>,
           .doc = "Whether what the codec's rounding took from a fragment's contribution is added to its next one. Takes 4 more bytes of "
                  "memory per parameter."},
    RunKey{.section = "strategy",
           .name = "outer_optimizer",
           .type = text,
           .field = of<&RunSpec::strategy, &StrategySpec::outer_optimizer>,
           .choices = kOuterOptimizers,
           .doc = "How the synchronised parameters move. heavy-ball is momentum without look-ahead. adopt takes the result as it is, and "
                  "belongs to payloads gradient and parameters."},
    RunKey{.section = "strategy",
           .name = "outer_learning_rate",
           .type = number,
           .field = of<&RunSpec::strategy, &StrategySpec::outer_learning_rate>,
           .least = 0,
           .most = 10,
           .above_least = true,
           .doc = "Learning rate of the outer optimiser. adopt has none."},
    RunKey{.section = "strategy",
           .name = "outer_momentum",
           .type = number,
           .field = of<&RunSpec::strategy, &StrategySpec::outer_momentum>,
           .least = 0,
           .most = 1,
           .below_most = true,
           .doc = "Momentum of nesterov and heavy-ball."},
    RunKey{.section = "strategy",
           .name = "merge_alpha",
           .type = number,
           .field = of<&RunSpec::strategy, &StrategySpec::merge_alpha>,
           .least = 0,
           .most = 1,
           .doc = "Weight of the local parameters when a trainer merges a result. 0 takes the global parameters."},
    RunKey{.section = "strategy",
           .name = "overlap_steps",
           .type = integer,
           .field = of<&RunSpec::strategy, &StrategySpec::overlap_steps>,
           .most = 1e9,
           .doc = "τ: number of inner steps between a contribution and its merge. At most inner_steps, and less where merge_alpha is 0."},
    RunKey{
        .section = "strategy",
        .name = "weighting",
        .type = text,
        .field = of<&RunSpec::strategy, &StrategySpec::weighting>,
        .choices = kWeightings,
        .doc = "Whether a contribution counts by the tokens behind it, or every contribution counts the same. Pairs are always uniform."},
    RunKey{.section = "strategy",
           .name = "aggregator",
           .type = text,
           .field = of<&RunSpec::strategy, &StrategySpec::aggregator>,
           .choices = kAggregators,
           .doc = kAggregatorsDoc},
    RunKey{
        .section = "strategy",
        .name = "group_size",
        .type = integer,
        .field = of<&RunSpec::strategy, &StrategySpec::group_size>,
        .least = 2,
        .most = 64,
        .doc =
            "In pairs: number of islands that meet in a round, if two are not enough. Islands that are left over take their steps alone."},
    RunKey{.section = "strategy",
           .name = "outer_pull",
           .type = number,
           .field = of<&RunSpec::strategy, &StrategySpec::outer_pull>,
           .most = 10,
           .doc = "In pairs: NoLoCo's γ, how strongly an island's outer parameters are pulled to the pair's mean. NoLoCo's α is "
                  "outer_momentum and its β is outer_learning_rate. In groups of n, with k = n / (2(n − 1)), γ must lie between "
                  "sqrt(k)·outer_momentum and sqrt(k·(2 + outer_momentum²)), the interval of the proof."},
    RunKey{.section = "strategy",
           .name = "allow_unstable",
           .type = boolean,
           .field = of<&RunSpec::strategy, &StrategySpec::allow_unstable>,
           .doc = "Whether outer_pull may lie outside the interval of the proof."},
    RunKey{.section = "strategy",
           .name = "parameters_codec",
           .type = text,
           .field = of<&RunSpec::strategy, &StrategySpec::parameters_codec>,
           .choices = kCodecKinds,
           .doc = "In pairs: number format in which outer parameters are sent."},
    RunKey{.section = "strategy",
           .name = "max_skew",
           .type = integer,
           .field = of<&RunSpec::strategy, &StrategySpec::max_skew>,
           .most = 1e9,
           .doc = "In pairs: a partner that is more rounds behind than this is not waited for."},
    RunKey{.section = "strategy",
           .name = "final_merge",
           .type = boolean,
           .field = of<&RunSpec::strategy, &StrategySpec::final_merge>,
           .doc = "In pairs: whether the run ends with the mean of all islands' outer parameters, weighted by the tokens behind them."},

    RunKey{.section = "diffusion",
           .name = "experts",
           .type = integer,
           .field = of<&RunSpec::diffusion, &DiffusionSpec::experts>,
           .least = 1,
           .most = 1000,
           .doc = "Number of experts in the ensemble, one for each cluster of the images. 1 means one model of all images, and no router."},
    RunKey{
        .section = "diffusion",
        .name = "clusters_by",
        .type = text,
        .field = of<&RunSpec::diffusion, &DiffusionSpec::clusters_by>,
        .choices = kClusterings,
        .doc = "What splits the images into clusters: two stages of k-means over features, the labels in their order, or chance (random)."},
    RunKey{.section = "diffusion",
           .name = "features",
           .type = text,
           .field = of<&RunSpec::diffusion, &DiffusionSpec::features>,
           .most = 4200,
           .form = "pixels-pca, npy:FILE or torchscript:FILE",
           .rule = is_features,
           .doc = "What k-means clusters: principal components of the pixels, a NumPy array [images, width], or what a TorchScript model "
                  "makes of a batch of images. FILE is on the island, and its owner must have allowed it. With `local`, FILE begins at the "
                  "run file's folder."},
    RunKey{.section = "diffusion",
           .name = "feature_width",
           .type = integer,
           .field = of<&RunSpec::diffusion, &DiffusionSpec::feature_width>,
           .least = 1,
           .most = 4096,
           .doc = "Number of principal components of the pixels. At most the number of values in an image."},
    RunKey{.section = "diffusion",
           .name = "fine_clusters",
           .type = integer,
           .field = of<&RunSpec::diffusion, &DiffusionSpec::fine_clusters>,
           .least = 1,
           .most = 65536,
           .doc = "Number of clusters in the first stage of k-means. At least experts."},
    RunKey{.section = "diffusion",
           .name = "balance",
           .type = number,
           .field = of<&RunSpec::diffusion, &DiffusionSpec::balance>,
           .most = 1000,
           .doc = "Largest size of a cluster, as a multiple of the mean size; at least 1. 0 means no limit."},
    RunKey{.section = "diffusion",
           .name = "patch",
           .type = integer,
           .field = of<&RunSpec::diffusion, &DiffusionSpec::patch>,
           .least = 1,
           .most = 64,
           .doc = "Side of a token, in pixels. Must divide the height and width of the images."},
    RunKey{.section = "diffusion",
           .name = "conditional",
           .type = boolean,
           .field = of<&RunSpec::diffusion, &DiffusionSpec::conditional>,
           .doc = "Whether experts are told the class of an image, if the data set has labels."},
    RunKey{.section = "diffusion",
           .name = "class_dropout",
           .type = number,
           .field = of<&RunSpec::diffusion, &DiffusionSpec::class_dropout>,
           .most = 1,
           .below_most = true,
           .doc = "Fraction of the training images whose class is hidden, so that samples can be guided."},
    RunKey{.section = "diffusion",
           .name = "times",
           .type = text,
           .field = of<&RunSpec::diffusion, &DiffusionSpec::times>,
           .choices = kTimes,
           .doc = "Distribution from which the noise levels of training are drawn."},
    RunKey{.section = "diffusion",
           .name = "ema",
           .type = number,
           .field = of<&RunSpec::diffusion, &DiffusionSpec::ema>,
           .most = 1,
           .below_most = true,
           .doc = "Decay of the moving average of an expert's parameters. The average is what is exported."},
    RunKey{.section = "diffusion",
           .name = "router_patch",
           .type = integer,
           .field = of<&RunSpec::diffusion, &DiffusionSpec::router_patch>,
           .most = 64,
           .doc = "Side of a token for the router, in pixels. The router needs less detail than the experts: 7 instead of 4 is a third of "
                  "its work. 0 means the same as patch."},
    RunKey{.section = "diffusion",
           .name = "router_layers",
           .type = integer,
           .field = of<&RunSpec::diffusion, &DiffusionSpec::router_layers>,
           .least = 1,
           .most = 1000,
           .doc = "Number of transformer blocks of the router, which is smaller than an expert."},
    RunKey{.section = "diffusion",
           .name = "router_width",
           .type = integer,
           .field = of<&RunSpec::diffusion, &DiffusionSpec::router_width>,
           .least = 4,
           .most = 65536,
           .doc = "Width of the router's residual stream. Must be a multiple of 4 and of router_heads."},
    RunKey{.section = "diffusion",
           .name = "router_heads",
           .type = integer,
           .field = of<&RunSpec::diffusion, &DiffusionSpec::router_heads>,
           .least = 1,
           .most = 1024,
           .doc = "Number of attention heads in a block of the router."},
    RunKey{.section = "diffusion",
           .name = "router_steps",
           .type = integer,
           .field = of<&RunSpec::diffusion, &DiffusionSpec::router_steps>,
           .least = 1,
           .most = 1e12,
           .doc = "Number of steps for which the router is trained."},
    RunKey{.section = "diffusion",
           .name = "router_batch",
           .type = integer,
           .field = of<&RunSpec::diffusion, &DiffusionSpec::router_batch>,
           .least = 1,
           .most = 65536,
           .doc = "Number of images in a step of the router."},
    RunKey{.section = "diffusion",
           .name = "router_learning_rate",
           .type = number,
           .field = of<&RunSpec::diffusion, &DiffusionSpec::router_learning_rate>,
           .least = 0,
           .most = 10,
           .above_least = true,
           .doc = "Learning rate of the router's AdamW after the warm-up."},
    RunKey{.section = "diffusion",
           .name = "distill_steps",
           .type = integer,
           .field = of<&RunSpec::diffusion, &DiffusionSpec::distill_steps>,
           .most = 1e12,
           .doc = "Number of steps for which one dense model of an expert's size is trained to give the flow that each image's own expert "
                  "gives. 0 means no dense model."},
    RunKey{.section = "diffusion",
           .name = "distill_batch",
           .type = integer,
           .field = of<&RunSpec::diffusion, &DiffusionSpec::distill_batch>,
           .least = 1,
           .most = 65536,
           .doc = "Number of images in a step of the dense model."},
    RunKey{.section = "diffusion",
           .name = "save_every",
           .type = integer,
           .field = of<&RunSpec::diffusion, &DiffusionSpec::save_every>,
           .most = 1e12,
           .doc = "Number of steps after which a task's checkpoint is copied to another island. 0 means no copies."},

    RunKey{.section = "islands",
           .name = "min",
           .type = integer,
           .field = of<&RunSpec::islands, &IslandsSpec::min>,
           .least = 1,
           .most = 1000,
           .doc = "Fewest islands with which the run goes on. With fewer it waits."},
    RunKey{.section = "islands",
           .name = "max",
           .type = integer,
           .field = of<&RunSpec::islands, &IslandsSpec::max>,
           .least = 1,
           .most = 1000,
           .doc = "Most islands that take part. Further islands are not taken."},
    RunKey{.section = "islands",
           .name = "deadline",
           .type = duration,
           .field = of<&RunSpec::islands, &IslandsSpec::deadline>,
           .least = 1000,
           .most = 7 * 86400e3,
           .doc = "Longest time for which a round waits for islands. Then it starts with those that are ready, if they are at least min. "
                  "In pairs: longest time for which a partner is waited for."},
    RunKey{.section = "islands",
           .name = "straggler_factor",
           .type = number,
           .field = of<&RunSpec::islands, &IslandsSpec::straggler_factor>,
           .least = 0,
           .most = 1e6,
           .doc = "A round starts without islands that need more than this many times the first island's time; they join the next round. "
                  "At least 1. 0 means that only deadline ends the wait."},
    RunKey{.section = "islands",
           .name = "uplink",
           .type = text,
           .field = of<&RunSpec::islands, &IslandsSpec::uplink>,
           .most = 32,
           .form = "a rate like \"20mbit\", at least 500kbit",
           .rule = is_uplink,
           .doc = "Most that each island sends to the others for this run, in bits per second. An agent's own limit (`agent --uplink`) "
                  "holds beside it."},
    RunKey{.section = "islands",
           .name = "names",
           .type = texts,
           .field = of<&RunSpec::islands, &IslandsSpec::names>,
           .most = 1000,
           .form = "names of islands",
           .rule = is_name,
           .doc = "Names of the islands that may take part. If empty, any island may."},
    RunKey{.section = "islands",
           .name = "overlap_steps",
           .type = texts,
           .field = of<&RunSpec::islands, &IslandsSpec::overlap_steps>,
           .most = 1000,
           .form = "\"NAME=STEPS\"",
           .rule = is_own_overlap_entry,
           .doc = "A τ of its own for an island whose links are slower or quicker than the others'. The rounds stay those of "
                  "strategy.overlap_steps."},

    RunKey{.section = "checkpoint",
           .name = "every_rounds",
           .type = integer,
           .field = of<&RunSpec::checkpoint, &CheckpointSpec::every_rounds>,
           .least = 1,
           .most = 1e9,
           .doc = "Number of rounds between two checkpoints. The last round always has one."},
    RunKey{.section = "checkpoint",
           .name = "keep",
           .type = integer,
           .field = of<&RunSpec::checkpoint, &CheckpointSpec::keep>,
           .least = 1,
           .most = 1000,
           .doc = "Number of checkpoints that an island keeps, the newest ones."},
    RunKey{.section = "guards",
           .name = "norm_factor",
           .type = number,
           .field = of<&RunSpec::guards, &GuardsSpec::norm_factor>,
           .least = 0,
           .most = 1e9,
           .doc = "A contribution does not count if its norm is more than this many times the running median. 0 means no such guard. In "
                  "pairs every island judges by the norms that it has seen."},
    RunKey{.section = "guards",
           .name = "quarantine_after",
           .type = integer,
           .field = of<&RunSpec::guards, &GuardsSpec::quarantine_after>,
           .least = 0,
           .most = 1e6,
           .doc = "Number of rejections after which an island is kept out until the run is resumed. Ten accepted contributions in a row "
                  "clear the count. 0 means never."},
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
  static constexpr std::array<TextUnit, 5> kUnits = {
      {{1ULL << 40, "TiB"}, {1ULL << 30, "GiB"}, {1ULL << 20, "MiB"}, {1ULL << 10, "KiB"}, {1, "B"}}};
  return in_largest_unit(bytes, kUnits);
}
std::string duration_text(std::uint64_t milliseconds) {
  static constexpr std::array<TextUnit, 5> kUnits = {{{86'400'000, "d"}, {3'600'000, "h"}, {60'000, "m"}, {1000, "s"}, {1, "ms"}}};
  return in_largest_unit(milliseconds, kUnits);
}

std::string bound_text(const RunKey& key, double bound) {
  switch (key.type) {
    case size:
      return size_text(static_cast<std::uint64_t>(bound));
    case duration:
      return duration_text(static_cast<std::uint64_t>(bound));
    case integer:
      return std::to_string(static_cast<std::uint64_t>(bound));
    default:
      return plain_number(bound);
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

void put_text(const RunKey& key, std::string value, RunSpec& spec) {
  const RunKeyField field = key.field(spec);
  if (auto* const* choice = std::get_if<std::uint8_t*>(&field)) {
    **choice = static_cast<std::uint8_t>(std::ranges::find(key.choices, std::string_view(value)) - key.choices.begin());
  } else {
    *std::get<std::string*>(field) = std::move(value);
  }
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
    case texts:
      return "a list of at most " + std::to_string(static_cast<int>(key.most)) + " texts: " + std::string(key.form);
    case integer:
      return "an integer " + range_text(key);
    case number:
      return "a number " + range_text(key);
    case boolean:
      return "true or false";
    case size:
      return "a size like \"64MiB\", " + range_text(key);
    case duration:
      return "a time like \"30s\", " + range_text(key);
  }
  return {};
}

std::string toml_value(const RunKey& key, const RunSpec& spec) {
  const RunKeyValue value = value_of(key, spec);
  switch (key.type) {
    case text:
      return in_quotes(std::get<std::string>(value));
    case texts: {
      std::string list;
      for (const std::string& entry : std::get<std::vector<std::string>>(value)) {
        list += (list.empty() ? "" : ", ") + in_quotes(entry);
      }
      return "[" + list + "]";
    }
    case integer:
      return std::to_string(std::get<std::uint64_t>(value));
    case number:
      return plain_number(std::get<double>(value));
    case boolean:
      return std::get<bool>(value) ? "true" : "false";
    case size:
      return in_quotes(size_text(std::get<std::uint64_t>(value)));
    case duration:
      return in_quotes(duration_text(std::get<std::uint64_t>(value)));
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
        put_text(key, std::move(*given), spec);
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
      [&](auto* field) -> RunKeyValue {
        using Value = std::remove_pointer_t<decltype(field)>;
        if constexpr (std::is_same_v<Value, std::uint8_t>) {
          return std::string(key.choices[*field]);
        } else if constexpr (std::is_same_v<Value, std::uint32_t>) {
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
