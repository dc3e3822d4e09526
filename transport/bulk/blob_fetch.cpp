#include "transport/bulk/blob_fetch.hpp"

#include <algorithm>
#include <utility>

#include "transport/base/check.hpp"
#include "transport/bulk/link_memory.hpp"
#include "transport/bulk/partial_file.hpp"
#include "transport/identity/sha256.hpp"

namespace atl {
namespace {

constexpr std::size_t kNobody = SIZE_MAX;
constexpr Duration kUntilAllowed = std::chrono::milliseconds(50);  // before who may not read yet asks again

struct FetchSource {
  IslandId island;
  bool dropped = false;
  std::size_t asked = 0;
  std::size_t delivered = 0;  // pieces of the present try
  bool silent = false;        // did not answer last time: gets one piece until it does
  TimePoint progress;         // last arrival, or when something was asked
  TimePoint alive;            // last arrival or connection
  TimePoint ask_after;        // not before; min: no pause
  Duration patience{};
  std::shared_ptr<PathWindow> path;  // empty: the window is fixed
};

struct Slot {
  enum class State : std::uint8_t { missing, asked, done } state = State::missing;
  std::size_t source = kNobody;
  PathWindow::Asked asked;
};

}  // namespace

struct BlobFetch::State {
  BlobFetchPlan plan;
  Settings settings;
  TimePoint began;
  std::vector<FetchSource> sources;
  std::optional<std::uint64_t> size;
  std::vector<Slot> pieces;  // one, of unknown size, until the size is known
  std::size_t first_missing = 0;
  std::size_t missing_or_asked = 0;
  bool resumed = false;        // some bytes are of an earlier process
  std::size_t only = kNobody;  // one source at a time, after a mix did not match
  Bytes memory;
  Bytes staging;  // of a fetch to a file: the piece that is arriving
  std::optional<PartialFile> file;
  Sha256 hash;             // of the whole, as far as the pieces from the beginning are there
  std::size_t hashed = 0;  // pieces
  std::vector<DroppedSource> dropped;
  std::optional<Error> failure;
  bool done = false;
  std::uint64_t bytes_done = 0;
  std::uint64_t bytes_received = 0;

  [[nodiscard]] bool over() const { return done || failure.has_value(); }
  [[nodiscard]] bool may_deliver(std::size_t source) const { return !sources[source].dropped && (only == kNobody || only == source); }
  [[nodiscard]] std::uint64_t offset_of(std::size_t piece) const { return static_cast<std::uint64_t>(piece) * plan.piece_bytes; }
  [[nodiscard]] std::uint32_t length_of(std::size_t piece) const {
    return size ? static_cast<std::uint32_t>(std::min<std::uint64_t>(plan.piece_bytes, *size - offset_of(piece))) : plan.piece_bytes;
  }
  // The number of the piece that this is, if it is missing.
  [[nodiscard]] std::optional<std::size_t> expected(const BlobPiece& piece) const {
    const std::uint64_t index = piece.offset / plan.piece_bytes;
    const bool fits =
        size && piece.total == *size && index < pieces.size() && piece.offset == offset_of(index) && piece.length == length_of(index);
    return fits && pieces[index].state != Slot::State::done ? std::optional<std::size_t>(index) : std::nullopt;
  }
  [[nodiscard]] std::size_t find(const IslandId& island) const {
    const auto found = std::find_if(sources.begin(), sources.end(), [&](const FetchSource& source) { return source.island == island; });
    return found == sources.end() ? kNobody : static_cast<std::size_t>(found - sources.begin());
  }

  [[nodiscard]] const std::string& name_of(const IslandId& island) const {
    const auto named = plan.names.find(island);
    return named == plan.names.end() ? island.text : named->second;
  }

  void fail(Error error) {
    if (!over()) {
      failure = with_context(std::move(error), "fetching " + describe(plan.blob));
    }
  }

  void add(const IslandId& island, TimePoint now) {
    FetchSource source;
    source.island = island;
    source.progress = source.alive = source.ask_after = now;
    source.patience = settings.wants.again_after;
    if (settings.wants.paths) {
      source.path = settings.wants.paths->to(island);
      source.patience = least_patience(source);
    }
    sources.push_back(std::move(source));
  }

  // The whole is known to have this many bytes: makes room, and takes over what an earlier process fetched.
  Status set_size(std::uint64_t bytes) {
    if (bytes > plan.max_bytes) {
      return Error{Code::invalid_argument, "it has " + human_bytes(bytes) + ", more than the limit of " + human_bytes(plan.max_bytes)};
    }
    const std::uint64_t count = (bytes + plan.piece_bytes - 1) / plan.piece_bytes;
    if (!plan.piece_digests.empty() && plan.piece_digests.size() != count) {
      return Error{Code::corrupt,
                   "it has " + std::to_string(count) + " pieces and " + std::to_string(plan.piece_digests.size()) + " digests"};
    }
    if (count > UINT32_MAX) {
      return Error{Code::invalid_argument, "it has too many pieces"};
    }
    if (plan.path.nowhere()) {
      memory.resize(bytes);
    } else {
      const std::string what = "atoll 1: " + describe(plan.blob) + ", " + std::to_string(bytes) + " bytes in pieces of " +
                               std::to_string(plan.piece_bytes) + ", sha256 " + (plan.digest ? to_hex(*plan.digest) : "unknown");
      ATOLL_ASSIGN(file, PartialFile::open(plan.path, what, bytes, count));
      staging.resize(std::min<std::uint64_t>(plan.piece_bytes, bytes));
    }
    size = bytes;
    pieces.assign(count, Slot{});
    missing_or_asked = count;
    first_missing = 0;
    for (FetchSource& source : sources) {
      source.asked = 0;
    }
    for (const std::uint32_t piece : file ? file->found() : std::vector<std::uint32_t>()) {
      mark_done(piece);
      resumed = true;
    }
    return {};
  }

  void mark_done(std::size_t piece) {
    pieces[piece].state = Slot::State::done;
    bytes_done += length_of(piece);
    --missing_or_asked;
  }

  // What this source was asked for can be asked of others.
  void take_back(std::size_t source) {
    for (std::size_t piece = 0; piece < pieces.size(); ++piece) {
      if (pieces[piece].state == Slot::State::asked && pieces[piece].source == source) {
        pieces[piece] = Slot{};
        first_missing = std::min(first_missing, piece);
      }
    }
    sources[source].asked = 0;
  }

  void drop(std::size_t source, Error error) {
    if (sources[source].dropped || over()) {
      return;
    }
    take_back(source);
    sources[source].dropped = true;
    dropped.push_back(DroppedSource{sources[source].island, error});
    const auto left = std::find_if(sources.begin(), sources.end(), [](const FetchSource& it) { return !it.dropped; });
    if (left == sources.end()) {
      fail(with_context(std::move(error), "no source is left; the last, island " + name_of(sources[source].island)));
    } else if (only == source) {
      begin_anew(static_cast<std::size_t>(left - sources.begin()));
    }
  }

  // From one source alone: then it is clear whose bytes do not match.
  void begin_anew(std::size_t source) {
    only = source;
    resumed = false;
    for (std::size_t i = 0; i < sources.size(); ++i) {
      take_back(i);
      sources[i].delivered = 0;
    }
    pieces.assign(pieces.size(), Slot{});
    missing_or_asked = pieces.size();
    first_missing = 0;
    bytes_done = 0;
    hash = Sha256();
    hashed = 0;
    if (file) {
      if (const Status status = file->begin_anew(); !status) {
        fail(status.error());
      }
    }
  }

  // Hashes the pieces that are there without a gap, so that little is left to do at the end. `number` is the one that has just come,
  // `bytes` are its own.
  Status hash_on(std::size_t number, ByteView bytes) {
    if (plan.digest && number == hashed) {
      hash.update(bytes);
      ++hashed;
      while (hashed < pieces.size() && pieces[hashed].state == Slot::State::done) {
        ATOLL_TRY(hash_next());
      }
    }
    return {};
  }
  Status hash_next() {
    if (file) {
      ATOLL_ASSIGN(const Bytes bytes, file->read(offset_of(hashed), length_of(hashed)));
      hash.update(bytes);
    } else {
      hash.update(ByteView(memory).subspan(offset_of(hashed), length_of(hashed)));
    }
    ++hashed;
    return {};
  }

  void verify() {
    if (plan.digest) {
      while (hashed < pieces.size()) {
        if (const Status status = hash_next(); !status) {
          return fail(status.error());
        }
      }
      if (const Digest digest = hash.finish(); digest != *plan.digest) {
        return mismatch(digest);
      }
    }
    if (file) {
      if (const Status status = file->finish(plan.durable); !status) {
        return fail(status.error());
      }
    }
    done = true;
  }

  void mismatch(const Digest& digest) {
    Error error{Code::corrupt, "its bytes have SHA-256 " + to_hex(digest) + " where " + to_hex(*plan.digest) + " is expected"};
    const auto delivered = std::count_if(sources.begin(), sources.end(), [](const FetchSource& source) { return source.delivered > 0; });
    if (delivered == 1 && !resumed) {
      const auto liar = std::find_if(sources.begin(), sources.end(), [](const FetchSource& source) { return source.delivered > 0; });
      const auto index = static_cast<std::size_t>(liar - sources.begin());
      only = index;  // so that dropping it begins anew with the next
      return drop(index, std::move(error));
    }
    const auto left = std::find_if(sources.begin(), sources.end(), [](const FetchSource& source) { return !source.dropped; });
    if (left == sources.end()) {
      return fail(std::move(error));
    }
    begin_anew(static_cast<std::size_t>(left - sources.begin()));
  }

  void ask(std::size_t index, TimePoint now, std::vector<OutgoingWant>& out) {
    FetchSource& source = sources[index];
    if (now < source.ask_after) {
      return;
    }
    source.ask_after = TimePoint::min();
    const std::size_t window = source.silent ? 1 : window_of(source, now);
    for (std::size_t piece = first_missing; piece < pieces.size() && source.asked < window; ++piece) {
      if (pieces[piece].state != Slot::State::missing) {
        first_missing += piece == first_missing ? 1U : 0U;
        continue;
      }
      if (source.asked == 0) {
        source.progress = now;
        source.alive = source.silent ? source.alive : now;
      }
      const auto stamp = source.path ? source.path->asked(now, source.asked * std::uint64_t{plan.piece_bytes}) : PathWindow::Asked{};
      pieces[piece] = Slot{Slot::State::asked, index, stamp};
      first_missing += piece == first_missing ? 1U : 0U;
      ++source.asked;
      out.push_back(OutgoingWant{source.island, Want{plan.blob, offset_of(piece), length_of(piece)}});
    }
    if (source.path && !source.silent && first_missing < pieces.size()) {
      source.path->limits();
    }
  }

  // Nothing can come sooner than the path's round trip.
  [[nodiscard]] Duration least_patience(const FetchSource& source) const {
    const Duration trips = source.path ? 2 * source.path->round_trip() : Duration::zero();
    return std::max(settings.wants.again_after, std::min(trips, settings.wants.again_at_most));
  }

  // In pieces.
  [[nodiscard]] std::size_t window_of(const FetchSource& source, TimePoint now) const {
    const std::uint64_t bytes = source.path ? settings.wants.paths->bytes(*source.path, now) : settings.wants.window_bytes;
    const std::size_t by_bytes = std::max<std::size_t>(1, bytes / plan.piece_bytes);
    return source.path ? by_bytes : std::min(settings.wants.window_pieces, by_bytes);
  }

  // The bytes of this piece lie where `destination` said.
  void take(std::size_t index, std::size_t number, const BlobPiece& piece) {
    const ByteView bytes = file ? ByteView(staging).first(piece.length) : ByteView(memory).subspan(piece.offset, piece.length);
    if (!plan.piece_digests.empty() && sha256(bytes) != plan.piece_digests[number]) {
      return drop(index, Error{Code::corrupt, "its piece " + std::to_string(number) + " does not have the digest expected"});
    }
    if (file) {
      if (const Status status = file->write(static_cast<std::uint32_t>(number), piece.offset, bytes); !status) {
        return fail(status.error());
      }
    }
    if (pieces[number].source != kNobody && sources[pieces[number].source].asked > 0) {
      --sources[pieces[number].source].asked;
    }
    ++sources[index].delivered;
    mark_done(number);
    if (const Status status = hash_on(number, bytes); !status) {
      fail(status.error());
    }
  }

  void watch(std::size_t index, TimePoint now) {
    FetchSource& source = sources[index];
    if ((source.asked > 0 || source.silent) && now - source.alive >= settings.give_up_after) {
      drop(index, Error{Code::timeout, "nothing came for " + human_duration(now - source.alive)});
    } else if (source.asked > 0 && now - source.progress >= source.patience) {
      source.silent = true;
      source.patience = std::min(2 * source.patience, settings.wants.again_at_most);
      take_back(index);
    }
  }
};

Result<std::unique_ptr<BlobFetch>> BlobFetch::begin(BlobFetchPlan plan, TimePoint now, const Settings& settings) {
  const auto refuse = [&](const std::string& why) { return Error{Code::invalid_argument, "fetching " + describe(plan.blob) + ": " + why}; };
  if (plan.sources.empty()) {
    return refuse("no island to fetch it from");
  }
  if (plan.blob.run.text.size() > 64) {
    return refuse("a run id has at most 64 characters");
  }
  if (plan.piece_bytes == 0 || plan.piece_bytes > kMaxPieceBytes) {
    return refuse("pieces of " + std::to_string(plan.piece_bytes) + " bytes");
  }
  auto state = std::make_unique<State>();
  state->settings = settings;
  state->began = now;
  state->plan = std::move(plan);
  for (const IslandId& island : state->plan.sources) {
    if (state->find(island) == kNobody) {
      state->add(island, now);
    }
  }
  state->pieces.assign(1, Slot{});
  state->missing_or_asked = 1;
  if (state->plan.size) {
    ATOLL_TRY(state->set_size(*state->plan.size));
    if (state->missing_or_asked == 0) {
      state->verify();
    }
  }
  return std::unique_ptr<BlobFetch>(new BlobFetch(std::move(state)));
}

Result<std::unique_ptr<BlobFetch>> BlobFetch::begin(BlobFetchPlan plan, TimePoint now) {
  Settings settings;
  settings.wants.paths = std::make_shared<PathWindows>(share_out(kLinkMemory).windows);
  return begin(std::move(plan), now, settings);
}

BlobFetch::BlobFetch(std::unique_ptr<State> state) : state_(std::move(state)) {}
BlobFetch::~BlobFetch() = default;

std::span<std::byte> BlobFetch::destination(const IslandId& from, const BlobPiece& piece) {
  State& state = *state_;
  const std::size_t source = state.find(from);
  if (state.over() || piece.blob != state.plan.blob || source == kNobody || !state.may_deliver(source)) {
    return {};
  }
  if (!state.size) {
    if (const Status status = state.set_size(piece.total); !status) {
      status.error().code == Code::io ? state.fail(status.error()) : state.drop(source, status.error());
      return {};
    }
    if (state.resumed && state.missing_or_asked == 0) {
      state.verify();  // an earlier process had everything but the name: no piece would come any more to end it
      return {};
    }
  }
  if (piece.total != *state.size) {
    state.drop(source,
               Error{Code::corrupt, "it has " + std::to_string(piece.total) + " bytes there and not " + std::to_string(*state.size)});
    return {};
  }
  if (!state.expected(piece)) {
    return {};
  }
  return state.file ? std::span(state.staging).first(piece.length) : std::span(state.memory).subspan(piece.offset, piece.length);
}

void BlobFetch::arrived(TimePoint now, const IslandId& from, const BlobPiece& piece) {
  State& state = *state_;
  const std::size_t index = state.find(from);
  if (state.over() || index == kNobody || !state.may_deliver(index) || piece.blob != state.plan.blob) {
    return;
  }
  const std::optional<std::size_t> number = state.expected(piece);
  const bool empty = state.size == 0 && piece.total == 0;
  if (!number && !empty) {
    return;
  }
  FetchSource& source = state.sources[index];
  source.progress = source.alive = now;
  source.silent = false;
  if (source.path && number && state.pieces[*number].source == index) {
    source.path->arrived(now, piece.length, state.pieces[*number].asked);
  }
  source.patience = state.least_patience(source);
  state.bytes_received += piece.length;
  if (number) {
    state.take(index, *number, piece);
  }
  if (state.missing_or_asked == 0 && !state.over()) {
    state.verify();
  }
}

void BlobFetch::gone(TimePoint now, const IslandId& from, const Gone& gone) {
  const std::size_t source = state_->find(from);
  if (source == kNobody || gone.blob != state_->plan.blob) {
    return;
  }
  if (gone.code == Code::unauthorized && !state_->over() && !state_->sources[source].dropped &&
      now < state_->began + state_->settings.allowed_within) {
    state_->take_back(source);
    state_->sources[source].silent = true;
    state_->sources[source].ask_after = now + kUntilAllowed;
    return;
  }
  state_->drop(source, Error{gone.code, gone.why});
}

void BlobFetch::connected(TimePoint now, const IslandId& peer) {
  const std::size_t source = state_->find(peer);
  if (source != kNobody && !state_->sources[source].dropped) {
    state_->take_back(source);
    state_->sources[source].silent = false;
    state_->sources[source].ask_after = now;
    state_->sources[source].alive = now;
  }
}

void BlobFetch::not_sent(TimePoint now, const OutgoingWant& want) {
  const std::size_t source = state_->find(want.to);
  if (source != kNobody) {
    state_->take_back(source);
    state_->sources[source].silent = true;
    state_->sources[source].ask_after = now + kPauseAfterRefusedSend;
  }
}

void BlobFetch::add_source(TimePoint now, const IslandId& source) {
  const std::size_t known = state_->find(source);
  if (known == kNobody) {
    state_->add(source, now);
  }
}

const BlobId& BlobFetch::blob() const { return state_->plan.blob; }

std::vector<OutgoingWant> BlobFetch::take_wants(TimePoint now) {
  std::vector<OutgoingWant> wants;
  for (std::size_t source = 0; source < state_->sources.size() && !state_->over(); ++source) {
    if (state_->may_deliver(source)) {
      state_->watch(source, now);
    }
  }
  for (std::size_t source = 0; source < state_->sources.size() && !state_->over(); ++source) {
    if (state_->may_deliver(source)) {
      state_->ask(source, now, wants);
    }
  }
  return wants;
}

bool BlobFetch::done() const { return state_->done; }
const std::optional<Error>& BlobFetch::failure() const { return state_->failure; }

Bytes BlobFetch::take_bytes() {
  ATOLL_CHECK(state_->done && state_->plan.path.nowhere(), "a fetch to memory has its bytes once it is done");
  return std::move(state_->memory);
}

BlobFetchProgress BlobFetch::progress(TimePoint now) const {
  const double elapsed = seconds(now - state_->began);
  return BlobFetchProgress{state_->bytes_done, state_->size.value_or(0), state_->bytes_received,
                           elapsed > 0 ? static_cast<double>(state_->bytes_received) / elapsed : 0};
}

const std::vector<DroppedSource>& BlobFetch::dropped() const { return state_->dropped; }

std::optional<TimePoint> BlobFetch::next_deadline() const {
  std::optional<TimePoint> earliest;
  for (const FetchSource& source : state_->sources) {
    if (source.dropped || state_->over()) {
      continue;
    }
    const TimePoint given_up = source.asked > 0 || source.silent ? source.alive + state_->settings.give_up_after : TimePoint::max();
    const TimePoint again = source.asked > 0 ? source.progress + source.patience : source.ask_after;
    const TimePoint deadline = again == TimePoint::min() ? given_up : std::min(again, given_up);
    if (deadline == TimePoint::max()) {
      continue;
    }
    if (!earliest || deadline < *earliest) {
      earliest = deadline;
    }
  }
  return earliest;
}

}  // namespace atl
