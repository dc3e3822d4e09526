#include "agent/trainer/bench.hpp"

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "agent/island_link/arena.hpp"
#include "agent/island_link/messages.hpp"
#include "agent/trainer/learner.hpp"
#include "agent/trainer/options.hpp"
#include "agent/trainer/torch_runtime.hpp"
#include "transport/base/rng.hpp"

namespace atl {

namespace {

using island_link::Configure;

// Random bytes: what they are does not change the time.
class RandomText {
 public:
  RandomText() {
    std::string pattern = (std::filesystem::temp_directory_path() / "atoll-bench-XXXXXX").string();
    const int fd = ::mkstemp(pattern.data());
    if (fd >= 0) {
      ::close(fd);
    }
    path_ = pattern;
    Rng rng(1);
    std::string text(4U << 20, ' ');
    std::generate(text.begin(), text.end(), [&rng] { return static_cast<char>(rng.next_u32()); });
    std::ofstream(path_, std::ios::binary) << text;
  }
  RandomText(const RandomText&) = delete;
  RandomText& operator=(const RandomText&) = delete;
  ~RandomText() { ::unlink(path_.c_str()); }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

struct Setting {
  Configure configure;
  std::uint64_t steps = 0;
};

Result<Setting> read_setting(const std::vector<std::string>& arguments) {
  ATOLL_ASSIGN(const Options options, Options::parse(arguments,
                                                     {{"--steps", "5"},
                                                      {"--threads", "1"},
                                                      {"--layers", "4"},
                                                      {"--width", "128"},
                                                      {"--batch", "16"},
                                                      {"--sequence-length", "128"},
                                                      {"--device", "cpu"}},
                                                     {}));
  Setting setting;
  Configure& configure = setting.configure;
  const auto integer = [&options](const char* name, std::uint32_t& to) -> Status {
    ATOLL_ASSIGN(const std::uint64_t value, options.integer(name, 1, 1U << 20));
    to = static_cast<std::uint32_t>(value);
    return {};
  };
  ATOLL_ASSIGN(setting.steps, options.integer("--steps", 1, 100'000));
  ATOLL_TRY(integer("--threads", configure.training.threads));
  ATOLL_TRY(integer("--layers", configure.model.layers));
  ATOLL_TRY(integer("--width", configure.model.width));
  ATOLL_TRY(integer("--batch", configure.training.batch));
  ATOLL_TRY(integer("--sequence-length", configure.training.sequence_length));
  configure.training.device = options.text("--device");
  configure.training.precision = "auto";
  configure.seed = 1;
  configure.model.heads = std::max(1U, configure.model.width / 32);
  configure.model.vocabulary = 256;
  configure.data.format = "bytes";
  configure.training.steps = 1'000'000;
  configure.training.learning_rate = 1e-3;
  configure.training.warmup_steps = 100;
  configure.training.final_learning_rate = 0.1;
  configure.training.weight_decay = 0.1;
  configure.training.beta1 = 0.9;
  configure.training.beta2 = 0.95;
  configure.training.epsilon = 1e-8;
  configure.training.clip_norm = 1.0;
  return setting;
}

// The trainer's own loop, `steps` steps for each line that comes: whoever compares it with another program has them take turns.
Status take_turns(Setting setting) {
  const RandomText text;
  const Configure& configure = setting.configure;
  setting.configure.data.files = {text.path()};
  ATOLL_ASSIGN(Learner learner, Learner::make(configure));
  std::printf("%s, %u thread(s), device %s, %llu parameters, batch %u x %u tokens, %llu steps a turn\n", computes_with().c_str(),
              configure.training.threads, configure.training.device.c_str(),
              static_cast<unsigned long long>(island_link::elements(learner.manifest().parameters)), configure.training.batch,
              configure.training.sequence_length, static_cast<unsigned long long>(setting.steps));
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
    const auto begin = std::chrono::steady_clock::now();
    for (std::uint64_t i = 0; i < setting.steps; ++i) {
      ATOLL_TRY(learner.compute_gradient());
      ATOLL_TRY(learner.apply_gradient());
    }
    ATOLL_ASSIGN(const std::function<Learner::Numbers()> numbers, learner.report(false));
    const std::vector<double> losses = numbers().losses;  // all of it is done
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
    const std::uint64_t tokens = setting.steps * configure.training.batch * configure.training.sequence_length;
    std::printf("%.0f\n", losses.size() == setting.steps ? static_cast<double>(tokens) / spent.count() : 0.0);
    std::fflush(stdout);
  }
  return {};
}

}  // namespace

int bench(const std::vector<std::string>& arguments) {
  auto setting = read_setting(arguments);
  if (!setting) {
    std::fprintf(stderr, "bench_trainer: %s\n", setting.error().why.c_str());
    return 2;
  }
  if (const Status status = catching([&]() -> Status { return take_turns(*setting); }); !status) {
    std::fprintf(stderr, "bench_trainer: %s\n", status.error().why.c_str());
    return 70;
  }
  return 0;
}

}  // namespace atl
