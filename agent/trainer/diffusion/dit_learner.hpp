// A diffusion transformer in training: parameters, AdamW's state and the moving average of the parameters, each one flat tensor.
//
// What the loss is, is the caller's: an expert's flow matching or a router's cross-entropy. The average (decay `ema`, less at the
// beginning: min(ema, (1 + s)/(10 + s)) at step s) is what is evaluated and exported. Threads: one thread calls.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "agent/island_link/messages.hpp"
#include "agent/storage/safetensors.hpp"
#include "agent/trainer/diffusion/dit.hpp"
#include "transport/base/result.hpp"

namespace atl {

class DitLearner {
 public:
  // Errors: those of Dit::checked and of the device.
  static Result<DitLearner> make(const DitSizes& sizes, const island_link::Training& training, double ema, std::uint64_t seed);
  DitLearner(DitLearner&&) noexcept;
  DitLearner& operator=(DitLearner&&) noexcept;
  ~DitLearner();

  [[nodiscard]] std::uint64_t step() const;
  [[nodiscard]] at::Device device() const;
  // One step of the optimiser on what `loss` makes of the model; the value is that loss, a scalar on the device that nobody has waited for.
  // A gradient that is not finite changes nothing.
  Result<at::Tensor> take_step(const std::function<at::Tensor(const Dit&)>& loss);
  // The model of the averaged parameters.
  [[nodiscard]] const Dit& averaged() const;

  // All that is needed to go on, as one safetensors file. Errors: io; restore: corrupt if it is of another model.
  Status save(const std::string& path) const;
  Status restore(const std::string& path);
  // The averaged parameters under their names.
  Status export_average(const std::string& path, std::map<std::string, std::string> metadata) const;

 private:
  struct State;
  explicit DitLearner(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// A model that export_average wrote, on a device.
Result<Dit> load_dit(const SafetensorsFile& file, const at::Device& device);
// Writes tensors as a safetensors file, complete or not at all.
Status write_tensors(const std::string& path, std::vector<TensorView> tensors, const std::map<std::string, std::string>& metadata);

}  // namespace atl
