// A checkpoint's file of an island, in its state directory, for tests of copying it to a store.
#pragma once

#include <fcntl.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "agent/core/effect.hpp"
#include "agent/service/checkpoint_copy.hpp"
#include "tests/temporary_folder.hpp"
#include "transport/base/file_descriptor.hpp"
#include "transport/identity/sha256.hpp"

namespace atl_test {

inline std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

struct CheckpointToCopy {
  explicit CheckpointToCopy(std::uint64_t round, std::size_t bytes = 350'000) : content(bytes, '\0') {
    for (std::size_t i = 0; i < bytes; ++i) {
      content[i] = static_cast<char>((i * 2654435761U + round) >> 11U);
    }
    path = folder.write("runs/r-1/checkpoints/" + std::to_string(round) + "/outer.safetensors", content);
    what.run = atl::RunId("r-1");
    what.round = atl::Round(round);
    what.epoch = atl::Epoch(7);
    what.digest = atl::sha256(atl::as_bytes("digest of " + std::to_string(round)));
    what.sha256 = atl::sha256(atl::as_bytes(content));
    what.bytes = bytes;
    what.data = {{0, 0, 1'000 * round}, {1, 0, 900 * round}};
    file = atl::FileDescriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  }
  [[nodiscard]] atl::agent::CopyJob job(std::uint64_t part_bytes, std::size_t keep) const {
    return {what, "r-1/", file.get(), keep, true, folder.path() / "progress.json", part_bytes};
  }
  [[nodiscard]] atl::agent::CopyCheckpoint order(const std::string& to) const {
    return {what.run, to, false, 3, what.round, what.epoch, what.digest, what.sha256, what.bytes, what.data};
  }

  std::string content;
  TemporaryFolder folder;
  std::filesystem::path path;
  atl::agent::CopiedCheckpoint what;
  atl::FileDescriptor file;
};

}  // namespace atl_test
