#include "transport/base/private_folder.hpp"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <system_error>

namespace atl {

Status make_private_folders(const std::filesystem::path& folder) {
  std::filesystem::path made;
  for (const std::filesystem::path& part : folder) {
    made /= part;
    if (::mkdir(made.c_str(), S_IRWXU) == 0 || errno == EEXIST) {
      continue;
    }
    const int why = errno;
    std::error_code ignored;
    if (!std::filesystem::is_directory(made, ignored)) {  // "/" on a disk that cannot be written, say
      return Error{Code::io, made.string() + " cannot be made: " + std::strerror(why) + "; give --state DIR or set ATOLL_STATE"};
    }
  }
  std::error_code ignored;
  return std::filesystem::is_directory(folder, ignored)
             ? Status()
             : Status(Error{Code::io, folder.string() + " cannot be made: a file has this name"});
}

}  // namespace atl
