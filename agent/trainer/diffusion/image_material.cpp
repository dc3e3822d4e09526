#include "agent/trainer/diffusion/image_material.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <charconv>

#include "agent/storage/safetensors.hpp"
#include "agent/trainer/data/data_order.hpp"
#include "transport/base/rng.hpp"

namespace atl {

Result<ImageMaterial> ImageMaterial::open(const island_link::Data& data, std::uint64_t seed,
                                          const std::vector<island_link::TaskInput>& inputs, std::optional<std::uint32_t> cluster) {
  ATOLL_ASSIGN(SplitImages split, open_images(data, seed, inputs));
  ImageMaterial material{std::move(split.images), {}, {}, {}};
  const std::size_t count = material.images.count();
  if (const auto clustering = std::ranges::find(inputs, "clustering", &island_link::TaskInput::task); clustering != inputs.end()) {
    ATOLL_ASSIGN(const SafetensorsFile file, SafetensorsFile::open(clustering->path));
    ATOLL_ASSIGN(const std::span<const float> assignment, file.floats("assignment"));
    if (assignment.size() != count) {
      return Error{Code::invalid_argument, "the clustering is of " + std::to_string(assignment.size()) +
                                               " images and the data set here has " + std::to_string(count) +
                                               ": the islands' data sets differ"};
    }
    material.assignment.assign(assignment.begin(), assignment.end());
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (!cluster || material.assignment[i] == *cluster) {
      (split.held[i] ? material.held : material.train).push_back(i);
    }
  }
  return material;
}

at::Tensor ImageMaterial::batch(const std::vector<std::size_t>& chosen) const {
  const ImageShape& shape = images.shape();
  at::Tensor values = at::empty({static_cast<std::int64_t>(chosen.size()), shape.channels, shape.height, shape.width}, at::kFloat);
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    images.read(chosen[i], {values.data_ptr<float>() + i * shape.values(), shape.values()});
  }
  return values;
}

std::vector<std::size_t> ImageMaterial::evaluated(std::uint64_t most) const { return spread_evenly(held, most); }

std::vector<std::size_t> images_from(const std::vector<std::size_t>& all, std::uint64_t seed, std::uint64_t first, std::uint64_t count) {
  std::vector<std::size_t> chosen;
  for (std::uint64_t i = first; i < first + count; ++i) {
    const std::uint64_t pass = i / all.size();
    chosen.push_back(all[Permutation(all.size(), stream_of("epoch", seed ^ (pass << 20))).at(i % all.size())]);
  }
  return chosen;
}

at::Tensor classes_of(const island_link::Diffusion& diffusion, const ImageSet& images, const DitSizes& sizes,
                      const std::vector<std::size_t>& chosen, std::uint64_t seed, std::uint64_t step) {
  std::vector<std::int64_t> labels(chosen.size(), 0);
  Rng rng(seed, stream_of("class dropout", step));
  for (std::size_t i = 0; i < chosen.size() && sizes.classes > 0; ++i) {
    labels[i] = rng.chance(diffusion.class_dropout) ? sizes.classes : images.labels()[chosen[i]];
  }
  return at::tensor(labels, at::kLong);
}

std::optional<std::uint32_t> expert_number(const std::string& task) {
  constexpr std::string_view kPrefix = "experts/";
  std::uint32_t number = 0;
  const char* end = task.data() + task.size();
  const bool good =
      task.starts_with(kPrefix) && task.size() > kPrefix.size() && std::from_chars(task.data() + kPrefix.size(), end, number).ptr == end;
  return good ? std::optional(number) : std::nullopt;
}

Result<DitSizes> expert_sizes(const island_link::Model& model, const island_link::Diffusion& diffusion, const ImageFacts& images) {
  if (diffusion.conditional && images.classes == 0) {
    return Error{Code::invalid_argument, "diffusion.conditional needs labels, and the data set has none"};
  }
  return Dit::checked({images.shape, diffusion.patch, model.layers, model.width, model.heads, model.feed_forward,
                       diffusion.conditional ? images.classes : 0, 0});
}

Result<DitSizes> router_sizes(const island_link::Diffusion& diffusion, const ImageFacts& images) {
  const std::uint32_t patch = diffusion.router_patch == 0 ? diffusion.patch : diffusion.router_patch;
  return Dit::checked(
      {images.shape, patch, diffusion.router_layers, diffusion.router_width, diffusion.router_heads, 0, 0, diffusion.experts});
}

Result<const island_link::TaskInput*> input_of(const island_link::Task& task, std::string_view name) {
  const auto found = std::ranges::find(task.inputs, name, &island_link::TaskInput::task);
  if (found == task.inputs.end()) {
    return Error{Code::corrupt, "task " + task.task + " has no input '" + std::string(name) + "'"};
  }
  return &*found;
}

}  // namespace atl
