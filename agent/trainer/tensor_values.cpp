#include "agent/trainer/tensor_values.hpp"

#include <ATen/ATen.h>

#include <algorithm>

#include "agent/trainer/data/normals.hpp"

namespace atl {

void fill_with_normals(const at::Tensor& flat, std::uint64_t seed, std::uint64_t stream, double deviation) {
  if (flat.is_cpu() && flat.scalar_type() == at::kFloat) {
    fill_with_normals(floats_of(flat), seed, stream, deviation);
    return;
  }
  constexpr std::int64_t kPiece = std::int64_t{1} << 24;
  const at::Tensor piece = at::empty({std::min(kPiece, flat.numel())}, at::kFloat);
  for (std::int64_t from = 0; from < flat.numel(); from += kPiece) {
    const at::Tensor here = piece.narrow(0, 0, std::min(kPiece, flat.numel() - from));
    fill_with_normals(floats_of(here), seed, stream, deviation, static_cast<std::uint64_t>(from));
    flat.narrow(0, from, here.numel()).copy_(here);
  }
}

}  // namespace atl
