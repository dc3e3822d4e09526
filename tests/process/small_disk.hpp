// A disk that a test can fill.
#pragma once

#include <sched.h>
#include <sys/mount.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

namespace atl_test {

// A small disk of its own at a folder, seen by this process and those it starts. Needs root.
class SmallDisk {
 public:
  explicit SmallDisk(std::filesystem::path at, int mebibytes = 8) : at_(std::move(at)) {
    const std::string size = "size=" + std::to_string(mebibytes) + "m";
    std::filesystem::create_directories(at_);
    there_ = ::unshare(CLONE_NEWNS) == 0 && ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
             ::mount("tmpfs", at_.c_str(), "tmpfs", 0, size.c_str()) == 0;
  }
  ~SmallDisk() {
    if (there_) {
      ::umount2(at_.c_str(), MNT_DETACH);
    }
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  [[nodiscard]] bool there() const { return there_; }
  void fill() const {
    std::ofstream file(at_ / "filler", std::ios::binary);
    const std::string block(4096, 'x');
    while (file.write(block.data(), static_cast<std::streamsize>(block.size())).flush()) {
    }
  }
  void empty() const { std::filesystem::remove(at_ / "filler"); }

 private:
  std::filesystem::path at_;
  bool there_ = false;
};

}  // namespace atl_test
