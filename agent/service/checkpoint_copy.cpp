#include "agent/service/checkpoint_copy.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <span>
#include <system_error>
#include <thread>

#include "agent/service/copy_notes.hpp"
#include "agent/storage/durable_file.hpp"
#include "transport/base/file_descriptor.hpp"
#include "transport/base/own_disk.hpp"
#include "transport/identity/sha256.hpp"

namespace atl::agent {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLargestNote = 4ULL << 20;  // of a JSON file there
constexpr std::uint64_t kMostParts = 9'000;       // S3 takes 10,000
constexpr const char* kNewestNote = "newest.json";
constexpr const char* kCopiedFile = "outer.safetensors";

std::string folder_of(const std::string& folder, Round round) { return folder + std::to_string(round.value) + "/"; }
std::string note_of(const std::string& folder, Round round) { return folder_of(folder, round) + "copy.json"; }

template <typename F>
auto tried(const CopyPatience& patience, const F& what) {
  Duration wait = patience.first_wait;
  for (unsigned attempt = 1;; ++attempt) {
    auto result = what();
    if (static_cast<bool>(result) || !worth_retrying(result.error().code) || attempt >= patience.attempts) {
      return result;
    }
    if (!patience.wait) {
      std::this_thread::sleep_for(wait);
    } else if (!patience.wait(wait)) {
      return decltype(result)(Error{Code::cancelled, "stopped"});
    }
    wait *= 2;
  }
}

Result<std::optional<CopyNote>> read_note(const ObjectStore& store, const std::string& folder, Round round, const CopyPatience& patience) {
  const std::string name = note_of(folder, round);
  const Result<std::string> text = tried(patience, [&] { return store.get(name, kLargestNote); });
  if (!text) {
    return text.error().code == Code::not_found ? Result<std::optional<CopyNote>>(std::nullopt)
                                                : Result<std::optional<CopyNote>>(text.error());
  }
  ATOLL_ASSIGN(CopyNote note, copy_note_of(*text, name));
  return std::optional(std::move(note));
}

// Empty if there is none.
Result<NewestNote> read_newest(const ObjectStore& store, const std::string& folder, const CopyPatience& patience) {
  const std::string name = folder + kNewestNote;
  const Result<std::string> text = tried(patience, [&] { return store.get(name, kLargestNote); });
  if (!text) {
    return text.error().code == Code::not_found ? Result<NewestNote>(NewestNote{}) : Result<NewestNote>(text.error());
  }
  return newest_note_of(*text, name);
}

constexpr const char* kIsItTheStore = "; is that the store's own address, and not that of its console, a proxy or a sign-in page?";

// Whatever answers 200 is no store yet. What was put there is looked for before it counts; a store that is slow to show it is asked again.
Error not_kept(const ObjectStore& store, const std::string& name, const std::string& instead, Code code) {
  return {code, store.address() + " took " + name + " and has " + instead + " under that name" + kIsItTheStore};
}

// Writes a small text and reads it back; `good` says whether that is what was to be written.
template <typename Good>
Status put_text(const ObjectStore& store, const std::string& name, const std::string& text, const CopyPatience& patience,
                const Good& good) {
  ATOLL_TRY(tried(patience, [&] { return store.put(name, text); }));
  return tried(patience, [&]() -> Status {
    const Result<std::string> back = store.get(name, kLargestNote);
    if (!back && back.error().code == Code::not_found) {
      return not_kept(store, name, "nothing", Code::unavailable);
    }
    if (!back) {
      return back.error();
    }
    return good(*back) ? Status() : Status(not_kept(store, name, "something else", Code::corrupt));
  });
}

Status put_note(const ObjectStore& store, const std::string& folder, const CopyNote& note, const CopyPatience& patience) {
  const std::string name = note_of(folder, note.what.round);
  return put_text(store, name, text_of(note), patience, [&](const std::string& back) {
    const Result<CopyNote> known = copy_note_of(back, name);
    return known && known->what == note.what;
  });
}

// Another run, or another island, may have written the same note meanwhile: any such note is good.
Status put_newest(const ObjectStore& store, const std::string& name, const NewestNote& note, const CopyPatience& patience) {
  return put_text(store, name, text_of(note), patience, [&](const std::string& back) { return newest_note_of(back, name).has_value(); });
}

// The digest of a range of the file; it also goes into `whole`.
Result<Digest> digest_of(int file, std::uint64_t offset, std::uint64_t bytes, Sha256* whole) {
  Bytes buffer(1U << 20U);
  Sha256 hash;
  for (std::uint64_t done = 0; done < bytes;) {
    const std::size_t most = std::min<std::uint64_t>(buffer.size(), bytes - done);
    const ssize_t got = ::pread(file, buffer.data(), most, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got <= 0) {
      return Error{got == 0 ? Code::corrupt : Code::io,
                   std::string(kCopiedFile) + " cannot be read: " + (got == 0 ? "it ends early" : std::strerror(errno))};
    }
    const ByteView part = ByteView(buffer).first(static_cast<std::size_t>(got));
    hash.update(part);
    if (whole != nullptr) {
      whole->update(part);
    }
    done += static_cast<std::uint64_t>(got);
  }
  return hash.finish();
}

// ----------------------------------------------------------------------------------------------------------------- copying

// One copy on its way: cut into parts, of which those that are there already are not sent again.
class Copying {
 public:
  Copying(const ObjectStore& store, const CopyJob& job, const CopyPatience& patience)
      : store_(store),
        job_(job),
        patience_(patience),
        progress_(job.progress, folder_of(job.folder, job.what.round) + kCopiedFile, job.what) {
    const std::uint64_t least = (job.what.bytes + kMostParts - 1) / kMostParts;
    part_bytes_ = std::max<std::uint64_t>({job.part_bytes, least, 1});
    count_ = std::max<std::uint64_t>(1, (job.what.bytes + part_bytes_ - 1) / part_bytes_);
    uploads_ = count_ > 1 && store.takes_parts();
  }

  Result<CopyDone> run() {
    note_ = CopyNote{job_.what, {}};
    if (store_.takes_parts() && progress_.abandoned()) {
      (void)store_.drop_upload(progress_.abandoned()->object, progress_.abandoned()->upload);  // else the store keeps its parts
    }
    if (uploads_ && progress_.upload().empty()) {
      ATOLL_TRY(begin_upload());
    }
    Sha256 whole;
    for (std::uint64_t i = 0; i < count_; ++i) {
      const std::uint64_t offset = i * part_bytes_;
      const std::uint64_t bytes = std::min(part_bytes_, job_.what.bytes - offset);
      ATOLL_ASSIGN(const Digest sha256, digest_of(job_.file, offset, bytes, &whole));
      const bool own = count_ > 1 && !uploads_;  // an object of its own
      note_.parts.push_back({kCopiedFile + (own ? "." + std::to_string(i) : std::string()), own ? 0 : offset, bytes, sha256, offset});
      if (progress_.has(i, sha256)) {
        done_.present_bytes += bytes;
        continue;
      }
      ATOLL_TRY(send(i, FileRange{job_.file, offset, bytes, sha256}));
      done_.sent_bytes += bytes;
    }
    if (whole.finish() != job_.what.sha256) {
      give_up();
      return Error{Code::corrupt, std::string(kCopiedFile) + " of round " + std::to_string(job_.what.round.value) +
                                      " is not what was written: its SHA-256 is another; it is not copied"};
    }
    if (uploads_) {
      ATOLL_TRY(finish_upload());
    }
    ATOLL_TRY(put_note(store_, job_.folder, note_, patience_));
    progress_.clear();
    return done_;
  }

 private:
  [[nodiscard]] std::string object(std::size_t part) const { return folder_of(job_.folder, job_.what.round) + note_.parts[part].name; }
  [[nodiscard]] std::string whole_object() const { return folder_of(job_.folder, job_.what.round) + kCopiedFile; }

  Status begin_upload() {
    ATOLL_ASSIGN(const std::string upload, tried(patience_, [&] { return store_.begin_upload(whole_object()); }));
    return progress_.begin(upload);
  }

  Status send(std::size_t part, const FileRange& content) {
    if (uploads_) {
      const Result<std::string> tag =
          tried(patience_, [&] { return store_.put_part(whole_object(), progress_.upload(), part + 1, content); });
      if (!tag && tag.error().code == Code::not_found) {
        progress_.clear();  // the store has dropped what was sent: the next try begins anew
        return Error{Code::unavailable, "the store has given up the parts that were sent earlier: " + tag.error().why};
      }
      if (!tag) {
        return tag.error();
      }
      return progress_.add(part, content.sha256, *tag);
    }
    ATOLL_TRY(tried(patience_, [&] { return store_.put(object(part), content); }));
    ATOLL_TRY(tried(patience_, [&] { return store_.takes_parts() ? look_at(part, content) : read_back(part, content); }));
    return progress_.add(part, content.sha256, "");
  }

  // S3 was told the digest, and refuses other bytes: that the object is there is enough.
  Status look_at(std::size_t part, const FileRange& content) const {
    ATOLL_ASSIGN(const std::optional<std::uint64_t> size, store_.size_of(object(part)));
    if (!size) {
      return not_kept(store_, object(part), "nothing", Code::unavailable);
    }
    return *size == content.bytes ? Status() : Status(not_kept(store_, object(part), human_bytes(*size), Code::corrupt));
  }
  Status read_back(std::size_t part, FileRange content) const {
    content.file = -1;
    const Status read = store_.get(object(part), 0, content);
    return !read && read.error().code == Code::corrupt ? Status(Error{Code::corrupt, read.error().why + kIsItTheStore}) : read;
  }

  Status finish_upload() {
    const std::vector<std::string> tags = progress_.tags();
    const Status finished = tried(patience_, [&] { return store_.finish_upload(whole_object(), progress_.upload(), tags); });
    // It may have been done although the answer was lost: then the upload is not known any more.
    if (!finished && finished.error().code != Code::not_found) {
      return finished;
    }
    ATOLL_ASSIGN(const std::optional<std::uint64_t> size, tried(patience_, [&] { return store_.size_of(whole_object()); }));
    if (size == job_.what.bytes) {
      return {};
    }
    progress_.clear();
    return finished ? Status(Error{Code::corrupt,
                                   "the store has " + human_bytes(size.value_or(0)) + " of a file of " + human_bytes(job_.what.bytes)})
                    : Status(Error{Code::unavailable, "the store has given up the parts that were sent earlier"});
  }

  void give_up() {
    if (uploads_) {
      (void)store_.drop_upload(whole_object(), progress_.upload());
    }
    progress_.clear();
  }

  const ObjectStore& store_;
  const CopyJob& job_;
  const CopyPatience& patience_;
  CopyProgress progress_;
  std::uint64_t part_bytes_ = 1;
  std::uint64_t count_ = 1;
  bool uploads_ = false;
  CopyNote note_;
  CopyDone done_;
};

Status remove_copy(const ObjectStore& store, const std::string& folder, Round round, const CopyPatience& patience) {
  const Result<std::optional<CopyNote>> note = read_note(store, folder, round, patience);
  if (!note && note.error().code != Code::corrupt) {
    return note.error();
  }
  ATOLL_TRY(tried(patience, [&] { return store.remove(note_of(folder, round)); }));  // first: it is not whole any more
  std::string last;
  for (const CopyPart& part : note&&* note ? (*note)->parts : std::vector<CopyPart>()) {
    if (part.name != last) {
      ATOLL_TRY(tried(patience, [&] { return store.remove(folder_of(folder, round) + part.name); }));
      last = part.name;
    }
  }
  return {};
}

// Says that there is a whole copy of this round. The oldest copies beyond `keep` go; they are listed until they are gone.
Status enter(const ObjectStore& store, const CopyJob& job, const CopyPatience& patience) {
  const Result<NewestNote> known = read_newest(store, job.folder, patience);
  if (!known && known.error().code != Code::corrupt) {
    return known.error();
  }
  NewestNote newest = known ? *known : NewestNote{};
  newest.run = job.what.run;
  std::erase(newest.rounds, job.what.round);
  newest.rounds.push_back(job.what.round);
  const auto tell = [&] { return put_newest(store, job.folder + kNewestNote, newest, patience); };
  ATOLL_TRY(tell());
  if (job.shared) {
    ATOLL_TRY(put_newest(store, kNewestNote, NewestNote{job.what.run, {}}, patience));
  }
  const std::size_t keep = std::max<std::size_t>(job.keep, 1);
  if (newest.rounds.size() <= keep) {
    return {};
  }
  while (newest.rounds.size() > keep) {
    ATOLL_TRY(remove_copy(store, job.folder, newest.rounds.front(), patience));
    newest.rounds.erase(newest.rounds.begin());
  }
  return tell();
}

}  // namespace

std::string copy_folder(const RunId& run, const std::string& island) { return run.text + "/" + (island.empty() ? "" : island + "/"); }

Result<CopyDone> copy_checkpoint(const ObjectStore& store, const CopyJob& job, const CopyPatience& patience) {
  const Result<std::optional<CopyNote>> there = read_note(store, job.folder, job.what.round, patience);
  if (!there && there.error().code != Code::corrupt) {
    return there.error();
  }
  CopyDone done;
  if (there && *there && (*there)->what.digest == job.what.digest && (*there)->what.sha256 == job.what.sha256) {
    done.present_bytes = job.what.bytes;
  } else {
    ATOLL_ASSIGN(done, Copying(store, job, patience).run());
  }
  ATOLL_TRY(enter(store, job, patience));
  return done;
}

// ----------------------------------------------------------------------------------------------------------------- fetching

Result<std::string> newest_folder(const ObjectStore& store, const CopyPatience& patience) {
  ATOLL_ASSIGN(const NewestNote newest, read_newest(store, "", patience));
  if (newest.run.text.empty()) {
    return Error{Code::not_found, "there is no copy of a checkpoint at " + store.address()};
  }
  return newest.rounds.empty() ? copy_folder(newest.run) : std::string();
}

Result<CopiedCheckpoint> look_at_copy(const ObjectStore& store, const std::string& folder, std::optional<Round> round,
                                      const CopyPatience& patience) {
  const std::string place = store.address() + "/" + folder;
  if (!round) {
    ATOLL_ASSIGN(const NewestNote newest, read_newest(store, folder, patience));
    if (newest.rounds.empty()) {
      return Error{Code::not_found, "there is no copy of a checkpoint at " + place};
    }
    round = newest.rounds.back();
  }
  ATOLL_ASSIGN(const std::optional<CopyNote> note, read_note(store, folder, *round, patience));
  if (!note) {
    return Error{Code::not_found, "there is no copy of the checkpoint of round " + std::to_string(round->value) + " at " + place};
  }
  return note->what;
}

Result<CopiedCheckpoint> fetch_copy(const ObjectStore& store, const std::string& folder, std::optional<Round> round, const fs::path& path,
                                    const CopyPatience& patience) {
  ATOLL_ASSIGN(const CopiedCheckpoint what, look_at_copy(store, folder, round, patience));
  ATOLL_ASSIGN(const std::optional<CopyNote> note, read_note(store, folder, what.round, patience));
  if (!note || note->what != what) {
    return Error{Code::unavailable, "the copy of round " + std::to_string(what.round.value) + " was replaced while it was read"};
  }
  const fs::path partial = path.string() + ".partial";
  const FileDescriptor file(::open(partial.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (!file.is_open() || ::ftruncate(file.get(), static_cast<off_t>(what.bytes)) != 0) {
    return Error{Code::io, "cannot write " + partial.string() + ": " + std::strerror(errno)};
  }
  for (const CopyPart& part : note->parts) {
    const std::uint64_t offset = part.file_offset;
    const Result<Digest> here = digest_of(file.get(), offset, part.bytes, nullptr);
    if (here && *here == part.sha256) {
      continue;  // of an earlier call
    }
    const FileRange into{file.get(), offset, part.bytes, part.sha256};
    ATOLL_TRY(tried(patience, [&] { return store.get(folder_of(folder, what.round) + part.name, part.at, into); }));
  }
  ATOLL_ASSIGN(const Digest whole, digest_of(file.get(), 0, what.bytes, nullptr));
  if (whole != what.sha256) {
    return Error{Code::corrupt, "the parts of round " + std::to_string(what.round.value) + " do not make the checkpoint that was copied"};
  }
  if (::fsync(file.get()) != 0 || ::rename(partial.c_str(), path.c_str()) != 0) {
    return Error{Code::io, "cannot write " + path.string() + ": " + std::strerror(errno)};
  }
  return what;
}

}  // namespace atl::agent
