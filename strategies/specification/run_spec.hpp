// RunSpec: what a run file says, complete: every key present, every default filled in, every unit converted.
//
// The command line reads TOML into a RunSpec and submits it; the coordinator stores and hands out exactly that value (as
// JSON), so that no two islands ever train with different settings. The names of fields, TOML keys and JSON keys are the
// same; in JSON a duration or size carries its unit as suffix (`deadline_ms`), and a choice is its text (choices.hpp). [strategy] is
// strategies/ own: StrategySpec in composition.hpp.
// Threads: plain values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "strategies/composition.hpp"
#include "transport/base/result.hpp"
#include "transport/base/time.hpp"
#include "transport/base/trainer_settings.hpp"

namespace atl {

// [model]
struct ModelSpec : ModelSizes {
  // Given parameters, which the run begins with in place of the seed's, of whichever trainer: a file of the islands, an https address, or
  // "run:NAME" (submitted with the run's id), pinned by the file's digest. Empty: those of the seed.
  std::string from;
  std::string sha256;
  friend bool operator==(const ModelSpec&, const ModelSpec&) = default;
};

inline constexpr std::uint32_t kMaxSpread = 1000;

// [trainer]: a program of the islands' owners in place of the built-in trainer; then there is no [model].
struct TrainerSpec {
  std::string name;                                   // which each agent maps to a program of its own (`agent --trainer NAME=COMMAND`)
  std::uint32_t ranks = 0;                            // processes that it must have; 0: any number
  Duration start_within = std::chrono::minutes(30);   // from its start until it is ready
  Duration finish_within = std::chrono::minutes(10);  // from the run's end until the program has ended
  std::string parameters;                             // "1.3B": for plans and checks before a trainer has said it; empty: not known
  std::uint64_t tokens_per_sample = 1;                // what a sample counts in tokens
  bool same_code = false;                             // islands whose trainers' code differs are refused
  std::string settings;                               // [trainer.settings] as JSON, an object, for the trainer alone; empty: none
  friend bool operator==(const TrainerSpec&, const TrainerSpec&) = default;
};

inline constexpr std::size_t kLargestTrainerSettings = std::size_t{64} << 10;  // bytes of JSON
inline constexpr std::size_t kDeepestTrainerSettings = 8;

// [data]: exactly one of set, files, url; with [trainer], none of them where the trainer has data of its own.
struct DataSpec {
  std::string set;                 // a name that each agent maps to files of its own (`agent --data NAME=PATH`)
  std::vector<std::string> files;  // paths or globs on the island; the agent's owner must have allowed them
  std::string url;                 // https; cached; `sha256` required
  std::string sha256;
  std::string format = "bytes";  // bytes | uint16 | uint32 (token shards, nanoGPT's and llm.c's, header or none), or images: idx | cifar10
                                 // | images | npy | safetensors
  double validation_fraction = 0.05;  // the last part of the tokens is held out
  std::uint32_t spread =
      0;  // of group expert: so many islands have images of their own, which together are the data set; 0: all have the whole set
  friend bool operator==(const DataSpec&, const DataSpec&) = default;
};

// [training]
struct TrainingSpec : TrainingSettings {
  std::uint64_t tokens = 0;           // committed by all islands together, after which the run ends; 0: it ends by its steps
  std::uint32_t evaluate_every = 10;  // rounds between validations; 0: at the start and the end only
  friend bool operator==(const TrainingSpec&, const TrainingSpec&) = default;
};

// [islands]: who takes part.
struct IslandsSpec {
  std::uint32_t min = 1;
  std::uint32_t max = 64;
  Duration deadline =
      std::chrono::minutes(10);    // of a round: when it has passed, the round starts with those that are ready, if at least min
  double straggler_factor = 0;     // of the time that the first island needed for a round: then it starts without the others; 0: never
  std::string uplink;              // "20mbit": what each island may send for this run; empty: what its agent allows
  std::vector<std::string> names;  // only these islands; empty: any
  std::vector<std::string> overlap_steps;  // "NAME=STEPS": a τ of its own for an island; see own_overlap in run_rules.hpp
  friend bool operator==(const IslandsSpec&, const IslandsSpec&) = default;
};

// [checkpoint]
struct CheckpointSpec {
  std::uint32_t every_rounds = 10;
  std::uint32_t keep = 3;
  std::string copy;  // "s3://bucket/prefix" or "https://host/path": where checkpoints are copied to; empty: nowhere
  friend bool operator==(const CheckpointSpec&, const CheckpointSpec&) = default;
};

// [guards]: what is not believed.
struct GuardsSpec {
  double norm_factor = 10;             // contributions with a norm of more than so many times the running median are rejected; 0: none
  std::uint32_t quarantine_after = 3;  // rejections, without ten accepted contributions in between; 0: never
  friend bool operator==(const GuardsSpec&, const GuardsSpec&) = default;
};

// Of a run of rounds in which several islands train one expert of a run of phases; not in a run file.
struct GroupWork {
  std::string run;     // that run's id; empty: this is a run of its own
  std::string task;    // "experts/2"
  std::string sha256;  // of the result of its task `clustering`, which every island of the group holds
  std::vector<std::string> images =
      {};  // of the results of its tasks `images/…`, which it holds, too; empty where every island has the whole data set
  friend bool operator==(const GroupWork&, const GroupWork&) = default;
};

struct RunSpec {
  std::string name;                               // [run].name; required
  std::uint64_t seed = 1;                         // [run].seed
  std::uint64_t priority = 0;                     // [run].priority: of the runs that wait for islands the highest starts first
  std::uint64_t arena_limit_bytes = 64ULL << 30;  // [run].arena_limit: a larger model is refused
  ModelSpec model;
  TrainerSpec trainer;
  DataSpec data;
  TrainingSpec training;
  StrategySpec strategy;
  DiffusionSettings diffusion;
  IslandsSpec islands;
  CheckpointSpec checkpoint;
  GuardsSpec guards;
  std::uint64_t rounds =
      0;  // of the whole run, or of a run of phases the tasks that train; computed from the schedule by the command line, not a key
  std::uint64_t merge_rounds = 0;  // the last of them: they merge all islands' outer parameters into one model
  std::uint64_t model_rounds = 1;  // that synchronise the whole model once: one for each fragment; computed as `rounds` is
  std::uint64_t group_rounds =
      0;  // of a run of phases: rounds of an expert that several islands train; computed as `rounds` is; 0: none has several
  GroupWork work;
  friend bool operator==(const RunSpec&, const RunSpec&) = default;
};

// Rounds between two checkpoints: [checkpoint].every_rounds are of the whole model, and with fragments a round is of one of them.
[[nodiscard]] inline std::uint64_t rounds_between_checkpoints(const RunSpec& spec) {
  return spec.checkpoint.every_rounds * spec.model_rounds;
}

// The canonical JSON text of a spec, and back. Reading accepts exactly what writing produces: a missing or unknown key, a
// wrong type or a number outside its bounds is invalid_argument naming the key. At most 1 MiB.
std::string to_json(const RunSpec& spec);
Result<RunSpec> run_spec_from_json(std::string_view json);

}  // namespace atl
