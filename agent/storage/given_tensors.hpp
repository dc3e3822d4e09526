// The tensors that a run begins with: of one safetensors file, or of a folder as Hugging Face's `save_pretrained` writes it.
//
// Of a folder are read config.json, where it is there, and model.safetensors; else the files that its one *.safetensors.index.json places
// tensors in; else its one *.safetensors. The SHA-256 of a folder is that of what `sha256sum` prints of these files, the index included, in
// the byte order of their names. What is read lies in the folder itself, links to elsewhere included: a name with a slash is refused.
// Threads: plain values; files are read when a function is called.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "agent/storage/safetensors.hpp"
#include "transport/base/bytes.hpp"
#include "transport/base/result.hpp"

namespace atl {

inline constexpr const char* kConfigFile = "config.json";

class GivenTensors {
 public:
  // Of a file or a folder. Errors: not_found, naming what is missing; io; corrupt for a file or an index that is damaged, or one that does
  // not place the tensors where they are; invalid_argument for a folder of which nobody can say which files are meant.
  static Result<GivenTensors> open(const std::filesystem::path& path);

  // The file that has this tensor, as long as this value lives; null if none has.
  [[nodiscard]] const SafetensorsFile* file_with(std::string_view tensor) const;

 private:
  GivenTensors() = default;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, std::size_t, std::less<>> places_;  // tensor → its file
};

// The SHA-256 of a file or a folder. Errors: as above, of the files' names alone. Cost: reads all of it once.
Result<Digest> digest_of_given(const std::filesystem::path& path);

}  // namespace atl
