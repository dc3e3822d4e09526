#include "agent/trainer/torch_runtime.hpp"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <ATen/autocast_mode.h>
#include <dlfcn.h>
#include <torch/cuda.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <new>
#include <sstream>
#include <string_view>
#include <system_error>

#include "transport/base/bytes.hpp"

// Of the BLAS that LibTorch is linked with, if it has one of its own.
extern "C" {
void openblas_set_num_threads(int threads) __attribute__((weak));
const char* openblas_get_config() __attribute__((weak));
const char* openblas_get_corename() __attribute__((weak));
void sgemm_() __attribute__((weak));
}

namespace atl {
namespace {

constexpr const char* kOutOfMemory = "out of memory: ";

// What LibTorch says where a GPU cannot be used now and will not be the next time either.
constexpr std::array<std::string_view, 5> kNeverUsable = {"no kernel image is available", "invalid device ordinal",
                                                          "driver version is insufficient", "no CUDA-capable device",
                                                          "driver on your system is too old"};

Error no_such_device(const std::string& name, std::size_t devices) {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  std::string why = std::string(", and LibTorch ") + TORCH_VERSION;
  std::string use = "cpu or auto";
  if (!built_for_gpus()) {
    why += " here is built for processors alone";
    use += ", or build the trainer for a LibTorch with CUDA (-DATOLL_TORCH=…)";
  } else {
    why += " sees " +
           (devices == 0   ? "no GPU"
            : devices == 1 ? "1 GPU"
                           : std::to_string(devices) + " GPUs") +
           " here" + (visible == nullptr ? "" : std::string(" (CUDA_VISIBLE_DEVICES is '") + visible + "')");
    use = (devices == 0 ? "" : devices == 1 ? "cuda:0, " : "cuda:0 to cuda:" + std::to_string(devices - 1) + ", ") + use;
  }
  return {Code::invalid_argument, "training.device is " + name + why + "; use " + use};
}

std::uint64_t memory_of_machine() {
  return static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

// "the trainer has 1.2 GB of this machine's 16 GB"
std::string memory_in_use() {
  std::uint64_t pages = 0;
  std::ifstream statm("/proc/self/statm");
  statm >> pages >> pages;
  return "the trainer has " + human_bytes(pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE))) + " of this machine's " +
         human_bytes(memory_of_machine());
}

}  // namespace

Result<c10::Device> device_named(const std::string& name) {
  const std::size_t devices = usable_gpus();
  if (name == "cpu" || (name == "auto" && devices == 0)) {
    return c10::Device(c10::kCPU);
  }
  if (name == "auto" || name == "cuda") {
    return devices == 0 ? Result<c10::Device>(no_such_device(name, devices)) : c10::Device(c10::kCUDA, 0);
  }
  const std::string prefix = "cuda:";
  int index = -1;
  const bool numbered = name.rfind(prefix, 0) == 0 &&
                        std::from_chars(name.data() + prefix.size(), name.data() + name.size(), index).ptr == name.data() + name.size();
  if (!numbered || index < 0) {
    return Error{Code::invalid_argument, "training.device '" + name + "' is none of auto, cpu, cuda:N"};
  }
  if (static_cast<std::size_t>(index) >= devices) {
    return no_such_device(name, devices);
  }
  return c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(index));
}

Result<bool> bf16_named(const std::string& precision, const c10::Device& device, std::int64_t parameters) {
  // Of 0.9 M parameters an H100 trained 125,000 tokens/s in float32 and 67,000 in bf16; of 124 M bf16 is by far the faster.
  constexpr std::int64_t kBf16Pays = 20'000'000;
  if (device.is_cuda()) {
    at::globalContext().setFloat32MatmulPrecision("high");
  }
  if (precision == "auto") {
    return device.is_cuda() && parameters >= kBf16Pays;
  }
  if (precision == "float32") {
    return false;
  }
  if (precision != "bf16") {
    return Error{Code::invalid_argument, "training.precision '" + precision + "' is none of auto, float32, bf16"};
  }
  if (!device.is_cuda()) {
    return Error{Code::invalid_argument, "training.precision bf16 needs a GPU; use float32 or auto"};
  }
  return true;
}

void set_arithmetic_threads(std::uint32_t threads) {
  const int count = static_cast<int>(std::clamp<std::uint32_t>(threads, 1, 4096));
  at::set_num_threads(count);
  if (&openblas_set_num_threads != nullptr) {
    openblas_set_num_threads(count);
  }
}

Status fits_in_memory(std::int64_t parameters, const c10::Device& device) {
  const std::uint64_t needed = 4 * sizeof(float) * static_cast<std::uint64_t>(parameters);
  const std::uint64_t there = memory_of_machine();
  if (device.is_cpu() && needed > there) {
    return Error{Code::io, std::string(kOutOfMemory) + "the model's parameters, gradients and moments are " + human_bytes(needed) +
                               ", and this machine has " + human_bytes(there) + " (use a smaller model, or a machine with more)"};
  }
  return {};
}

bool built_for_gpus() { return at::hasCUDA(); }
std::size_t usable_gpus() { return torch::cuda::is_available() ? static_cast<std::size_t>(torch::cuda::device_count()) : 0; }

namespace {

// What multiplies matrices.
std::string blas_in_use() {
  if (&openblas_get_config != nullptr && &openblas_get_corename != nullptr) {
    std::istringstream configuration(openblas_get_config());  // "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH …"
    std::string name;
    std::string version;
    configuration >> name >> version;
    return name + " " + version + " with " + openblas_get_corename() + " kernels";
  }
  // "  - Intel(R) oneAPI Math Kernel Library Version 2024.2-Product Build 20240605 for …"
  const std::string built = at::show_config();
  const std::string mkl = "Math Kernel Library Version ";
  if (const std::size_t at = built.find(mkl); at != std::string::npos) {
    return "MKL " + built.substr(at + mkl.size(), built.find_first_of("- \n", at + mkl.size()) - at - mkl.size());
  }
  Dl_info where{};
  if (&sgemm_ != nullptr && ::dladdr(reinterpret_cast<const void*>(&sgemm_), &where) != 0 && where.dli_fname != nullptr) {
    std::error_code failure;
    const std::filesystem::path file = std::filesystem::canonical(where.dli_fname, failure);
    return "a BLAS that is not OpenBLAS: " + (failure ? std::string(where.dli_fname) : file.string());
  }
  return "the BLAS inside LibTorch";
}

}  // namespace

std::string computes_with() { return std::string("LibTorch ") + TORCH_VERSION + " (" + at::get_cpu_capability() + "), " + blas_in_use(); }

std::string version_of_libtorch() {
  const std::string built = at::show_config();
  const std::string key = "TORCH_VERSION=";
  const std::size_t at = built.find(key);
  return at == std::string::npos ? ""
                                 : built.substr(at + key.size(), built.find_first_not_of("0123456789.", at + key.size()) - at - key.size());
}

Autocast::Autocast(bool enabled) : enabled_(enabled) {
  if (enabled_) {
    at::autocast::set_autocast_enabled(at::kCUDA, true);
    at::autocast::set_autocast_dtype(at::kCUDA, at::kBFloat16);
  }
}

Autocast::~Autocast() {
  if (enabled_) {
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCUDA, false);
  }
}

Error torch_error(const std::exception& thrown) {
  const std::string text = thrown.what();
  const std::string line = text.substr(0, text.find('\n'));
  if (dynamic_cast<const std::bad_alloc*>(&thrown) != nullptr || line.find("out of memory") != std::string::npos ||
      line.find("not enough memory") != std::string::npos || line.find("can't allocate memory") != std::string::npos) {
    return {Code::io, kOutOfMemory + line + "; " + memory_in_use() +
                          " (use a smaller training.batch, more training.accumulation, or a smaller model)"};
  }
  if (std::ranges::any_of(kNeverUsable, [&](std::string_view said) { return line.find(said) != std::string::npos; })) {
    return {Code::invalid_argument, "LibTorch " + std::string(TORCH_VERSION) + " cannot use this GPU: " + line +
                                        " (use training.device cpu, another driver, or a LibTorch for this GPU)"};
  }
  return {Code::internal, "LibTorch: " + line};
}

bool is_out_of_memory(const Error& error) { return error.why.starts_with(kOutOfMemory); }

}  // namespace atl
