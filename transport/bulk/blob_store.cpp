#include "transport/bulk/blob_store.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "transport/base/check.hpp"
#include "transport/bulk/packing.hpp"

namespace atl {
namespace {

using Range = std::pair<std::uint64_t, std::uint64_t>;  // offset, length

struct Entry {
  Payload payload;                       // of a blob in memory
  std::shared_ptr<const DiskFile> file;  // of a file; closed with the last piece that reads it
  std::uint64_t total = 0;
  std::map<std::uint64_t, std::uint64_t> ready;  // begin → end, disjoint and not touching
  // Of a blob that many read: its pieces packed, each once, the empty pointer where packing does not make them smaller. Together they
  // are pieces of at most `total` bytes, whatever ranges are asked for.
  std::map<Range, std::shared_ptr<const Bytes>> packed;
  std::uint64_t packed_of = 0;

  void keep_packed(const Range& range, const std::shared_ptr<const Bytes>& piece) {
    if (range.second <= total - packed_of && packed.try_emplace(range, piece).second) {
      packed_of += range.second;
    }
  }

  void add_ready(std::uint64_t begin, std::uint64_t end) {
    auto next = ready.upper_bound(begin);
    if (next != ready.begin() && std::prev(next)->second >= begin) {
      next = std::prev(next);
      begin = next->first;
    }
    while (next != ready.end() && next->first <= end) {
      end = std::max(end, next->second);
      next = ready.erase(next);
    }
    ready[begin] = end;
  }
  [[nodiscard]] bool is_ready(std::uint64_t begin, std::uint64_t end) const {
    const auto next = ready.upper_bound(begin);
    return begin == end || (next != ready.begin() && std::prev(next)->second >= end);
  }
};

// What a reader may ask for before it is there. Only exchanges become stale; a pair's decision does not.
bool comes_later(BlobKind kind) {
  return belongs_to_exchange(kind) || kind == BlobKind::promise || kind == BlobKind::verdict || kind == BlobKind::standing;
}
bool open_to_visitors(BlobKind kind) {
  return kind == BlobKind::checkpoint_file || kind == BlobKind::trainer_file || kind == BlobKind::result || kind == BlobKind::content;
}

struct Run {
  std::set<IslandId> members;
  std::set<IslandId> visitors;
  std::map<BlobId, Entry> blobs;
  std::map<Round, std::pair<Epoch, Attempt>> newest;  // attempt begun, by round
  Round first_open;                                   // earlier rounds are finished
  std::optional<Round> results_after;                 // those of later rounds are to come
  std::uint64_t served = 0;
  std::map<Round, BlobStore::Reading> readings;

  [[nodiscard]] bool stale(const BlobId& blob) const {
    if (blob.round < first_open) {
      return true;
    }
    const auto begun = newest.find(blob.round);
    return begun != newest.end() && std::pair(blob.epoch, blob.attempt) < begun->second;
  }
  [[nodiscard]] bool expects(const BlobId& blob) const {
    return blob.kind == BlobKind::result && results_after && blob.round > *results_after;
  }
  [[nodiscard]] bool may_read(const IslandId& reader, BlobKind kind) const {
    return members.contains(reader) || (open_to_visitors(kind) && visitors.contains(reader));
  }
};

// Every member reads a reduced shard; a contribution's ranges have one reader each.
bool is_read_by_many(BlobKind kind) { return kind == BlobKind::reduced; }

// Of a blob that has ready what the want asks for: in memory, or in a file.
StoreAnswer read(const Want& want, std::uint64_t total, const Payload& whole, const DiskFile* file) {
  const auto length = static_cast<std::uint32_t>(std::min<std::uint64_t>(want.length, total - want.offset));
  Served served{BlobPiece{want.blob, want.offset, total, length}, {}};
  if (file == nullptr) {
    served.payload = Payload{whole.bytes.subspan(want.offset, length), whole.owner};
  } else {
    const auto buffer = std::make_shared<Bytes>(length);
    const Result<std::size_t> got = file->read(want.offset, *buffer);
    if (!got || *got < length) {
      return Gone{want.blob, Code::io, got ? "the file became shorter" : got.error().why};
    }
    served.payload = Payload{*buffer, buffer};
  }
  return served;
}

// The bytes packed; the empty pointer if they do not become smaller.
std::shared_ptr<const Bytes> packed_form(ByteView bytes) {
  std::optional<Bytes> packed = pack(bytes);
  return packed ? std::make_shared<const Bytes>(*std::move(packed)) : nullptr;
}

void replace_by(Served& served, const std::shared_ptr<const Bytes>& packed) {
  if (packed) {
    served.piece.packed = static_cast<std::uint32_t>(packed->size());
    served.payload = Payload{*packed, packed};
  }
}

}  // namespace

struct BlobStore::State {
  using Lock = std::unique_lock<std::mutex>;

  mutable std::mutex mutex;
  std::map<RunId, Run> runs;
  ParkedWants parked;
  std::vector<ParkedWant> unparked;
  std::function<void()> listener;

  explicit State(Limits limits) : parked(limits.park_per_reader) {}

  Parked park(const IslandId& reader, const WantOver& asked) {
    parked.park(reader, asked);
    return {};
  }

  void unpark(std::vector<ParkedWant> wants) { std::move(wants.begin(), wants.end(), std::back_inserter(unparked)); }
  void unpark(const std::function<bool(const Want&)>& chosen) { unpark(parked.take(chosen)); }

  void insert(const BlobId& blob, Entry entry) {
    Run& run = runs[blob.run];
    if (belongs_to_exchange(blob.kind)) {
      auto& newest = run.newest[blob.round];
      newest = std::max(newest, std::pair(blob.epoch, blob.attempt));
      std::erase_if(run.blobs, [&](const auto& item) { return belongs_to_exchange(item.first.kind) && run.stale(item.first); });
    }
    run.blobs.insert_or_assign(blob, std::move(entry));
    unpark([&](const Want& want) {
      return want.blob.run == blob.run && (want.blob == blob || (belongs_to_exchange(want.blob.kind) && run.stale(want.blob)));
    });
  }

  // Of the blob that is served from this memory, if it still is.
  void keep_packed(const BlobId& blob, const Payload& whole, const Range& range, const std::shared_ptr<const Bytes>& piece) {
    const auto run = runs.find(blob.run);
    if (run == runs.end()) {
      return;
    }
    const auto found = run->second.blobs.find(blob);
    if (found != run->second.blobs.end() && found->second.payload.owner == whole.owner &&
        found->second.payload.bytes.data() == whole.bytes.data()) {
      found->second.keep_packed(range, piece);
    }
  }

  // That these bytes are on their way to a reader. A run that was forgotten meanwhile counts nothing any more.
  void count(const BlobId& blob, std::uint64_t bytes) {
    const auto run = runs.find(blob.run);
    if (run == runs.end()) {
      return;
    }
    run->second.served += bytes;
    if (belongs_to_exchange(blob.kind)) {
      const TimePoint at = now();
      const auto reading = run->second.readings.try_emplace(blob.round, Reading{at, at, 0}).first;
      reading->second.last = at;
      reading->second.bytes += bytes;
    }
  }

  // Tells the listener, without the lock.
  void tell(Lock lock) {
    if (unparked.empty() || !listener) {
      return;
    }
    const std::function<void()> call = listener;
    lock.unlock();
    call();
  }
};

BlobStore::BlobStore() : BlobStore(Limits{}) {}
BlobStore::BlobStore(Limits limits) : state_(std::make_unique<State>(limits)) {}
BlobStore::~BlobStore() = default;

void BlobStore::set_readers(const RunId& run, std::vector<IslandId> members, std::vector<IslandId> visitors) {
  State::Lock lock(state_->mutex);
  Run& entry = state_->runs[run];
  entry.members = std::set<IslandId>(members.begin(), members.end());
  entry.visitors = std::set<IslandId>(visitors.begin(), visitors.end());
  state_->unpark([&](const Want& want) { return want.blob.run == run; });
  state_->tell(std::move(lock));
}

void BlobStore::put(const BlobId& blob, Payload payload) {
  State::Lock lock(state_->mutex);
  Entry entry;
  entry.total = payload.bytes.size();
  entry.payload = std::move(payload);
  entry.add_ready(0, entry.total);
  state_->insert(blob, std::move(entry));
  state_->tell(std::move(lock));
}

void BlobStore::announce(const BlobId& blob, Payload payload) {
  State::Lock lock(state_->mutex);
  Entry entry;
  entry.total = payload.bytes.size();
  entry.payload = std::move(payload);
  state_->insert(blob, std::move(entry));
  state_->tell(std::move(lock));
}

void BlobStore::mark_ready(const BlobId& blob, std::uint64_t offset, std::uint64_t length) {
  State::Lock lock(state_->mutex);
  const auto run = state_->runs.find(blob.run);
  if (run == state_->runs.end()) {
    return;
  }
  const auto found = run->second.blobs.find(blob);
  if (found == run->second.blobs.end()) {
    return;
  }
  Entry& entry = found->second;
  ATOLL_CHECK(offset <= entry.total && length <= entry.total - offset, "a ready range lies within its blob");
  entry.add_ready(offset, offset + length);
  const std::uint64_t before = std::min<std::uint64_t>(offset, kMaxPieceBytes);  // where a want that reaches into the range may begin
  state_->unpark(state_->parked.take(blob, offset - before, offset + length + (length == 0 ? 1 : 0), [&](const Want& want) {
    return want.offset <= entry.total && entry.is_ready(want.offset, std::min(entry.total, want.offset + want.length));
  }));
  state_->tell(std::move(lock));
}

Status BlobStore::put_file(const BlobId& blob, const DiskPath& path) {
  Result<std::unique_ptr<DiskFile>> opened = path.open(OpenFor::reading);
  const Result<std::uint64_t> size = opened ? (*opened)->size() : opened.error();
  if (!size) {
    return Error{Code::io, "cannot be served: " + size.error().why};
  }
  const std::shared_ptr<const DiskFile> file = *std::move(opened);
  State::Lock lock(state_->mutex);
  Entry entry;
  entry.file = file;
  entry.total = *size;
  entry.add_ready(0, entry.total);
  state_->insert(blob, std::move(entry));
  state_->tell(std::move(lock));
  return {};
}

void BlobStore::withdraw(const BlobId& blob) {
  const State::Lock lock(state_->mutex);
  const auto run = state_->runs.find(blob.run);
  if (run != state_->runs.end()) {
    run->second.blobs.erase(blob);
  }
}

void BlobStore::finish_rounds_before(const RunId& run, Round round) {
  State::Lock lock(state_->mutex);
  Run& entry = state_->runs[run];
  entry.first_open = std::max(entry.first_open, round);
  std::erase_if(entry.newest, [&](const auto& item) { return item.first < entry.first_open; });
  entry.readings.erase(entry.readings.begin(),
                       entry.readings.lower_bound(Round(entry.first_open.value - std::min<std::uint64_t>(entry.first_open.value, 1))));
  std::erase_if(entry.blobs, [&](const auto& item) { return belongs_to_exchange(item.first.kind) && entry.stale(item.first); });
  state_->unpark([&](const Want& want) { return want.blob.run == run && entry.stale(want.blob); });
  state_->tell(std::move(lock));
}

void BlobStore::expect_results_after(const RunId& run, std::optional<Round> round) {
  State::Lock lock(state_->mutex);
  Run& entry = state_->runs[run];
  entry.results_after = round;
  state_->unpark([&](const Want& want) { return want.blob.run == run && want.blob.kind == BlobKind::result && !entry.expects(want.blob); });
  state_->tell(std::move(lock));
}

void BlobStore::withdraw_results_up_to(const RunId& run, Round round) {
  const State::Lock lock(state_->mutex);
  const auto found = state_->runs.find(run);
  if (found != state_->runs.end()) {
    std::erase_if(found->second.blobs, [&](const auto& item) { return item.first.kind == BlobKind::result && item.first.round <= round; });
  }
}

void BlobStore::forget(const RunId& run) {
  const State::Lock lock(state_->mutex);
  state_->runs.erase(run);
  state_->parked.take([&](const Want& want) { return want.blob.run == run; });
}

std::uint64_t BlobStore::bytes_served(const RunId& run) const {
  const State::Lock lock(state_->mutex);
  const auto found = state_->runs.find(run);
  return found == state_->runs.end() ? 0 : found->second.served;
}

std::optional<BlobStore::Reading> BlobStore::read_of_round(const RunId& run, Round round) const {
  const State::Lock lock(state_->mutex);
  const auto found = state_->runs.find(run);
  if (found == state_->runs.end()) {
    return std::nullopt;
  }
  const auto reading = found->second.readings.find(round);
  return reading == found->second.readings.end() ? std::nullopt : std::optional(reading->second);
}

std::size_t BlobStore::parked() const {
  const State::Lock lock(state_->mutex);
  return state_->parked.size();
}

StoreAnswer BlobStore::answer(const IslandId& reader, const WantOver& asked) {
  const Want& want = asked.want;
  if (want.blob.kind == BlobKind::probe) {
    static const auto kZeros = std::make_shared<const Bytes>(kProbeBytes);
    const std::uint64_t offset = std::min<std::uint64_t>(want.offset, kProbeBytes);
    const std::uint64_t count = std::min<std::uint64_t>(want.length, kProbeBytes - offset);
    return Served{BlobPiece{want.blob, offset, kProbeBytes, static_cast<std::uint32_t>(count)},
                  Payload{ByteView(*kZeros).subspan(offset, count), kZeros}};
  }
  State::Lock lock(state_->mutex);
  const bool later = comes_later(want.blob.kind);
  const auto found = state_->runs.find(want.blob.run);
  if (found == state_->runs.end()) {
    return later ? StoreAnswer(state_->park(reader, asked))
                 : Gone{want.blob, Code::unauthorized, "this island does not serve run " + want.blob.run.text};
  }
  const Run& run = found->second;
  if (!run.may_read(reader, want.blob.kind)) {
    return later ? StoreAnswer(state_->park(reader, asked))
                 : Gone{want.blob, Code::unauthorized, "island " + reader.text + " may not read this of run " + want.blob.run.text};
  }
  if (belongs_to_exchange(want.blob.kind) && run.stale(want.blob)) {
    return Gone{want.blob, Code::not_found, "this attempt is over here"};
  }
  const auto blob = run.blobs.find(want.blob);
  if (blob == run.blobs.end()) {
    return later || run.expects(want.blob) ? StoreAnswer(state_->park(reader, asked))
                                           : Gone{want.blob, Code::not_found, "this island does not hold " + describe(want.blob)};
  }
  const Entry& entry = blob->second;
  if (want.offset > entry.total) {
    return Gone{want.blob, Code::invalid_argument, "it has only " + std::to_string(entry.total) + " bytes"};
  }
  const std::uint64_t length = std::min<std::uint64_t>(want.length, entry.total - want.offset);
  if (!entry.is_ready(want.offset, want.offset + length)) {
    return state_->park(reader, asked);
  }
  const std::uint64_t total = entry.total;
  const Payload whole = entry.payload;
  const std::shared_ptr<const DiskFile> file = entry.file;
  const Range range(want.offset, length);
  const auto kept = entry.packed.find(range);
  const bool is_kept = kept != entry.packed.end();
  const std::shared_ptr<const Bytes> known = is_kept ? kept->second : nullptr;
  lock.unlock();
  StoreAnswer answer = read(want, total, whole, file.get());
  auto* const served = std::get_if<Served>(&answer);
  if (served == nullptr) {
    return answer;
  }
  const std::shared_ptr<const Bytes> packed = !want.packed || is_kept ? known : packed_form(served->payload.bytes);
  if (want.packed) {
    replace_by(*served, packed);
  }
  lock.lock();
  if (want.packed && !is_kept && is_read_by_many(want.blob.kind)) {
    state_->keep_packed(want.blob, whole, range, packed);
  }
  state_->count(want.blob, served->payload.bytes.size());
  return answer;
}

std::vector<ParkedWant> BlobStore::take_unparked() {
  const State::Lock lock(state_->mutex);
  return std::exchange(state_->unparked, {});
}

void BlobStore::drop_reader(const IslandId& reader) {
  const State::Lock lock(state_->mutex);
  state_->parked.drop_reader(reader);
  std::erase_if(state_->unparked, [&](const ParkedWant& item) { return item.reader == reader; });
}

void BlobStore::set_listener(std::function<void()> listener) {
  const State::Lock lock(state_->mutex);
  state_->listener = std::move(listener);
}

}  // namespace atl
