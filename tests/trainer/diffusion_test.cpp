// Diffusion in the trainer: the transformer, the learner, and every task from files to files.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "agent/trainer/data/image_file.hpp"
#include "agent/trainer/data/images.hpp"
#include "agent/trainer/diffusion/diffusion_task.hpp"
#include "agent/trainer/diffusion/dit_learner.hpp"
#include "agent/trainer/diffusion/ensemble.hpp"
#include "agent/trainer/diffusion/ensemble_flow.hpp"
#include "agent/trainer/diffusion/flow_matching.hpp"
#include "tests/temporary_folder.hpp"
#include "tests/trainer/script_model.hpp"
#include "tests/trainer/tensor_digest.hpp"
#include "transport/base/rng.hpp"
#include "transport/control/message.hpp"

#undef CHECK  // LibTorch's logging has one, too
#include "tests/catch.hpp"

using namespace atl;
using atl_test::TemporaryFolder;
namespace fs = std::filesystem;

namespace {

// Squares and bars at random places, in two kinds that differ much: what a small model can learn and k-means can tell apart.
std::vector<std::string> write_shapes(const TemporaryFolder& folder, std::size_t count, bool labels = true,
                                      const std::string& below = ".") {
  Rng rng(11);
  std::ofstream images(folder.path() / below / "images.idx", std::ios::binary);
  std::ofstream classes(folder.path() / below / "labels.idx", std::ios::binary);
  const auto word = [](std::ofstream& to, std::uint32_t value) {
    for (const int shift : {24, 16, 8, 0}) {
      to.put(static_cast<char>(value >> shift));
    }
  };
  word(images, 0x00000803), word(images, static_cast<std::uint32_t>(count)), word(images, 8), word(images, 8);
  word(classes, 0x00000801), word(classes, static_cast<std::uint32_t>(count));
  for (std::size_t i = 0; i < count; ++i) {
    const bool dark = i % 2 == 0;
    const std::uint64_t place = rng.below(5);
    for (std::uint64_t y = 0; y < 8; ++y) {
      for (std::uint64_t x = 0; x < 8; ++x) {
        const bool on = dark ? x >= place && x < place + 3 && y >= 2 && y < 5 : y >= place && y < place + 2;
        images.put(static_cast<char>(on ? 255 : dark ? 0 : 90));
      }
    }
    classes.put(static_cast<char>(dark ? 0 : 1));
  }
  std::vector<std::string> files = {(folder.path() / below / "images.idx").string()};
  if (labels) {
    files.push_back((folder.path() / below / "labels.idx").string());
  }
  return files;
}

island_link::Task small_task(const TemporaryFolder& folder, const std::vector<std::string>& files) {
  island_link::Task task;
  task.run = "r-test";
  task.island = "here";
  task.seed = 5;
  task.model = {2, 32, 2, 0, 256, false};
  task.data.files = files;
  task.data.format = "idx";
  task.data.validation_fraction = 0.1;
  task.training.steps = 60;
  task.training.batch = 16;
  task.training.learning_rate = 3e-3;
  task.training.warmup_steps = 5;
  task.training.final_learning_rate = 0.1;
  task.training.weight_decay = 0.01;
  task.training.beta1 = 0.9;
  task.training.beta2 = 0.99;
  task.training.epsilon = 1e-8;
  task.training.clip_norm = 1;
  task.training.device = "cpu";
  task.training.precision = "auto";
  task.training.threads = 1;
  task.training.evaluate_batches = 4;
  task.diffusion = {2, "features", "pixels-pca", 8, 16, 1.5, 2, false, 0.1, "uniform", 0.9, 4, 1, 16, 2, 60, 16, 3e-3, 0};
  task.output = (folder.path() / "out").string();
  task.checkpoint = (folder.path() / "checkpoint").string();
  return task;
}

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

const TaskListener kDeaf = {[](const island_link::TaskProgress&) { return Status(); },
                            [](const island_link::TaskSaved&) { return Status(); }};

// Does a task and keeps its result under its own name.
nlohmann::json done(const TemporaryFolder& folder, island_link::Task task, const std::string& name, const std::vector<std::string>& needs) {
  const auto file_of = [&](std::string of) {
    std::replace(of.begin(), of.end(), '/', '-');
    return (folder.path() / of).string();
  };
  task.task = name;
  task.output = file_of(name);
  for (const std::string& need : needs) {
    task.inputs.push_back({need, file_of(need), std::string(64, '0'), std::filesystem::file_size(file_of(need))});
  }
  const Result<std::string> facts = perform(task, kDeaf);
  INFO((facts ? std::string() : facts.error().why));
  REQUIRE(facts);
  REQUIRE(std::filesystem::exists(task.output));
  return nlohmann::json::parse(*facts);
}

}  // namespace

TEST_CASE("a fresh transformer gives no flow, and its patches go back where they came from") {
  const DitSizes sizes = *Dit::checked({{3, 8, 4}, 2, 2, 32, 4, 0, 10, 0});
  std::int64_t count = 0;
  for (const auto& parameter : Dit::manifest(sizes).parameters) {
    std::int64_t values = 1;
    for (const std::uint64_t extent : parameter.shape) {
      values *= static_cast<std::int64_t>(extent);
    }
    count += values;
  }
  const at::Tensor flat = at::empty({count}, at::kFloat);
  Dit model(sizes, flat);
  model.initialize(3);
  CHECK(atl_test::digest_of(flat) == "d9f2fe87d0f68304");  // every island of every version begins so
  const at::NoGradGuard no_gradient;
  const at::Tensor x = normal_values({2, 3, 8, 4}, 1, 1);
  const at::Tensor t = at::tensor(std::vector<float>{0.2F, 0.7F});
  const at::Tensor out = model.forward(x, t, {});
  CHECK(out.sizes() == x.sizes());
  CHECK(out.abs().max().item<double>() == 0.0);  // adaLN-Zero
  CHECK(*Dit::described(Dit::describe(sizes)) == sizes);
  CHECK(Dit::forward_flops(sizes) > 0);
  CHECK_FALSE(Dit::checked({{3, 9, 4}, 2, 2, 32, 4, 0, 0, 0}));
  CHECK_FALSE(Dit::checked({{3, 8, 4}, 2, 2, 30, 4, 0, 0, 0}));
}

TEST_CASE("a learner that is saved and restored goes on with the same bits") {
  const TemporaryFolder folder;
  island_link::Task task = small_task(folder, {});
  const DitSizes sizes{{1, 8, 8}, 2, 1, 16, 2, 0, 0, 0};
  const auto loss = [](std::uint64_t step) {
    return [step](const Dit& model) {
      const NoisedBatch noised = noised_batch(at::ones({4, 1, 8, 8}, at::kFloat), "uniform", 1, step);
      return at::mse_loss(model.forward(noised.x, noised.t, {}), noised.velocity);
    };
  };
  island_link::Training half = task.training;
  half.precision = "bf16";
  const auto refused = DitLearner::make(sizes, half, 0.9, 1);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().why.find("bf16 needs a GPU") != std::string::npos);
  auto one = *DitLearner::make(sizes, task.training, 0.9, 1);
  double first = 0;
  for (std::uint64_t i = 0; i < 5; ++i) {
    const double here = one.take_step(loss(i))->item<double>();
    first = i == 0 ? here : first;
  }
  const std::string path = (folder.path() / "saved").string();
  REQUIRE(one.save(path));
  auto two = *DitLearner::make(sizes, task.training, 0.9, 2);
  REQUIRE(two.restore(path));
  CHECK(two.step() == 5);
  double last = 0;
  for (std::uint64_t i = 5; i < 40; ++i) {
    last = one.take_step(loss(i))->item<double>();
    CHECK(two.take_step(loss(i))->item<double>() == last);
  }
  CHECK(last < 0.8 * first);
  auto other = *DitLearner::make({{1, 8, 8}, 2, 1, 32, 2, 0, 0, 0}, task.training, 0.9, 1);
  CHECK(other.restore(path).error().code == Code::corrupt);
}

// Where the data set is spread its parts are packed, and clustered by what each part says of itself: the clusters are as good as those of
// the whole.
TEST_CASE("the tasks of a run whose images are spread over islands make an ensemble that knows its clusters, too") {
  const TemporaryFolder folder;
  const std::vector<std::string> images = {"images/0", "images/1"};
  island_link::Task task = small_task(folder, {});
  task.data.parts = 2;
  std::vector<std::vector<std::string>> files;
  for (const std::size_t count : {200, 101}) {
    fs::create_directories(folder.path() / std::to_string(count));
    files.push_back(write_shapes(folder, count, true, std::to_string(count)));
  }
  const std::vector<std::string> material = {"clustering", "images/0", "images/1"};
  for (std::size_t p = 0; p < 2; ++p) {
    task.data.files = files[p];
    CHECK(done(folder, task, images[p], {})["images"] == (p == 0 ? 200 : 101));
  }
  CHECK(fs::file_size(folder.path() / "images-0") < 200 * 8 * 8 + 200 * 4 + 1000);  // bytes stay bytes
  task.data.files.clear();
  for (const std::string p : {"0", "1"}) {
    const nlohmann::json features = done(folder, task, "features/" + p, {"images/" + p});
    CHECK(features["fine_clusters"] == 8);  // half of them
  }
  const nlohmann::json clusters = done(folder, task, "clustering", {"features/0", "features/1"});
  CHECK(clusters["sizes"][0].get<int>() + clusters["sizes"][1].get<int>() == 180 + 91);
  CHECK(clusters["fine_clusters"] == 16);
  const SafetensorsFile file = *SafetensorsFile::open((folder.path() / "clustering").string());
  const std::span<const float> assignment = *file.floats("assignment");
  REQUIRE(assignment.size() == 301);
  std::size_t same = 0;
  for (std::size_t i = 0; i < 301; ++i) {
    same += assignment[i] == assignment[(i < 200 ? i : i - 200) % 2] ? 1 : 0;
  }
  CHECK(same == 301);
  done(folder, task, "experts/0", material);
  done(folder, task, "experts/1", material);
  done(folder, task, "router", material);
  const nlohmann::json measured =
      done(folder, task, "assemble", {"clustering", "images/0", "images/1", "experts/0", "experts/1", "router"});
  CHECK(measured["images"] == 30);
  CHECK(measured["router_accuracy"].get<double>() > 0.7);
  CHECK(measured["top_1"].get<double>() < 1.2);

  // Packed again they are the same file, whichever part they are.
  const std::string before = text_of(folder.path() / "images-0");
  task.data.files = files[0];
  done(folder, task, "images/7", {});
  CHECK(text_of(folder.path() / "images-7") == before);

  // Parts that are no one data set are named.
  task.data.files = write_shapes(folder, 50, false, "200");
  done(folder, task, "images/1", {});
  done(folder, task, "features/1", {"images/1"});
  task.data.files.clear();
  const auto why = [&](const std::vector<std::string>& needs) {
    island_link::Task bad = task;
    bad.task = "clustering";
    for (const std::string& need : needs) {
      std::string name = need;
      std::replace(name.begin(), name.end(), '/', '-');
      bad.inputs.push_back({need, (folder.path() / name).string(), std::string(64, '0'), 1});
    }
    const Result<std::string> refused = perform(bad, kDeaf);
    return refused ? "" : refused.error().why;
  };
  CHECK(why({"features/0", "features/1"}) ==
        "the images of task images/1 have no labels, those of images/0 have some; the islands' images are one data set");
  task.diffusion.clusters_by = "random";
  CHECK(why({"images/0", "images/1"}) ==
        "the images of task images/1 have no labels, those of images/0 have some; the islands' images are one data set");
}

TEST_CASE("features that a file gives travel with the packed images, and clusters are made of them") {
  const TemporaryFolder folder;
  island_link::Task task = small_task(folder, write_shapes(folder, 60));
  task.data.parts = 1;
  // One number for each image: which of four groups it is in.
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (60, 1), }";
  header.append(118 - header.size() - 1, ' ').append("\n");
  std::string npy = std::string("\x93NUMPY\x01\x00", 8) + std::string{118, 0} + header;
  for (int i = 0; i < 60; ++i) {
    const float value = static_cast<float>(i % 4 < 2 ? 0 : 10) + 0.01F * static_cast<float>(i);
    npy.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  std::ofstream(folder.path() / "features.npy", std::ios::binary) << npy;
  task.diffusion.features = "npy:" + (folder.path() / "features.npy").string();
  task.diffusion.fine_clusters = 8;
  done(folder, task, "images/0", {});
  fs::remove(folder.path() / "features.npy");  // only its own island has it
  task.data.files.clear();
  done(folder, task, "features/0", {"images/0"});
  done(folder, task, "clustering", {"features/0"});
  const SafetensorsFile file = *SafetensorsFile::open((folder.path() / "clustering").string());
  const std::span<const float> assignment = *file.floats("assignment");
  for (std::size_t i = 0; i < 60; ++i) {
    CHECK((assignment[i] == assignment[0]) == (i % 4 < 2));
  }
}

TEST_CASE("the tasks of a run make an ensemble that knows its clusters") {
  const TemporaryFolder folder;
  const std::vector<std::string> files = write_shapes(folder, 300);
  const island_link::Task task = small_task(folder, files);
  const nlohmann::json features = done(folder, task, "features", {});
  CHECK(features["images"] == 300);
  const nlohmann::json clusters = done(folder, task, "clustering", {"features"});
  CHECK(clusters["sizes"][0].get<int>() + clusters["sizes"][1].get<int>() == 270);
  done(folder, task, "experts/0", {"clustering"});
  done(folder, task, "experts/1", {"clustering"});
  done(folder, task, "router", {"clustering"});
  const nlohmann::json measured = done(folder, task, "assemble", {"clustering", "experts/0", "experts/1", "router"});
  CHECK(measured["router_accuracy"].get<double>() > 0.7);
  CHECK(measured["top_1"].get<double>() < 1.2);

  // The clusters are the two kinds.
  const SafetensorsFile file = *SafetensorsFile::open((folder.path() / "clustering").string());
  const std::span<const float> assignment = *file.floats("assignment");
  std::size_t same = 0;
  for (std::size_t i = 0; i < 300; ++i) {
    same += assignment[i] == assignment[i % 2] ? 1U : 0U;
  }
  CHECK(assignment[0] != assignment[1]);
  CHECK(same > 290);

  // As a folder it can be sampled; with an expert gone only if that is allowed.
  std::filesystem::create_directories(folder.path() / "ensemble" / "experts");
  std::filesystem::copy_file(folder.path() / "assemble", folder.path() / "ensemble" / "ensemble.json");
  std::filesystem::copy_file(folder.path() / "experts-0", folder.path() / "ensemble" / "experts" / "0.safetensors");
  std::filesystem::copy_file(folder.path() / "router", folder.path() / "ensemble" / "router.safetensors");
  const std::string ensemble = (folder.path() / "ensemble").string();
  CHECK(Ensemble::open(ensemble, false, at::kCPU).error().code == Code::not_found);
  CHECK(Ensemble::open(ensemble, true, at::kCPU).has_value());
  std::filesystem::copy_file(folder.path() / "experts-1", folder.path() / "ensemble" / "experts" / "1.safetensors");
  const Result<Ensemble> whole = Ensemble::open(ensemble, false, at::kCPU);
  REQUIRE(whole);
  CHECK(whole->experts.size() == 2);

  // One dense model learns what the experts know: better than a model of as many steps that knows nothing of them would be by chance.
  island_link::Task with_dense = task;
  with_dense.diffusion.distill_steps = task.training.steps;
  with_dense.diffusion.distill_batch = task.training.batch;
  CHECK(Ensemble::open_dense(ensemble, at::kCPU).error().code == Code::not_found);
  done(folder, with_dense, "distill", {"clustering", "experts/0", "experts/1"});
  const nlohmann::json with = done(folder, with_dense, "assemble", {"clustering", "experts/0", "experts/1", "router", "distill"});
  CHECK(with["dense"].get<double>() < 1.2);
  CHECK(with["top_1"] == measured["top_1"]);
  std::filesystem::copy_file(folder.path() / "assemble", folder.path() / "ensemble" / "ensemble.json",
                             std::filesystem::copy_options::overwrite_existing);
  std::filesystem::copy_file(folder.path() / "distill", folder.path() / "ensemble" / "dense.safetensors");
  const Result<Ensemble> dense = Ensemble::open_dense(ensemble, at::kCPU);
  REQUIRE(dense);
  CHECK(dense->experts.size() == 1);
  CHECK(dense->expert_sizes() == whole->expert_sizes());

  // Experts of another run do not belong.
  island_link::Task other = task;
  other.run = "r-other";
  done(folder, other, "experts/1", {"clustering"});
  std::filesystem::copy_file(folder.path() / "experts-1", folder.path() / "ensemble" / "experts" / "1.safetensors",
                             std::filesystem::copy_options::overwrite_existing);
  CHECK(Ensemble::open(ensemble, false, at::kCPU).error().code == Code::conflict);
}

TEST_CASE("features are those of an array or of a model of one's own, and are refused when they do not fit") {
  const TemporaryFolder folder;
  island_link::Task task = small_task(folder, write_shapes(folder, 40));
  task.task = "features";
  const auto features = [&] { return *SafetensorsFile::open(task.output); };
  const auto why = [&] {
    const Result<std::string> facts = perform(task, kDeaf);
    REQUIRE_FALSE(facts);
    return facts.error().why;
  };
  const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  const auto write_array = [&](const std::string& name, std::size_t count, float third) {
    std::string head = "{'descr': '<f4', 'fortran_order': False, 'shape': (" + std::to_string(count) + ", 2), }";
    head.resize(118, ' ');
    std::ofstream file(folder.path() / name, std::ios::binary);
    file << "\x93NUMPY" << '\1' << '\0' << '\x76' << '\0' << head;
    for (std::size_t i = 0; i < 2 * count; ++i) {
      const float value = i == 2 ? third : static_cast<float>(i);
      file.write(reinterpret_cast<const char*>(&value), sizeof value);
    }
    return "npy:" + (folder.path() / name).string();
  };
  task.diffusion.features = write_array("good.npy", 40, 7.0F);
  REQUIRE(perform(task, kDeaf));
  CHECK((*features().floats("features"))[2] == 7.0F);
  CHECK((*features().floats("features"))[79] == 79.0F);
  task.diffusion.features = write_array("short.npy", 39, 7.0F);
  CHECK(has(why(), "features are floats [40 images, width], and this array of f4 has the shape [39, 2]"));
  task.diffusion.features = write_array("nan.npy", 40, std::nanf(""));
  CHECK(has(why(), "the feature of image 1 is not finite"));

  const auto write_model = [&](const std::string& name, const std::string& body) {
    atl_test::write_script_model((folder.path() / name).string(), body);
    return "torchscript:" + (folder.path() / name).string();
  };
  task.diffusion.features = write_model("mean.pt", "x.flatten(1)[:, :3] * 2.0");
  REQUIRE(perform(task, kDeaf));
  const ImageSet images = *ImageSet::open(task.data.files, "idx");
  std::vector<float> image(64);
  images.read(39, image);
  const SafetensorsFile made = features();
  CHECK(made.header().find("features")->shape == std::vector<std::uint64_t>{40, 3});
  CHECK((*made.floats("features"))[39 * 3 + 2] == 2.0F * image[2]);
  task.diffusion.features = write_model("image.pt", "x");
  CHECK(has(why(), "it gives floats of the shape [40, 1, 8, 8]"));
  task.diffusion.features = write_model("whole.pt", "x.flatten(1).argmax(1, True)");
  CHECK(has(why(), "it gives no floats of the shape [40, 1]"));
  task.diffusion.features = write_model("two.pt", "(x, x)");
  CHECK(has(why(), "it gives a Tuple, not one tensor"));
  task.diffusion.features = write_model("nan.pt", "x.flatten(1) / 0.0 * 0.0");
  CHECK(has(why(), "not finite"));
  task.diffusion.features = "torchscript:" + task.data.files[0];
  CHECK(has(why(), "not a model in TorchScript"));
  task.diffusion.features = "torchscript:" + (folder.path() / "none.pt").string();
  CHECK(has(why(), "none.pt: there is no such file"));
}

TEST_CASE("a task that is continued from a checkpoint ends in the same bytes") {
  const TemporaryFolder folder;
  island_link::Task task = small_task(folder, write_shapes(folder, 200, false));
  task.diffusion.experts = 1;
  task.training.steps = 24;
  task.diffusion.save_every = 10;
  task.task = "clustering";
  task.output = (folder.path() / "clustering").string();
  REQUIRE(perform(task, kDeaf));
  task.task = "experts/0";
  task.inputs = {{"clustering", task.output, std::string(64, '0'), 1}};
  task.output = (folder.path() / "whole").string();
  std::vector<std::string> saved;
  TaskListener listener = kDeaf;
  listener.saved = [&](const island_link::TaskSaved& message) {
    saved.push_back(message.path);
    return Status();
  };
  // What it draws on the way changes nothing that it makes.
  std::vector<std::uint64_t> drew;
  std::set<std::string> pictures;
  listener.drew = [&](const island_link::TaskDrew& message) {
    drew.push_back(message.step);
    std::ifstream file(task.checkpoint + ".png", std::ios::binary);
    pictures.insert(std::string(std::istreambuf_iterator<char>(file), {}));
    const Result<DecodedImage> picture = read_image_file(task.checkpoint + ".png");
    REQUIRE(picture);
    CHECK(picture->shape == ImageShape{1, 2 * 9 + 1, 4 * 9 + 1});
    CHECK(fs::file_size(task.checkpoint + ".png") <= kMaxPictureBytes);
    return Status();
  };
  REQUIRE(perform(task, listener));
  REQUIRE(saved.size() == 2);
  CHECK(drew == std::vector<std::uint64_t>{10, 20, 24});
  CHECK(pictures.size() == 3);
  task.resume = saved[0];
  task.output = (folder.path() / "continued").string();
  REQUIRE(perform(task, kDeaf));
  const auto text = [&](const char* name) {
    std::ifstream file(folder.path() / name, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  CHECK(text("whole") == text("continued"));
}

TEST_CASE("settings that do not fit the data are refused with what to do") {
  const TemporaryFolder folder;
  const std::vector<std::string> files = write_shapes(folder, 60);
  const auto why = [&](island_link::Task task) {
    const Result<std::string> facts = perform(task, kDeaf);
    REQUIRE_FALSE(facts);
    return facts.error().why;
  };
  const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  island_link::Task task = small_task(folder, files);
  task.task = "clustering";
  task.diffusion.clusters_by = "random";
  task.diffusion.experts = 6;
  CHECK(has(why(task), "fewer than training.batch (16)"));
  task.diffusion.experts = 61;
  CHECK(has(why(task), "more than the 60 images"));
  task.diffusion.clusters_by = "labels";
  task.diffusion.experts = 3;
  CHECK(has(why(task), "has 2 classes"));
  task.diffusion.experts = 2;
  REQUIRE(perform(task, kDeaf));
  task.inputs = {{"clustering", task.output, "", 1}};
  task.task = "experts/0";
  task.diffusion.patch = 3;
  CHECK(has(why(task), "choose diffusion.patch"));
  task.task = "clustering";
  CHECK(has(why(task), "choose diffusion.patch"));
  task.diffusion.patch = 2;
  task.diffusion.router_patch = 3;
  CHECK(has(why(task), "choose diffusion.router_patch"));
  task.task = "paint";
  CHECK(has(why(task), "no task 'paint'"));
}
