#include "agent/trainer/diffusion/progress_images.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <vector>

#include "agent/trainer/data/image_file.hpp"
#include "agent/trainer/diffusion/ensemble_flow.hpp"
#include "agent/trainer/diffusion/flow_matching.hpp"
#include "transport/base/rng.hpp"

namespace atl {
namespace {

constexpr std::uint32_t kMostSide = 64;
constexpr std::uint32_t kMostImages = 8;
constexpr std::uint32_t kColumns = 4;
constexpr std::uint32_t kSteps = 20;
constexpr std::size_t kMostValues = 72 * 1024;  // noise hardly shrinks in a PNG

}  // namespace

Result<bool> draw_progress(const Dit& model, std::uint64_t seed, const std::string& path) {
  const DitSizes& sizes = model.sizes();
  if (sizes.image.channels != 1 && sizes.image.channels != 3) {
    return false;
  }
  const at::NoGradGuard no_gradient;
  ImageShape shown = sizes.image;
  shown.height = std::min<decltype(shown.height)>(shown.height, kMostSide);
  shown.width = std::min<decltype(shown.width)>(shown.width, kMostSide);
  const auto count = static_cast<std::int64_t>(std::clamp<std::size_t>(kMostValues / shown.values(), 1, kMostImages));
  const at::Tensor noise =
      normal_values({count, sizes.image.channels, sizes.image.height, sizes.image.width}, seed, stream_of("progress-images"));
  const at::Device device = model.leaves().front().tensor.device();
  const at::Tensor classes =
      sizes.classes == 0 ? at::Tensor() : at::arange(count, at::kLong).remainder(static_cast<std::int64_t>(sizes.classes)).to(device);
  const Flow flow = [&](const at::Tensor& x, const at::Tensor& t) { return model.forward(x, t, classes); };
  at::Tensor made = follow(flow, noise.to(device), kSteps, Solver::euler).to(at::kFloat).cpu();
  if (shown != sizes.image) {
    made = at::adaptive_avg_pool2d(made, {shown.height, shown.width});
  }
  made = made.contiguous();
  const std::vector<float> values(made.data_ptr<float>(), made.data_ptr<float>() + made.numel());
  ATOLL_TRY(write_png_grid(path, shown, values, kColumns));
  return true;
}

}  // namespace atl
