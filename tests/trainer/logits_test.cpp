// The built-in language model's logits, for readers of its files in other languages (tests/own/hugging_face_test.py). Not run by itself:
// ATOLL_TEST_MODEL is an exported model, ATOLL_TEST_TOKENS a file of token numbers, ATOLL_TEST_LOGITS the file of float32 to write.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "agent/island_link/arena.hpp"
#include "agent/island_link/model_manifest.hpp"
#include "agent/storage/safetensors.hpp"
#include "agent/trainer/language/model.hpp"
#include "tests/catch.hpp"

namespace of_logits_test {

using namespace atl;

TEST_CASE("the logits of an exported model", "[.logits]") {
  const char* const path = std::getenv("ATOLL_TEST_MODEL");
  REQUIRE(path != nullptr);
  const SafetensorsFile file = SafetensorsFile::open(std::filesystem::path(path)).value();
  const island_link::LanguageModelFile described = island_link::describe_language_model(file.header().metadata).value();
  const island_link::Manifest manifest = Model::manifest(described.sizes);
  const at::Tensor flat = at::empty({static_cast<std::int64_t>(island_link::elements(manifest.parameters))});
  float* to = flat.data_ptr<float>();
  for (const island_link::Parameter& parameter : manifest.parameters) {
    const std::span<const float> values = file.floats(parameter.name).value();
    to = std::copy(values.begin(), values.end(), to);
  }
  std::ifstream words(std::getenv("ATOLL_TEST_TOKENS"));
  std::vector<std::int64_t> tokens{std::istream_iterator<std::int64_t>(words), {}};
  REQUIRE_FALSE(tokens.empty());
  const at::NoGradGuard no_gradient;
  const Model model(described.sizes, static_cast<std::int64_t>(tokens.size()), flat);
  const at::Tensor logits = model.logits(at::tensor(tokens, at::kLong).view({1, -1})).contiguous();
  std::ofstream out(std::getenv("ATOLL_TEST_LOGITS"), std::ios::binary);
  out.write(reinterpret_cast<const char*>(logits.data_ptr<float>()), logits.numel() * static_cast<std::int64_t>(sizeof(float)));
  REQUIRE(out.flush());
}

}  // namespace of_logits_test
