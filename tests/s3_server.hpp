// A real S3-compatible server on loopback: s3rver, from npm. tests/run.sh installs it below build/ where npm is; without it tests that need
// it are skipped.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "tests/places.hpp"
#include "tests/temporary_folder.hpp"
#include "transport/base/free_port.hpp"

namespace atl_test {

class S3Server {
 public:
  // With one bucket. Its keys are S3RVER and S3RVER.
  explicit S3Server(const std::string& bucket) {
    const char* given = std::getenv("ATOLL_S3RVER");
    const std::string program = given != nullptr ? given : atl_test::source_folder() + "/build/s3rver/node_modules/.bin/s3rver";
    if (!std::filesystem::exists(program)) {
      why_ = "there is no S3-compatible server: npm install --prefix build/s3rver s3rver@3.7.1";
      return;
    }
    port_ = atl::free_port().value();
    std::vector<std::string> arguments = {program,  "--directory",         folder_.path().string(), "--address", "127.0.0.1",
                                          "--port", std::to_string(port_), "--configure-bucket",    bucket};
    std::vector<char*> argv;
    for (std::string& argument : arguments) {
      argv.push_back(argument.data());
    }
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    const int failed = ::posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    ok_ = failed == 0 && listens();
    why_ = ok_ ? "" : program + " does not start (it needs node)";
  }
  ~S3Server() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
  }
  S3Server(const S3Server&) = delete;
  S3Server& operator=(const S3Server&) = delete;

  [[nodiscard]] bool ok() const { return ok_; }
  [[nodiscard]] const std::string& why() const { return why_; }
  [[nodiscard]] std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }

 private:
  [[nodiscard]] bool listens() const {
    for (int attempt = 0; attempt < 600; ++attempt) {
      const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      address.sin_port = htons(port_);
      const bool connected = ::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
      ::close(socket);
      if (connected) {
        return true;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return false;
  }

  TemporaryFolder folder_;
  std::uint16_t port_ = 0;
  pid_t pid_ = -1;
  bool ok_ = false;
  std::string why_;
};

}  // namespace atl_test
