// Mutated safetensors files: an error or a file whose every tensor can be read, never a crash.
#include <fstream>

#include "agent/storage/safetensors.hpp"
#include "tests/catch.hpp"
#include "tests/temporary_folder.hpp"
#include "transport/base/rng.hpp"

using namespace atl;

TEST_CASE("fuzz: mutated safetensors files") {
  const std::vector<float> a(24, 1.5F);
  const std::vector<float> b(5, -2.0F);
  std::string good;
  REQUIRE(write_safetensors({{"layers.0.weight", {4, 6}, a}, {"norm", {5}, b}, {"momentum/norm", {5}, b}},
                            {{"atoll.format", "1"}, {"atoll.round", "3"}},
                            [&](ByteView bytes) {
                              good += as_text(bytes);
                              return Status();
                            })
              .ok());
  atl_test::TemporaryFolder folder;
  int accepted = 0;
  for (std::uint64_t seed = 0; seed < 4000; ++seed) {
    Rng rng(seed, stream_of("safetensors"));
    std::string bytes = good;
    const std::uint64_t changes = 1 + rng.below(4);
    for (std::uint64_t i = 0; i < changes && !bytes.empty(); ++i) {
      const std::size_t at = static_cast<std::size_t>(rng.below(bytes.size()));
      switch (rng.below(5)) {
        case 0:
          bytes[at] = static_cast<char>(rng.below(256));
          break;
        case 1:
          bytes[at] = static_cast<char>(bytes[at] ^ (1 << rng.below(8)));
          break;
        case 2:
          bytes.resize(at);
          break;
        case 3:
          bytes.insert(at, bytes.substr(static_cast<std::size_t>(rng.below(bytes.size())), static_cast<std::size_t>(rng.below(40))));
          break;
        default:
          bytes[at] = static_cast<char>('0' + rng.below(10));
          break;
      }
    }
    Result<SafetensorsFile> file = SafetensorsFile::open(folder.write("x", bytes));
    if (!file) {
      CHECK((file.error().code == Code::corrupt));
      continue;
    }
    ++accepted;
    std::size_t read = 0;
    std::size_t listed = 0;
    for (const TensorEntry& entry : file->header().tensors) {
      listed += entry.end - entry.begin;
      for (const std::byte byte : file->bytes(entry)) {
        read += std::to_integer<unsigned>(byte) < 256 ? 1 : 0;  // touches the byte
      }
      const auto values = file->floats(entry.name);
      CHECK((!values || values->size_bytes() == entry.end - entry.begin));
    }
    CHECK(read == listed);
  }
  CHECK(accepted < 4000);
}
