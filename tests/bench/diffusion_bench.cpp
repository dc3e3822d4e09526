// Bench: how good the images of ensembles are, by the Fréchet distance (Heusel et al., arXiv:1706.08500) in the features of a small
// classifier.
//
// Usage: bench_diffusion SEED COUNT STEPS IMAGES LABELS FOLDER[:RULE]…   (idx files; ensembles as `atoll export` writes them; RULE as
// `atoll sample --router`) The classifier (two convolutions, 32 features) is trained on the labels of the images that a run of the same
// seed trains on, with validation_fraction 0.1; its features are fixed then, and its accuracy on the held-out images is printed. The
// distance is that of COUNT samples (Euler, STEPS steps) to the images that were trained on; the first line is the distance of the held-out
// images themselves: nobody who does not copy gets below it by much.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "agent/trainer/data/data_order.hpp"
#include "agent/trainer/data/images.hpp"
#include "agent/trainer/diffusion/ensemble.hpp"
#include "agent/trainer/diffusion/flow_matching.hpp"
#include "agent/trainer/torch_runtime.hpp"
#include "transport/base/rng.hpp"

using namespace atl;

namespace {

constexpr std::int64_t kFeatures = 32;
constexpr std::int64_t kBatch = 64;
constexpr int kEpochs = 8;
constexpr double kLearningRate = 1e-3;

class Classifier {
 public:
  Classifier(const ImageShape& shape, std::int64_t classes, std::uint64_t seed) {
    const auto flat = std::int64_t{32} * (shape.height / 4) * (shape.width / 4);
    make({16, shape.channels, 3, 3}, seed), make({16}, seed);
    make({32, 16, 3, 3}, seed), make({32}, seed);
    make({kFeatures, flat}, seed), make({kFeatures}, seed);
    make({classes, kFeatures}, seed), make({classes}, seed);
  }

  [[nodiscard]] at::Tensor features(const at::Tensor& x) const {
    at::Tensor h = at::max_pool2d(at::relu(at::conv2d((x + 1.0) / 2.0, p_[0], p_[1], 1, 1)), 2);
    h = at::max_pool2d(at::relu(at::conv2d(h, p_[2], p_[3], 1, 1)), 2);
    return at::relu(at::linear(h.flatten(1), p_[4], p_[5]));
  }
  [[nodiscard]] at::Tensor logits(const at::Tensor& x) const { return at::linear(features(x), p_[6], p_[7]); }

  // One step of Adam.
  void step(const at::Tensor& x, const at::Tensor& labels) {
    at::cross_entropy_loss(logits(x), labels).backward();
    const at::NoGradGuard no_gradient;
    ++steps_;
    for (std::size_t i = 0; i < p_.size(); ++i) {
      const at::Tensor g = p_[i].grad();
      m_[i].mul_(0.9).add_(g, 0.1);
      v_[i].mul_(0.999).addcmul_(g, g, 0.001);
      const at::Tensor scale = (v_[i] / (1.0 - std::pow(0.999, steps_))).sqrt_().add_(1e-8);
      p_[i].addcdiv_(m_[i], scale, -kLearningRate / (1.0 - std::pow(0.9, steps_)));
      p_[i].mutable_grad().zero_();
    }
  }

 private:
  void make(std::vector<std::int64_t> shape, std::uint64_t seed) {
    std::int64_t fan = 1;
    for (std::size_t i = 1; i < shape.size(); ++i) {
      fan *= shape[i];
    }
    at::Tensor values = shape.size() == 1
                            ? at::zeros(shape)
                            : normal_values(shape, seed, stream_of("classifier", p_.size())) * std::sqrt(2.0 / static_cast<double>(fan));
    p_.push_back(values.requires_grad_(true));
    m_.push_back(at::zeros(shape));
    v_.push_back(at::zeros(shape));
  }
  std::vector<at::Tensor> p_, m_, v_;
  int steps_ = 0;
};

struct Gaussian {
  at::Tensor mean, covariance;
};
Gaussian gaussian_of(const at::Tensor& features) {
  const at::Tensor f = features.to(at::kDouble);
  const at::Tensor mean = f.mean(0);
  const at::Tensor centred = f - mean;
  return {mean, at::matmul(centred.t(), centred) / static_cast<double>(f.size(0) - 1)};
}

at::Tensor root(const at::Tensor& symmetric) {
  const auto [values, vectors] = at::linalg_eigh(symmetric);
  return at::matmul(vectors * values.clamp_min(0).sqrt(), vectors.t());
}

// |μ₁ − μ₂|² + tr(C₁ + C₂ − 2·(C₁^½·C₂·C₁^½)^½).
double frechet_distance(const Gaussian& a, const Gaussian& b) {
  const at::Tensor half = root(a.covariance);
  const at::Tensor middle = at::matmul(at::matmul(half, b.covariance), half);
  const double cross = at::linalg_eigvalsh((middle + middle.t()) / 2).clamp_min(0).sqrt().sum().item<double>();
  return (a.mean - b.mean).square().sum().item<double>() + (a.covariance.trace() + b.covariance.trace()).item<double>() - 2.0 * cross;
}

at::Tensor batch_of(const ImageSet& images, const std::vector<std::size_t>& chosen) {
  const ImageShape& shape = images.shape();
  at::Tensor x = at::empty({static_cast<std::int64_t>(chosen.size()), shape.channels, shape.height, shape.width}, at::kFloat);
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    images.read(chosen[i], {x.data_ptr<float>() + i * shape.values(), shape.values()});
  }
  return x;
}

at::Tensor features_of(const Classifier& classifier, const at::Tensor& x) {
  const at::NoGradGuard no_gradient;
  std::vector<at::Tensor> parts;
  for (const at::Tensor& part : x.split(250)) {
    parts.push_back(classifier.features(part));
  }
  return at::cat(parts);
}

[[noreturn]] void fail(const Error& error) {
  std::fprintf(stderr, "bench_diffusion: %s\n", error.why.c_str());
  std::exit(1);
}

template <typename T>
T or_fail(Result<T> value) {
  if (!value) {
    fail(value.error());
  }
  return *std::move(value);
}

void run(std::uint64_t seed, std::int64_t count, std::uint32_t steps, const std::vector<std::string>& files,
         const std::vector<std::string>& ensembles) {
  const ImageSet images = or_fail(ImageSet::open(files, "idx"));
  const std::vector<bool> held = or_fail(held_out_images(images.count(), 0.1, seed));
  std::vector<std::size_t> train;
  std::vector<std::size_t> rest;
  for (std::size_t i = 0; i < held.size(); ++i) {
    (held[i] ? rest : train).push_back(i);
  }
  const auto labels_of = [&](const std::vector<std::size_t>& chosen) {
    std::vector<std::int64_t> labels;
    for (const std::size_t i : chosen) {
      labels.push_back(images.labels()[i]);
    }
    return at::tensor(labels, at::kLong);
  };

  Classifier classifier(images.shape(), images.classes(), 1);
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    const Permutation order(train.size(), stream_of("classifier epoch", static_cast<std::uint64_t>(epoch)));
    for (std::size_t from = 0; from + kBatch <= train.size(); from += kBatch) {
      std::vector<std::size_t> chosen;
      for (std::size_t i = from; i < from + kBatch; ++i) {
        chosen.push_back(train[order.at(i)]);
      }
      classifier.step(batch_of(images, chosen), labels_of(chosen));
    }
  }
  const at::Tensor real = batch_of(images, train);
  const at::Tensor unseen = batch_of(images, rest);
  double right = 0;
  {
    const at::NoGradGuard no_gradient;
    right = (classifier.logits(unseen).argmax(1) == labels_of(rest)).to(at::kDouble).mean().item<double>();
  }
  const Gaussian reference = gaussian_of(features_of(classifier, real));
  std::printf("classifier: %.1f %% right on %zu held-out images, features of %lld values\n", 100 * right, rest.size(),
              static_cast<long long>(kFeatures));
  std::printf("%-50s %10s %12s\n", "images", "distance", "ms an image");
  std::printf("%-50s %10.3f\n", "held out, real", frechet_distance(reference, gaussian_of(features_of(classifier, unseen))));
  for (const std::string& given : ensembles) {
    const std::size_t colon = given.find(':');
    const Ensemble ensemble = or_fail(Ensemble::open(given.substr(0, colon), false, at::kCPU));
    const ExpertChoice choice = or_fail(expert_choice_named(colon == std::string::npos ? "top-1" : given.substr(colon + 1)));
    const EnsembleFlow flow = ensemble.flow(choice, std::nullopt, 1.0);
    const Flow whole = [&flow](const at::Tensor& x, const at::Tensor& t) { return flow_of(flow, x, t); };
    const ImageShape& shape = images.shape();
    std::vector<at::Tensor> made;
    const auto begin = std::chrono::steady_clock::now();
    for (std::int64_t from = 0; from < count; from += 50) {
      const std::int64_t some = std::min<std::int64_t>(50, count - from);
      made.push_back(follow(
          whole,
          normal_values({some, shape.channels, shape.height, shape.width}, 7, stream_of("samples", static_cast<std::uint64_t>(from))),
          steps, Solver::euler));
    }
    const std::chrono::duration<double, std::milli> spent = std::chrono::steady_clock::now() - begin;
    std::printf("%-50s %10.3f %12.1f\n", given.c_str(),
                frechet_distance(reference, gaussian_of(features_of(classifier, at::cat(made).clamp(-1, 1)))),
                spent.count() / static_cast<double>(count));
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 7) {
    std::fprintf(stderr, "usage: bench_diffusion SEED COUNT STEPS IMAGES LABELS FOLDER[:RULE]...\n");
    return argc == 1 ? 0 : 2;  // among all the benches it has nothing to measure
  }
  set_arithmetic_threads(1);
  run(std::strtoull(argv[1], nullptr, 10), std::strtoll(argv[2], nullptr, 10),
      static_cast<std::uint32_t>(std::strtoul(argv[3], nullptr, 10)), {argv[4], argv[5]}, std::vector<std::string>(argv + 6, argv + argc));
  return 0;
}
