#include "agent/trainer/diffusion/feature_model.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>

#include <filesystem>
#include <utility>

#include "agent/trainer/torch_runtime.hpp"

namespace atl {

struct FeatureModel::State {
  std::string path;
  at::Device device;
  torch::jit::Module module;
};

FeatureModel::FeatureModel(std::unique_ptr<State> state) : state_(std::move(state)) {}
FeatureModel::FeatureModel(FeatureModel&&) noexcept = default;
FeatureModel& FeatureModel::operator=(FeatureModel&&) noexcept = default;
FeatureModel::~FeatureModel() = default;

Result<FeatureModel> FeatureModel::load(const std::string& path, const at::Device& device) {
  std::error_code failure;
  if (!std::filesystem::is_regular_file(path, failure)) {
    return Error{Code::not_found, path + ": there is no such file"};
  }
  const auto read = [&]() -> Result<FeatureModel> {
    auto state = std::make_unique<State>(State{path, device, torch::jit::load(path, device)});
    state->module.eval();
    return FeatureModel(std::move(state));
  };
  Result<FeatureModel> model = catching(read);
  return model ? std::move(model)
               : Result<FeatureModel>(Error{
                     Code::corrupt,
                     path + ": not a model in TorchScript (export it with torch.jit.trace or torch.jit.script): " + model.error().why});
}

Result<at::Tensor> FeatureModel::features(const at::Tensor& images) {
  const at::NoGradGuard no_gradient;
  const auto run = [&]() -> Result<at::Tensor> {
    const c10::IValue made = state_->module.forward({images.to(state_->device)});
    if (!made.isTensor()) {
      return Error{Code::invalid_argument, "it gives a " + made.tagKind() + ", not one tensor"};
    }
    const at::Tensor& tensor = made.toTensor();
    if (tensor.dim() != 2 || tensor.size(0) != images.size(0) || tensor.size(1) < 1 || !tensor.is_floating_point()) {
      std::string shape;
      for (const std::int64_t extent : tensor.sizes()) {
        shape += (shape.empty() ? "" : ", ") + std::to_string(extent);
      }
      return Error{Code::invalid_argument,
                   std::string("it gives ") + (tensor.is_floating_point() ? "floats" : "no floats") + " of the shape [" + shape + "]"};
    }
    const at::Tensor values = tensor.to(at::kCPU, at::kFloat).contiguous();
    if (!at::isfinite(values).all().item<bool>()) {
      return Error{Code::invalid_argument, "it gives values that are not finite"};
    }
    return values;
  };
  Result<at::Tensor> values = catching(run);
  if (!values) {
    return Error{Code::invalid_argument, state_->path + ": of " + std::to_string(images.size(0)) + " images the model must make floats [" +
                                             std::to_string(images.size(0)) + ", width]: " + values.error().why};
  }
  return values;
}

}  // namespace atl
