#include "agent/island_run.hpp"

#include <unistd.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "agent/run_composition.hpp"
#include "strategies/contribution.hpp"
#include "strategies/projection.hpp"
#include "transport/base/log.hpp"
#include "transport/base/rng.hpp"
#include "transport/sha256.hpp"

namespace atl {
namespace fs = std::filesystem;
namespace {

constexpr std::uint64_t kChunk = 1ULL << 16;

// decode_result into memory that a term may lie in: chunk by chunk through a buffer.
Status decode_over(const RoundResult& result, std::span<float> values) {
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
    ATOLL_TRY(decode_result({result.codec, terms}, part));
    std::copy(part.begin(), part.end(), values.begin() + static_cast<std::ptrdiff_t>(at));
  }
  return {};
}

// A name for the arena that no other run or agent on this machine has.
std::string arena_path(const fs::path& folder, const IslandId& island, const RunId& run) {
  return (folder / ("atoll-" + island.text + "-" + run.text)).string();
}

}  // namespace

IslandRun::IslandRun(RunId run, RunSpec spec, Composition composition, IslandId island, fs::path folder, CheckpointStore checkpoints)
    : id_(std::move(run)),
      spec_(std::move(spec)),
      composition_(composition),
      island_(std::move(island)),
      folder_(std::move(folder)),
      checkpoints_(std::move(checkpoints)) {}

Result<std::unique_ptr<IslandRun>> IslandRun::open(RunId run, RunSpec spec, IslandId island, fs::path folder) {
  ATOLL_ASSIGN(Composition composition, composition_of(spec));
  ATOLL_ASSIGN(CheckpointStore checkpoints, CheckpointStore::open(folder / "checkpoints"));
  return std::unique_ptr<IslandRun>(
      new IslandRun(std::move(run), std::move(spec), composition, std::move(island), std::move(folder), std::move(checkpoints)));
}

Status IslandRun::use_layout(ParameterLayout layout) {
  if (layout_) {
    if (!(*layout_ == layout)) {
      return Error{Code::invalid_argument, "the parameters are not those of run " + id_.text + ": another model, or another version of the trainer"};
    }
    return {};
  }
  const std::uint64_t bytes = layout.total() * sizeof(float);
  if (bytes > spec_.arena_limit_bytes) {
    return Error{Code::invalid_argument, "the model needs an arena of " + human_bytes(bytes) + ", [run].arena_limit is " +
                                             human_bytes(spec_.arena_limit_bytes) + "; make the model smaller or raise the limit"};
  }
  ATOLL_ASSIGN(parameters_, FloatBuffer::make(layout.total()));
  if (has_momentum()) {
    ATOLL_ASSIGN(momentum_, FloatBuffer::make(layout.total()));
  }
  layout_ = std::move(layout);
  return {};
}

Result<island_link::ArenaLayout> IslandRun::prepare_arena(const island_link::Manifest& manifest) {
  ATOLL_ASSIGN(ParameterLayout layout, ParameterLayout::make(manifest, composition_.fragments));
  ATOLL_TRY(use_layout(std::move(layout)));
  if (!arena_) {
    const std::uint64_t bytes = layout_->total() * sizeof(float);
    Result<island_link::Arena> arena = Error{Code::io, "no arena"};
    for (const fs::path& place : {fs::path("/dev/shm"), folder_}) {
      const std::string path = arena_path(place, island_, id_);
      std::error_code ignored;
      fs::remove(path, ignored);  // what a killed agent of this island left
      arena = island_link::Arena::create(path, bytes);
      if (arena) {
        break;
      }
      log_warning("run " + id_.text + ": no arena at " + path + ": " + arena.error().why);
    }
    if (!arena) {
      return arena.error();
    }
    arena_ = std::make_shared<island_link::Arena>(*std::move(arena));
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
  if (composition_.codec.kind == CodecKind::f32) {
    contributions_.clear();
  }
  return {};
}

Result<Digest> IslandRun::form_initial_state() {
  if (!arena_) {
    return Error{Code::conflict, "run " + id_.text + ": there is no arena yet"};
  }
  const std::span<const float> initial = arena_->floats();
  ATOLL_ASSIGN([[maybe_unused]] const ContributionSummary summary, summarise_contribution(initial));
  std::copy(initial.begin(), initial.end(), parameters_.floats().begin());
  std::fill(momentum_.floats().begin(), momentum_.floats().end(), 0.0F);
  chain_ = initial_chain(layout_->manifest_text(), initial);
  round_ = Round(0);
  has_state_ = true;
  return chain_;
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

Result<Payload> IslandRun::encode_contribution(Round round, std::span<const float> values) const {
  if (composition_.codec.kind == CodecKind::f32) {
    return Payload{std::as_bytes(values), arena_};
  }
  auto buffer = std::make_shared<Bytes>(encoded_bytes(composition_.codec, values.size()));
  ATOLL_TRY(encode(composition_.codec, values, *buffer, {0, spec_.seed ^ stream_of(island_.text, round.value)}));
  return Payload{*buffer, buffer};
}

Result<Contribution> IslandRun::form_contribution(Round round, std::uint32_t fragment) {
  if (!has_state_ || !arena_) {
    return Error{Code::conflict, "run " + id_.text + ": there is no outer state to form a contribution against"};
  }
  ATOLL_ASSIGN(const island_link::Fragment range, range_of(fragment));
  const std::span<float> local = arena_->range(range);
  const Result<ContributionSummary> summary = composition_.payload == PayloadKind::outer_gradient
                                                  ? form_outer_gradient(parameters_.floats().subspan(range.offset, range.count), local)
                                                  : summarise_contribution(local);
  if (!summary) {
    return with_context(summary.error(), "the contribution of island " + island_.text + " to round " + std::to_string(round.value));
  }
  ATOLL_ASSIGN(Payload encoded, encode_contribution(round, local));
  return contributions_[round] = Contribution{fragment, summary->norm, std::move(encoded)};
}

bool IslandRun::merges(Round round) const {
  return spec_.merge_rounds > 0 && round.value > spec_.rounds - spec_.merge_rounds;
}

Result<Contribution> IslandRun::form_merge_contribution(Round round, std::uint32_t fragment) {
  if (!has_state_) {
    return Error{Code::conflict, "run " + id_.text + ": there is no outer state to merge"};
  }
  ATOLL_ASSIGN(const island_link::Fragment range, range_of(fragment));
  const auto values = std::as_bytes(parameters_.floats().subspan(range.offset, range.count));
  auto buffer = std::make_shared<Bytes>(values.begin(), values.end());
  return contributions_[round] = Contribution{fragment, 0, Payload{*buffer, buffer}};
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

Digest IslandRun::chain_before(Round round) const {
  if (!merges(round) || merges(round_)) {
    return chain_;
  }
  Sha256 hash;
  hash.update(as_bytes("atoll merge of all islands\n" + id_.text));
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

Status IslandRun::apply(const RoundResult& result, const Digest& chain, const GroupParameters* group) {
  if (!has_state_ || result.round != round_.next()) {
    return Error{Code::conflict, "the result of round " + std::to_string(result.round.value) + " does not follow the outer state of round " +
                                     std::to_string(round_.value)};
  }
  ATOLL_ASSIGN(const island_link::Fragment range, range_of(result.fragment));
  if (result.values != range.count) {
    return Error{Code::corrupt, "the result of round " + std::to_string(result.round.value) + " has another size than its fragment"};
  }
  const std::span<float> parameters = parameters_.floats().subspan(range.offset, range.count);
  if (composition_.payload == PayloadKind::gradient) {
    if (arena_) {
      ATOLL_TRY(decode_over(result, arena_->range(range)));
    }
  } else {
    const std::span<float> momentum = has_momentum() ? momentum_.floats().subspan(range.offset, range.count) : std::span<float>();
    const OuterState state{parameters, momentum};
    if (merges(result.round)) {
      ATOLL_TRY(outer_step(result.reduced(), OuterOptimizer{OuterOptimizerKind::adopt}, state));
    } else if (group != nullptr) {
      ATOLL_TRY(outer_step(result.reduced(), *group, composition_.outer, state));
    } else {
      ATOLL_TRY(outer_step(result.reduced(), composition_.outer, state));
    }
    if (arena_) {
      std::copy(parameters.begin(), parameters.end(), arena_->range(range).begin());
    }
  }
  round_ = result.round;
  chain_ = chain;
  drop_contributions_before(round_.next());
  return {};
}

Result<CheckpointMeta> IslandRun::write_checkpoint(Epoch epoch, bool trainer_state, Step step, std::uint64_t position, std::size_t keep,
                                                   const std::set<Round>& needed) {
  if (!has_state_) {
    return Error{Code::conflict, "run " + id_.text + ": there is no outer state to write"};
  }
  if (!trainer_state) {
    ATOLL_ASSIGN([[maybe_unused]] const fs::path partial, checkpoints_.begin(round_));
  }
  Result<FileFacts> outer = checkpoints_.write_outer(round_, layout_->tensors(parameters_.floats(), momentum_.floats()),
                                                     outer_metadata(id_, round_, chain_, spec_, layout_->manifest_text()));
  if (!outer) {
    checkpoints_.abandon(round_);
    return outer.error();
  }
  CheckpointMeta meta;
  meta.run = id_;
  meta.round = round_;
  meta.epoch = epoch;
  meta.chain = chain_;
  meta.step = step;
  meta.position = position;
  ATOLL_ASSIGN(meta, checkpoints_.finish(std::move(meta)));
  checkpoints_.prune(keep, needed);
  return meta;
}

Status IslandRun::load_checkpoint(Round round, const Digest& chain) {
  ATOLL_ASSIGN(const CheckpointMeta meta, checkpoints_.verify(round));
  if (meta.chain != chain || meta.run != id_) {
    return Error{Code::corrupt, "the checkpoint of round " + std::to_string(round.value) + " belongs to another history"};
  }
  ATOLL_TRY(load_outer(checkpoints_.folder_of(round) / kOuterFile));
  if (round_ != round || chain_ != chain) {
    has_state_ = false;
    return Error{Code::corrupt, "the outer state of round " + std::to_string(round.value) + " says it is another one"};
  }
  return {};
}

Status IslandRun::load_outer(const fs::path& path) {
  ATOLL_ASSIGN(const SafetensorsFile file, SafetensorsFile::open(path));
  const auto& metadata = file.header().metadata;
  const auto text = [&](const char* key) { return metadata.contains(key) ? metadata.at(key) : std::string(); };
  const Result<Digest> chain = digest_from_hex(text("atoll.chain"));
  const std::string round = text("atoll.round");
  if (text("atoll.run") != id_.text || !chain || round.empty() || round.size() > 19 || round.find_first_not_of("0123456789") != std::string::npos) {
    return Error{Code::corrupt, path.string() + ": its metadata is not that of a checkpoint of run " + id_.text};
  }
  ATOLL_ASSIGN(ParameterLayout layout, ParameterLayout::from_checkpoint(file.header(), composition_.fragments));
  ATOLL_TRY(use_layout(std::move(layout)));
  has_state_ = false;
  const Status read = layout_->read(file, parameters_.floats(), momentum_.floats());
  if (!read) {
    return with_context(read.error(), path.string());
  }
  round_ = Round(std::stoull(round));
  chain_ = *chain;
  has_state_ = true;
  contributions_.clear();
  return {};
}

}  // namespace atl
