#include "agent/island_link/arena.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

namespace atl::island_link {

namespace {

constexpr std::uint64_t kLargestParameter = 1ULL << 40;
constexpr std::uint64_t kFragmentAlignment = 16;
constexpr std::size_t kLargestDescription = 4096;  // bytes

Error os_error(const std::string& what, int number) {
  return {number == EEXIST ? Code::conflict : Code::io, what + ": " + std::strerror(number)};
}

// Closes a file descriptor on every way out.
struct OpenFile {
  int fd;
  explicit OpenFile(int descriptor) : fd(descriptor) {}
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  ~OpenFile() {
    if (fd >= 0) {
      ::close(fd);
    }
  }
};

Result<std::span<float>> map_floats(const OpenFile& file, const std::string& path, std::uint64_t bytes) {
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.fd, 0);
  if (memory == MAP_FAILED) {
    return os_error("arena " + path + ": cannot map " + std::to_string(bytes) + " bytes", errno);
  }
  return std::span<float>(static_cast<float*>(memory), bytes / sizeof(float));
}

// A new file that this process alone has locked. Whoever removes what is abandoned may take it for that before it is locked: then it is
// made again.
int make_locked(const std::string& path) {
  while (true) {
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    struct stat facts {};
    if (fd < 0 || (::flock(fd, LOCK_EX) == 0 && ::fstat(fd, &facts) == 0 && facts.st_nlink > 0)) {
      return fd;
    }
    ::close(fd);
  }
}

Status check_size(const std::string& path, std::uint64_t bytes) {
  if (bytes == 0 || bytes % sizeof(float) != 0) {
    return Error{Code::invalid_argument, "arena " + path + ": its size must be a multiple of 4 bytes, not " + std::to_string(bytes)};
  }
  return {};
}

}  // namespace

Result<Arena> Arena::create(const std::string& path, std::uint64_t bytes) {
  ATOLL_TRY(check_size(path, bytes));
  OpenFile file(make_locked(path));
  if (file.fd < 0) {
    return os_error("cannot make the arena " + path, errno);
  }
  if (const int failure = ::posix_fallocate(file.fd, 0, static_cast<off_t>(bytes)); failure != 0) {
    ::unlink(path.c_str());
    return os_error("no room for the arena " + path + " of " + std::to_string(bytes) + " bytes", failure);
  }
  auto mapped = map_floats(file, path, bytes);
  if (!mapped) {
    ::unlink(path.c_str());
    return std::move(mapped).error();
  }
  Arena arena;
  arena.path_ = path;
  arena.floats_ = *mapped;
  arena.lock_ = std::exchange(file.fd, -1);
  return arena;
}

Result<Arena> Arena::of_this_process(std::uint64_t bytes) {
  ATOLL_TRY(check_size("of this process", bytes));
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return os_error("no room for an arena of " + std::to_string(bytes) + " bytes", errno);
  }
  Arena arena;
  arena.floats_ = std::span<float>(static_cast<float*>(memory), bytes / sizeof(float));
  return arena;
}

Result<Arena> Arena::open(const std::string& path, std::uint64_t bytes) {
  ATOLL_TRY(check_size(path, bytes));
  const OpenFile file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (file.fd < 0) {
    return os_error("cannot open the arena " + path, errno);
  }
  struct stat status {};
  if (::fstat(file.fd, &status) != 0) {
    return os_error("cannot open the arena " + path, errno);
  }
  if (!S_ISREG(status.st_mode) || static_cast<std::uint64_t>(status.st_size) != bytes) {
    return Error{Code::corrupt, "arena " + path + ": it has " + std::to_string(status.st_size) + " bytes where " + std::to_string(bytes) +
                                    " were announced"};
  }
  ATOLL_ASSIGN(const std::span<float> mapped, map_floats(file, path, bytes));
  Arena arena;
  arena.path_ = path;
  arena.floats_ = mapped;
  return arena;
}

Arena::Arena(Arena&& other) noexcept
    : path_(std::move(other.path_)), floats_(std::exchange(other.floats_, {})), lock_(std::exchange(other.lock_, -1)) {}

Arena& Arena::operator=(Arena&& other) noexcept {
  if (this != &other) {
    close();
    path_ = std::move(other.path_);
    floats_ = std::exchange(other.floats_, {});
    lock_ = std::exchange(other.lock_, -1);
  }
  return *this;
}

Arena::~Arena() { close(); }

void Arena::close() noexcept {
  if (!floats_.empty()) {
    ::munmap(floats_.data(), floats_.size_bytes());
    floats_ = {};
  }
  if (lock_ >= 0) {
    ::unlink(path_.c_str());
    ::close(std::exchange(lock_, -1));
  }
}

std::vector<std::string> remove_abandoned_arenas(const std::string& folder, const std::string& prefix) {
  std::vector<std::string> removed;
  std::error_code failure;
  for (const auto& entry : std::filesystem::directory_iterator(folder, failure)) {
    if (!entry.path().filename().string().starts_with(prefix)) {
      continue;
    }
    const std::string path = entry.path().string();
    const OpenFile file(::open(path.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    struct stat held {};
    struct stat named {};
    const bool abandoned = file.fd >= 0 && ::flock(file.fd, LOCK_EX | LOCK_NB) == 0 && ::fstat(file.fd, &held) == 0 &&
                           S_ISREG(held.st_mode) && ::lstat(path.c_str(), &named) == 0 && named.st_ino == held.st_ino &&
                           named.st_dev == held.st_dev;
    if (abandoned && ::unlink(path.c_str()) == 0) {
      removed.push_back(path);
    }
  }
  return removed;
}

std::span<float> Arena::range(const Fragment& fragment) const {
  ATOLL_CHECK(fragment.offset <= floats_.size() && fragment.count <= floats_.size() - fragment.offset, "fragment outside the arena");
  return floats_.subspan(fragment.offset, fragment.count);
}

std::uint64_t elements(const Parameter& parameter) {
  std::uint64_t product = 1;
  for (const std::uint64_t dimension : parameter.shape) {
    if (dimension == 0 || product > kLargestParameter / dimension) {
      return 0;
    }
    product *= dimension;
  }
  return product;
}

std::uint64_t elements(const std::vector<Parameter>& parameters) {
  std::uint64_t sum = 0;
  for (const Parameter& parameter : parameters) {
    sum += elements(parameter);
  }
  return sum;
}

Status check_manifest(const Manifest& manifest) {
  if (manifest.parameters.empty()) {
    return Error{Code::invalid_argument, "the trainer declares no parameters"};
  }
  if (manifest.description && manifest.description->size() > kLargestDescription) {
    return Error{Code::invalid_argument,
                 "the trainer's description of its model is longer than " + std::to_string(kLargestDescription) + " bytes"};
  }
  std::set<std::string> names;
  for (const Parameter& parameter : manifest.parameters) {
    if (parameter.name.empty() || !names.insert(parameter.name).second) {
      return Error{Code::invalid_argument, "the trainer declares the parameter '" + parameter.name + "' twice or without a name"};
    }
    if (elements(parameter) == 0) {
      return Error{Code::invalid_argument, "the trainer's parameter '" + parameter.name + "' has no elements or more than 2^40"};
    }
    if (parameter.block < -1 || parameter.block > static_cast<std::int64_t>(manifest.parameters.size())) {
      return Error{Code::invalid_argument, "the trainer's parameter '" + parameter.name + "' is in block " +
                                               std::to_string(parameter.block) + ", more than there are parameters"};
    }
    if (parameter.buffer && *parameter.buffer != kBufferMean && *parameter.buffer != kBufferOfOne) {
      return Error{Code::invalid_argument, "the trainer's buffer '" + parameter.name + "' is declared as '" + *parameter.buffer +
                                               "'; it can be '" + kBufferMean + "' or '" + kBufferOfOne + "'"};
    }
  }
  return {};
}

Result<ArenaLayout> lay_out(const Manifest& manifest, const std::vector<std::vector<std::uint32_t>>& fragments) {
  ATOLL_TRY(check_manifest(manifest));
  ArenaLayout layout;
  std::vector<bool> placed(manifest.parameters.size(), false);
  std::uint64_t at = 0;
  for (std::size_t f = 0; f < fragments.size(); ++f) {
    at = (at + kFragmentAlignment - 1) / kFragmentAlignment * kFragmentAlignment;
    const std::uint64_t begin = at;
    for (const std::uint32_t parameter : fragments[f]) {
      if (parameter >= placed.size() || placed[parameter]) {
        return Error{Code::invalid_argument, "fragment " + std::to_string(f) + " holds parameter " + std::to_string(parameter) +
                                                 ", which does not exist or is in a fragment already"};
      }
      placed[parameter] = true;
      layout.entries.push_back({parameter, at});
      at += elements(manifest.parameters[parameter]);
    }
    if (at == begin) {
      return Error{Code::invalid_argument, "fragment " + std::to_string(f) + " holds no parameter"};
    }
    layout.fragments.push_back({begin, at - begin});
  }
  if (const auto missing = std::find(placed.begin(), placed.end(), false); missing != placed.end()) {
    return Error{Code::invalid_argument,
                 "parameter '" + manifest.parameters[static_cast<std::size_t>(missing - placed.begin())].name + "' is in no fragment"};
  }
  layout.bytes = at * sizeof(float);
  return layout;
}

namespace {

// A range of elements and what to call it.
struct Range {
  std::uint64_t offset;
  std::uint64_t count;
  std::string name;
};

Status sort_and_check(std::vector<Range>& ranges, std::uint64_t limit) {
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.offset < b.offset; });
  std::uint64_t end = 0;
  for (const Range& range : ranges) {
    if (range.count == 0 || range.offset < end || range.offset > limit || range.count > limit - range.offset) {
      return Error{Code::corrupt, "arena layout: " + range.name + " is empty, overlaps another or ends outside the arena"};
    }
    end = range.offset + range.count;
  }
  return {};
}

}  // namespace

Status check_layout(const Manifest& manifest, const ArenaLayout& layout) {
  const std::uint64_t limit = layout.bytes / sizeof(float);
  std::vector<bool> seen(manifest.parameters.size(), false);
  std::vector<Range> entries;
  for (const Entry& entry : layout.entries) {
    if (entry.parameter >= seen.size() || seen[entry.parameter]) {
      return Error{Code::corrupt, "arena layout: parameter " + std::to_string(entry.parameter) + " does not exist or has two entries"};
    }
    seen[entry.parameter] = true;
    const Parameter& parameter = manifest.parameters[entry.parameter];
    entries.push_back({entry.offset, elements(parameter), "parameter '" + parameter.name + "'"});
  }
  if (const auto missing = std::find(seen.begin(), seen.end(), false); missing != seen.end()) {
    return Error{Code::corrupt, "arena layout: parameter '" + manifest.parameters[static_cast<std::size_t>(missing - seen.begin())].name +
                                    "' has no entry"};
  }
  std::vector<Range> fragments;
  for (std::size_t f = 0; f < layout.fragments.size(); ++f) {
    fragments.push_back({layout.fragments[f].offset, layout.fragments[f].count, "fragment " + std::to_string(f)});
  }
  ATOLL_TRY(sort_and_check(entries, limit));
  ATOLL_TRY(sort_and_check(fragments, limit));
  // Both are sorted: the entries must tile the fragments exactly.
  auto entry = entries.begin();
  for (const Range& fragment : fragments) {
    std::uint64_t at = fragment.offset;
    while (entry != entries.end() && entry->offset == at && entry->count <= fragment.offset + fragment.count - at) {
      at += entry->count;
      ++entry;
    }
    if (at != fragment.offset + fragment.count) {
      return Error{Code::corrupt, "arena layout: " + fragment.name + " is not made of whole parameters one after another"};
    }
  }
  if (entry != entries.end()) {
    return Error{Code::corrupt, "arena layout: " + entry->name + " is in no fragment"};
  }
  return {};
}

}  // namespace atl::island_link
