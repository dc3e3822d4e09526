#include "agent/trainer/torch_runtime.hpp"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <dlfcn.h>
#include <torch/cuda.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <new>
#include <sstream>
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

Result<c10::Device> device_named(const std::string& name) {
  const std::size_t devices = torch::cuda::is_available() ? static_cast<std::size_t>(torch::cuda::device_count()) : 0;
  if (name == "cpu" || (name == "auto" && devices == 0)) {
    return c10::Device(c10::kCPU);
  }
  if (name == "auto" || name == "cuda") {
    if (devices == 0) {
      return Error{Code::invalid_argument, "training.device is cuda, and LibTorch sees no GPU here; use cpu or auto"};
    }
    return c10::Device(c10::kCUDA, 0);
  }
  const std::string prefix = "cuda:";
  int index = -1;
  const bool numbered = name.rfind(prefix, 0) == 0 &&
                        std::from_chars(name.data() + prefix.size(), name.data() + name.size(), index).ptr == name.data() + name.size();
  if (!numbered || index < 0) {
    return Error{Code::invalid_argument, "training.device '" + name + "' is none of auto, cpu, cuda:N"};
  }
  if (static_cast<std::size_t>(index) >= devices) {
    return Error{Code::invalid_argument, "training.device is " + name + ", and LibTorch sees " + std::to_string(devices) + " GPUs here"};
  }
  return c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(index));
}

Result<bool> bf16_named(const std::string& precision, const c10::Device& device) {
  if (precision == "auto") {
    return device.is_cuda();
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
  const std::uint64_t there = static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  if (device.is_cpu() && needed > there) {
    return Error{Code::io, "out of memory: the model's parameters, gradients and moments are " + human_bytes(needed) +
                               ", and this machine has " + human_bytes(there) + " (use a smaller model, or a machine with more)"};
  }
  return {};
}

std::string blas_in_use() {
  if (&openblas_get_config != nullptr && &openblas_get_corename != nullptr) {
    std::istringstream configuration(openblas_get_config());  // "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH …"
    std::string name;
    std::string version;
    configuration >> name >> version;
    return name + " " + version + " with " + openblas_get_corename() + " kernels";
  }
  Dl_info where{};
  if (&sgemm_ != nullptr && ::dladdr(reinterpret_cast<const void*>(&sgemm_), &where) != 0 && where.dli_fname != nullptr) {
    std::error_code failure;
    const std::filesystem::path file = std::filesystem::canonical(where.dli_fname, failure);
    return "a BLAS that is not OpenBLAS: " + (failure ? std::string(where.dli_fname) : file.string());
  }
  return "the BLAS inside LibTorch";
}

Autocast::Autocast(bool enabled) : enabled_(enabled) {
  if (enabled_) {
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 4)
    at::autocast::set_autocast_enabled(at::kCUDA, true);
    at::autocast::set_autocast_dtype(at::kCUDA, at::kBFloat16);
#else
    at::autocast::set_enabled(true);
    at::autocast::set_autocast_gpu_dtype(at::kBFloat16);
#endif
  }
}

Autocast::~Autocast() {
  if (enabled_) {
    at::autocast::clear_cache();
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 4)
    at::autocast::set_autocast_enabled(at::kCUDA, false);
#else
    at::autocast::set_enabled(false);
#endif
  }
}

Error torch_error(const std::exception& thrown) {
  const std::string text = thrown.what();
  const std::string line = text.substr(0, text.find('\n'));
  if (dynamic_cast<const std::bad_alloc*>(&thrown) != nullptr || line.find("out of memory") != std::string::npos ||
      line.find("not enough memory") != std::string::npos || line.find("can't allocate memory") != std::string::npos) {
    return {Code::io, "out of memory: " + line + " (use a smaller training.batch, more training.accumulation, or a smaller model)"};
  }
  return {Code::internal, "LibTorch: " + line};
}

}  // namespace atl
