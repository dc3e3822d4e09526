#include "agent/trainer/new_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

namespace atl {

Error file_error(const std::string& path, const char* what) {
  return {Code::io, "cannot " + std::string(what) + " " + path + ": " + std::strerror(errno)};
}

NewFile::NewFile(std::string path) : path_(std::move(path)), fd_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)) {}

NewFile::~NewFile() {
  if (fd_ >= 0) {
    ::close(fd_);
    ::unlink(path_.c_str());
  }
}

Status NewFile::opened() const { return fd_ >= 0 ? Status() : file_error(path_, "create"); }

Status NewFile::write(ByteView bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
    if (written < 0 && errno != EINTR) {
      return file_error(path_, "write");
    }
    bytes = bytes.subspan(static_cast<std::size_t>(std::max<ssize_t>(written, 0)));
  }
  return {};
}

Status NewFile::keep_as(const std::string& path) {
  if (::fsync(fd_) != 0) {
    return file_error(path_, "sync");
  }
  if (::rename(path_.c_str(), path.c_str()) != 0) {
    return file_error(path_, "rename");
  }
  ::close(std::exchange(fd_, -1));
  return {};
}

Status sync_directory(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool synced = fd >= 0 && ::fsync(fd) == 0;
  const Error error = file_error(path, "sync");
  if (fd >= 0) {
    ::close(fd);
  }
  return synced ? Status() : error;
}

}  // namespace atl
