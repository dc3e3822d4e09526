// A file of what memory holds at one instant, written while the owner of the memory goes on: what is about to change is copied first.
//
// The bytes go into the file in one pass, hashed on the way, a slice at a time; nothing is copied that does not change before its turn.
// Threads: `write_some` may be called by another thread than the rest; two that call it take turns.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "agent/storage/durable_file.hpp"
#include "transport/base/bytes.hpp"
#include "transport/base/result.hpp"

namespace atl {

class SnapshotFile {
 public:
  static constexpr std::size_t kSlice = 8ULL << 20;

  // The file is `head`, then `content`, which stays where it is until there is an outcome or `close` returns. most_kept: so many bytes are
  // copied at a time; where more are about to change their owner waits until they are written.
  SnapshotFile(DurableFile file, Bytes head, const std::vector<ByteView>& content, std::uint64_t most_kept, std::size_t slice = kSlice);

  // Writes the next slice, at the end syncs the file; false: it is over. Cost: a slice's hash and its write, or the sync.
  bool write_some();
  // This memory is about to change. Afterwards the file has of it what it holds now, whatever becomes of it. Cost: a copy of what is not
  // written yet, or the writing of it.
  void keep(ByteView memory);
  // What is not written yet is not wanted any more. Afterwards nothing is read of the memory, and nothing written.
  void close();

  // Nothing: it is being written, or was closed.
  [[nodiscard]] std::optional<Result<FileFacts>> outcome() const;
  [[nodiscard]] bool over() const;
  // Why it could not be written; none: it is, or is being written.
  [[nodiscard]] Status failure() const;

 private:
  struct Piece {
    ByteView bytes;
    std::shared_ptr<const Bytes> copy;  // what the bytes lie in, if they are no longer the owner's
  };
  [[nodiscard]] bool ended() const { return closed_ || outcome_.has_value(); }
  [[nodiscard]] std::uint64_t not_written(ByteView memory) const;
  void copy(ByteView memory);

  DurableFile file_;  // of whoever is `busy_`
  const std::size_t slice_;
  const std::uint64_t most_kept_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Under the mutex:
  std::deque<Piece> pieces_;  // not written yet; the first begins with `claimed_`
  ByteView claimed_;          // being written
  bool busy_ = false;         // somebody writes, or
  bool syncing_ = false;      // syncs
  bool closed_ = false;
  std::uint64_t kept_ = 0;  // bytes of copies
  std::optional<Result<FileFacts>> outcome_;
};

}  // namespace atl
