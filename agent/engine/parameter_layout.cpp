#include "agent/engine/parameter_layout.hpp"

#include <algorithm>
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
Result<std::vector<std::vector<std::uint32_t>>> group(const island_link::Manifest& manifest, const FragmentPlan& plan) {
  ATOLL_ASSIGN(const std::vector<ParameterInfo> infos, infos_of(manifest));
  ATOLL_ASSIGN(const ArenaLayout layout, lay_out(infos, plan));
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
  ATOLL_ASSIGN(const auto groups, group(manifest, plan));
  ATOLL_ASSIGN(result.layout_, island_link::lay_out(manifest, groups));
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

std::string shown(const island_link::Parameter& parameter, bool block) {
  std::string shape;
  for (const std::uint64_t extent : parameter.shape) {
    shape += (shape.empty() ? "" : " × ") + std::to_string(extent);
  }
  return "'" + make_plain(parameter.name, TextRule::name, 120) + "' (" + (shape.empty() ? "one number" : shape) +
         (block ? ", block " + std::to_string(parameter.block) : "") + ")";
}

}  // namespace

std::string first_difference(const island_link::Manifest& here, const island_link::Manifest& run) {
  const std::size_t common = std::min(here.parameters.size(), run.parameters.size());
  for (std::size_t i = 0; i < common; ++i) {
    const island_link::Parameter& ours = here.parameters[i];
    const island_link::Parameter& theirs = run.parameters[i];
    if (!(ours == theirs)) {
      const bool block = ours.name == theirs.name && ours.shape == theirs.shape;
      return "parameter " + std::to_string(i) + " is " + shown(ours, block) + " here, and " + shown(theirs, block) + " in the run";
    }
  }
  if (here.parameters.size() != run.parameters.size()) {
    const bool more = here.parameters.size() > common;
    return "parameter " + std::to_string(common) + ", " + shown((more ? here : run).parameters[common], false) + ", is missing " +
           (more ? "in the run" : "here");
  }
  if (here.description != run.description) {
    return "the trainer describes its model as \"" + make_plain(here.description.value_or(""), TextRule::name, 120) + "\" here, and as \"" +
           make_plain(run.description.value_or(""), TextRule::name, 120) + "\" in the run";
  }
  return "";
}

std::string ParameterLayout::manifest_text() const {
  Json json = Json::array();
  for (const island_link::Parameter& parameter : manifest_.parameters) {
    json.push_back(Json::array({parameter.name, parameter.block}));
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::vector<TensorView> ParameterLayout::tensors(std::span<const float> parameters, std::span<const float> momentum) const {
  std::vector<TensorView> views;
  for (const island_link::Entry& entry : layout_.entries) {
    const island_link::Parameter& parameter = manifest_.parameters[entry.parameter];
    const std::uint64_t count = island_link::elements(parameter);
    views.push_back({parameter.name, parameter.shape, parameters.subspan(entry.offset, count)});
    if (!momentum.empty()) {
      views.push_back({std::string(kMomentumPrefix) + parameter.name, parameter.shape, momentum.subspan(entry.offset, count)});
    }
  }
  return views;
}

Status ParameterLayout::read(const SafetensorsFile& file, std::span<float> parameters, std::span<float> momentum) const {
  const std::size_t expected = manifest_.parameters.size() * (momentum.empty() ? 1 : 2);
  if (file.header().tensors.size() != expected) {
    return Error{Code::corrupt, "the checkpoint has " + std::to_string(file.header().tensors.size()) + " tensors, the model needs " +
                                    std::to_string(expected)};
  }
  const auto copy = [&](const std::string& name, const island_link::Parameter& parameter, std::span<float> to) -> Status {
    const TensorEntry* entry = file.header().find(name);
    if (entry == nullptr || entry->shape != parameter.shape) {
      return Error{Code::corrupt, "the checkpoint's tensor '" + name + "' is missing or has another shape"};
    }
    ATOLL_ASSIGN(const std::span<const float> values, file.floats(name));
    std::copy(values.begin(), values.end(), to.begin());
    return {};
  };
  for (const island_link::Entry& entry : layout_.entries) {
    const island_link::Parameter& parameter = manifest_.parameters[entry.parameter];
    const std::uint64_t count = island_link::elements(parameter);
    ATOLL_TRY(copy(parameter.name, parameter, parameters.subspan(entry.offset, count)));
    if (!momentum.empty()) {
      ATOLL_TRY(copy(std::string(kMomentumPrefix) + parameter.name, parameter, momentum.subspan(entry.offset, count)));
    }
  }
  return {};
}

}  // namespace atl
