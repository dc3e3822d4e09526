#include "transport/bulk/exchange_attempt.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "transport/base/check.hpp"
#include "transport/base/shards.hpp"

namespace atl {
namespace {

// Uninitialised: the first writer of each byte is the link or `reduce`.
struct Buffer {
  std::shared_ptr<std::byte[]> bytes;
  std::size_t size = 0;

  Buffer() = default;
  Buffer(std::size_t count, ReceiveBuffers& buffers) : bytes(buffers.take(count)), size(count) {}
  [[nodiscard]] std::span<std::byte> span(std::uint64_t offset, std::uint64_t length) const {
    ATOLL_CHECK(offset <= size && length <= size - offset, "a range lies within its buffer");
    return {bytes.get() + offset, static_cast<std::size_t>(length)};
  }
  [[nodiscard]] Payload payload(std::uint64_t offset, std::uint64_t length) const { return Payload{span(offset, length), bytes}; }
};

using PieceMemory = std::unique_ptr<std::byte[]>;

// One blob of one peer that is being read.
struct Source {
  WantSchedule schedule;
  std::size_t member = 0;
  std::size_t contributor = 0;     // of a contribution: its index among the contributors
  std::uint64_t total = 0;         // of the blob
  std::uint64_t base = 0;          // what a blob offset is reduced by or added to in `buffer` (see place)
  Buffer buffer;                   // gather: the whole contribution; reduced: the result
  std::vector<PieceMemory> slots;  // direct contribution: of each piece that is arriving or waits to be reduced
};

bool ascending(const std::vector<std::uint64_t>& ends) {
  return std::adjacent_find(ends.begin(), ends.end(), [](auto a, auto b) { return a >= b || b - a > kMaxPieceBytes; }) == ends.end();
}

Error refuse(const ExchangePlan& plan, const std::string& why) {
  return Error{Code::invalid_argument, "exchange of run " + plan.run.text + ", round " + std::to_string(plan.round.value) + ": " + why};
}

Status check_layout(const ExchangePlan& plan) {
  const ExchangeLayout& layout = plan.layout;
  const std::size_t count = layout.elements.size();
  const bool shaped = count > 0 && layout.contribution.size() == count && layout.reduced.size() == count && layout.elements.front() == 0 &&
                      layout.contribution.front() == 0 && layout.reduced.front() == 0;
  if (!shaped || !ascending(layout.contribution) || !ascending(layout.reduced) ||
      !std::is_sorted(layout.elements.begin(), layout.elements.end())) {
    return refuse(plan, "the layout's pieces do not follow one another");
  }
  const std::vector<std::size_t>& shards = layout.shards;
  if (shards.size() != plan.members.size() + 1 || shards.front() != 0 || shards.back() != count - 1 ||
      !std::is_sorted(shards.begin(), shards.end())) {
    return refuse(plan, "the layout has not one shard a member");
  }
  return {};
}

Status check_plan(const ExchangePlan& plan, const Payload& contribution) {
  if (plan.run.text.empty() || plan.run.text.size() > 64) {
    return refuse(plan, "a run id has 1 to 64 characters");
  }
  if (plan.weights.size() != plan.members.size()) {
    return refuse(plan, "not one weight a member");
  }
  if (std::set<IslandId>(plan.members.begin(), plan.members.end()).size() != plan.members.size()) {
    return refuse(plan, "a member is named twice");
  }
  const auto self = std::find(plan.members.begin(), plan.members.end(), plan.self);
  if (self == plan.members.end()) {
    return refuse(plan, "this island is not among the members");
  }
  if (std::all_of(plan.weights.begin(), plan.weights.end(), [](std::uint64_t weight) { return weight == 0; })) {
    return refuse(plan, "nobody contributes");
  }
  ATOLL_TRY(check_layout(plan));
  const bool contributes = plan.weights[static_cast<std::size_t>(self - plan.members.begin())] > 0;
  if (contributes && contribution.bytes.size() != plan.layout.contribution.back()) {
    return refuse(plan, "the contribution has " + std::to_string(contribution.bytes.size()) + " bytes, its layout " +
                            std::to_string(plan.layout.contribution.back()));
  }
  return {};
}

}  // namespace

ExchangeLayout cut_pieces(std::uint64_t elements, std::size_t members, std::uint64_t granularity,
                          const std::function<std::uint64_t(std::uint64_t)>& contribution_bytes,
                          const std::function<std::uint64_t(std::uint64_t)>& reduced_bytes, std::uint64_t piece_elements,
                          std::span<const std::uint8_t> shares) {
  ATOLL_CHECK(members > 0 && granularity > 0, "somebody takes part, and a piece can begin somewhere");
  const auto owns = [&](std::size_t member) { return member >= shares.size() || shares[member] != 0; };
  std::size_t owners = 0;
  for (std::size_t member = 0; member < members; ++member) {
    owners += owns(member) ? 1 : 0;
  }
  ATOLL_CHECK(owners > 0, "somebody owns a shard");
  const std::uint64_t step = std::max<std::uint64_t>(1, piece_elements / granularity) * granularity;
  const std::vector<Shard> owned = split_shards(elements, owners, granularity).value();
  ExchangeLayout layout{{0}, {0}, {0}, {0}};
  std::size_t next = 0;
  for (std::size_t member = 0; member < members; ++member) {
    const std::uint64_t end = owns(member) ? owned[next].offset + owned[next].count : layout.elements.back();
    next += owns(member) ? 1 : 0;
    while (layout.elements.back() < end) {
      const std::uint64_t count = std::min(step, end - layout.elements.back());
      layout.elements.push_back(layout.elements.back() + count);
      layout.contribution.push_back(layout.contribution.back() + contribution_bytes(count));
      layout.reduced.push_back(layout.reduced.back() + reduced_bytes(count));
    }
    layout.shards.push_back(layout.pieces());
  }
  return layout;
}

struct ExchangeAttempt::State {
  ExchangePlan plan;
  Settings settings;
  Payload own;
  Reduce reduce;
  BlobStore& store;
  std::size_t self = 0;
  std::vector<std::size_t> contributors;  // member indices, in order
  std::vector<std::uint64_t> weights;     // theirs
  bool direct = false;
  Buffer result;               // direct
  std::size_t slot_bytes = 0;  // direct: the longest piece of a contribution
  std::vector<PieceMemory> free_slots;
  std::size_t reduced = 0;  // pieces of the own shard
  std::vector<Source> sources;
  std::optional<ExchangeFailure> failure;
  ExchangeProgress progress;
  bool got_contribution = false;  // a piece of one

  explicit State(BlobStore& the_store) : store(the_store) {}

  [[nodiscard]] BlobId blob(BlobKind kind, std::uint32_t part) const {
    return BlobId{plan.run, plan.epoch, plan.round, plan.attempt, kind, part};
  }
  [[nodiscard]] std::size_t first_piece(std::size_t member) const { return plan.layout.shards[member]; }
  [[nodiscard]] std::size_t shard_pieces(std::size_t member) const { return plan.layout.shards[member + 1] - plan.layout.shards[member]; }

  void add_contribution(std::size_t contributor, std::size_t first, std::size_t count, Buffer buffer, TimePoint now) {
    const auto begin = plan.layout.contribution.begin() + static_cast<std::ptrdiff_t>(first);
    std::vector<std::uint64_t> ends(begin, begin + static_cast<std::ptrdiff_t>(count) + 1);
    const std::size_t member = contributors[contributor];
    progress.bytes_to_receive += ends.back() - ends.front();
    sources.push_back(Source{WantSchedule(plan.members[member], blob(BlobKind::contribution, 0), std::move(ends), settings.wants, now),
                             member, contributor, plan.layout.contribution.back(), 0, std::move(buffer),
                             std::vector<PieceMemory>(direct ? count : 0)});
  }

  void begin_gather(TimePoint now) {
    for (std::size_t contributor = 0; contributor < contributors.size(); ++contributor) {
      if (contributors[contributor] != self && plan.layout.pieces() > 0) {
        add_contribution(contributor, 0, plan.layout.pieces(), Buffer(plan.layout.contribution.back(), *settings.buffers), now);
      }
    }
  }

  void begin_direct(TimePoint now) {
    const ExchangeLayout& layout = plan.layout;
    result = Buffer(layout.reduced.back(), *settings.buffers);
    progress.pieces_to_reduce = shard_pieces(self);
    for (std::size_t i = 0; i < shard_pieces(self); ++i) {
      const std::size_t piece = first_piece(self) + i;
      slot_bytes = std::max<std::size_t>(slot_bytes, layout.contribution[piece + 1] - layout.contribution[piece]);
    }
    for (std::size_t contributor = 0; contributor < contributors.size(); ++contributor) {
      if (contributors[contributor] != self && shard_pieces(self) > 0) {
        add_contribution(contributor, first_piece(self), shard_pieces(self), Buffer(), now);
      }
    }
    for (std::size_t member = 0; member < plan.members.size(); ++member) {
      if (member == self || shard_pieces(member) == 0) {
        continue;
      }
      const std::uint64_t base = layout.reduced[first_piece(member)];
      std::vector<std::uint64_t> ends;
      for (std::size_t i = 0; i <= shard_pieces(member); ++i) {
        ends.push_back(layout.reduced[first_piece(member) + i] - base);
      }
      const std::uint64_t total = ends.back();
      progress.bytes_to_receive += total;
      sources.push_back(Source{WantSchedule(plan.members[member], blob(BlobKind::reduced, static_cast<std::uint32_t>(member)),
                                            std::move(ends), settings.wants, now),
                               member,
                               0,
                               total,
                               base,
                               result,
                               {}});
    }
  }

  void serve() {
    if (direct && shard_pieces(self) > 0) {
      const std::uint64_t begin = plan.layout.reduced[first_piece(self)];
      const std::uint64_t end = plan.layout.reduced[first_piece(self) + shard_pieces(self)];
      store.announce(blob(BlobKind::reduced, static_cast<std::uint32_t>(self)), result.payload(begin, end - begin));
    }
    if (plan.weights[self] > 0) {
      store.put(blob(BlobKind::contribution, 0), own);
    }
  }

  [[nodiscard]] bool is_slotted(const Source& source) const { return direct && source.schedule.blob().kind == BlobKind::contribution; }

  // Where piece `index` of this source goes; empty if it was reduced, or never asked for.
  [[nodiscard]] std::span<std::byte> place(Source& source, std::size_t index, const BlobPiece& piece) {
    if (!is_slotted(source)) {
      return source.buffer.span(source.base + piece.offset, piece.length);
    }
    if (index < reduced || index >= source.schedule.asked_up_to()) {
      return {};
    }
    PieceMemory& slot = source.slots[index];
    if (!slot && !free_slots.empty()) {
      slot = std::move(free_slots.back());
      free_slots.pop_back();
    } else if (!slot) {
      slot = std::make_unique_for_overwrite<std::byte[]>(slot_bytes);
    }
    return {slot.get(), piece.length};
  }

  // How many pieces of a contribution are read ahead of what is reduced: what its path holds, so far as the budget has room for all of
  // them, since a piece that waits for another contributor's holds its slot.
  [[nodiscard]] std::size_t ahead(const Source& source, TimePoint now) const {
    std::uint64_t bytes = settings.reduce_window_bytes;
    if (settings.wants.paths) {
      const std::uint64_t share = settings.wants.paths->budget() / std::max<std::size_t>(1, contributors.size() - 1);
      bytes = std::min(share, source.schedule.window_bytes(now));
    }
    return std::max<std::size_t>(2, bytes / slot_bytes);
  }

  Source* find(const IslandId& from, const BlobId& id) {
    for (Source& source : sources) {
      if (source.schedule.peer() == from && source.schedule.blob() == id) {
        return &source;
      }
    }
    return nullptr;
  }

  void fail(const IslandId& accused, Error error) {
    if (!failure) {
      failure = ExchangeFailure{accused, std::move(error)};
    }
  }
};

Result<std::unique_ptr<ExchangeAttempt>> ExchangeAttempt::begin(ExchangePlan plan, Payload contribution, Reduce reduce, BlobStore& store,
                                                                TimePoint now, const Settings& settings) {
  ATOLL_TRY(check_plan(plan, contribution));
  auto state = std::make_unique<State>(store);
  state->settings = settings;
  state->settings.wants.packed = plan.packed;
  if (!state->settings.buffers) {
    state->settings.buffers = std::make_shared<ReceiveBuffers>();
  }
  state->own = std::move(contribution);
  state->reduce = std::move(reduce);
  state->self = static_cast<std::size_t>(std::find(plan.members.begin(), plan.members.end(), plan.self) - plan.members.begin());
  for (std::size_t member = 0; member < plan.members.size(); ++member) {
    if (plan.weights[member] > 0) {
      state->contributors.push_back(member);
      state->weights.push_back(plan.weights[member]);
    }
  }
  state->direct = plan.members.size() > 2;
  state->plan = std::move(plan);
  if (state->direct) {
    state->begin_direct(now);
  } else {
    state->begin_gather(now);
  }
  state->serve();
  return std::unique_ptr<ExchangeAttempt>(new ExchangeAttempt(std::move(state)));
}

ExchangeAttempt::ExchangeAttempt(std::unique_ptr<State> state) : state_(std::move(state)) {}
ExchangeAttempt::~ExchangeAttempt() = default;

std::span<std::byte> ExchangeAttempt::destination(const IslandId& from, const BlobPiece& piece) {
  Source* source = state_->find(from, piece.blob);
  if (source == nullptr || state_->failure) {
    return {};
  }
  if (piece.total != source->total) {
    state_->fail(from, Error{Code::corrupt, "island " + from.text + " serves " + describe(piece.blob) + " with " +
                                                std::to_string(piece.total) + " bytes where " + std::to_string(source->total) + " belong"});
    return {};
  }
  const std::optional<std::size_t> index = source->schedule.outstanding(piece);
  return index ? state_->place(*source, *index, piece) : std::span<std::byte>();
}

void ExchangeAttempt::arrived(TimePoint now, const IslandId& from, const BlobPiece& piece) {
  Source* source = state_->find(from, piece.blob);
  if (source == nullptr) {
    return;
  }
  if (const std::optional<std::size_t> index = source->schedule.outstanding(piece)) {
    source->schedule.arrived(now, *index);
    state_->progress.bytes_received += piece.payload_bytes();
    const bool contribution = piece.blob.kind == BlobKind::contribution;
    if (contribution || !state_->got_contribution) {
      state_->got_contribution = contribution;
      state_->progress.slowest = from;
      state_->progress.slowest_at = now;
    }
  }
}

void ExchangeAttempt::gone(TimePoint /*now*/, const IslandId& from, const Gone& gone) {
  const Source* source = state_->find(from, gone.blob);
  if (source != nullptr && !source->schedule.done()) {
    state_->fail(from, Error{gone.code, "island " + from.text + " does not give " + describe(gone.blob) + ": " + gone.why});
  }
}

void ExchangeAttempt::connected(TimePoint now, const IslandId& peer) {
  for (Source& source : state_->sources) {
    if (source.schedule.peer() == peer) {
      source.schedule.ask_again(now);
    }
  }
}

void ExchangeAttempt::not_sent(TimePoint now, const OutgoingWant& want) {
  if (Source* source = state_->find(want.to, want.want.blob)) {
    source->schedule.ask_again(now, kPauseAfterRefusedSend);
  }
}

bool ExchangeAttempt::reads(const BlobId& blob) const {
  return std::any_of(state_->sources.begin(), state_->sources.end(), [&](const Source& source) { return source.schedule.blob() == blob; });
}

std::vector<OutgoingWant> ExchangeAttempt::take_wants(TimePoint now) {
  std::vector<OutgoingWant> wants;
  if (state_->failure) {
    return wants;
  }
  // Contributions come first among the sources: the others wait for what is summed from them.
  for (Source& source : state_->sources) {
    const std::size_t limit = state_->is_slotted(source) ? state_->reduced + state_->ahead(source, now) : SIZE_MAX;
    source.schedule.take(now, limit, wants);
  }
  return wants;
}

bool ExchangeAttempt::reduce_one() {
  State& state = *state_;
  if (!state.direct || state.failure || state.reduced == state.shard_pieces(state.self)) {
    return false;
  }
  const ExchangeLayout& layout = state.plan.layout;
  const std::size_t index = state.reduced;
  const std::size_t piece = state.first_piece(state.self) + index;
  const std::uint64_t begin = layout.contribution[piece];
  const std::uint64_t bytes = layout.contribution[piece + 1] - begin;
  std::vector<ByteView> views(state.contributors.size());
  for (const Source& source : state.sources) {
    if (!state.is_slotted(source)) {
      continue;
    }
    if (!source.schedule.has(index)) {
      return false;
    }
    views[source.contributor] = {source.slots[index].get(), static_cast<std::size_t>(bytes)};
  }
  const auto own = std::find(state.contributors.begin(), state.contributors.end(), state.self);
  if (own != state.contributors.end()) {
    views[static_cast<std::size_t>(own - state.contributors.begin())] = state.own.bytes.subspan(begin, bytes);
  }
  const std::uint64_t out = layout.reduced[piece];
  const ReducePiece task{piece, layout.elements[piece], layout.elements[piece + 1] - layout.elements[piece],
                         views, state.weights,          state.result.span(out, layout.reduced[piece + 1] - out)};
  if (std::optional<ReduceFailure> failure = state.reduce(task)) {
    const bool known = failure->contributor < state.contributors.size();
    state.fail(known ? state.plan.members[state.contributors[failure->contributor]] : IslandId(), std::move(failure->error));
    return false;
  }
  for (Source& source : state.sources) {
    if (state.is_slotted(source)) {
      state.free_slots.push_back(std::move(source.slots[index]));
    }
  }
  ++state.reduced;
  ++state.progress.pieces_reduced;
  state.store.mark_ready(state.blob(BlobKind::reduced, static_cast<std::uint32_t>(state.self)),
                         out - layout.reduced[state.first_piece(state.self)], task.reduced.size());
  return true;
}

bool ExchangeAttempt::done() const {
  return !state_->failure && state_->progress.pieces_reduced == state_->progress.pieces_to_reduce &&
         std::all_of(state_->sources.begin(), state_->sources.end(), [](const Source& source) { return source.schedule.done(); });
}

const std::optional<ExchangeFailure>& ExchangeAttempt::failure() const { return state_->failure; }

ExchangeResult ExchangeAttempt::result() const {
  ATOLL_CHECK(done(), "an exchange has a result once it is done");
  ExchangeResult result{!state_->direct, {}, state_->weights};
  if (state_->direct) {
    result.parts.push_back(state_->result.payload(0, state_->result.size));
    return result;
  }
  for (std::size_t contributor = 0; contributor < state_->contributors.size(); ++contributor) {
    const auto source =
        std::find_if(state_->sources.begin(), state_->sources.end(), [&](const Source& it) { return it.contributor == contributor; });
    const bool own = state_->contributors[contributor] == state_->self || source == state_->sources.end();
    result.parts.push_back(own ? state_->own : source->buffer.payload(0, source->buffer.size));
  }
  return result;
}

ExchangeProgress ExchangeAttempt::progress() const { return state_->progress; }

std::vector<Stall> ExchangeAttempt::stalled(TimePoint now, Duration longer_than) const {
  std::vector<Stall> stalls;
  for (const Source& source : state_->sources) {
    const std::optional<TimePoint> since = source.schedule.silent_since();
    if (since && now - *since >= longer_than) {
      const bool contribution = source.schedule.blob().kind == BlobKind::contribution;
      stalls.push_back(Stall{
          source.schedule.peer(), *since, contribution,
          std::string("no piece of its ") + (contribution ? "contribution" : "reduced shard") + " for " + human_duration(now - *since)});
    }
  }
  return stalls;
}

std::optional<TimePoint> ExchangeAttempt::next_deadline() const {
  std::optional<TimePoint> earliest;
  for (const Source& source : state_->sources) {
    const std::optional<TimePoint> deadline = source.schedule.next_deadline();
    if (deadline && (!earliest || *deadline < *earliest)) {
      earliest = deadline;
    }
  }
  return earliest;
}

}  // namespace atl
