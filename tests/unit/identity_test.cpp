// Identities: keys, their files, island ids and addresses.
#include "transport/identity/identity.hpp"

#include <stdlib.h>
#include <sys/stat.h>

#include <fstream>
#include <sstream>

#include "tests/catch.hpp"
#include "transport/base/address.hpp"

namespace of_identity_test {

using namespace atl;

namespace {

class Folder {
 public:
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "atoll-identity-XXXXXX").string();
    REQUIRE(::mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

unsigned mode_of(const std::filesystem::path& path) {
  struct stat status {};
  REQUIRE(::stat(path.c_str(), &status) == 0);
  return status.st_mode & 0777U;
}

std::string text_of(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

}  // namespace

TEST_CASE("a key pair is two different Z85 keys, new each time") {
  const KeyPair a = make_key_pair().value();
  const KeyPair b = make_key_pair().value();
  CHECK(is_key(a.public_key));
  CHECK(is_key(a.secret_key));
  CHECK(a.public_key != a.secret_key);
  CHECK(a.public_key != b.public_key);
}

TEST_CASE("only the Z85 form of 32 bytes is a key") {
  const std::string key = make_key_pair().value().public_key;
  CHECK_FALSE(is_key(""));
  CHECK_FALSE(is_key(key.substr(1)));
  CHECK_FALSE(is_key(key + "0"));
  CHECK_FALSE(is_key(std::string(39, '0') + "\""));
  CHECK_FALSE(is_key(std::string(40, '\0')));
  CHECK(is_key(std::string(40, '0')));
  CHECK_FALSE(is_key(std::string(40, '#')));  // five '#' stand for more than 2^32 - 1
}

TEST_CASE("an island's id is a function of its key") {
  CHECK(island_of(std::string(40, '0')).text == "i-9692e67b8378a6f6");
  CHECK(island_of(std::string(40, '0')) != island_of(std::string(39, '0') + "1"));
}

TEST_CASE("a key file comes back, is private and is never replaced") {
  const Folder folder;
  const std::filesystem::path path = folder.path() / "keys" / "deep" / "identity";
  const KeyPair keys = make_key_pair().value();
  REQUIRE(write_key_file(path, keys).ok());
  CHECK(mode_of(path) == 0600);
  CHECK(mode_of(path.parent_path()) == 0700);
  CHECK(read_key_file(path).value() == keys);
  CHECK(std::distance(std::filesystem::directory_iterator(path.parent_path()), {}) == 1);  // no temporary file is left

  const Status again = write_key_file(path, make_key_pair().value());
  REQUIRE_FALSE(again.ok());
  CHECK(again.error().code == Code::conflict);
  CHECK(read_key_file(path).value() == keys);
  CHECK(read_or_make_key_file(path).value() == keys);
}

TEST_CASE("a key file is made on first use") {
  const Folder folder;
  const KeyPair keys = read_or_make_key_file(folder.path() / "identity").value();
  CHECK(read_key_file(folder.path() / "identity").value() == keys);
}

TEST_CASE("a key file that others can read is refused, with what to do") {
  const Folder folder;
  const std::filesystem::path path = folder.path() / "identity";
  REQUIRE(write_key_file(path, make_key_pair().value()).ok());
  for (const unsigned mode : {0640U, 0604U, 0660U}) {
    REQUIRE(::chmod(path.c_str(), static_cast<mode_t>(mode)) == 0);
    const Result<KeyPair> keys = read_key_file(path);
    REQUIRE_FALSE(keys);
    CHECK(keys.error().code == Code::unauthorized);
    CHECK(keys.error().why.find("chmod 600") != std::string::npos);
    CHECK(read_or_make_key_file(path).error().code == Code::unauthorized);
  }
}

TEST_CASE("a broken key file is an error, and is not replaced") {
  const Folder folder;
  const std::filesystem::path path = folder.path() / "identity";
  CHECK(read_key_file(path).error().code == Code::not_found);
  CHECK(read_key_file(folder.path()).error().code != Code::not_found);
  const KeyPair a = make_key_pair().value();
  const KeyPair b = make_key_pair().value();
  for (const std::string& text :
       {std::string(), std::string("public \nsecret \n"), "public " + a.public_key + "\nsecret " + b.secret_key + "\n",
        "public " + a.public_key + "\n", std::string(100'000, 'x')}) {
    std::ofstream(path) << text;
    REQUIRE(::chmod(path.c_str(), 0600) == 0);
    CHECK(read_key_file(path).error().code == Code::corrupt);
    CHECK(read_or_make_key_file(path).error().code == Code::corrupt);
    CHECK(text_of(path) == text);
  }
  CHECK_FALSE(write_key_file("/proc/atoll/identity", a).ok());
}

TEST_CASE("a key file that an editor of another system saved is read, or called what it is") {
  const Folder folder;
  const std::filesystem::path path = folder.path() / "identity";
  const KeyPair keys = make_key_pair().value();
  const std::string lines = "public " + keys.public_key + "\r\nsecret " + keys.secret_key + "\r\n";
  const auto read = [&](const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
    REQUIRE(::chmod(path.c_str(), 0600) == 0);
    return read_key_file(path);
  };
  for (const std::string& text : {lines, "\xef\xbb\xbf" + lines}) {
    const auto found = read(text);
    REQUIRE(found.has_value());
    CHECK(found->secret_key == keys.secret_key);
  }
  std::string wide = "\xff\xfe";
  for (const char letter : lines) {
    wide += std::string(1, letter) + '\0';
  }
  CHECK(read(wide).error().why.find("identity is UTF-16 text") != std::string::npos);
}

TEST_CASE("addresses are read and printed") {
  CHECK(parse_address("tcp://example.org:4400").value() == Address{"example.org", 4400});
  CHECK(parse_address("10.0.0.1:65535").value() == Address{"10.0.0.1", 65535});
  CHECK(parse_address("tcp://*:4400").value() == Address{"*", 4400});
  CHECK(parse_address("tcp://127.0.0.1:*").value() == Address{"127.0.0.1", 0});
  CHECK(parse_address("tcp://[::1]:4400").value() == Address{"::1", 4400});
  CHECK(to_string(Address{"::1", 4400}) == "tcp://[::1]:4400");
  CHECK(to_string(Address{"localhost", 0}) == "tcp://localhost:*");
  for (const char* bad : {"", "tcp://", "host", "host:", ":1", "host:65536", "host:-1", "host:1x", "ipc:///tmp/x", "http://host:1", "a b:1",
                          "[x]:1", "::1:5"}) {
    INFO(bad);
    CHECK(parse_address(bad).error().code == Code::invalid_argument);
  }
}

TEST_CASE("private addresses mean something in their own network only") {
  for (const char* host : {"10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.178.20", "169.254.1.1", "100.64.0.1", "100.127.255.255",
                           "fd00::1", "FC00::1", "fe80::1", "febf::1"}) {
    INFO(host);
    CHECK(Address{host, 1}.is_private());
  }
  for (const char* host :
       {"9.255.255.255", "11.0.0.1", "172.15.0.1", "172.32.0.1", "192.167.0.1", "100.63.0.1", "100.128.0.1", "203.0.113.7", "2001:db8::1",
        "fec0::1", "10.example.org", "10.0.0.1.example", "10.0.0", "fd.example.org", "*", ""}) {
    INFO(host);
    CHECK_FALSE(Address{host, 1}.is_private());
  }
}

TEST_CASE("loopback is what only this machine reaches") {
  for (const char* host : {"localhost", "127.0.0.1", "127.8.9.1", "::1"}) {
    CHECK(Address{host, 1}.is_loopback());
  }
  for (const char* host : {"*", "0.0.0.0", "10.0.0.1", "127.evil.example.org", "127.0.0.1.evil", "localhost.evil", "::", "fe80::1"}) {
    INFO(host);
    CHECK_FALSE(Address{host, 1}.is_loopback());
  }
}

}  // namespace of_identity_test
