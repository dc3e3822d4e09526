#include "cli/line/scratch_folder.hpp"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>

namespace atl {

namespace fs = std::filesystem;

Result<ScratchFolder> ScratchFolder::make() {
  std::error_code error;
  const fs::path folder = fs::temp_directory_path(error);
  Result<ScratchFolder> made = error ? Result<ScratchFolder>(Error{Code::io, error.message()}) : make_in(folder);
  return made ? std::move(made) : Error{Code::io, made.error().why + "; set TMPDIR to a folder with space for what is fetched"};
}

Result<ScratchFolder> ScratchFolder::make_in(const fs::path& folder) {
  std::string name = (folder / "atoll-fetched-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) {
    return Error{Code::io, folder.string() + ": no folder for what is fetched can be made: " + std::strerror(errno)};
  }
  return ScratchFolder(name);
}

ScratchFolder::ScratchFolder(ScratchFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  if (!path_.empty()) {
    fs::remove_all(path_, ignored);
  }
}

}  // namespace atl
