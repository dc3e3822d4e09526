// What the built-in trainer says of itself, and what is made of it.
#include "agent/host/trainer_facts.hpp"

#include "tests/catch.hpp"
#include "tests/temporary_folder.hpp"

namespace of_trainer_facts_test {
using namespace atl;

TEST_CASE("what trainers compute with is said by the trainer, and a GPU that it cannot use is named with what mends it") {
  const std::vector<std::string> gpu = {"NVIDIA H100 80GB HBM3"};
  const TrainerFacts none;
  const TrainerFacts debian = {"LibTorch 2.6.0 (AVX2), OpenBLAS 0.3.29 with Zen kernels", false, 0};
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
           Row{none, gpu, "", ""},
           Row{debian, {}, "LibTorch 2.6.0 (AVX2), OpenBLAS 0.3.29 with Zen kernels, on the processor", ""},
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
    CHECK(computes_text(row.trainer, row.gpus) == row.text);
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

}  // namespace of_trainer_facts_test
