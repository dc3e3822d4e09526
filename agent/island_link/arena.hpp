// The arena: a shared-memory file of float32 that agent and trainer both map. Parameters pass through it, messages do not.
//
// The trainer declares its parameters (Manifest); the agent knows the strategy and lays them out in fragment order, so that
// each fragment is one contiguous range (ArenaLayout). The file has no header: element i is at byte 4·i, little-endian. A
// fragment's range belongs to one side at a time (README.md says when it changes hands), so there is no lock.
// Threads: an Arena is moved between threads freely; who may touch which range when is the protocol's business.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "agent/island_link/messages.hpp"
#include "transport/base/result.hpp"

namespace atl::island_link {

class Arena {
 public:
  // Makes the file, readable for this user only, with its space reserved (a full /dev/shm is an error here, not a crash
  // later), zeroed. The file is removed when this object goes; whoever has it open keeps it. Until then it is locked, so that others see
  // that its owner lives.
  // Errors: conflict if the path exists; io otherwise.
  static Result<Arena> create(const std::string& path, std::uint64_t bytes);
  // In memory of this process alone, zeroed: where no trainer is a process of its own. Errors: io.
  static Result<Arena> of_this_process(std::uint64_t bytes);
  // Maps a file another process made. Errors: io, or corrupt if its size is not `bytes` or not a multiple of 4.
  static Result<Arena> open(const std::string& path, std::uint64_t bytes);

  Arena() = default;
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena();

  [[nodiscard]] std::span<float> floats() const { return floats_; }
  // The range of a fragment; the fragment must lie inside (see check_layout).
  [[nodiscard]] std::span<float> range(const Fragment& fragment) const;
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::uint64_t bytes() const { return floats_.size_bytes(); }

 private:
  void close() noexcept;

  std::string path_;
  std::span<float> floats_;
  int lock_ = -1;  // of the owner: the locked file
};

// Removes the arenas in a folder (files whose names begin so) whose owner is gone: one that was killed could not. Returns their paths.
std::vector<std::string> remove_abandoned_arenas(const std::string& folder, const std::string& prefix);

// The number of elements of a parameter, of a whole manifest.
std::uint64_t elements(const Parameter& parameter);
std::uint64_t elements(const std::vector<Parameter>& parameters);

// Errors: invalid_argument if a manifest has no parameter, one without elements or with more than 2^40, a dimension of 0, an
// empty or repeated name, or a block outside -1…number of parameters.
Status check_manifest(const Manifest& manifest);

// Lays out a manifest: fragment f holds the parameters fragments[f] (indices into the manifest), one after another without
// gaps; fragments follow one another, each beginning at a multiple of 16 elements (64 bytes). The path is left empty.
// Errors: invalid_argument unless every parameter is in exactly one fragment and no fragment is empty.
Result<ArenaLayout> lay_out(const Manifest& manifest, const std::vector<std::vector<std::uint32_t>>& fragments);

// What a trainer checks before it believes a layout: every parameter has one entry, entries do not overlap, every entry lies in
// one fragment, fragments do not overlap, hold nothing but entries, and end inside the file.
// Errors: corrupt, naming the parameter or fragment.
Status check_layout(const Manifest& manifest, const ArenaLayout& layout);

}  // namespace atl::island_link
