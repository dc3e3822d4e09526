// libFuzzer: any bytes as the head of a bulk frame; what is accepted has one form.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "transport/bulk/piece.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const atl::ByteView head = std::as_bytes(std::span(data, size));
  const atl::Result<atl::Frame> frame = atl::decode_head(head);
  if (!frame) {
    return 0;
  }
  const atl::Bytes again = atl::encode_head(*frame);
  if (!std::equal(again.begin(), again.end(), head.begin(), head.end())) {
    std::abort();
  }
  if (const auto* piece = std::get_if<atl::BlobPiece>(&*frame)) {
    if (piece->length > atl::kMaxPieceBytes || piece->offset > piece->total || piece->length > piece->total - piece->offset) {
      std::abort();
    }
  }
  return 0;
}
