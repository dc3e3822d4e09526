#include "agent/storage/durable_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "transport/identity/sha256.hpp"

namespace atl {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kReadBytes = 1ULL << 20;

Error os_error(const fs::path& path, const char* what, int number) {
  const Code code = number == ENOENT ? Code::not_found : Code::io;
  std::string why = path.string() + ": " + what + ": " + std::strerror(number);
  if (number == ENOSPC || number == EDQUOT) {
    why += "; free some space";
  } else if (number == EFBIG) {
    why += "; the file size limit of this process (ulimit -f) is too low";
  }
  return {code, std::move(why)};
}

Status write_all(int fd, ByteView bytes, const fs::path& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), std::min<std::size_t>(bytes.size(), 1ULL << 30));
    if (written < 0 && errno == EINTR) {
      continue;
    }
    if (written < 0) {
      return os_error(path, "cannot be written", errno);
    }
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return {};
}

// A FIFO is not waited for, and a terminal not taken: both are refused by check_regular.
int open_regular(const fs::path& path) { return ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC); }

Status check_regular(int fd, const fs::path& path) {
  struct stat facts {};
  return ::fstat(fd, &facts) == 0 && S_ISREG(facts.st_mode) ? Status() : Error{Code::io, path.string() + ": not a regular file"};
}

struct Descriptor {
  int fd = -1;
  ~Descriptor() {
    if (fd >= 0) {
      ::close(fd);
    }
  }
};

}  // namespace

struct DurableFile::State {
  fs::path path;
  int fd = -1;
  Sha256 hasher;
  std::uint64_t bytes = 0;
};

DurableFile::DurableFile(std::unique_ptr<State> state) : state_(std::move(state)) {}
DurableFile::DurableFile(DurableFile&& other) noexcept = default;

DurableFile::~DurableFile() {
  if (state_ && state_->fd >= 0) {
    ::close(state_->fd);
  }
}

Result<DurableFile> DurableFile::create(const fs::path& path) {
  auto state = std::make_unique<State>();
  state->path = path;
  state->fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (state->fd < 0) {
    return os_error(path, "cannot be created", errno);
  }
  return DurableFile(std::move(state));
}

Status DurableFile::write(ByteView bytes) {
  ATOLL_CHECK(state_->fd >= 0, "a finished file takes no more bytes");
  ATOLL_TRY(write_all(state_->fd, bytes, state_->path));
  state_->hasher.update(bytes);
  state_->bytes += bytes.size();
  return {};
}

Result<FileFacts> DurableFile::finish() {
  const int fd = std::exchange(state_->fd, -1);
  const int failure = ::fsync(fd) == 0 ? 0 : errno;
  if (::close(fd) != 0 && failure == 0) {
    return os_error(state_->path, "cannot be closed", errno);
  }
  if (failure != 0) {
    return os_error(state_->path, "cannot be synced", failure);
  }
  return FileFacts{state_->bytes, state_->hasher.finish()};
}

Result<FileFacts> facts_of(const fs::path& path) {
  const Descriptor file{open_regular(path)};
  if (file.fd < 0) {
    return os_error(path, "cannot be opened", errno);
  }
  ATOLL_TRY(check_regular(file.fd, path));
  Sha256 hasher;
  FileFacts facts;
  Bytes buffer(kReadBytes);
  while (true) {
    const ssize_t got = ::read(file.fd, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      return os_error(path, "cannot be read", errno);
    }
    if (got == 0) {
      break;
    }
    hasher.update(ByteView(buffer).first(static_cast<std::size_t>(got)));
    facts.bytes += static_cast<std::uint64_t>(got);
  }
  facts.sha256 = hasher.finish();
  return facts;
}

Status sync_path(const fs::path& path) {
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.fd < 0) {
    return os_error(path, "cannot be opened", errno);
  }
  if (::fsync(file.fd) != 0) {
    return os_error(path, "cannot be synced", errno);
  }
  return {};
}

Status rename_durably(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) {
    return os_error(from, ("cannot be renamed to " + to.string()).c_str(), errno);
  }
  const fs::path folder = to.parent_path();
  return sync_path(folder.empty() ? fs::path(".") : folder);
}

Status replace_file(const fs::path& path, ByteView content) {
  const fs::path fresh = path.string() + ".new";
  ATOLL_ASSIGN(DurableFile file, DurableFile::create(fresh));
  ATOLL_TRY(file.write(content));
  ATOLL_ASSIGN([[maybe_unused]] const FileFacts facts, file.finish());
  return rename_durably(fresh, path);
}

Result<Bytes> read_file(const fs::path& path, std::size_t most) {
  const Descriptor file{open_regular(path)};
  struct stat facts {};
  if (file.fd < 0 || ::fstat(file.fd, &facts) != 0) {
    return os_error(path, "cannot be opened", errno);
  }
  ATOLL_TRY(check_regular(file.fd, path));
  if (static_cast<std::uint64_t>(facts.st_size) > most) {
    return Error{Code::corrupt, path.string() + ": longer than " + human_bytes(most)};
  }
  Bytes content(static_cast<std::size_t>(facts.st_size));
  std::size_t at = 0;
  while (at < content.size()) {
    const ssize_t got = ::read(file.fd, content.data() + at, content.size() - at);
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      return os_error(path, "cannot be read", errno);
    }
    if (got == 0) {
      content.resize(at);
      break;
    }
    at += static_cast<std::size_t>(got);
  }
  return content;
}

Status make_folders(const fs::path& path) {
  std::error_code failure;
  fs::create_directories(path, failure);
  if (failure) {
    return Error{Code::io, path.string() + ": cannot be created: " + failure.message()};
  }
  return {};
}

}  // namespace atl
