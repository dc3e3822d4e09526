#include "cli/models/rasterized.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "transport/base/file_descriptor.hpp"

extern char** environ;  // NOLINT(readability-redundant-declaration)

namespace atl {
namespace {

constexpr const char* kProgram = "rsvg-convert";

// A file without a name: what a process reads and writes there cannot block it.
Result<FileDescriptor> nameless_file(const char* what) {
  FileDescriptor file(::memfd_create(what, MFD_CLOEXEC));
  return file.get() >= 0 ? Result<FileDescriptor>(std::move(file))
                         : Result<FileDescriptor>(Error{Code::io, std::string("no memory for the picture: ") + std::strerror(errno)});
}

Result<Bytes> content(const FileDescriptor& file) {
  const off_t size = ::lseek(file.get(), 0, SEEK_END);
  Bytes bytes(static_cast<std::size_t>(std::max<off_t>(size, 0)));
  if (size < 0 || ::pread(file.get(), bytes.data(), bytes.size(), 0) != size) {
    return Error{Code::io, std::string("the picture cannot be read back: ") + std::strerror(errno)};
  }
  return bytes;
}

}  // namespace

Result<Bytes> rasterized(const std::string& svg) {
  ATOLL_ASSIGN(const FileDescriptor in, nameless_file("svg"));
  ATOLL_ASSIGN(const FileDescriptor out, nameless_file("png"));
  ATOLL_ASSIGN(const FileDescriptor said, nameless_file("said"));
  if (::pwrite(in.get(), svg.data(), svg.size(), 0) != static_cast<ssize_t>(svg.size())) {
    return Error{Code::io, std::string("no memory for the picture: ") + std::strerror(errno)};
  }
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, in.get(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&files, out.get(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&files, said.get(), STDERR_FILENO);
  std::array<std::string, 3> words = {kProgram, "--format", "png"};
  std::array<char*, 4> arguments = {words[0].data(), words[1].data(), words[2].data(), nullptr};
  pid_t process = 0;
  const int failure = ::posix_spawnp(&process, kProgram, &files, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  if (failure != 0) {
    return Error{Code::not_found, std::string("PNG is drawn by ") + kProgram + ", which is not here (" + std::strerror(failure) +
                                      "): install it (apt-get install librsvg2-bin), or write SVG: -o loss.svg"};
  }
  int ended = 0;
  while (::waitpid(process, &ended, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(ended) || WEXITSTATUS(ended) != 0) {
    ATOLL_ASSIGN(const Bytes words_said, content(said));
    return Error{Code::internal, std::string(kProgram) + " failed: " + std::string(as_text(words_said)).substr(0, 300)};
  }
  return content(out);
}

}  // namespace atl
