#include "transport/bulk/partial_file.hpp"

#include <algorithm>
#include <utility>

namespace atl {
namespace {

// A file that cannot be opened for writing is the disk's fault, whatever the reason: a source is not to blame for a folder that is not
// there.
Result<std::unique_ptr<DiskFile>> open_to_write(const DiskPath& path) {
  Result<std::unique_ptr<DiskFile>> file = path.open(OpenFor::writing);
  return file ? std::move(file) : Result<std::unique_ptr<DiskFile>>(Error{Code::io, file.error().why});
}

}  // namespace

Result<PartialFile> PartialFile::open(DiskPath path, const std::string& what, std::uint64_t size, std::size_t pieces) {
  PartialFile file;
  file.path_ = std::move(path);
  file.what_ = what + "\n";
  ATOLL_ASSIGN(file.bytes_, open_to_write(file.path_ + ".part"));
  ATOLL_ASSIGN(file.have_, open_to_write(file.path_ + ".have"));
  Bytes listed(file.what_.size() + 4 * pieces);
  ATOLL_ASSIGN(const std::size_t got, file.have_->read(0, listed));
  listed.resize(got);
  ATOLL_ASSIGN(const std::uint64_t there, file.bytes_->size());
  if (there != size || !as_text(listed).starts_with(file.what_)) {
    ATOLL_TRY(file.begin_anew());
    ATOLL_TRY(file.bytes_->resize(size));
    return file;
  }
  ByteReader reader(ByteView(listed).subspan(file.what_.size()));
  for (auto piece = reader.read<std::uint32_t>(); piece; piece = reader.read<std::uint32_t>()) {
    if (*piece < pieces) {
      file.found_.push_back(*piece);
    }
  }
  std::sort(file.found_.begin(), file.found_.end());
  file.found_.erase(std::unique(file.found_.begin(), file.found_.end()), file.found_.end());
  return file;
}

Status PartialFile::write(std::uint32_t piece, std::uint64_t offset, ByteView bytes) {
  ATOLL_TRY(bytes_->write(offset, bytes));
  Bytes entry;
  append_le(entry, piece);
  // Whole entries only, even after a torn one.
  ATOLL_ASSIGN(const std::uint64_t size, have_->size());
  const std::uint64_t end = what_.size() + (size - std::min<std::uint64_t>(size, what_.size())) / 4 * 4;
  return have_->write(end, entry);
}

Result<Bytes> PartialFile::read(std::uint64_t offset, std::size_t count) const {
  Bytes bytes(count);
  ATOLL_ASSIGN(const std::size_t got, bytes_->read(offset, bytes));
  bytes.resize(got);
  return bytes;
}

Status PartialFile::begin_anew() {
  found_.clear();
  ATOLL_TRY(have_->resize(0));
  return have_->write(0, as_bytes(what_));
}

Status PartialFile::finish(bool durable) {
  if (durable) {
    ATOLL_TRY(bytes_->sync());
  }
  ATOLL_TRY((path_ + ".part").rename_to(path_));
  ATOLL_TRY((path_ + ".have").remove());
  return durable ? path_.folder().sync_folder() : Status();
}

}  // namespace atl
