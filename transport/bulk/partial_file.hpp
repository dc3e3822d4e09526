// A file that arrives in pieces, in any order, over any number of restarts: PATH.part holds the bytes, PATH.have which pieces are there.
//
//   PATH.have: one line of text that says what is being fetched (another line: begin anew), then a u32 little-endian for each
//   piece that was written, in the order of arrival.
// After a crash PATH.have may name a piece whose bytes were not yet on the disk: only the digest of the whole says that a
// file is complete.
// Threads: one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "transport/base/bytes.hpp"
#include "transport/base/disk.hpp"
#include "transport/base/result.hpp"

namespace atl {

class PartialFile {
 public:
  // Opens what is there for the same `what` and size, or begins anew. what: one line. Errors: io, naming the path.
  static Result<PartialFile> open(DiskPath path, const std::string& what, std::uint64_t size, std::size_t pieces);
  // Pieces that were there when it was opened.
  [[nodiscard]] const std::vector<std::uint32_t>& found() const { return found_; }
  // Errors: io (a full disk, say).
  Status write(std::uint32_t piece, std::uint64_t offset, ByteView bytes);
  // So many bytes from there, fewer only at the end. Errors: io.
  [[nodiscard]] Result<Bytes> read(std::uint64_t offset, std::size_t count) const;
  // Forgets all pieces. Errors: io.
  Status begin_anew();
  // Gives it its final name; `durable`: once it is on the disk. Errors: io.
  Status finish(bool durable);

 private:
  PartialFile() = default;

  DiskPath path_;
  std::string what_;
  std::unique_ptr<DiskFile> bytes_;
  std::unique_ptr<DiskFile> have_;
  std::vector<std::uint32_t> found_;
};

}  // namespace atl
