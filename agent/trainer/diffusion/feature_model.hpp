// FeatureModel: a model of the user's that says what images are alike, as TorchScript (DINOv2 exported with torch.jit.trace, for example).
//
// It takes a batch of images [B, C, H, W], float32 as the experts see them (bytes in [−1, 1]), and gives [B, width] of floats. Scaling to
// the size and the statistics that it was trained on is the model's own business. Threads: one.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>

#include "transport/base/result.hpp"

namespace atl {

class FeatureModel {
 public:
  // Errors: not_found; corrupt for a file that is no TorchScript. Each names the file.
  static Result<FeatureModel> load(const std::string& path, const at::Device& device);
  FeatureModel(FeatureModel&&) noexcept;
  FeatureModel& operator=(FeatureModel&&) noexcept;
  ~FeatureModel();

  // [B, width] float32 on the processor. Errors: invalid_argument if the model does not take such a batch, or gives anything but finite
  // floats [B, width].
  Result<at::Tensor> features(const at::Tensor& images);

 private:
  struct State;
  explicit FeatureModel(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace atl
