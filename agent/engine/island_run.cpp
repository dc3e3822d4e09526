#include "agent/engine/island_run.hpp"

#include <algorithm>
#include <limits>
#include <system_error>
#include <utility>

#include "strategies/composition.hpp"
#include "strategies/contribution.hpp"
#include "strategies/error_feedback.hpp"
#include "strategies/projection.hpp"
#include "strategies/specification/run_rules.hpp"
#include "transport/base/log.hpp"
#include "transport/base/rng.hpp"
#include "transport/identity/sha256.hpp"

namespace atl {
namespace fs = std::filesystem;
namespace {

constexpr std::uint64_t kChunk = 1ULL << 16;

// decode_result into memory that a term may lie in: chunk by chunk through a buffer.
Status decode_over(const RoundResult& result, Aggregator aggregator, std::span<float> values) {
  const std::uint64_t granule = piece_granularity(result.codec);
  const std::uint64_t chunk = std::max<std::uint64_t>(granule, kChunk / granule * granule);
  std::vector<float> buffer(static_cast<std::size_t>(std::min<std::uint64_t>(chunk, values.size())));
  for (std::uint64_t at = 0; at < values.size(); at += chunk) {
    const std::uint64_t count = std::min<std::uint64_t>(chunk, values.size() - at);
    std::vector<EncodedTerm> terms = result.terms;
    for (EncodedTerm& term : terms) {
      term.bytes = term.bytes.subspan(encoded_bytes(result.codec, at), encoded_bytes(result.codec, count));
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
  ATOLL_ASSIGN(parameters_, FloatBuffer::make(layout.total()));
  if (has_momentum(composition_.outer.kind)) {
    ATOLL_ASSIGN(momentum_, MomentumBuffer::make(layout.total(), composition_.outer_state));
  }
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
  std::copy(parameters_.floats().begin(), parameters_.floats().end(), arena_->floats().begin());
  bases_.clear();
  if (watch_) {
    watch_->forget();
  }
  if ((composition_.codec.kind == CodecKind::f32 && !passes_over()) || own_start_) {
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
    ATOLL_ASSIGN(const SafetensorsFile file, SafetensorsFile::open(fs::path(given)));
    if (const Status read = layout_->read_given(file, initial); !read) {
      return with_context(read.error(), given);
    }
  }
  ATOLL_ASSIGN([[maybe_unused]] const ContributionSummary summary, summarise_contribution(initial));
  std::ranges::copy(initial, parameters_.floats().begin());
  momentum_.clear();
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
  std::copy(arena_->floats().begin(), arena_->floats().end(), parameters_.floats().begin());
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
  auto buffer = std::make_shared<Bytes>(encoded_bytes(composition_.codec, values.size()));
  const EncodePosition at{0, spec_.seed ^ stream_of(island_.text, round.value)};
  if (composition_.error_feedback) {
    ATOLL_TRY(encode_with_feedback(composition_.codec, values, residual_.floats().subspan(range.offset, range.count), *buffer, at));
  } else {
    ATOLL_TRY(encode(composition_.codec, values, *buffer, at));
  }
  return Payload{*buffer, buffer};
}

Result<Contribution> IslandRun::form_contribution(Round round, std::uint32_t fragment, const PublishFacts& facts) {
  if (!has_state_ || !arena_) {
    return Error{Code::conflict, "run " + id_.text + ": there is no outer state to form a contribution against"};
  }
  ATOLL_ASSIGN(const island_link::Fragment range, range_of(fragment));
  const auto where = "the contribution of island " + island_.text + " to round " + std::to_string(round.value);
  if (passes_over()) {
    Result<Contribution> apart = form_apart(round, range, fragment, facts);
    if (!apart) {
      return with_context(apart.error(), where);
    }
    contributions_[round] = *std::move(apart);
  } else {
    const std::span<float> local = arena_->range(range);
    const auto older = bases_.find(fragment);  // where the exchange takes a whole period
    const std::span<const float> base =
        older == bases_.end() ? parameters_.floats().subspan(range.offset, range.count) : older->second.parameters.floats();
    const Result<ContributionSummary> summary =
        composition_.payload == PayloadKind::outer_gradient ? form_outer_gradient(base, local) : summarise_contribution(local);
    if (!summary) {
      return with_context(summary.error(), where);
    }
    ATOLL_ASSIGN(Payload encoded, encode_contribution(round, range));
    ATOLL_ASSIGN(const double norm, counted_norm(round, range, fragment, summary->norm, encoded.bytes));
    contributions_[round] = Contribution{fragment, norm, std::move(encoded), facts, older == bases_.end() ? round_ : older->second.round};
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
    if (passes_over() && stepped_[fragment] > checkpoint) {
      continue;  // formed against outer parameters that the checkpoint's state does not lead to again
    }
    if (const Status kept = keep_pending(checkpoint, round, formed); !kept) {
      begun.failure = begun.failure ? begun.failure : std::optional<Error>(kept.error());
    } else {
      begun.pending.push_back({round, fragment, formed.norm, facts, passes_over() ? std::min(formed.base, checkpoint) : formed.base});
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
  return aggregator(round, fragment) == Aggregator::radial_directional
             ? encoded_norm(composition_.codec, encoded, range.count, layout_->buffers(fragment))
             : Result<double>(norm);
}

Result<Contribution> IslandRun::form_merge_contribution(Round round, std::uint32_t fragment) {
  if (!has_state_) {
    return Error{Code::conflict, "run " + id_.text + ": there is no outer state to merge"};
  }
  ATOLL_ASSIGN(const island_link::Fragment range, range_of(fragment));
  const auto values = std::as_bytes(parameters_.floats().subspan(range.offset, range.count));
  auto buffer = std::make_shared<Bytes>(values.begin(), values.end());
  return contributions_[round] = Contribution{fragment, 0, Payload{*buffer, buffer}, {}, round_};
}

Result<Payload> IslandRun::encode_parameters(std::uint32_t fragment) const {
  if (!has_state_) {
    return Error{Code::conflict, "run " + id_.text + ": there are no outer parameters to send"};
  }
  ATOLL_ASSIGN(const island_link::Fragment range, range_of(fragment));
  auto buffer = std::make_shared<Bytes>(encoded_bytes(composition_.parameters_codec, range.count));
  ATOLL_TRY(encode(composition_.parameters_codec, parameters_.floats().subspan(range.offset, range.count), *buffer));
  return Payload{*buffer, buffer};
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
  project(spec_.seed, 0, parameters_.floats(), sums);
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
  for (const auto& [round, begun] : begun_) {
    checkpoints_.abandon(round);
  }
  begun_.clear();
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
      const std::span<const float> parameters = parameters_.floats().subspan(range.offset, range.count);
      std::copy(parameters.begin(), parameters.end(), arena_->range(range).begin());
    }
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
    std::ranges::copy(parameters_.floats().subspan(range.offset, range.count), kept.floats().begin());
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
  const OuterState state = momentum_.with(parameters_.floats().subspan(range.offset, range.count), range.offset, seed);
  const std::vector<BufferRange> buffers = layout_->buffers(result.fragment);
  if (passes_over() && composition_.anchor == Anchor::newest && !result.terms.empty()) {
    const std::vector<float> before(state.parameters.begin(), state.parameters.end());
    ATOLL_TRY(outer_step(result.reduced(aggregator(result.round, result.fragment), buffers), composition_.outer, state));
    form_anew(result.fragment, before, result.round);
    return {};
  }
  if (merges(result.round)) {
    return outer_step(result.reduced(aggregator(result.round, result.fragment), buffers), OuterOptimizer{OuterOptimizerKind::adopt}, state);
  }
  if (result.terms.empty()) {
    return {};  // nobody's contribution counts: the outer state stays, and the trainer goes on from it
  }
  if (group != nullptr) {
    return outer_step(result.reduced(composition_.aggregator, buffers), *group, composition_.outer, state);
  }
  return outer_step(result.reduced(aggregator(result.round, result.fragment), buffers), composition_.outer, state);
}

void IslandRun::advance_to(Round round, const Digest& digest, std::uint32_t fragment) {
  stepped_[fragment] = round;
  round_ = round;
  digest_ = digest;
  drop_contributions_before(round_.next());
}

Status IslandRun::keep_pending(Round checkpoint, Round round, const Contribution& contribution) const {
  const DiskPath rounds = checkpoints_.partial_of(checkpoint) / kRoundsFolder;
  ATOLL_TRY(rounds.make_folders());
  RoundResult term;
  term.round = round;
  term.fragment = contribution.fragment;
  term.values = layout_->fragments()[contribution.fragment].count;
  term.codec = composition_.codec;
  term.terms = {{contribution.encoded.bytes, 1.0F}};
  return write_result(rounds / std::to_string(round.value), term);
}

Result<Contribution> IslandRun::read_pending(Round checkpoint, const PendingRound& pending) const {
  const DiskPath path = checkpoints_.folder_of(checkpoint) / kRoundsFolder / std::to_string(pending.round.value);
  ATOLL_ASSIGN(const island_link::Fragment range, range_of(pending.fragment));
  ATOLL_ASSIGN(StoredResult opened, StoredResult::open(path));
  const auto stored = std::make_shared<StoredResult>(std::move(opened));
  const RoundResult& term = stored->result();
  if (term.round != pending.round || term.fragment != pending.fragment || term.values != range.count || term.terms.size() != 1 ||
      term.codec != composition_.codec) {
    return Error{Code::corrupt, path.text() + ": is not the contribution that the checkpoint names"};
  }
  Contribution contribution{pending.fragment, pending.norm, Payload{term.terms.front().bytes, stored}, pending.facts,
                            pending.base == Round() ? checkpoint : pending.base};
  if (passes_over() && composition_.anchor == Anchor::newest) {
    contribution.values = std::make_shared<std::vector<float>>(range.count);
    ATOLL_TRY(decode_result({term.codec, term.terms, Aggregator::weighted_mean}, *contribution.values));
  }
  return contribution;
}

Status IslandRun::write_residual(Round checkpoint) const {
  if (residual_.empty()) {
    return {};
  }
  std::vector<TensorView> tensors = layout_->tensors({residual_.floats(), {}});
  for (TensorView& tensor : tensors) {
    tensor.name = std::string(kResidualPrefix) + tensor.name;
  }
  ATOLL_ASSIGN(DurableFile file, DurableFile::create(checkpoints_.partial_of(checkpoint) / kResidualFile));
  ATOLL_TRY(write_safetensors(std::move(tensors), {{"atoll.format", "1"}}, [&](ByteView bytes) { return file.write(bytes); }));
  ATOLL_ASSIGN([[maybe_unused]] const FileFacts facts, file.finish());
  return {};
}

Status IslandRun::read_residual(const CheckpointMeta& meta) {
  if (residual_.empty() || !meta.files.contains(kResidualFile)) {
    return {};
  }
  ATOLL_ASSIGN(const SafetensorsFile file, SafetensorsFile::open(checkpoints_.folder_of(meta.round) / kResidualFile));
  const std::span<float> residual = residual_.floats();
  for (const TensorView& tensor : layout_->tensors({residual, {}})) {
    ATOLL_ASSIGN(const std::span<const float> values, file.floats(std::string(kResidualPrefix) + tensor.name));
    if (values.size() != tensor.values.size()) {
      return Error{Code::corrupt, std::string(kResidualFile) + ": the tensor of '" + tensor.name + "' has another size"};
    }
    std::copy(values.begin(), values.end(), residual.begin() + (tensor.values.data() - residual.data()));
  }
  return {};
}

Status IslandRun::begin_checkpoint() {
  if (!has_state_) {
    return Error{Code::conflict, "run " + id_.text + ": there is no outer state to write"};
  }
  begun_.erase(round_);
  ATOLL_ASSIGN([[maybe_unused]] const DiskPath partial, checkpoints_.resume(round_));
  std::map<std::string, std::string> metadata = outer_metadata(id_, round_, digest_, spec_, layout_->manifest_text());
  if (const std::optional<std::string>& description = layout_->manifest().description) {
    metadata[kDescriptionKey] = *description;
  }
  if (own_start_) {
    if (const Status own = own_start_->write(*layout_, checkpoints_.partial_of(round_)); !own) {
      checkpoints_.abandon(round_);
      return own;
    }
  }
  const Result<FileFacts> outer = checkpoints_.write_outer(round_, layout_->tensors(momentum_.with(parameters_.floats())), metadata);
  if (!outer) {
    checkpoints_.abandon(round_);
    return outer.error();
  }
  BegunCheckpoint begun{digest_, {}, std::nullopt};
  for (auto later = contributions_.upper_bound(round_); later != contributions_.end() && !merges(later->first); ++later) {
    if (const Status kept = keep_pending(round_, later->first, later->second); !kept) {
      checkpoints_.abandon(round_);
      return kept;
    }
    begun.pending.push_back({later->first, later->second.fragment, later->second.norm, later->second.facts, later->second.base});
  }
  begun_[round_] = std::move(begun);
  return {};
}

bool IslandRun::checkpoint_begun(Round round, const Digest& digest) const {
  const auto begun = begun_.find(round);
  return begun != begun_.end() && begun->second.digest == digest;
}

Result<CheckpointMeta> IslandRun::finish_checkpoint(Round round, Epoch epoch, bool trainer_state, Step step, DataPosition data,
                                                    std::size_t keep, const std::set<Round>& needed) {
  const auto found = begun_.find(round);
  if (found == begun_.end()) {
    return Error{Code::conflict, "no checkpoint of round " + std::to_string(round.value) + " was begun"};
  }
  BegunCheckpoint begun = std::move(found->second);
  begun_.erase(found);
  if (!trainer_state) {
    checkpoints_.drop_trainer_state(round);
  }
  if (const Status residual = write_residual(round); !residual && !begun.failure) {
    begun.failure = residual.error();
  }
  if (begun.failure) {
    checkpoints_.abandon(round);
    return *begun.failure;
  }
  CheckpointMeta meta;
  meta.run = id_;
  meta.round = round;
  meta.epoch = epoch;
  meta.digest = begun.digest;
  meta.step = step;
  meta.part = data.part;
  meta.position = data.position;
  meta.pending = std::move(begun.pending);
  ATOLL_ASSIGN(meta, checkpoints_.finish(std::move(meta)));
  checkpoints_.prune(keep, needed);
  return meta;
}

Result<CheckpointMeta> IslandRun::write_checkpoint(Epoch epoch, bool trainer_state, Step step, DataPosition data, std::size_t keep,
                                                   const std::set<Round>& needed) {
  ATOLL_TRY(begin_checkpoint());
  return finish_checkpoint(round_, epoch, trainer_state, step, data, keep, needed);
}

Result<std::vector<PendingRound>> IslandRun::load_checkpoint(Round round, const Digest& digest) {
  ATOLL_ASSIGN(const CheckpointMeta meta, checkpoints_.verify(round));
  if (meta.digest != digest || meta.run != id_) {
    return Error{Code::corrupt, "the checkpoint of round " + std::to_string(round.value) + " belongs to another history"};
  }
  ATOLL_TRY(load_outer(checkpoints_.folder_of(round) / kOuterFile));
  stepped_.clear();
  Status read = round_ == round && digest_ == digest
                    ? read_residual(meta)
                    : Status(Error{Code::corrupt, "the outer state of round " + std::to_string(round.value) + " says it is another one"});
  for (const PendingRound& pending : meta.pending) {
    if (!read) {
      break;
    }
    Result<Contribution> contribution = read_pending(round, pending);
    if (contribution) {
      contributions_[pending.round] = *std::move(contribution);
    } else {
      read = contribution.error();
    }
  }
  if (read && own_start_) {
    read = own_start_->read(*layout_, checkpoints_.folder_of(round), meta);
    read = read ? restore_starts() : read;
  }
  if (!read) {
    has_state_ = false;
    forget_rounds();
    return read.error();
  }
  return meta.pending;
}

Status IslandRun::load_outer(const DiskPath& path, const std::vector<std::string>& islands) {
  ATOLL_ASSIGN(const SafetensorsFile file, SafetensorsFile::open(path));
  const auto& metadata = file.header().metadata;
  const auto text = [&](const char* key) { return metadata.contains(key) ? metadata.at(key) : std::string(); };
  const Result<Digest> digest = digest_from_hex(text("atoll.digest"));
  const std::string round = text("atoll.round");
  if (text("atoll.run") != id_.text || !digest || round.empty() || round.size() > 19 ||
      round.find_first_not_of("0123456789") != std::string::npos) {
    return Error{Code::corrupt, path.text() + ": its metadata is not that of a checkpoint of run " + id_.text};
  }
  ATOLL_ASSIGN(ParameterLayout layout, ParameterLayout::from_checkpoint(file.header(), composition_.fragments));
  std::string where;
  for (const std::string& island : islands) {
    where += (where.empty() ? "on " : ", ") + island;
  }
  ATOLL_TRY(use_layout(std::move(layout), where.empty() ? "in the run" : where));
  has_state_ = false;
  const Status read = layout_->read(file, momentum_.with(parameters_.floats()));
  if (!read) {
    return with_context(read.error(), path.text());
  }
  round_ = Round(std::stoull(round));
  digest_ = *digest;
  has_state_ = true;
  forget_rounds();
  return {};
}

}  // namespace atl
