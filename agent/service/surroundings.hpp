// What an agent has around it: signals, a folder for its trainer's socket, the executable that it is, what others like it left behind.
// Threads: StopSignals is made before any other thread; the rest is free.
#pragma once

#include <signal.h>
#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <string>

#include "transport/base/result.hpp"

namespace atl::agent {

// Memory that this process occupies.
std::uint64_t resident_bytes();

// SIGTERM and SIGINT as a descriptor, blocked in every thread from here on.
class StopSignals {
 public:
  StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  ~StopSignals();
  [[nodiscard]] int fd() const { return fd_; }
  // True if another one came.
  [[nodiscard]] bool take() const;

 private:
  int fd_ = -1;
  sigset_t before_{};
};

// A private folder for the trainer's socket; the state directory's path may be too long for one.
class LinkFolder {
 public:
  // Errors: io.
  static Result<LinkFolder> make(const std::filesystem::path& state);
  LinkFolder(LinkFolder&& other) noexcept;
  LinkFolder& operator=(LinkFolder&&) = delete;
  LinkFolder(const LinkFolder&) = delete;
  LinkFolder& operator=(const LinkFolder&) = delete;
  ~LinkFolder();
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  LinkFolder() = default;
  std::filesystem::path path_;
  struct stat made_ {};
};

// The path of this executable. Errors: io.
Result<std::string> own_program();
// Removes arenas that killed agents left behind, of whatever island: as large as a model each.
void remove_old_arenas();
// What an agent keeps, trainers' states included, is its owner's alone, and so is what an older version left. Errors: io.
Status keep_private(const std::filesystem::path& state);

}  // namespace atl::agent
