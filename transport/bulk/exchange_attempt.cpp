#include "transport/bulk/exchange_attempt.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "transport/base/check.hpp"

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

// A sum that this member takes, piece by piece.
struct Sum {
  SumOf of = SumOf::all;
  PieceRange range;
  std::vector<std::size_t> terms;         // the members that send them, in order; this one may be among them
  std::vector<std::uint64_t> weights;     // of the terms
  std::vector<std::size_t> contributors;  // of contributions: which they are among the attempt's
  Buffer out;                             // where it goes, encoded,
  std::uint64_t out_begin = 0;            // whose first byte is this one of the result
  BlobId served;                          // as which others read it,
  std::uint64_t served_begin = 0;         // the first byte of which is this one of the result
  std::size_t slot_bytes = 0;             // the longest piece of a term
  std::vector<PieceMemory> free_slots = {};
  std::size_t done = 0;  // pieces
};

// One blob of one peer that is being read: to be summed, or the result.
struct Source {
  WantSchedule schedule;
  std::uint64_t total = 0;         // of the blob
  std::optional<std::size_t> sum;  // of which it is a term
  std::size_t term = 0;
  std::vector<PieceMemory> slots;  // of a term: each piece that is arriving or waits to be summed
  Buffer buffer;                   // else where it goes: the whole contribution (gather), or the result, whose
  std::uint64_t base = 0;          // byte number `base` is the blob's first
  bool given_on = false;           // this member serves it, too
  std::size_t part = 0;            // of the result, with a buffer
};

}  // namespace

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
  Buffer result;  // direct
  std::vector<Sum> sums;
  std::size_t terms_read = 0;  // sources that are summed
  std::vector<Source> sources;
  std::optional<ExchangeFailure> failure;
  ExchangeProgress progress;
  std::vector<ResultBytes> ready;  // not taken
  bool got_contribution = false;   // a piece of one

  explicit State(BlobStore& the_store) : store(the_store) {}

  [[nodiscard]] BlobId blob(BlobKind kind, std::size_t part) const {
    return BlobId{plan.run, plan.epoch, plan.round, plan.attempt, kind, static_cast<std::uint32_t>(part)};
  }
  [[nodiscard]] std::uint64_t reduced_at(std::size_t piece) const { return plan.layout.reduced[piece]; }

  // Reads these pieces of a blob whose first byte is number `base` of `ends`, which holds where the pieces begin.
  Source& add_source(std::size_t member, const BlobId& id, const std::vector<std::uint64_t>& ends, PieceRange range, std::uint64_t base,
                     std::uint64_t total, TimePoint now) {
    std::vector<std::uint64_t> within;
    for (std::size_t piece = range.begin; piece <= range.end; ++piece) {
      within.push_back(ends[piece] - base);
    }
    progress.bytes_to_receive += within.back() - within.front();
    sources.push_back(Source{
        WantSchedule(plan.members[member], id, std::move(within), settings.wants, now), total, std::nullopt, 0, {}, Buffer(), 0, false, 0});
    return sources.back();
  }

  Source& add_contribution(std::size_t member, PieceRange range, TimePoint now) {
    const std::vector<std::uint64_t>& ends = plan.layout.contribution;
    return add_source(member, blob(BlobKind::contribution, 0), ends, range, 0, ends.back(), now);
  }

  void begin_gather(TimePoint now) {
    for (std::size_t part = 0; part < contributors.size(); ++part) {
      const std::size_t member = contributors[part];
      if (member == self) {
        ready.push_back({part, 0, own.bytes.size()});
      } else if (plan.layout.pieces() > 0) {
        Source& source = add_contribution(member, {0, plan.layout.pieces()}, now);
        source.buffer = Buffer(plan.layout.contribution.back(), *settings.buffers);
        source.part = part;
      }
    }
  }

  // Sums what these members send; empty ranges and sums of nothing are left out.
  void add_sum(Sum sum, TimePoint now) {
    if (sum.range.count() == 0 || sum.terms.empty()) {
      return;
    }
    const bool of_sums = sum.of == SumOf::groups;
    const std::vector<std::uint64_t>& ends = of_sums ? plan.layout.reduced : plan.layout.contribution;
    for (std::size_t piece = sum.range.begin; piece < sum.range.end; ++piece) {
      sum.slot_bytes = std::max<std::size_t>(sum.slot_bytes, ends[piece + 1] - ends[piece]);
    }
    for (std::size_t term = 0; term < sum.terms.size(); ++term) {
      const std::size_t member = sum.terms[term];
      if (member == self) {
        continue;
      }
      Source& source = of_sums ? add_source(member, blob(BlobKind::partial, member), ends, sum.range, strip_begin(), strip_bytes(), now)
                               : add_contribution(member, sum.range, now);
      source.sum = sums.size();
      source.term = term;
      source.slots.resize(sum.range.count());
      ++terms_read;
    }
    progress.pieces_to_reduce += sum.range.count();
    sums.push_back(std::move(sum));
  }

  // Reads pieces of the result from the member that gives them.
  void read_result(std::size_t member, PieceRange range, bool given_on, TimePoint now) {
    if (member == self || range.count() == 0) {
      return;
    }
    const PieceRange given = plan.given(member);
    const std::uint64_t base = reduced_at(given.begin);
    Source& source =
        add_source(member, blob(BlobKind::reduced, member), plan.layout.reduced, range, base, reduced_at(given.end) - base, now);
    source.buffer = result;
    source.base = base;
    source.given_on = given_on;
  }

  // Of the result, what this member gives others.
  [[nodiscard]] std::uint64_t strip_begin() const { return reduced_at(plan.given(self).begin); }
  [[nodiscard]] std::uint64_t strip_bytes() const { return reduced_at(plan.given(self).end) - strip_begin(); }

  void begin_direct(TimePoint now) {
    result = Buffer(plan.layout.reduced.back(), *settings.buffers);
    if (plan.grid) {
      begin_two_levels(*plan.grid, now);
      return;
    }
    std::vector<std::size_t> all(contributors.size());
    std::iota(all.begin(), all.end(), std::size_t{0});
    add_sum(Sum{SumOf::all, plan.shard(self), contributors, weights, all, result, 0, blob(BlobKind::reduced, self), strip_begin()}, now);
    for (std::size_t member = 0; member < plan.members.size(); ++member) {
      read_result(member, plan.given(member), false, now);
    }
  }

  void begin_two_levels(const ExchangeGrid& grid, TimePoint now) {
    const std::size_t group = grid.group[self];
    const std::size_t column = grid.column[self];
    if (column != kNoColumn) {
      Sum of_group{SumOf::group,
                   plan.given(self),
                   {},
                   {},
                   {},
                   Buffer(strip_bytes(), *settings.buffers),
                   strip_begin(),
                   blob(BlobKind::partial, self),
                   strip_begin()};
      Sum of_groups{SumOf::groups, plan.shard(self), {}, {}, {}, result, 0, blob(BlobKind::reduced, self), strip_begin()};
      for (std::size_t i = 0; i < contributors.size(); ++i) {
        const std::size_t of = grid.group[contributors[i]];
        if (of == group) {
          of_group.terms.push_back(contributors[i]);
          of_group.weights.push_back(weights[i]);
          of_group.contributors.push_back(i);
        }
        if (std::ranges::find(of_groups.terms, grid.owner(of, column)) == of_groups.terms.end()) {
          of_groups.terms.push_back(grid.owner(of, column));
          of_groups.weights.push_back(1);
        }
      }
      add_sum(std::move(of_group), now);
      add_sum(std::move(of_groups), now);
      for (std::size_t other = 0; other < grid.groups; ++other) {
        const std::size_t mate = grid.owner(other, column);
        read_result(mate, plan.shard(mate), true, now);
      }
    }
    for (std::size_t other = 0; other < grid.columns; ++other) {
      const std::size_t member = grid.owner(group, other);
      read_result(member, plan.given(member), false, now);
    }
  }

  void serve() {
    for (const Sum& sum : sums) {
      if (sum.of == SumOf::group) {
        store.announce(sum.served, sum.out.payload(0, sum.out.size));
      }
    }
    if (direct && plan.given(self).count() > 0) {
      store.announce(blob(BlobKind::reduced, self), result.payload(strip_begin(), strip_bytes()));
    }
    if (plan.weights[self] > 0) {
      store.put(blob(BlobKind::contribution, 0), own);
    }
  }

  // Where piece `index` of this source goes; empty if it was summed, or never asked for.
  [[nodiscard]] std::span<std::byte> place(Source& source, std::size_t index, const BlobPiece& piece) {
    if (!source.sum) {
      return source.buffer.span(source.base + piece.offset, piece.length);
    }
    Sum& sum = sums[*source.sum];
    if (index < sum.done || index >= source.schedule.asked_up_to()) {
      return {};
    }
    PieceMemory& slot = source.slots[index];
    if (!slot && !sum.free_slots.empty()) {
      slot = std::move(sum.free_slots.back());
      sum.free_slots.pop_back();
    } else if (!slot) {
      slot = std::make_unique_for_overwrite<std::byte[]>(sum.slot_bytes);
    }
    return {slot.get(), piece.length};
  }

  // How many pieces of a term are asked for: what its path holds beyond what is summed, so far as the budget has room for all of
  // them, since a piece that waits for another term's holds its slot.
  [[nodiscard]] std::size_t limit(const Source& source, TimePoint now) const {
    if (!source.sum) {
      return SIZE_MAX;
    }
    std::uint64_t bytes = settings.reduce_window_bytes;
    if (settings.wants.paths) {
      const std::uint64_t share = settings.wants.paths->budget() / std::max<std::size_t>(1, terms_read);
      bytes = std::min(share, source.schedule.window_bytes(now));
    }
    const Sum& sum = sums[*source.sum];
    return sum.done + std::max<std::size_t>(2, bytes / sum.slot_bytes);
  }

  // What this member itself has of a sum's piece: of its contribution, or of its group's sum. Empty: that is not there yet.
  [[nodiscard]] ByteView own_term(const Sum& sum, std::size_t piece) const {
    if (sum.of != SumOf::groups) {
      const std::uint64_t begin = plan.layout.contribution[piece];
      return own.bytes.subspan(begin, plan.layout.contribution[piece + 1] - begin);
    }
    const Sum& of_group = sums.front();
    if (piece >= of_group.range.begin + of_group.done) {
      return {};
    }
    return of_group.out.span(reduced_at(piece) - of_group.out_begin, reduced_at(piece + 1) - reduced_at(piece));
  }

  // The next piece of every term; empty if one is missing.
  [[nodiscard]] std::vector<ByteView> next_terms(const Sum& sum) const {
    const std::size_t piece = sum.range.begin + sum.done;
    const std::vector<std::uint64_t>& ends = sum.of == SumOf::groups ? plan.layout.reduced : plan.layout.contribution;
    std::vector<ByteView> views(sum.terms.size());
    for (const Source& source : sources) {
      if (source.sum && &sums[*source.sum] == &sum && source.schedule.has(sum.done)) {
        views[source.term] = {source.slots[sum.done].get(), static_cast<std::size_t>(ends[piece + 1] - ends[piece])};
      }
    }
    for (std::size_t term = 0; term < views.size(); ++term) {
      views[term] = sum.terms[term] == self ? own_term(sum, piece) : views[term];
      if (views[term].empty()) {
        return {};
      }
    }
    return views;
  }

  bool reduce_next(Sum& sum) {
    if (sum.done == sum.range.count()) {
      return false;
    }
    const std::vector<ByteView> views = next_terms(sum);
    if (views.empty()) {
      return false;
    }
    const std::size_t piece = sum.range.begin + sum.done;
    const std::uint64_t out = reduced_at(piece);
    const std::uint64_t first = plan.layout.elements[piece];
    const ReducePiece task{piece,  first,           plan.layout.elements[piece + 1] - first,
                           views,  sum.weights,     sum.out.span(out - sum.out_begin, reduced_at(piece + 1) - out),
                           sum.of, sum.contributors};
    if (std::optional<ReduceFailure> broken = reduce(task)) {
      fail(broken->term < sum.terms.size() ? plan.members[sum.terms[broken->term]] : IslandId(), std::move(broken->error));
      return false;
    }
    for (Source& source : sources) {
      if (source.sum && &sums[*source.sum] == &sum) {
        sum.free_slots.push_back(std::move(source.slots[sum.done]));
      }
    }
    if (sum.of != SumOf::group) {
      ready.push_back({0, out, task.reduced.size()});
    }
    ++sum.done;
    ++progress.pieces_reduced;
    store.mark_ready(sum.served, out - sum.served_begin, task.reduced.size());
    return true;
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
  ATOLL_TRY(check_plan(plan, contribution.bytes.size()));
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
  state->direct = plan.members.size() > 2 && !state->contributors.empty();
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
    if (!source->sum) {
      state_->ready.push_back({source->part, source->base + piece.offset, piece.length});
    }
    if (source->given_on) {
      state_->store.mark_ready(state_->blob(BlobKind::reduced, state_->self), piece.offset, piece.length);
    }
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
  // Contributions come first among the sources, then groups' sums: the others wait for what is summed from them.
  for (Source& source : state_->sources) {
    source.schedule.take(now, state_->limit(source, now), wants);
  }
  return wants;
}

bool ExchangeAttempt::reduce_one() {
  return !state_->failure && std::any_of(state_->sums.begin(), state_->sums.end(), [&](Sum& sum) { return state_->reduce_next(sum); });
}

bool ExchangeAttempt::on_two_levels() const { return state_->plan.grid.has_value(); }

bool ExchangeAttempt::done() const {
  return !state_->failure && state_->progress.pieces_reduced == state_->progress.pieces_to_reduce &&
         std::all_of(state_->sources.begin(), state_->sources.end(), [](const Source& source) { return source.schedule.done(); });
}

const std::optional<ExchangeFailure>& ExchangeAttempt::failure() const { return state_->failure; }

ExchangeResult ExchangeAttempt::result() const {
  ATOLL_CHECK(done(), "an exchange has a result once it is done");
  return {!state_->direct, parts(), state_->weights};
}

std::vector<Payload> ExchangeAttempt::parts() const {
  if (state_->direct) {
    return {state_->result.payload(0, state_->result.size)};
  }
  std::vector<Payload> parts;
  for (const std::size_t member : state_->contributors) {
    const Source* source = state_->find(state_->plan.members[member], state_->blob(BlobKind::contribution, 0));
    parts.push_back(source == nullptr ? state_->own : source->buffer.payload(0, source->buffer.size));
  }
  return parts;
}

std::vector<ResultBytes> ExchangeAttempt::take_ready() { return std::exchange(state_->ready, {}); }

ExchangeProgress ExchangeAttempt::progress() const { return state_->progress; }

std::vector<Stall> ExchangeAttempt::stalled(TimePoint now, Duration longer_than) const {
  std::vector<Stall> stalls;
  for (const Source& source : state_->sources) {
    const std::optional<TimePoint> since = source.schedule.silent_since();
    const BlobKind kind = source.schedule.blob().kind;
    const bool contribution = kind == BlobKind::contribution;
    if (since && now - *since >= longer_than * (contribution || !state_->plan.grid ? 1 : 2)) {
      const std::string what = contribution ? "contribution" : kind == BlobKind::partial ? "group's sum" : "reduced shard";
      stalls.push_back(
          Stall{source.schedule.peer(), *since, contribution, "no piece of its " + what + " for " + human_duration(now - *since)});
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
