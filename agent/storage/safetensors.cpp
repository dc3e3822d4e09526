#include "agent/storage/safetensors.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <new>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <utility>

namespace atl {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kMetadataKey = "__metadata__";
constexpr std::size_t kLongestType = 32;

Error corrupt(std::string why) { return Error{Code::corrupt, std::move(why)}; }

// Bytes of one element; 0 for a type that is not known.
std::uint64_t element_bytes(std::string_view dtype) {
  static constexpr std::array<std::pair<std::string_view, std::uint64_t>, 14> kTypes = {{{"BOOL", 1},
                                                                                         {"U8", 1},
                                                                                         {"I8", 1},
                                                                                         {"F8_E5M2", 1},
                                                                                         {"F8_E4M3", 1},
                                                                                         {"I16", 2},
                                                                                         {"U16", 2},
                                                                                         {"F16", 2},
                                                                                         {"BF16", 2},
                                                                                         {"I32", 4},
                                                                                         {"U32", 4},
                                                                                         {"F32", 4},
                                                                                         {"I64", 8},
                                                                                         {"F64", 8}}};
  for (const auto& [name, bytes] : kTypes) {
    if (name == dtype) {
      return bytes;
    }
  }
  return dtype == "U64" ? 8 : 0;
}

std::string_view dtype_of(const TensorView& tensor) { return !tensor.bf16.empty() ? "BF16" : !tensor.bytes.empty() ? "U8" : "F32"; }

std::size_t values_in(const TensorView& tensor) {
  return !tensor.bf16.empty() ? tensor.bf16.size() / 2 : !tensor.bytes.empty() ? tensor.bytes.size() : tensor.values.size();
}

ByteView data_of(const TensorView& tensor) {
  return !tensor.bf16.empty() ? tensor.bf16 : !tensor.bytes.empty() ? std::as_bytes(tensor.bytes) : std::as_bytes(tensor.values);
}

// Parses JSON, refusing keys that occur twice in the root object (a DOM would keep the last one silently).
Result<Json> parse_unique(std::string_view text) {
  std::set<std::string> seen;
  std::string twice;
  const auto on_event = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::key && depth == 1 && !seen.insert(parsed.get<std::string>()).second) {
      twice = parsed.get<std::string>();
    }
    return true;
  };
  Json root;
  try {
    root = Json::parse(text.begin(), text.end(), on_event);
  } catch (const Json::exception&) {
    return corrupt("the header is not JSON");
  }
  if (!twice.empty()) {
    return corrupt("the tensor '" + twice + "' is listed twice");
  }
  if (!root.is_object()) {
    return corrupt("the header is not a JSON object");
  }
  return root;
}

Result<std::vector<std::uint64_t>> read_counts(const Json& value, std::size_t most) {
  if (!value.is_array() || value.size() > most) {
    return corrupt("a list of numbers is missing or too long");
  }
  std::vector<std::uint64_t> counts;
  for (const Json& item : value) {
    if (!item.is_number_unsigned()) {
      return corrupt("a dimension or offset is not a whole number");
    }
    counts.push_back(item.get<std::uint64_t>());
  }
  return counts;
}

Result<TensorEntry> read_entry(const std::string& name, const Json& value, std::uint64_t data_bytes) {
  if (!value.is_object() || value.size() != 3 || !value.contains("dtype") || !value.contains("shape") || !value.contains("data_offsets") ||
      !value["dtype"].is_string()) {
    return corrupt("its entry is not {dtype, shape, data_offsets}");
  }
  TensorEntry entry;
  entry.name = name;
  entry.dtype = value["dtype"].get<std::string>();
  ATOLL_ASSIGN(entry.shape, read_counts(value["shape"], kMaxTensorDimensions));
  ATOLL_ASSIGN(const std::vector<std::uint64_t> offsets, read_counts(value["data_offsets"], 2));
  if (entry.dtype.empty() || entry.dtype.size() > kLongestType) {
    return corrupt("its type is not one");
  }
  const std::uint64_t width = element_bytes(entry.dtype);
  std::uint64_t bytes = std::max<std::uint64_t>(width, 1);
  for (const std::uint64_t extent : entry.shape) {
    if (__builtin_mul_overflow(bytes, extent, &bytes)) {
      return corrupt("its shape is too large");
    }
  }
  if (offsets.size() != 2 || offsets[0] > offsets[1] || offsets[1] > data_bytes) {
    return corrupt("its data lies outside the file");
  }
  entry.begin = offsets[0];
  entry.end = offsets[1];
  // Of a type that is not known (of half a byte, say) nobody here can say what it takes.
  if (width != 0 && entry.end - entry.begin != bytes) {
    return corrupt("its size does not match its shape and type");
  }
  return entry;
}

Status read_metadata(const Json& value, std::map<std::string, std::string>& metadata) {
  if (!value.is_object()) {
    return corrupt("__metadata__ is not an object");
  }
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string()) {
      return corrupt("__metadata__ holds something that is not text");
    }
    metadata.emplace(key, text.get<std::string>());
  }
  return {};
}

std::string json_text(const std::string& text) { return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace); }

std::uint64_t element_count(const std::vector<std::uint64_t>& shape) {
  std::uint64_t count = 1;
  for (const std::uint64_t extent : shape) {
    if (__builtin_mul_overflow(count, extent, &count)) {
      return ~0ULL;
    }
  }
  return count;
}

}  // namespace

const TensorEntry* SafetensorsHeader::find(std::string_view name) const {
  const auto found = std::find_if(tensors.begin(), tensors.end(), [&](const TensorEntry& entry) { return entry.name == name; });
  return found == tensors.end() ? nullptr : &*found;
}

Result<SafetensorsHeader> parse_safetensors_header(std::string_view json, std::uint64_t data_bytes) {
  ATOLL_ASSIGN(const Json root, parse_unique(json));
  if (root.size() > kMaxTensors) {
    return corrupt("the header lists too many tensors");
  }
  SafetensorsHeader header;
  for (const auto& [name, value] : root.items()) {
    if (name == kMetadataKey) {
      ATOLL_TRY(read_metadata(value, header.metadata));
      continue;
    }
    Result<TensorEntry> entry = read_entry(name, value, data_bytes);
    if (!entry) {
      return with_context(entry.error(), "tensor '" + name.substr(0, 200) + "'");
    }
    header.tensors.push_back(*std::move(entry));
  }
  std::sort(header.tensors.begin(), header.tensors.end(),
            [](const TensorEntry& a, const TensorEntry& b) { return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name); });
  std::uint64_t at = 0;
  for (const TensorEntry& entry : header.tensors) {
    if (entry.begin != at) {
      return corrupt("tensor '" + entry.name.substr(0, 200) + "': its data " + (entry.begin < at ? "overlaps another's" : "leaves a gap"));
    }
    at = entry.end;
  }
  if (at != data_bytes) {
    return corrupt("the file holds " + std::to_string(data_bytes) + " bytes of data, the header accounts for " + std::to_string(at));
  }
  return header;
}

Result<Bytes> make_safetensors_header(std::vector<TensorView>& tensors, const std::map<std::string, std::string>& metadata) {
  // Wider values come first, so that all are aligned.
  const auto place = [](const TensorView& tensor) { return std::tuple(!tensor.bytes.empty(), !tensor.bf16.empty(), tensor.name); };
  std::sort(tensors.begin(), tensors.end(), [&](const TensorView& a, const TensorView& b) { return place(a) < place(b); });
  std::string json = "{";
  if (!metadata.empty()) {
    json += json_text(std::string(kMetadataKey)) + ":{";
    for (const auto& [key, text] : metadata) {
      json += (json.back() == '{' ? "" : ",") + json_text(key) + ":" + json_text(text);
    }
    json += "}";
  }
  std::uint64_t at = 0;
  std::set<std::string> names;
  for (const TensorView& tensor : tensors) {
    if (tensor.name == kMetadataKey || !names.insert(tensor.name).second) {
      return Error{Code::invalid_argument, "the tensor name '" + tensor.name + "' is reserved or taken twice"};
    }
    if (element_count(tensor.shape) != values_in(tensor)) {
      return Error{Code::invalid_argument, "the tensor '" + tensor.name + "' has values that do not fill its shape"};
    }
    json += (json.size() == 1 ? "" : ",") + json_text(tensor.name) + R"(:{"dtype":")" + std::string(dtype_of(tensor)) + R"(","shape":[)";
    for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
      json += (i == 0 ? "" : ",") + std::to_string(tensor.shape[i]);
    }
    const std::uint64_t end = at + data_of(tensor).size();
    json += R"(],"data_offsets":[)" + std::to_string(at) + "," + std::to_string(end) + "]}";
    at = end;
  }
  json += "}";
  json.append((8 - json.size() % 8) % 8, ' ');
  if (json.size() > kMaxSafetensorsHeader) {
    return Error{Code::invalid_argument, "the header of " + std::to_string(tensors.size()) + " tensors is too long"};
  }
  Bytes out;
  out.reserve(8 + json.size());
  append_le(out, static_cast<std::uint64_t>(json.size()));
  const ByteView text = as_bytes(json);
  out.insert(out.end(), text.begin(), text.end());
  return out;
}

Status write_safetensors(std::vector<TensorView> tensors, const std::map<std::string, std::string>& metadata, const ByteSink& sink) {
  ATOLL_ASSIGN(const Bytes header, make_safetensors_header(tensors, metadata));
  ATOLL_TRY(sink(header));
  for (const TensorView& tensor : tensors) {
    ATOLL_TRY(sink(data_of(tensor)));
  }
  return {};
}

// The format has no rule that data are aligned, and the header need not be padded: such floats are copied once.
class SafetensorsFile::Aligned {
 public:
  Result<std::span<const float>> copy_of(const std::string& name, ByteView raw) {
    const std::lock_guard lock(mutex_);
    try {
      std::vector<float>& copy = copies_[name];
      if (copy.empty()) {
        copy.resize(raw.size() / sizeof(float));
        std::memcpy(copy.data(), raw.data(), copy.size() * sizeof(float));
      }
      return std::span<const float>(copy);
    } catch (const std::bad_alloc&) {
      return Error{Code::io, "there is not enough memory for a copy of the tensor '" + name + "', which is not aligned in the file"};
    }
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::vector<float>> copies_;
};

Result<SafetensorsFile> SafetensorsFile::open(const DiskPath& path) {
  const std::string name = path.text();
  ATOLL_ASSIGN(const std::unique_ptr<DiskFile> opened, path.open(OpenFor::reading));
  ATOLL_ASSIGN(const MappedBytes mapped, opened->map());
  const ByteView all = mapped.bytes;
  if (all.size() < 8) {
    return corrupt(name + ": too short for a safetensors file");
  }
  ByteReader reader(all);
  const std::uint64_t length = reader.read<std::uint64_t>().value();
  if (length > kMaxSafetensorsHeader || length > all.size() - 8) {
    return corrupt(name + ": the header's length of " + std::to_string(length) + " bytes is impossible; not a safetensors file");
  }
  SafetensorsFile file;
  file.aligned_ = std::make_shared<Aligned>();
  file.mapping_ = mapped.owner;
  file.data_ = all.subspan(8 + length);
  Result<SafetensorsHeader> header = parse_safetensors_header(as_text(all.subspan(8, length)), file.data_.size());
  if (!header) {
    return with_context(header.error(), name);
  }
  file.header_ = *std::move(header);
  return file;
}

Result<std::span<const float>> SafetensorsFile::floats(std::string_view name) const {
  const TensorEntry* entry = header_.find(name);
  if (entry == nullptr) {
    return Error{Code::not_found, "the file has no tensor '" + std::string(name) + "'"};
  }
  if (entry->dtype != "F32") {
    return Error{Code::invalid_argument, "the tensor '" + entry->name + "' is " + entry->dtype + ", not F32"};
  }
  const ByteView raw = bytes(*entry);
  if (reinterpret_cast<std::uintptr_t>(raw.data()) % alignof(float) != 0) {
    return aligned_->copy_of(entry->name, raw);
  }
  return std::span<const float>(reinterpret_cast<const float*>(raw.data()), raw.size() / sizeof(float));
}

}  // namespace atl
