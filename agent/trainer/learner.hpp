// The learner: objective (model, data, loss), optimiser and device of one trainer, without any word about agents.
//
// All parameters lie in one flat tensor, in the order of the manifest; the model's weights are views of it. So a fragment is one copy. The
// arena's order may differ; neighbours there that are neighbours here are copied together. Where the objective asks for it an average of
// the synchronised parameters is kept beside them: at every merge of a fragment it takes in what the islands have agreed on, for all the
// steps since the last one (with decay d at step s: min(d, (1 + s)/(10 + s))), so that it is the same on all of them; with payload gradient
// at every step. It is part of what is saved. A step is two calls, because a strategy may exchange gradients between them:
// compute_gradient(), then apply_gradient(). On a GPU nothing is waited for: copies between it and the arena and the numbers of a report go
// on beside the steps that are computed next (device_copies.hpp), and begun() tells when they have ended. Threads: one thread calls
// (LibTorch uses its own inside).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "agent/island_link/messages.hpp"
#include "transport/base/result.hpp"

namespace atl {

class Learner {
 public:
  // Opens the data, builds the model and initialises it from the seed.
  // Errors: those of the data (missing, empty, too small); invalid_argument for sizes that do not fit one another or a device or precision
  // that is not there; internal with LibTorch's words.
  static Result<Learner> make(const island_link::Configure& configure);
  Learner(Learner&&) noexcept;
  Learner& operator=(Learner&&) noexcept;
  ~Learner();

  [[nodiscard]] const island_link::Manifest& manifest() const;
  [[nodiscard]] std::uint64_t step() const;
  // Which of the data are this island's from now on.
  void deal(DataShare share);
  [[nodiscard]] std::uint64_t position() const;
  [[nodiscard]] std::uint64_t tokens_per_step() const;
  [[nodiscard]] std::uint64_t windows_per_step() const;  // by which position() moves
  [[nodiscard]] std::uint64_t tokens_available() const;
  // What is read, with counts, for people.
  [[nodiscard]] std::string data_listing() const;

  // Gives the arena that fragments are copied to and from; it must stay mapped. Errors: corrupt if the layout does not fit the manifest.
  Status attach(std::span<float> arena, const island_link::ArenaLayout& layout);
  [[nodiscard]] std::size_t fragments() const;

  // Forward and backward of the next step, over all its micro-batches.
  Status compute_gradient();
  // Clips, steps the optimiser; step() and position() move on.
  // progress: of the run, which may be further than this trainer's steps: the learning rate follows it.
  Status apply_gradient(double progress = 0.0);
  // What a report says: the losses of the steps computed since the last one, in order, and the norm of the last step's gradient before
  // clipping, which is not finite if the gradient was not; 0 unless it is wanted. The function may be called once what begun() gives is
  // true. Without an arena this waits for them.
  struct Numbers {
    std::vector<double> losses;
    double norm = 0;
  };
  Result<std::function<Numbers()>> report(bool wants_norm);

  // Fragment numbers must be below fragments(). The arena's values of the fragment are there, or may be overwritten, once what begun()
  // gives is true.
  Status write_parameters(std::uint32_t fragment);
  Status write_gradient(std::uint32_t fragment);
  // The arena has what a later merge of the fragment takes: a GPU may have it already then. Nothing on a processor.
  Status fetch(std::uint32_t fragment);
  // p ← alpha·p + (1 − alpha)·arena; alpha 0 is an exact copy. fetched: the arena holds what the last fetch() of the fragment was for.
  Status merge_parameters(std::uint32_t fragment, double alpha, bool fetched = false);
  Status read_gradient(std::uint32_t fragment);
  // Tells whether what the calls since the last one have begun has ended; empty where nothing goes on after a call, as on a processor.
  Result<std::function<bool()>> begun();
  // Continues there with the optimiser as it is.
  void stand_at(std::uint64_t step, std::uint64_t position);

  // Mean loss over the held-out data, nats per token, or the mean squared error of a flow; empty without any. Always the same data.
  Result<std::optional<double>> evaluate();
  [[nodiscard]] std::uint32_t evaluation_batches() const;

  // Parameters, optimiser, step and position into `directory`/trainer.safetensors. Errors: io.
  Status save(const std::string& directory);
  // What save wrote. Errors: not_found, io; corrupt if the file is broken, of another model or of another step than expected;
  // invalid_argument if the data are not those that it was trained on.
  Status restore(const std::string& directory, std::uint64_t step, std::uint64_t position);

 private:
  struct State;
  explicit Learner(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace atl
