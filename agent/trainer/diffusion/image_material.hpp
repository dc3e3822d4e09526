// What diffusion models are trained on: a data set of images with its clusters, split, and which images which step takes.
//
// All of it follows from the data, the settings and the seed, so it is the same wherever it is done again.
// Threads: const functions may be called from any thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "agent/island_link/messages.hpp"
#include "agent/trainer/data/images.hpp"
#include "agent/trainer/diffusion/dit.hpp"
#include "agent/trainer/diffusion/packed_images.hpp"
#include "transport/base/result.hpp"

namespace atl {

struct ImageMaterial {
  ImageSet images;
  std::vector<std::uint32_t> assignment;  // cluster of every image; empty where there are no clusters
  std::vector<std::size_t> train;         // of one cluster, or of all
  std::vector<std::size_t> held;

  // `inputs`: the results that a task needs; `clustering` among them says the clusters (none without), `images/p` are the data set where it
  // is spread. `cluster`: only its images. Errors: those of open_images and SafetensorsFile; invalid_argument if the clustering is of
  // another number of images.
  static Result<ImageMaterial> open(const island_link::Data& data, std::uint64_t seed, const std::vector<island_link::TaskInput>& inputs,
                                    std::optional<std::uint32_t> cluster);

  // The chosen images [B, C, H, W].
  [[nodiscard]] at::Tensor batch(const std::vector<std::size_t>& chosen) const;
  // Held-out images that are looked at: `most` of them at most, spread evenly over all, always the same.
  [[nodiscard]] std::vector<std::size_t> evaluated(std::uint64_t most) const;
};

// `count` of these images from place `first` on, each once in a pass, another order in every pass.
std::vector<std::size_t> images_from(const std::vector<std::size_t>& all, std::uint64_t seed, std::uint64_t first, std::uint64_t count);

// What an expert is told of images: their classes, a part of them hidden. Without a condition one zero each, which nobody looks at. [B]
// int64
at::Tensor classes_of(const island_link::Diffusion& diffusion, const ImageSet& images, const DitSizes& sizes,
                      const std::vector<std::size_t>& chosen, std::uint64_t seed, std::uint64_t step);

// K of "experts/K"; empty for another task.
std::optional<std::uint32_t> expert_number(const std::string& task);

// Errors: invalid_argument where a condition is wanted and the set has no labels.
Result<DitSizes> expert_sizes(const island_link::Model& model, const island_link::Diffusion& diffusion, const ImageFacts& images);
// Of an ensemble of more than one expert. Errors: invalid_argument as Dit::checked().
Result<DitSizes> router_sizes(const island_link::Diffusion& diffusion, const ImageFacts& images);

// What a task was given under this name. Errors: corrupt if it was not.
Result<const island_link::TaskInput*> input_of(const island_link::Task& task, std::string_view name);

}  // namespace atl
