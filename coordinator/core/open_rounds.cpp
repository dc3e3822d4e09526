#include "coordinator/core/open_rounds.hpp"

#include <algorithm>
#include <cmath>

#include "transport/base/planted.hpp"

namespace atl::coordinator {
namespace {

constexpr std::size_t kMostRosters = 64;  // whose failures are remembered of a round

template <typename Value>
std::vector<Value> in_short(const std::vector<Value>& each) {
  const bool same = !each.empty() && std::ranges::all_of(each, [&](const Value& value) { return value == each.front(); });
  return same ? std::vector<Value>{each.front()} : each;
}

}  // namespace

Contribution contribution_in(const atl::Ready& message) {
  Contribution contribution{.facts = message.facts};
  contribution.facts.tokens = std::max<std::uint64_t>(message.facts.tokens, 1);
  return contribution;
}

OpenRound::Acceptance OpenRound::accepts(const IslandId& island) const {
  if (!exchanging_) {
    return Acceptance::yes;
  }
  return recovered_ && exchanges(island) && !exchanged_.contains(island) ? Acceptance::restarts : Acceptance::no;
}

void OpenRound::contribute(const IslandId& island, const Contribution& contribution, TimePoint now) {
  if (!contributions_.contains(island)) {
    last_ready_ = island;
  }
  contributions_[island] = contribution;
  fragment_ = contribution.facts.fragment;
  first_answer_ = first_answer_.value_or(now);
}

std::optional<std::string> OpenRound::take_offence(const IslandId& island) {
  const auto found = contributions_.find(island);
  if (found == contributions_.end() || !found->second.spoilt) {
    return std::nullopt;
  }
  found->second.spoilt = false;
  return found->second.why_not;
}

void OpenRound::reject(const IslandId& island, const std::string& why) {
  Contribution& contribution = contributions_.at(island);
  const ContributionFacts& facts = contribution.facts;
  contribution = Contribution{.withdrawn = true,
                              .rejected = true,
                              .facts = {.fragment = facts.fragment, .data = facts.data, .sequences = facts.sequences},
                              .why_not = why};
}

const Contribution* OpenRound::contribution_of(const IslandId& island) const {
  const auto found = contributions_.find(island);
  return found == contributions_.end() ? nullptr : &found->second;
}

Answer OpenRound::answer_of(const IslandId& island) const {
  const Contribution* contribution = contribution_of(island);
  return contribution == nullptr ? Answer::none : contribution->withdrawn ? Answer::withdrawn : Answer::ready;
}

bool OpenRound::exchanges(const IslandId& island) const { return std::ranges::find(plan_.members, island) != plan_.members.end(); }

void OpenRound::recover(const RoundRecord& record, bool exchanging, const Outbox& out) {
  attempt_ = record.attempt;
  fragment_ = record.fragment;
  exchanging_ = exchanging;
  recovered_ = true;
  plan_ = AttemptPlan{record.members, record.contributions, out.now()};
  if (exchanging_) {
    first_answer_ = out.now();
  }
  out.restart(resend_);
  // Of an older membership only the attempt's number counts: a member may have left since, and come back with nothing.
  for (std::size_t i = 0; exchanging_ && i < record.members.size() && i < record.contributions.size(); ++i) {
    contributions_[record.members[i]] = Contribution{.withdrawn = record.contributions[i].tokens == 0, .facts = record.contributions[i]};
  }
}

void OpenRound::plan_attempt(const std::vector<IslandId>& participants, const Outbox& out, std::vector<std::uint8_t> shares) {
  attempt_ = attempt_.next();
  exchanging_ = true;
  recovered_ = false;
  plan_ = AttemptPlan{participants, {}, out.now(), std::move(shares)};
  for (const IslandId& id : participants) {
    const Contribution* found = contribution_of(id);
    plan_.contributions.push_back(found == nullptr ? ContributionFacts{.fragment = fragment_.value_or(0)} : found->facts);
  }
  exchanged_.clear();
  parts_.clear();
  arrival_ = Arrival{};
  failed_.clear();
  missing_.clear();
  first_failure_.reset();
  out.restart(resend_);
}

void OpenRound::give_up() {
  exchanging_ = false;
  recovered_ = false;
}

void OpenRound::start_anew() {
  const Attempt attempt = attempt_;
  const std::optional<std::uint32_t> fragment = fragment_;
  std::map<std::vector<IslandId>, Failures> failures = std::move(failures_);
  *this = OpenRound{};
  attempt_ = attempt;
  fragment_ = fragment;
  failures_ = std::move(failures);
}

OpenRound::Report OpenRound::exchanged(const IslandId& island, const Exchanged& message, TimePoint now) {
  if (!exchanging_ || (message.attempt != attempt_ && !ATOLL_PLANTED(stale_attempt))) {
    return !exchanging_ || message.attempt < attempt_ ? Report::stale : Report::ignored;
  }
  if (!exchanged_.contains(island)) {
    // Not who says so last: where the round before held them up, all say it at once.
    if (message.arrived_seconds > arrival_.seconds) {
      arrival_.to = island;
      arrival_.from = message.slowest;
      arrival_.seconds = message.arrived_seconds;
    }
    arrival_.all = now;
  }
  exchanged_[island] = message.digest;
  parts_[island] = message.parts;
  failed_.erase(island);
  return Report::counted;
}

OpenRound::Report OpenRound::failed(const IslandId& island, const ExchangeFailed& message, const std::string& text, TimePoint now) {
  if (!exchanging_ || message.attempt != attempt_) {
    return Report::stale;
  }
  if (!first_failure_) {
    first_failure_ = now;
    failure_ = text;
  }
  exchanged_.erase(island);
  failed_[island] = message.accused;
  missing_[island] = message.missing;
  return Report::counted;
}

bool OpenRound::holds_result(const IslandId& island, const Digest& digest) const {
  const auto found = exchanged_.find(island);
  return found != exchanged_.end() && (found->second == digest || ATOLL_PLANTED(digest_unchecked));
}

std::vector<IslandId> OpenRound::holders(const Digest& digest) const {
  std::vector<IslandId> holders;
  for (const auto& [island, result] : exchanged_) {
    if (holds_result(island, digest)) {
      holders.push_back(island);
    }
  }
  return holders;
}

std::vector<IslandId> OpenRound::silent_and_due(const Outbox& out) {
  std::vector<IslandId> silent;
  if (recovered_ || !out.due(resend_)) {
    return silent;
  }
  std::ranges::copy_if(plan_.members, std::back_inserter(silent),
                       [&](const IslandId& id) { return !exchanged_.contains(id) && !failed_.contains(id); });
  return silent;
}

bool OpenRound::rejects(const IslandId& island) const {
  const Contribution* contribution = contribution_of(island);
  return contribution != nullptr && contribution->rejected;
}

double OpenRound::largest_norm() const {
  double largest = 0;
  for (const ContributionFacts& each : plan_.contributions) {
    largest = each.tokens > 0 && std::isfinite(each.norm) ? std::max(largest, each.norm) : largest;
  }
  return largest;
}

std::optional<std::size_t> OpenRound::awaited() const {
  if (!exchanging_ || !failed_.empty()) {
    return std::nullopt;
  }
  return plan_.members.size() - std::min(plan_.members.size(), exchanged_.size());
}

Exchange OpenRound::exchange_of(const std::vector<IslandId>& members_of_epoch, bool with_norms) const {
  Exchange order;
  order.attempt = attempt_;
  order.members = plan_.members == members_of_epoch ? std::vector<IslandId>() : plan_.members;
  order.terms = {in_short(each_of(plan_.contributions, &ContributionFacts::tokens)), plan_.shares,
                 in_short(each_of(plan_.contributions, &ContributionFacts::steps)),
                 with_norms ? in_short(each_of(plan_.contributions, &ContributionFacts::norm)) : std::vector<double>()};
  order.fragment = fragment_.value_or(0);
  return order;
}

void OpenRound::describe(AttemptInput& input) const {
  input.attempt = attempt_;
  input.planned = plan_.planned;
  input.first_failure = first_failure_;
  input.bad_attempts = bad_attempts_;
  input.blame = blame_;
  input.shares = plan_.shares;
  const bool differ = exchanged_.size() == plan_.members.size() &&
                      std::ranges::any_of(exchanged_, [&](const auto& done) { return done.second != exchanged_.begin()->second; });
  for (const IslandId& id : plan_.members) {
    AttemptMember member{id, id.text, std::nullopt, false, {}};
    if (const auto done = exchanged_.find(id); done != exchanged_.end()) {
      member.done = done->second;
      if (const auto parts = parts_.find(id); differ && parts != parts_.end()) {
        member.parts = parts->second;
      }
    } else if (const auto failed = failed_.find(id); failed != failed_.end()) {
      member.failed = true;
      member.accused = failed->second;
    }
    input.members.push_back(std::move(member));
  }
}

std::string OpenRound::blame(const AttemptDecision& decision, TimePoint now) {
  const std::string why = failure_.empty() ? decision.why : decision.why + " (" + failure_ + ")";
  bad_attempts_ = decision.left_out.empty() ? bad_attempts_ + 1 : 0;
  blame_ = decision.left_out.empty() ? decision.blame : std::map<IslandId, unsigned>{};
  failure_.clear();
  if (failures_.size() >= kMostRosters && !failures_.contains(plan_.members)) {
    failures_.erase(std::ranges::min_element(failures_, {}, [](const auto& each) { return each.second.newest; }));
  }
  Failures& failures = failures_[plan_.members];
  failures.attempts += 1;
  failures.own_fault = decision.own_fault ? failures.own_fault + 1 : 0;
  failures.newest = now;
  failures.why = why;
  return why;
}

const OpenRound::Failures* OpenRound::failures_among(const std::vector<IslandId>& members) const {
  const auto found = failures_.find(members);
  return found == failures_.end() ? nullptr : &found->second;
}

RoundTimes OpenRound::times(TimePoint committed) const {
  // When the last pieces came; the news of it took longer, where the round before held it up.
  const Duration arrived =
      arrival_.seconds > 0 ? from_seconds(std::min(arrival_.seconds, seconds(arrival_.all - plan_.planned))) : Duration(0);
  return RoundTimes{plan_.planned, plan_.planned + arrived, committed, last_ready_, arrival_.to, arrival_.from};
}

OpenRound* OpenRounds::find(Round round) {
  const auto found = rounds_.find(round);
  return found == rounds_.end() ? nullptr : &found->second;
}

const OpenRound* OpenRounds::find(Round round) const {
  const auto found = rounds_.find(round);
  return found == rounds_.end() ? nullptr : &found->second;
}

OpenRound OpenRounds::close(Round round) {
  OpenRound closed = std::move(rounds_.at(round));
  rounds_.erase(round);
  return closed;
}

void OpenRounds::start_anew() {
  for (auto& [number, round] : rounds_) {
    round.start_anew();
  }
}

std::vector<Round> OpenRounds::numbers() const {
  std::vector<Round> numbers;
  for (const auto& [number, round] : rounds_) {
    numbers.push_back(number);
  }
  return numbers;
}

bool OpenRounds::any_exchanging() const {
  return std::ranges::any_of(rounds_, [](const auto& round) { return round.second.exchanging(); });
}

bool OpenRounds::anybody_ready() const {
  return std::ranges::any_of(rounds_, [](const auto& round) { return !round.second.contributions().empty(); });
}

bool OpenRounds::follows_open_one(Round round) const {
  const std::optional<std::uint32_t> fragment = rounds_.at(round).fragment();
  return fragment &&
         std::any_of(rounds_.begin(), rounds_.lower_bound(round), [&](const auto& open) { return open.second.fragment() == fragment; });
}

void OpenRounds::forget_others(const IslandId& island, Round round, std::uint32_t fragment) {
  for (auto& [number, open] : rounds_) {
    const Contribution* other = open.contribution_of(island);
    if (number != round && other != nullptr && other->facts.fragment == fragment && !open.exchanging()) {
      open.forget(island);
    }
  }
}

std::optional<Round> OpenRounds::newest_of(const IslandId& island) const {
  std::optional<Round> newest;
  for (const auto& [number, round] : rounds_) {
    newest = round.contribution_of(island) != nullptr ? number : newest;
  }
  return newest;
}

std::vector<Round> OpenRounds::forget(const IslandId& island) {
  std::vector<Round> exchanging;
  for (auto& [number, round] : rounds_) {
    round.forget(island);
    if (round.exchanging() && round.exchanges(island)) {
      exchanging.push_back(number);
    }
  }
  return exchanging;
}

}  // namespace atl::coordinator
