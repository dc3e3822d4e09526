#include "coordinator/ledger/durable_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

namespace atl::coordinator {

Status write_durable(const std::filesystem::path& path, std::string_view text) {
  const std::string temporary = path.string() + ".new";
  const auto failed = [&](const char* what) {
    const int code = errno;
    ::unlink(temporary.c_str());
    return Error{Code::io, std::string("cannot ") + what + " " + path.string() + ": " + std::strerror(code)};
  };
  const int file = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0) {
    return failed("write");
  }
  std::size_t done = 0;
  bool good = true;
  while (good && done < text.size()) {
    const ssize_t count = ::write(file, text.data() + done, text.size() - done);
    good = count > 0 || (count < 0 && errno == EINTR);
    done += count > 0 ? static_cast<std::size_t>(count) : 0;
  }
  good = good && ::fsync(file) == 0;
  const int code = errno;
  ::close(file);
  errno = code;
  if (!good || ::rename(temporary.c_str(), path.c_str()) != 0) {
    return failed("write");
  }
  const int folder = ::open(path.has_parent_path() ? path.parent_path().c_str() : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder >= 0) {
    ::fsync(folder);
    ::close(folder);
  }
  return {};
}

}  // namespace atl::coordinator
