#include "agent/trainer/data/packed_file.hpp"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

namespace atl {
namespace {

constexpr std::uint64_t kMaxBytes = 1ULL << 36;

Error corrupt(const std::string& path, const std::string& why) { return Error{Code::corrupt, path + ": " + why}; }

struct GzCloser {
  void operator()(gzFile_s* file) const { gzclose(file); }
};

}  // namespace

Result<std::vector<std::uint8_t>> read_unpacked(const std::string& path) {
  const std::unique_ptr<gzFile_s, GzCloser> file(gzopen(path.c_str(), "rb"));
  if (!file) {
    return Error{errno == ENOENT ? Code::not_found : Code::io, path + ": cannot be opened: " + std::strerror(errno)};
  }
  gzbuffer(file.get(), 1U << 18);
  std::vector<std::uint8_t> bytes;
  constexpr std::size_t kPiece = std::size_t{1} << 22;
  while (true) {
    const std::size_t at = bytes.size();
    bytes.resize(at + kPiece);
    const int got = gzread(file.get(), bytes.data() + at, static_cast<unsigned>(kPiece));
    bytes.resize(at + static_cast<std::size_t>(std::max(got, 0)));
    int code = Z_OK;
    const char* why = gzerror(file.get(), &code);
    if (got < 0 || (code != Z_OK && code != Z_STREAM_END)) {
      return code == Z_ERRNO ? Error{Code::io, path + ": cannot be read: " + std::strerror(errno)} : corrupt(path, std::string("not a whole gzip file: ") + why);
    }
    if (got == 0) {
      return bytes;
    }
    if (bytes.size() > kMaxBytes) {
      return corrupt(path, "it is larger than 64 GiB unpacked");
    }
  }
}

}  // namespace atl
