// A language model as a folder of Hugging Face's. That transformers loads it, with the same logits, is tested where that is
// (tests/own/hugging_face_test.py).
#include "cli/models/hugging_face.hpp"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "agent/island_link/arena.hpp"
#include "agent/island_link/model_manifest.hpp"
#include "agent/storage/checkpoint.hpp"
#include "agent/storage/safetensors.hpp"
#include "tests/catch.hpp"
#include "tests/cli/served_model.hpp"
#include "tests/temporary_folder.hpp"

namespace of_hugging_face_test {

using namespace atl;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

const std::map<std::string, std::string> kText = {
    {"format", "pt"},
    {"atoll.model", R"({"layers": 2, "width": 16, "heads": 2, "feed_forward": 0, "vocabulary": 256, "tied_embeddings": true})"},
    {"atoll.format", "bytes"},
    {"atoll.sequence_length", "64"}};

// A model in `folder` whose parameters are all told apart.
std::vector<float> put_model(const fs::path& folder, const std::map<std::string, std::string>& metadata) {
  const island_link::Manifest manifest = island_link::model_manifest(island_link::describe_language_model(kText).value().sizes);
  std::vector<float> values(island_link::elements(manifest.parameters));
  std::vector<TensorView> tensors;
  std::size_t at = 0;
  for (std::size_t k = 0; k < values.size(); ++k) {
    values[k] = static_cast<float>(k);
  }
  for (const island_link::Parameter& parameter : manifest.parameters) {
    const std::size_t count = island_link::elements(parameter);
    tensors.push_back({parameter.name, parameter.shape, std::span(values).subspan(at, count)});
    at += count;
  }
  fs::create_directories(folder);
  std::ofstream out(folder / "model.safetensors", std::ios::binary);
  REQUIRE(write_safetensors(std::move(tensors), metadata, [&](ByteView bytes) {
    out.write(as_text(bytes).data(), static_cast<std::streamsize>(bytes.size()));
    return Status();
  }));
  return values;
}

json document_in(const fs::path& path) {
  std::ifstream in(path);
  INFO(path);
  REQUIRE(in);
  return json::parse(in);
}

}  // namespace

TEST_CASE("a language model's folder says which Llama it is, and its tokens are bytes") {
  const atl_test::TemporaryFolder folder;
  put_model(folder.path() / "hf", kText);
  REQUIRE(write_hugging_face_files(folder.path() / "hf"));
  const json config = document_in(folder.path() / "hf/config.json");
  CHECK(config["model_type"] == "llama");
  CHECK(config["hidden_size"] == 16);
  CHECK(config["intermediate_size"] == 64);
  CHECK(config["num_hidden_layers"] == 2);
  CHECK(config["head_dim"] == 8);
  CHECK(config["max_position_embeddings"] == 64);
  CHECK(config["tie_word_embeddings"] == true);
  const json tokenizer = document_in(folder.path() / "hf/tokenizer.json");
  const json& vocabulary = tokenizer["model"]["vocab"];
  CHECK(vocabulary.size() == 256);
  for (const auto& [character, byte] :
       std::vector<std::pair<std::string, int>>{{"A", 65}, {"Ġ", 32}, {"Ċ", 10}, {"é", 0xe9}, {"Ń", 0xad}}) {
    CHECK(vocabulary[character] == byte);  // as GPT-2's
  }
  CHECK(fs::exists(folder.path() / "hf/model.safetensors"));
  CHECK_FALSE(fs::exists(folder.path() / "hf/model.safetensors.index.json"));
}

TEST_CASE("a large model's parameters are dealt over shards that the index names, and none is lost") {
  const atl_test::TemporaryFolder folder;
  const fs::path hf = folder.path() / "hf";
  const std::vector<float> values = put_model(hf, kText);
  REQUIRE(write_hugging_face_files(hf, nullptr, 20'000));
  CHECK_FALSE(fs::exists(hf / "model.safetensors"));
  const json index = document_in(hf / "model.safetensors.index.json");
  CHECK(index["metadata"]["total_size"] == values.size() * sizeof(float));
  std::size_t at = 0;
  std::set<std::string> shards;
  for (const island_link::Parameter& parameter :
       island_link::model_manifest(island_link::describe_language_model(kText).value().sizes).parameters) {
    shards.insert(index["weight_map"][parameter.name].get<std::string>());
    const Result<SafetensorsFile> file = SafetensorsFile::open(hf / index["weight_map"][parameter.name].get<std::string>());
    REQUIRE(file);
    CHECK(file->header().metadata.at("format") == "pt");
    const std::size_t count = island_link::elements(parameter);
    CHECK(std::ranges::equal(file->floats(parameter.name).value(), std::span(values).subspan(at, count)));
    at += count;
  }
  CHECK(shards.size() > 2);
  const std::string first = "model-00001-of-0000" + std::to_string(shards.size()) + ".safetensors";
  CHECK(shards.contains(first));
  CHECK(fs::file_size(hf / first) < 21'000);
}

TEST_CASE("tokens that are numbers have no tokenizer of ours, and what is no language model of ours is refused by its kind") {
  const atl_test::TemporaryFolder folder;
  auto numbers = kText;
  numbers["atoll.format"] = "uint16";
  put_model(folder.path() / "numbers", numbers);
  REQUIRE(write_hugging_face_files(folder.path() / "numbers"));
  CHECK(fs::exists(folder.path() / "numbers/config.json"));
  CHECK_FALSE(fs::exists(folder.path() / "numbers/tokenizer.json"));
  auto own = kText;
  own[kTrainerKey] = "train.py";
  put_model(folder.path() / "own", own);
  CHECK(write_hugging_face_files(folder.path() / "own").error().why.find("save_pretrained") != std::string::npos);
  put_model(folder.path() / "images", {{"format", "pt"}});
  CHECK(write_hugging_face_files(folder.path() / "images").error().why.find("no language model") != std::string::npos);
  auto broken = kText;
  broken["atoll.model"] = R"({"layers": 2, "width": 16, "heads": 3, "feed_forward": 0, "vocabulary": 256})";
  put_model(folder.path() / "broken", broken);
  CHECK_FALSE(write_hugging_face_files(folder.path() / "broken"));
}

TEST_CASE("export --hf writes a folder that is whole or not there, and replaces nothing") {
  const ServedModel served;
  const atl_test::TemporaryFolder folder;
  const auto call = [&](const std::vector<std::string>& where) {
    std::vector<std::string> words = {"export", "text"};
    words.insert(words.end(), where.begin(), where.end());
    const Called called = served.call(words);
    CHECK(called.exit != 0);
    CHECK(std::distance(fs::directory_iterator(folder.path()), {}) <= 1);  // of what was made here
    return called.err;
  };
  const std::string hf = (folder.path() / "hf").string();
  CHECK(call({"--hf", hf}).find("the model is no language model") != std::string::npos);  // the one that is served
  CHECK_FALSE(fs::exists(hf));
  CHECK(call({}).find("give where the model goes: -o FILE, or --hf FOLDER") != std::string::npos);
  CHECK(call({"--hf", hf, "-o", hf}).find("not both") != std::string::npos);
  CHECK(call({"--hf", hf, "--through", "cp"}).find("--through writes a file") != std::string::npos);
  CHECK(call({"--hf", (folder.path() / "no/hf").string()}).find("create it first") != std::string::npos);
  fs::create_directory(hf);
  std::ofstream(fs::path(hf) / "mine") << "kept";
  CHECK(call({"--hf", hf + "/"}).find("is there already") != std::string::npos);
  CHECK(fs::exists(fs::path(hf) / "mine"));
}

}  // namespace of_hugging_face_test
