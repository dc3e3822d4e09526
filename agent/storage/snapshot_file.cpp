#include "agent/storage/snapshot_file.hpp"

#include <algorithm>
#include <utility>

#include "transport/base/planted.hpp"

namespace atl {
namespace {

// What both have; empty: nothing.
ByteView common(ByteView a, ByteView b) {
  const std::byte* begin = std::max(a.data(), b.data(), std::less<>());
  const std::byte* end = std::min(a.data() + a.size(), b.data() + b.size(), std::less<>());
  return std::less<>()(begin, end) ? ByteView(begin, end) : ByteView();
}

}  // namespace

SnapshotFile::SnapshotFile(DurableFile file, Bytes head, const std::vector<ByteView>& content, std::uint64_t most_kept, std::size_t slice)
    : file_(std::move(file)), slice_(slice), most_kept_(most_kept) {
  const auto first = std::make_shared<const Bytes>(std::move(head));
  pieces_.push_back({*first, first});
  kept_ = first->size();
  for (const ByteView bytes : content) {
    pieces_.push_back({bytes, nullptr});
  }
  std::erase_if(pieces_, [](const Piece& piece) { return piece.bytes.empty(); });
}

bool SnapshotFile::write_some() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !busy_; });
  if (ended()) {
    return false;
  }
  busy_ = true;
  if (pieces_.empty()) {
    syncing_ = true;
    lock.unlock();
    Result<FileFacts> facts = file_.finish();
    lock.lock();
    outcome_ = std::move(facts);
  } else {
    const std::shared_ptr<const Bytes> copy = pieces_.front().copy;
    claimed_ = pieces_.front().bytes.first(std::min(slice_, pieces_.front().bytes.size()));
    lock.unlock();
    Status written = file_.write(claimed_);
    lock.lock();
    if (!pieces_.empty()) {  // else it was closed meanwhile
      pieces_.front().bytes = pieces_.front().bytes.subspan(claimed_.size());
      kept_ -= copy ? claimed_.size() : 0;
      if (pieces_.front().bytes.empty()) {
        pieces_.pop_front();
      }
    }
    claimed_ = {};
    if (!written) {
      outcome_ = written.error();
      pieces_.clear();
    }
  }
  busy_ = syncing_ = false;
  changed_.notify_all();
  return !ended();
}

// Of this memory, what is being written aside.
std::uint64_t SnapshotFile::not_written(ByteView memory) const {
  std::uint64_t bytes = 0;
  for (const Piece& piece : pieces_) {
    bytes += piece.copy ? 0 : common(piece.bytes, memory).size();
  }
  return bytes;
}

void SnapshotFile::keep(ByteView memory) {
  if (ATOLL_PLANTED(snapshot_unkept)) {
    return;
  }
  std::unique_lock lock(mutex_);
  while (!ended()) {
    changed_.wait(lock, [&] { return common(claimed_, memory).empty(); });
    const std::uint64_t bytes = not_written(memory);
    if (bytes == 0 || ended()) {
      return;
    }
    if (kept_ + bytes <= most_kept_) {
      copy(memory);
      return;
    }
    lock.unlock();
    write_some();
    lock.lock();
  }
}

void SnapshotFile::copy(ByteView memory) {
  std::deque<Piece> pieces;
  for (const Piece& piece : pieces_) {
    const ByteView changes = piece.copy ? ByteView() : common(piece.bytes, memory);
    if (changes.empty()) {
      pieces.push_back(piece);
      continue;
    }
    const auto before = static_cast<std::size_t>(changes.data() - piece.bytes.data());
    if (before > 0) {
      pieces.push_back({piece.bytes.first(before), nullptr});
    }
    const auto kept = std::make_shared<const Bytes>(changes.begin(), changes.end());
    pieces.push_back({*kept, kept});
    kept_ += kept->size();
    if (before + changes.size() < piece.bytes.size()) {
      pieces.push_back({piece.bytes.subspan(before + changes.size()), nullptr});
    }
  }
  pieces_ = std::move(pieces);
}

void SnapshotFile::close() {
  std::unique_lock lock(mutex_);
  closed_ = true;
  pieces_.clear();
  changed_.wait(lock, [this] { return !busy_ || syncing_; });
  changed_.notify_all();
}

std::optional<Result<FileFacts>> SnapshotFile::outcome() const {
  const std::lock_guard lock(mutex_);
  return closed_ ? std::nullopt : outcome_;
}

bool SnapshotFile::over() const {
  const std::lock_guard lock(mutex_);
  return ended();
}

Status SnapshotFile::failure() const {
  const std::lock_guard lock(mutex_);
  return outcome_ && !*outcome_ ? Status(outcome_->error()) : Status();
}

}  // namespace atl
