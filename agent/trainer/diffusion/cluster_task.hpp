// The tasks of a decentralized-diffusion run that come before training (diffusion_task.hpp says what each takes and gives): images are
// packed, features made, clusters found (Decentralized Diffusion Models, arXiv:2501.05450; methods of MetaCLIP): fine k-means over the
// images, coarse k-means over the fine centroids.
//
// Where the data set is spread over islands the fine stage is done on each part by itself and only its centroids and sizes are brought
// together: the coarse stage needs no image. Principal components of different parts cannot be compared, so centroids go as means of pixels
// there, and the components are those of the centroids. Threads: one each.
#pragma once

#include <string>

#include "agent/island_link/messages.hpp"
#include "agent/trainer/diffusion/diffusion_task.hpp"
#include "transport/base/result.hpp"

namespace atl {

// Each gives the facts for people and leaves its result at task.output; errors as perform().
Result<std::string> pack_images(const island_link::Task& task);
Result<std::string> make_features(const island_link::Task& task, const TaskListener& listener);
Result<std::string> make_clusters(const island_link::Task& task);

}  // namespace atl
