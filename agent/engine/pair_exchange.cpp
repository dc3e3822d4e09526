#include "agent/engine/pair_exchange.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "strategies/contribution.hpp"
#include "transport/base/check.hpp"
#include "transport/base/planted.hpp"

namespace atl {
namespace {

constexpr std::uint64_t kPieceBytes = 1ULL << 18;
constexpr Duration kStandingAgain = std::chrono::seconds(1);
constexpr Attempt kAttempt{1};  // a pair tries a round once in an epoch
constexpr const char* kAnotherAlone = "another of the group went alone";

// Of a blob's pieces, as WantSchedule wants them.
std::vector<std::uint64_t> ends_of(std::uint64_t size) {
  std::vector<std::uint64_t> ends{0};
  while (ends.back() < size) {
    ends.push_back(std::min(size, ends.back() + kPieceBytes));
  }
  return ends;
}

BlobId standing_of(const RunId& run) {
  BlobId blob;
  blob.run = run;
  blob.kind = BlobKind::standing;
  return blob;
}

}  // namespace

PairExchange::PairExchange(PairPlan plan, Payload parameters, BlobStore& store, TimePoint now, WantSettings wants)
    : plan_(std::move(plan)), store_(store), wants_(std::move(wants)), own_parameters_(std::move(parameters)), epoch_(plan_.epoch) {
  ATOLL_CHECK(plan_.values > 0 && plan_.group.size() > 1, "a group is at least two islands with something to exchange");
  Bytes standing;
  append_le(standing, plan_.round.value);
  store_.put(standing_of(plan_.run), payload_of(std::move(standing)));
  store_.put(blob(BlobKind::contribution, 1), own_parameters_);
  for (const IslandId& member : plan_.group) {
    if (member == plan_.self) {
      continue;
    }
    Other& other = others_.emplace_back();
    other.id = member;
    read(other, other.parameters, blob(BlobKind::contribution, 1), encoded_bytes(plan_.parameters_codec, plan_.values), now);
    read(other, other.gradient, blob(BlobKind::contribution, 0), encoded_bytes(plan_.codec, plan_.values), now);
    if (decider()) {
      read(other, other.word, blob(BlobKind::promise, 0), 1, now);
    } else if (member == plan_.decider()) {
      read(other, other.word, blob(BlobKind::verdict, 0), 1, now);
    }
  }
}

PairExchange::~PairExchange() = default;

BlobId PairExchange::blob(BlobKind kind, std::uint32_t part) const {
  return BlobId{plan_.run, plan_.epoch, plan_.round, kAttempt, kind, part};
}

void PairExchange::read(Other& other, Source& source, const BlobId& id, std::uint64_t size, TimePoint now) {
  WantSettings wants = wants_;
  if (id.kind != BlobKind::contribution) {
    wants.paths.reset();  // a word that is waited for says nothing of the path
  }
  wants.packed = plan_.packed && id.kind == BlobKind::contribution;
  source.schedule.emplace(other.id, id, ends_of(size), wants, now);
  source.bytes.assign(static_cast<std::size_t>(size), std::byte{});
}

PairExchange::Other* PairExchange::other_of(const IslandId& from) {
  const auto found = std::find_if(others_.begin(), others_.end(), [&](const Other& other) { return other.id == from; });
  return found == others_.end() ? nullptr : &*found;
}

PairExchange::Source* PairExchange::source_of(Other& other, const BlobId& id) {
  Source* found = nullptr;
  other.each([&](Source& source) { found = source.schedule->blob() == id ? &source : found; });
  return found;
}

bool PairExchange::reads(const BlobId& id) const {
  const auto is = [&](const Source& source) { return source.schedule && source.schedule->blob() == id; };
  return std::any_of(others_.begin(), others_.end(), [&](const Other& other) {
    return is(other.parameters) || is(other.gradient) || is(other.word) || is(other.standing);
  });
}

void PairExchange::say(BlobKind kind, bool yes) {
  store_.put(blob(kind, 0), payload_of(Bytes{std::byte{yes ? std::uint8_t{1} : std::uint8_t{0}}}));
}

void PairExchange::arrive(Payload gradient, TimePoint now, TimePoint deadline, const NormGuard& guard) {
  if (deadline_) {
    return;
  }
  own_gradient_ = std::move(gradient);
  deadline_ = deadline;
  guard_ = guard;
  for (Other& other : others_) {
    other.ask_standing = now;
  }
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

void PairExchange::settle(bool met, std::string why) {
  if (!outcome_ && bound()) {
    outcome_ = PairOutcome{met, std::move(why), false};
  }
}

void PairExchange::change_epoch(Epoch epoch, std::span<const IslandId> members, const std::string& why) {
  const auto is_member = [&](const IslandId& island) { return std::find(members.begin(), members.end(), island) != members.end(); };
  epoch_ = epoch;
  bool nobody = true;
  for (Other& other : others_) {
    other.member = is_member(other.id);
    other.knows_nothing = false;
    nobody = nobody && !other.member;
  }
  go_alone(why);
  if ((nobody || (ATOLL_PLANTED(others_unasked) && !is_member(plan_.decider()))) && is_member(plan_.self)) {
    settle(false, why);
  }
}

void PairExchange::hear(const IslandId& from, Epoch asked_in, PairWord word) {
  Other* other = other_of(from);
  if (other == nullptr || asked_in != epoch_) {
    return;
  }
  if (word == PairWord::met || word == PairWord::alone) {
    settle(word == PairWord::met, word == PairWord::met ? "" : kAnotherAlone);
    return;
  }
  other->knows_nothing = true;
  if (std::all_of(others_.begin(), others_.end(), [](const Other& each) { return !each.member || each.knows_nothing; })) {
    settle(false, "who decided has left, and nobody of the others knows what");
  }
}

bool PairExchange::renounce(Epoch asked_in) {
  if (outcome_ || !bound() || asked_in != epoch_ || epoch_ == plan_.epoch) {
    return false;
  }
  renounced_ = true;
  return true;
}

std::vector<IslandId> PairExchange::to_ask() const {
  std::vector<IslandId> islands;
  for (const Other& other : others_) {
    if (other.member) {
      islands.push_back(other.id);
    }
  }
  return islands;
}

// Whether no gradient has a norm out of all proportion. Goes alone otherwise.
bool PairExchange::guards_agree() {
  for (Other& other : others_) {
    if (guard_.factor <= 0 || other.norm) {
      continue;
    }
    other.norm = encoded_norm(plan_.codec, other.gradient.bytes, plan_.values).value_or(0);
    if (const std::optional<std::string> why = guard_.verdict(*other.norm)) {
      reject(*why);
      return false;
    }
  }
  return true;
}

void PairExchange::advance(TimePoint now) {
  if (outcome_) {
    return;
  }
  bool all_yes = true;
  for (const Other& other : others_) {
    const bool heard = other.word.done();
    const bool yes = heard && other.word.bytes[0] == std::byte{1};
    all_yes = all_yes && yes;
    if (heard && bound() && !renounced_) {
      settle(yes, yes ? "" : kAnotherAlone);  // of the decider: nobody else's word is read
    }
    if (heard && !bound() && (!yes || !decider())) {  // a verdict 1 cannot be there before the promise
      ahead_ = true;
      go_alone(yes ? "the decider spoke out of turn" : kAnotherAlone);
    }
  }
  const bool complete =
      std::all_of(others_.begin(), others_.end(), [](const Other& other) { return other.parameters.done() && other.gradient.done(); });
  if (bound() || outcome_ || !deadline_ || !complete || !guards_agree()) {
    return;
  }
  if (!decider()) {
    say(BlobKind::promise, true);
    promised_ = now;
    return;
  }
  if (all_yes || ATOLL_PLANTED(no_promise)) {
    say(BlobKind::verdict, true);
    outcome_ = PairOutcome{true, "", false};
  }
}

// Another says which round it works on.
void PairExchange::check_standing(Other& other, TimePoint now) {
  if (!other.standing.done()) {
    return;
  }
  ByteReader reader(other.standing.bytes);
  const Result<std::uint64_t> round = reader.read<std::uint64_t>();
  other.standing.schedule.reset();
  other.ask_standing = now + kStandingAgain;
  if (round && *round < plan_.round.value && plan_.round.value - *round > plan_.max_skew) {
    behind_ = other.id;
    go_alone("the partner is at round " + std::to_string(*round) + ", too far behind to wait for");
  }
}

std::span<std::byte> PairExchange::destination(const IslandId& from, const BlobPiece& piece) {
  Other* other = other_of(from);
  Source* source = other != nullptr ? source_of(*other, piece.blob) : nullptr;
  if (source == nullptr || outcome_) {
    return {};
  }
  if (piece.total != source->bytes.size()) {
    go_alone("the partner serves " + describe(piece.blob) + " with " + std::to_string(piece.total) + " bytes where " +
             std::to_string(source->bytes.size()) + " belong");
    return {};
  }
  return source->schedule->outstanding(piece) ? std::span(source->bytes).subspan(static_cast<std::size_t>(piece.offset), piece.length)
                                              : std::span<std::byte>();
}

void PairExchange::arrived(TimePoint now, const IslandId& from, const BlobPiece& piece) {
  Other* other = other_of(from);
  Source* source = other != nullptr ? source_of(*other, piece.blob) : nullptr;
  if (source == nullptr || outcome_) {
    return;
  }
  const std::optional<std::size_t> index = source->schedule->outstanding(piece);
  if (!index) {
    return;
  }
  source->schedule->arrived(now, *index);
  bytes_received_ += piece.payload_bytes();
  const bool parameters = source == &other->parameters;
  if (source->done() && (parameters || source == &other->gradient)) {
    if (const Status finite = check_encoded(parameters ? plan_.parameters_codec : plan_.codec, source->bytes, plan_.values); !finite) {
      reject(finite.error().why);
    }
  }
  check_standing(*other, now);
  advance(now);
}

// Only what belongs to an exchange that is over there is refused.
void PairExchange::gone(TimePoint /*now*/, const IslandId& from, const Gone& gone) {
  Other* other = other_of(from);
  const Source* source = other != nullptr ? source_of(*other, gone.blob) : nullptr;
  if (source != nullptr && gone.blob.kind == BlobKind::contribution && !source->done()) {
    ahead_ = true;
    go_alone("the partner is past this round");
  }
}

void PairExchange::connected(TimePoint now, const IslandId& peer) {
  if (Other* other = other_of(peer)) {
    other->each([&](Source& source) { source.schedule->ask_again(now); });
  }
}

void PairExchange::not_sent(TimePoint now, const OutgoingWant& want) {
  Other* other = other_of(want.to);
  if (Source* source = other != nullptr ? source_of(*other, want.want.blob) : nullptr) {
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
  for (Other& other : others_) {
    // Only of one of whom nothing has come for this round it is worth knowing how far it is.
    if (!other.standing.schedule && other.ask_standing && now >= *other.ask_standing && !bound() && !other.gradient.done()) {
      read(other, other.standing, standing_of(plan_.run), sizeof(std::uint64_t), now);
    }
    other.each([&](Source& source) { source.schedule->take(now, SIZE_MAX, wants); });
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
  for (const Other& other : others_) {
    for (const Source* source : {&other.parameters, &other.gradient, &other.word, &other.standing}) {
      if (source->schedule) {
        sooner(source->schedule->next_deadline());
      }
    }
    if (!other.standing.schedule && deadline_ && !bound() && !other.gradient.done()) {
      sooner(other.ask_standing);
    }
  }
  return next;
}

std::vector<IslandId> PairExchange::silent(TimePoint now, Duration longer_than) const {
  std::vector<IslandId> islands;
  for (const Other& other : others_) {
    const bool is_silent = std::ranges::any_of(std::array{&other.parameters, &other.gradient, &other.word}, [&](const Source* source) {
      const std::optional<TimePoint> since = source->schedule ? source->schedule->silent_since() : std::nullopt;
      return since && now - *since > longer_than;
    });
    if (is_silent && deadline_ && !outcome_ && other.member) {
      islands.push_back(other.id);
    }
  }
  return islands;
}

bool PairExchange::partner_ahead() const {
  return ahead_ || std::any_of(others_.begin(), others_.end(), [](const Other& other) { return other.gradient.done(); });
}

std::size_t PairExchange::place() const {
  return static_cast<std::size_t>(std::find(plan_.group.begin(), plan_.group.end(), plan_.self) - plan_.group.begin());
}

std::vector<ByteView> PairExchange::gradients(ByteView own) const {
  std::vector<ByteView> all;
  for (const Other& other : others_) {
    all.emplace_back(other.gradient.bytes);
  }
  all.insert(all.begin() + static_cast<std::ptrdiff_t>(place()), own);
  return all;
}

std::vector<ByteView> PairExchange::parameters() const {
  std::vector<ByteView> all;
  for (const Other& other : others_) {
    all.emplace_back(other.parameters.bytes);
  }
  all.insert(all.begin() + static_cast<std::ptrdiff_t>(place()), own_parameters_.bytes);
  return all;
}

std::vector<double> PairExchange::norms() const {
  std::vector<double> norms;
  for (const Other& other : others_) {
    if (other.norm) {
      norms.push_back(*other.norm);
    }
  }
  return norms;
}

std::uint64_t PairExchange::bytes_to_serve() const {
  if (plan_.packed) {
    return 0;
  }
  return others_.size() * (own_parameters_.bytes.size() + own_gradient_.bytes.size() + 1);
}

}  // namespace atl
