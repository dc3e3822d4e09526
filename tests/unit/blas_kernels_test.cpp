// Which kernels OpenBLAS is told to use: the decision by table, and what the installed library makes of it.
#include "agent/host/blas_kernels.hpp"

#include <cctype>
#include <cstdlib>

#include "tests/skip.hpp"
#include "tests/temporary_folder.hpp"

namespace of_blas_kernels_test {

using namespace atl;

namespace {

constexpr ProcessorFacts kIntelSse = {false, false, false};
constexpr ProcessorFacts kIntelAvx2 = {false, true, false};
constexpr ProcessorFacts kIntelAvx512 = {false, true, true};
constexpr ProcessorFacts kAmdAvx2 = {true, true, false};
constexpr ProcessorFacts kAmdAvx512 = {true, true, true};

BlasFacts openblas(const std::string& version, const std::string& kernels) { return {version, kernels, true, "/usr/lib/libblas.so.3"}; }

std::string lower(std::string text) {
  for (char& c : text) {
    c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return text;
}

}  // namespace

TEST_CASE("OpenBLAS is told what the processor can do where its own choice falls short, whoever made the processor") {
  struct Row {
    const char* what;
    ProcessorFacts processor;
    const char* version;
    const char* own;
    const char* told;
  };
  const Row rows[] = {
      // Processors that are newer than the library fall back to SSE kernels.
      {"Emerald Rapids, Debian 12", kIntelAvx512, "0.3.21", "Prescott", "SKYLAKEX"},
      {"Granite Rapids, Debian 12", kIntelAvx512, "0.3.21", "Prescott", "SKYLAKEX"},
      {"Raptor Lake, Debian 12", kIntelAvx2, "0.3.21", "Prescott", "HASWELL"},
      {"Lunar Lake, Debian 12", kIntelAvx2, "0.3.21", "Prescott", "HASWELL"},
      {"Zen 5, Debian 12", kAmdAvx512, "0.3.21", "Barcelona", "SKYLAKEX"},
      {"a later AMD without AVX-512", kAmdAvx2, "0.3.21", "Barcelona", "ZEN"},
      {"an Intel of ten years from now, Debian 13", kIntelAvx512, "0.3.29", "Prescott", "SKYLAKEX"},
      // Processors that it takes for lesser ones.
      {"Zen 4 without bf16", kAmdAvx512, "0.3.21", "Zen", "SKYLAKEX"},
      {"Skylake-X taken for Haswell", kIntelAvx512, "0.3.21", "Haswell", "SKYLAKEX"},
      {"Haswell taken for Sandy Bridge", kIntelAvx2, "0.3.21", "Sandybridge", "HASWELL"},
      {"Nehalem kernels on a Gracemont", kIntelAvx2, "0.3.21", "Nehalem", "HASWELL"},
      // Processors that it knows keep its choice: theirs may be better than ours.
      {"Skylake-X", kIntelAvx512, "0.3.21", "SkylakeX", ""},
      {"Zen 4, Debian 12", kAmdAvx512, "0.3.21", "Cooperlake", ""},
      {"Sapphire Rapids, Debian 13", kIntelAvx512, "0.3.29", "Sapphirerapids", ""},
      {"kernels that are newer than our list", kIntelAvx512, "0.4.2", "Diamondrapids", ""},
      {"Zen 3", kAmdAvx2, "0.3.21", "Zen", ""},
      {"Haswell", kIntelAvx2, "0.3.21", "Haswell", ""},
      {"Excavator, which has AVX2 in 128 bits", kAmdAvx2, "0.3.21", "Excavator", ""},
      {"a Nehalem", kIntelSse, "0.3.21", "Nehalem", ""},
      {"a Prescott", kIntelSse, "0.3.21", "Prescott", ""},
      {"an Arm", kIntelSse, "0.3.21", "neoversen1", ""},
      // Libraries without kernels for AVX-512.
      {"Skylake-X, OpenBLAS of 2017", kIntelAvx512, "0.2.20", "Haswell", ""},
      {"Ice Lake, OpenBLAS of 2017", kIntelAvx512, "0.2.20", "Prescott", "HASWELL"},
  };
  for (const Row& row : rows) {
    INFO(row.what << ": OpenBLAS " << row.version << " takes " << row.own);
    const KernelChoice choice = decide_kernels(row.processor, openblas(row.version, row.own), std::nullopt);
    CHECK(choice.core_type == row.told);
    CHECK_FALSE(choice.reason.empty());
    CHECK((choice.reason.find(row.own) != std::string::npos) == !choice.core_type.empty());
  }
}

TEST_CASE("OpenBLAS is told nothing where its owner has, where it does not listen, and where it is another BLAS") {
  CHECK(decide_kernels(kIntelAvx512, openblas("0.3.21", "Prescott"), "PRESCOTT").core_type.empty());
  CHECK(decide_kernels(kIntelAvx512, openblas("0.3.21", "Prescott"), "PRESCOTT").reason == "OPENBLAS_CORETYPE=PRESCOTT is set");
  CHECK(decide_kernels(kIntelAvx512, openblas("0.3.21", "Prescott"), "").core_type.empty());
  const BlasFacts single = {"0.3.21", "Haswell", false, "/opt/libopenblas.so.0"};
  CHECK(decide_kernels(kIntelAvx512, single, std::nullopt).core_type.empty());
  CHECK(decide_kernels(kIntelAvx512, single, std::nullopt).reason == "it was built for these alone");
  const BlasFacts reference = {"", "", false, "/usr/lib/libblas.so.3.11.0"};
  CHECK(decide_kernels(kIntelAvx512, reference, std::nullopt).core_type.empty());
  CHECK(blas_text(reference) == "a BLAS that is not OpenBLAS: /usr/lib/libblas.so.3.11.0");
  CHECK(is_reference_blas(reference));
  CHECK(is_reference_blas({"", "", false, "/usr/lib/x86_64-linux-gnu/blas/libblas.so.3.11.0"}));
  CHECK_FALSE(is_reference_blas({"", "", false, "/usr/lib/x86_64-linux-gnu/blis-pthread/libblas.so.3"}));
  CHECK_FALSE(is_reference_blas({"", "", false, "/usr/lib/x86_64-linux-gnu/atlas/libblas.so.3.10.3"}));
  CHECK_FALSE(is_reference_blas({"", "", false, "/opt/intel/mkl/lib/libmkl_rt.so"}));
  CHECK_FALSE(is_reference_blas({"0.3.21", "Zen", true, "/usr/lib/x86_64-linux-gnu/openblas-pthread/libblas.so.3"}));
  CHECK_FALSE(is_reference_blas({}));
  CHECK(blas_text({}) == "no BLAS of the system");
  CHECK(blas_text(openblas("0.3.21", "Zen")) == "OpenBLAS 0.3.21 with Zen kernels");
}

TEST_CASE("the installed OpenBLAS is asked in a child, and follows what it is told") {
  const BlasFacts own = probe_blas();
  if (own.version.empty() || !own.chooses) {
    ATL_SKIP("the system's BLAS chooses no kernels: " << blas_text(own));
  }
  const ProcessorFacts processor = this_processor();
  for (const std::string kernels : {"Prescott", "Haswell", "Zen", "SkylakeX"}) {
    if ((kernels == "SkylakeX" && !processor.avx512) || (kernels != "Prescott" && !processor.avx2)) {
      WARN("skipped: this processor cannot run " << kernels << " kernels");
      continue;
    }
    CHECK(probe_blas(kernels).kernels == kernels);
    CHECK(lower(probe_blas(lower(kernels)).kernels) == lower(kernels));
  }
  CHECK(probe_blas().kernels == own.kernels);  // what a child was told is not ours
  CHECK(probe_blas().version == own.version);
}

TEST_CASE("what is chosen for this machine is what OpenBLAS then says of itself, and no narrower than the processor") {
  const Kernels chosen = choose_kernels(std::nullopt);
  const BlasFacts then = probe_blas(chosen.core_type);
  CHECK(chosen.text.find(blas_text(then)) == 0);
  if (!then.version.empty() && then.chooses && std::getenv(kCoreTypeVariable) == nullptr) {
    CHECK(decide_kernels(this_processor(), then, std::nullopt).core_type.empty());
  }
  const Kernels set = choose_kernels("PRESCOTT");
  CHECK(set.core_type.empty());
}

TEST_CASE("what trainers compute with is said by the trainer, and a GPU that it cannot use is named with what mends it") {
  const Kernels kernels = {"", "OpenBLAS 0.3.21 with Zen kernels (its own choice)"};
  const std::vector<std::string> gpu = {"NVIDIA H100 80GB HBM3"};
  const TrainerFacts none;
  const TrainerFacts debian = {"LibTorch 1.13.1 (AVX2), OpenBLAS 0.3.21 with Zen kernels", false, 0};
  const TrainerFacts wheel = {"LibTorch 2.13.0 (AVX512), MKL 2024.2", false, 0};
  const TrainerFacts cuda = {"LibTorch 2.11.0 (AVX512), MKL 2024.2", true, 1};
  const TrainerFacts hidden = {"LibTorch 2.11.0 (AVX512), MKL 2024.2", true, 0};
  struct Row {
    const TrainerFacts& trainer;
    std::vector<std::string> gpus;
    std::string text;
    std::string idle;  // a part of it
  };
  for (const Row& row : {
           Row{none, gpu, kernels.text, ""},
           Row{debian, {}, "LibTorch 1.13.1 (AVX2), OpenBLAS 0.3.21 with Zen kernels (its own choice), on the processor", ""},
           Row{wheel, {}, "LibTorch 2.13.0 (AVX512), MKL 2024.2, on the processor", ""},
           Row{wheel, gpu, "LibTorch 2.13.0 (AVX512), MKL 2024.2, on the processor although there is a GPU: NVIDIA H100 80GB HBM3",
               "its LibTorch 2.13.0 is for processors alone (pip install torch, and build it with cmake --preset product "
               "-DATOLL_TORCH=python)"},
           Row{cuda, gpu, "LibTorch 2.11.0 (AVX512), MKL 2024.2, on NVIDIA H100 80GB HBM3", ""},
           Row{cuda, {gpu[0], gpu[0]}, "LibTorch 2.11.0 (AVX512), MKL 2024.2, on 1 of this machine's GPUs", ""},
           Row{hidden,
               {gpu[0], gpu[0]},
               "LibTorch 2.11.0 (AVX512), MKL 2024.2, on the processor although there is a GPU: 2 × NVIDIA H100 80GB HBM3",
               "LibTorch 2.11.0 sees none; look at CUDA_VISIBLE_DEVICES"},
       }) {
    CHECK(computes_text(row.trainer, kernels, row.gpus) == row.text);
    const std::string idle = idle_gpus_text(row.trainer, row.gpus);
    CHECK(idle.empty() == row.idle.empty());
    CHECK(idle.find(row.idle) != std::string::npos);
  }
}

TEST_CASE("a machine's GPUs are those that the driver names") {
  const atl_test::TemporaryFolder folder;
  CHECK(gpus_of(folder.path()).empty());
  const auto add = [&](const std::string& bus, const std::string& model) {
    std::filesystem::create_directories(folder.path() / "gpus" / bus);
    folder.write("gpus/" + bus + "/information", "Model: \t\t " + model + "\nIRQ:   \t\t 42\n");
  };
  add("0000:65:00.0", "NVIDIA L4");
  add("0000:17:00.0", "NVIDIA H100 80GB HBM3");
  CHECK(gpus_of(folder.path()) == std::vector<std::string>{"NVIDIA H100 80GB HBM3", "NVIDIA L4"});
}

TEST_CASE("a program that says nothing of LibTorch is no trainer to speak of") {
  CHECK(ask_trainer("/bin/echo").text.empty());
  CHECK(ask_trainer("/no/such/program").text.empty());
}

}  // namespace of_blas_kernels_test
