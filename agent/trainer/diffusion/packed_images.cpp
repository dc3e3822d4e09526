#include "agent/trainer/diffusion/packed_images.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "transport/base/rng.hpp"

namespace atl {

using island_link::TaskInput;
using nlohmann::json;

ImageFacts facts_of(const ImageSet& images) { return {images.shape(), images.classes()}; }

std::string to_json(const PartFacts& facts) {
  const ImageShape& shape = facts.images.shape;
  return json{{"images", facts.count},
              {"shape", {shape.channels, shape.height, shape.width}},
              {"classes", facts.images.classes},
              {"bytes", facts.bytes}}
      .dump();
}

Result<PartFacts> part_facts(const SafetensorsFile& file) {
  const auto& metadata = file.header().metadata;
  const auto found = metadata.find(kPartKey);
  const json object = found == metadata.end() ? json() : json::parse(found->second, nullptr, false);
  const auto number = [&](const json& value, std::uint64_t most) {
    return value.is_number_unsigned() && value.get<std::uint64_t>() <= most;
  };
  const bool good = object.is_object() && object.contains("images") && number(object["images"], UINT32_MAX) && object.contains("classes") &&
                    number(object["classes"], UINT32_MAX) && object.contains("bytes") && object["bytes"].is_boolean() &&
                    object.contains("shape") && object["shape"].is_array() && object["shape"].size() == 3 &&
                    std::ranges::all_of(object["shape"], [&](const json& extent) { return number(extent, UINT16_MAX); });
  if (!good) {
    return Error{Code::corrupt, std::string("it does not say under ") + kPartKey + " what its images are"};
  }
  const json& shape = object["shape"];
  return PartFacts{{{shape[0].get<std::uint32_t>(), shape[1].get<std::uint32_t>(), shape[2].get<std::uint32_t>()},
                    object["classes"].get<std::uint32_t>()},
                   object["images"].get<std::size_t>(),
                   object["bytes"].get<bool>()};
}

Result<ImageFacts> facts_together(const std::vector<PartFacts>& parts) {
  ImageFacts all = parts.front().images;
  for (std::size_t p = 1; p < parts.size(); ++p) {
    const PartFacts& part = parts[p];
    const auto unfit = [&](const std::string& what, const std::string& first) {
      return Error{Code::invalid_argument, "the images of task images/" + std::to_string(p) + " " + what + ", those of images/0 " + first +
                                               "; the islands' images are one data set"};
    };
    if (part.images.shape != all.shape) {
      return unfit("are " + to_string(part.images.shape), "are " + to_string(all.shape));
    }
    if (part.bytes != parts.front().bytes) {
      return unfit(part.bytes ? "are bytes" : "are floats", part.bytes ? "are floats" : "are bytes");
    }
    if ((part.images.classes == 0) != (all.classes == 0)) {
      return unfit(all.classes == 0 ? "have labels" : "have no labels", all.classes == 0 ? "have none" : "have some");
    }
    all.classes = std::max(all.classes, part.images.classes);
  }
  return all;
}

std::vector<const TaskInput*> numbered_inputs(const std::vector<TaskInput>& inputs, std::string_view prefix) {
  std::vector<const TaskInput*> found;
  while (true) {
    const std::string name = std::string(prefix) + "/" + std::to_string(found.size());
    const auto input = std::ranges::find(inputs, name, &TaskInput::task);
    if (input == inputs.end()) {
      return found;
    }
    found.push_back(&*input);
  }
}

Result<std::vector<bool>> held_out_of_part(std::size_t count, std::size_t p, std::size_t parts, double fraction, std::uint64_t seed) {
  if (parts == 1) {
    return held_out_images(count, fraction, seed);
  }
  Result<std::vector<bool>> held = held_out_images(count, fraction, stream_of("held out of a part", seed ^ (std::uint64_t{p} << 32)));
  return held ? std::move(held) : Result<std::vector<bool>>(with_context(held.error(), "the images of task images/" + std::to_string(p)));
}

Result<std::vector<bool>> held_out_of_parts(const std::vector<std::size_t>& counts, double fraction, std::uint64_t seed) {
  std::vector<bool> all;
  for (std::size_t p = 0; p < counts.size(); ++p) {
    ATOLL_ASSIGN(const std::vector<bool> held, held_out_of_part(counts[p], p, counts.size(), fraction, seed));
    all.insert(all.end(), held.begin(), held.end());
  }
  return all;
}

Result<SplitImages> open_images(const island_link::Data& data, std::uint64_t seed, const std::vector<TaskInput>& inputs) {
  std::vector<PartFacts> parts;
  std::vector<std::string> files;
  for (const TaskInput* input : numbered_inputs(inputs, "images")) {
    ATOLL_ASSIGN(const SafetensorsFile file, SafetensorsFile::open(input->path));
    const Result<PartFacts> facts = part_facts(file);
    if (!facts) {
      return with_context(facts.error(), input->path);
    }
    parts.push_back(*facts);
    files.push_back(input->path);
  }
  if (!parts.empty()) {
    ATOLL_TRY(facts_together(parts));
  }
  ATOLL_ASSIGN(ImageSet images, parts.empty() ? ImageSet::open(data.files, data.format) : ImageSet::open(files, "safetensors"));
  std::vector<std::size_t> counts = {images.count()};
  if (!parts.empty()) {
    counts.clear();
    std::ranges::transform(parts, std::back_inserter(counts), &PartFacts::count);
  }
  ATOLL_ASSIGN(std::vector<bool> held, held_out_of_parts(counts, data.validation_fraction, seed));
  if (held.size() != images.count()) {
    return Error{Code::corrupt,
                 "the packed images are " + std::to_string(images.count()) + " and say that they are " + std::to_string(held.size())};
  }
  return SplitImages{std::move(images), std::move(held)};
}

}  // namespace atl
