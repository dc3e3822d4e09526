// A real S3-compatible server on loopback: PyPI's moto (tests/s3_server.py), which checks the signature of every request. tests/run.sh
// installs it below build/ where pip reaches a package index; without it tests that need it are skipped.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <sstream>
#include <stdexcept>
#include <string>

#include "tests/places.hpp"

namespace atl_test {

class S3Server {
 public:
  // With one bucket. Throws std::runtime_error where a server is installed and does not start.
  explicit S3Server(const std::string& bucket) {
    std::string python = source_folder() + "/build/moto/bin/python";
    std::string script = source_folder() + "/tests/s3_server.py";
    std::string name = bucket;
    if (!std::filesystem::exists(python)) {
      why_ = "there is no S3-compatible server: tests/run.sh installs one (PyPI's moto) in build/moto";
      return;
    }
    std::array<int, 2> out{};
    std::array<int, 2> in{};  // the server ends with what it reads, so with this process in any case
    if (::pipe2(out.data(), O_CLOEXEC) != 0 || ::pipe2(in.data(), O_CLOEXEC) != 0) {
      throw std::runtime_error("no pipe to the S3-compatible server");
    }
    stop_ = in[1];
    std::array<char*, 4> argv = {python.data(), script.data(), name.data(), nullptr};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], 0);
    posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    const int failed = ::posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    ::close(in[0]);
    ::close(out[1]);
    std::istringstream said(failed == 0 ? first_line(out[0]) : "");
    ::close(out[0]);
    ok_ = static_cast<bool>(said >> port_ >> access_key_ >> secret_key_);
    if (!ok_) {
      stop();
      throw std::runtime_error(python + " " + script + " does not start: remove build/moto, and tests/run.sh installs it anew");
    }
  }
  ~S3Server() { stop(); }
  S3Server(const S3Server&) = delete;
  S3Server& operator=(const S3Server&) = delete;

  [[nodiscard]] bool ok() const { return ok_; }
  [[nodiscard]] const std::string& why() const { return why_; }
  [[nodiscard]] std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  // Of the one user there is, who may do anything with the bucket.
  [[nodiscard]] const std::string& access_key() const { return access_key_; }
  [[nodiscard]] const std::string& secret_key() const { return secret_key_; }

 private:
  // Empty if the server ends without one, or has not said it within a minute.
  static std::string first_line(int descriptor) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    std::string line;
    while (line.find('\n') == std::string::npos) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
      pollfd readable{descriptor, POLLIN, 0};
      std::array<char, 256> bytes{};
      if (left.count() <= 0 || ::poll(&readable, 1, static_cast<int>(left.count())) <= 0) {
        return "";
      }
      const ssize_t count = ::read(descriptor, bytes.data(), bytes.size());
      if (count <= 0) {
        return "";
      }
      line.append(bytes.data(), static_cast<std::size_t>(count));
    }
    return line;
  }

  void stop() const {
    if (stop_ >= 0) {
      ::close(stop_);
    }
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
  }

  pid_t pid_ = -1;
  int stop_ = -1;
  bool ok_ = false;
  std::string why_;
  std::uint16_t port_ = 0;
  std::string access_key_;
  std::string secret_key_;
};

}  // namespace atl_test
