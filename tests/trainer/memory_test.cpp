// Writing with a memory of what was read is writing without one, only sooner.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <vector>

#undef CHECK  // LibTorch's logging has one, too
#include "agent/island_link/arena.hpp"
#include "agent/island_link/model_manifest.hpp"
#include "agent/trainer/language/model.hpp"
#include "agent/trainer/language/sampling.hpp"
#include "tests/catch.hpp"
#include "tests/trainer/tensor_digest.hpp"

using namespace atl;

namespace {

constexpr std::int64_t kContext = 96;

at::Tensor tokens_of(std::vector<std::int64_t>& tokens) {
  return at::from_blob(tokens.data(), {static_cast<std::int64_t>(tokens.size())}, at::kLong);
}

std::int64_t choose(const at::Tensor& logits, const Sampling& sampling, Rng& rng) {
  return draw({logits.data_ptr<float>(), static_cast<std::size_t>(logits.numel())}, sampling, rng);
}

}  // namespace

TEST_CASE("with a memory of its tokens a model writes the same text as without, likeliest or drawn with a seed") {
  const at::NoGradGuard no_gradient;
  for (const bool tied : {false, true}) {
    const island_link::Model sizes = island_link::checked_model({3, 32, 4, 0, 61, tied}).value();
    const at::Tensor flat = at::empty({static_cast<std::int64_t>(island_link::elements(Model::manifest(sizes).parameters))});
    Model model(sizes, kContext, flat);
    model.initialize(5);
    CHECK(atl_test::digest_of(flat) == (tied ? "94c7d492127bbd6d" : "9c487389ecbf9462"));  // every island of every version begins so
    flat.mul_(3.0);  // so that it has something to say; more would show rounding, not reading
    for (const Sampling& sampling : {Sampling{0.0, 0}, Sampling{0.8, 40}, Sampling{1.3, 0}}) {
      std::vector<std::int64_t> prompt = {7, 3, 60, 0, 21};
      std::vector<std::int64_t> whole = prompt;
      std::vector<std::int64_t> remembered = prompt;
      Rng first(9, stream_of("generate"));
      Rng second(9, stream_of("generate"));
      Model::Memory memory = model.empty_memory();
      at::Tensor expected = model.logits_after(memory, tokens_of(prompt));
      double worst = 0;
      while (remembered.size() < kContext) {
        const at::Tensor all = model.logits(tokens_of(whole).view({1, -1}));
        const at::Tensor last = all.select(0, all.size(0) - 1).contiguous();
        worst = std::max(worst, (last - expected).abs().max().item<double>() / (1.0 + last.abs().max().item<double>()));
        whole.push_back(choose(last, sampling, first));
        remembered.push_back(choose(expected, sampling, second));
        std::vector<std::int64_t> newest = {remembered.back()};
        expected = model.logits_after(memory, tokens_of(newest));
      }
      CHECK(worst < 1e-5);
      CHECK(remembered == whole);
      CHECK(memory.length == kContext);
    }
  }
}

TEST_CASE("it does not matter in what portions a memory is fed") {
  const at::NoGradGuard no_gradient;
  const island_link::Model sizes = island_link::checked_model({2, 24, 2, 0, 33, false}).value();
  const at::Tensor flat = at::empty({static_cast<std::int64_t>(island_link::elements(Model::manifest(sizes).parameters))});
  Model model(sizes, kContext, flat);
  model.initialize(6);
  flat.mul_(12.0);
  at::manual_seed(4);
  const at::Tensor tokens = at::randint(33, {kContext}, at::kLong);
  Model::Memory at_once = model.empty_memory();
  const at::Tensor expected = model.logits_after(at_once, tokens);
  for (const std::int64_t portion : {1, 7, 64, 95}) {
    Model::Memory memory = model.empty_memory();
    at::Tensor logits;
    for (std::int64_t from = 0; from < kContext; from += portion) {
      logits = model.logits_after(memory, tokens.narrow(0, from, std::min(portion, kContext - from)));
    }
    CHECK((logits - expected).abs().max().item<double>() < 1e-5 * (1.0 + expected.abs().max().item<double>()));
  }
}
