#include "transport/identity/identity.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "transport/base/bytes.hpp"
#include "transport/base/file_descriptor.hpp"
#include "transport/base/plain_text.hpp"
#include "transport/identity/sha256.hpp"

namespace atl {
namespace {

constexpr std::size_t kKeyCharacters = 40;
constexpr std::size_t kKeyBytes = 32;
constexpr std::size_t kMaxFileBytes = 4096;
constexpr std::string_view kPublic = "public ";
constexpr std::string_view kSecret = "secret ";

Error system_error(const std::string& what, const std::filesystem::path& path) {
  const int code = errno;
  return Error{Code::io, "cannot " + what + " " + path.string() + ": " + std::strerror(code)};
}

Status write_whole(int fd, std::string_view text, const std::filesystem::path& path) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) {
      continue;
    }
    if (written < 0) {
      return system_error("write", path);
    }
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return ::fsync(fd) == 0 ? Status{} : Status{system_error("sync", path)};
}

Status make_folder(const std::filesystem::path& folder) {
  std::error_code problem;
  if (folder.empty() || std::filesystem::is_directory(folder, problem)) {
    return {};
  }
  ATOLL_TRY(make_folder(folder.parent_path()));
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return system_error("make the folder", folder);
  }
  return {};
}

// The rest of the line that begins with `label`; empty if there is none.
std::string_view line_of(std::string_view text, std::string_view label) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    if (line.starts_with(label)) {
      const std::string_view value = line.substr(label.size());
      return value.ends_with('\r') ? value.substr(0, value.size() - 1) : value;
    }
    text.remove_prefix(std::min(text.size(), line.size() + 1));
  }
  return {};
}

}  // namespace

Result<KeyPair> make_key_pair() {
  std::array<char, kKeyCharacters + 1> public_key{};
  std::array<char, kKeyCharacters + 1> secret_key{};
  if (zmq_curve_keypair(public_key.data(), secret_key.data()) != 0) {
    return Error{Code::internal, "this machine's ZeroMQ was built without CURVE: install a libzmq that has it"};
  }
  return KeyPair{public_key.data(), secret_key.data()};
}

bool is_key(std::string_view text) {
  if (text.size() != kKeyCharacters || text.find('\0') != std::string_view::npos) {
    return false;
  }
  std::array<std::uint8_t, kKeyBytes> bytes{};
  std::array<char, kKeyCharacters + 1> again{};
  // Decoding wraps around for five characters that stand for 2^32 or more: only what encodes to itself is a key.
  return zmq_z85_decode(bytes.data(), std::string(text).c_str()) != nullptr &&
         zmq_z85_encode(again.data(), bytes.data(), bytes.size()) != nullptr && text == again.data();
}

IslandId island_of(std::string_view public_key) {
  const Digest digest = sha256(as_bytes(public_key));
  return IslandId("i-" + to_hex(ByteView(digest.bytes).first(8)));
}

Status write_key_file(const std::filesystem::path& path, const KeyPair& keys) {
  const std::filesystem::path folder = std::filesystem::absolute(path).parent_path();
  ATOLL_TRY(make_folder(folder));
  const std::filesystem::path temporary = path.string() + ".new-" + std::to_string(::getpid());
  ::unlink(temporary.c_str());  // left by a crash of a process with our number
  {
    const FileDescriptor file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!file.is_open()) {
      return system_error("write", temporary);
    }
    const Status written = write_whole(file.get(),
                                       "# atoll key pair; the line \"secret\" is not for others\n" + std::string(kPublic) +
                                           keys.public_key + "\n" + std::string(kSecret) + keys.secret_key + "\n",
                                       temporary);
    if (!written) {
      ::unlink(temporary.c_str());
      return written;
    }
  }
  // A link, not a rename: an identity that is already there is never replaced.
  const int linked = ::link(temporary.c_str(), path.c_str());
  const int code = errno;
  ::unlink(temporary.c_str());
  errno = code;
  if (linked != 0) {
    return code == EEXIST ? Error{Code::conflict, "there is a key file already: " + path.string()} : system_error("write", path);
  }
  const FileDescriptor directory(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory.is_open() || ::fsync(directory.get()) != 0) {
    return system_error("sync", folder);
  }
  return {};
}

Result<std::string> read_private_text(const std::filesystem::path& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.is_open()) {
    return errno == ENOENT ? Error{Code::not_found, "there is no key file " + path.string()} : system_error("read", path);
  }
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) {
    return system_error("read", path);
  }
  if (!S_ISREG(status.st_mode)) {
    return Error{Code::corrupt, path.string() + " is not a file"};
  }
  if ((status.st_mode & 077U) != 0) {
    return Error{Code::unauthorized, "the secret key in " + path.string() +
                                         " can be read by other users; if none of them has, run: chmod 600 " + path.string()};
  }
  std::string text(kMaxFileBytes, '\0');
  const ssize_t count = ::read(file.get(), text.data(), text.size());
  if (count < 0) {
    return system_error("read", path);
  }
  text.resize(static_cast<std::size_t>(count));
  return text;
}

Result<KeyPair> read_key_file(const std::filesystem::path& path) {
  ATOLL_ASSIGN(std::string text, read_private_text(path));
  if (const std::string other = settle_encoding(text); !other.empty()) {
    return Error{Code::corrupt, path.string() + " " + other};
  }
  const KeyPair keys{std::string(line_of(text, kPublic)), std::string(line_of(text, kSecret))};
  std::array<char, kKeyCharacters + 1> derived{};
  if (!is_key(keys.public_key) || !is_key(keys.secret_key) || zmq_curve_public(derived.data(), keys.secret_key.c_str()) != 0 ||
      keys.public_key != derived.data()) {
    return Error{Code::corrupt, path.string() + " holds no key pair; restore it from a copy, or delete it and enrol anew"};
  }
  return keys;
}

Result<KeyPair> read_or_make_key_file(const std::filesystem::path& path) {
  Result<KeyPair> present = read_key_file(path);
  if (present || present.error().code != Code::not_found) {
    return present;
  }
  ATOLL_ASSIGN(const KeyPair made, make_key_pair());
  const Status written = write_key_file(path, made);
  if (!written && written.error().code != Code::conflict) {
    return written.error();
  }
  return read_key_file(path);
}

}  // namespace atl
