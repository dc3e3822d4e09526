// A round in the sync engine: the contribution is formed, exchanged, reduced and checked, and the committed result is applied.
#include "agent/engine/round_exchange.hpp"

#include <algorithm>
#include <cmath>

#include "agent/engine/sync_engine_state.hpp"
#include "strategies/aggregate.hpp"
#include "strategies/contribution.hpp"
#include "transport/base/log.hpp"
#include "transport/base/planted.hpp"

namespace atl {
namespace {

constexpr Duration kSoonestStall = std::chrono::seconds(4);  // a machine that is busy with something else is back by then
constexpr int kUsualTimes = 4;
constexpr std::size_t kUsualExchanges = 8;  // remembered

// Where in the sum the parts lie that this member got from others or gave them: see RoundExchange::part_digests.
std::vector<ResultBytes> parts_given(const ExchangePlan& plan, std::size_t self) {
  std::vector<ResultBytes> parts;
  const auto add = [&](const PieceRange& pieces) {
    const std::uint64_t begin = plan.layout.reduced[pieces.begin];
    parts.push_back({0, begin, plan.layout.reduced[pieces.end] - begin});
  };
  for (std::size_t i = 0; i < plan.members.size() && !plan.grid; ++i) {
    add(plan.shard(i));
  }
  for (std::size_t column = 0; plan.grid && column < plan.grid->columns; ++column) {
    add(plan.given(plan.grid->owner(0, column)));
  }
  for (std::size_t group = 0; plan.grid && plan.grid->column[self] != kNoColumn && group < plan.grid->groups; ++group) {
    add(plan.shard(plan.grid->owner(group, plan.grid->column[self])));
  }
  return parts;
}

}  // namespace

Result<std::unique_ptr<RoundExchange>> RoundExchange::begin(const agent::BeginExchange& order, const IslandRun& run, const IslandId& self,
                                                            BlobStore& store, TimePoint now, const ExchangeAttempt::Settings& settings,
                                                            std::size_t one_level_members) {
  std::unique_ptr<RoundExchange> round(new RoundExchange(order, now));
  const Composition& composition = run.composition();
  if (!run.layout() || order.fragment >= run.layout()->fragments().size() || order.members.size() != order.terms.tokens.size()) {
    return Error{Code::internal, "the exchange of round " + std::to_string(order.round.value) + " does not fit the run"};
  }
  const bool merges = run.merges(order.round);  // exactly, and by tokens
  round->codec_ = merges ? CodecSettings{} : composition.codec;
  round->reduce_codec_ = merges ? CodecSettings{} : composition.reduce_codec;
  round->values_ = run.layout()->fragments()[order.fragment].count;
  round->buffers_ = run.layout()->buffers(order.fragment);
  ATOLL_TRY(round->weigh(run));

  ExchangePlan plan;
  plan.run = order.run;
  plan.epoch = order.epoch;
  plan.round = order.round;
  plan.attempt = order.attempt;
  plan.self = self;
  plan.weights = order.terms.tokens;
  plan.packed = composition.packing == Packing::zstd;
  Payload own;
  for (std::size_t i = 0; i < order.members.size(); ++i) {
    plan.members.push_back(order.members[i].island);
    if (order.members[i].island == self && order.terms.tokens[i] > 0) {
      const Contribution* contribution = run.contribution(order.round);
      if (contribution == nullptr || contribution->facts.fragment != order.fragment) {
        return Error{Code::conflict, "this island has no contribution to round " + std::to_string(order.round.value)};
      }
      own = contribution->encoded;
      round->own_ =
          static_cast<std::size_t>(std::count_if(order.terms.tokens.begin(), order.terms.tokens.begin() + static_cast<std::ptrdiff_t>(i),
                                                 [](std::uint64_t tokens) { return tokens > 0; }));
    }
  }
  const auto bytes_in = [](const CodecSettings& codec) { return [codec](std::uint64_t count) { return encoded_bytes(codec, count); }; };
  if (sums_by_groups(round->aggregator_)) {
    plan.grid = cut_grid(plan.members.size(), order.terms.shares, one_level_members);
  }
  plan.layout = cut_pieces(round->values_, plan.grid ? plan.grid->owners.size() : plan.members.size(),
                           shard_granularity(round->codec_, round->reduce_codec_), bytes_in(round->codec_), bytes_in(round->reduce_codec_),
                           1ULL << 16, plan.grid ? std::span<const std::uint8_t>() : order.terms.shares);
  const auto own_place = std::find(plan.members.begin(), plan.members.end(), self);
  if (own_place == plan.members.end()) {
    return Error{Code::internal, "this island is not a member of the exchange of round " + std::to_string(order.round.value)};
  }
  round->parts_given_ = parts_given(plan, static_cast<std::size_t>(own_place - plan.members.begin()));
  round->bytes_to_serve_ = plan.packed ? 0 : bytes_others_read(plan, static_cast<std::size_t>(own_place - plan.members.begin()));
  round->served_before_ = store.bytes_served(order.run);
  RoundExchange* self_pointer = round.get();
  const auto reduce = [self_pointer](const ReducePiece& piece) { return self_pointer->reduce(piece); };
  ATOLL_ASSIGN(round->attempt_, ExchangeAttempt::begin(std::move(plan), std::move(own), reduce, store, now, settings));
  std::vector<std::uint64_t> sizes;
  for (const Payload& part : round->attempt_->parts()) {
    round->parts_.push_back(part.bytes);
    sizes.push_back(part.bytes.size());
  }
  round->hashes_.emplace(sizes);
  return round;
}

Status RoundExchange::weigh(const IslandRun& run) {
  std::vector<std::uint64_t> tokens;
  std::vector<std::uint64_t> steps;
  for (std::size_t i = 0; i < order_.members.size(); ++i) {
    if (order_.terms.tokens[i] == 0) {
      continue;
    }
    tokens.push_back(order_.terms.tokens[i]);
    if (i < order_.terms.steps.size()) {
      steps.push_back(order_.terms.steps[i]);
    }
    if (i < order_.terms.norms.size()) {
      norms_.push_back(order_.terms.norms[i]);
    }
  }
  const bool merges = run.merges(order_.round);
  aggregator_ = run.aggregator(order_.round, order_.fragment);
  // The norms that radial-directional averaging counts are of the trained values alone.
  const bool of_all_values = !merges && (aggregator_ != Aggregator::radial_directional || buffers_.empty());
  for (const double norm : norms_) {
    most_ = of_all_values && std::isfinite(norm) ? std::max(most_, norm) : most_;
  }
  squares_.assign(tokens.size(), 0.0);
  if (tokens.empty()) {
    return {};  // the round is skipped: its result has no terms, and changes nothing
  }
  ATOLL_ASSIGN(weights_, contribution_weights(tokens, merges ? Weighting::tokens : run.composition().weighting, steps));
  if (aggregator_ != Aggregator::radial_directional || tokens.size() == 1) {
    norms_.assign(tokens.size(), 0.0);
    aggregator_ = aggregator_ == Aggregator::radial_directional ? Aggregator::weighted_mean : aggregator_;
  } else if (norms_.size() != tokens.size()) {
    return Error{Code::conflict, "the norms of the contributions to round " + std::to_string(order_.round.value) +
                                     " are not known: the coordinator is of an older version"};
  }
  std::vector<EncodedTerm> contributors;  // without their bytes
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    contributors.push_back({{}, weights_[i], norms_[i]});
  }
  length_ = radial_length(contributors);
  return {};
}

// Rounding makes a contribution longer than what was said of it. Its own an island does not judge: if its trainer changed what it had
// published, the arena's check says so, and the others judge.
Status RoundExchange::check_told(std::size_t contributor, double norm) const {
  const double room = codec_.kind == CodecKind::f32 ? 1.0 + 0x1p-10 : 4.0;
  if (judges(contributor) && !(norm <= most_ * room)) {
    return Error{Code::corrupt, "the contribution of member " + std::to_string(contributor) + " has a norm of " + std::to_string(norm) +
                                    ", and the largest norm that was said is " + std::to_string(most_)};
  }
  return {};
}

bool RoundExchange::judges(std::size_t contributor) const { return contributor != own_ && most_ > 0; }

Result<double> RoundExchange::look_at(std::size_t contributor, ByteView bytes, std::uint64_t values, const InParts& in_parts) const {
  const bool told = aggregator_ == Aggregator::radial_directional && buffers_.empty();
  if (told) {
    ATOLL_TRY(check_norm(codec_, bytes, values, norms_[contributor]));
  }
  if (judges(contributor)) {
    return encoded_norm(codec_, bytes, values);
  }
  if (!told) {
    ATOLL_TRY(check_encoded(codec_, bytes, values, in_parts));
  }
  return 0.0;
}

std::optional<ReduceFailure> RoundExchange::reduce(const ReducePiece& piece) {
  sum_.resize(static_cast<std::size_t>(piece.elements));
  if (std::optional<ReduceFailure> failure = piece.of == SumOf::groups ? sum_groups(piece) : sum_contributions(piece)) {
    return failure;
  }
  if (const Status encoded = encode(reduce_codec_, sum_, piece.reduced); !encoded) {
    return ReduceFailure{0, with_context(encoded.error(), "the sum of the contributions")};
  }
  return std::nullopt;
}

std::optional<ReduceFailure> RoundExchange::sum_contributions(const ReducePiece& piece) {
  std::vector<EncodedTerm> terms;
  for (std::size_t i = 0; i < piece.contributions.size(); ++i) {
    const std::size_t contributor = piece.contributors[i];
    const Result<double> norm = look_at(contributor, piece.contributions[i], piece.elements);
    if (!norm) {
      return ReduceFailure{i, norm.error()};
    }
    squares_[contributor] += *norm * *norm;
    if (const Status told = check_told(contributor, std::sqrt(squares_[contributor])); !told) {
      return ReduceFailure{i, told.error()};
    }
    terms.push_back({piece.contributions[i], weights_[contributor], norms_[contributor]});
  }
  if (piece.of == SumOf::group) {
    for (EncodedTerm& term : terms) {
      term.weight = ATOLL_PLANTED(mean_of_groups) ? 1.0F / static_cast<float>(order_.members.size()) : term.weight;
    }
    aggregate_group(aggregator_, codec_, terms, length_, buffers_, piece.first_element, sum_, scratch_);
    return std::nullopt;
  }
  aggregate(aggregator_, codec_, terms, 0, sum_, scratch_);
  share_buffers(aggregator_, buffers_, codec_, terms, 0, piece.first_element, sum_, scratch_);
  return std::nullopt;
}

std::optional<ReduceFailure> RoundExchange::sum_groups(const ReducePiece& piece) {
  std::vector<EncodedTerm> terms;
  for (std::size_t i = 0; i < piece.contributions.size(); ++i) {
    if (const Status checked = check_encoded(reduce_codec_, piece.contributions[i], piece.elements); !checked) {
      return ReduceFailure{i, with_context(checked.error(), "the sum of a group")};
    }
    terms.push_back({piece.contributions[i]});
  }
  aggregate_groups(reduce_codec_, terms, buffers_, piece.first_element, sum_, scratch_);
  return std::nullopt;
}

const RoundResult& RoundExchange::result() {
  if (!result_) {
    ATOLL_CHECK(attempt_->done(), "the result of an exchange is asked for once it is there");
    outcome_ = attempt_->result();
    RoundResult result;
    result.round = order_.round;
    result.fragment = order_.fragment;
    result.values = values_;
    result.codec = outcome_.gathered ? codec_ : reduce_codec_;
    for (std::size_t i = 0; i < outcome_.parts.size(); ++i) {
      const float weight = outcome_.gathered && !ATOLL_PLANTED(weights_forgotten) ? weights_[i] : 1.0F;
      result.terms.push_back({outcome_.parts[i].bytes, weight, outcome_.gathered ? norms_[i] : length_});
    }
    result_ = std::move(result);
  }
  return *result_;
}

Status RoundExchange::check_result(std::optional<std::size_t>& contributor, const InParts& in_parts) {
  const std::vector<EncodedTerm>& terms = result().terms;
  for (std::size_t i = 0; i < terms.size(); ++i) {
    contributor = outcome_.gathered ? std::optional(i) : std::nullopt;
    if (!outcome_.gathered) {
      ATOLL_TRY(check_encoded(reduce_codec_, terms[i].bytes, values_, in_parts));
      continue;
    }
    ATOLL_ASSIGN(const double norm, look_at(i, terms[i].bytes, values_, in_parts));
    ATOLL_TRY(check_told(i, norm));
  }
  return {};
}

float RoundExchange::own_weight(const IslandId& self) const {
  std::size_t contributor = 0;
  for (std::size_t i = 0; i < order_.members.size(); ++i) {
    if (order_.members[i].island == self) {
      return order_.terms.tokens[i] > 0 ? weights_[contributor] : 0.0F;
    }
    contributor += order_.terms.tokens[i] > 0 ? 1U : 0U;
  }
  return 0.0F;
}

bool RoundExchange::hash_some() {
  for (const ResultBytes& bytes : attempt_->take_ready()) {
    hashes_->ready(bytes.part, bytes.offset, bytes.length);
  }
  return hashes_->hash_one(parts_);
}

Digest RoundExchange::digest(const Digest& previous, const InParts& in_parts) {
  if (!digest_) {
    digest_ = hashes_->after(previous, header_of(result()), parts_, in_parts);
  }
  return *digest_;
}

std::vector<Digest> RoundExchange::part_digests() const {
  std::vector<Digest> parts;
  std::size_t contributor = 0;
  for (std::size_t i = 0; i < parts_given_.size(); ++i) {
    ResultBytes given = parts_given_[i];
    if (outcome_.gathered) {
      const bool contributes = order_.terms.tokens[i] > 0;
      given = contributes ? ResultBytes{contributor, 0, parts_[contributor].size()} : ResultBytes{};
      contributor += contributes ? 1U : 0U;
    }
    parts.push_back(given.length == 0 || parts_.empty() ? Digest{} : hashes_->of_range(given.part, given.offset, given.length, parts_));
  }
  return parts;
}

}  // namespace atl

// ------------------------------------------------------------------------------------------------------ what the engine does with it

namespace atl::agent {

void SyncEngine::State::carry_out(const FormContribution& order) {
  OpenedRun* open = find(order.run);
  if (open == nullptr) {
    return;
  }
  const TimePoint start = now();
  const Result<Contribution> contribution = open->run->form_contribution(order.round, order.facts);
  open->meters[order.round].form = ms_since(start);
  note(order.run, SpanKind::encode, order.round, order.facts.fragment, start, contribution ? contribution->encoded.bytes.size() : 0);
  if (!contribution) {
    say(ContributionFailed{order.run, order.round, contribution.error()});
    return;
  }
  reach(RoundPhase::before_send, order.round);
  say(ContributionFormed{order.run, order.round, contribution->facts});
}

void SyncEngine::State::carry_out(const PostponeContribution& order) {
  if (OpenedRun* open = find(order.run)) {
    open->run->postpone_contribution(order.round, order.to);
  }
}

void SyncEngine::State::carry_out(const BeginExchange& order) {
  OpenedRun* open = find(order.run);
  if (open == nullptr) {
    return;
  }
  open->meters[order.round].arrivals.clear();
  open->meters[order.round].reduce_start.reset();
  open->exchanges.erase(order.round);  // an earlier attempt ends before this one serves the same contribution
  if (Audience& audience = audiences[order.run]; audience.partners && order.members.size() > 1) {
    const Aggregator aggregator = open->run->merges(order.round) ? Aggregator::weighted_mean : open->run->composition().aggregator;
    if (auto partners = partners_among(aggregator, order.members, order.terms.shares); partners != audience.partners) {
      audience.partners = std::move(partners);
      set_peers();
    }
  }
  Result<std::unique_ptr<RoundExchange>> exchange =
      RoundExchange::begin(order, *open->run, settings.self, link->store(), now(), {wants, buffers}, settings.one_level_members);
  if (!exchange) {
    say(ExchangeBroke{order.run, order.round, order.attempt, {}, exchange.error()});
    return;
  }
  if (settings.rehearsal) {
    settings.rehearsal->exchange_begins(order.members.size());
  }
  open->exchanges[order.round] = *std::move(exchange);
}

// One piece of each exchange; false if none was complete.
bool SyncEngine::State::reduce() {
  bool busy = false;
  for (auto& [id, open] : runs) {
    for (auto& [round, exchange] : open.exchanges) {
      const TimePoint start = now();
      if (!exchange->reported && exchange->attempt().reduce_one()) {
        busy = true;
        RoundMeter& meter = open.meters[round];
        meter.reduce_start = meter.reduce_start.value_or(start);
        meter.reduce_end = now();
        reach(RoundPhase::reducing, round);
      }
    }
  }
  return busy;
}

// Some of what has come of one exchange, while nothing else is to be done.
bool SyncEngine::State::hash() {
  for (auto& [id, open] : runs) {
    for (auto& [round, exchange] : open.exchanges) {
      if (!exchange->reported && !exchange->attempt().failure() && exchange->hash_some()) {
        return true;
      }
    }
  }
  return false;
}

void SyncEngine::State::settle_exchanges(TimePoint at) {
  for (auto& [id, open] : runs) {
    for (auto& [round, exchange] : open.exchanges) {
      if (!exchange->reported) {
        settle(open, *exchange, at);
      }
    }
  }
}

void SyncEngine::State::settle(OpenedRun& open, RoundExchange& exchange, TimePoint at) {
  ExchangeAttempt& attempt = exchange.attempt();
  doubt(attempt, at);
  if (attempt.failure()) {
    report_broken(exchange, attempt.failure()->accused, attempt.failure()->error);
  } else if (attempt.done()) {
    if (open.run->has_state() && open.run->round().next() == exchange.order().round) {
      report_done(open, exchange);
    }
  } else if (const Duration limit = patience(open, exchange.order()); !stalled(attempt, at, limit).empty()) {
    const std::vector<Stall> stalls = stalled(attempt, at, limit * 3 / 4);
    std::vector<IslandId> missing;
    for (const Stall& stall : stalls) {
      if (stall.contribution) {
        missing.push_back(stall.accused);
      }
      if (stall.contribution || attempt.on_two_levels()) {  // there some read nothing but sums of each other
        probes.suspect(stall.accused, at);
      }
    }
    const IslandId accused = stalls.front().accused;
    report_broken(exchange, accused, {Code::timeout, stalls.front().why}, std::move(missing));
  }
}

std::vector<Stall> SyncEngine::State::stalled(const ExchangeAttempt& attempt, TimePoint at, Duration longer_than) const {
  return at - looks_since < longer_than ? std::vector<Stall>() : attempt.stalled(at, longer_than);
}

// A few of the usual times: whoever waits for one that does not deliver waits no longer than that. Longer with each attempt, for what is
// only slow must get through.
Duration SyncEngine::State::patience(const OpenedRun& open, const BeginExchange& order) const {
  const Duration most = order.stall_after.value_or(settings.stall_after);
  if (open.usual.empty()) {
    return most;
  }
  const Duration usual = *std::max_element(open.usual.begin(), open.usual.end());
  const unsigned doublings = std::min(order.attempt.value > 0 ? order.attempt.value - 1 : 0U, 8U);
  return std::min(most, std::max<Duration>(kSoonestStall, usual * kUsualTimes) * (1U << doublings));
}

void SyncEngine::State::report_done(OpenedRun& open, RoundExchange& exchange) {
  const BeginExchange& order = exchange.order();
  const RoundResult& result = exchange.result();
  if (result.terms.size() > 1) {
    reach(RoundPhase::reducing, order.round);  // the sum of two is taken now, not piece by piece
  }
  const TimePoint start = now();
  RoundMeter& meter = open.meters[order.round];
  meter.exchange = seconds(start - exchange.started()) * 1000.0;
  std::vector<IslandId> contributors;
  for (std::size_t i = 0; i < order.members.size(); ++i) {
    if (order.terms.tokens[i] > 0) {
      contributors.push_back(order.members[i].island);
    }
  }
  std::optional<std::size_t> whose;
  if (const Status usable = exchange.check_result(whose, settings.in_parts); !usable) {
    report_broken(exchange, whose ? contributors[*whose] : IslandId(), usable.error());
    return;
  }
  const Digest digest = exchange.digest(open.run->digest_before(order.round), settings.in_parts);
  meter.digest = ms_since(start);
  reach(RoundPhase::before_commit, order.round);
  exchange.reported = true;
  open.usual.push_back(start - exchange.started());
  if (open.usual.size() > kUsualExchanges) {
    open.usual.pop_front();
  }
  // Others may still be reading; what they have not read yet is counted now, and not again with the next round.
  const std::uint64_t read_so_far = link->store().bytes_served(order.run);
  const std::uint64_t served_in_all = std::max(read_so_far, exchange.served_before() + exchange.bytes_to_serve());
  const std::uint64_t sent = served_in_all - std::min(open.told_served, served_in_all);
  open.told_served = std::max(open.told_served, served_in_all);
  ExchangeDone done{
      order.run, order.round, order.attempt, digest, sent, exchange.attempt().progress().bytes_received, meter.exchange / 1000.0};
  done.parts = exchange.part_digests();
  done.slowest = exchange.attempt().progress().slowest;
  if (!done.slowest.empty()) {
    done.arrived_seconds = seconds(exchange.attempt().progress().slowest_at - exchange.started());
  }
  say(std::move(done));
}

void SyncEngine::State::report_broken(RoundExchange& exchange, const IslandId& accused, Error error, std::vector<IslandId> missing) {
  const BeginExchange& order = exchange.order();
  exchange.reported = true;
  say(ExchangeBroke{order.run, order.round, order.attempt, accused, std::move(error), std::move(missing)});
}

void SyncEngine::State::carry_out(const CancelExchange& order) {
  if (OpenedRun* open = find(order.run)) {
    const auto found = open->exchanges.find(order.round);
    if (found != open->exchanges.end() && found->second->order().attempt == order.attempt) {
      open->exchanges.erase(found);
    }
    // Of a pair, too: else the order to meet in this round again would be taken for a repeated one, and never be answered.
    const auto pair = open->pairs.find(order.round);
    if (pair != open->pairs.end() && pair->second.order && pair->second.order->attempt == order.attempt) {
      open->pairs.erase(pair);
    }
  }
}

void SyncEngine::State::carry_out(const ApplyResult& order) {
  OpenedRun* open = find(order.run);
  if (open == nullptr) {
    return;
  }
  if (apply_pair(*open, order)) {
    return;
  }
  const auto found = open->exchanges.find(order.round);
  const auto fail = [&](Error error) { say(ResultApplied{order.run, order.round, std::move(error)}); };
  if (found == open->exchanges.end() || !found->second->attempt().done() || found->second->order().attempt != order.attempt) {
    fail({Code::conflict, "the result of " + round_text(order.round) + " is not held here"});
    return;
  }
  if (!open->run->has_state() || open->run->round().next() != order.round) {
    fail({Code::conflict,
          "the result of " + round_text(order.round) + " is not next: the outer state is that of " + round_text(open->run->round())});
    return;
  }
  RoundExchange& exchange = *found->second;
  if (exchange.digest(open->run->digest_before(order.round), settings.in_parts) != order.digest) {
    fail({Code::corrupt, "the result of " + round_text(order.round) + " held here is not the committed one"});
    return;
  }
  const TimePoint start = now();
  link->store().finish_rounds_before(order.run, order.round.next());
  if (open->keep_results) {
    keep_result(*open, exchange.result());
  }
  const Status applied = order.behind ? open->run->apply_behind(exchange.result(), order.digest)
                                      : open->run->apply(exchange.result(), order.digest, nullptr, exchange.own_weight(settings.self));
  tell_misuse(*open);
  RoundMeter meter = std::exchange(open->meters[order.round], {});
  meter.step = ms_since(start);
  note(order.run, SpanKind::outer_step, order.round, exchange.order().fragment, start);
  note_exchange(order.run, exchange, meter);
  open->exchanges.erase(open->exchanges.begin(), open->exchanges.upper_bound(order.round));
  open->meters.erase(open->meters.begin(), open->meters.upper_bound(order.round));
  if (!applied) {
    fail(applied.error());
    return;
  }
  open->pairs.clear();
  log_debug("run " + order.run.text + ": " + round_text(order.round) + " applied; ms: form " + std::to_string(meter.form) + ", exchange " +
            std::to_string(meter.exchange) + ", digest " + std::to_string(meter.digest) + ", outer step and merge " +
            std::to_string(meter.step));
  say(ResultApplied{order.run, order.round, std::nullopt, {}, open->run->take_reformed()});
}

void SyncEngine::State::carry_out(const OfferParameters& order) {
  OpenedRun* open = find(order.run);
  if (open != nullptr && open->run->offer(order.fragment)) {
    say(ParametersOffered{order.run, order.round, order.fragment});
  }
}

void SyncEngine::State::carry_out(const HandOver& order) {
  OpenedRun* open = find(order.run);
  if (open == nullptr) {
    return;
  }
  const Status handed = open->run->hand_over(order.round, order.fragment);
  tell_misuse(*open);
  say(HandedOver{order.run, order.round, order.fragment, handed ? std::nullopt : std::optional(handed.error())});
}

void SyncEngine::State::tell_misuse(OpenedRun& open) {
  if (const std::optional<std::string> why = open.run->take_misuse()) {
    answers.emplace_back(ArenaMisused{open.run->id(), *why});
  }
}

void SyncEngine::State::note_exchange(const RunId& run, const RoundExchange& exchange, const RoundMeter& meter) {
  if (!settings.spans) {
    return;
  }
  const BeginExchange& order = exchange.order();
  for (const auto& [peer, arrival] : meter.arrivals) {
    note(run,
         Span{SpanKind::receive, order.round, order.fragment, peer, exchange.started(), arrival.last - exchange.started(), arrival.bytes});
  }
  if (meter.reduce_start) {
    note(run, Span{SpanKind::reduce, order.round, order.fragment, {}, *meter.reduce_start, meter.reduce_end - *meter.reduce_start, 0});
  }
  if (const std::optional<BlobStore::Reading> read = link->store().read_of_round(run, order.round)) {
    note(run, Span{SpanKind::send, order.round, order.fragment, {}, read->first, read->last - read->first, read->bytes});
  }
}

}  // namespace atl::agent
