// What the built-in trainer of this machine computes with and on, as it says itself.
// Threads: any; whoever asks forks, so that belongs before the threads of a process.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "transport/base/file_descriptor.hpp"

namespace atl {

// What the built-in trainer says of itself (`PROGRAM trainer --facts`).
struct TrainerFacts {
  std::string text;       // "LibTorch 2.13.0 (AVX512), MKL 2024.2"; empty: there is none, or it gave no answer
  bool for_gpus = false;  // its LibTorch is one for GPUs
  std::size_t gpus = 0;   // that it can use here
};
// Asks it in a process of its own, which loads LibTorch: half a second, of which nobody has to wait.
class AskedTrainer {
 public:
  explicit AskedTrainer(const std::string& program);
  ~AskedTrainer();
  AskedTrainer(const AskedTrainer&) = delete;
  AskedTrainer& operator=(const AskedTrainer&) = delete;

  // Nothing: it has not answered yet. What gives no answer for twenty seconds counts as not there. Never blocks.
  std::optional<TrainerFacts> take();
  // Readable when there is something to take; -1: nothing could be asked.
  [[nodiscard]] int fd() const { return in_.get(); }

 private:
  std::chrono::steady_clock::time_point until_;
  FileDescriptor in_;
  pid_t child_ = -1;
  std::string text_;
};
// The same, waited for.
TrainerFacts ask_trainer(const std::string& program);

// The models of the machine's NVIDIA GPUs, as their driver names them in this folder.
std::vector<std::string> gpus_of(const std::filesystem::path& driver = "/proc/driver/nvidia");

// What trainers compute with and on, for `status`; empty: nobody has said it.
std::string computes_text(const TrainerFacts& trainer, const std::vector<std::string>& gpus);

// Why the built-in trainer uses none of the machine's GPUs, and what mends it; empty: it does use them, or there is none.
std::string idle_gpus_text(const TrainerFacts& trainer, const std::vector<std::string>& gpus);

// Whether it computes with the reference BLAS (Netlib's, Debian's libblas3): plain loops, which multiply matrices many times slower than
// OpenBLAS. It has no name to ask for. It is known by its file: libblas.so, and not in a folder of Debian's for another BLAS (blis-…,
// atlas).
bool has_slow_blas(const TrainerFacts& trainer);

}  // namespace atl
