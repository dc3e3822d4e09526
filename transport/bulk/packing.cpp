#include "transport/bulk/packing.hpp"

#include <zstd.h>

#include <memory>
#include <string>

#include "transport/base/check.hpp"

namespace atl {
namespace {

constexpr int kFastest = 1;

struct FreeContext {
  void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
  void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
};

}  // namespace

std::optional<Bytes> pack(ByteView bytes) {
  thread_local std::unique_ptr<ZSTD_CCtx, FreeContext> context(ZSTD_createCCtx());
  ATOLL_CHECK(context != nullptr, "there is memory for a context of Zstandard");
  if (bytes.size() < 2) {
    return std::nullopt;
  }
  Bytes packed(bytes.size() - 1);  // what does not fit is not smaller
  const std::size_t size = ZSTD_compressCCtx(context.get(), packed.data(), packed.size(), bytes.data(), bytes.size(), kFastest);
  if (ZSTD_isError(size) != 0) {
    return std::nullopt;
  }
  packed.resize(size);
  return packed;
}

Status unpack(ByteView packed, std::span<std::byte> bytes) {
  thread_local std::unique_ptr<ZSTD_DCtx, FreeContext> context(ZSTD_createDCtx());
  ATOLL_CHECK(context != nullptr, "there is memory for a context of Zstandard");
  const std::size_t size = ZSTD_decompressDCtx(context.get(), bytes.data(), bytes.size(), packed.data(), packed.size());
  if (ZSTD_isError(size) != 0) {
    return Error{Code::corrupt, std::string("a packed piece cannot be unpacked: ") + ZSTD_getErrorName(size)};
  }
  if (size != bytes.size()) {
    return Error{Code::corrupt, "a packed piece has " + std::to_string(size) + " bytes where " + std::to_string(bytes.size()) + " belong"};
  }
  return {};
}

}  // namespace atl
