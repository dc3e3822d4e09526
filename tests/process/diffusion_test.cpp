// Decentralized diffusion with real processes and the built-in trainer: data to ensemble to images, and an island that is killed for good.
#include <algorithm>
#include <fstream>

#include "tests/places.hpp"
#include "tests/process/cluster.hpp"
#include "transport/base/rng.hpp"

using atl_test::Cluster;
using atl_test::CommandResult;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

// Images of two kinds that differ much, 8 × 8, in idx format.
std::string idx_images(std::size_t count, std::uint64_t seed = 11) {
  atl::Rng rng(seed);
  std::string bytes = {0, 0, 8, 3, 0, 0, static_cast<char>(count >> 8), static_cast<char>(count & 255), 0, 0, 0, 8, 0, 0, 0, 8};
  for (std::size_t i = 0; i < count; ++i) {
    const bool dark = i % 2 == 0;
    const std::uint64_t place = rng.below(5);
    for (std::uint64_t y = 0; y < 8; ++y) {
      for (std::uint64_t x = 0; x < 8; ++x) {
        const bool on = dark ? x >= place && x < place + 3 && y >= 2 && y < 5 : y >= place && y < place + 2;
        bytes.push_back(static_cast<char>(on ? 255 : dark ? 0 : 90));
      }
    }
  }
  return bytes;
}

std::string run_file(const std::string& more, const std::string& speed = "") {
  return "[run]\nname = \"shapes\"\n[model]\nlayers = 1\nwidth = 16\nheads = 2\n[data]\nset = \"shapes\"\nformat = "
         "\"idx\"\nvalidation_fraction = 0.1\n"
         "[training]\nsteps = 60\nbatch = 8\nlearning_rate = 3e-3\ndevice = \"cpu\"\nevaluate_batches = 2\n" +
         speed +
         "[strategy]\nname = \"decentralized-diffusion\"\n[diffusion]\nfine_clusters = 32\nfeature_width = 8\nrouter_layers = "
         "1\nrouter_width = 16\nrouter_heads = 2\n"
         "router_steps = 40\nrouter_batch = 8\nema = 0.9\n" +
         more + "[islands]\nmin = 1\nmax = 3\ndeadline = \"5m\"\n";
}

void start_island(Cluster& cluster, const std::string& name) {
  const fs::path data = cluster.folder() / "shapes.idx";
  if (!fs::exists(data)) {
    std::ofstream(data, std::ios::binary) << idx_images(240);
  }
  cluster.start_island(name, {{"ATOLL_TRAINER_MODULE", atl_test::built_in_trainer()}}, {"--data", "shapes=" + data.string()});
}

// One that has images of its own, or none.
void start_island_with(Cluster& cluster, const std::string& name, std::size_t images) {
  std::vector<std::string> options;
  if (images > 0) {
    const fs::path data = cluster.folder() / (name + ".idx");
    std::ofstream(data, std::ios::binary) << idx_images(images, images);
    options = {"--data", "shapes=" + data.string()};
  }
  cluster.start_island(name, {{"ATOLL_TRAINER_MODULE", atl_test::built_in_trainer()}}, options);
}

const json* task_of(const json& status, const std::string& name) {
  if (!status.is_object() || !status.contains("phases")) {
    return nullptr;
  }
  for (const json& phase : status["phases"]) {
    for (const json& task : phase["tasks"]) {
      if (task["task"] == name) {
        return &task;
      }
    }
  }
  return nullptr;
}

bool is_png(const fs::path& path) { return atl_test::text_of(path).substr(1, 3) == "PNG"; }

// More experts than islands; everything that a run of phases leaves, and the images.
TEST_CASE("diffusion: three experts queue on two islands, and the ensemble is sampled by run and by folder") {
  Cluster cluster;
  start_island(cluster, "a");
  start_island(cluster, "b");
  // Slow enough for the islands to report what they received before the run is over: what they say afterwards nobody takes.
  const std::string run =
      cluster.submit(run_file("experts = 3\nsave_every = 0\ndistill_steps = 20\ndistill_batch = 8\n", "max_steps_per_second = 20\n"));
  const auto received = [&] {
    std::uint64_t bytes = 0;
    const json status = cluster.status(run);
    for (const json& island : status.is_object() && status.contains("islands") ? status["islands"] : json::array()) {
      bytes += island["bytes_received"].is_number() ? island["bytes_received"].get<std::uint64_t>() : 0;
    }
    return bytes;
  };
  CHECK(Cluster::eventually([&] { return received() > 0; }, std::chrono::seconds(100)));
  const CommandResult waited = cluster.run({"wait", run, "--timeout", "100s"});
  INFO(waited.err);
  INFO(cluster.logs());
  REQUIRE(waited.exit == 0);
  const json status = cluster.status(run);
  std::vector<std::string> phases;
  for (const json& phase : status["phases"]) {
    phases.push_back(phase["name"]);
    CHECK(phase["state"] == "done");
  }
  CHECK(phases == std::vector<std::string>{"features", "clustering", "experts", "router", "distillation", "assemble"});
  std::uint64_t result_bytes = 0;
  for (const char* name : {"features", "clustering", "experts/0", "experts/1", "experts/2", "router", "distill", "assemble"}) {
    const json* task = task_of(status, name);
    REQUIRE(task != nullptr);
    result_bytes += (*task)["result_bytes"].get<std::uint64_t>();
    CHECK((*task)["starts"] == 1);
    CHECK((*task)["result_sha256"].get<std::string>().size() == 64);
  }
  const std::string told = cluster.run({"status", run}).out;
  INFO(told);
  CHECK(told.find(" images by features (32 fine clusters, inertia ") != std::string::npos);
  // Between two islands every result goes over at most once, and nothing else does: no parameter, no gradient while experts are trained.
  CHECK(received() <= result_bytes);
  const json facts = (*task_of(status, "assemble"))["facts"];
  CHECK(facts["router_accuracy"].get<double>() > 0.4);
  CHECK(facts["experts"].size() == 3);
  CHECK(facts["dense"].get<double>() > 0);

  // Whose data are the clusters: every image that is trained on is of one expert.
  const CommandResult asked = cluster.run({"data", run, "--json"});
  INFO(asked.out << asked.err);
  REQUIRE(asked.exit == 0);
  const json data = json::parse(asked.out);
  CHECK(data["counted_in"] == "images");
  REQUIRE(data["parts"].size() == 3);
  std::uint64_t images = 0;
  for (const json& part : data["parts"]) {
    CHECK(part["position"] == 60 * 8);
    CHECK(part["committed"] == 60 * 8);
    CHECK((part["owner"] == "a" || part["owner"] == "b"));
    images += part["pass_sequences"].get<std::uint64_t>();
  }
  CHECK(images == 240 - 24);  // a tenth is held out
  CHECK(cluster.run({"data", run}).out.find("the cluster of one expert") != std::string::npos);

  // The ledger has all of it: another coordinator shows the same, and knows what is to be fetched.
  cluster.coordinator.signal(SIGKILL);
  CHECK(cluster.coordinator.wait() == 128 + SIGKILL);
  cluster.start_coordinator();
  REQUIRE(Cluster::eventually([&] {
    const json islands = json::parse(cluster.run({"islands", "--json"}).out, nullptr, false);
    return islands.is_object() && std::ranges::count_if(islands["islands"], [](const json& one) { return one["connected"] == true; }) == 2;
  }));
  const json after = cluster.status(run);
  for (const char* figure : {"state", "round", "rounds", "tokens_committed", "reason"}) {
    INFO(figure);
    CHECK(after["run"][figure] == status["run"][figure]);
  }
  CHECK(after["run"]["bytes_sent"].get<std::uint64_t>() > 0);
  REQUIRE(after["phases"].size() == status["phases"].size());
  for (const json& phase : status["phases"]) {
    for (const json& task : phase["tasks"]) {
      const json* same = task_of(after, task["task"]);
      REQUIRE(same != nullptr);
      for (const char* figure : {"state", "island", "result_sha256", "result_bytes", "facts", "starts"}) {
        INFO(task["task"] << " " << figure);
        CHECK((*same)[figure] == task[figure]);
      }
    }
  }
  CHECK(json::parse(cluster.run({"data", run, "--json"}).out)["parts"] == data["parts"]);

  const fs::path png = cluster.folder() / "run.png";
  const CommandResult by_run = cluster.run({"sample", run, "--count", "4", "--steps", "3", "-o", png.string()});
  INFO(by_run.err);
  REQUIRE(by_run.exit == 0);
  CHECK(is_png(png));

  const fs::path folder = cluster.folder() / "ensemble";
  REQUIRE(cluster.run({"export", run, "-o", folder.string()}).exit == 0);
  const auto sample = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments = {
        "sample", folder.string(), "--count", "4", "--steps", "3", "-o", (cluster.folder() / "folder.png").string()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return cluster.run(arguments);
  };
  REQUIRE(sample({}).exit == 0);
  // The same seed gives the same images, wherever the ensemble lies.
  CHECK(atl_test::text_of(png) == atl_test::text_of(cluster.folder() / "folder.png"));
  for (const char* rule : {"full", "top-2", "threshold:0.3", "nucleus:0.9"}) {
    CHECK(sample({"--router", rule, "--solver", "heun"}).exit == 0);
  }
  CHECK(sample({"--router", "best"}).exit == 2);
  CHECK(sample({"--class", "1"}).exit == 2);
  CHECK(sample({"--dense"}).exit == 0);
  CHECK(sample({"--dense", "--router", "full"}).exit == 2);

  // A missing expert is named; without it only if that is said; an altered one never.
  fs::remove(folder / "experts" / "1.safetensors");
  const CommandResult missing = sample({});
  CHECK(missing.exit == 4);
  CHECK(missing.err.find("experts/1.safetensors: this expert is missing") != std::string::npos);
  CHECK(sample({"--allow-missing"}).exit == 0);
  {
    std::fstream file(folder / "experts" / "2.safetensors", std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(-1, std::ios::end);
    file.put('x');
  }
  const CommandResult altered = sample({"--allow-missing"});
  CHECK(altered.exit == 1);
  CHECK(altered.err.find("experts/2.safetensors: altered") != std::string::npos);
}

// Figure 5: kill -9 of an expert's island in the middle, for good.
TEST_CASE("diffusion: an island that is killed for good costs at most the steps since the last copy") {
  Cluster cluster;
  start_island(cluster, "a");
  start_island(cluster, "b");
  const std::string run = cluster.submit(run_file("experts = 2\nsave_every = 10\n", "max_steps_per_second = 6\n"));
  // An expert whose copy is on the other island.
  std::string victim;
  std::string expert;
  std::uint64_t copied = 0;
  INFO(cluster.logs());
  REQUIRE(Cluster::eventually(
      [&] {
        const json status = cluster.status(run);
        for (const char* name : {"experts/0", "experts/1"}) {
          const json* task = task_of(status, name);
          if (task != nullptr && (*task)["state"] == "running" && (*task)["checkpoint_step"].get<std::uint64_t>() >= 10 &&
              (*task)["copies"] == 2) {
            victim = (*task)["island"];
            expert = name;
            copied = (*task)["checkpoint_step"];
            return true;
          }
        }
        return false;
      },
      std::chrono::seconds(100)));
  cluster.islands.at(victim).signal(SIGKILL);
  cluster.islands.at(victim).wait();
  const CommandResult waited = cluster.run({"wait", run, "--timeout", "110s"});
  INFO(waited.err);
  REQUIRE(waited.exit == 0);
  const json status = cluster.status(run);
  const json* task = task_of(status, expert);
  REQUIRE(task != nullptr);
  CHECK((*task)["starts"] == 2);
  CHECK((*task)["island"] != victim);
  bool continued = false;
  for (const json& event : cluster.events(run)) {
    const std::string text = event["text"];
    const std::string begin = "task " + expert + " starts on ";
    if (event["kind"] == "task_started" && text.starts_with(begin) && text.find(" from step ") != std::string::npos) {
      continued = std::stoull(text.substr(text.rfind(' ') + 1)) >= copied;
    }
  }
  CHECK(continued);
  for (const char* name : {"experts/0", "experts/1"}) {
    CHECK((*task_of(status, name))["state"] == "done");
  }
}

// One model of all images, as other strategies train a language model.
TEST_CASE("diffusion: three islands train one model of images in rounds, one of them is killed, and the model draws") {
  for (const std::string strategy : {"name = \"diloco\"\n", "name = \"streaming-diloco\"\nfragments = 1\ncodec = \"bf16\"\n"}) {
    INFO(strategy);
    Cluster cluster;
    for (const char* name : {"a", "b", "c"}) {
      start_island(cluster, name);
    }
    const std::string run = cluster.submit(
        "[run]\nname = \"shapes\"\n[model]\nlayers = 1\nwidth = 16\nheads = 2\n[data]\nset = \"shapes\"\nformat = "
        "\"idx\"\nvalidation_fraction = 0.1\n"
        "[training]\nsteps = 120\nbatch = 8\nlearning_rate = 1e-2\ndevice = \"cpu\"\nevaluate_batches = 2\nmax_steps_per_second = "
        "20\n[strategy]\ninner_steps = 10\n"
        "outer_learning_rate = 1.0\nouter_momentum = 0.3\n" +
        strategy + "[islands]\nmin = 3\nmax = 3\ndeadline = \"5m\"\n[checkpoint]\nevery_rounds = 2\n");
    INFO(cluster.logs());
    REQUIRE(Cluster::eventually([&] { return cluster.round_of(run) >= 3; }, std::chrono::seconds(100)));
    cluster.islands.at("b").signal(SIGKILL);
    cluster.islands.at("b").wait();
    start_island(cluster, "b");
    const CommandResult waited = cluster.run({"wait", run, "--timeout", "110s"});
    INFO(waited.err);
    REQUIRE(waited.exit == 0);
    const json status = cluster.status(run);
    CHECK(status["run"]["images"] == true);
    CHECK(status["run"]["outer_loss"].get<double>() < 0.8 * status["run"]["initial_loss"].get<double>());
    CHECK(status["run"]["bytes_sent"].get<std::uint64_t>() > 0);
    CHECK(cluster.run({"status", run}).out.find("squared error of the flow") != std::string::npos);
    const json data = json::parse(cluster.run({"data", run, "--json"}).out);
    CHECK(data["proof"]["holds"] == true);
    CHECK(data["proof"]["committed_tokens"] == data["proof"]["committed"]);  // an image counts as one
    for (const json& part : data["parts"]) {
      CHECK(part["pass_sequences"] == 216);  // a pass is over all images, on three islands
    }

    const fs::path model = cluster.folder() / "model.safetensors";
    const CommandResult exported = cluster.run({"export", run, "-o", model.string()});
    INFO(exported.err);
    REQUIRE(exported.exit == 0);
    CHECK(exported.err.find("try: atoll sample ") != std::string::npos);
    const fs::path png = cluster.folder() / "model.png";
    const auto sample = [&](std::vector<std::string> more) {
      std::vector<std::string> arguments = {"sample", "--count", "4", "--steps", "3", "-o", png.string()};
      arguments.insert(arguments.end(), more.begin(), more.end());
      return cluster.run(arguments);
    };
    REQUIRE(sample({model.string()}).exit == 0);
    const std::string drawn = atl_test::text_of(png);
    CHECK(is_png(png));
    REQUIRE(sample({run}).exit == 0);
    CHECK(atl_test::text_of(png) == drawn);
    CHECK(sample({model.string(), "--router", "full"}).exit == 2);
    CHECK(sample({(cluster.folder() / "shapes.idx").string()}).err.find("not a model that images are drawn from") != std::string::npos);
  }
}

// More islands than experts: an expert is trained by several of them in rounds.
TEST_CASE("diffusion: three islands train one expert together, the one that speaks for it is killed for good, and the ensemble is whole") {
  for (const std::string strategy :
       {"", "grouping = \"strided\"\nfragments = 1\noverlap_steps = 2\nmerge_alpha = 0.5\ncodec = \"bf16\"\n"}) {
    INFO(strategy);
    Cluster cluster;
    for (const char* name : {"a", "b", "c"}) {
      start_island(cluster, name);
    }
    std::string file = run_file("experts = 1\n", "max_steps_per_second = 15\n");
    file.replace(file.find("steps = 60"), 10, "steps = 150");
    file.replace(file.find("[strategy]\n"), 11,
                 "[strategy]\ninner_steps = 15\nouter_learning_rate = 1.0\nouter_momentum = 0.3\n" + strategy);
    const std::string run = cluster.submit(file);
    INFO(cluster.logs());
    json group;
    std::string owner;
    REQUIRE(Cluster::eventually(
        [&] {
          const json status = cluster.status(run);
          const json* task = task_of(status, "experts/0");
          if (task == nullptr || !(*task)["group"].is_object() || (*task)["group"]["round"].get<std::uint64_t>() < 2) {
            return false;
          }
          group = (*task)["group"];
          owner = (*task)["island"];
          return true;
        },
        std::chrono::seconds(100)));
    CHECK(group["islands"].size() == 3);
    CHECK(group["name"] == "shapes.experts-0");
    // Who trains what with whom, for people; and the rounds are those of any run.
    CHECK(cluster.run({"status", run}).out.find(" (round ") != std::string::npos);
    CHECK(cluster.status(run)["run"]["reason"].get<std::string>().find("experts/0 on ") != std::string::npos);
    const json rounds = cluster.status(group["name"]);
    CHECK(rounds["run"]["part_of"] == run);
    CHECK(rounds["run"]["members"] == 3);
    CHECK(rounds["run"]["initial_loss"].is_number());
    const CommandResult refused = cluster.run({"pause", group["name"]});
    CHECK(refused.exit == 8);
    CHECK(refused.err.find("is part of run shapes; try: atoll pause shapes") != std::string::npos);

    cluster.islands.at(owner).signal(SIGKILL);
    cluster.islands.at(owner).wait();
    const CommandResult waited = cluster.run({"wait", run, "--timeout", "110s"});
    INFO(waited.err);
    REQUIRE(waited.exit == 0);
    const json status = cluster.status(run);
    const json* task = task_of(status, "experts/0");
    REQUIRE(task != nullptr);
    CHECK((*task)["starts"] == 1);
    CHECK((*task)["island"] != owner);
    CHECK((*task)["group"]["round"] == (*task)["group"]["rounds"]);
    CHECK((*task)["group"]["run"] == group["run"]);
    const json trained = cluster.status(group["name"]);
    CHECK(trained["run"]["state"] == "completed");
    CHECK(trained["run"]["outer_loss"].get<double>() < trained["run"]["initial_loss"].get<double>());
    // What the group exchanged counts for the run that it did it for.
    CHECK(trained["run"]["bytes_sent"].get<std::uint64_t>() > 0);
    CHECK(status["run"]["bytes_sent"].get<std::uint64_t>() >= trained["run"]["bytes_sent"].get<std::uint64_t>() / 2);
    const json data = json::parse(cluster.run({"data", group["name"], "--json"}).out);
    CHECK(data["proof"]["holds"] == true);
    CHECK(data["parts"].size() == 3);
    const fs::path png = cluster.folder() / "group.png";
    const CommandResult sampled = cluster.run({"sample", run, "--count", "4", "--steps", "3", "-o", png.string()});
    INFO(sampled.err);
    REQUIRE(sampled.exit == 0);
    CHECK(is_png(png));
  }
}

// The data set lies on two islands, a part on each; a third has none. Nobody has all of it before it is fetched, and who packed it may go
// then.
TEST_CASE("diffusion: images that are spread over two islands train experts on three, and outlive an island that had them") {
  Cluster cluster;
  start_island_with(cluster, "a", 200);
  start_island_with(cluster, "b", 120);
  start_island_with(cluster, "c", 0);
  std::string file = run_file("experts = 2\nsave_every = 10\n", "max_steps_per_second = 8\n");
  file.replace(file.find("[training]"), 0, "spread = 2\n");
  file.replace(file.find("min = 1"), 7, "min = 3");
  const std::string run = cluster.submit(file);
  INFO(cluster.logs());
  std::string packer;
  REQUIRE(Cluster::eventually(
      [&] {
        const json status = cluster.status(run);
        const json* task = task_of(status, "images/0");
        const json* expert = task_of(status, "experts/0");
        packer = task != nullptr && (*task)["state"] == "done" && (*task)["copies"] >= 2 ? (*task)["island"] : json("");
        return !packer.empty() && expert != nullptr && (*expert)["state"] == "running" && (*expert)["step"].get<std::uint64_t>() > 0;
      },
      std::chrono::seconds(100)));
  CHECK(packer != "c");
  const json before = cluster.status(run);
  for (const char* name : {"images/0", "images/1"}) {
    const json* task = task_of(before, name);
    CHECK((*task)["facts"]["images"] == ((*task)["island"] == "a" ? 200 : 120));
  }
  CHECK((*task_of(before, "features/0"))["island"] == packer);
  cluster.islands.at(packer).signal(SIGKILL);
  cluster.islands.at(packer).wait();
  cluster.start_island("d", {{"ATOLL_TRAINER_MODULE", atl_test::built_in_trainer()}});  // another that has none
  const CommandResult waited = cluster.run({"wait", run, "--timeout", "110s"});
  INFO(waited.err);
  REQUIRE(waited.exit == 0);
  const json status = cluster.status(run);
  const json facts = (*task_of(status, "assemble"))["facts"];
  CHECK(facts["images"] == 16);  // of the 32 that are held out: two batches
  std::uint64_t images = 0;
  for (const json& size : (*task_of(status, "clustering"))["facts"]["sizes"]) {
    images += size.get<std::uint64_t>();
  }
  CHECK(images == 180 + 108);
  CHECK((*task_of(status, "images/0"))["starts"] == 1);
  const fs::path png = cluster.folder() / "spread.png";
  const CommandResult sampled = cluster.run({"sample", run, "--count", "4", "--steps", "3", "-o", png.string()});
  INFO(sampled.err);
  REQUIRE(sampled.exit == 0);
  CHECK(is_png(png));
}

TEST_CASE("diffusion: images that one island has train an expert in a group of three, and islands with the same images are told") {
  Cluster cluster;
  start_island_with(cluster, "a", 0);
  start_island_with(cluster, "b", 240);
  start_island_with(cluster, "c", 0);
  std::string file = run_file("experts = 1\n");
  file.replace(file.find("[training]"), 0, "spread = 1\n");
  file.replace(file.find("min = 1"), 7, "min = 3");
  file.replace(file.find("[diffusion]"), 0, "inner_steps = 10\n");
  const std::string run = cluster.submit(file);
  INFO(cluster.logs());
  const CommandResult waited = cluster.run({"wait", run, "--timeout", "100s"});
  INFO(waited.err);
  REQUIRE(waited.exit == 0);
  const json status = cluster.status(run);
  CHECK((*task_of(status, "images/0"))["island"] == "b");
  REQUIRE((*task_of(status, "experts/0"))["group"].is_object());
  CHECK(cluster.status((*task_of(status, "experts/0"))["group"]["name"])["islands"].size() == 3);
  const fs::path png = cluster.folder() / "group.png";
  CHECK(cluster.run({"sample", run, "--count", "4", "--steps", "3", "-o", png.string()}).exit == 0);

  // The second has the first's images.
  cluster.islands.at("c").signal(SIGTERM);
  cluster.islands.at("c").wait();
  fs::copy_file(cluster.folder() / "b.idx", cluster.folder() / "e.idx");
  cluster.start_island("e", {{"ATOLL_TRAINER_MODULE", atl_test::built_in_trainer()}},
                       {"--data", "shapes=" + (cluster.folder() / "e.idx").string()});
  file.replace(file.find("spread = 1"), 10, "spread = 2");
  const std::string twice = cluster.submit(file);
  CHECK(cluster.run({"wait", twice, "--timeout", "60s"}).exit == 1);
  CHECK(cluster.status(twice)["run"]["reason"].get<std::string>().find(
            "have the same images; with data.spread = 2 each of so many islands has images of its own") != std::string::npos);
}

TEST_CASE("diffusion: a restarted coordinator goes on with the tasks, and data that do not fit end the run with the reason") {
  Cluster cluster;
  start_island(cluster, "a");
  const std::string run = cluster.submit(run_file("experts = 1\n", "max_steps_per_second = 20\n"));
  INFO(cluster.logs());
  REQUIRE(Cluster::eventually(
      [&] {
        const json status = cluster.status(run);
        const json* task = task_of(status, "experts/0");
        return task != nullptr && (*task)["state"] == "running" && (*task)["step"].get<std::uint64_t>() > 0;
      },
      std::chrono::seconds(100)));
  cluster.coordinator.signal(SIGKILL);
  cluster.coordinator.wait();
  cluster.start_coordinator();
  REQUIRE(Cluster::eventually([&] { return cluster.run({"wait", run, "--timeout", "100s"}).exit == 0; }, std::chrono::seconds(100)));
  CHECK((*task_of(cluster.status(run), "experts/0"))["starts"] == 1);
  CHECK((*task_of(cluster.status(run), "clustering"))["starts"] == 1);

  const std::string bad = cluster.submit(run_file("experts = 32\n"));
  CHECK(cluster.run({"wait", bad, "--timeout", "100s"}).exit == 1);
  const std::string reason = cluster.status(bad)["run"]["reason"];
  CHECK(reason.find("task clustering failed on island a: cluster ") != std::string::npos);
  CHECK(reason.find("choose fewer experts") != std::string::npos);
}

}  // namespace
