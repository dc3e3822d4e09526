// Devices and FIFOs of a test's own, so that no mistake can replace those of the machine.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <thread>

namespace atl_test {

// A device like /dev/NAME. Who may not make devices may not replace those of the machine either: for them it is a link there.
inline std::filesystem::path make_device(const std::filesystem::path& path, const std::string& name, unsigned minor) {
  if (::mknod(path.c_str(), S_IFCHR | 0666, makedev(1, minor)) == 0) {
    // A file system may be mounted without devices.
    if (const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC); fd >= 0) {
      ::close(fd);
      return path;
    }
    std::filesystem::remove(path);
  }
  if (::geteuid() == 0) {
    throw std::runtime_error("no device can be made in " + path.parent_path().string() + "; set TMPDIR to a folder where one can");
  }
  std::filesystem::create_symlink("/dev/" + name, path);
  return path;
}
inline std::filesystem::path make_null_device(const std::filesystem::path& path) { return make_device(path, "null", 3); }
inline std::filesystem::path make_full_device(const std::filesystem::path& path) { return make_device(path, "full", 7); }
inline std::filesystem::path make_zero_device(const std::filesystem::path& path) { return make_device(path, "zero", 5); }

// A FIFO and what somebody reads from it, until its writer closes it.
class ReadFifo {
 public:
  explicit ReadFifo(std::filesystem::path path) : path_(std::move(path)) {
    if (::mkfifo(path_.c_str(), 0600) != 0) {
      throw std::runtime_error("no FIFO can be made");
    }
    reader_ = std::thread([this] {
      const int fd = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
      char some[4096];
      for (ssize_t got = 0; (got = ::read(fd, some, sizeof some)) > 0;) {
        content_.append(some, static_cast<std::size_t>(got));
      }
      ::close(fd);
    });
  }
  ReadFifo(const ReadFifo&) = delete;
  ReadFifo& operator=(const ReadFifo&) = delete;
  ~ReadFifo() {
    if (reader_.joinable()) {
      // A reader that nobody wrote to is let go.
      const int fd = ::open(path_.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
      if (fd >= 0) {
        ::close(fd);
      }
      reader_.join();
    }
  }
  const std::string& content() {
    reader_.join();
    return content_;
  }

 private:
  std::filesystem::path path_;
  std::string content_;
  std::thread reader_;
};

}  // namespace atl_test
