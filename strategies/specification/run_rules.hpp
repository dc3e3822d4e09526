// Rules of a run file that tie several keys together: what each key allows alone is in strategies/specification/run_keys.hpp.
//
// The command line reports them with line and column; the coordinator refuses a submitted spec that breaks one, because
// a spec may come from a client that is not ours.
// Threads: pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "strategies/specification/model_kind.hpp"
#include "strategies/specification/run_spec.hpp"
#include "transport/base/result.hpp"

namespace atl {

// A contradiction, put down to the key a person would change.
struct RunProblem {
  std::string_view section;
  std::string_view key;
  std::string why;
  std::vector<std::string_view> with = {};  // the other keys it rests on, "section.key"
};

// All contradictions in a spec whose keys are allowed each alone; empty if there is none.
std::vector<RunProblem> find_contradictions(const RunSpec& spec);

// invalid_argument with the first contradiction and how many more there are.
Status check_run_spec(const RunSpec& spec);

// An entry of [islands].overlap_steps, "lyon=5"; nullopt if it is not of that form.
struct OwnOverlap {
  std::string island;
  std::uint64_t steps = 0;
};
std::optional<OwnOverlap> parse_own_overlap(std::string_view entry);
// τ of this island: its own, or the run's.
std::uint64_t own_overlap(const RunSpec& spec, std::string_view island);

// With less a piece takes so long that the others give up. Bits a second.
inline constexpr double kLeastUplink = 500e3;
// [islands].uplink in bits a second; 0: none.
double run_uplink(const RunSpec& spec);

// Into how many classes the training data are divided, of which every island in the run has some (transport/base/data_share.hpp).
std::uint32_t classes_of_data(const RunSpec& spec);
// That an island trains on between two rounds of its whole model, by the run file. At least 1.
std::uint64_t sequences_of_a_round(const RunSpec& spec);

// So many islands a run of phases has work for by themselves, when all its experts and the router are trained: with more, several train one
// expert.
std::uint32_t islands_without_groups(const RunSpec& spec);

// The NAME of "run:NAME" of model.from, once it is pinned the run's id; empty for any other text.
std::string_view run_to_begin_from(std::string_view from);

// "hf:ORGANISATION/NAME@REVISION" of model.from: a repository of the Hugging Face hub, and a branch, tag or commit of it ("main" where it
// says none; a commit once it is pinned). Their names are plain ones: none leads out of a folder.
struct HubModel {
  std::string repository;
  std::string revision;
};
// None for any other text.
std::optional<HubModel> hub_model_to_begin_from(std::string_view from);
bool is_commit(std::string_view revision);

// model.from names a file or a folder.
bool begins_from_file(const RunSpec& spec);

// The FILE of "npy:FILE" or "torchscript:FILE" of diffusion.features; empty for any other text.
std::string_view features_file(std::string_view features);

}  // namespace atl
