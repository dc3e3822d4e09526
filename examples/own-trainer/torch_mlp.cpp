// A trainer in C++ with LibTorch: a small network that learns a function of samples that the seed, the part and the position give.
//
//   find_package(Torch), find_package(atoll_trainer), then link ${TORCH_LIBRARIES} and atoll::trainer
//   atoll local torch_mlp.toml --trainer torch_mlp=./torch_mlp
#include <atoll_trainer.h>
#include <torch/torch.h>

#include <cstdio>
#include <string>
#include <vector>

namespace {

constexpr std::int64_t kBatch = 16;

struct Learner {
  explicit Learner(std::uint64_t seed) {
    torch::manual_seed(static_cast<std::int64_t>(seed));  // the same initial parameters on every island
    net = torch::nn::Sequential(torch::nn::Linear(4, 32), torch::nn::Tanh(), torch::nn::Linear(32, 1));
    adam = std::make_unique<torch::optim::Adam>(net->parameters(), torch::optim::AdamOptions(1e-2));
  }

  double step(std::uint64_t part, std::uint64_t position) {
    auto draw = at::detail::createCPUGenerator(part * 1'000'003 + position);
    const torch::Tensor x = torch::randn({kBatch, 4}, draw);
    const torch::Tensor y = x.select(1, 0).sin() * x.select(1, 1) + x.select(1, 2);
    adam->zero_grad();
    const torch::Tensor loss = (net->forward(x).squeeze(1) - y).square().mean();
    loss.backward();
    adam->step();
    return loss.item<double>();
  }

  void save(const std::string& folder) const {
    torch::save(net, folder + "/net.pt");
    torch::save(*adam, folder + "/adam.pt");
  }
  void load(const std::string& folder) {
    torch::load(net, folder + "/net.pt");
    torch::load(*adam, folder + "/adam.pt");
  }

  torch::nn::Sequential net{nullptr};
  std::unique_ptr<torch::optim::Adam> adam;
  std::vector<double> losses;
};

// The value of "key": in the settings, as its text; JSON libraries do this better.
std::string value_of(const std::string& json, const std::string& key) {
  const std::size_t found = json.find("\"" + key + "\":");
  return found == std::string::npos ? "" : json.substr(found + key.size() + 3, json.find_first_of(",}", found) - found - key.size() - 3);
}

std::uint64_t number_of(const std::string& json, const std::string& key) {
  const std::string value = value_of(json, key);
  return value.empty() ? 0 : std::stoull(value);
}

// Between the parameters of a fragment and the arena.
void copy(atoll_trainer* trainer, const atoll_order& order, const Learner& learner) {
  const torch::NoGradGuard no_gradients;
  const std::vector<torch::Tensor> parameters = learner.net->parameters();
  std::size_t count = 0;
  const atoll_entry* entries = atoll_trainer_entries(trainer, &count);
  for (std::size_t i = 0; i < count; ++i) {
    if (entries[i].fragment != order.fragment) {
      continue;
    }
    torch::Tensor parameter = parameters[entries[i].parameter];
    torch::Tensor arena = torch::from_blob(atoll_trainer_arena(trainer) + entries[i].offset, parameter.sizes());
    if (order.kind == ATOLL_WRITE) {
      arena.copy_(parameter);
    } else if (order.alpha == 0) {
      parameter.copy_(arena);
    } else {
      parameter.mul_(order.alpha).add_(arena, 1 - order.alpha);
    }
  }
}

}  // namespace

int main() {
  char why[1000];
  atoll_trainer* trainer = atoll_trainer_join(nullptr, "torch_mlp", "1", 1, why, sizeof why);
  if (trainer == nullptr) {
    std::fprintf(stderr, "torch_mlp: %s\n", why);
    return 1;
  }
  const std::string settings = atoll_trainer_configuration(trainer);
  const std::uint64_t part = number_of(settings, "part");
  Learner learner(number_of(settings, "seed"));
  std::vector<atoll_parameter> declared;
  const auto named = learner.net->named_parameters();
  for (const auto& item : named) {
    const torch::Tensor& value = item.value();
    declared.push_back({item.key().c_str(), reinterpret_cast<const std::uint64_t*>(value.sizes().data()), value.sizes().size(), 0});
  }
  int status = atoll_trainer_declare(trainer, declared.data(), declared.size(), nullptr);
  std::string folder = value_of(settings, "directory");
  if (status == ATOLL_OK && folder.size() > 2 && folder.front() == '"') {
    learner.load(folder.substr(1, folder.size() - 2));
  }
  status = status == ATOLL_OK ? atoll_trainer_ready(trainer, 0) : status;
  atoll_order order = {};
  while (status == ATOLL_OK && (status = atoll_trainer_next(trainer, -1, &order)) == ATOLL_OK && order.kind != ATOLL_STOP) {
    atoll_answer answer = {};
    std::vector<double> losses;
    if (order.kind == ATOLL_STEP) {
      learner.losses.push_back(learner.step(part, order.position));
      answer.samples = answer.tokens = kBatch;
    } else if (order.kind == ATOLL_REPORT) {
      losses.swap(learner.losses);
      answer.losses = losses.data();
      answer.losses_count = losses.size();
    } else if (order.kind == ATOLL_WRITE || order.kind == ATOLL_MERGE) {
      copy(trainer, order, learner);
    } else if (order.kind == ATOLL_SAVE) {
      try {
        learner.save(order.directory);
      } catch (const std::exception& failure) {
        answer.error = "the state cannot be written";
      }
    }
    status = atoll_trainer_answer(trainer, &answer);
  }
  if (status != ATOLL_OK) {
    std::fprintf(stderr, "torch_mlp: %s\n", atoll_trainer_why(trainer));
  }
  atoll_trainer_leave(trainer);
  return status == ATOLL_OK || status == ATOLL_GONE ? 0 : 1;
}
