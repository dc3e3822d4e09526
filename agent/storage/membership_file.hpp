// Where this island belongs: its keys and its coordinator, kept in the state directory from the first `--join` on.
// Threads: files; one process at a time (the lock).
#pragma once

#include <filesystem>
#include <string>

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

 private:
  explicit StateLock(int fd) : fd_(fd) {}
  int fd_;
};

// STATE/coordinator.json.
struct CoordinatorPlace {
  std::string address;         // "tcp://host:port"
  std::string key;             // Z85
  Generation generation = {};  // the newest of it that this island has met
};
// Errors: not_found if it has not joined; corrupt; io.
Result<CoordinatorPlace> read_coordinator(const std::filesystem::path& state);
Status write_coordinator(const std::filesystem::path& state, const CoordinatorPlace& place);

}  // namespace atl::agent
