// SHA-256: the published answers, in one piece, in many, and from a file.
#include "transport/identity/sha256.hpp"

#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "tests/catch.hpp"

namespace of_sha256_test {

using namespace atl;

namespace {

const char* const kAbc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
const char* const kEmpty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
// FIPS 180-4 example: one million times "a".
const char* const kMillion = "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0";

}  // namespace

TEST_CASE("sha-256 gives the published answers") {
  CHECK(to_hex(sha256(as_bytes("abc"))) == kAbc);
  CHECK(to_hex(sha256({})) == kEmpty);
  const std::string million(1'000'000, 'a');
  Sha256 hash;
  std::string_view rest = million;
  for (std::size_t size = 1; !rest.empty(); size = size * 3 + 1) {
    hash.update(as_bytes(rest.substr(0, size)));
    rest.remove_prefix(std::min(size, rest.size()));
  }
  CHECK(to_hex(hash.finish()) == kMillion);
  hash.update(as_bytes("abc"));
  CHECK(to_hex(hash.finish()) == kAbc);  // finish starts anew
}

TEST_CASE("sha-256 of a file, and of one that is not there") {
  const std::filesystem::path path = std::filesystem::temp_directory_path() / ("atoll-sha256-test-" + std::to_string(::getpid()));
  std::ofstream(path) << std::string(1'000'000, 'a');
  CHECK(to_hex(sha256_of_file(path).value()) == kMillion);
  std::filesystem::remove(path);
  CHECK(sha256_of_file(path).error().code == Code::not_found);
  CHECK(sha256_of_file("/").error().code == Code::io);
}

}  // namespace of_sha256_test
