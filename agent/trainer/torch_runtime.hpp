// What the trainer, the generator and the bench need of LibTorch besides tensors: devices, threads, autocast, and its exceptions as errors.
// Threads: settings are the process's.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <exception>
#include <string>

#include "transport/base/result.hpp"

namespace atl {

// auto (the first GPU if there is one) | cpu | cuda | cuda:N. Errors: invalid_argument naming what is there, why, and what to use.
Result<c10::Device> device_named(const std::string& name);

// auto | float32 | bf16, of a model with so many parameters; true for bf16. auto: bf16 on a GPU, for the casts to pay, from 20 million
// parameters on; else float32. On a GPU float32's matrix products are TF32's where it has them, which is the process's setting from then
// on. Errors: invalid_argument for bf16 without a GPU.
Result<bool> bf16_named(const std::string& precision, const c10::Device& device, std::int64_t parameters);

// Threads of LibTorch's own loops and of the BLAS, if it can be told.
void set_arithmetic_threads(std::uint32_t threads);

// Errors: a processor's machine has less memory than `parameters` need with their gradients and an optimiser's two moments. Kernels promise
// memory that they do not have, and end the process once it is used.
Status fits_in_memory(std::int64_t parameters, const c10::Device& device);

// What computes on the processor, for people, as LibTorch itself says: "LibTorch 2.6.0 (AVX2), OpenBLAS 0.3.29 with Haswell kernels",
// "LibTorch 2.13.0 (AVX512), MKL 2024.2", or the file of another BLAS.
std::string computes_with();
// The version of the LibTorch that was loaded, which its headers' need not be: "2.13.0"; empty where it does not say.
std::string version_of_libtorch();
// Whether this LibTorch is one for GPUs, and how many of them it can use here and now.
bool built_for_gpus();
std::size_t usable_gpus();

// While it lives, matrix products on a GPU are computed in bf16. Nothing if not `enabled`.
class Autocast {
 public:
  explicit Autocast(bool enabled);
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;
  ~Autocast();

 private:
  bool enabled_;
};

// The first line of what LibTorch threw, as an `internal` error ("LibTorch: …"). Running out of memory says so, with what the process has;
// a GPU that this LibTorch or this driver can never use is `invalid_argument`.
Error torch_error(const std::exception& thrown);
bool is_out_of_memory(const Error& error);

// Runs `body`, which returns a Status or Result; what LibTorch throws inside becomes its error.
template <typename Body>
auto catching(const Body& body) -> decltype(body()) {
  try {
    return body();
  } catch (const std::exception& thrown) {
    return torch_error(thrown);
  }
}

}  // namespace atl
