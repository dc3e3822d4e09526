// Safetensors: the file format of parameters (huggingface/safetensors, README "Format"), read and written.
//
// Layout: u64 little-endian length n of the header · n bytes of JSON · the data. The header is an object
//   { "__metadata__": {text: text}, NAME: {"dtype": "F32", "shape": [..], "data_offsets": [begin, end]}, … }
// whose offsets count from the first byte of the data. Written here: names in byte order, first those of floats, then those of bf16, then
// those of bytes, data in this order without gaps, keys in a fixed order, the header padded with spaces to a multiple of 8; so equal
// tensors and metadata are equal files.
//
// Reading verifies everything before any tensor is handed out, because files come from peers and from other tools: the
// header's length and JSON, duplicate names, shapes that overflow, sizes that disagree with their type and shape, offsets beyond the file,
// overlapping, or that leave bytes unaccounted for. A bad file is `corrupt`, never a crash. Tensors of a type that is not known here may
// stand beside those that are wanted; data need not be aligned, nor the header padded.
// Threads: plain values; a SafetensorsFile may be read by any number of threads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "transport/base/bytes.hpp"
#include "transport/base/disk.hpp"
#include "transport/base/own_disk.hpp"
#include "transport/base/result.hpp"

namespace atl {

inline constexpr std::size_t kMaxSafetensorsHeader = 16ULL << 20;
inline constexpr std::size_t kMaxTensors = 1ULL << 20;
inline constexpr std::size_t kMaxTensorDimensions = 16;

// One tensor as the header describes it; begin and end are bytes of the data section.
struct TensorEntry {
  std::string name;
  std::string dtype;  // "F32", "BF16", "I64", …
  std::vector<std::uint64_t> shape;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

// What a verified header says. Tensors are in the order of their data.
struct SafetensorsHeader {
  std::map<std::string, std::string> metadata;
  std::vector<TensorEntry> tensors;
  [[nodiscard]] const TensorEntry* find(std::string_view name) const;
};

// Reads the JSON of a header whose file holds `data_bytes` bytes of data.
// Errors: corrupt, naming the tensor.
Result<SafetensorsHeader> parse_safetensors_header(std::string_view json, std::uint64_t data_bytes);

// A tensor to write: its name, shape and the values of it in row-major order: floats (F32), bytes (U8), or bf16 as it is encoded (BF16).
struct TensorView {
  std::string name;
  std::vector<std::uint64_t> shape;
  std::span<const float> values;
  std::span<const std::uint8_t> bytes = {};  // if it has any, there are no values
  std::span<const std::byte> bf16 = {};      // 2 bytes a value, little-endian; if it has any, there are neither values nor bytes
};

// Receives consecutive pieces of a file.
using ByteSink = std::function<Status(ByteView)>;

// Length and header of the file that holds these tensors, the data not included; sorts `tensors` into the order of the data.
// Errors: invalid_argument if a name is taken twice or reserved, or a shape does not match its values.
Result<Bytes> make_safetensors_header(std::vector<TensorView>& tensors, const std::map<std::string, std::string>& metadata);

// Writes a whole file to the sink, tensors as they lie in memory (nothing is copied).
Status write_safetensors(std::vector<TensorView> tensors, const std::map<std::string, std::string>& metadata, const ByteSink& sink);

// A file mapped into memory, verified. The mapping lasts as long as this value; pages are read when touched.
class SafetensorsFile {
 public:
  // Errors: not_found, io; corrupt as above.
  static Result<SafetensorsFile> open(const DiskPath& path);
  // Of a path as a person gave it.
  static Result<SafetensorsFile> open(const std::filesystem::path& path) { return open(on_this_machine(path)); }

  [[nodiscard]] const SafetensorsHeader& header() const { return header_; }
  // The floats of an F32 tensor, as long as this value or a copy of it lives. Where they are not aligned in the file the first call copies
  // them. Errors: not_found; invalid_argument for another type; io if there is no memory for the copy.
  [[nodiscard]] Result<std::span<const float>> floats(std::string_view name) const;
  // The bytes of any tensor, as they lie in the file.
  [[nodiscard]] ByteView bytes(const TensorEntry& entry) const { return data_.subspan(entry.begin, entry.end - entry.begin); }

 private:
  SafetensorsFile() = default;
  class Aligned;
  std::shared_ptr<const void> mapping_;
  std::shared_ptr<Aligned> aligned_;
  ByteView data_;
  SafetensorsHeader header_;
};

}  // namespace atl
