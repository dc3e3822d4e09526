#include "agent/trainer/trainer_state.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <map>
#include <sstream>
#include <vector>

#include "agent/island_link/arena.hpp"
#include "agent/storage/safetensors.hpp"
#include "agent/trainer/new_file.hpp"
#include "transport/base/bytes.hpp"

namespace atl {

namespace {

constexpr std::size_t kLongestData = 100;
constexpr const char* kFile = "/trainer.safetensors";
constexpr std::array<const char*, 4> kSuffixes = {"", ".exp_avg", ".exp_avg_sq", ".ema"};

// A checksum against flipped bits, not against people: four lanes of multiply and rotate.
std::uint64_t checksum(std::span<const float> values) {
  std::array<std::uint64_t, 4> lanes = {1, 2, 3, 4};
  const auto add = [&lanes](std::size_t lane, std::uint64_t word) {
    lanes[lane] = (lanes[lane] ^ word) * 0x9e3779b97f4a7c15ULL;
    lanes[lane] ^= lanes[lane] >> 29;
  };
  std::size_t i = 0;
  for (; i + 8 <= values.size(); i += 8) {
    std::array<std::uint64_t, 4> words;
    std::memcpy(words.data(), values.data() + i, sizeof words);
    for (std::size_t lane = 0; lane < 4; ++lane) {
      add(lane, words[lane]);
    }
  }
  for (; i < values.size(); ++i) {
    std::uint32_t word = 0;
    std::memcpy(&word, &values[i], sizeof word);
    add(i % 4, word);
  }
  std::uint64_t all = values.size();
  for (const std::uint64_t lane : lanes) {
    all = (all ^ lane) * 0x9e3779b97f4a7c15ULL;
    all ^= all >> 32;
  }
  return all;
}

// Those that there are, in the order of their suffixes.
std::vector<std::span<float>> in_order(const TrainerArrays& arrays) {
  std::vector<std::span<float>> all = {arrays.parameters, arrays.first, arrays.second};
  if (!arrays.average.empty()) {
    all.push_back(arrays.average);
  }
  return all;
}

template <typename Values, typename Text>
std::string joined(const Values& values, const Text& text_of) {
  std::string text;
  for (const auto& value : values) {
    text += (text.empty() ? "" : " ") + text_of(value);
  }
  return text;
}

std::string checksums(const TrainerArrays& arrays) {
  return joined(in_order(arrays), [](std::span<float> values) { return std::to_string(checksum(values)); });
}

Result<std::uint64_t> read_number(const std::map<std::string, std::string>& metadata, const std::string& key) {
  const auto found = metadata.find(key);
  std::uint64_t value = 0;
  if (found == metadata.end()) {
    return Error{Code::corrupt, "it has no " + key};
  }
  const char* end = found->second.data() + found->second.size();
  if (std::from_chars(found->second.data(), end, value).ptr != end || found->second.empty()) {
    return Error{Code::corrupt, "its " + key + " is no number"};
  }
  return value;
}

Result<TrainerPlace> read_file(const SafetensorsFile& file, const island_link::Manifest& manifest, const TrainerArrays& arrays) {
  const std::vector<std::span<float>> targets = in_order(arrays);
  std::size_t at = 0;
  for (const island_link::Parameter& parameter : manifest.parameters) {
    const std::size_t count = island_link::elements(parameter);
    for (std::size_t kind = 0; kind < targets.size(); ++kind) {
      const std::string name = parameter.name + kSuffixes[kind];
      const TensorEntry* entry = file.header().find(name);
      if (entry == nullptr || entry->shape != parameter.shape) {
        return Error{Code::corrupt, "it is of another model: no tensor '" + name + "' of the right shape"};
      }
      ATOLL_ASSIGN(const std::span<const float> values, file.floats(name));
      std::copy(values.begin(), values.end(), targets[kind].begin() + static_cast<std::ptrdiff_t>(at));
    }
    at += count;
  }
  if (file.header().tensors.size() != targets.size() * manifest.parameters.size()) {
    return Error{Code::corrupt, "it is of another model: it holds more tensors"};
  }
  const auto& metadata = file.header().metadata;
  const auto sums = metadata.find("atoll.checksums");
  if (sums == metadata.end() || sums->second != checksums(arrays)) {
    return Error{Code::corrupt, "its checksums do not fit its contents"};
  }
  TrainerPlace place;
  ATOLL_ASSIGN(place.step, read_number(metadata, "atoll.step"));
  ATOLL_ASSIGN(place.position, read_number(metadata, "atoll.position"));
  ATOLL_ASSIGN(place.updates, read_number(metadata, "atoll.updates"));
  if (const auto averaged = metadata.find("atoll.averaged_at"); averaged != metadata.end()) {
    std::istringstream words(averaged->second);
    for (std::uint64_t step = 0; words >> step;) {
      place.averaged_at.push_back(step);
    }
  }
  if (const auto data = metadata.find("atoll.data"); data != metadata.end()) {
    place.data = data->second.substr(0, kLongestData);
  }
  return place;
}

}  // namespace

Status save_trainer_state(const std::string& directory, const island_link::Manifest& manifest, const TrainerArrays& arrays,
                          const TrainerPlace& place) {
  const std::vector<std::span<float>> kinds = in_order(arrays);
  std::vector<TensorView> tensors;
  std::size_t at = 0;
  for (const island_link::Parameter& parameter : manifest.parameters) {
    const std::size_t count = island_link::elements(parameter);
    for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
      tensors.push_back({parameter.name + kSuffixes[kind], parameter.shape, kinds[kind].subspan(at, count)});
    }
    at += count;
  }
  std::map<std::string, std::string> metadata = {{"atoll.step", std::to_string(place.step)},
                                                 {"atoll.position", std::to_string(place.position)},
                                                 {"atoll.updates", std::to_string(place.updates)},
                                                 {"atoll.checksums", checksums(arrays)}};
  if (!place.averaged_at.empty()) {
    metadata["atoll.averaged_at"] = joined(place.averaged_at, [](std::uint64_t step) { return std::to_string(step); });
  }
  if (!place.data.empty()) {
    metadata["atoll.data"] = place.data;
  }
  const std::string path = directory + kFile;
  NewFile file(path + ".new");
  ATOLL_TRY(file.opened());
  ATOLL_TRY(write_safetensors(std::move(tensors), metadata, [&file](ByteView bytes) { return file.write(bytes); }));
  ATOLL_TRY(file.keep_as(path));
  return sync_directory(directory);
}

Result<TrainerPlace> load_trainer_state(const std::string& directory, const island_link::Manifest& manifest, const TrainerArrays& arrays) {
  const std::string path = directory + kFile;
  auto file = SafetensorsFile::open(path);
  if (!file) {
    return with_context(std::move(file).error(), "cannot resume from " + path);
  }
  auto place = read_file(*file, manifest, arrays);
  if (!place) {
    return with_context(std::move(place).error(), "cannot resume from " + path);
  }
  return place;
}

}  // namespace atl
