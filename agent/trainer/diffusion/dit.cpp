#include "agent/trainer/diffusion/dit.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "agent/island_link/arena.hpp"
#include "agent/island_link/model_manifest.hpp"
#include "agent/trainer/tensor_values.hpp"
#include "transport/base/rng.hpp"

namespace atl {
namespace {

constexpr auto kFrequencies = static_cast<std::int64_t>(island_link::kTimeFrequencies);
constexpr double kNormEpsilon = 1e-6;

std::uint64_t tokens_of(const DitSizes& sizes) {
  return std::uint64_t{sizes.image.height / sizes.patch} * (sizes.image.width / sizes.patch);
}
std::uint64_t patch_values(const DitSizes& sizes) { return std::uint64_t{sizes.patch} * sizes.patch * sizes.image.channels; }
bool is_router(const DitSizes& sizes) { return sizes.outputs > 0; }

// Sines and cosines of `width / 2` values each: position · 10000^(−i / (width/4)) per axis, as in the authors' get_2d_sincos_pos_embed.
at::Tensor positions_of(const DitSizes& sizes) {
  const auto rows = static_cast<std::int64_t>(sizes.image.height / sizes.patch);
  const auto columns = static_cast<std::int64_t>(sizes.image.width / sizes.patch);
  const auto quarter = static_cast<std::int64_t>(sizes.width / 4);
  at::Tensor table = at::zeros({rows * columns, static_cast<std::int64_t>(sizes.width)}, at::kFloat);
  auto* to = table.data_ptr<float>();
  for (std::int64_t y = 0; y < rows; ++y) {
    for (std::int64_t x = 0; x < columns; ++x, to += sizes.width) {
      for (std::int64_t i = 0; i < quarter; ++i) {
        const double rate = std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(quarter));
        to[i] = static_cast<float>(std::sin(static_cast<double>(x) * rate));
        to[quarter + i] = static_cast<float>(std::cos(static_cast<double>(x) * rate));
        to[2 * quarter + i] = static_cast<float>(std::sin(static_cast<double>(y) * rate));
        to[3 * quarter + i] = static_cast<float>(std::cos(static_cast<double>(y) * rate));
      }
    }
  }
  return table;
}

at::Tensor normalised(const at::Tensor& x) { return at::layer_norm(x, {x.size(-1)}, {}, {}, kNormEpsilon); }
at::Tensor modulated(const at::Tensor& x, const at::Tensor& shift, const at::Tensor& scale) {
  return normalised(x) * (scale + 1.0).unsqueeze(1) + shift.unsqueeze(1);
}

bool contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

}  // namespace

Result<DitSizes> Dit::checked(DitSizes sizes) {
  const auto refuse = [](const std::string& why) { return Error{Code::invalid_argument, "model: " + why}; };
  if (sizes.layers == 0 || sizes.width == 0 || sizes.heads == 0 || sizes.patch == 0) {
    return refuse("layers, width, heads and the patch must be at least 1");
  }
  if (sizes.width % sizes.heads != 0 || sizes.width % 4 != 0) {
    return refuse("width " + std::to_string(sizes.width) + " must be a multiple of heads (" + std::to_string(sizes.heads) + ") and of 4");
  }
  if (sizes.image.values() == 0 || sizes.image.height % sizes.patch != 0 || sizes.image.width % sizes.patch != 0) {
    return refuse("images of " + to_string(sizes.image) + " are no whole number of patches of " + std::to_string(sizes.patch) + " × " +
                  std::to_string(sizes.patch) + "; choose diffusion." + (is_router(sizes) ? "router_" : "") +
                  "patch so that it divides height and width");
  }
  sizes.feed_forward = sizes.feed_forward == 0 ? 4 * sizes.width : sizes.feed_forward;
  return sizes;
}

island_link::Manifest Dit::manifest(const DitSizes& sizes) {
  island_link::Model model;
  model.layers = sizes.layers;
  model.width = sizes.width;
  model.heads = sizes.heads;
  model.feed_forward = sizes.feed_forward;
  return island_link::image_model_manifest(model, {sizes.image.channels, sizes.patch, sizes.classes, sizes.outputs});
}

std::string Dit::describe(const DitSizes& sizes) {
  return nlohmann::json{{"channels", sizes.image.channels},
                        {"height", sizes.image.height},
                        {"width_pixels", sizes.image.width},
                        {"patch", sizes.patch},
                        {"layers", sizes.layers},
                        {"width", sizes.width},
                        {"heads", sizes.heads},
                        {"feed_forward", sizes.feed_forward},
                        {"classes", sizes.classes},
                        {"outputs", sizes.outputs}}
      .dump();
}

Result<DitSizes> Dit::described(const std::string& text) {
  const nlohmann::json object = nlohmann::json::parse(text, nullptr, false);
  DitSizes sizes;
  const auto read = [&](const char* key, std::uint32_t& to) {
    const auto found = object.find(key);
    if (found == object.end() || !found->is_number_unsigned() || found->get<std::uint64_t>() > 1U << 24) {
      return false;
    }
    to = found->get<std::uint32_t>();
    return true;
  };
  const bool complete = object.is_object() && read("channels", sizes.image.channels) && read("height", sizes.image.height) &&
                        read("width_pixels", sizes.image.width) && read("patch", sizes.patch) && read("layers", sizes.layers) &&
                        read("width", sizes.width) && read("heads", sizes.heads) && read("feed_forward", sizes.feed_forward) &&
                        read("classes", sizes.classes) && read("outputs", sizes.outputs);
  if (!complete) {
    return Error{Code::corrupt, "its `atoll.dit` does not describe a diffusion transformer"};
  }
  const Result<DitSizes> good = checked(sizes);
  return good ? good : Result<DitSizes>(Error{Code::corrupt, good.error().why});
}

double Dit::forward_flops(const DitSizes& sizes) {
  const double d = sizes.width;
  const double tokens = static_cast<double>(tokens_of(sizes)) + (is_router(sizes) ? 1.0 : 0.0);
  const double block = tokens * (2.0 * d * (4.0 * d + 2.0 * sizes.feed_forward) + 4.0 * tokens * d) + 12.0 * d * d;
  const double out = is_router(sizes) ? 2.0 * d * sizes.outputs : 2.0 * tokens * d * static_cast<double>(patch_values(sizes));
  return sizes.layers * block + 2.0 * tokens * d * static_cast<double>(patch_values(sizes)) + out +
         2.0 * d * (2.0 * kFrequencies + 3.0 * d);
}

Dit::Dit(const DitSizes& sizes, const at::Tensor& flat) : sizes_(sizes), flat_(flat) {
  std::int64_t at = 0;
  std::size_t next = 0;
  const island_link::Manifest parameters = manifest(sizes);
  const auto leaf = [&]() {
    std::vector<std::int64_t> shape;
    for (const std::uint64_t extent : parameters.parameters[next].shape) {
      shape.push_back(static_cast<std::int64_t>(extent));
    }
    const auto count = static_cast<std::int64_t>(island_link::elements(parameters.parameters[next]));
    ++next;
    // A variable of its own over the same memory: changes of `flat` between steps are no concern of the graph's.
    const at::Tensor tensor = flat.narrow(0, at, count).view(shape).variable_data().set_requires_grad(true);
    leaves_.push_back({tensor, at, shape.size() > 1});
    at += count;
    return tensor;
  };
  const auto linear = [&] {
    const at::Tensor weight = leaf();
    return Linear{weight, leaf()};
  };
  patches_ = linear();
  time_in_ = linear();
  time_out_ = linear();
  class_table_ = sizes.classes > 0 ? leaf() : at::Tensor();
  class_token_ = is_router(sizes) ? leaf() : at::Tensor();
  for (std::uint32_t i = 0; i < sizes.layers; ++i) {
    Block block;
    block.qkv = linear();
    block.projection = linear();
    block.up = linear();
    block.down = linear();
    block.modulation = linear();
    blocks_.push_back(block);
  }
  last_ = linear();
  last_modulation_ = linear();
  positions_ = positions_of(sizes).to(flat.device(), flat.scalar_type());
  ATOLL_CHECK(at == flat.numel(), "the model and its manifest differ");
}

void Dit::initialize(std::uint64_t seed) {
  const at::NoGradGuard no_gradient;
  std::int64_t from = 0;
  for (const island_link::Parameter& parameter : manifest(sizes_).parameters) {
    const at::Tensor values = flat_.narrow(0, from, static_cast<std::int64_t>(island_link::elements(parameter)));
    const std::string& name = parameter.name;
    // Zero: biases, every adaLN modulation and an expert's last layer (adaLN-Zero).
    const bool zero =
        parameter.shape.size() < 2 || contains(name, "adaLN_modulation") || (contains(name, "final_layer.linear") && !is_router(sizes_));
    const bool small = contains(name, "t_embedder") || contains(name, "embedding_table") || contains(name, "class_token");
    const double fans = parameter.shape.size() < 2 ? 1.0 : static_cast<double>(parameter.shape[0] + parameter.shape[1]);
    if (zero) {
      values.zero_();
    } else {
      fill_with_normals(values, seed, stream_of(name), small ? 0.02 : std::sqrt(2.0 / fans));
    }
    from += values.numel();
  }
}

at::Tensor Dit::condition(const at::Tensor& t, const at::Tensor& classes) const {
  const at::Tensor rates = at::exp(at::arange(kFrequencies, t.options()) * (-std::log(10000.0) / static_cast<double>(kFrequencies)));
  const at::Tensor angles = (t * 1000.0).unsqueeze(1) * rates.unsqueeze(0);
  const at::Tensor waves = at::cat({at::cos(angles), at::sin(angles)}, 1);
  at::Tensor c = at::linear(at::silu(at::linear(waves, time_in_.weight, time_in_.bias)), time_out_.weight, time_out_.bias);
  if (class_table_.defined()) {
    const at::Tensor given =
        classes.defined() ? classes : at::full({t.size(0)}, static_cast<std::int64_t>(sizes_.classes), t.options().dtype(at::kLong));
    c = c + at::embedding(class_table_, given);
  }
  return at::silu(c);
}

at::Tensor Dit::block(const Block& block, const at::Tensor& x, const at::Tensor& c) const {
  const std::int64_t batch = x.size(0);
  const std::int64_t tokens = x.size(1);
  const std::int64_t width = sizes_.width;
  const std::int64_t heads = sizes_.heads;
  const std::vector<at::Tensor> m = at::linear(c, block.modulation.weight, block.modulation.bias).chunk(6, 1);
  const std::vector<at::Tensor> qkv = at::linear(modulated(x, m[0], m[1]), block.qkv.weight, block.qkv.bias)
                                          .view({batch, tokens, 3, heads, width / heads})
                                          .permute({2, 0, 3, 1, 4})
                                          .unbind(0);
  const at::Tensor mixed = at::scaled_dot_product_attention(qkv[0], qkv[1], qkv[2]).transpose(1, 2).reshape({batch, tokens, width});
  const at::Tensor attended = x + at::linear(mixed, block.projection.weight, block.projection.bias) * m[2].unsqueeze(1);
  const at::Tensor hidden = at::gelu(at::linear(modulated(attended, m[3], m[4]), block.up.weight, block.up.bias), "tanh");
  return attended + at::linear(hidden, block.down.weight, block.down.bias) * m[5].unsqueeze(1);
}

at::Tensor Dit::forward(const at::Tensor& images, const at::Tensor& t, const at::Tensor& classes) const {
  const std::int64_t batch = images.size(0);
  const std::int64_t p = sizes_.patch;
  const std::int64_t channels = sizes_.image.channels;
  const std::int64_t rows = sizes_.image.height / p;
  const std::int64_t columns = sizes_.image.width / p;
  const at::Tensor cut =
      images.view({batch, channels, rows, p, columns, p}).permute({0, 2, 4, 1, 3, 5}).reshape({batch, rows * columns, channels * p * p});
  at::Tensor x = at::linear(cut, patches_.weight, patches_.bias) + positions_;
  if (class_token_.defined()) {
    x = at::cat({class_token_.unsqueeze(0).expand({batch, 1, static_cast<std::int64_t>(sizes_.width)}), x}, 1);
  }
  const at::Tensor c = condition(t, classes);
  for (const Block& each : blocks_) {
    x = block(each, x, c);
  }
  const std::vector<at::Tensor> m = at::linear(c, last_modulation_.weight, last_modulation_.bias).chunk(2, 1);
  if (class_token_.defined()) {
    const at::Tensor token = modulated(x.narrow(1, 0, 1), m[0], m[1]).squeeze(1);
    return at::linear(token, last_.weight, last_.bias);
  }
  const at::Tensor flow = at::linear(modulated(x, m[0], m[1]), last_.weight, last_.bias);
  return flow.view({batch, rows, columns, channels, p, p}).permute({0, 3, 1, 4, 2, 5}).reshape({batch, channels, rows * p, columns * p});
}

}  // namespace atl
