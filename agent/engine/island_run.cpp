#include "agent/engine/island_run.hpp"

#include <algorithm>
#include <limits>
#include <system_error>
#include <utility>

#include "strategies/composition.hpp"
#include "strategies/contribution.hpp"
#include "strategies/error_feedback.hpp"
#include "strategies/projection.hpp"
#include "strategies/round.hpp"
#include "strategies/specification/model_kind.hpp"
#include "transport/base/log.hpp"
#include "transport/base/rng.hpp"
#include "transport/identity/sha256.hpp"

namespace atl {
namespace fs = std::filesystem;
namespace {

constexpr std::uint64_t kChunk = 1ULL << 16;
constexpr std::size_t kCopiedAtOnce = 1U << 18;  // values

void copy(std::span<const float> from, std::span<float> to, const InParts& in_parts) {
  in_parts((from.size() + kCopiedAtOnce - 1) / kCopiedAtOnce, [&](std::size_t i) {
    const std::span<const float> part = from.subspan(i * kCopiedAtOnce, std::min(kCopiedAtOnce, from.size() - i * kCopiedAtOnce));
    std::ranges::copy(part, to.begin() + static_cast<std::ptrdiff_t>(i * kCopiedAtOnce));
  });
}

// decode_result into memory that a term may lie in: chunk by chunk through a buffer.
Status decode_over(const RoundResult& result, Aggregator aggregator, std::span<float> values) {
  const std::uint64_t chunk = values_at_once(kChunk, result.codec);
  std::vector<float> buffer(static_cast<std::size_t>(std::min<std::uint64_t>(chunk, values.size())));
  for (std::uint64_t at = 0; at < values.size(); at += chunk) {
    const std::uint64_t count = std::min<std::uint64_t>(chunk, values.size() - at);
    std::vector<EncodedTerm> terms = result.terms;
    for (EncodedTerm& term : terms) {
      term.bytes = encoded_part(result.codec, term.bytes, at, count);
    }
    const std::span<float> part = std::span(buffer).first(static_cast<std::size_t>(count));
    ATOLL_TRY(decode_result({result.codec, terms, aggregator}, part));
    std::copy(part.begin(), part.end(), values.begin() + static_cast<std::ptrdiff_t>(at));
  }
  return {};
}

}  // namespace

MakeArena shared_arenas(IslandId island, fs::path runs) {
  return [island = std::move(island), runs = std::move(runs)](const RunId& run, std::uint64_t bytes) {
    Result<island_link::Arena> arena = Error{Code::io, "no arena"};
    for (const fs::path& place : {fs::path("/dev/shm"), runs / run.text}) {
      const std::string name = (place / ("atoll-" + island.text + "-" + run.text)).string();
      std::error_code ignored;
      fs::remove(name, ignored);  // what a killed agent of this island left
      arena = island_link::Arena::create(name, bytes);
      if (arena) {
        break;
      }
      log_warning("run " + run.text + ": no arena at " + name + ": " + arena.error().why);
    }
    return arena;
  };
}

IslandRun::IslandRun(RunId run, RunSpec spec, Composition composition, IslandId island, DiskPath folder, CheckpointStore checkpoints,
                     MakeArena make_arena)
    : id_(std::move(run)),
      spec_(std::move(spec)),
      composition_(composition),
      apart_(RunRounds(spec_.strategy, spec_.rounds, spec_.merge_rounds).closes_with_quorum()),
      forms_anew_(apart_ && composition.anchor == Anchor::newest),
      island_(std::move(island)),
      folder_(std::move(folder)),
      checkpoints_(std::move(checkpoints)),
      make_arena_(std::move(make_arena)) {}

Result<std::unique_ptr<IslandRun>> IslandRun::open(RunId run, RunSpec spec, IslandId island, DiskPath folder, MakeArena make_arena) {
  ATOLL_ASSIGN(Composition composition, compose(spec.strategy));
  ATOLL_ASSIGN(CheckpointStore checkpoints, CheckpointStore::open(folder / "checkpoints"));
  return std::unique_ptr<IslandRun>(new IslandRun(std::move(run), std::move(spec), composition, std::move(island), std::move(folder),
                                                  std::move(checkpoints), std::move(make_arena)));
}

IslandRun::~IslandRun() { close_snapshots(); }

Status IslandRun::use_layout(ParameterLayout layout, const std::string& where) {
  if (layout_) {
    if (!(*layout_ == layout)) {
      return Error{Code::invalid_argument, "the parameters are not those of run " + id_.text +
                                               ": another model, or another version of the trainer: " +
                                               first_difference(layout.manifest(), layout_->manifest(), where, layout_where_)};
    }
    return {};
  }
  const std::uint64_t bytes = layout.total() * sizeof(float);
  if (bytes > spec_.arena_limit_bytes) {
    return Error{Code::invalid_argument, "the model needs an arena of " + human_bytes(bytes) + ", [run].arena_limit is " +
                                             human_bytes(spec_.arena_limit_bytes) + "; make the model smaller or raise the limit"};
  }
  ATOLL_ASSIGN(outer_, OuterBuffers::make(layout.total(), composition_.outer.kind, composition_.outer_state));
  if (composition_.error_feedback) {
    ATOLL_ASSIGN(residual_, FloatBuffer::make(layout.total()));
  }
  if (composition_.whole_period()) {
    ATOLL_ASSIGN(own_start_, OwnStart::make(composition_, spec_, layout));
  }
  layout_ = std::move(layout);
  layout_where_ = where;
  return {};
}

Result<island_link::ArenaLayout> IslandRun::prepare_arena(const island_link::Manifest& manifest, const std::string& island) {
  ATOLL_ASSIGN(ParameterLayout layout, ParameterLayout::make(manifest, composition_.fragments));
  ATOLL_TRY(use_layout(std::move(layout), island.empty() ? "here" : "on " + island));
  if (!arena_) {
    ATOLL_ASSIGN(island_link::Arena arena, make_arena_(id_, layout_->total() * sizeof(float)));
    arena_ = std::make_shared<island_link::Arena>(std::move(arena));
  }
  island_link::ArenaLayout message = layout_->arena();
  message.path = arena_->path();
  return message;
}

Status IslandRun::fill_arena() {
  if (!has_state_ || !arena_) {
    return Error{Code::conflict, "run " + id_.text + ": there is no outer state or no arena to fill"};
  }
  std::copy(outer_.parameters().begin(), outer_.parameters().end(), arena_->floats().begin());
  bases_.clear();
  if (watch_) {
    watch_->forget();
  }
  if ((composition_.codec.kind == CodecKind::f32 && !apart_) || own_start_) {
    contributions_.clear();
  }
  if (own_start_) {
    own_start_->load(round_);
  }
  return {};
}

Result<Digest> IslandRun::form_initial_state(const std::string& given) {
  if (!arena_) {
    return Error{Code::conflict, "run " + id_.text + ": there is no arena yet"};
  }
  const std::span<float> initial = arena_->floats();
  if (!given.empty()) {  // the trainer is told to load them when they are agreed on
    ATOLL_ASSIGN(const GivenTensors tensors, GivenTensors::open(given));
    if (const Status read = layout_->read_given(tensors, initial); !read) {
      return with_context(read.error(), given);
    }
  }
  ATOLL_ASSIGN([[maybe_unused]] const ContributionSummary summary, summarise_contribution(initial));
  before_change(outer_.all());
  outer_.begin_with(initial);
  // What an own trainer says of its model is all that is known of it: islands that say otherwise do not begin alike.
  const std::string own = has_own_trainer(spec_) ? layout_->manifest().description.value_or("") : "";
  digest_ = initial_digest(layout_->manifest_text() + own, initial);
  round_ = Round(0);
  has_state_ = true;
  return digest_;
}

Status IslandRun::adopt_parameters() {
  if (!has_state_ || !arena_) {
    return Error{Code::conflict, "run " + id_.text + ": there is no outer state to adopt parameters into"};
  }
  ATOLL_ASSIGN([[maybe_unused]] const ContributionSummary summary, summarise_contribution(arena_->floats()));
  before_change(outer_.all());
  std::copy(arena_->floats().begin(), arena_->floats().end(), outer_.parameters().begin());
  return {};
}

Result<island_link::Fragment> IslandRun::range_of(std::uint32_t fragment) const {
  if (!layout_ || fragment >= layout_->fragments().size()) {
    return Error{Code::internal, "run " + id_.text + " has no fragment " + std::to_string(fragment)};
  }
  return layout_->fragments()[fragment];
}

Result<Payload> IslandRun::encode_contribution(Round round, const island_link::Fragment& range) {
  const std::span<float> values = arena_->range(range);
  if (composition_.codec.kind == CodecKind::f32 && !own_start_) {
    return Payload{std::as_bytes(values), arena_};
  }
  const EncodePosition at{0, spec_.seed ^ stream_of(island_.text, round.value)};
  ATOLL_ASSIGN(Bytes bytes, composition_.error_feedback ? encoding_with_feedback(composition_.codec, values,
                                                                                 residual_.floats().subspan(range.offset, range.count), at)
                                                        : encoding_of(composition_.codec, values, at));
  return payload_of(std::move(bytes));
}

Result<Contribution> IslandRun::form_contribution(Round round, ContributionFacts facts) {
  if (!has_state_ || !arena_) {
    return Error{Code::conflict, "run " + id_.text + ": there is no outer state to form a contribution against"};
  }
  const std::uint32_t fragment = facts.fragment;
  ATOLL_ASSIGN(const island_link::Fragment range, range_of(fragment));
  const auto where = "the contribution of island " + island_.text + " to round " + std::to_string(round.value);
  if (apart_) {
    Result<Contribution> apart = form_apart(round, range, facts);
    if (!apart) {
      return with_context(apart.error(), where);
    }
    contributions_[round] = *std::move(apart);
  } else {
    const std::span<float> local = arena_->range(range);
    const auto older = bases_.find(fragment);  // where the exchange takes a whole period
    const std::span<const float> base =
        older == bases_.end() ? outer_.parameters().subspan(range.offset, range.count) : older->second.parameters.floats();
    const Result<ContributionSummary> summary =
        composition_.payload == PayloadKind::outer_gradient ? form_outer_gradient(base, local) : summarise_contribution(local);
    if (!summary) {
      return with_context(summary.error(), where);
    }
    facts.fingerprint = fingerprint_of(local);
    facts.base = older == bases_.end() ? round_ : older->second.round;
    ATOLL_ASSIGN(Payload encoded, encode_contribution(round, range));
    ATOLL_ASSIGN(facts.norm, counted_norm(round, range, fragment, summary->norm, encoded.bytes));
    contributions_[round] = Contribution{facts, std::move(encoded)};
  }
  if (watch_) {
    watch_->take(fragment, arena_->range(range));
  }
  const Contribution& formed = contributions_[round];
  if (own_start_ && !own_start_->result_follows(round)) {
    ATOLL_TRY(go_on_from_published(formed, range));
  }
  for (auto& [checkpoint, begun] : begun_) {
    std::erase_if(begun.pending, [round](const PendingRound& old) { return old.round >= round; });  // formed anew: those led nowhere
    if (apart_ && stepped_[fragment] > checkpoint) {
      continue;  // formed against outer parameters that the checkpoint's state does not lead to again
    }
    if (const Status kept = keep_pending(checkpoint, round, formed); !kept) {
      begun.failure = begun.failure ? begun.failure : std::optional<Error>(kept.error());
    } else {
      begun.pending.push_back({round, formed.facts});
      if (apart_) {
        begun.pending.back().facts.base = std::min(formed.facts.base, checkpoint);
      }
    }
  }
  return formed;
}

bool IslandRun::merges(Round round) const { return spec_.merge_rounds > 0 && round.value > spec_.rounds - spec_.merge_rounds; }

Aggregator IslandRun::aggregator(Round round, std::uint32_t fragment) const {
  const bool mean = merges(round) || (composition_.aggregator == Aggregator::radial_directional && layout_->of_embeddings(fragment));
  return mean ? Aggregator::weighted_mean : composition_.aggregator;
}

Result<double> IslandRun::counted_norm(Round round, const island_link::Fragment& range, std::uint32_t fragment, double norm,
                                       std::span<const std::byte> encoded) const {
  if (aggregator(round, fragment) == Aggregator::radial_directional) {
    return encoded_norm(composition_.codec, encoded, range.count, layout_->buffers(fragment));
  }
  // With what was rounded before in it a contribution may be many times as long as what was trained: others compare it with what is said.
  return composition_.error_feedback ? encoded_norm(composition_.codec, encoded, range.count) : Result<double>(norm);
}

Result<Contribution> IslandRun::form_merge_contribution(Round round, std::uint32_t fragment) {
  if (!has_state_) {
    return Error{Code::conflict, "run " + id_.text + ": there is no outer state to merge"};
  }
  ATOLL_ASSIGN(const island_link::Fragment range, range_of(fragment));
  const auto values = std::as_bytes(outer_.parameters().subspan(range.offset, range.count));
  return contributions_[round] = Contribution{{.fragment = fragment, .base = round_}, payload_of({values.begin(), values.end()})};
}

Result<Payload> IslandRun::encode_parameters(std::uint32_t fragment) const {
  if (!has_state_) {
    return Error{Code::conflict, "run " + id_.text + ": there are no outer parameters to send"};
  }
  ATOLL_ASSIGN(const island_link::Fragment range, range_of(fragment));
  ATOLL_ASSIGN(Bytes bytes, encoding_of(composition_.parameters_codec, outer_.parameters().subspan(range.offset, range.count)));
  return payload_of(std::move(bytes));
}

Digest IslandRun::digest_before(Round round) const {
  if (!merges(round) || merges(round_)) {
    return digest_;
  }
  Sha256 hash;
  hash.update(as_bytes("atoll merge of all islands\n" + layout_->manifest_text()));
  return hash.finish();
}

std::vector<float> IslandRun::projection() const {
  if (!has_state_) {
    return {};
  }
  Projection sums{};
  project(spec_.seed, 0, outer_.parameters(), sums);
  std::vector<float> projection(kProjections);
  std::transform(sums.begin(), sums.end(), projection.begin(), [](double sum) { return static_cast<float>(sum); });
  return projection;
}

const Contribution* IslandRun::contribution(Round round) const {
  const auto found = contributions_.find(round);
  return found == contributions_.end() ? nullptr : &found->second;
}

void IslandRun::drop_contributions_before(Round round) { contributions_.erase(contributions_.begin(), contributions_.lower_bound(round)); }

void IslandRun::forget_rounds() {
  contributions_.clear();
  bases_.clear();
  std::fill(residual_.floats().begin(), residual_.floats().end(), 0.0F);
  if (own_start_) {
    own_start_->forget();
    own_start_->load(round_);
  }
  close_snapshots();
  for (const auto& [round, begun] : begun_) {
    checkpoints_.abandon(round);
  }
  begun_.clear();
}

// The outer state is about to change: the checkpoints that are being written get what it is now.
void IslandRun::before_change(const OuterState& state) {
  std::erase_if(snapshots_, [](const auto& snapshot) { return snapshot->over(); });
  for (const auto& snapshot : snapshots_) {
    for (const OuterBuffer& buffer : state.buffers()) {
      snapshot->keep(buffer.bytes);
    }
  }
}

void IslandRun::close_snapshots() {
  for (const auto& snapshot : snapshots_) {
    snapshot->close();
  }
  snapshots_.clear();
}

Status IslandRun::apply(const RoundResult& result, const Digest& digest, const GroupParameters* group, float own_weight) {
  ATOLL_ASSIGN(const island_link::Fragment range, next_range(result));
  if (own_start_) {
    const Contribution* own = own_weight > 0.0F ? contribution(result.round) : nullptr;
    ATOLL_TRY(own_start_->absorb(result.fragment, own != nullptr ? own->encoded.bytes : ByteView(), own_weight, *layout_));
    return apply_behind(result, digest);
  }
  if (watch_ && arena_) {
    misuse_ = watch_->give(result.fragment, arena_->range(range));
  }
  if (composition_.payload != PayloadKind::gradient) {
    ATOLL_TRY(take_step(result, range, group));
    if (arena_) {
      const std::span<const float> parameters = outer_.parameters().subspan(range.offset, range.count);
      copy(parameters, arena_->range(range), in_parts_);
    }
  } else if (arena_ && result.terms.empty()) {
    std::ranges::fill(arena_->range(range), 0.0F);  // no gradient counts: the trainer's step with it changes nothing but its optimiser
  } else if (arena_) {
    ATOLL_TRY(decode_over(result, composition_.aggregator, arena_->range(range)));
  }
  bases_.erase(result.fragment);
  advance_to(result.round, digest, result.fragment);
  return {};
}

Status IslandRun::keep_base(std::uint32_t fragment, const island_link::Fragment& range) {
  if (!bases_.contains(fragment)) {
    ATOLL_ASSIGN(FloatBuffer kept, FloatBuffer::make(range.count));
    std::ranges::copy(outer_.parameters().subspan(range.offset, range.count), kept.floats().begin());
    bases_.emplace(fragment, Base{round_, std::move(kept)});
  }
  return {};
}

// Of the result of the next round. Errors: conflict for another round; corrupt for another size.
Result<island_link::Fragment> IslandRun::next_range(const RoundResult& result) const {
  if (!has_state_ || result.round != round_.next()) {
    return Error{Code::conflict, "the result of round " + std::to_string(result.round.value) +
                                     " does not follow the outer state of round " + std::to_string(round_.value)};
  }
  ATOLL_ASSIGN(const island_link::Fragment range, range_of(result.fragment));
  if (result.values != range.count) {
    return Error{Code::corrupt, "the result of round " + std::to_string(result.round.value) + " has another size than its fragment"};
  }
  return range;
}

Status IslandRun::take_step(const RoundResult& result, const island_link::Fragment& range, const GroupParameters* group) {
  // The seed does not name the island: equal outer states stay equal, also where each island takes its rounds by itself.
  const std::uint64_t seed = spec_.seed ^ stream_of("outer momentum", result.round.value);
  const OuterState state = outer_.range(range.offset, range.count, seed);
  const std::vector<BufferRange> buffers = layout_->buffers(result.fragment);
  before_change(state);
  if (forms_anew_) {
    const std::vector<float> before(state.parameters.begin(), state.parameters.end());
    if (!result.terms.empty()) {
      ATOLL_TRY(outer_step(result.reduced(aggregator(result.round, result.fragment), buffers), composition_.outer, state, in_parts_));
    }
    form_anew(result.fragment, before, result.round);  // also after a round in which nothing counts: the newest is that round's now
    return {};
  }
  if (merges(result.round)) {
    return outer_step(result.reduced(aggregator(result.round, result.fragment), buffers), OuterOptimizer{OuterOptimizerKind::adopt}, state,
                      in_parts_);
  }
  if (result.terms.empty()) {
    return {};  // nobody's contribution counts: the outer state stays, and the trainer goes on from it
  }
  if (group != nullptr) {
    return outer_step(result.reduced(composition_.aggregator, buffers), *group, composition_.outer, state);
  }
  return outer_step(result.reduced(aggregator(result.round, result.fragment), buffers), composition_.outer, state, in_parts_);
}

void IslandRun::advance_to(Round round, const Digest& digest, std::uint32_t fragment) {
  stepped_[fragment] = round;
  round_ = round;
  digest_ = digest;
  drop_contributions_before(round_.next());
}

}  // namespace atl
