#include "agent/engine/own_start.hpp"

#include <algorithm>
#include <string>

#include "agent/core/decide.hpp"
#include "agent/storage/durable_file.hpp"

namespace atl {
namespace {

constexpr std::string_view kPrefix = "own/";
constexpr const char* kWeights = "own_weights";

}  // namespace

Result<OwnStart> OwnStart::make(const Composition& composition, const RunSpec& spec, const ParameterLayout& layout) {
  ATOLL_ASSIGN(const Schedule schedule,
               schedule_of(composition, spec.training.steps, static_cast<std::uint32_t>(layout.fragments().size())));
  if (schedule.fragments() >= agent::kRoundsInFlight) {
    return Error{Code::invalid_argument, "the model has " + std::to_string(schedule.fragments()) +
                                             " fragments; with an overlap of the whole period at most " +
                                             std::to_string(agent::kRoundsInFlight - 1) + " are possible"};
  }
  OwnStart own(composition, schedule);
  if (composition.eager && has_momentum(composition.outer.kind)) {
    ATOLL_ASSIGN(own.momentum_, FloatBuffer::make(layout.total()));
  }
  return own;
}

void OwnStart::load(Round committed) { std::ranges::fill(handed_, committed); }

bool OwnStart::result_follows(Round round) const {
  const Result<RoundPlan> plan = schedule_.round_at(round);
  const std::optional<Round> before = plan ? schedule_.round_before(*plan) : std::nullopt;
  return before && *before > handed_[plan->fragment];
}

bool OwnStart::is_first(Round round) const {
  const Result<RoundPlan> plan = schedule_.round_at(round);
  return plan && !schedule_.round_before(*plan);
}

void OwnStart::forget() {
  std::ranges::fill(weights_, 0.0F);
  std::ranges::fill(momentum_.floats(), 0.0F);
}

Status OwnStart::absorb(std::uint32_t fragment, ByteView own, float weight, const ParameterLayout& layout) {
  weights_[fragment] = weight > 0.0F ? weight : weights_[fragment];
  if (momentum_.empty()) {
    return {};
  }
  const island_link::Fragment& range = layout.fragments()[fragment];
  const std::vector<BufferRange> buffers = layout.buffers(fragment);
  return eager_absorb({composition_.codec, own, weight, buffers}, composition_.outer,
                      momentum_.floats().subspan(range.offset, range.count));
}

Status OwnStart::start(std::uint32_t fragment, ByteView newest, const ParameterLayout& layout, std::span<const float> outer,
                       std::span<float> start) const {
  if (!composition_.eager || newest.empty()) {
    std::ranges::copy(outer, start.begin());
    return {};
  }
  const std::vector<BufferRange> buffers = layout.buffers(fragment);
  return eager_start({composition_.codec, newest, weights_[fragment], buffers}, composition_.outer, outer,
                     momentum(layout.fragments()[fragment]), start);
}

std::span<const float> OwnStart::momentum(const island_link::Fragment& range) const {
  return momentum_.empty() ? std::span<const float>() : std::span<const float>(momentum_.floats()).subspan(range.offset, range.count);
}

std::vector<TensorView> OwnStart::tensors(const ParameterLayout& layout) const {
  std::vector<TensorView> tensors;
  if (!momentum_.empty()) {
    tensors = layout.tensors({{kPrefix, OuterStateFormat::f32, std::as_writable_bytes(momentum_.floats())}});
  }
  tensors.push_back({kWeights, {weights_.size()}, weights_});
  return tensors;
}

Status OwnStart::write(const ParameterLayout& layout, const DiskPath& folder) const {
  if (!composition_.eager) {
    return {};
  }
  ATOLL_ASSIGN(DurableFile file, DurableFile::create(folder / kOwnFile));
  ATOLL_TRY(write_safetensors(tensors(layout), {{"atoll.format", "1"}}, [&](ByteView bytes) { return file.write(bytes); }));
  ATOLL_ASSIGN([[maybe_unused]] const FileFacts facts, file.finish());
  return {};
}

Status OwnStart::read(const ParameterLayout& layout, const DiskPath& folder, const CheckpointMeta& meta) {
  forget();
  if (!composition_.eager || !meta.files.contains(kOwnFile)) {
    return {};
  }
  ATOLL_ASSIGN(const SafetensorsFile file, SafetensorsFile::open(folder / kOwnFile));
  for (const TensorView& tensor : tensors(layout)) {
    ATOLL_ASSIGN(const std::span<const float> values, file.floats(tensor.name));
    if (values.size() != tensor.values.size()) {
      return Error{Code::corrupt, std::string(kOwnFile) + ": the tensor '" + tensor.name + "' has another size"};
    }
    const bool weights = tensor.values.data() == weights_.data();
    const std::span<float> to = weights ? std::span(weights_) : momentum_.floats();
    std::ranges::copy(values, to.begin() + (tensor.values.data() - to.data()));
  }
  return {};
}

}  // namespace atl
