// What a learner minimises: a model, its data in a fixed order, and the loss of any stretch of them.
//
// A language model predicts tokens, a diffusion transformer flows. Everything else about training in rounds (optimiser, arena, orders,
// checkpoints) is the Learner's and the same for both. The data are numbered by position: sequences, of tokens or images, in the order in
// which they are trained on. Threads: one thread calls.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/island_link/messages.hpp"
#include "agent/trainer/adamw.hpp"
#include "transport/base/data_share.hpp"
#include "transport/base/result.hpp"

namespace atl {

class Objective {
 public:
  virtual ~Objective() = default;

  // Which of the data are this island's from now on.
  void deal(DataShare share) { share_ = std::move(share); }

  [[nodiscard]] virtual const island_link::Manifest& manifest() const = 0;
  // [elements of the manifest] float32 on the device, initialised from the seed.
  [[nodiscard]] virtual const at::Tensor& parameters() const = 0;
  // All together are the flat parameters without gaps.
  [[nodiscard]] virtual const std::vector<Leaf>& leaves() const = 0;

  // Mean loss of the sequences at positions position … position + rows − 1 of this island, a scalar to go backward from. The same for the
  // same sequences, wherever it is computed.
  [[nodiscard]] virtual Result<at::Tensor> loss(std::uint64_t position, std::uint64_t rows) const = 0;
  // Mean loss over the held-out data, `rows` sequences at a time at most; empty without any. Always the same data.
  [[nodiscard]] virtual Result<std::optional<double>> held_out_loss(std::uint64_t rows) const = 0;
  [[nodiscard]] virtual std::uint64_t held_out_sequences() const = 0;

  [[nodiscard]] virtual std::uint64_t tokens_per_sequence() const = 0;
  [[nodiscard]] virtual std::uint64_t sequences_per_epoch() const = 0;
  // What is read, with counts, for people: "2 files with 1200 bytes: a.txt 1000, b.txt 200".
  [[nodiscard]] virtual std::string data_listing() const = 0;
  // Of all the data, whatever is this island's: the same as long as they are as they were.
  [[nodiscard]] virtual std::string data_digest() const = 0;
  // Decay, at every step, of the average of the synchronised parameters that is kept beside them; empty: none is.
  [[nodiscard]] virtual std::optional<double> average_decay() const { return std::nullopt; }

 protected:
  // The number of a sequence in the order of the whole run.
  [[nodiscard]] std::uint64_t sequence(std::uint64_t position) const { return share_.sequence(position); }

 private:
  DataShare share_;
};

// A decoder-only transformer on windows of a stream of tokens.
// Errors: those of the data (missing, empty, too small); invalid_argument for sizes that do not fit one another.
Result<std::unique_ptr<Objective>> language_objective(const island_link::Configure& configure, const at::Device& device);

// A diffusion transformer on images, or on those of one cluster: flow matching (flow_matching.hpp). What is saved of it a task of training
// can be continued from (dit_learner.hpp). Errors: the same; invalid_argument also for a condition without labels.
Result<std::unique_ptr<Objective>> image_objective(const island_link::Configure& configure, const at::Device& device);

}  // namespace atl
