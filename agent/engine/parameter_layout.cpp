#include "agent/engine/parameter_layout.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "agent/island_link/arena.hpp"
#include "agent/storage/checkpoint.hpp"
#include "transport/base/plain_text.hpp"

namespace atl {
namespace {

using Json = nlohmann::json;

Result<std::vector<ParameterInfo>> infos_of(const island_link::Manifest& manifest) {
  ATOLL_TRY(island_link::check_manifest(manifest));
  std::vector<ParameterInfo> infos;
  for (const island_link::Parameter& parameter : manifest.parameters) {
    ParameterInfo info;
    info.name = parameter.name;
    for (const std::uint64_t extent : parameter.shape) {
      info.shape.push_back(static_cast<std::int64_t>(extent));
    }
    info.block = parameter.block;
    info.count = island_link::elements(parameter);
    infos.push_back(std::move(info));
  }
  return infos;
}

// The parameters of each fragment, as indices into the manifest, in the order of the arena.
std::vector<std::vector<std::uint32_t>> groups_of(const ArenaLayout& layout) {
  std::vector<std::vector<std::uint32_t>> groups(layout.fragments.size());
  for (const ArenaEntry& entry : layout.entries) {
    const auto after = std::upper_bound(layout.fragments.begin(), layout.fragments.end(), entry.offset,
                                        [](std::uint64_t offset, const FragmentRange& range) { return offset < range.offset; });
    groups[static_cast<std::size_t>(after - layout.fragments.begin()) - 1].push_back(entry.parameter);
  }
  return groups;
}

}  // namespace

Result<ParameterLayout> ParameterLayout::make(island_link::Manifest manifest, const FragmentPlan& plan) {
  ParameterLayout result;
  ATOLL_ASSIGN(const std::vector<ParameterInfo> infos, infos_of(manifest));
  ATOLL_ASSIGN(const ArenaLayout layout, lay_out(infos, plan));
  ATOLL_ASSIGN(result.layout_, island_link::lay_out(manifest, groups_of(layout)));
  for (std::uint32_t fragment = 0; fragment < layout.fragments.size(); ++fragment) {
    result.of_embeddings_.push_back(is_of_embeddings(infos, layout, fragment));
  }
  result.manifest_ = std::move(manifest);
  return result;
}

Result<ParameterLayout> ParameterLayout::from_checkpoint(const SafetensorsHeader& header, const FragmentPlan& plan) {
  const auto text = header.metadata.find(kManifestKey);
  if (text == header.metadata.end()) {
    return Error{Code::corrupt, std::string("the file has no metadata ") + kManifestKey + ": it is not a checkpoint's outer state"};
  }
  island_link::Manifest manifest;
  try {
    const Json json = Json::parse(text->second);
    for (const Json& item : json) {
      island_link::Parameter parameter;
      parameter.name = item.at(0).get<std::string>();
      parameter.block = item.at(1).get<std::int32_t>();
      if (item.size() > 2) {
        parameter.buffer = item.at(2).get<std::string>();
      }
      const TensorEntry* entry = header.find(parameter.name);
      if (entry == nullptr) {
        return Error{Code::corrupt, "the file lacks the parameter '" + parameter.name + "'"};
      }
      parameter.shape = entry->shape;
      manifest.parameters.push_back(std::move(parameter));
    }
  } catch (const Json::exception&) {
    return Error{Code::corrupt, std::string("the metadata ") + kManifestKey + " cannot be read"};
  }
  if (const auto description = header.metadata.find(kDescriptionKey); description != header.metadata.end()) {
    manifest.description = description->second;
  }
  Result<ParameterLayout> layout = make(std::move(manifest), plan);
  if (!layout) {
    return Error{Code::corrupt, layout.error().why};
  }
  return layout;
}

namespace {

std::string shown(const std::vector<std::uint64_t>& shape) {
  std::string text;
  for (const std::uint64_t extent : shape) {
    text += (text.empty() ? "" : " × ") + std::to_string(extent);
  }
  return text.empty() ? "one number" : text;
}

// A single number has no dimensions, or is written as [1] by programs that know no such shape.
bool same_shape(const std::vector<std::uint64_t>& one, const std::vector<std::uint64_t>& other) {
  const std::vector<std::uint64_t> number = {1};
  return one == other || (one.empty() && other == number) || (one == number && other.empty());
}

std::string shown(const island_link::Parameter& parameter, bool block) {
  return "'" + make_plain(parameter.name, TextRule::name, 120) + "' (" + shown(parameter.shape) +
         (block ? ", block " + std::to_string(parameter.block) + (parameter.buffer ? ", a buffer: " + *parameter.buffer : "") : "") + ")";
}

std::uint16_t half_at(ByteView bytes, std::size_t index) {
  return static_cast<std::uint16_t>(std::to_integer<unsigned>(bytes[2 * index]) | std::to_integer<unsigned>(bytes[2 * index + 1]) << 8U);
}
float from_bf16(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16U); }
float from_f16(std::uint16_t bits) {
  const int exponent = bits >> 10U & 0x1f;
  const auto fraction = static_cast<float>(bits & 0x3ffU);
  const float size = exponent == 31  ? (fraction == 0 ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN())
                     : exponent == 0 ? std::ldexp(fraction, -24)
                                     : std::ldexp(fraction + 1024.0F, exponent - 25);
  return (bits & 0x8000U) != 0 ? -size : size;
}

}  // namespace

std::string first_difference(const island_link::Manifest& ours, const island_link::Manifest& theirs, const std::string& here,
                             const std::string& there) {
  const std::size_t common = std::min(ours.parameters.size(), theirs.parameters.size());
  for (std::size_t i = 0; i < common; ++i) {
    const island_link::Parameter& one = ours.parameters[i];
    const island_link::Parameter& other = theirs.parameters[i];
    if (!(one == other)) {
      const bool block = one.name == other.name && one.shape == other.shape;
      return "parameter " + std::to_string(i) + " is " + shown(one, block) + " " + here + ", and " + shown(other, block) + " " + there;
    }
  }
  if (ours.parameters.size() != theirs.parameters.size()) {
    const bool more = ours.parameters.size() > common;
    return "parameter " + std::to_string(common) + ", " + shown((more ? ours : theirs).parameters[common], false) + ", is missing " +
           (more ? there : here);
  }
  if (ours.description != theirs.description) {
    return "the trainer describes its model as \"" + make_plain(ours.description.value_or(""), TextRule::name, 120) + "\" " + here +
           ", and as \"" + make_plain(theirs.description.value_or(""), TextRule::name, 120) + "\" " + there;
  }
  return "";
}

Status holds_parameters(const GivenTensors& given, const island_link::Manifest& manifest) {
  for (const island_link::Parameter& parameter : manifest.parameters) {
    const SafetensorsFile* file = given.file_with(parameter.name);
    const TensorEntry* entry = file == nullptr ? nullptr : file->header().find(parameter.name);
    if (entry == nullptr) {
      return Error{Code::invalid_argument, "it has no tensor " + shown(parameter, false)};
    }
    if (!same_shape(entry->shape, parameter.shape)) {
      return Error{Code::invalid_argument, "its tensor is " + shown(entry->shape) + ", and the model's " + shown(parameter, false)};
    }
    if (entry->dtype != "F32" && entry->dtype != "BF16" && entry->dtype != "F16") {
      return Error{Code::invalid_argument, "its tensor " + shown(parameter, false) + " is " + entry->dtype + ", not F32, BF16 or F16"};
    }
  }
  return {};
}

Status ParameterLayout::read_given(const GivenTensors& given, std::span<float> parameters) const {
  ATOLL_TRY(holds_parameters(given, manifest_));
  for (const island_link::Entry& place : layout_.entries) {
    const island_link::Parameter& parameter = manifest_.parameters[place.parameter];
    const SafetensorsFile& file = *given.file_with(parameter.name);
    const TensorEntry& entry = *file.header().find(parameter.name);
    const std::span<float> to = parameters.subspan(place.offset, island_link::elements(parameter));
    if (entry.dtype == "F32") {
      ATOLL_ASSIGN(const std::span<const float> values, file.floats(parameter.name));
      std::ranges::copy(values, to.begin());
      continue;
    }
    const ByteView bytes = file.bytes(entry);
    const auto value_of = entry.dtype == "BF16" ? from_bf16 : from_f16;
    for (std::size_t i = 0; i < to.size(); ++i) {
      to[i] = value_of(half_at(bytes, i));
    }
  }
  return {};
}

std::vector<BufferRange> ParameterLayout::buffers(std::uint32_t fragment) const {
  const island_link::Fragment& range = layout_.fragments[fragment];
  std::vector<BufferRange> found;
  for (const island_link::Entry& entry : layout_.entries) {
    const island_link::Parameter& parameter = manifest_.parameters[entry.parameter];
    if (parameter.buffer && entry.offset >= range.offset && entry.offset < range.offset + range.count) {
      const BufferShare share = *parameter.buffer == island_link::kBufferOfOne ? BufferShare::one : BufferShare::mean;
      found.push_back({entry.offset - range.offset, island_link::elements(parameter), share});
    }
  }
  std::ranges::sort(found, {}, &BufferRange::offset);
  return found;
}

std::string ParameterLayout::manifest_text() const {
  Json json = Json::array();
  for (const island_link::Parameter& parameter : manifest_.parameters) {
    json.push_back(Json::array({parameter.name, parameter.block}));
    if (parameter.buffer) {
      json.back().push_back(*parameter.buffer);
    }
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::vector<TensorView> ParameterLayout::tensors(const std::vector<OuterBuffer>& buffers) const {
  std::vector<TensorView> views;
  for (const island_link::Entry& entry : layout_.entries) {
    const island_link::Parameter& parameter = manifest_.parameters[entry.parameter];
    for (const OuterBuffer& buffer : buffers) {
      const std::span<const std::byte> part = buffer.part(entry.offset, island_link::elements(parameter));
      views.push_back({std::string(buffer.prefix) + parameter.name, parameter.shape, {}});
      if (buffer.format == OuterStateFormat::bf16) {
        views.back().bf16 = part;
      } else {
        views.back().values = {reinterpret_cast<const float*>(part.data()), part.size() / sizeof(float)};
      }
    }
  }
  return views;
}

namespace {

Error not_as_kept(const TensorEntry& entry, std::string_view kept) {
  const std::string setting = std::string(name_of(kept == "BF16" ? OuterStateFormat::bf16 : OuterStateFormat::f32));
  return {Code::corrupt, "the tensor '" + make_plain(entry.name, TextRule::name, 120) + "' is " + entry.dtype +
                             ", and this run keeps it as " + std::string(kept) + " (outer_state = \"" + setting +
                             "\"): the checkpoint was written with another"};
}

}  // namespace

Status ParameterLayout::read(const SafetensorsFile& file, const std::vector<OuterBuffer>& buffers) const {
  const std::size_t expected = manifest_.parameters.size() * buffers.size();
  if (file.header().tensors.size() != expected) {
    return Error{Code::corrupt, "the checkpoint has " + std::to_string(file.header().tensors.size()) + " tensors, the model needs " +
                                    std::to_string(expected)};
  }
  const auto copy = [&](const std::string& name, const island_link::Parameter& parameter, std::string_view dtype,
                        std::span<std::byte> to) -> Status {
    const TensorEntry* entry = file.header().find(name);
    if (entry == nullptr || entry->shape != parameter.shape) {
      return Error{Code::corrupt, "the checkpoint's tensor '" + name + "' is missing or has another shape"};
    }
    if (entry->dtype != dtype) {
      return not_as_kept(*entry, dtype);
    }
    std::ranges::copy(file.bytes(*entry), to.begin());
    return {};
  };
  for (const island_link::Entry& entry : layout_.entries) {
    const island_link::Parameter& parameter = manifest_.parameters[entry.parameter];
    for (const OuterBuffer& buffer : buffers) {
      ATOLL_TRY(copy(std::string(buffer.prefix) + parameter.name, parameter, buffer.format == OuterStateFormat::bf16 ? "BF16" : "F32",
                     buffer.part(entry.offset, island_link::elements(parameter))));
    }
  }
  return {};
}

}  // namespace atl
