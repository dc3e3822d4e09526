#include "transport/bulk/partial_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>

namespace atl {
namespace {

bool write_all(int fd, ByteView bytes, std::uint64_t offset) {
  while (!bytes.empty()) {
    const ssize_t count = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count <= 0) {
      return false;
    }
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    offset += static_cast<std::uint64_t>(count);
  }
  return true;
}

// Fewer bytes than asked for only at the end of the file; nothing on an error.
std::optional<Bytes> read_at(int fd, std::uint64_t offset, std::size_t count) {
  Bytes bytes(count);
  std::size_t done = 0;
  while (done < count) {
    const ssize_t got = ::pread(fd, bytes.data() + done, count - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      return std::nullopt;
    }
    if (got == 0) {
      break;
    }
    done += static_cast<std::size_t>(got);
  }
  bytes.resize(done);
  return bytes;
}

std::uint64_t size_of(int fd) {
  struct ::stat about {};
  return ::fstat(fd, &about) == 0 ? static_cast<std::uint64_t>(about.st_size) : 0;
}

}  // namespace

PartialFile::PartialFile(PartialFile&& other) noexcept { *this = std::move(other); }
PartialFile& PartialFile::operator=(PartialFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(what_, other.what_);
  std::swap(bytes_, other.bytes_);
  std::swap(have_, other.have_);
  std::swap(found_, other.found_);
  return *this;
}
PartialFile::~PartialFile() {
  for (const int fd : {bytes_, have_}) {
    if (fd >= 0) {
      ::close(fd);
    }
  }
}

Error PartialFile::failed(const std::string& doing) const {
  return Error{Code::io, doing + " \"" + path_ + ".part\" failed: " + std::strerror(errno)};
}

Result<PartialFile> PartialFile::open(std::string path, const std::string& what, std::uint64_t size, std::size_t pieces) {
  PartialFile file;
  file.path_ = std::move(path);
  file.what_ = what + "\n";
  file.bytes_ = ::open((file.path_ + ".part").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (file.bytes_ < 0) {
    return file.failed("opening");
  }
  file.have_ = ::open((file.path_ + ".have").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (file.have_ < 0) {
    return file.failed("opening what is had of");
  }
  const std::optional<Bytes> listed = read_at(file.have_, 0, file.what_.size() + 4 * pieces);
  if (!listed) {
    return file.failed("reading what is had of");
  }
  const bool same = size_of(file.bytes_) == size && as_text(*listed).starts_with(file.what_);
  if (!same) {
    ATOLL_TRY(file.begin_anew());
    if (::ftruncate(file.bytes_, static_cast<off_t>(size)) != 0) {
      return file.failed("making room for");
    }
    return file;
  }
  ByteReader reader(ByteView(*listed).subspan(file.what_.size()));
  for (auto piece = reader.read<std::uint32_t>(); piece; piece = reader.read<std::uint32_t>()) {
    if (*piece < pieces) {
      file.found_.push_back(*piece);
    }
  }
  std::sort(file.found_.begin(), file.found_.end());
  file.found_.erase(std::unique(file.found_.begin(), file.found_.end()), file.found_.end());
  return file;
}

Status PartialFile::write(std::uint32_t piece, std::uint64_t offset, ByteView bytes) {
  if (!write_all(bytes_, bytes, offset)) {
    return failed("writing");
  }
  Bytes entry;
  append_le(entry, piece);
  // Whole entries only, even after a torn one.
  const std::uint64_t end = what_.size() + (size_of(have_) - std::min<std::uint64_t>(size_of(have_), what_.size())) / 4 * 4;
  if (!write_all(have_, entry, end)) {
    return failed("noting a piece of");
  }
  return {};
}

Result<Bytes> PartialFile::read(std::uint64_t offset, std::size_t count) const {
  std::optional<Bytes> bytes = read_at(bytes_, offset, count);
  return bytes ? Result<Bytes>(*std::move(bytes)) : Result<Bytes>(failed("reading"));
}

Status PartialFile::begin_anew() {
  found_.clear();
  if (::ftruncate(have_, 0) != 0 || !write_all(have_, as_bytes(what_), 0)) {
    return failed("beginning");
  }
  return {};
}

Status PartialFile::finish(bool durable) {
  if (durable && ::fsync(bytes_) != 0) {
    return failed("syncing");
  }
  if (::rename((path_ + ".part").c_str(), path_.c_str()) != 0) {
    return failed("renaming");
  }
  ::unlink((path_ + ".have").c_str());
  if (!durable) {
    return {};
  }
  const std::string folder = std::filesystem::path(path_).parent_path().string();
  const int fd = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool synced = fd >= 0 && ::fsync(fd) == 0;
  if (fd >= 0) {
    ::close(fd);
  }
  return synced ? Status() : Status(failed("syncing the folder of"));
}

}  // namespace atl
