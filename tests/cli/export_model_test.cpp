// What an exported model holds.
#include "cli/export_model.hpp"

#include <filesystem>
#include <fstream>

#include "agent/storage/safetensors.hpp"
#include "tests/catch.hpp"

namespace of_export_model_test {

using namespace atl;

namespace {

const std::vector<float> kA = {1, 2, 3, 4};
const std::vector<float> kB = {5, 6};

std::filesystem::path checkpoint_in(const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  std::ofstream out(folder / "outer.safetensors", std::ios::binary);
  REQUIRE(write_safetensors(
      {{"a", {2, 2}, kA}, {"b", {2}, kB}, {"momentum/a", {2, 2}, kA}, {"momentum/b", {2}, kB}},
      {{"atoll.format", "1"}, {"atoll.model", "{\"layers\":1}"}, {"atoll.data_format", "uint16"}, {"atoll.sequence_length", "64"}},
      [&](ByteView bytes) {
        out.write(as_text(bytes).data(), static_cast<std::streamsize>(bytes.size()));
        return Status();
      }));
  return folder / "outer.safetensors";
}

}  // namespace

TEST_CASE("an exported model has the parameters and says what it is") {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "atoll-export-model";
  const std::filesystem::path model = folder / "model.safetensors";
  REQUIRE(write_model(checkpoint_in(folder), model));
  {
    const Result<SafetensorsFile> file = SafetensorsFile::open(model);
    REQUIRE(file);
    REQUIRE(file->header().tensors.size() == 2);
    CHECK(std::ranges::equal(*file->floats("a"), kA));
    CHECK(std::ranges::equal(*file->floats("b"), kB));
    CHECK(file->header().find("a")->shape == std::vector<std::uint64_t>{2, 2});
    CHECK(file->header().metadata.at("atoll.format") == "uint16");
    CHECK(file->header().metadata.at("atoll.model") == "{\"layers\":1}");
    CHECK(file->header().metadata.at("atoll.sequence_length") == "64");
  }
  std::filesystem::remove_all(folder);
}

TEST_CASE("a model that cannot be written leaves nothing, and a broken checkpoint is corrupt") {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "atoll-export-broken";
  const std::filesystem::path checkpoint = checkpoint_in(folder);
  CHECK_FALSE(write_model(checkpoint, folder / "no" / "such" / "model.safetensors"));
  std::filesystem::resize_file(checkpoint, std::filesystem::file_size(checkpoint) - 3);
  CHECK(write_model(checkpoint, folder / "model.safetensors").error().code == Code::corrupt);
  CHECK_FALSE(std::filesystem::exists(folder / "model.safetensors"));
  CHECK_FALSE(std::filesystem::exists(folder / "model.safetensors.partial"));
  std::filesystem::remove_all(folder);
}

}  // namespace of_export_model_test
