#include <ATen/ATen.h>

#include <algorithm>

#include "agent/island_link/arena.hpp"
#include "agent/trainer/diffusion/flow_matching.hpp"
#include "agent/trainer/diffusion/image_material.hpp"
#include "agent/trainer/objective.hpp"
#include "agent/trainer/torch_runtime.hpp"
#include "transport/base/rng.hpp"

namespace atl {
namespace {

using island_link::Configure;
using island_link::Manifest;

constexpr std::uint64_t kMeasuredAtOnce = 64;  // as the ensemble is measured, with the same noise

class ImageObjective : public Objective {
 public:
  ImageObjective(const Configure& configure, std::uint64_t own_seed, ImageMaterial material, const DitSizes& sizes, const at::Tensor& flat)
      : diffusion_(*configure.diffusion),
        seed_(configure.seed),
        noise_seed_(stream_of("noise of images", own_seed)),
        keeps_average_(configure.work || configure.diffusion->ema > 0),
        material_(std::move(material)),
        measured_(material_.evaluated(std::uint64_t{configure.training.evaluate_batches} * configure.training.batch)),
        manifest_{Dit::manifest(sizes).parameters, Dit::describe(sizes)},
        flat_(flat),
        model_(sizes, flat) {
    model_.initialize(own_seed);
  }

  const Manifest& manifest() const override { return manifest_; }
  const at::Tensor& parameters() const override { return flat_; }
  const std::vector<Leaf>& leaves() const override { return model_.leaves(); }

  Result<at::Tensor> loss(std::uint64_t position, std::uint64_t rows) const override {
    std::vector<std::size_t> chosen;
    for (std::uint64_t i = 0; i < rows; ++i) {
      chosen.push_back(images_from(material_.train, seed_, sequence(position + i), 1).front());
    }
    const std::uint64_t first = sequence(position);  // no other island's batch begins with it: each draws noise of its own
    const NoisedBatch noised = noised_batch(material_.batch(chosen), diffusion_.times, noise_seed_, first);
    const at::Tensor classes = classes_of(diffusion_, material_.images, model_.sizes(), chosen, noise_seed_, first);
    return flow_error(noised, classes);
  }

  // Mean squared error of the flow over all noise levels, without a condition, as of an ensemble.
  Result<std::optional<double>> held_out_loss(std::uint64_t) const override {
    if (measured_.empty()) {
      return std::optional<double>();
    }
    double sum = 0.0;
    for (std::size_t from = 0; from < measured_.size(); from += kMeasuredAtOnce) {
      const std::vector<std::size_t> some(
          measured_.begin() + static_cast<std::ptrdiff_t>(from),
          measured_.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(from + kMeasuredAtOnce, measured_.size())));
      const at::Tensor clean = material_.batch(some);
      for (std::size_t level = 0; level < kNoiseLevels; ++level) {
        const at::Tensor error = flow_error(noised_at_level(clean, level, seed_, from), {});
        sum += error.item<double>() * static_cast<double>(some.size());
      }
    }
    return std::optional<double>(sum / static_cast<double>(measured_.size() * kNoiseLevels));
  }
  std::uint64_t held_out_sequences() const override { return measured_.size(); }

  // An image counts as one.
  std::uint64_t tokens_per_sequence() const override { return 1; }
  std::uint64_t sequences_per_epoch() const override { return material_.train.size(); }
  std::string data_listing() const override { return material_.images.listing(); }
  std::string data_digest() const override { return material_.images.digest(); }
  std::optional<double> average_decay() const override { return keeps_average_ ? std::optional(diffusion_.ema) : std::nullopt; }

 private:
  [[nodiscard]] at::Tensor flow_error(const NoisedBatch& noised, const at::Tensor& classes) const {
    const at::Device device = flat_.device();
    const at::Tensor given = classes.defined() ? classes.to(device) : classes;
    const NoisedBatch there = noised.on(device);
    return at::mse_loss(model_.forward(there.x, there.t, given), there.velocity);
  }

  island_link::Diffusion diffusion_;
  std::uint64_t seed_;
  std::uint64_t noise_seed_;
  bool keeps_average_;
  ImageMaterial material_;
  std::vector<std::size_t> measured_;
  Manifest manifest_;
  at::Tensor flat_;
  Dit model_;
};

}  // namespace

Result<std::unique_ptr<Objective>> image_objective(const Configure& configure, const at::Device& device) {
  std::vector<island_link::TaskInput> inputs;
  std::optional<std::uint32_t> cluster;
  std::uint64_t own_seed = configure.seed;
  if (configure.work) {
    const auto input = std::ranges::find(configure.work->inputs, "clustering", &island_link::TaskInput::task);
    cluster = expert_number(configure.work->task);
    if (!cluster || input == configure.work->inputs.end()) {
      return Error{Code::invalid_argument,
                   "this trainer trains experts in rounds from their clustering, and was told of task '" + configure.work->task + "'"};
    }
    inputs = configure.work->inputs;
    own_seed = stream_of(configure.work->task, configure.seed);  // as of one that trains it alone
  }
  ATOLL_ASSIGN(ImageMaterial material, ImageMaterial::open(configure.data, configure.seed, inputs, cluster));
  ATOLL_ASSIGN(const DitSizes sizes, expert_sizes(configure.model, *configure.diffusion, facts_of(material.images)));
  if (material.train.size() < configure.training.batch) {
    return Error{Code::invalid_argument, "the data are too small: " + std::to_string(material.train.size()) +
                                             " images are there to train on, fewer than a batch of " +
                                             std::to_string(configure.training.batch) + " (give more images, or a smaller training.batch)"};
  }
  const auto count = static_cast<std::int64_t>(island_link::elements(Dit::manifest(sizes).parameters));
  ATOLL_TRY(fits_in_memory(count, device));
  const at::Tensor flat = at::empty({count}, at::TensorOptions(at::kFloat).device(device));
  return std::unique_ptr<Objective>(std::make_unique<ImageObjective>(configure, own_seed, std::move(material), sizes, flat));
}

}  // namespace atl
