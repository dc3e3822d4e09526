// The built-in trainer as a process, seen from the agent's end of the island link.
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "tests/skip.hpp"
#include "tests/trainer/trainer_process.hpp"

using namespace atl;

TEST_CASE("a trainer says who it is, declares its parameters, and begins the same for the same seed") {
  const Folder folder;
  const Configure configure = small_run(folder.write_text(20'000));
  TrainerProcess one(folder.path);
  const Ready ready = one.open(configure, 3);
  CHECK(one.hello.protocol == kProtocol);
  CHECK(one.hello.pid == static_cast<std::uint64_t>(one.pid()));
  CHECK(one.hello.ranks == 1);
  CHECK(check_manifest(one.manifest).ok());
  CHECK(one.manifest.parameters.front().block == -1);
  CHECK(one.manifest.parameters.back().block == 2);
  CHECK(elements(one.manifest.parameters) == 2 * 256 * 32 + 2 * (4 * 32 * 32 + 3 * 64 * 32 + 2 * 32) + 32);
  CHECK(ready == Ready{0, 0, 1123 * 16});
  TrainerProcess two(folder.path);
  two.open(configure, 3);
  CHECK(one.parameters() == two.parameters());
  Configure other = configure;
  other.seed = 8;
  TrainerProcess three(folder.path);
  three.open(other, 3);
  CHECK(one.parameters() != three.parameters());
  one.send(Stop{"done"});
  CHECK(one.exit_status() == 0);
}

TEST_CASE("a trainer says what it computes with") {
  const Folder folder;
  TrainerProcess trainer(folder.path);
  const std::string said = trainer.expect<Hello>().kernels.value_or("");
  CHECK(said.find("LibTorch ") == 0);
  CHECK(said.find("), ") != std::string::npos);
}

TEST_CASE("twenty steps equal ten steps, a save, a new process and ten more, bit for bit") {
  const Folder folder;
  for (const bool tied : {false, true}) {
    Configure configure = small_run(folder.write_text(20'000));
    configure.model.tied_embeddings = tied;
    configure.training.accumulation = 2;
    configure.training.threads = tied ? 2 : 1;
    const std::string state = folder.path + "/state" + (tied ? "-tied" : "");

    TrainerProcess straight(folder.path);
    straight.open(configure, 2);
    const Published all = straight.train_until(20);

    TrainerProcess first(folder.path);
    first.open(configure, 2);
    first.send(Plan{10, {}, {}});
    while (true) {  // saving is between two steps: ask until it is the tenth
      first.send(Save{state});
      const Saved saved = first.expect<Saved>();
      CHECK_FALSE(saved.error.has_value());
      if (saved.step == 10) {
        CHECK(saved.position == 40);
        break;
      }
    }
    first.send(Stop{"moving house"});
    CHECK(first.exit_status() == 0);

    configure.resume = Resume{state, 10, 40};
    TrainerProcess second(folder.path);
    CHECK(second.open(configure, 2).step == 10);
    const Published rest = second.train_until(20);
    CHECK(second.parameters() == straight.parameters());
    CHECK(rest == [&] {
      Published same = all;
      same.compute_seconds = rest.compute_seconds;
      return same;
    }());
    CHECK(rest.steps == 20);
    CHECK(rest.tokens == 20 * 4 * 16);
    CHECK(rest.position == 80);
  }
}

TEST_CASE("a saved state that is missing, broken, or of another step or model is refused with the reason") {
  const Folder folder;
  Configure configure = small_run(folder.write_text(20'000));
  const std::string state = folder.path + "/state";
  {
    TrainerProcess trainer(folder.path);
    trainer.open(configure);
    trainer.train_until(3);
    trainer.send(Save{state});
    CHECK_FALSE(trainer.expect<Saved>().error.has_value());
    trainer.send(Save{folder.path + "/no/parent"});
    const Saved refused = trainer.expect<Saved>();
    REQUIRE(refused.error.has_value());
    CHECK(refused.error->find("No such file or directory") != std::string::npos);
  }
  const auto failure = [&](const Configure& with) {
    TrainerProcess trainer(folder.path);
    trainer.expect<Hello>();
    trainer.send(with);
    trainer.manifest = trainer.expect<Manifest>();
    trainer.layout = lay_out(trainer.manifest, {[&] {
                               std::vector<std::uint32_t> all;
                               for (std::uint32_t i = 0; i < trainer.manifest.parameters.size(); ++i) {
                                 all.push_back(i);
                               }
                               return all;
                             }()})
                         .value();
    trainer.layout.path = folder.path + "/arena";
    trainer.arena.emplace(Arena::create(trainer.layout.path, trainer.layout.bytes).value());
    trainer.send(trainer.layout);
    const std::string why = trainer.expect<Failed>().why;
    CHECK(trainer.exit_status() == 1);
    CHECK(trainer.log().find(why) != std::string::npos);
    return why;
  };
  configure.resume = Resume{folder.path + "/none", 3, 12};
  CHECK(failure(configure).find("cannot resume from " + folder.path + "/none/trainer.safetensors") != std::string::npos);
  configure.resume = Resume{state, 4, 16};
  CHECK(failure(configure).find("it was saved at step 3, position 12, not at step 4, position 16") != std::string::npos);
  configure.resume = Resume{state, 3, 12};
  Configure larger = configure;
  larger.model.width = 64;
  CHECK(failure(larger).find("it is of another model") != std::string::npos);

  const std::string file = state + "/trainer.safetensors";
  const auto size = std::filesystem::file_size(file);
  {
    std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekg(static_cast<std::streamoff>(size - 1000));
    const int byte = bytes.get();
    bytes.seekp(static_cast<std::streamoff>(size - 1000));
    bytes.put(static_cast<char>(byte ^ 1));
  }
  CHECK(failure(configure).find("its checksums do not fit its contents") != std::string::npos);
  std::filesystem::resize_file(file, size / 2);
  CHECK(failure(configure).find("cannot resume from") != std::string::npos);
}

TEST_CASE("a full disk while saving is reported, leaves the older state, and training goes on") {
  const Folder folder;
  const Configure configure = small_run(folder.write_text(20'000));
  const std::string state = folder.path + "/state";
  TrainerProcess trainer(folder.path);
  trainer.open(configure);
  trainer.train_until(2);
  trainer.send(Save{state});
  CHECK_FALSE(trainer.expect<Saved>().error.has_value());
  // A limit on file size stands for the full disk.
  const rlimit limit{4096, 4096};
  REQUIRE(::prlimit(trainer.pid(), RLIMIT_FSIZE, &limit, nullptr) == 0);
  trainer.train_until(4);
  trainer.send(Save{state});
  const Saved saved = trainer.expect<Saved>();
  REQUIRE(saved.error.has_value());
  CHECK(saved.error->find("cannot write " + state + ".writing/trainer.safetensors.new: File too large") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(state + ".writing"));
  CHECK_FALSE(std::filesystem::exists(state + "/trainer.safetensors.new"));
  trainer.send(Plan{6, {{1, 0, 6, false}}, {{1, 0, 6, 0.0, false, false, state}}});
  CHECK(trainer.expect<Published>().step == 6);
  trainer.send(RoundResult{1, 0, false});
  const Merged merged = trainer.expect<Merged>();
  CHECK_FALSE(merged.saved);
  CHECK(merged.save_error.has_value());
  Configure again = configure;
  again.resume = Resume{state, 2, 8};
  TrainerProcess next(folder.path);
  CHECK(next.open(again).step == 2);
}

TEST_CASE("a merge takes alpha of its own and the rest of the arena's parameters") {
  const Folder folder;
  const Configure configure = small_run(folder.write_text(20'000));
  for (const double alpha : {0.0, 0.25, 1.0}) {
    TrainerProcess trainer(folder.path);
    trainer.open(configure, 2);
    trainer.send(Plan{5, {{1, 1, 5, false}}, {{1, 1, 5, alpha, true, false, std::nullopt}}});
    const Published published = trainer.expect<Published>();
    CHECK(published.round == 1);
    CHECK(published.fragment == 1);
    CHECK(published.step == 5);
    CHECK(published.steps == 5);
    REQUIRE(published.loss.has_value());
    CHECK(*published.loss == Approx(std::log(256.0)).margin(1.5));
    CHECK(published.norm.has_value());
    CHECK_FALSE(published.nonfinite);
    const std::vector<float> local = trainer.fragment(1);
    std::vector<float> global(local.size());
    for (std::size_t i = 0; i < global.size(); ++i) {
      global[i] = static_cast<float>(i % 7) * 0.01F;
    }
    std::copy(global.begin(), global.end(), trainer.arena->range(trainer.layout.fragments[1]).begin());
    trainer.send(RoundResult{1, 1, true});
    const Merged merged = trainer.expect<Merged>();
    CHECK(merged.step == 5);
    CHECK(merged.position == 20);
    CHECK(merged.validation_loss.has_value());
    const auto after = trainer.parameters()[1];
    bool as_said = true;
    for (std::size_t i = 0; i < after.size(); ++i) {
      const double wanted = alpha == 0.0 ? global[i] : alpha * local[i] + (1.0 - alpha) * global[i];
      as_said = as_said && (alpha == 0.0 ? after[i] == global[i] : std::abs(after[i] - wanted) < 1e-6);
    }
    CHECK(as_said);
  }
}

TEST_CASE("a round without a result leaves the parameters alone") {
  const Folder folder;
  TrainerProcess trainer(folder.path);
  trainer.open(small_run(folder.write_text(20'000)));
  trainer.send(Plan{3, {{1, 0, 3, true}}, {{1, 0, 3, 0.0, false, false, std::nullopt}}});
  CHECK(trainer.expect<Published>().local_validation_loss.has_value());
  const std::vector<float> local = trainer.fragment();
  std::ranges::fill(trainer.arena->floats(), 0.0F);
  trainer.send(RoundResult{1, 0, false});
  CHECK_FALSE(trainer.expect<Merged>().validation_loss.has_value());
  CHECK(trainer.parameters()[0] == local);
}

TEST_CASE("with overlap a trainer goes on stepping between publish and merge") {
  const Folder folder;
  TrainerProcess trainer(folder.path);
  trainer.open(small_run(folder.write_text(20'000)));
  trainer.send(Plan{10, {{1, 0, 4, false}, {2, 0, 10, false}}, {{1, 0, 7, 0.5, false, false, std::nullopt}}});
  CHECK(trainer.expect<Published>().step == 4);
  // The result is not there: it waits at step 7, not before, and answers meanwhile.
  trainer.send(Evaluate{});
  trainer.expect<Evaluated>();
  trainer.send(RoundResult{1, 0, true});
  CHECK(trainer.expect<Merged>().step == 7);
  const Published second = trainer.expect<Published>();
  CHECK(second.step == 10);
  CHECK(second.steps == 6);
  CHECK(second.round == 2);
}

TEST_CASE("rounds beside the steps, of several fragments, give what they give when each step is waited for") {
  constexpr std::uint64_t kSteps = 60;
  constexpr std::uint64_t kOverlap = 4;
  const Folder folder;
  const Configure configure = small_run(folder.write_text(20'000));
  const auto result_of = [](TrainerProcess& trainer, const Published& round) {
    const std::span<float> values = trainer.arena->range(trainer.layout.fragments[round.fragment]);
    std::vector<float> published(values.begin(), values.end());
    std::ranges::transform(values, values.begin(), [](float value) { return 0.5F * value; });
    trainer.send(RoundResult{round.round, round.fragment, true});
    return published;
  };
  Plan plan{kSteps, {}, {}};
  for (std::uint64_t round = 1; 2 * round + kOverlap <= kSteps; ++round) {
    const auto fragment = static_cast<std::uint32_t>(round % 3);
    plan.publish.push_back({round, fragment, 2 * round, false});
    plan.merge.push_back({round, fragment, 2 * round + kOverlap, 0.5, false, false, std::nullopt});
  }
  // All at once: whatever the trainer may do beside its steps it does.
  TrainerProcess ahead(folder.path);
  ahead.open(configure, 3);
  ahead.send(plan);
  std::vector<std::vector<float>> published;
  for (std::size_t merged = 0; merged < plan.merge.size();) {
    const std::variant<Published, Merged> said = ahead.expect_any<Published, Merged>();
    if (const auto* round = std::get_if<Published>(&said)) {
      published.push_back(result_of(ahead, *round));
    } else {
      ++merged;
    }
  }
  // Step by step.
  TrainerProcess waiting(folder.path);
  waiting.open(configure, 3);
  std::vector<std::vector<float>> expected;
  for (std::uint64_t step = 1; step <= kSteps; ++step) {
    Plan next{step, {}, {}};
    std::ranges::copy_if(plan.publish, std::back_inserter(next.publish), [&](const PublishOrder& order) { return order.step == step; });
    std::ranges::copy_if(plan.merge, std::back_inserter(next.merge), [&](const MergeOrder& order) { return order.step == step; });
    waiting.send(next);
    for (std::size_t i = 0; i < next.publish.size(); ++i) {
      expected.push_back(result_of(waiting, waiting.expect<Published>()));
    }
    for (std::size_t i = 0; i < next.merge.size(); ++i) {
      waiting.expect<Merged>();
    }
  }
  CHECK(published == expected);
  CHECK(ahead.parameters() == waiting.parameters());
}

TEST_CASE("the mean gradient of the arena is what the optimiser uses") {
  const Folder folder;
  const std::string file = folder.write_text(20'000);
  Configure configure = small_run(file);
  TrainerProcess alone(folder.path);
  alone.open(configure, 2);
  alone.train_until(3);

  configure.payload = Payload::gradient;
  TrainerProcess trainer(folder.path);
  trainer.open(configure, 2);
  const auto start = trainer.parameters();
  // Its own gradients handed back: the same as training alone.
  for (std::uint64_t step = 1; step <= 3; ++step) {
    Plan plan{step, {}, {}};
    for (const std::uint32_t fragment : {0U, 1U}) {
      plan.publish.push_back({step, fragment, step, false});
      plan.merge.push_back({step, fragment, step, 0.0, step == 3, step == 3, std::nullopt});
    }
    trainer.send(plan);
    for (const std::uint32_t fragment : {0U, 1U}) {
      const Published published = trainer.expect<Published>();
      CHECK(published.fragment == fragment);
      CHECK(published.step == step);
      CHECK(published.position == 4 * step);
      CHECK(published.steps == 1);
      CHECK(published.tokens == 64);
    }
    trainer.send(RoundResult{step, 0, true});
    trainer.send(RoundResult{step, 1, true});
    CHECK(trainer.expect<Merged>().step == step);
    CHECK(trainer.expect<Merged>().validation_loss.has_value() == (step == 3));
  }
  const std::vector<std::vector<float>> in_arena = {trainer.fragment(0), trainer.fragment(1)};  // `parameters` wrote them
  CHECK(in_arena == alone.parameters());
  CHECK(trainer.parameters() == in_arena);

  // A gradient of zeros: Adam's momentum and weight decay alone move the parameters.
  TrainerProcess still(folder.path);
  configure.training.weight_decay = 0.0;
  still.open(configure, 2);
  still.send(Plan{
      1, {{1, 0, 1, false}, {1, 1, 1, false}}, {{1, 0, 1, 0.0, false, false, std::nullopt}, {1, 1, 1, 0.0, false, false, std::nullopt}}});
  still.expect<Published>();
  still.expect<Published>();
  std::ranges::fill(still.arena->floats(), 0.0F);
  still.send(RoundResult{1, 0, true});
  still.send(RoundResult{1, 1, true});
  still.expect<Merged>();
  still.expect<Merged>();
  CHECK(still.parameters() == start);
}

TEST_CASE("load takes parameters from the arena, moves the step, and voids the orders on the way") {
  const Folder folder;
  TrainerProcess trainer(folder.path);
  trainer.open(small_run(folder.write_text(20'000)));
  trainer.send(Plan{3, {{1, 0, 3, false}}, {{1, 0, 3, 0.0, false, false, std::nullopt}}});
  trainer.expect<Published>();  // now it waits for a result that will not come
  for (float& value : trainer.arena->floats()) {
    value = 0.01F;
  }
  trainer.send(Load{{0}, 50, 200});
  CHECK(trainer.expect<Loaded>() == Loaded{{0}, 50, 200});
  const auto parameters = trainer.parameters()[0];
  CHECK(std::ranges::all_of(parameters, [](float value) { return value == 0.01F; }));
  trainer.send(Plan{52, {{9, 0, 52, false}}, {}});
  const Published next = trainer.expect<Published>();
  CHECK(next.round == 9);
  CHECK(next.step == 52);
  CHECK(next.position == 208);
  CHECK(next.steps == 2);
}

TEST_CASE("a loss that is not finite is reported and does not end the trainer") {
  const Folder folder;
  TrainerProcess trainer(folder.path);
  trainer.open(small_run(folder.write_text(20'000)));
  for (float& value : trainer.arena->floats()) {
    value = 1e30F;
  }
  trainer.send(Load{{0}, 0, 0});
  trainer.expect<Loaded>();
  const Published bad = trainer.train_until(2);
  CHECK(bad.nonfinite);
  CHECK(bad.bad_step == 1);
  CHECK_FALSE(bad.loss.has_value());
  // Sound parameters again: it goes on as if nothing had been.
  for (float& value : trainer.arena->floats()) {
    value = 0.01F;
  }
  trainer.send(Load{{0}, 2, 8});
  trainer.expect<Loaded>();
  const Published good = trainer.train_until(4);
  CHECK_FALSE(good.nonfinite);
  CHECK(good.loss.has_value());
}

TEST_CASE("data and settings that cannot be trained on are refused with the reason") {
  const Folder folder;
  const Configure good = small_run(folder.write_text(20'000));
  const auto failure = [&](auto change) {
    Configure configure = good;
    change(configure);
    TrainerProcess trainer(folder.path);
    trainer.expect<Hello>();
    trainer.send(configure);
    const Failed failed = trainer.expect<Failed>();
    CHECK(trainer.exit_status() == 1);
    // What is wrong stays so, and a model that does not fit before its first step; a file that is not there may come back.
    const bool may_heal = failed.why.find("No such file") != std::string::npos;
    CHECK(failed.permanent.value_or(false) == !may_heal);
    return failed.why;
  };
  std::ofstream(folder.path + "/empty").close();
  CHECK(failure([&](Configure& c) { c.data.files = {"/no/such"}; }) == "data file /no/such: No such file or directory");
  CHECK(failure([&](Configure& c) { c.data.files = {folder.path + "/empty"}; }) == "data file " + folder.path + "/empty: it is empty");
  CHECK(failure([&](Configure& c) { c.data.files = {folder.write_text(100, 2)}; }).find("too small: 10 tokens are held out") !=
        std::string::npos);
  CHECK(failure([&](Configure& c) { c.training.batch = 4000; }).find("tokens are there to train on, one batch needs") != std::string::npos);
  CHECK(failure([&](Configure& c) { c.data.format = "words"; }).find("none of bytes, uint16, uint32") != std::string::npos);
  CHECK(failure([&](Configure& c) { c.model.heads = 3; }).find("an even multiple of heads") != std::string::npos);
  const std::string no_device = failure([&](Configure& c) { c.training.device = "cuda:99"; });
  CHECK(no_device.find("training.device is cuda:99, and LibTorch ") == 0);
  CHECK(no_device.find("use ") != std::string::npos);
  CHECK(failure([&](Configure& c) { c.training.device = "tpu"; }).find("none of auto, cpu, cuda:N") != std::string::npos);
  CHECK(failure([&](Configure& c) { c.training.device = "cpu", c.training.precision = "bf16"; }).find("bf16 needs a GPU") !=
        std::string::npos);
  CHECK(failure([&](Configure& c) { c.training.accumulation = 3; }).find("accumulation a divisor of batch") != std::string::npos);
  CHECK(failure([&](Configure& c) { c.model.width = 1U << 20; }).find("out of memory") != std::string::npos);
}

TEST_CASE("memory that is short at the first step ends the trainer for good, with what it needed, and later it may come back") {
  const Folder folder;
  Configure configure = small_run(folder.write_text(400'000));
  configure.training.batch = 64;
  configure.training.sequence_length = 512;  // logits of 33 MB
  for (const std::uint64_t steps : {0, 1}) {
    CAPTURE(steps);
    TrainerProcess trainer(folder.path);
    trainer.open(configure);
    if (steps > 0) {
      trainer.train_until(steps);
      trainer.send(Evaluate{});  // a step's memory is the allocator's again
      trainer.expect<Evaluated>();
    }
    std::uint64_t pages = 0;
    std::ifstream("/proc/" + std::to_string(trainer.pid()) + "/statm") >> pages;
    const rlim_t most = pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)) + (8U << 20);  // so much more it gets, and no step's
    const rlimit limit{most, most};
    REQUIRE(::prlimit(trainer.pid(), RLIMIT_AS, &limit, nullptr) == 0);
    trainer.send(Plan{steps + 1, {{1, 0, steps + 1, false}}, {}});
    const Failed failed = trainer.expect<Failed>();
    CHECK(failed.why.find("out of memory: ") == 0);
    CHECK(failed.why.find("the trainer has ") != std::string::npos);
    CHECK(failed.why.find("training.batch") != std::string::npos);
    CHECK(failed.permanent.value_or(false) == (steps == 0));
    CHECK(trainer.exit_status() == 1);
  }
}

TEST_CASE("data that changed while a run was stopped are noticed, and data that only moved are not") {
  const Folder folder;
  Configure configure = small_run(folder.write_text(20'000));
  const std::string text = configure.data.files.front();
  const std::string state = folder.path + "/state";
  std::filesystem::create_directory(state);
  {
    TrainerProcess trainer(folder.path);
    trainer.open(configure);
    trainer.train_until(3);
    trainer.send(Save{state});
    CHECK_FALSE(trainer.expect<Saved>().error.has_value());
  }
  configure.resume = Resume{state, 3, 12};
  std::filesystem::rename(text, folder.path + "/moved");
  configure.data.files = {folder.path + "/moved"};
  {
    TrainerProcess trainer(folder.path);
    CHECK(trainer.open(configure).step == 3);
  }
  {
    std::fstream bytes(folder.path + "/moved", std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekp(10'000);
    bytes.put('\t');
  }
  TrainerProcess trainer(folder.path);
  trainer.expect<Hello>();
  trainer.send(configure);
  trainer.manifest = trainer.expect<Manifest>();
  trainer.lay_out_arena(1);
  const Failed failed = trainer.expect<Failed>();
  CHECK(failed.why.find("the data are not those that were trained on up to step 3: then 20000 tokens, digest ") == 0);
  CHECK(failed.permanent == std::optional(true));
  CHECK(trainer.exit_status() == 1);
}

TEST_CASE("tokens outside the vocabulary end the trainer before its first step, with file and token, for good") {
  const Folder folder;
  Configure configure = small_run(folder.write_text(20'000));
  {
    TrainerProcess trainer(folder.path);
    trainer.open(configure);
    CHECK(trainer.preparing.find("reading 1 file with 20000 bytes: ") == 0);
  }
  configure.model.vocabulary = 100;
  TrainerProcess trainer(folder.path);
  trainer.expect<Hello>();
  trainer.send(configure);
  const Failed failed = trainer.expect<Failed>();
  CHECK(failed.why.find("is not in the model's vocabulary of 100") != std::string::npos);
  CHECK(failed.permanent == std::optional(true));
  CHECK(trainer.exit_status() == 1);
}

TEST_CASE("messages out of order and orders for nothing end the trainer with the reason") {
  const Folder folder;
  const Configure configure = small_run(folder.write_text(20'000));
  {
    TrainerProcess trainer(folder.path);
    trainer.expect<Hello>();
    trainer.send(Evaluate{});
    CHECK(trainer.expect<Failed>().why == "the agent has sent 'evaluate' where configure was due");
    CHECK(trainer.exit_status() == 1);
  }
  {
    TrainerProcess trainer(folder.path);
    trainer.open(configure);
    trainer.send(Plan{1, {{1, 5, 1, false}}, {}});
    CHECK(trainer.expect<Failed>().why == "the agent has sent an order for a fragment that does not exist");
  }
  {
    TrainerProcess trainer(folder.path);
    trainer.expect<Hello>();
    trainer.send(configure);
    trainer.expect<Manifest>();
    trainer.send(ArenaLayout{folder.path + "/none", 64, {}, {}});
    CHECK(trainer.expect<Failed>().why.find("cannot open the arena") != std::string::npos);
  }
}

TEST_CASE("a trainer ends by itself when its agent is gone, and at once on SIGTERM") {
  const Folder folder;
  const Configure configure = small_run(folder.write_text(20'000));
  {
    auto trainer = std::make_unique<TrainerProcess>(folder.path);
    trainer->open(configure);
    REQUIRE(::kill(trainer->pid(), SIGINT) == 0);  // Ctrl-C is not for it
    trainer->send(Plan{1'000'000, {}, {}});
    trainer->expect<Progress>();
    REQUIRE(::kill(trainer->pid(), SIGTERM) == 0);
    CHECK(trainer->exit_status() == -SIGTERM);
  }
  // An agent that starts a trainer and is killed: both its death and its closed socket are noticed.
  int pipe_of_pids[2];
  REQUIRE(::pipe(pipe_of_pids) == 0);
  const pid_t agent = ::fork();
  if (agent == 0) {
    TrainerProcess trainer(folder.path);
    trainer.open(configure);
    trainer.send(Plan{1'000'000, {}, {}});
    trainer.expect<Progress>();
    const pid_t pid = trainer.pid();
    [[maybe_unused]] const auto written = ::write(pipe_of_pids[1], &pid, sizeof pid);
    ::pause();
    ::_exit(0);
  }
  pid_t orphan = 0;
  REQUIRE(::read(pipe_of_pids[0], &orphan, sizeof orphan) == sizeof orphan);
  ::close(pipe_of_pids[0]);
  ::close(pipe_of_pids[1]);
  REQUIRE(::kill(agent, SIGKILL) == 0);
  ::waitpid(agent, nullptr, 0);
  bool gone = false;
  for (const auto deadline = std::chrono::steady_clock::now() + 10s; !gone && std::chrono::steady_clock::now() < deadline;) {
    std::ifstream status("/proc/" + std::to_string(orphan) + "/stat");
    std::string line;
    std::getline(status, line);
    gone = line.empty() || line.find(") Z ") != std::string::npos;
    std::this_thread::sleep_for(5ms);
  }
  CHECK(gone);
}

TEST_CASE("max_steps_per_second holds the trainer back") {
  const Folder folder;
  Configure configure = small_run(folder.write_text(20'000));
  configure.training.max_steps_per_second = 100;
  TrainerProcess trainer(folder.path);
  trainer.open(configure);
  const auto begin = std::chrono::steady_clock::now();
  trainer.train_until(120);
  CHECK(std::chrono::steady_clock::now() - begin > 600ms);  // 1.2 s, of which it may catch up 0.5 s
}

TEST_CASE("what a throttled trainer waits for others it does not make up for") {
  const Folder folder;
  Configure configure = small_run(folder.write_text(20'000));
  configure.training.max_steps_per_second = 100;
  TrainerProcess trainer(folder.path);
  trainer.open(configure);
  trainer.train_until(20);
  std::this_thread::sleep_for(600ms);
  const auto begin = std::chrono::steady_clock::now();
  trainer.train_until(60);
  CHECK(std::chrono::steady_clock::now() - begin > 300ms);  // 0.4 s; it was the others who were late, not the trainer
}
