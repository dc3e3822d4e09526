// A diffusion transformer trained in rounds: the trainer as a process, seen from the agent's end of the island link.
#include <algorithm>
#include <cmath>

#include "agent/storage/safetensors.hpp"
#include "agent/trainer/diffusion/diffusion_task.hpp"
#include "tests/trainer/trainer_process.hpp"

using namespace atl;

namespace {

constexpr std::uint32_t kBatch = 8;
constexpr double kDecay = 0.9;

// Squares at random places, 8 × 8, in idx format; with labels: which half they are in.
std::vector<std::string> write_images(const Folder& folder, std::size_t count, bool labels) {
  Rng rng(11);
  const auto word = [](std::string& to, std::uint32_t value) {
    for (const unsigned shift : {24U, 16U, 8U, 0U}) {
      to.push_back(static_cast<char>((value >> shift) & 255U));
    }
  };
  std::string images;
  std::string classes;
  word(images, 0x0803), word(images, static_cast<std::uint32_t>(count)), word(images, 8), word(images, 8);
  word(classes, 0x0801), word(classes, static_cast<std::uint32_t>(count));
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t place = rng.below(6);
    for (std::uint64_t y = 0; y < 8; ++y) {
      for (std::uint64_t x = 0; x < 8; ++x) {
        images.push_back(static_cast<char>(x >= place && x < place + 3 && y >= 2 && y < 5 ? 255 : 0));
      }
    }
    classes.push_back(place < 3 ? 0 : 1);
  }
  std::ofstream(folder.path + "/images.idx", std::ios::binary) << images;
  std::ofstream(folder.path + "/labels.idx", std::ios::binary) << classes;
  return labels ? std::vector<std::string>{folder.path + "/images.idx", folder.path + "/labels.idx"}
                : std::vector<std::string>{folder.path + "/images.idx"};
}

Configure image_run(const std::vector<std::string>& files) {
  Configure configure = small_run("");
  configure.model = {2, 16, 2, 0, 256, false};
  configure.data = {files, "idx", 0.1, 0, 1};
  configure.training.batch = kBatch;
  configure.training.steps = 200;
  configure.training.weight_decay = 0.01;
  Diffusion diffusion;
  diffusion.patch = 2;
  diffusion.times = "uniform";
  diffusion.ema = kDecay;
  diffusion.router_layers = 1;
  diffusion.router_width = 16;
  diffusion.router_heads = 2;
  configure.diffusion = diffusion;
  return configure;
}

// One round of both fragments after `step`: what the islands agree on is a given share of what this one has published.
void exchange(TrainerProcess& trainer, std::uint64_t round, std::uint64_t step, double alpha, const std::optional<std::string>& save) {
  Plan plan{step, {}, {}};
  for (const std::uint32_t fragment : {0U, 1U}) {
    plan.publish.push_back({round, fragment, step, false});
    plan.merge.push_back({round, fragment, step, alpha, fragment == 1, false, fragment == 1 ? save : std::nullopt});
  }
  trainer.send(plan);
  for (const std::uint32_t fragment : {0U, 1U}) {
    CHECK(trainer.expect<Published>().fragment == fragment);
  }
  for (const std::uint32_t fragment : {0U, 1U}) {
    for (float& value : trainer.arena->range(trainer.layout.fragments[fragment])) {
      value *= 0.95F;
    }
    trainer.send(RoundResult{round, fragment, true});
    const Merged merged = trainer.expect<Merged>();
    CHECK(merged.fragment == fragment);
    CHECK(merged.saved == (fragment == 1 && save.has_value()));
    CHECK(merged.validation_loss.has_value() == (fragment == 1));
  }
}

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<float> values_of(const std::string& directory, const std::string& name) {
  const SafetensorsFile file = SafetensorsFile::open(directory + "/trainer.safetensors").value();
  const std::span<const float> values = file.floats(name).value();
  return {values.begin(), values.end()};
}

}  // namespace

TEST_CASE("a diffusion model in rounds: a save after a merge and a new process end in the same bytes as never stopped") {
  const Folder folder;
  for (const bool conditional : {false, true}) {
    for (const double alpha : {0.0, 0.5}) {
      Configure configure = image_run(write_images(folder, 300, true));
      configure.diffusion->conditional = conditional;
      configure.diffusion->class_dropout = 0.2;
      configure.training.accumulation = conditional ? 2 : 1;
      configure.data.part = 1;
      configure.data.parts = 3;
      const std::string name = folder.path + "/" + (conditional ? "c" : "u") + std::to_string(alpha);

      TrainerProcess straight(folder.path);
      CHECK(straight.open(configure, 2) == Ready{0, 0, 270});
      CHECK(straight.manifest.description.value_or("").find("\"patch\":2") != std::string::npos);
      exchange(straight, 1, 4, alpha, std::nullopt);
      exchange(straight, 2, 8, alpha, std::nullopt);
      exchange(straight, 3, 15, alpha, name + "-straight");

      TrainerProcess first(folder.path);
      first.open(configure, 2);
      exchange(first, 1, 4, alpha, std::nullopt);
      exchange(first, 2, 8, alpha, name + "-first");
      first.send(Stop{"moving house"});
      CHECK(first.exit_status() == 0);

      configure.resume = Resume{name + "-first", 8, 8 * kBatch};
      TrainerProcess second(folder.path);
      CHECK(second.open(configure, 2).step == 8);
      exchange(second, 3, 15, alpha, name + "-second");
      CHECK(second.parameters() == straight.parameters());
      // Parameters, both moments, the average and the place; and the tallies.
      CHECK(bytes_of(name + "-second/trainer.safetensors") == bytes_of(name + "-straight/trainer.safetensors"));
      CHECK(bytes_of(name + "-second/atoll-counts.json") == bytes_of(name + "-straight/atoll-counts.json"));
    }
  }
}

TEST_CASE("the average of a diffusion model in rounds is of what the islands agreed on, over all steps since the merge before") {
  const Folder folder;
  const Configure configure = image_run(write_images(folder, 200, false));
  TrainerProcess trainer(folder.path);
  trainer.open(configure, 2);
  const std::string tensor = trainer.manifest.parameters[0].name;
  const auto in_arena = [&] {
    const Entry& entry = *std::ranges::find(trainer.layout.entries, 0U, &Entry::parameter);
    const std::span<float> values = trainer.arena->floats().subspan(entry.offset, elements(trainer.manifest.parameters[0]));
    return std::vector<double>(values.begin(), values.end());
  };
  trainer.parameters();
  std::vector<double> average = in_arena();
  std::uint64_t before = 0;
  std::uint64_t round = 0;
  for (const std::uint64_t step : {3U, 10U, 60U, 160U}) {
    const std::string state = folder.path + "/state" + std::to_string(step);
    exchange(trainer, ++round, step, 0.5, state);
    double kept = 1.0;
    for (std::uint64_t s = before + 1; s <= step; ++s) {
      kept *= std::min(kDecay, (1.0 + static_cast<double>(s)) / (10.0 + static_cast<double>(s)));
    }
    before = step;
    const std::vector<double> agreed = in_arena();  // the arena holds what came in, not what was made of it
    const std::vector<float> saved = values_of(state, tensor + ".ema");
    REQUIRE(saved.size() == average.size());
    double worst = 0;
    for (std::size_t i = 0; i < average.size(); ++i) {
      average[i] = kept * average[i] + (1.0 - kept) * agreed[i];
      worst = std::max(worst, std::abs(average[i] - static_cast<double>(saved[i])));
    }
    INFO("step " << step);
    CHECK(worst < 1e-6);
  }
  // A state of a later step that is loaded counts for the steps between.
  trainer.send(Load{{0, 1}, 10'000, 80'000});
  trainer.expect<Loaded>();
  trainer.send(Save{folder.path + "/loaded"});
  CHECK_FALSE(trainer.expect<Saved>().error.has_value());
  CHECK(values_of(folder.path + "/loaded", tensor + ".ema") == values_of(folder.path + "/loaded", tensor));
}

TEST_CASE("a diffusion model learns in rounds, on the sequences of each island") {
  const Folder folder;
  Configure configure = image_run(write_images(folder, 400, false));
  configure.training.batch = 16;
  configure.training.learning_rate = 1e-2;
  configure.diffusion->ema = 0;
  std::uint64_t images = 0;
  std::vector<std::vector<std::vector<float>>> trained;
  for (const std::uint32_t part : {0U, 1U}) {
    configure.data.part = part;
    configure.data.parts = 2;
    TrainerProcess trainer(folder.path);
    images += trainer.open(configure, 1).tokens_available;
    trainer.send(Evaluate{});
    const Evaluated before = trainer.expect<Evaluated>();
    CHECK(before.batches == 3);  // 40 images are held out
    const Published published = trainer.train_until(200);
    CHECK(published.tokens == 200 * 16);
    CHECK(published.position == 200 * 16);
    trainer.send(Evaluate{});
    CHECK(*trainer.expect<Evaluated>().loss < 0.6 * *before.loss);
    trained.push_back(trainer.parameters());
  }
  CHECK(images == 2 * 360);  // each pass is over all of them
  CHECK(trained[0] != trained[1]);
}

TEST_CASE("an expert that islands train in rounds is of its cluster alone, and a task of one island goes on from it to its file") {
  const Folder folder;
  Configure configure = image_run(write_images(folder, 300, true));
  configure.training.steps = 12;
  configure.diffusion->experts = 2;
  configure.diffusion->clusters_by = "labels";
  configure.diffusion->ema = 0;  // then the average is what the islands agreed on last
  Task task;
  task.run = "r-test";
  task.task = "clustering";
  task.seed = configure.seed;
  task.model = configure.model;
  task.data = configure.data;
  task.training = configure.training;
  task.diffusion = *configure.diffusion;
  task.output = folder.path + "/clusters";
  const TaskListener deaf = {[](const TaskProgress&) { return Status(); }, [](const TaskSaved&) { return Status(); }};
  const Result<std::string> clusters = perform(task, deaf);
  INFO((clusters ? *clusters : clusters.error().why));
  REQUIRE(clusters);
  const TaskInput clustering{"clustering", task.output, std::string(64, '0'), 1};

  std::uint64_t images = 0;
  std::vector<std::vector<std::vector<float>>> beginnings;
  for (const std::string expert : {"experts/0", "experts/1"}) {
    configure.work = Work{expert, {clustering}};
    TrainerProcess trainer(folder.path);
    images += trainer.open(configure, 2).tokens_available;
    beginnings.push_back(trainer.parameters());
    const std::string state = folder.path + "/" + expert.substr(8);
    exchange(trainer, 1, 5, 0.0, std::nullopt);
    exchange(trainer, 2, 12, 0.0, state);

    task.task = expert;
    task.inputs = {clustering};
    task.output = state + ".expert";
    task.checkpoint = state + ".checkpoint";
    task.resume = state + "/trainer.safetensors";
    const Result<std::string> facts = perform(task, deaf);
    INFO((facts ? *facts : facts.error().why));
    REQUIRE(facts);
    const SafetensorsFile file = SafetensorsFile::open(task.output).value();
    for (const Parameter& parameter : trainer.manifest.parameters) {
      const std::span<const float> made = file.floats(parameter.name).value();
      CHECK(std::vector<float>(made.begin(), made.end()) == values_of(state, parameter.name));
    }
    CHECK(file.header().metadata.at("atoll.task") == expert);
  }
  CHECK(images == 270);
  CHECK(beginnings[0] != beginnings[1]);
  configure.work->task = "router";
  TrainerProcess trainer(folder.path);
  trainer.expect<Hello>();
  trainer.send(configure);
  CHECK(trainer.expect<Failed>().why.find("was told of task 'router'") != std::string::npos);
}

TEST_CASE("images and settings that cannot be trained on in rounds are refused with the reason") {
  const Folder folder;
  const Configure good = image_run(write_images(folder, 100, false));
  const auto failure = [&](auto change) {
    Configure configure = good;
    change(configure);
    TrainerProcess trainer(folder.path);
    trainer.expect<Hello>();
    trainer.send(configure);
    const std::string why = trainer.expect<Failed>().why;
    CHECK(trainer.exit_status() == 1);
    return why;
  };
  CHECK(failure([](Configure& c) { c.diffusion->conditional = true; }) == "diffusion.conditional needs labels, and the data set has none");
  CHECK(failure([](Configure& c) { c.training.batch = 200; }).find("90 images are there to train on, fewer than a batch of 200") !=
        std::string::npos);
  CHECK(failure([](Configure& c) { c.diffusion->patch = 3; }).find("no whole number of patches") != std::string::npos);
  CHECK(failure([](Configure& c) { c.data.files = {"/no/such"}; }).find("/no/such") != std::string::npos);
}
