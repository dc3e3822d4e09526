#include "agent/service/copy_notes.hpp"

#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "agent/storage/durable_file.hpp"
#include "transport/base/name.hpp"
#include "transport/base/nesting.hpp"
#include "transport/base/own_disk.hpp"

namespace atl::agent {
namespace {

using nlohmann::json;

constexpr std::size_t kDeepestNote = 6;
constexpr std::size_t kLargestProgress = 8ULL << 20;
constexpr std::uint64_t kLargestNumber = std::uint64_t{1} << 62U;
constexpr const char* kWholeFile = "outer.safetensors";

std::uint64_t number_in(const json& from, const char* key) {
  const auto value = from.at(key).get<std::uint64_t>();
  if (!from.at(key).is_number_unsigned() || value > kLargestNumber) {
    throw json::out_of_range::create(401, "a number that cannot be", &from);
  }
  return value;
}

Digest digest_in(const json& from, const char* key) {
  const Result<Digest> digest = digest_from_hex(from.at(key).get<std::string>());
  if (!digest) {
    throw json::out_of_range::create(401, "a digest that cannot be", &from);
  }
  return *digest;
}

// Whatever `read` makes of the text; corrupt if it throws, or says nothing.
template <typename F>
auto read_json(const std::string& text, const std::string& name, const F& read) -> Result<typename decltype(read(json()))::value_type> {
  using Value = typename decltype(read(json()))::value_type;
  if (!json_nests_deeper(text, kDeepestNote)) {
    try {
      if (std::optional<Value> value = read(json::parse(text))) {
        return *std::move(value);
      }
    } catch (const json::exception&) {
      // said below
    }
  }
  return Error{Code::corrupt, name + " in the store is not what atoll writes there"};
}

// "outer.safetensors", or with a number behind it: nothing else is read or removed.
bool is_part_name(const std::string& name, std::size_t number) {
  return name == kWholeFile || name == std::string(kWholeFile) + "." + std::to_string(number);
}

}  // namespace

std::string text_of(const CopyNote& note) {
  json parts = json::array();
  for (const CopyPart& part : note.parts) {
    parts.push_back({{"name", part.name}, {"at", part.at}, {"bytes", part.bytes}, {"sha256", to_hex(part.sha256)}});
  }
  json data = json::array();
  for (const DataRange& part : note.what.data) {
    data.push_back({part.part, part.to});
  }
  const json value = {{"format", 1},
                      {"run", note.what.run.text},
                      {"round", note.what.round.value},
                      {"epoch", note.what.epoch.value},
                      {"digest", to_hex(note.what.digest)},
                      {"bytes", note.what.bytes},
                      {"sha256", to_hex(note.what.sha256)},
                      {"data", std::move(data)},
                      {"parts", std::move(parts)}};
  return value.dump(1) + "\n";
}

Result<CopyNote> copy_note_of(const std::string& text, const std::string& name) {
  return read_json(text, name, [](const json& value) -> std::optional<CopyNote> {
    CopyNote note;
    note.what.run = RunId(value.at("run").get<std::string>());
    note.what.round = Round(number_in(value, "round"));
    note.what.epoch = Epoch(number_in(value, "epoch"));
    note.what.digest = digest_in(value, "digest");
    note.what.bytes = number_in(value, "bytes");
    note.what.sha256 = digest_in(value, "sha256");
    for (const json& part : value.at("data")) {
      note.what.data.push_back(DataRange{part.at(0).get<std::uint32_t>(), 0, part.at(1).get<std::uint64_t>()});
    }
    std::uint64_t offset = 0;
    for (const json& part : value.at("parts")) {
      CopyPart read{part.at("name").get<std::string>(), number_in(part, "at"), number_in(part, "bytes"), digest_in(part, "sha256"), offset};
      if (!is_part_name(read.name, note.parts.size()) || read.bytes > note.what.bytes - offset) {
        return std::nullopt;
      }
      offset += read.bytes;
      note.parts.push_back(std::move(read));
    }
    const bool whole = value.at("format") == 1 && is_name(note.what.run.text) && offset == note.what.bytes;
    return whole ? std::optional(std::move(note)) : std::nullopt;
  });
}

std::string text_of(const NewestNote& note) {
  json value = {{"format", 1}, {"run", note.run.text}};
  for (const Round round : note.rounds) {
    value["rounds"].push_back(round.value);
  }
  return value.dump() + "\n";
}

Result<NewestNote> newest_note_of(const std::string& text, const std::string& name) {
  return read_json(text, name, [](const json& value) -> std::optional<NewestNote> {
    NewestNote note{RunId(value.at("run").get<std::string>()), {}};
    if (value.contains("rounds")) {
      for (const json& round : value.at("rounds")) {
        note.rounds.emplace_back(round.get<std::uint64_t>());
      }
    }
    return is_name(note.run.text) && value.at("format") == 1 ? std::optional(std::move(note)) : std::nullopt;
  });
}

// ----------------------------------------------------------------------------------------------------------------- progress

CopyProgress::CopyProgress(std::filesystem::path path, std::string object, const CopiedCheckpoint& what)
    : path_(std::move(path)), object_(std::move(object)), key_(object_ + " " + to_hex(what.digest) + " " + to_hex(what.sha256)) {
  const Result<Bytes> content = read_file(on_this_machine(path_), kLargestProgress);
  if (!content) {
    return;
  }
  try {
    const json value = json::parse(as_text(*content));
    if (value.at("copy") != key_) {
      Abandoned other{value.at("object").get<std::string>(), value.at("upload").get<std::string>()};
      abandoned_ = other.upload.empty() ? std::nullopt : std::optional(std::move(other));
      return;
    }
    std::vector<Part> parts;
    for (const json& part : value.at("parts")) {
      parts.push_back({digest_in(part, "sha256"), part.at("tag").get<std::string>()});
    }
    upload_ = value.at("upload").get<std::string>();
    parts_ = std::move(parts);
  } catch (const json::exception&) {
    // a leftover that nobody can read: the copy begins anew
  }
}

std::vector<std::string> CopyProgress::tags() const {
  std::vector<std::string> tags;
  for (const Part& part : parts_) {
    tags.push_back(part.tag);
  }
  return tags;
}

Status CopyProgress::begin(const std::string& upload) {
  upload_ = upload;
  parts_.clear();
  return save();
}

Status CopyProgress::add(std::size_t part, const Digest& sha256, const std::string& tag) {
  parts_.resize(part);
  parts_.push_back({sha256, tag});
  return save();
}

void CopyProgress::clear() {
  upload_.clear();
  parts_.clear();
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
}

Status CopyProgress::save() const {
  json parts = json::array();
  for (const Part& part : parts_) {
    parts.push_back({{"sha256", to_hex(part.sha256)}, {"tag", part.tag}});
  }
  const std::string text = json{{"copy", key_}, {"object", object_}, {"upload", upload_}, {"parts", std::move(parts)}}.dump() + "\n";
  return replace_file(on_this_machine(path_), as_bytes(text));
}

}  // namespace atl::agent
