// What a flow model makes while it is trained, as one small picture: the same noise each time, so that one sees it learn.
// Threads: as LibTorch's.
#pragma once

#include <string>

#include "agent/trainer/diffusion/dit.hpp"
#include "transport/base/result.hpp"

namespace atl {

// Writes up to eight images of 20 steps of Euler's method as a PNG that is small enough for kMaxPictureBytes; a model with classes draws
// them in turn. Larger images are shrunk to at most 64 pixels a side. False: they are not of 1 or 3 channels (latents), and nothing is
// written. Costs as much as 160 forward passes of one image. Errors: io.
Result<bool> draw_progress(const Dit& model, std::uint64_t seed, const std::string& path);

}  // namespace atl
