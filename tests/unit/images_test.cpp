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
#include <map>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
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

// A PNG file of these rows, byte for byte as PNG has them, with other chunks before the image.
Bytes8 png(std::uint32_t width, std::uint32_t height, std::uint8_t depth, std::uint8_t colour, const std::vector<Bytes8>& rows,
           const std::vector<std::pair<std::string, Bytes8>>& chunks = {}) {
  Bytes8 out = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
  const auto number = [](Bytes8& to, std::uint32_t value) {
    for (const int shift : {24, 16, 8, 0}) {
      to.push_back(static_cast<std::uint8_t>(value >> shift));
    }
  };
  const auto chunk = [&](const std::string& type, const Bytes8& data) {
    number(out, static_cast<std::uint32_t>(data.size()));
    Bytes8 checked(type.begin(), type.end());
    checked.insert(checked.end(), data.begin(), data.end());
    out.insert(out.end(), checked.begin(), checked.end());
    number(out, static_cast<std::uint32_t>(crc32(0, checked.data(), static_cast<unsigned>(checked.size()))));
  };
  Bytes8 head;
  number(head, width);
  number(head, height);
  head.insert(head.end(), {depth, colour, 0, 0, 0});
  chunk("IHDR", head);
  for (const auto& [type, data] : chunks) {
    chunk(type, data);
  }
  Bytes8 raw;
  for (const Bytes8& row : rows) {
    raw.push_back(0);  // no filter
    raw.insert(raw.end(), row.begin(), row.end());
  }
  uLongf size = compressBound(static_cast<uLong>(raw.size()));
  Bytes8 packed(size);
  compress(packed.data(), &size, raw.data(), static_cast<uLong>(raw.size()));
  packed.resize(size);
  chunk("IDAT", packed);
  chunk("IEND", {});
  return out;
}

Bytes8 bytes_of_hex(std::string_view text) {
  Bytes8 bytes;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
    bytes.push_back(static_cast<std::uint8_t>(std::stoi(std::string(text.substr(i, 2)), nullptr, 16)));
  }
  return bytes;
}

// The pixels of a decoded image, one after the other, as PIL's getdata() gives them.
Bytes8 pixels(const Result<DecodedImage>& image) {
  INFO((image ? "" : image.error().why));
  REQUIRE(image.has_value());
  Bytes8 out;
  const std::size_t plane = std::size_t{image->shape.height} * image->shape.width;
  for (std::size_t i = 0; i < plane; ++i) {
    for (std::size_t c = 0; c < image->shape.channels; ++c) {
      out.push_back(image->bytes[c * plane + i]);
    }
  }
  return out;
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
  CHECK(set->listing() == "2 images of 3 × 3 × 3 from 2 files, 2 classes: a 1, b 1");

  CHECK(has(refusal({one, grid}, "images"), "images of a set have one size"));
  CHECK(
      has(refusal({write(folder, "text.png", {'h', 'e', 'l', 'l', 'o', '!', '!', '!'})}, "images"), "text.png: neither a PNG nor a JPEG"));
  const std::string cut = (folder.path() / "cut.png").string();
  std::filesystem::copy_file(grid, cut);
  std::filesystem::resize_file(cut, std::filesystem::file_size(cut) - 20);
  CHECK(has(refusal({cut}, "images"), "cut.png"));
  CHECK_FALSE(write_png_grid(grid, {2, 1, 1}, {0, 0}, 1));
}

// What PIL 13 gives for each of these files, by Image.open(file).convert("RGB"), or its mode "L" where that is what it opens as: gamma is
// not applied, of 16 bits the upper 8 count, and transparency is left out.
TEST_CASE("PNG files are read as PIL reads them") {
  const TemporaryFolder folder;
  struct Case {
    const char* what;
    Bytes8 file;
    std::uint32_t channels;
    Bytes8 expected;
  };
  const Bytes8 linear = {0, 1, 0x86, 0xa0};  // gAMA 100000
  const Bytes8 palette = {1, 2, 3, 250, 100, 50, 9, 9, 9};
  const std::vector<Case> cases = {
      {"16 bits, RGB",
       png(2, 1, 16, 2, {{0x11, 0x22, 0x22, 0x33, 0x33, 0xff, 0xff, 0xff, 0, 0xff, 0x80, 0}}),
       3,
       {17, 34, 51, 255, 0, 128}},
      {"16 bits, sRGB and gAMA said",
       png(1, 1, 16, 2, {{0x11, 0x22, 0x22, 0x33, 0x33, 0xff}}, {{"sRGB", {0}}, {"gAMA", {0, 0, 0xb1, 0x8f}}}),
       3,
       {17, 34, 51}},
      {"16 bits, RGB and alpha", png(1, 1, 16, 6, {{0x11, 0x22, 0x22, 0x33, 0x33, 0x44, 0x80, 0}}), 3, {17, 34, 51}},
      {"16 bits, grey and alpha", png(2, 1, 16, 4, {{0x11, 0x80, 0x80, 0, 0x80, 0xff, 0, 0}}), 1, {17, 128}},
      {"gAMA, RGB", png(2, 1, 8, 2, {{17, 34, 51, 200, 100, 50}}, {{"gAMA", linear}}), 3, {17, 34, 51, 200, 100, 50}},
      {"gAMA, grey", png(2, 1, 8, 0, {{17, 128}}, {{"gAMA", linear}}), 1, {17, 128}},
      {"half and all transparent",
       png(3, 1, 8, 6, {{17, 34, 51, 128, 200, 100, 50, 0, 1, 2, 3, 255}}),
       3,
       {17, 34, 51, 200, 100, 50, 1, 2, 3}},
      {"grey and alpha", png(2, 1, 8, 4, {{17, 128, 200, 0}}), 1, {17, 200}},
      {"palette", png(3, 1, 8, 3, {{0, 1, 2}}, {{"PLTE", palette}}), 3, {1, 2, 3, 250, 100, 50, 9, 9, 9}},
      {"palette with transparency",
       png(3, 1, 8, 3, {{0, 1, 2}}, {{"PLTE", palette}, {"tRNS", {0, 128}}}),
       3,
       {1, 2, 3, 250, 100, 50, 9, 9, 9}},
      {"palette of 2 bits", png(3, 1, 2, 3, {{0b00011000}}, {{"PLTE", palette}}), 3, {1, 2, 3, 250, 100, 50, 9, 9, 9}},
      {"a transparent colour",
       png(2, 1, 8, 2, {{17, 34, 51, 200, 100, 50}}, {{"tRNS", {0, 17, 0, 34, 0, 51}}}),
       3,
       {17, 34, 51, 200, 100, 50}},
      {"a transparent grey", png(2, 1, 8, 0, {{17, 200}}, {{"tRNS", {0, 17}}}), 1, {17, 200}},
      {"grey of 1 bit", png(8, 1, 1, 0, {{0b10110001}}), 1, {255, 0, 255, 255, 0, 0, 0, 255}},
      {"grey of 2 bits", png(4, 1, 2, 0, {{0b00011011}}), 1, {0, 85, 170, 255}},
      {"grey of 4 bits", png(2, 1, 4, 0, {{0x3f}}), 1, {51, 255}},
      // PIL opens this one as 16 bits (4480, 32768, 65535) and its convert() cuts off what is above 255; the upper 8 bits are the image.
      {"grey of 16 bits", png(3, 1, 16, 0, {{0x11, 0x80, 0x80, 0, 0xff, 0xff}}, {{"gAMA", linear}}), 1, {17, 128, 255}},
  };
  for (const Case& c : cases) {
    INFO(c.what);
    const auto image = read_image_file(write(folder, "x.png", c.file));
    CHECK(pixels(image) == c.expected);
    CHECK(image->shape.channels == c.channels);
  }
  Bytes8 wrong = png(2, 1, 8, 0, {{17, 128}});
  wrong[wrong.size() - 14] ^= 0xffU;  // in the image's checksum
  CHECK(has(refusal({write(folder, "sum.png", wrong)}, "images"), "sum.png: not a whole PNG file"));
  CHECK(has(refusal({write(folder, "row.png", png(2, 2, 8, 0, {{17, 128}}))}, "images"), "row.png: not a whole PNG file"));
  CHECK(has(refusal({write(folder, "none.png", png(0, 1, 8, 0, {{}}))}, "images"), "none.png"));
}

// Files that PIL 13 wrote and the pixels that it reads of them.
TEST_CASE("JPEG files are read as PIL reads them, those of printers and untidy ones, too") {
  const TemporaryFolder folder;
  const Bytes8 cmyk = bytes_of_hex(
      "ffd8ffee000e41646f626500640000000000ffdb00430002010101010102010101020202020204030202020205040403040605060606050606060709"
      "08060709070606080b08090a0a0a0a0a06080b0c0b0a0c090a0a0affc000140800020002044311004d11005911004b1100ffc4001500010100000000"
      "000000000000000000000809ffc40020100002020203000301000000000000000001020304050600070809112131ffda000e0443004d0059004b0000"
      "3f00addbc7c6b7c73ef7bae6378de3c07d2999cd6672962f6633195eabc458b57ad4d23492cf34b2572f2c8eeccccec4b333124927961fcf9b7ed99a"
      "e84d1f3399d9f236ee5bd431935ab566ec9249348d56366776624b3124924fe927ef87af52fbfbddfaf7a73b1b0180f6bf6e51a1477ccbd7a54a9f64"
      "652286bc29765548d11670a8aaa000a00000007179da7dff00df18feced8e850eecdba0820cf5c8e0821d92d2a468b3380aa049f400000007f39ffd9");
  const Bytes8 of_cmyk = {255, 253, 253, 1, 255, 255, 220, 111, 167, 152, 144, 35};
  CHECK(pixels(read_image_file(write(folder, "cmyk.jpg", cmyk))) == of_cmyk);
  Bytes8 unmarked = cmyk;
  unmarked.erase(unmarked.begin() + 2, unmarked.begin() + 18);  // Adobe's marker
  CHECK(pixels(read_image_file(write(folder, "unmarked.jpg", unmarked))) == of_cmyk);
  Bytes8 ycck = cmyk;
  ycck[17] = 2;  // its transform
  CHECK(pixels(read_image_file(write(folder, "ycck.jpg", ycck))) == Bytes8{0, 132, 0, 76, 255, 29, 0, 41, 0, 68, 0, 0});

  const Bytes8 rgb = bytes_of_hex(
      "ffd8ffe000104a46494600010100000100010000ffdb0043000201010101010201010102020202020403020202020504040304060506060605060606"
      "070908060709070606080b08090a0a0a0a0a06080b0c0b0a0c090a0a0affdb004301020202020202050303050a0706070a0a0a0a0a0a0a0a0a0a0a0a"
      "0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0affc00011080002000203011100021101031101ffc400"
      "14000100000000000000000000000000000002ffc4001c1000020300030100000000000000000000010302040500060821ffc4001501010100000000"
      "000000000000000000000708ffc4001d110003000300030100000000000000000001020304050600072141ffda000c03010002110311003f007e6ad3"
      "d2b3e73e8166ce83d8c6749ca931936c8ca5234d449249fa78ebdefaa7d5d1ee76b39e8b0d55726e0018b0000156000013e01f83c9db73ce73dbbdc6"
      "4ec763872be45e8f4a529347a528ec59dddd81677762599989666249249f3fffd9");
  const Bytes8 of_rgb = {252, 0, 0, 0, 255, 4, 1, 4, 255, 97, 143, 203};
  CHECK(pixels(read_image_file(write(folder, "rgb.jpg", rgb))) == of_rgb);
  Bytes8 zeros = rgb;
  zeros.insert(zeros.end() - 2, 18, 0);  // before the end marker
  CHECK(pixels(read_image_file(write(folder, "zeros.jpg", zeros))) == of_rgb);
  Bytes8 behind = rgb;
  behind.insert(behind.end(), 16, 'j');
  CHECK(pixels(read_image_file(write(folder, "behind.jpg", behind))) == of_rgb);
  // What is missing is not made up.
  for (const std::size_t missing : {2UL, 10UL, 60UL}) {
    Bytes8 cut = rgb;
    cut.resize(cut.size() - missing);
    INFO(missing);
    CHECK(has(refusal({write(folder, "cut.jpg", cut)}, "images"), "cut.jpg: not a whole JPEG file"));
  }
  // A set of all of them is one set.
  const auto set =
      ImageSet::open({write(folder, "set/a.jpg", cmyk), write(folder, "set/b.jpg", rgb), write(folder, "set/c.jpg", zeros)}, "images");
  REQUIRE(set);
  CHECK(set->shape() == ImageShape{3, 2, 2});
  CHECK(set->listing() == "3 images of 3 × 2 × 2 from 3 files, without labels");
}

TEST_CASE("arrays with their channels last are not taken for images of many channels") {
  const TemporaryFolder folder;
  const std::vector<std::uint8_t> values(std::size_t{2} * 32 * 32 * 3, 7);
  const std::string why = refusal({write(folder, "last.npy", npy<std::uint8_t>("|u1", "2, 32, 32, 3", values))}, "npy");
  CHECK(has(why, "last.npy: its shape 2 × 32 × 32 × 3 looks like count × height × width × channels"));
  CHECK(has(why, "numpy.moveaxis(a, -1, 1)"));
  CHECK(has(refusal({write(folder, "wide.npy", npy<float>("<f4", "1, 8, 12, 4", std::vector<float>(384, 0.5F)))}, "npy"), "looks like"));
  CHECK(has(refusal({write(folder, "idx", idx({1, 6, 8, 1}))}, "idx"), "looks like"));
  const std::string one =
      refusal({write(folder, "one.npy", npy<std::uint8_t>("|u1", "32, 16, 3", std::vector<std::uint8_t>(1536, 7)))}, "npy");
  CHECK(has(one, "one.npy: its shape 32 × 16 × 3 looks like one image, height × width × channels"));
  CHECK(has(one, "numpy.moveaxis(a, -1, 0)[None]"));
  // Latents and narrow images are what they say.
  const std::vector<std::pair<std::string, std::size_t>> shapes = {{"1, 16, 4, 4", 256}, {"1, 4, 8, 3", 96}, {"1, 3, 32, 2", 192},
                                                                   {"1, 1, 6, 4", 24},   {"4, 8, 3", 96},    {"9, 8, 1", 72}};
  for (const auto& [shape, count] : shapes) {
    INFO(shape);
    CHECK(ImageSet::open({write(folder, "x.npy", npy<float>("<f4", shape, std::vector<float>(count, 0.5F)))}, "npy"));
  }
}

TEST_CASE("floats that are no values of a model are refused with their range") {
  const TemporaryFolder folder;
  std::vector<float> grey(64, 0.0F);
  grey[1] = 255;
  grey[2] = 128;
  const std::string why = refusal({write(folder, "grey.npy", npy<float>("<f4", "1, 8, 8", grey))}, "npy");
  CHECK(has(why, "grey.npy: its values lie between 0 and 255"));
  CHECK(has(why, "-1 to 1"));
  std::vector<double> doubles(64, 100.0);
  CHECK(has(refusal({write(folder, "doubles.npy", npy<double>("<f8", "1, 8, 8", doubles))}, "npy"), "between 100 and 100"));
  // Latents of a deviation near 1 reach beyond.
  std::vector<float> latents(64);
  for (std::size_t i = 0; i < latents.size(); ++i) {
    latents[i] = static_cast<float>(i % 9) - 4.0F;
  }
  const auto set = ImageSet::open({write(folder, "latents.npy", npy<float>("<f4", "1, 4, 4, 4", latents))}, "npy");
  REQUIRE(set);
  CHECK(has(set->listing(), "1 image of 4 × 4 × 4 from 1 file, values from -4 to 4"));
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

TEST_CASE("images that a validation looks at are spread over all that are held out, each class of a sorted set in its share") {
  std::vector<std::size_t> held(1000);
  std::iota(held.begin(), held.end(), std::size_t{0});
  const std::vector<std::size_t> chosen = spread_evenly(held, 64);
  REQUIRE(chosen.size() == 64);
  std::map<std::size_t, std::size_t> of_class;  // ten of them, a hundred images each
  for (const std::size_t image : chosen) {
    ++of_class[image / 100];
  }
  REQUIRE(of_class.size() == 10);
  for (const auto& [number, count] : of_class) {
    INFO("class " << number);
    CHECK((count == 6 || count == 7));
  }
  CHECK(std::ranges::is_sorted(chosen));
  CHECK(std::ranges::adjacent_find(chosen) == chosen.end());
  CHECK(spread_evenly(held, 64) == chosen);
  CHECK(spread_evenly(held, 5000) == held);
  CHECK(spread_evenly({}, 64).empty());
  CHECK(spread_evenly(held, 0).empty());
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
