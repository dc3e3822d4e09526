#include "agent/trainer/bench.hpp"

#include <stdlib.h>
#include <torch/torch.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "agent/island_link/arena.hpp"
#include "agent/island_link/messages.hpp"
#include "agent/trainer/data/data_order.hpp"
#include "agent/trainer/data/token_stream.hpp"
#include "agent/trainer/language/model.hpp"
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
  std::uint64_t repeats = 0;
  std::uint64_t steps = 0;
};

Result<Setting> read_setting(const std::vector<std::string>& arguments) {
  ATOLL_ASSIGN(const Options options, Options::parse(arguments,
                                                     {{"--repeats", "21"},
                                                      {"--steps", "5"},
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
  ATOLL_ASSIGN(setting.repeats, options.integer("--repeats", 1, 1000));
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

// The loop anyone writes first: zero_grad, loss, backward, clip_grad_norm_, AdamW.
class BareLoop {
 public:
  static Result<BareLoop> make(const Configure& configure) {
    ATOLL_ASSIGN(const island_link::Model sizes, Model::checked(configure.model));
    ATOLL_ASSIGN(const at::Device device, device_named(configure.training.device));
    ATOLL_ASSIGN(const bool bf16, bf16_named(configure.training.precision, device));
    ATOLL_ASSIGN(TokenStream stream, TokenStream::open(configure.data.files, configure.data.format));
    const auto count = static_cast<std::int64_t>(island_link::elements(Model::manifest(sizes).parameters));
    Model model(sizes, configure.training.sequence_length, at::empty({count}, at::TensorOptions(at::kFloat).device(device)));
    model.initialize(configure.seed);
    return BareLoop(configure, std::move(stream), std::move(model), device, bf16);
  }

  Result<double> step() {
    const std::uint64_t length = configure_.training.sequence_length + 1ULL;
    const at::Tensor tokens = at::empty({configure_.training.batch, static_cast<std::int64_t>(length)}, at::kLong);
    for (std::uint32_t i = 0; i < configure_.training.batch; ++i) {
      ATOLL_TRY(stream_.read(rng_.below(stream_.size() - length), 256, {tokens.data_ptr<std::int64_t>() + i * length, length}));
    }
    optimizer_.zero_grad();
    at::Tensor loss;
    {
      const Autocast autocast(bf16_);
      loss = model_.loss(tokens.to(device_));
    }
    loss.backward();
    torch::nn::utils::clip_grad_norm_(leaves_, configure_.training.clip_norm);
    optimizer_.step();
    return loss.item<double>();
  }

 private:
  BareLoop(const Configure& configure, TokenStream stream, Model model, at::Device device, bool bf16)
      : configure_(configure),
        stream_(std::move(stream)),
        model_(std::move(model)),
        device_(device),
        bf16_(bf16),
        leaves_(tensors(model_)),
        optimizer_(leaves_, torch::optim::AdamWOptions(1e-3).betas({0.9, 0.95}).weight_decay(0.1)) {}

  static std::vector<at::Tensor> tensors(const Model& model) {
    std::vector<at::Tensor> all;
    for (const Model::Leaf& leaf : model.leaves()) {
      all.push_back(leaf.tensor);
    }
    return all;
  }

  Configure configure_;
  TokenStream stream_;
  Model model_;
  at::Device device_;
  bool bf16_;
  std::vector<at::Tensor> leaves_;
  torch::optim::AdamW optimizer_;
  Rng rng_{1};
};

// Tokens/s of `steps` calls.
template <typename Step>
Result<double> measure(const Configure& configure, std::uint64_t steps, const Step& step) {
  const auto begin = std::chrono::steady_clock::now();
  for (std::uint64_t i = 0; i < steps; ++i) {
    ATOLL_TRY(step());
  }
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
  return static_cast<double>(steps) * configure.training.batch * configure.training.sequence_length / spent.count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

Status compare(Setting setting) {
  const RandomText text;
  setting.configure.data.files = {text.path()};
  ATOLL_ASSIGN(Learner learner, Learner::make(setting.configure));
  ATOLL_ASSIGN(BareLoop bare, BareLoop::make(setting.configure));
  const auto trainer_step = [&learner]() -> Status {
    ATOLL_TRY(learner.compute_gradient());
    ATOLL_TRY(learner.apply_gradient());
    ATOLL_ASSIGN(const std::vector<double> losses, learner.take_losses());
    return losses.size() == 1 ? Status() : Status(Error{Code::internal, "a step without a loss"});
  };
  const auto bare_step = [&bare]() -> Status {
    ATOLL_ASSIGN([[maybe_unused]] const double loss, bare.step());
    return {};
  };
  std::printf("LibTorch %s, %u thread(s), device %s, %llu parameters, batch %u x %u tokens, %llu steps a repeat\n", TORCH_VERSION,
              setting.configure.training.threads, setting.configure.training.device.c_str(),
              static_cast<unsigned long long>(island_link::elements(learner.manifest().parameters)), setting.configure.training.batch,
              setting.configure.training.sequence_length, static_cast<unsigned long long>(setting.steps));
  std::printf("%8s %14s %14s %8s\n", "repeat", "trainer tok/s", "bare tok/s", "ratio");
  std::vector<double> ratios;
  for (std::uint64_t repeat = 0; repeat <= setting.repeats; ++repeat) {
    const std::uint64_t steps = repeat == 0 ? 3 : setting.steps;  // the first is to warm up
    // Who goes first changes from repeat to repeat.
    double trainer = 0.0;
    if (repeat % 2 == 0) {
      ATOLL_ASSIGN(trainer, measure(setting.configure, steps, trainer_step));
    }
    ATOLL_ASSIGN(const double plain, measure(setting.configure, steps, bare_step));
    if (repeat % 2 == 1) {
      ATOLL_ASSIGN(trainer, measure(setting.configure, steps, trainer_step));
    }
    if (repeat > 0) {
      ratios.push_back(trainer / plain);
      std::printf("%8llu %14.0f %14.0f %8.3f\n", static_cast<unsigned long long>(repeat), trainer, plain, ratios.back());
    }
  }
  std::printf("median ratio %.3f\n", median(ratios));
  return {};
}

}  // namespace

int bench(const std::vector<std::string>& arguments) {
  auto setting = read_setting(arguments);
  if (!setting) {
    std::fprintf(stderr, "bench_trainer: %s\n", setting.error().why.c_str());
    return 2;
  }
  if (const Status status = catching([&]() -> Status { return compare(*setting); }); !status) {
    std::fprintf(stderr, "bench_trainer: %s\n", status.error().why.c_str());
    return 70;
  }
  return 0;
}

}  // namespace atl
