#include "cli/models/asked_program.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <iterator>
#include <thread>
#include <utility>

#include "transport/base/file_descriptor.hpp"

extern char** environ;  // NOLINT(readability-redundant-declaration)

namespace atl {
namespace {

// A file without a name: what a process reads and writes there cannot block it.
Result<FileDescriptor> nameless_file(const char* what) {
  FileDescriptor file(::memfd_create(what, MFD_CLOEXEC));
  return file.get() >= 0 ? Result<FileDescriptor>(std::move(file))
                         : Result<FileDescriptor>(Error{Code::io, std::string("no memory for its answer: ") + std::strerror(errno)});
}

Result<Bytes> content(const FileDescriptor& file) {
  const off_t size = ::lseek(file.get(), 0, SEEK_END);
  Bytes bytes(static_cast<std::size_t>(std::max<off_t>(size, 0)));
  if (size < 0 || ::pread(file.get(), bytes.data(), bytes.size(), 0) != size) {
    return Error{Code::io, std::string("its answer cannot be read back: ") + std::strerror(errno)};
  }
  return bytes;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  std::ranges::transform(texts, std::back_inserter(pointers), [](std::string& text) { return text.data(); });
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

Result<ProgramAnswer> ask_program(std::vector<std::string> words, ByteView in, std::vector<std::string> environment, ProgramTalk talk,
                                  Duration patience) {
  ATOLL_ASSIGN(const FileDescriptor given, nameless_file("in"));
  ATOLL_ASSIGN(const FileDescriptor out, nameless_file("out"));
  ATOLL_ASSIGN(const FileDescriptor said, nameless_file("said"));
  if (::pwrite(given.get(), in.data(), in.size(), 0) != static_cast<ssize_t>(in.size())) {
    return Error{Code::io, std::string("no memory for what it is given: ") + std::strerror(errno)};
  }
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, given.get(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&files, out.get(), STDOUT_FILENO);
  if (talk == ProgramTalk::kept) {
    posix_spawn_file_actions_adddup2(&files, said.get(), STDERR_FILENO);
  }
  pid_t process = 0;
  const int failure =
      ::posix_spawnp(&process, words.front().c_str(), &files, nullptr, pointers_to(words).data(), pointers_to(environment).data());
  posix_spawn_file_actions_destroy(&files);
  if (failure != 0) {
    return Error{Code::not_found, std::strerror(failure)};
  }
  const TimePoint until = now() + patience;
  int ended = 0;
  bool late = false;
  for (pid_t waited = 0; waited == 0 || (waited < 0 && errno == EINTR);) {
    waited = ::waitpid(process, &ended, late ? 0 : WNOHANG);
    if (waited == 0 && now() > until) {
      late = ::kill(process, SIGKILL) == 0;
    } else if (waited == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  if (late) {
    return Error{Code::timeout, "it had not ended after " + human_duration(patience)};
  }
  ProgramAnswer answer;
  answer.status = WIFEXITED(ended) ? WEXITSTATUS(ended) : -1;
  ATOLL_ASSIGN(answer.out, content(out));
  ATOLL_ASSIGN(answer.said, content(said));
  return answer;
}

std::vector<std::string> own_environment() {
  std::vector<std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    variables.emplace_back(*entry);
  }
  return variables;
}

}  // namespace atl
