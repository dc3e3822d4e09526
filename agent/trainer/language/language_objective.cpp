#include <ATen/ATen.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "agent/island_link/arena.hpp"
#include "agent/island_link/model_manifest.hpp"
#include "agent/trainer/data/data_order.hpp"
#include "agent/trainer/data/token_check.hpp"
#include "agent/trainer/data/token_stream.hpp"
#include "agent/trainer/language/model.hpp"
#include "agent/trainer/objective.hpp"
#include "agent/trainer/torch_runtime.hpp"

namespace atl {
namespace {

using island_link::Configure;
using island_link::Manifest;

class LanguageObjective : public Objective {
 public:
  LanguageObjective(const Configure& configure, const island_link::Model& sizes, std::shared_ptr<const TokenStream> tokens,
                    TokenCheck check, DataOrder order, ValidationWindows validation, const at::Tensor& flat)
      : manifest_(Model::manifest(sizes)),
        vocabulary_(sizes.vocabulary),
        sequence_length_(configure.training.sequence_length),
        stream_(std::move(tokens)),
        check_(std::move(check)),
        order_(order),
        validation_(validation),
        flat_(flat),
        model_(sizes, configure.training.sequence_length, flat) {
    model_.initialize(configure.seed);
  }

  const Manifest& manifest() const override { return manifest_; }
  const at::Tensor& parameters() const override { return flat_; }
  const std::vector<Leaf>& leaves() const override { return model_.leaves(); }

  Result<at::Tensor> loss(std::uint64_t position, std::uint64_t rows) const override {
    ATOLL_TRY(check_.found());
    ATOLL_ASSIGN(const at::Tensor tokens, batch(rows, [&](std::uint64_t i) { return order_.window(sequence(position + i)); }));
    return model_.loss(tokens);
  }

  // Nats per token.
  Result<std::optional<double>> held_out_loss(std::uint64_t rows) const override {
    const std::uint64_t windows = validation_.count();
    if (windows == 0) {
      return std::optional<double>();
    }
    double sum = 0.0;
    for (std::uint64_t from = 0; from < windows; from += rows) {
      const std::uint64_t count = std::min(rows, windows - from);
      ATOLL_ASSIGN(const at::Tensor tokens, batch(count, [&](std::uint64_t i) { return validation_.window(from + i); }));
      sum += model_.loss(tokens).item<double>() * static_cast<double>(count);
    }
    return std::optional<double>(sum / static_cast<double>(windows));
  }
  std::uint64_t held_out_sequences() const override { return validation_.count(); }

  std::uint64_t tokens_per_sequence() const override { return sequence_length_; }
  std::uint64_t sequences_per_epoch() const override { return order_.windows_per_epoch(); }
  std::string data_listing() const override { return stream_->listing(); }
  std::string data_digest() const override { return stream_->digest(); }

 private:
  // Windows `begin(0)` … `begin(count − 1)` as a [count, sequence_length + 1] tensor on the device.
  template <typename Begin>
  Result<at::Tensor> batch(std::uint64_t count, const Begin& begin) const {
    const std::uint64_t length = sequence_length_ + 1;
    const at::Device device = flat_.device();
    // On a GPU the copy goes on beside what is computed, which needs memory that stays where it is.
    const at::Tensor tokens = at::empty({static_cast<std::int64_t>(count), static_cast<std::int64_t>(length)},
                                        at::TensorOptions(at::kLong).pinned_memory(device.is_cuda()));
    auto* to = tokens.data_ptr<std::int64_t>();
    for (std::uint64_t i = 0; i < count; ++i) {
      ATOLL_TRY(stream_->read(begin(i), vocabulary_, {to + i * length, length}));
    }
    return tokens.to(device, at::kLong, /*non_blocking=*/true);
  }

  Manifest manifest_;
  std::uint64_t vocabulary_;
  std::uint64_t sequence_length_;
  std::shared_ptr<const TokenStream> stream_;
  TokenCheck check_;
  DataOrder order_;
  ValidationWindows validation_;
  at::Tensor flat_;
  Model model_;
};

}  // namespace

Result<std::unique_ptr<Objective>> language_objective(const Configure& configure, const at::Device& device) {
  const island_link::Training& training = configure.training;
  ATOLL_ASSIGN(const island_link::Model sizes, island_link::checked_model(configure.model));
  ATOLL_ASSIGN(TokenStream opened, TokenStream::open(configure.data.files, configure.data.format));
  const auto stream = std::make_shared<const TokenStream>(std::move(opened));
  ATOLL_ASSIGN(const DataSplit split, split_data(stream->size(), configure.data.validation_fraction));
  ATOLL_ASSIGN(const DataOrder order, DataOrder::make(split.training, training.sequence_length, training.batch, configure.seed));
  ATOLL_ASSIGN(const ValidationWindows validation,
               ValidationWindows::make(split.validation, training.sequence_length,
                                       static_cast<std::uint64_t>(training.evaluate_batches) * training.batch));
  ATOLL_ASSIGN(TokenCheck check, TokenCheck::make(stream, {split.training, split.validation}, sizes.vocabulary));
  const auto count = static_cast<std::int64_t>(island_link::elements(Model::manifest(sizes).parameters));
  ATOLL_TRY(fits_in_memory(count, device));
  const at::Tensor flat = at::empty({count}, at::TensorOptions(at::kFloat).device(device));
  return std::unique_ptr<Objective>(
      std::make_unique<LanguageObjective>(configure, sizes, stream, std::move(check), order, validation, flat));
}

}  // namespace atl
