// Mutated safetensors files, and the documents of a model's folder: an error or what can be read as a whole, never a crash.
#include <fstream>

#include "agent/engine/built_in_model.hpp"
#include "agent/engine/parameter_layout.hpp"
#include "agent/island_link/arena.hpp"
#include "agent/island_link/model_manifest.hpp"
#include "agent/storage/given_tensors.hpp"
#include "tests/catch.hpp"
#include "tests/temporary_folder.hpp"
#include "transport/base/rng.hpp"

using namespace atl;

namespace {

void mutate(std::string& bytes, Rng& rng) {
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
}

}  // namespace

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
    mutate(bytes, rng);
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

TEST_CASE("fuzz: a model's folder with a mutated index and configuration") {
  RunSpec spec;
  spec.model.layers = 1;
  spec.model.width = 4;
  spec.model.heads = 2;
  spec.model.vocabulary = 4;
  const island_link::Manifest manifest = island_link::model_manifest(spec.model);
  atl_test::TemporaryFolder folder;
  std::string index;
  for (std::size_t k = 0; k < manifest.parameters.size(); ++k) {
    const island_link::Parameter& parameter = manifest.parameters[k];
    const std::vector<float> values(island_link::elements(parameter), 0.5F);
    std::string bytes;
    REQUIRE(write_safetensors({{parameter.name, parameter.shape, values}}, {}, [&](ByteView some) {
      bytes += as_text(some);
      return Status();
    }));
    folder.write("m/" + std::to_string(k) + ".safetensors", bytes);
    index += (k == 0 ? R"({"weight_map":{")" : ",\"") + parameter.name + "\":\"" + std::to_string(k) + ".safetensors\"";
  }
  index += "}}";
  const std::string config =
      R"({"architectures":["LlamaForCausalLM"],"model_type":"llama","hidden_size":4,"intermediate_size":32,"num_hidden_layers":1,)"
      R"("num_attention_heads":2,"num_key_value_heads":2,"head_dim":2,"vocab_size":4,"rms_norm_eps":1e-5,"rope_parameters":)"
      R"({"rope_theta":10000.0,"rope_type":"default"},"tie_word_embeddings":false,"hidden_act":"silu","attention_bias":false})";
  folder.write("m/model.safetensors.index.json", index);
  folder.write("m/config.json", config);
  const auto path = folder.path() / "m";
  REQUIRE(suits_model(path, spec));
  int suited = 0;
  for (std::uint64_t seed = 0; seed < 1500; ++seed) {
    Rng rng(seed, stream_of("folder"));
    std::string other_index = index;
    std::string other_config = config;
    mutate(seed % 2 == 0 ? other_index : other_config, rng);
    folder.write("m/model.safetensors.index.json", other_index);
    folder.write("m/config.json", other_config);
    const Status suits = suits_model(path, spec);
    const bool known = suits || suits.error().code == Code::corrupt || suits.error().code == Code::not_found ||
                       suits.error().code == Code::invalid_argument;
    INFO(seed << ": " << (suits ? "" : suits.error().why));
    CHECK(known);
    CHECK((suits || suits.error().why.find_first_of("\n\x1b") == std::string::npos));
    suited += suits ? 1 : 0;
    if (suits) {  // what is accepted is read as a whole
      const GivenTensors given = GivenTensors::open(path).value();
      CHECK(holds_parameters(given, manifest));
      CHECK(digest_of_given(path));
    }
  }
  CHECK(suited < 1000);
}
