// What an exported model holds.
#include "cli/models/export_model.hpp"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "agent/storage/safetensors.hpp"
#include "tests/catch.hpp"
#include "tests/cli/served_model.hpp"
#include "tests/temporary_folder.hpp"
#include "transport/base/free_port.hpp"

namespace of_export_model_test {

using namespace atl;
using nlohmann::json;

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

namespace {

// An island at an address of this machine where nobody listens.
json island_out_of_reach(const std::string& name) {
  const KeyPair keys = make_key_pair().value();
  return {{"id", island_of(keys.public_key).text},
          {"name", name},
          {"public_key", keys.public_key},
          {"bulk_address", "tcp://127.0.0.1:" + std::to_string(free_port("127.0.0.1").value())}};
}

}  // namespace

TEST_CASE("export reads from those of a checkpoint's islands that can be dialled, whatever their order") {
  const bool first = GENERATE(true, false);
  const atl_test::TemporaryFolder folder;
  ServedModel served([first](json& document) {
    json& sources = document["sources"];
    sources.insert(first ? sources.begin() : sources.end(), island_out_of_reach("behind"));
  });
  const Called exported = served.call({"export", "text", "-o", (folder.path() / "model").string()});
  INFO(exported.err);
  CHECK(exported.exit == 0);
  CHECK(exported.err.find("behind") == std::string::npos);
  CHECK(SafetensorsFile::open(folder.path() / "model"));
}

TEST_CASE("export takes an older checkpoint where nobody who has the newest can be dialled, and says so by the island's name") {
  const atl_test::TemporaryFolder folder;
  ServedModel served([](json& document) {
    json older = document;
    document["alternatives"] = json::array({older});
    document["round"] = 22;
    document["file_sha256"] = std::string(64, 'a');
    document["sources"] = json::array({island_out_of_reach("behind")});
  });
  const Called exported = served.call({"export", "text", "-o", (folder.path() / "model").string()});
  INFO(exported.err);
  CHECK(exported.exit == 0);
  CHECK(exported.err.find("this is the model of round 20 and not of round 22, for no island that has that can be reached: island behind: "
                          "nobody listens at ") != std::string::npos);
  CHECK(SafetensorsFile::open(folder.path() / "model"));
}

TEST_CASE("where no island that has a model can be dialled each is named with its reason, and no file is written") {
  const atl_test::TemporaryFolder folder;
  ServedModel served([](json& document) {
    json older = document;
    older["round"] = 18;
    older["sources"] = json::array({island_out_of_reach("third")});
    document["alternatives"] = json::array({older});
    document["sources"] = json::array({island_out_of_reach("one"), island_out_of_reach("other")});
  });
  const std::vector<std::string> command =
      GENERATE(std::vector<std::string>{"export", "text", "-o", ""}, std::vector<std::string>{"generate", "--run", "text"});
  std::vector<std::string> words = command;
  if (words.back().empty()) {
    words.back() = (folder.path() / "model").string();
  }
  const Called exported = served.call(words);
  INFO(exported.err);
  CHECK(exported.exit == 3);
  for (const char* name : {"island one: nobody listens at ", "island other: nobody listens at ", "island third: nobody listens at "}) {
    CHECK(exported.err.find(name) != std::string::npos);
  }
  CHECK(exported.err.find("i-") == std::string::npos);
  CHECK(std::filesystem::is_empty(folder.path()));
}

}  // namespace of_export_model_test
