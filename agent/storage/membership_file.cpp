#include "agent/storage/membership_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "agent/storage/durable_file.hpp"
#include "transport/base/bytes.hpp"
#include "transport/base/own_disk.hpp"
#include "transport/base/private_folder.hpp"
#include "transport/identity/sha256.hpp"

namespace atl::agent {
namespace fs = std::filesystem;
namespace {

constexpr const char* kCoordinatorFile = "coordinator.json";

}  // namespace

Result<StateLock> StateLock::take(const fs::path& state) {
  ATOLL_TRY(make_private_folders(state));
  const fs::path path = state / "agent.lock";
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) {
    return Error{Code::io, path.string() + ": " + std::strerror(errno)};
  }
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    std::array<char, 32> owner{};
    const ssize_t got = ::read(fd, owner.data(), owner.size() - 1);
    ::close(fd);
    const std::string pid(owner.data(), got > 0 ? static_cast<std::size_t>(got) : 0);
    return Error{Code::conflict, "the state directory " + state.string() + " is in use by process " + pid +
                                     "; stop that one, or give --state another directory"};
  }
  const std::string pid = std::to_string(::getpid());
  // The pid is for people; the lock holds without it, on a full disk, say.
  if (::ftruncate(fd, 0) == 0) {
    (void)!::write(fd, pid.data(), pid.size());
  }
  return StateLock(fd, path);
}

StateLock::StateLock(StateLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}

Status StateLock::still_held() const {
  struct stat there {};
  struct stat held {};
  const bool looked = ::stat(path_.c_str(), &there) == 0;
  if (!looked && errno != ENOENT && errno != ENOTDIR) {
    return {};
  }
  if (looked && ::fstat(fd_, &held) == 0 && there.st_ino == held.st_ino && there.st_dev == held.st_dev) {
    return {};
  }
  return Error{Code::io, "the state directory " + path_.parent_path().string() + " was removed or replaced while this agent runs"};
}

std::string StateLock::place() const {
  struct stat held {};
  std::string machine;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> machine;
  if (machine.empty() || ::fstat(fd_, &held) != 0) {
    return "";
  }
  const std::string text = machine + " " + std::to_string(held.st_dev) + " " + std::to_string(held.st_ino);
  return to_hex(sha256(as_bytes(text)));
}

StateLock::~StateLock() {
  if (fd_ >= 0) {
    ::close(fd_);
  }
}

Result<CoordinatorPlace> read_coordinator(const fs::path& state) {
  const fs::path path = state / kCoordinatorFile;
  const Result<Bytes> content = read_file(on_this_machine(path), 1U << 16);
  if (!content && content.error().code == Code::not_found) {
    return Error{Code::not_found, "this island has not joined a coordinator yet (" + state.string() +
                                      "); make a token with `atoll token create` and start with: atoll agent --join-file FILE"};
  }
  if (!content) {
    return content.error();
  }
  try {
    const nlohmann::json json = nlohmann::json::parse(as_text(*content));
    CoordinatorPlace place{json.at("address").get<std::string>(), json.at("key").get<std::string>()};
    place.name = json.value("name", "");
    if (const auto met = json.find("generation"); met != json.end()) {
      place.generation.restored = met->at("restored").get<std::uint64_t>();
      place.generation.starts = met->at("starts").get<std::uint64_t>();
      place.generation.life = met->at("life").get<std::uint64_t>();
      ATOLL_ASSIGN(place.generation.proof, digest_from_hex(met->at("proof").get<std::string>()));
    }
    return place;
  } catch (const nlohmann::json::exception&) {
    return Error{Code::corrupt, path.string() + ": cannot be read; remove it and join again with a new token"};
  }
}

Status write_coordinator(const fs::path& state, const CoordinatorPlace& place) {
  nlohmann::json json = {{"address", place.address}, {"key", place.key}};
  if (place.generation.known()) {
    json["generation"] = {{"restored", place.generation.restored},
                          {"starts", place.generation.starts},
                          {"life", place.generation.life},
                          {"proof", to_hex(place.generation.proof)}};
  }
  if (!place.name.empty()) {
    json["name"] = place.name;
  }
  const std::string text = json.dump(2) + "\n";
  return replace_file(on_this_machine(state / kCoordinatorFile), as_bytes(text));
}

}  // namespace atl::agent
