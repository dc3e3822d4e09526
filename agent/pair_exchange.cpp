#include "agent/pair_exchange.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "strategies/contribution.hpp"
#include "transport/base/check.hpp"
#include "transport/base/planted.hpp"

namespace atl {
namespace {

constexpr std::uint64_t kPieceBytes = 1ULL << 18;
constexpr Duration kPauseAfterRefusedSend = std::chrono::milliseconds(200);
constexpr Duration kStandingAgain = std::chrono::seconds(1);
constexpr Attempt kAttempt{1};  // a pair tries a round once in an epoch

// Of a blob's pieces, as WantSchedule wants them.
std::vector<std::uint64_t> ends_of(std::uint64_t size) {
  std::vector<std::uint64_t> ends{0};
  while (ends.back() < size) {
    ends.push_back(std::min(size, ends.back() + kPieceBytes));
  }
  return ends;
}

Payload payload_of(Bytes bytes) {
  auto owner = std::make_shared<const Bytes>(std::move(bytes));
  return Payload{*owner, owner};
}

BlobId standing_of(const RunId& run) {
  BlobId blob;
  blob.run = run;
  blob.kind = BlobKind::standing;
  return blob;
}

}  // namespace

PairExchange::PairExchange(PairPlan plan, Payload parameters, BlobStore& store, TimePoint now)
    : plan_(std::move(plan)), store_(store), own_parameters_(std::move(parameters)), sources_(kSources) {
  ATOLL_CHECK(plan_.values > 0 && plan_.self != plan_.partner, "a pair is two islands with something to exchange");
  Bytes standing;
  append_le(standing, plan_.round.value);
  store_.put(standing_of(plan_.run), payload_of(std::move(standing)));
  store_.put(blob(BlobKind::contribution, 1), own_parameters_);
  read(kParameters, blob(BlobKind::contribution, 1), encoded_bytes(plan_.parameters_codec, plan_.values), now);
  read(kGradient, blob(BlobKind::contribution, 0), encoded_bytes(plan_.codec, plan_.values), now);
  read(kWord, blob(decider() ? BlobKind::promise : BlobKind::verdict, 0), 1, now);
}

PairExchange::~PairExchange() = default;

BlobId PairExchange::blob(BlobKind kind, std::uint32_t part) const {
  return BlobId{plan_.run, plan_.epoch, plan_.round, kAttempt, kind, part};
}

void PairExchange::read(std::size_t source, const BlobId& id, std::uint64_t size, TimePoint now) {
  sources_[source].schedule.emplace(plan_.partner, id, ends_of(size), WantSettings{}, now);
  sources_[source].bytes.assign(static_cast<std::size_t>(size), std::byte{});
}

PairExchange::Source* PairExchange::source_of(const IslandId& from, const BlobId& id) {
  for (Source& source : sources_) {
    if (source.schedule && from == plan_.partner && source.schedule->blob() == id) {
      return &source;
    }
  }
  return nullptr;
}

bool PairExchange::reads(const BlobId& id) const {
  return std::any_of(sources_.begin(), sources_.end(), [&](const Source& source) { return source.schedule && source.schedule->blob() == id; });
}

void PairExchange::say(BlobKind kind, bool yes) { store_.put(blob(kind, 0), payload_of(Bytes{std::byte{yes ? std::uint8_t{1} : std::uint8_t{0}}})); }

void PairExchange::arrive(Payload gradient, TimePoint now, TimePoint deadline, const NormGuard& guard) {
  if (deadline_) {
    return;
  }
  own_gradient_ = std::move(gradient);
  deadline_ = deadline;
  guard_ = guard;
  ask_standing_ = now;
  if (hopeless_) {
    go_alone(*hopeless_);
    return;
  }
  store_.put(blob(BlobKind::contribution, 0), own_gradient_);
  advance(now);
}

void PairExchange::withdraw(TimePoint now) {
  if (!deadline_) {
    deadline_ = now;
    go_alone("its own contribution does not count");
  }
}

void PairExchange::reject(const std::string& why) {
  rejected_ = !outcome_ && !bound() && !hopeless_;
  go_alone(why);
}

// Not once it is bound: then only the verdict counts.
void PairExchange::go_alone(std::string why) {
  if (outcome_ || bound()) {
    return;
  }
  if (!deadline_) {
    hopeless_ = hopeless_ ? hopeless_ : std::optional(std::move(why));
    return;
  }
  say(decider() ? BlobKind::verdict : BlobKind::promise, false);
  outcome_ = PairOutcome{false, std::move(why), rejected_};
}

void PairExchange::abandon(bool partner_left, const std::string& why) {
  if (bound() && partner_left && !outcome_) {
    outcome_ = PairOutcome{false, why, false};
    return;
  }
  go_alone(why);
}

void PairExchange::settle(bool met) {
  if (!outcome_ && bound()) {
    outcome_ = PairOutcome{met, met ? "" : "the partner went alone", false};
  }
}

void PairExchange::advance(TimePoint now) {
  if (outcome_) {
    return;
  }
  const Source& word = sources_[kWord];
  const bool heard = word.schedule->done();
  const bool yes = heard && word.bytes[0] == std::byte{1};
  if (bound()) {
    if (heard) {
      settle(yes);
    }
    return;
  }
  if (heard && (!yes || !decider())) {  // a verdict 1 cannot be there before the promise
    ahead_ = true;
    go_alone(yes ? "the partner spoke out of turn" : "the partner went alone");
  }
  if (outcome_ || !deadline_ || !sources_[kParameters].schedule->done() || !sources_[kGradient].schedule->done()) {
    return;
  }
  if (guard_.factor > 0 && !norm_) {
    norm_ = encoded_norm(plan_.codec, sources_[kGradient].bytes, plan_.values).value_or(0);
    if (const std::optional<std::string> why = guard_.verdict(*norm_)) {
      reject(*why);
      return;
    }
  }
  if (!decider()) {
    say(BlobKind::promise, true);
    promised_ = now;
    return;
  }
  if (yes || ATOLL_PLANTED(no_promise)) {
    say(BlobKind::verdict, true);
    outcome_ = PairOutcome{true, "", false};
  }
}

// The partner says which round it works on.
void PairExchange::check_standing(TimePoint now) {
  Source& source = sources_[kStanding];
  if (source.schedule && source.schedule->done()) {
    ByteReader reader(source.bytes);
    const Result<std::uint64_t> round = reader.read<std::uint64_t>();
    source.schedule.reset();
    ask_standing_ = now + kStandingAgain;
    if (round && *round < plan_.round.value && plan_.round.value - *round > plan_.max_skew) {
      go_alone("the partner is at round " + std::to_string(*round) + ", too far behind to wait for");
    }
  }
}

std::span<std::byte> PairExchange::destination(const IslandId& from, const BlobPiece& piece) {
  Source* source = source_of(from, piece.blob);
  if (source == nullptr || outcome_) {
    return {};
  }
  if (piece.total != source->bytes.size()) {
    go_alone("the partner serves " + describe(piece.blob) + " with " + std::to_string(piece.total) + " bytes where " +
             std::to_string(source->bytes.size()) + " belong");
    return {};
  }
  return source->schedule->outstanding(piece) ? std::span(source->bytes).subspan(static_cast<std::size_t>(piece.offset), piece.length) : std::span<std::byte>();
}

void PairExchange::arrived(TimePoint now, const IslandId& from, const BlobPiece& piece) {
  Source* source = source_of(from, piece.blob);
  if (source == nullptr || outcome_) {
    return;
  }
  const std::optional<std::size_t> index = source->schedule->outstanding(piece);
  if (!index) {
    return;
  }
  source->schedule->arrived(now, *index);
  bytes_received_ += piece.length;
  const bool parameters = source == &sources_[kParameters];
  if (source->schedule->done() && (parameters || source == &sources_[kGradient])) {
    if (const Status finite = check_encoded(parameters ? plan_.parameters_codec : plan_.codec, source->bytes, plan_.values); !finite) {
      reject(finite.error().why);
    }
  }
  check_standing(now);
  advance(now);
}

// Only what belongs to an exchange that is over there is refused.
void PairExchange::gone(TimePoint /*now*/, const IslandId& from, const Gone& gone) {
  const Source* source = source_of(from, gone.blob);
  if (source != nullptr && gone.blob.kind == BlobKind::contribution && !source->schedule->done()) {
    ahead_ = true;
    go_alone("the partner is past this round");
  }
}

void PairExchange::connected(TimePoint now, const IslandId& peer) {
  for (Source& source : sources_) {
    if (source.schedule && peer == plan_.partner) {
      source.schedule->ask_again(now);
    }
  }
}

void PairExchange::not_sent(TimePoint now, const OutgoingWant& want) {
  if (Source* source = source_of(want.to, want.want.blob)) {
    source->schedule->ask_again(now, kPauseAfterRefusedSend);
  }
}

std::vector<OutgoingWant> PairExchange::take_wants(TimePoint now) {
  std::vector<OutgoingWant> wants;
  advance(now);
  if (deadline_ && now >= *deadline_) {
    go_alone("the partner did not come by the deadline");
  }
  if (outcome_) {
    return wants;
  }
  // Only of a partner of whom nothing has come for this round it is worth knowing how far it is.
  Source& standing = sources_[kStanding];
  if (!standing.schedule && ask_standing_ && now >= *ask_standing_ && !bound() && !sources_[kGradient].schedule->done()) {
    read(kStanding, standing_of(plan_.run), sizeof(std::uint64_t), now);
  }
  for (Source& source : sources_) {
    if (source.schedule) {
      source.schedule->take(now, SIZE_MAX, wants);
    }
  }
  return wants;
}

std::optional<TimePoint> PairExchange::next_deadline() const {
  if (outcome_) {
    return std::nullopt;
  }
  std::optional<TimePoint> next = bound() ? std::nullopt : deadline_;
  const auto sooner = [&](std::optional<TimePoint> time) {
    if (time && (!next || *time < *next)) {
      next = time;
    }
  };
  for (const Source& source : sources_) {
    if (source.schedule) {
      sooner(source.schedule->next_deadline());
    }
  }
  if (!sources_[kStanding].schedule && deadline_ && !bound() && !sources_[kGradient].schedule->done()) {
    sooner(ask_standing_);
  }
  return next;
}

std::uint64_t PairExchange::bytes_to_serve() const { return own_parameters_.bytes.size() + own_gradient_.bytes.size() + 1; }

}  // namespace atl
