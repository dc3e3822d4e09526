#include "agent/island_link/client/saved_folder.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

namespace atl::island_link {
namespace fs = std::filesystem;
namespace {

constexpr const char* kCounts = "atoll-counts.json";

std::string writing(const std::string& directory) { return directory + ".writing"; }

Error io_error(const fs::path& path, const std::string& why) { return {Code::io, path.string() + ": " + why}; }

Status sync(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool synced = fd >= 0 && ::fsync(fd) == 0;
  const int why = errno;
  if (fd >= 0) {
    ::close(fd);
  }
  return synced ? Status() : Status(io_error(path, std::string("cannot be synced: ") + std::strerror(why)));
}

Status sync_all(const fs::path& folder) {
  std::error_code failure;
  for (fs::recursive_directory_iterator at(folder, failure); !failure && at != fs::recursive_directory_iterator(); at.increment(failure)) {
    if (at->is_regular_file(failure) || at->is_directory(failure)) {
      ATOLL_TRY(sync(at->path()));
    }
  }
  if (failure) {
    return io_error(folder, failure.message());
  }
  return sync(folder);
}

Status finish(const std::string& directory, std::string_view counts) {
  const fs::path folder = writing(directory);
  std::ofstream file(folder / kCounts, std::ios::binary | std::ios::trunc);
  file << counts;
  file.close();
  if (!file) {
    return io_error(folder / kCounts, "cannot be written: " + std::string(std::strerror(errno)));
  }
  ATOLL_TRY(sync_all(folder));
  std::error_code failure;
  fs::remove_all(directory, failure);
  fs::rename(folder, directory, failure);
  if (failure) {
    return io_error(directory, failure.message());
  }
  return sync(fs::path(directory).parent_path());
}

}  // namespace

Result<std::string> begin_saving(const std::string& directory) {
  const std::string folder = writing(directory);
  std::error_code failure;
  fs::remove_all(folder, failure);
  if (!fs::create_directory(folder, failure) || failure) {
    return io_error(folder, "cannot be made: " + (failure ? failure.message() : std::string("it is there")));
  }
  return folder;
}

Status finish_saving(const std::string& directory, std::string_view counts) {
  Status done = finish(directory, counts);
  if (!done) {
    abandon_saving(directory);
  }
  return done;
}

void abandon_saving(const std::string& directory) {
  std::error_code failure;
  fs::remove_all(writing(directory), failure);
}

Result<std::string> saved_counts(const std::string& directory) {
  const fs::path path = fs::path(directory) / kCounts;
  std::error_code failure;
  if (!fs::exists(path, failure)) {
    return std::string();
  }
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  return file.bad() ? Result<std::string>(io_error(path, "cannot be read")) : Result<std::string>(std::move(text));
}

void FolderBeside::begin(Saved said, std::string counts) {
  said_ = std::move(said);
  counts_ = std::move(counts);
  going_on_ = true;
  announced_ = false;
}

void FolderBeside::written(const std::string& error) {
  if (!error.empty()) {
    abandon_saving(said_.directory);
    std::promise<Status> failed;
    failed.set_value(Error{Code::io, error});
    finished_ = failed.get_future();
    return;
  }
  finished_ = std::async(std::launch::async,
                         [directory = said_.directory, counts = std::exchange(counts_, {})] { return finish_saving(directory, counts); });
}

std::optional<Saved> FolderBeside::outcome(bool wait) {
  if (!finishing() || !announced_ || (!wait && finished_.wait_for(std::chrono::seconds(0)) != std::future_status::ready)) {
    return std::nullopt;
  }
  const Status done = finished_.get();
  going_on_ = false;
  said_.error = done ? std::nullopt : std::optional(done.error().why);
  return said_;
}

}  // namespace atl::island_link
