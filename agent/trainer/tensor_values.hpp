// A tensor's numbers in memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <span>

namespace atl {

// Of a contiguous float32 tensor on the processor; valid as long as its storage is.
inline std::span<float> floats_of(const at::Tensor& tensor) { return {tensor.data_ptr<float>(), static_cast<std::size_t>(tensor.numel())}; }

}  // namespace atl
