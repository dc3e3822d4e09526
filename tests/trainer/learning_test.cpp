// The built-in trainer learns: a real text, and the model it leaves can be read and generates.
#include <cmath>
#include <cstdlib>
#include <set>
#include <sstream>

#include "agent/storage/safetensors.hpp"
#include "tests/places.hpp"
#include "tests/skip.hpp"
#include "tests/trainer/trainer_process.hpp"

using namespace atl;

namespace {

std::string test_data() {
  const char* set = std::getenv("ATOLL_TEST_DATA");
  return set != nullptr ? set : atl_test::source_folder() + "/../shared/data";
}

// What `atoll generate` prints, and its exit status.
std::pair<std::string, int> generate(const std::string& arguments) {
  const std::string command = "ATOLL_TRAINER_MODULE=" + atl_test::built_in_trainer() + " " + atl_test::atoll_program() +
                              " generate --device cpu " + arguments + " 2>&1";
  FILE* pipe = ::popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::string text;
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) {
    text.push_back(static_cast<char>(c));
  }
  const int status = ::pclose(pipe);
  return {text, WEXITSTATUS(status)};
}

void write_model(const std::string& path, TrainerProcess& trainer, const Configure& configure) {
  trainer.parameters();
  std::vector<TensorView> tensors;
  for (const Entry& entry : trainer.layout.entries) {
    const Parameter& parameter = trainer.manifest.parameters[entry.parameter];
    tensors.push_back({parameter.name, parameter.shape, trainer.arena->floats().subspan(entry.offset, elements(parameter))});
  }
  const Model& m = configure.model;
  const std::string model = "{\"layers\":" + std::to_string(m.layers) + ",\"width\":" + std::to_string(m.width) +
                            ",\"heads\":" + std::to_string(m.heads) + ",\"feed_forward\":" + std::to_string(m.feed_forward) +
                            ",\"vocabulary\":" + std::to_string(m.vocabulary) +
                            ",\"tied_embeddings\":" + (m.tied_embeddings ? "true" : "false") + "}";
  std::ofstream file(path, std::ios::binary);
  REQUIRE(write_safetensors(tensors, {{"atoll.model", model}, {"atoll.format", "bytes"}, {"atoll.sequence_length", "16"}},
                            [&file](ByteView bytes) {
                              file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
                              return Status();
                            })
              .ok());
}

}  // namespace

TEST_CASE("a small model learns a small language and speaks it") {
  const Folder folder;
  const std::string text = folder.write_text(40'000);
  Configure configure = small_run(text);
  configure.training.steps = 400;
  configure.training.batch = 16;
  configure.training.learning_rate = 1e-2;
  TrainerProcess trainer(folder.path);
  trainer.open(configure);
  trainer.send(Evaluate{});
  const Evaluated before = trainer.expect<Evaluated>();
  CHECK(*before.loss == Approx(std::log(256.0)).margin(0.3));
  CHECK(before.batches == 4);
  const Published published = trainer.train_until(400);
  CHECK(published.compute_seconds > 0.0);
  trainer.send(Evaluate{});
  CHECK(*trainer.expect<Evaluated>().loss < 1.3);  // thirty words, about a nat a letter

  const std::string model = folder.path + "/model.safetensors";
  write_model(model, trainer, configure);
  const auto [said, status] = generate("--model " + model + " --prompt ' ' --tokens 300 --temperature 0.5 --seed 3");
  CHECK(status == 0);
  CHECK(said == generate("--model " + model + " --prompt ' ' --tokens 300 --temperature 0.5 --seed 3").first);
  CHECK(said != generate("--model " + model + " --prompt ' ' --tokens 300 --temperature 0.5 --seed 4").first);
  // Most of what it says are words of the text.
  std::ifstream file(text);
  std::set<std::string> words;
  for (std::string word; file >> word;) {
    words.insert(word);
  }
  std::istringstream spoken(said);
  int known = 0;
  int all = 0;
  for (std::string word; spoken >> word; ++all) {
    known += words.contains(word) ? 1 : 0;
  }
  INFO(said);
  CHECK(all > 20);
  CHECK(known > all * 6 / 10);

  CHECK(generate("--model " + folder.path + "/none --prompt x").second == 4);
  CHECK(generate("--model " + text + " --prompt x").second == 1);
  CHECK(generate("--model " + model + " --prompt x --temperature hot").second == 2);
  CHECK(generate("--model " + model + " --prompt x --tokens 5 --top-k 1 --json").first.find("\"schema\":1") != std::string::npos);
}

TEST_CASE("a model of a million parameters learns Shakespeare in 300 steps") {
  const std::string file = test_data() + "/tinyshakespeare/input.txt";
  if (!std::filesystem::exists(file)) {
    ATL_SKIP("there is no " << file << " (set ATOLL_TEST_DATA)");
  }
  const Folder folder;
  Configure configure = small_run(file);
  configure.model = {4, 128, 4, 0, 256, false};
  configure.data.validation_fraction = 0.05;
  configure.training.steps = 300;
  configure.training.batch = 16;
  configure.training.sequence_length = 128;
  configure.training.warmup_steps = 100;
  configure.training.learning_rate = 3e-3;
  configure.training.evaluate_batches = 16;
  TrainerProcess trainer(folder.path);
  trainer.open(configure);
  trainer.send(Plan{300, {{1, 0, 300, true}}, {}});
  const Published published = trainer.expect<Published>();
  CHECK(*published.local_validation_loss < 2.1);  // 5.55 at the start; 1.93 was measured
  WARN(300 * 2048 / published.compute_seconds << " tokens/s, validation loss " << *published.local_validation_loss);
}
