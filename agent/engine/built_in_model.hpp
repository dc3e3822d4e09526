// The built-in trainer's model and settings as it takes them, from a run's specification.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "agent/island_link/messages.hpp"
#include "strategies/fragments.hpp"
#include "strategies/specification/run_spec.hpp"

namespace atl {

// What an order to train says of the model.
void put_model(const RunSpec& spec, island_link::Configure& order);
// The parameters of the built-in trainer's model; of an own trainer's as many as it will have fragments, of equal size and together as many
// values as [trainer] says (one each where it does not). Of images what is not known before they are read is left out: channels beyond the
// first, and classes.
island_link::Manifest manifest_of(const RunSpec& spec);
// Whether the parameters of a file or folder suit [model]: for the language model a folder's config.json says a model of its arithmetic and
// sizes, and all of its parameters are there. Of other models nothing is known before their trainers run.
// Errors: invalid_argument naming each difference, and what to write where [model] may say otherwise; those of GivenTensors::open.
Status suits_model(const std::filesystem::path& given, const RunSpec& spec);
// The float32 values of each fragment of that model, as agents will lay it out.
// Errors: invalid_argument where the plan does not suit the model.
Result<std::vector<std::uint64_t>> fragment_values(const RunSpec& spec, const FragmentPlan& plan);

}  // namespace atl
