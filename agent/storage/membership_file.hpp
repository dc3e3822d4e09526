// Where this island belongs: its keys and its coordinator, kept in the state directory from the first `--join` on.
// Threads: files; one process at a time (the lock).
#pragma once

#include <filesystem>
#include <string>
#include <utility>

#include "transport/base/generation.hpp"
#include "transport/base/result.hpp"
#include "transport/identity/identity.hpp"

namespace atl::agent {

// STATE/agent.lock, held as long as this value lives. Errors: conflict naming the process that holds it; io.
class StateLock {
 public:
  static Result<StateLock> take(const std::filesystem::path& state);
  StateLock(StateLock&& other) noexcept;
  StateLock& operator=(StateLock&&) = delete;
  StateLock(const StateLock&) = delete;
  StateLock& operator=(const StateLock&) = delete;
  ~StateLock();

  // Errors: io if the file that is locked is not the one in the directory any more: somebody removed or replaced it, and another agent
  // could take the directory. What cannot be looked at (a network's disk that is away) is not gone.
  [[nodiscard]] Status still_held() const;

  // A digest of this machine's last start and of the locked file. Two agents with the same place never had the lock at the same time, so
  // the later one has outlived the earlier. Empty if the machine does not tell when it started.
  [[nodiscard]] std::string place() const;

 private:
  StateLock(int fd, std::filesystem::path path) : fd_(fd), path_(std::move(path)) {}
  int fd_;
  std::filesystem::path path_;
};

// STATE/coordinator.json.
struct CoordinatorPlace {
  std::string address;         // "tcp://host:port"
  std::string key;             // Z85
  Generation generation = {};  // the newest of it that this island has met
  std::string name = {};       // by which the coordinator has enrolled this island; empty: not known
};
// Errors: not_found if it has not joined; corrupt; io.
Result<CoordinatorPlace> read_coordinator(const std::filesystem::path& state);
Status write_coordinator(const std::filesystem::path& state, const CoordinatorPlace& place);

}  // namespace atl::agent
