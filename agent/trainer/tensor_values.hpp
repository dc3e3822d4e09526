// A tensor's numbers in memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace atl {

// Of a contiguous float32 tensor on the processor; valid as long as its storage is.
inline std::span<float> floats_of(const at::Tensor& tensor) { return {tensor.data_ptr<float>(), static_cast<std::size_t>(tensor.numel())}; }

// Fills a flat tensor on any device with the numbers of fill_with_normals() (data/normals.hpp), made on the processor. Memory: none where
// the tensor is float32 and lies there, else 64 MiB.
void fill_with_normals(const at::Tensor& flat, std::uint64_t seed, std::uint64_t stream, double deviation);

}  // namespace atl
