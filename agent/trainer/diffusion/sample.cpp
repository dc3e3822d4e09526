#include "agent/trainer/diffusion/sample.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "agent/trainer/data/image_file.hpp"
#include "agent/trainer/diffusion/ensemble.hpp"
#include "agent/trainer/diffusion/flow_matching.hpp"
#include "agent/trainer/options.hpp"
#include "agent/trainer/torch_runtime.hpp"
#include "transport/base/rng.hpp"

namespace atl {
namespace {

constexpr std::uint64_t kBlock =
    64;  // images whose noise is drawn together: what an image begins with does not depend on how many are solved together
constexpr std::uint64_t kMostAtOnce = 1024;

// The noise that images `from` (a multiple of the block) and further begin with: [count, C, H, W].
at::Tensor first_noise(const ImageShape& image, std::uint64_t seed, std::uint64_t from, std::uint64_t count) {
  std::vector<at::Tensor> blocks;
  for (std::uint64_t at = from; at < from + count; at += kBlock) {
    const auto some = static_cast<std::int64_t>(std::min(kBlock, from + count - at));
    blocks.push_back(normal_values({some, image.channels, image.height, image.width}, seed, stream_of("samples", at)));
  }
  return at::cat(blocks);
}

Status write_samples(const Options& options) {
  ATOLL_ASSIGN(const std::uint64_t count, options.integer("--count", 1, 100'000));
  ATOLL_ASSIGN(const std::uint64_t steps, options.integer("--steps", 1, 10'000));
  ATOLL_ASSIGN(const std::uint64_t seed, options.integer("--seed", 0, ~0ULL));
  ATOLL_ASSIGN(const std::uint64_t columns, options.integer("--columns", 0, 10'000));
  ATOLL_ASSIGN(const std::uint64_t threads, options.integer("--threads", 1, 1024));
  ATOLL_ASSIGN(const double guidance, options.number("--guidance", 0.0, 100.0));
  ATOLL_ASSIGN(const ExpertChoice choice, expert_choice_named(options.text("--router")));
  ATOLL_ASSIGN(const Solver solver, solver_named(options.text("--solver")));
  ATOLL_ASSIGN(const at::Device device, device_named(options.text("--device")));
  set_arithmetic_threads(static_cast<std::uint32_t>(threads));
  ATOLL_ASSIGN(const Ensemble ensemble, !options.text("--model").empty() ? Ensemble::open_model(options.text("--model"), device)
                                        : options.flag("--dense")
                                            ? Ensemble::open_dense(options.text("--folder"), device)
                                            : Ensemble::open(options.text("--folder"), options.flag("--allow-missing"), device));
  ATOLL_TRY(check_choice(choice, ensemble.experts.size()));
  const DitSizes& sizes = ensemble.expert_sizes();
  std::optional<std::uint32_t> image_class;
  if (!options.text("--class").empty()) {
    if (sizes.classes == 0) {
      return Error{Code::invalid_argument, "--class: the experts were trained without classes (diffusion.conditional = false)"};
    }
    ATOLL_ASSIGN(const std::uint64_t chosen, options.integer("--class", 0, sizes.classes - 1));
    image_class = static_cast<std::uint32_t>(chosen);
  }
  EnsembleFlow flow = ensemble.flow(choice, image_class, guidance);
  const Flow whole = [&flow](const at::Tensor& x, const at::Tensor& t) { return flow_of(flow, x, t); };
  const auto begin = std::chrono::steady_clock::now();
  std::vector<float> images;
  // The chosen experts share what is solved together: with so many times the images each has as many as a single model would.
  const std::uint64_t at_once = std::min(kBlock * ensemble.experts.size(), kMostAtOnce);
  for (std::uint64_t from = 0; from < count; from += at_once) {
    const at::Tensor noise = first_noise(sizes.image, seed, from, std::min(at_once, count - from));
    const at::Tensor made = follow(whole, noise.to(device), static_cast<std::uint32_t>(steps), solver).cpu().contiguous();
    images.insert(images.end(), made.data_ptr<float>(), made.data_ptr<float>() + made.numel());
  }
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
  const std::uint64_t square = static_cast<std::uint64_t>(std::ceil(std::sqrt(static_cast<double>(count))));
  ATOLL_TRY(write_png_grid(options.text("--output"), sizes.image, images, columns == 0 ? square : columns));
  if (options.flag("--json")) {
    std::puts(nlohmann::json{{"schema", 1},
                             {"file", options.text("--output")},
                             {"images", count},
                             {"seconds", spent.count()},
                             {"experts", ensemble.experts.size()}}
                  .dump()
                  .c_str());
  } else {
    std::fprintf(stderr, "wrote %llu images to %s in %.1f s (%.0f ms each)\n", static_cast<unsigned long long>(count),
                 options.text("--output").c_str(), spent.count(), 1000.0 * spent.count() / static_cast<double>(count));
  }
  return {};
}

}  // namespace

int sample(const std::vector<std::string>& arguments) {
  const auto run = [&]() -> Status {
    ATOLL_ASSIGN(const Options options, Options::parse(arguments,
                                                       {{"--folder", ""},
                                                        {"--model", ""},
                                                        {"--count", "64"},
                                                        {"--router", "top-1"},
                                                        {"--steps", "50"},
                                                        {"--seed", "1"},
                                                        {"--solver", "euler"},
                                                        {"--class", ""},
                                                        {"--guidance", "1"},
                                                        {"--columns", "0"},
                                                        {"--threads", "1"},
                                                        {"--device", "cpu"},
                                                        {"--output", ""}},
                                                       {"--json", "--allow-missing", "--dense"}));
    return catching([&]() -> Status { return write_samples(options); });
  };
  if (const Status status = run(); !status) {
    std::fprintf(stderr, "sample: %s\n", status.error().why.c_str());
    return exit_status(status.error().code);
  }
  return 0;
}

}  // namespace atl
