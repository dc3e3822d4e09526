// Mutated files of a data set: images, arrays and what is taken for tokens. An error that names the file or data, never a crash, and no
// more memory than the head announces.
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "agent/trainer/data/file_kind.hpp"
#include "agent/trainer/data/image_file.hpp"
#include "agent/trainer/data/images.hpp"
#include "agent/trainer/data/token_stream.hpp"
#include "tests/catch.hpp"
#include "tests/temporary_folder.hpp"
#include "transport/base/rng.hpp"

namespace of_data_files_fuzz_test {

using namespace atl;

namespace {

// A CMYK JPEG of 2 × 2 pixels that PIL wrote.
constexpr std::string_view kJpeg =
    "ffd8ffee000e41646f626500640000000000ffdb00430002010101010102010101020202020204030202020205040403040605060606050606060709"
    "08060709070606080b08090a0a0a0a0a06080b0c0b0a0c090a0a0affc000140800020002044311004d11005911004b1100ffc4001500010100000000"
    "000000000000000000000809ffc40020100002020203000301000000000000000001020304050600070809112131ffda000e0443004d0059004b0000"
    "3f00addbc7c6b7c73ef7bae6378de3c07d2999cd6672962f6633195eabc458b57ad4d23492cf34b2572f2c8eeccccec4b333124927961fcf9b7ed99a"
    "e84d1f3399d9f236ee5bd431935ab566ec9249348d56366776624b3124924fe927ef87af52fbfbddfaf7a73b1b0180f6bf6e51a1477ccbd7a54a9f64"
    "652286bc29765548d11670a8aaa000a00000007179da7dff00df18feced8e850eecdba0820cf5c8e0821d92d2a468b3380aa049f400000007f39ffd9";

std::string bytes_of(std::string_view hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  }
  return bytes;
}

std::string mutated(std::string bytes, Rng& rng) {
  const std::uint64_t changes = 1 + rng.below(4);
  for (std::uint64_t i = 0; i < changes && !bytes.empty(); ++i) {
    const auto at = static_cast<std::size_t>(rng.below(bytes.size()));
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
        bytes.insert(at, static_cast<std::size_t>(rng.below(20)), '\0');
        break;
    }
  }
  return bytes;
}

// So many mutations of a good file; returns how many were read all the same.
int accepted(const std::string& good, const char* name, const std::function<Status(const std::string&)>& read) {
  const atl_test::TemporaryFolder folder;
  int count = 0;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    Rng rng(seed, stream_of(name));
    const std::string path = folder.write(name, mutated(good, rng)).string();
    const Status status = read(path);
    CHECK((status.ok() || status.error().why.find(path) != std::string::npos));
    count += status.ok() ? 1 : 0;
  }
  return count;
}

Status read_image(const std::string& path) {
  const Result<DecodedImage> image = read_image_file(path);
  if (image) {
    CHECK(image->bytes.size() == image->shape.values());
  }
  return image ? Status() : Status(image.error());
}

std::function<Status(const std::string&)> read_set(const char* format) {
  return [format](const std::string& path) {
    const Result<ImageSet> set = ImageSet::open({path}, format);
    if (set) {
      CHECK(set->bytes().size() + set->floats().size() == set->count() * set->shape().values());
    }
    return set ? Status() : Status(set.error());
  };
}

}  // namespace

TEST_CASE("fuzz: mutated images and arrays") {
  const atl_test::TemporaryFolder folder;
  const std::string png = (folder.path() / "good.png").string();
  REQUIRE(write_png_grid(png, {3, 2, 3}, std::vector<float>(36, 0.5F), 2));
  std::ifstream file(png, std::ios::binary);
  const std::string good_png(std::istreambuf_iterator<char>(file), {});
  CHECK(accepted(good_png, "x.png", read_image) < 2000);
  CHECK(accepted(bytes_of(kJpeg), "x.jpg", read_image) < 2000);
  std::string npy = std::string("\x93NUMPY\1\0\x76\0", 10) + "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1, 2, 2), }";
  npy.resize(128, ' ');
  npy.resize(128 + 32, '\0');
  REQUIRE(read_set("npy")(folder.write("good.npy", npy).string()));
  CHECK(accepted(npy, "x.npy", read_set("npy")) < 2000);
  const std::string idx = std::string("\0\0\x08\3\0\0\0\2\0\0\0\2\0\0\0\2", 16) + "abcdefgh";
  CHECK(accepted(idx, "x.idx", read_set("idx")) < 2000);
}

TEST_CASE("fuzz: heads of files that are taken for text or tokens") {
  const std::vector<std::string> heads = {
      std::string("\x80\4\x95\6\0\0\0\0\0\0\0abcde.", 17), std::string("\0\0\x08\2\0\0\0\2\0\0\0\2abcd", 16),
      std::string("\x14\0\0\0\0\0\0\0{\"a\":{}}", 16),     std::string("PK\3\4\x14\0\0\0\0\0", 10),
      std::string("\xff\xd8\xff\xe0\0\x10JFIF", 10),       "many lines\nof text\n"};
  for (const std::string& head : heads) {
    for (std::uint64_t seed = 0; seed < 4000; ++seed) {
      Rng rng(seed, stream_of("kinds"));
      const std::string text = mutated(head, rng);
      const std::vector<std::byte> exact(
          reinterpret_cast<const std::byte*>(text.data()),
          reinterpret_cast<const std::byte*>(text.data()) + text.size());  // so that a sanitizer sees its end
      CHECK(kind_of_file(exact).size() < 64);
      CHECK(shard_tokens(exact).empty());
      looks_like_text(exact);
    }
  }
}

}  // namespace of_data_files_fuzz_test
