// The trainer's images: every format is read, and what is wrong with a file is said with its name.
#include "agent/trainer/data/images.hpp"

#include <png.h>
#include <sys/resource.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "agent/storage/safetensors.hpp"
#include "agent/trainer/data/image_file.hpp"
#include "agent/trainer/data/packed_file.hpp"
#include "tests/catch.hpp"
#include "tests/skip.hpp"
#include "tests/temporary_folder.hpp"

using namespace atl;
using atl_test::TemporaryFolder;

namespace {

using Bytes8 = std::vector<std::uint8_t>;

std::string write(const TemporaryFolder& folder, const std::string& name, const Bytes8& bytes) {
  const std::filesystem::path path = folder.path() / name;
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  return path.string();
}

std::string write_gz(const TemporaryFolder& folder, const std::string& name, const Bytes8& bytes) {
  const std::string path = (folder.path() / name).string();
  gzFile file = gzopen(path.c_str(), "wb");
  gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
  gzclose(file);
  return path;
}

// An idx array of bytes 0, 1, 2, …
Bytes8 idx(const std::vector<std::uint32_t>& shape) {
  Bytes8 bytes = {0, 0, 8, static_cast<std::uint8_t>(shape.size())};
  std::uint32_t values = 1;
  for (const std::uint32_t extent : shape) {
    for (const int shift : {24, 16, 8, 0}) {
      bytes.push_back(static_cast<std::uint8_t>(extent >> shift));
    }
    values *= extent;
  }
  for (std::uint32_t i = 0; i < values; ++i) {
    bytes.push_back(static_cast<std::uint8_t>(i));
  }
  return bytes;
}

template <typename T>
Bytes8 npy(const std::string& type, const std::string& shape, const std::vector<T>& values) {
  std::string head = "{'descr': '" + type + "', 'fortran_order': False, 'shape': (" + shape + "), }";
  head.resize(118, ' ');
  head.back() = '\n';
  const std::string text = std::string("\x93NUMPY\1\0", 8) + static_cast<char>(head.size()) + '\0' + head +
                           std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  return {text.begin(), text.end()};
}

std::vector<float> image(const ImageSet& set, std::size_t index) {
  std::vector<float> values(set.shape().values());
  set.read(index, values);
  return values;
}

std::string refusal(const std::vector<std::string>& files, const std::string& format) {
  const Result<ImageSet> set = ImageSet::open(files, format);
  REQUIRE_FALSE(set);
  return set.error().why;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

// From now on this process gets no more than so much memory on top of what it has. Returns the limit before.
rlimit limit_memory(std::uint64_t more) {
  rlimit before{};
  ::getrlimit(RLIMIT_AS, &before);
  std::uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  if (kSanitized) {
    return before;
  }
  rlimit limit = before;
  limit.rlim_cur = pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)) + more;
  ::setrlimit(RLIMIT_AS, &limit);
  return before;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("idx files are read, packed or not, with their labels") {
  const TemporaryFolder folder;
  const std::string images = write(folder, "images", idx({3, 2, 2}));
  const std::string more = write_gz(folder, "more.gz", idx({2, 2, 2}));
  const std::string labels = write_gz(folder, "labels.gz", idx({5}));
  const auto set = ImageSet::open({images, more, labels}, "idx");
  REQUIRE(set);
  CHECK(set->shape() == ImageShape{1, 2, 2});
  CHECK(set->count() == 5);
  CHECK(set->labels() == std::vector<std::uint32_t>{0, 1, 2, 3, 4});
  CHECK(set->classes() == 5);
  // A byte b is b / 127.5 − 1.
  CHECK(image(*set, 2)[3] == static_cast<float>(11) / 127.5F - 1.0F);
  CHECK(image(*set, 3)[0] == -1.0F);
  const auto bare = ImageSet::open({images}, "idx");
  REQUIRE(bare);
  CHECK(bare->classes() == 0);
}

TEST_CASE("idx files that are not what they say are refused by name") {
  const TemporaryFolder folder;
  Bytes8 bytes = idx({3, 2, 2});
  bytes.pop_back();
  CHECK(has(refusal({write(folder, "short", bytes)}, "idx"), "short: it holds 11 values and its head says 12"));
  CHECK(has(refusal({write(folder, "head", {0, 0, 8, 3, 0})}, "idx"), "head: it is cut short"));
  CHECK(has(refusal({write(folder, "floats", {0, 0, 13, 1, 0, 0, 0, 0})}, "idx"), "floats: its values are not unsigned bytes"));
  CHECK(has(refusal({write(folder, "text", {'h', 'e', 'l', 'l', 'o'})}, "idx"), "text: not an idx file"));
  CHECK(has(refusal({write(folder, "huge", {0, 0, 8, 3, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255})}, "idx"),
            "huge: it holds 0 values"));
  CHECK(has(refusal({write(folder, "a", idx({3, 2, 2})), write(folder, "b", idx({3, 4, 2}))}, "idx"), "images of a set have one size"));
  CHECK(has(refusal({write(folder, "a", idx({3, 2, 2})), write(folder, "b", idx({4}))}, "idx"), "4 labels and 3 images"));
  CHECK(has(refusal({write(folder, "b", idx({4}))}, "idx"), "labels without images"));
  CHECK(has(refusal({(folder.path() / "none").string()}, "idx"), "none"));
  // A gzip file that is cut short.
  const std::string packed = write_gz(folder, "cut.gz", idx({40, 20, 20}));
  std::filesystem::resize_file(packed, std::filesystem::file_size(packed) / 2);
  CHECK(has(refusal({packed}, "idx"), "cut.gz"));
}

TEST_CASE("CIFAR-10 records are a label and three planes") {
  const TemporaryFolder folder;
  Bytes8 bytes(2 * 3073, 7);
  bytes[0] = 3;
  bytes[3073] = 9;
  bytes[3073 + 1 + 1024] = 255;  // the first green value of the second
  const auto set = ImageSet::open({write(folder, "batch", bytes)}, "cifar10");
  REQUIRE(set);
  CHECK(set->shape() == ImageShape{3, 32, 32});
  CHECK(set->labels() == std::vector<std::uint32_t>{3, 9});
  CHECK(image(*set, 1)[1024] == 1.0F);
  bytes[0] = 10;
  CHECK(has(refusal({write(folder, "label", bytes)}, "cifar10"), "label 10"));
  bytes.pop_back();
  CHECK(has(refusal({write(folder, "cut", bytes)}, "cifar10"), "no whole number of records"));
}

TEST_CASE("NumPy arrays are images of bytes or floats, and labels") {
  const TemporaryFolder folder;
  const std::string latents = write(folder, "latents.npy", npy<float>("<f4", "2, 1, 1, 3", {0.5F, -2.0F, 3.0F, 1.0F, 2.0F, 4.0F}));
  const std::string labels = write(folder, "labels.npy", npy<std::int64_t>("<i8", "2,", {4, 0}));
  const auto set = ImageSet::open({latents, labels}, "npy");
  REQUIRE(set);
  CHECK(set->shape() == ImageShape{1, 1, 3});
  CHECK(image(*set, 0) == std::vector<float>{0.5F, -2.0F, 3.0F});
  CHECK(set->labels() == std::vector<std::uint32_t>{4, 0});
  const auto bytes = ImageSet::open({write(folder, "bytes.npy", npy<std::uint8_t>("|u1", "1, 1, 2", {0, 255}))}, "npy");
  REQUIRE(bytes);
  CHECK(image(*bytes, 0) == std::vector<float>{-1.0F, 1.0F});

  Bytes8 cut = npy<float>("<f4", "2, 1, 1, 3", {1, 2, 3, 4, 5, 6});
  cut.pop_back();
  CHECK(has(refusal({write(folder, "cut.npy", cut)}, "npy"), "cut.npy: it holds 23 bytes of values and its shape needs 24"));
  CHECK(has(refusal({write(folder, "big.npy", npy<float>(">f4", "1, 1, 1", {1}))}, "npy"), "big-endian"));
  CHECK(has(refusal({write(folder, "nan.npy", npy<float>("<f4", "1, 1, 1", {std::nanf("")}))}, "npy"), "not finite"));
  CHECK(has(refusal({write(folder, "int.npy", npy<std::int32_t>("<i4", "1, 1, 1", {1}))}, "npy"), "no known range"));
  CHECK(has(refusal({latents, write(folder, "minus.npy", npy<std::int64_t>("<i8", "2,", {-1, 0}))}, "npy"), "no whole number"));
  CHECK(has(refusal({write(folder, "none.npy", {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11})}, "npy"), "not an npy file"));
}

TEST_CASE("safetensors shards hold latents and labels") {
  const TemporaryFolder folder;
  const std::string path = (folder.path() / "shard.safetensors").string();
  const std::vector<float> values = {1, 2, 3, 4};
  const std::vector<float> labels = {1, 0};
  std::ofstream file(path, std::ios::binary);
  const auto sink = [&](ByteView bytes) {
    file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    return Status();
  };
  REQUIRE(write_safetensors({{"latents", {2, 2, 1, 1}, values}, {"labels", {2}, labels}}, {}, sink));
  file.close();
  const auto set = ImageSet::open({path}, "safetensors");
  REQUIRE(set);
  CHECK(set->shape() == ImageShape{2, 1, 1});
  CHECK(set->labels() == std::vector<std::uint32_t>{1, 0});
  CHECK(image(*set, 1) == std::vector<float>{3, 4});
}

TEST_CASE("PNG files are written and read back, folders are labels") {
  const TemporaryFolder folder;
  const ImageShape shape{1, 2, 3};
  const std::vector<float> values = {-1, 0, 1, 1, 2, -5, 0.5F, 0.5F, 0.5F, 0, 0, 0};
  const std::string grid = (folder.path() / "grid.png").string();
  REQUIRE(write_png_grid(grid, shape, values, 2));
  const auto read = read_image_file(grid);
  REQUIRE(read);
  CHECK(read->shape == ImageShape{1, 4, 9});  // one line around and between
  const auto at = [&](std::size_t y, std::size_t x) { return int{read->bytes[y * 9 + x]}; };
  CHECK(at(0, 0) == 96);
  CHECK(at(1, 1) == 0);
  CHECK(at(1, 3) == 255);
  CHECK(at(2, 2) == 255);  // clamped
  CHECK(at(2, 3) == 0);
  CHECK(at(1, 5) == 191);

  std::filesystem::create_directories(folder.path() / "a");
  std::filesystem::create_directories(folder.path() / "b");
  const std::string one = (folder.path() / "a" / "1.png").string();
  const std::string two = (folder.path() / "b" / "2.png").string();
  REQUIRE(write_png_grid(one, {1, 1, 1}, {1.0F}, 1));
  REQUIRE(write_png_grid(two, {3, 1, 1}, {1.0F, -1.0F, 0.0F}, 1));
  const auto set = ImageSet::open({one, two}, "images");
  REQUIRE(set);
  CHECK(set->shape() == ImageShape{3, 3, 3});  // the grey one became colour
  CHECK(set->labels() == std::vector<std::uint32_t>{0, 1});
  CHECK(image(*set, 0)[4] == 1.0F);
  CHECK(image(*set, 1)[9 + 4] == -1.0F);

  CHECK(has(refusal({one, grid}, "images"), "images of a set have one size"));
  CHECK(
      has(refusal({write(folder, "text.png", {'h', 'e', 'l', 'l', 'o', '!', '!', '!'})}, "images"), "text.png: neither a PNG nor a JPEG"));
  const std::string cut = (folder.path() / "cut.png").string();
  std::filesystem::copy_file(grid, cut);
  std::filesystem::resize_file(cut, std::filesystem::file_size(cut) - 20);
  CHECK(has(refusal({cut}, "images"), "cut.png"));
  CHECK_FALSE(write_png_grid(grid, {2, 1, 1}, {0, 0}, 1));
}

TEST_CASE("an image that claims to be huge is refused before room is made for it") {
  const TemporaryFolder folder;
  // The frame header of a JPEG says its height and width.
  Bytes8 jpeg = {0xff, 0xd8, 0xff, 0xdb, 0x00, 0x43, 0x00};
  jpeg.insert(jpeg.end(), 64, 1);
  const Bytes8 frame = {0xff, 0xc0, 0x00, 0x11, 0x08, 0xff, 0xdc, 0xff, 0xdc, 0x03, 0x01, 0x11, 0x00, 0x02, 0x11, 0x00, 0x03, 0x11, 0x00};
  jpeg.insert(jpeg.end(), frame.begin(), frame.end());
  jpeg.insert(jpeg.end(), {0xff, 0xda, 0x00, 0x0c, 0x03, 0x01, 0x00, 0x02, 0x00, 0x03, 0x00, 0x00, 0x3f, 0x00, 0xff, 0xd9});
  CHECK(has(refusal({write(folder, "bomb.jpg", jpeg)}, "images"), "bomb.jpg: it says that it is 65500 × 65500"));
  // A PNG of one colour is a thousandth of what it unpacks to: 22,000 × 22,000 in RGB are 1.5 GB.
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = 10'000;
  image.height = 10'000;
  image.format = PNG_FORMAT_GRAY;
  const std::string bomb = (folder.path() / "bomb.png").string();
  {
    const Bytes8 pixels(std::size_t{10'000} * 10'000, 0);
    REQUIRE(png_image_write_to_file(&image, bomb.c_str(), 0, pixels.data(), 0, nullptr) != 0);
  }
  CHECK(std::filesystem::file_size(bomb) < 200'000);
  CHECK(has(refusal({bomb}, "images"), "bomb.png: it says that it is 10000 × 10000, and an image has at most 2^25 pixels"));
}

TEST_CASE("a packed file is unpacked no further than its head says") {
  const TemporaryFolder folder;
  Bytes8 long_one = idx({3, 2, 2});
  long_one.resize(300'000'000, 0);
  const std::string bomb = write_gz(folder, "bomb.gz", long_one);
  long_one = {};
  CHECK(std::filesystem::file_size(bomb) < 400'000);
  for (const char* format : {"idx", "npy"}) {
    const rlimit before = limit_memory(200'000'000);
    const std::string why = refusal({bomb}, format);
    ::setrlimit(RLIMIT_AS, &before);
    CHECK(has(why, std::string(format) == "idx" ? "it is longer than it says: it goes on after 28 bytes" : "not an npy file"));
  }
  Bytes8 array = npy<float>("<f4", "1, 1, 1", {1});
  array.resize(300'000'000, 0);
  CHECK(has(refusal({write_gz(folder, "array.gz", array)}, "npy"), "it is longer than it says"));
  // A head that says more than any machine has room for.
  Bytes8 huge = {0, 0, 8, 3, 0, 0, 255, 255, 0, 0, 255, 255, 0, 0, 0, 16};
  huge.resize(100'000, 0);
  if (memory_for_data() < 68'000'000'000) {
    CHECK(has(refusal({write_gz(folder, "huge.gz", huge)}, "idx"), "more than half of this machine's memory"));
  }
}

TEST_CASE("memory that is not there is an error") {
  if (kSanitized) {
    ATL_SKIP("sanitizers need all the addresses that there are");
  }
  const TemporaryFolder folder;
  const std::string packed = write_gz(folder, "large.gz", idx({2000, 300, 300}));
  const rlimit before = limit_memory(100'000'000);
  const std::string why = refusal({packed}, "idx");
  ::setrlimit(RLIMIT_AS, &before);
  CHECK(has(why, "large.gz: there is not enough memory for it"));
}

TEST_CASE("a fixed part of the images is held out, whatever their order") {
  const auto held = held_out_images(1000, 0.1, 7);
  REQUIRE(held);
  CHECK(std::count(held->begin(), held->end(), true) == 100);
  CHECK(*held == *held_out_images(1000, 0.1, 7));
  CHECK(*held != *held_out_images(1000, 0.1, 8));
  // Not one end of the set.
  CHECK(std::count(held->begin(), held->begin() + 500, true) > 30);
  CHECK(std::count(held->begin(), held->begin() + 500, true) < 70);
  CHECK_FALSE(held_out_images(1, 0.5, 1));
}
