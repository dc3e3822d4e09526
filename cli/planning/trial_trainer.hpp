// A trial of a trainer of one's own: started once on this machine, alone, to learn what it declares and how long its steps take.
//
// The program is started as an agent would (agent/host/trainer_session.hpp), with an arena of its own, and is told to step without any
// synchronisation for a few seconds. Nothing of it stays. Threads: the calling one.
#pragma once

#include <filesystem>
#include <ostream>

#include "agent/host/trainer_programs.hpp"
#include "agent/island_link/messages.hpp"
#include "strategies/specification/run_spec.hpp"
#include "transport/base/result.hpp"

namespace atl {

struct TrialResult {
  island_link::Manifest manifest;
  double seconds_per_step = 0;
};

// `program`: the atoll executable; `talk` is told what is waited for. Errors: what an agent would say of this trainer; those of
// expand_files.
Result<TrialResult> try_trainer(const RunSpec& spec, const agent::TrainerPrograms& trainers, const std::filesystem::path& program,
                                std::ostream& talk);

}  // namespace atl
