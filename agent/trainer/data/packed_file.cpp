#include "agent/trainer/data/packed_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <new>

#include "agent/trainer/data/corrupt_file.hpp"
#include "transport/base/bytes.hpp"

namespace atl {
namespace {

constexpr std::size_t kHead = std::size_t{1} << 16;
constexpr std::size_t kPiece = std::size_t{1} << 22;

struct GzCloser {
  void operator()(gzFile_s* file) const { gzclose(file); }
};
using GzFile = std::unique_ptr<gzFile_s, GzCloser>;

Result<GzFile> open_packed(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  struct stat facts {};
  if (fd < 0 || ::fstat(fd, &facts) != 0) {
    return Error{errno == ENOENT ? Code::not_found : Code::io, path + ": cannot be opened: " + std::strerror(errno)};
  }
  if (!S_ISREG(facts.st_mode)) {
    ::close(fd);
    return Error{Code::io, path + ": not a regular file"};
  }
  GzFile file(gzdopen(fd, "rb"));
  if (!file) {
    ::close(fd);
    return Error{Code::io, path + ": cannot be opened: no memory is left"};
  }
  gzbuffer(file.get(), 1U << 18);
  return file;
}

// Adds at most `most` bytes; fewer only at the end of the file.
Status add_bytes(const std::string& path, gzFile_s* file, std::size_t most, std::vector<std::uint8_t>& bytes) {
  while (most > 0) {
    const std::size_t at = bytes.size();
    const std::size_t piece = std::min(most, kPiece);
    bytes.resize(at + piece);
    const int got = gzread(file, bytes.data() + at, static_cast<unsigned>(piece));
    bytes.resize(at + static_cast<std::size_t>(std::max(got, 0)));
    int code = Z_OK;
    const char* why = gzerror(file, &code);
    if (got < 0 || (code != Z_OK && code != Z_STREAM_END)) {
      return code == Z_ERRNO ? Error{Code::io, path + ": cannot be read: " + std::strerror(errno)}
                             : corrupt(path, std::string("not a whole gzip file: ") + why);
    }
    if (got == 0) {
      return {};
    }
    most -= static_cast<std::size_t>(got);
  }
  return {};
}

}  // namespace

std::uint64_t memory_for_data() {
  const auto pages = static_cast<std::uint64_t>(std::max(::sysconf(_SC_PHYS_PAGES), 0L));
  return pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)) / 2;
}

Result<std::vector<std::uint8_t>> read_unpacked(const std::string& path, const SizeFromHead& size) {
  ATOLL_ASSIGN(const GzFile file, open_packed(path));
  try {
    std::vector<std::uint8_t> bytes;
    ATOLL_TRY(add_bytes(path, file.get(), kHead, bytes));
    ATOLL_ASSIGN(const std::uint64_t whole, size(bytes));
    if (bytes.size() == kHead && whole > memory_for_data()) {
      return corrupt(path, "it says that it has " + human_bytes(whole) + ", more than half of this machine's memory; split it");
    }
    // One byte more shows that it is longer than it says.
    ATOLL_TRY(add_bytes(path, file.get(), whole + 1 > bytes.size() ? whole + 1 - bytes.size() : 0, bytes));
    return bytes.size() <= whole ? Result<std::vector<std::uint8_t>>(std::move(bytes))
                                 : corrupt(path, "it is longer than it says: it goes on after " + std::to_string(whole) + " bytes");
  } catch (const std::bad_alloc&) {
    return Error{Code::io, path + ": there is not enough memory for it"};
  }
}

}  // namespace atl
