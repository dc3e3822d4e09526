// Which matrix kernels the trainers of an island compute with, and whether OpenBLAS has to be told.
//
// OpenBLAS chooses its kernels when it is loaded, by a table of processor models. A model that is newer than the table gets the
// oldest kernels there are (Prescott, SSE3), a third of the speed or less. $OPENBLAS_CORETYPE overrides the table. What the table of the
// installed OpenBLAS says is not guessed from its version: a child process loads the library and asks it. Only where that choice uses
// narrower vectors than the processor has, the variable is set; so an OpenBLAS that knows more than we do (Cooper Lake, Sapphire Rapids,
// later names) keeps its own choice, and so does an owner who has set the variable.
// Threads: decide_kernels is pure. The others fork, so they belong before the threads of a process.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "transport/base/file_descriptor.hpp"

namespace atl {

inline constexpr const char* kCoreTypeVariable = "OPENBLAS_CORETYPE";

// What the processor can do, and the operating system lets it do.
struct ProcessorFacts {
  bool amd = false;
  bool avx2 = false;    // AVX2 and FMA
  bool avx512 = false;  // AVX-512 F, CD, BW, DQ and VL
};
ProcessorFacts this_processor();

// What the BLAS says of itself once it is loaded.
struct BlasFacts {
  std::string version;   // of OpenBLAS: "0.3.21"; empty: it is another BLAS, or none was found
  std::string kernels;   // of OpenBLAS: "Cooperlake"
  bool chooses = false;  // it has kernels for several processors and chooses when it is loaded (DYNAMIC_ARCH)
  std::string file;      // where it lies; empty: none was found
};
// Loads the system's libblas.so.3, which LibTorch is linked with, else libopenblas.so.0, in a child process; with `core_type`, if not
// empty, in $OPENBLAS_CORETYPE. Cost: some 5 ms. A child that fails or hangs for five seconds counts as none found.
BlasFacts probe_blas(const std::string& core_type = "");

struct KernelChoice {
  std::string core_type;  // for $OPENBLAS_CORETYPE; empty: leave it alone
  std::string reason;     // one line for a person
};
// `set`: the variable's value, if the owner has set it. `blas`: as it was loaded without a choice of ours.
KernelChoice decide_kernels(const ProcessorFacts& processor, const BlasFacts& blas, const std::optional<std::string>& set);

// "OpenBLAS 0.3.21 with Haswell kernels", or which other BLAS.
std::string blas_text(const BlasFacts& blas);

// Whether it is the reference BLAS (Netlib's, Debian's libblas3): plain loops, which multiply matrices many times slower than OpenBLAS.
// It has no name to ask for. It is known by its file: libblas.so, and not in a folder of Debian's for another BLAS (blis-…, atlas).
bool is_reference_blas(const BlasFacts& blas);

// The decision for this machine, checked: a choice that the library does not follow is dropped.
struct Kernels {
  std::string core_type;  // to set for trainers; empty: nothing
  std::string text;       // what they compute with, and why: for the log and `status`
};
Kernels choose_kernels(const std::optional<std::string>& set);

// What the built-in trainer says of itself (`PROGRAM trainer --facts`), whose LibTorch may have another BLAS than the system's.
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

// What trainers compute with and on, for `status`: the trainer's own words, or those of `kernels` where there are none.
std::string computes_text(const TrainerFacts& trainer, const Kernels& kernels, const std::vector<std::string>& gpus);

// Why the built-in trainer uses none of the machine's GPUs, and what mends it; empty: it does use them, or there is none.
std::string idle_gpus_text(const TrainerFacts& trainer, const std::vector<std::string>& gpus);

}  // namespace atl
