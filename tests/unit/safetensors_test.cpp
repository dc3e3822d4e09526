// Safetensors: deterministic bytes, there and back, and everything a hostile header may say.
#include "agent/storage/safetensors.hpp"

#include <algorithm>
#include <fstream>

#include "tests/catch.hpp"
#include "tests/temporary_folder.hpp"

namespace of_safetensors_test {

using namespace atl;

namespace {

Bytes file_of(std::vector<TensorView> tensors, const std::map<std::string, std::string>& metadata) {
  Bytes all;
  REQUIRE(write_safetensors(std::move(tensors), metadata, [&](ByteView bytes) {
            all.insert(all.end(), bytes.begin(), bytes.end());
            return Status();
          }).ok());
  return all;
}

// A file of this header and these data, as other tools write it.
std::string file_with(const std::string& json, const std::string& data) {
  std::string length(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) {
    length[i] = static_cast<char>(json.size() >> (8 * i));
  }
  return length + json + data;
}

std::string floats_as_text(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

}  // namespace

TEST_CASE("safetensors: equal tensors are equal bytes, in any order, and read back") {
  const std::vector<float> a = {1, 2, 3, 4, 5, 6};
  const std::vector<float> b = {-7.5F};
  const std::vector<float> none;
  const Bytes one = file_of({{"b", {}, b}, {"a", {2, 3}, a}, {"e", {0, 4}, none}}, {{"atoll.format", "1"}});
  const Bytes two = file_of({{"e", {0, 4}, none}, {"a", {2, 3}, a}, {"b", {}, b}}, {{"atoll.format", "1"}});
  CHECK(one == two);

  atl_test::TemporaryFolder folder;
  const auto path = folder.write("x.safetensors", std::string(as_text(one)));
  Result<SafetensorsFile> file = SafetensorsFile::open(path);
  REQUIRE(file.has_value());
  CHECK(file->header().metadata.at("atoll.format") == "1");
  CHECK(file->header().tensors.size() == 3);
  CHECK(file->header().find("a")->shape == std::vector<std::uint64_t>{2, 3});
  const auto read = file->floats("a");
  REQUIRE(read.has_value());
  CHECK(std::vector<float>(read->begin(), read->end()) == a);
  CHECK(file->floats("b")->front() == -7.5F);
  CHECK(file->floats("e")->empty());
  CHECK(file->floats("zebra").error().code == Code::not_found);
}

TEST_CASE("safetensors: bf16 lies behind floats and before bytes, and is not read for another type") {
  const std::vector<float> floats = {1, 2, 3};
  const std::vector<std::uint8_t> small = {7};
  const Bytes halves = {std::byte{0x80}, std::byte{0x3f}, std::byte{0x00}, std::byte{0xc0}};  // 1 and -2
  const Bytes bytes = file_of({{"a", {1}, {}, small}, {"b", {2}, {}, {}, halves}, {"c", {3}, floats}}, {});
  atl_test::TemporaryFolder folder;
  const SafetensorsFile file = SafetensorsFile::open(folder.write("x", std::string(as_text(bytes)))).value();
  REQUIRE(file.header().tensors.size() == 3);
  CHECK(file.header().tensors[0].name == "c");
  CHECK(file.header().tensors[1].dtype == "BF16");
  CHECK(file.header().tensors[1].shape == std::vector<std::uint64_t>{2});
  CHECK(file.header().tensors[2].dtype == "U8");
  CHECK(std::ranges::equal(file.bytes(*file.header().find("b")), halves));
  CHECK(file.floats("b").error().why == "the tensor 'b' is BF16, not F32");
  std::vector<TensorView> wrong = {{"b", {3}, {}, {}, halves}};
  CHECK(make_safetensors_header(wrong, {}).error().code == Code::invalid_argument);
}

TEST_CASE("safetensors: the layout is the published one") {
  const std::vector<float> a = {1.0F};
  const Bytes bytes = file_of({{"w", {1}, a}}, {});
  const std::string json = R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}  )";
  REQUIRE(bytes.size() == 8 + json.size() + 4);
  CHECK(std::to_integer<int>(bytes[0]) == static_cast<int>(json.size()));
  CHECK(std::string(as_text(ByteView(bytes).subspan(8, json.size()))) == json);
}

TEST_CASE("safetensors: names are text in JSON, whatever they hold") {
  const std::vector<float> a = {1.0F};
  const std::string name = "a\"b\\\n\xc3\xa9";
  const Bytes bytes = file_of({{name, {1}, a}}, {});
  atl_test::TemporaryFolder folder;
  Result<SafetensorsFile> file = SafetensorsFile::open(folder.write("x", std::string(as_text(bytes))));
  REQUIRE(file.has_value());
  CHECK(file->floats(name).has_value());
}

TEST_CASE("safetensors: what cannot be written is refused") {
  const std::vector<float> a = {1.0F, 2.0F};
  std::vector<TensorView> twice = {{"a", {2}, a}, {"a", {2}, a}};
  CHECK(make_safetensors_header(twice, {}).error().code == Code::invalid_argument);
  std::vector<TensorView> wrong = {{"a", {3}, a}};
  CHECK(make_safetensors_header(wrong, {}).error().code == Code::invalid_argument);
  std::vector<TensorView> reserved = {{"__metadata__", {2}, a}};
  CHECK(make_safetensors_header(reserved, {}).error().code == Code::invalid_argument);
}

TEST_CASE("safetensors: a hostile header is corrupt and says which tensor") {
  struct Case {
    const char* what;
    const char* json;
    std::uint64_t bytes;
  };
  const std::vector<Case> cases = {
      {"not JSON", "{", 0},
      {"not an object", "[]", 0},
      {"a number", "7", 0},
      {"no entry", R"({"a":7})", 0},
      {"missing offsets", R"({"a":{"dtype":"F32","shape":[1]}})", 4},
      {"one key too many", R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1}})", 4},
      {"a type without a name", R"({"a":{"dtype":"","shape":[1],"data_offsets":[0,4]}})", 4},
      {"a type that is a novel", R"({"a":{"dtype":"F32F32F32F32F32F32F32F32F32F32F32","shape":[1],"data_offsets":[0,4]}})", 4},
      {"unknown type beyond the end", R"({"a":{"dtype":"F31","shape":[1],"data_offsets":[0,8]}})", 4},
      {"unknown type that overlaps",
       R"({"a":{"dtype":"F31","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})", 6},
      {"type of the wrong type", R"({"a":{"dtype":1,"shape":[1],"data_offsets":[0,4]}})", 4},
      {"negative shape", R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4},
      {"fractional shape", R"({"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})", 4},
      {"overflowing shape", R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0},
      {"beyond the end", R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 4},
      {"end before begin", R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 8},
      {"three offsets", R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,8]}})", 8},
      {"size unlike shape", R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}})", 8},
      {"overlap", R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8},
      {"gap", R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})", 12},
      {"trailing data", R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 8},
      {"twice", R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4},
      {"metadata not text", R"({"__metadata__":{"a":1}})", 0},
      {"metadata not an object", R"({"__metadata__":[]})", 0},
      {"huge number", R"({"a":{"dtype":"F32","shape":[18446744073709551616],"data_offsets":[0,4]}})", 4},
  };
  for (const Case& c : cases) {
    INFO(c.what);
    const Result<SafetensorsHeader> header = parse_safetensors_header(c.json, c.bytes);
    REQUIRE_FALSE(header.has_value());
    CHECK(header.error().code == Code::corrupt);
  }
  CHECK(parse_safetensors_header(R"({"a":{"dtype":"BF16","shape":[],"data_offsets":[0,2]}})", 2).has_value());
}

TEST_CASE("safetensors: a file that is cut, too long in its header or no file is an error") {
  atl_test::TemporaryFolder folder;
  CHECK(SafetensorsFile::open(folder.path() / "absent").error().code == Code::not_found);
  CHECK(SafetensorsFile::open(folder.path()).error().code == Code::io);
  CHECK(SafetensorsFile::open(folder.write("short", "1234567")).error().code == Code::corrupt);
  CHECK(SafetensorsFile::open(folder.write("empty", "")).error().code == Code::corrupt);
  CHECK(SafetensorsFile::open(folder.write("long", std::string(8, '\xff') + "{}")).error().code == Code::corrupt);
  CHECK(SafetensorsFile::open(folder.write("cut", std::string("\x10\0\0\0\0\0\0\0{}", 10))).error().code == Code::corrupt);
}

TEST_CASE("safetensors: a header that is not padded and data that are not aligned are read") {
  atl_test::TemporaryFolder folder;
  const std::string json = R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}})";
  REQUIRE(json.size() % 4 != 0);
  const std::vector<float> a = {1.5F, -2.0F, 3e-5F};
  const SafetensorsFile unpadded = SafetensorsFile::open(folder.write("unpadded", file_with(json, floats_as_text(a)))).value();
  const auto read = unpadded.floats("a");
  REQUIRE(read.has_value());
  CHECK(reinterpret_cast<std::uintptr_t>(read->data()) % alignof(float) == 0);
  CHECK(std::vector<float>(read->begin(), read->end()) == a);
  CHECK(unpadded.floats("a")->data() == read->data());  // once, however often it is asked for

  const std::string odd = R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"F32","shape":[3],"data_offsets":[2,14]}})";
  const SafetensorsFile unaligned = SafetensorsFile::open(folder.write("odd", file_with(odd, "xy" + floats_as_text(a)))).value();
  const auto b = unaligned.floats("b");
  REQUIRE(b.has_value());
  CHECK(std::vector<float>(b->begin(), b->end()) == a);
  CHECK(unaligned.bytes(*unaligned.header().find("a")).size() == 2);
}

TEST_CASE("safetensors: tensors of a type that is not known stand beside those that are wanted") {
  atl_test::TemporaryFolder folder;
  const std::vector<float> b = {4.0F};
  const std::string json =
      R"({"weight":{"dtype":"F8_E4M3","shape":[3],"data_offsets":[0,3]},)"
      R"("packed":{"dtype":"F4","shape":[4],"data_offsets":[3,5]},"scale":{"dtype":"F8_E8M0","shape":[1],"data_offsets":[5,6]},)"
      R"("far":{"dtype":"C64","shape":[1],"data_offsets":[6,14]},"bias":{"dtype":"F32","shape":[1],"data_offsets":[14,18]}})";
  const SafetensorsFile file = SafetensorsFile::open(folder.write("x", file_with(json, std::string(14, 'x') + floats_as_text(b)))).value();
  CHECK(file.header().tensors.size() == 5);
  CHECK(file.floats("bias")->front() == 4.0F);
  // What is wanted is called what it is.
  CHECK(file.floats("weight").error().why == "the tensor 'weight' is F8_E4M3, not F32");
  CHECK(file.floats("packed").error().why == "the tensor 'packed' is F4, not F32");
}

}  // namespace of_safetensors_test
