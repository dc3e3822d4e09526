#include "agent/storage/given_tensors.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>
#include <utility>

#include "agent/storage/durable_file.hpp"
#include "transport/base/own_disk.hpp"
#include "transport/base/plain_text.hpp"
#include "transport/identity/sha256.hpp"

namespace atl {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostModelFiles = 10'000;  // each is mapped
constexpr std::string_view kTensorFile = ".safetensors";
constexpr std::string_view kIndexFile = ".safetensors.index.json";

struct ModelFolder {
  std::set<std::string> files;                // with tensors
  std::map<std::string, std::string> places;  // tensor → file, as the index says; empty without an index
  std::string index;
};

// A text of another's for a message.
std::string named(const std::string& text) { return "'" + make_plain(text, TextRule::name, 200) + "'"; }

bool is_file_name(const std::string& name) {
  const auto plain = [](char c) { return static_cast<unsigned char>(c) >= 0x20 && c != '/' && c != '\\'; };  // sha256sum escapes others
  return !name.empty() && name.size() < 256 && name.front() != '.' && std::ranges::all_of(name, plain);
}

Status read_index(const fs::path& path, ModelFolder& folder) {
  ATOLL_ASSIGN(const Bytes content, read_file(on_this_machine(path), kMaxSafetensorsHeader));
  using Json = nlohmann::json;
  std::set<std::string> seen;
  std::string twice;
  bool places = false;
  // A DOM would keep the last of two places silently.
  const auto on_event = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::key && depth == 1) {
      places = parsed == "weight_map";
    } else if (event == Json::parse_event_t::key && depth == 2 && places && !seen.insert(parsed.get<std::string>()).second) {
      twice = parsed.get<std::string>();
    }
    return true;
  };
  const Json index = Json::parse(as_text(content), on_event, false);
  const auto bad = [&](const std::string& why) { return Error{Code::corrupt, path.string() + ": " + why}; };
  const auto map = index.is_object() ? index.find("weight_map") : index.end();
  if (!index.is_object() || map == index.end() || !map->is_object() || map->empty() || map->size() > kMaxTensors) {
    return bad("no index of safetensors files: its `weight_map` is missing or names no tensors");
  }
  if (!twice.empty()) {
    return bad("it places the tensor " + named(twice) + " twice");
  }
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string() || !is_file_name(file.get<std::string>())) {
      return bad("it places the tensor " + named(tensor) + " in " + named(file.dump(-1, ' ', false, Json::error_handler_t::replace)) +
                 ", which is no file of this folder");
    }
    folder.files.insert(file.get<std::string>());
    folder.places.emplace(tensor, file.get<std::string>());
  }
  return folder.files.size() > kMostModelFiles ? Status(bad("it names more than " + std::to_string(kMostModelFiles) + " files")) : Status();
}

// Which of its files are read.
Result<ModelFolder> look_into(const fs::path& path) {
  std::set<std::string> tensors;
  std::set<std::string> indexes;
  std::error_code failure;
  for (fs::directory_iterator at(path, failure); !failure && at != fs::directory_iterator(); at.increment(failure)) {
    const std::string name = at->path().filename().string();
    if (is_file_name(name) && (name.ends_with(kTensorFile) || name.ends_with(kIndexFile))) {
      (name.ends_with(kTensorFile) ? tensors : indexes).insert(name);
    }
  }
  if (failure) {
    return Error{Code::io, path.string() + ": " + failure.message()};
  }
  ModelFolder folder;
  if (tensors.contains("model.safetensors")) {
    folder.files = {"model.safetensors"};
  } else if (indexes.size() == 1) {
    folder.index = *indexes.begin();
    ATOLL_TRY(read_index(path / folder.index, folder));
  } else if (indexes.empty() && tensors.size() == 1) {
    folder.files = tensors;
  } else {
    return Error{Code::invalid_argument, path.string() + ": " + std::to_string(tensors.size()) + " safetensors files and " +
                                             std::to_string(indexes.size()) +
                                             " indexes of such lie there; name one file, or a folder that save_pretrained wrote"};
  }
  for (const std::string& file : folder.files) {
    if (!tensors.contains(file) || !fs::exists(path / file, failure)) {
      return Error{Code::not_found, path.string() + ": " + named(file) + " is not there, and " + named(folder.index) +
                                        " places tensors in it; fetch or write the folder once more"};
    }
  }
  return folder;
}

}  // namespace

Result<GivenTensors> GivenTensors::open(const fs::path& path) {
  GivenTensors given;
  std::error_code failure;
  ModelFolder folder;
  const bool several = fs::is_directory(path, failure);
  if (several) {
    ATOLL_ASSIGN(folder, look_into(path));
  } else {
    folder.files = {""};
  }
  std::vector<std::string> names(folder.files.begin(), folder.files.end());
  for (std::size_t k = 0; k < names.size(); ++k) {
    ATOLL_ASSIGN(SafetensorsFile file, SafetensorsFile::open(several ? path / names[k] : path));
    for (const TensorEntry& entry : file.header().tensors) {
      if (const auto [at, first] = given.places_.emplace(entry.name, k); !first) {
        return Error{Code::corrupt, path.string() + ": the tensor " + named(entry.name) + " is in " + named(names[at->second]) +
                                        " and in " + named(names[k])};
      }
    }
    given.files_.push_back(std::move(file));
  }
  for (const auto& [tensor, file] : folder.places) {
    const auto found = given.places_.find(tensor);
    if (found == given.places_.end() || names[found->second] != file) {
      return Error{Code::corrupt, (path / folder.index).string() + ": it places the tensor " + named(tensor) + " in " + named(file) +
                                      ", which has it not"};
    }
  }
  return given;
}

const SafetensorsFile* GivenTensors::file_with(std::string_view tensor) const {
  const auto found = places_.find(tensor);
  return found == places_.end() ? nullptr : &files_[found->second];
}

Result<Digest> digest_of_given(const fs::path& path) {
  std::error_code failure;
  if (!fs::is_directory(path, failure)) {
    ATOLL_ASSIGN(const FileFacts facts, facts_of(on_this_machine(path)));
    return facts.sha256;
  }
  ATOLL_ASSIGN(ModelFolder folder, look_into(path));
  for (const std::string& name : {folder.index, std::string(kConfigFile)}) {
    if (!name.empty() && fs::exists(path / name, failure)) {
      folder.files.insert(name);
    }
  }
  std::string listing;
  for (const std::string& name : folder.files) {
    ATOLL_ASSIGN(const FileFacts facts, facts_of(on_this_machine(path / name)));
    listing += to_hex(facts.sha256) + "  " + name + "\n";
  }
  return sha256(as_bytes(listing));
}

}  // namespace atl
