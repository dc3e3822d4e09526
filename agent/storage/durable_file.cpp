#include "agent/storage/durable_file.hpp"

#include <algorithm>
#include <utility>

#include "transport/identity/sha256.hpp"

namespace atl {
namespace {

constexpr std::size_t kReadBytes = 1ULL << 20;

}  // namespace

struct DurableFile::State {
  std::unique_ptr<DiskFile> file;
  Sha256 hasher;
  std::uint64_t bytes = 0;
};

DurableFile::DurableFile(std::unique_ptr<State> state) : state_(std::move(state)) {}
DurableFile::DurableFile(DurableFile&& other) noexcept = default;
DurableFile::~DurableFile() = default;

Result<DurableFile> DurableFile::create(const DiskPath& path) {
  auto state = std::make_unique<State>();
  ATOLL_ASSIGN(state->file, path.open(OpenFor::creating));
  return DurableFile(std::move(state));
}

Status DurableFile::write(ByteView bytes) {
  ATOLL_CHECK(state_->file != nullptr, "a finished file takes no more bytes");
  ATOLL_TRY(state_->file->write(state_->bytes, bytes));
  state_->hasher.update(bytes);
  state_->bytes += bytes.size();
  return {};
}

Result<FileFacts> DurableFile::finish() {
  const std::unique_ptr<DiskFile> file = std::move(state_->file);
  ATOLL_TRY(file->sync());
  return FileFacts{state_->bytes, state_->hasher.finish()};
}

Result<FileFacts> facts_of(const DiskPath& path) {
  ATOLL_ASSIGN(const std::unique_ptr<DiskFile> file, path.open(OpenFor::reading));
  ATOLL_ASSIGN(const std::uint64_t size, file->size());
  Sha256 hasher;
  FileFacts facts;
  Bytes buffer(static_cast<std::size_t>(std::clamp<std::uint64_t>(size, 1, kReadBytes)));
  while (true) {
    ATOLL_ASSIGN(const std::size_t got, file->read(facts.bytes, buffer));
    hasher.update(ByteView(buffer).first(got));
    facts.bytes += got;
    if (got < buffer.size()) {
      break;
    }
  }
  facts.sha256 = hasher.finish();
  return facts;
}

Status sync_file(const DiskPath& path) {
  ATOLL_ASSIGN(const std::unique_ptr<DiskFile> file, path.open(OpenFor::reading));
  return file->sync();
}

Status rename_durably(const DiskPath& from, const DiskPath& to) {
  ATOLL_TRY(from.rename_to(to));
  return to.folder().sync_folder();
}

Status make_folders_durably(const DiskPath& path) {
  ATOLL_TRY(path.make_folders());
  ATOLL_TRY(path.folder().sync_folder());
  return path.folder().folder().sync_folder();
}

Status replace_file(const DiskPath& path, ByteView content) {
  const DiskPath fresh = path + ".new";
  ATOLL_ASSIGN(DurableFile file, DurableFile::create(fresh));
  ATOLL_TRY(file.write(content));
  ATOLL_ASSIGN([[maybe_unused]] const FileFacts facts, file.finish());
  return rename_durably(fresh, path);
}

Result<Bytes> read_file(const DiskPath& path, std::size_t most) {
  ATOLL_ASSIGN(const std::unique_ptr<DiskFile> file, path.open(OpenFor::reading));
  ATOLL_ASSIGN(const std::uint64_t size, file->size());
  if (size > most) {
    return Error{Code::corrupt, path.text() + ": longer than " + human_bytes(most)};
  }
  Bytes content(static_cast<std::size_t>(size));
  ATOLL_ASSIGN(const std::size_t got, file->read(0, content));
  content.resize(got);
  return content;
}

}  // namespace atl
