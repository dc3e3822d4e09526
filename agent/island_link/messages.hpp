// The messages of the island link, between an agent and its trainer. README.md beside this file is the protocol's document
// for those who write a trainer in another language; this header is the same as C++ values.
//
// A message is one JSON object of at most 1 MiB with a "type". Unknown keys are ignored, so that a newer peer of the same
// protocol version may say more; a missing or wrong key is an error. Keys are the names of the fields below; a field of type
// std::optional is null or absent when empty. Numbers that are not finite become null.
// Threads: plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "transport/base/data_share.hpp"
#include "transport/base/result.hpp"
#include "transport/base/trainer_settings.hpp"

namespace atl::island_link {

inline constexpr std::uint32_t kProtocol = 2;
inline constexpr std::size_t kLargestMessage = 1U << 20;
// The environment variable that hands a trainer the path of the agent's socket.
inline constexpr const char* kLinkVariable = "ATOLL_ISLAND_LINK";

// What is exchanged at a synchronisation point: the parameters after a step, or the gradient before the optimiser's step.
enum class Payload { parameters, gradient };

// ---- values inside messages -------------------------------------------------------------------------------------------

// As in the run file.
using Model = ModelSizes;
using Training = TrainingSettings;
using Diffusion = DiffusionSettings;

// What the trainer reads. The agent has resolved sets, globs and URLs, checked the owner's permission, and chosen the part.
struct Data {
  std::vector<std::string> files;  // absolute paths, in the order of the token stream
  std::string format;              // as [data].format of the run file
  double validation_fraction = 0.0;
  // Of a trainer that cuts the data by itself: `part` (from 0) of `parts` disjoint ones of equal size, one for each island in the run. They
  // change as islands come and go.
  std::uint32_t part = 0;
  std::uint32_t parts = 1;
  // Of one that numbers its sequences as transport/base/data_share.hpp says.
  std::uint32_t classes = 1;
  std::vector<DataStretch> stretches = {};
  friend bool operator==(const Data&, const Data&) = default;
};

// The result of an earlier task, as a file.
struct TaskInput {
  std::string task;
  std::string path;
  std::string sha256;  // hexadecimal
  std::uint64_t bytes = 0;
  friend bool operator==(const TaskInput&, const TaskInput&) = default;
};

// What an expert is trained from that several islands train in rounds: its task, and the results that it needs.
struct Work {
  std::string task;
  std::vector<TaskInput> inputs;
  friend bool operator==(const Work&, const Work&) = default;
};

// [trainer] of the run file, for a trainer that is not the built-in one.
struct OwnTrainer {
  std::string name;
  std::uint32_t ranks = 0;              // that it must have; 0: any number
  std::uint64_t tokens_per_sample = 1;  // for what it counts in tokens
  std::string settings = "{}";          // [trainer.settings]: JSON, an object; in the message it is that object
  friend bool operator==(const OwnTrainer&, const OwnTrainer&) = default;
};

// Where to continue. Without a directory the optimiser starts fresh at that step and data position (a joiner in a run).
struct Resume {
  std::optional<std::string> directory;  // what this trainer saved at that step
  std::uint64_t step = 0;
  std::uint64_t position = 0;
  friend bool operator==(const Resume&, const Resume&) = default;
};

inline constexpr const char* kBufferMean = "mean";  // of the islands' own
inline constexpr const char* kBufferOfOne = "one";  // that of the first island that contributes

struct Parameter {
  std::string name;
  std::vector<std::uint64_t> shape;  // the product is the number of elements, at least 1
  std::int32_t block = 0;            // -1 embeddings · 0…L-1 the layers · L final norm and head
  // Nothing: it is trained. Else a buffer, which no outer step moves: kBufferMean or kBufferOfOne, what it is after a round.
  std::optional<std::string> buffer = {};
  friend bool operator==(const Parameter&, const Parameter&) = default;
};

// Where a parameter begins in the arena. Offsets and counts are in float32 elements.
struct Entry {
  std::uint32_t parameter = 0;  // index into the manifest
  std::uint64_t offset = 0;
  friend bool operator==(const Entry&, const Entry&) = default;
};

struct Fragment {
  std::uint64_t offset = 0;
  std::uint64_t count = 0;
  friend bool operator==(const Fragment&, const Fragment&) = default;
};

// "After step `step`, copy `fragment` into the arena and say so": the contribution of `round`.
struct PublishOrder {
  std::uint64_t round = 0;
  std::uint32_t fragment = 0;
  std::uint64_t step = 0;
  bool evaluate_local = false;  // also the validation loss of the local parameters
  friend bool operator==(const PublishOrder&, const PublishOrder&) = default;
};

// "After step `step`, wait for the result of `round` and take it": p ← alpha·p + (1 − alpha)·arena.
struct MergeOrder {
  std::uint64_t round = 0;
  std::uint32_t fragment = 0;
  std::uint64_t step = 0;
  double alpha = 0.0;
  bool evaluate = false;            // validation loss after the merge
  bool parameters = false;          // payload gradient: write the parameters into the arena before `merged`
  std::optional<std::string> save;  // directory: save the trainer's own state there after the merge
  friend bool operator==(const MergeOrder&, const MergeOrder&) = default;
};

// ---- trainer → agent --------------------------------------------------------------------------------------------------

struct Hello {
  static constexpr const char* kType = "hello";
  std::uint32_t protocol = kProtocol;
  std::string trainer;  // what program
  std::string version;  // of that program
  std::uint64_t pid = 0;
  std::uint32_t rank = 0;                   // the one that talks: 0
  std::uint32_t ranks = 1;                  // processes that the trainer has
  std::optional<bool> finishes;             // it understands `finish` and `skip`
  std::optional<std::string> kernels = {};  // what it multiplies matrices with, for people
  friend bool operator==(const Hello&, const Hello&) = default;
};

struct Manifest {
  static constexpr const char* kType = "manifest";
  std::vector<Parameter> parameters;
  std::optional<std::string> description;  // of the model, for whoever reads it one day; the same on all islands
  friend bool operator==(const Manifest&, const Manifest&) = default;
};

struct Ready {
  static constexpr const char* kType = "ready";
  std::uint64_t step = 0;
  std::uint64_t position = 0;
  std::uint64_t tokens_available = 0;  // in this part, for one epoch; an image counts as one
  friend bool operator==(const Ready&, const Ready&) = default;
};

// Fragments are in the arena as they are after `step` (answer to PublishNow).
struct PublishedNow {
  static constexpr const char* kType = "published_now";
  std::vector<std::uint32_t> fragments;
  std::uint64_t step = 0;
  std::uint64_t position = 0;
  friend bool operator==(const PublishedNow&, const PublishedNow&) = default;
};

// A PublishOrder is done.
struct Published {
  static constexpr const char* kType = "published";
  std::uint64_t round = 0;
  std::uint32_t fragment = 0;
  std::uint64_t step = 0;
  std::uint64_t position = 0;
  std::uint64_t tokens = 0;  // tokens and steps since the previous publish of this fragment
  std::uint64_t steps = 0;
  std::optional<double> loss;    // mean training loss of those steps; empty when not finite
  std::optional<double> norm;    // of the last step's gradient, before clipping
  bool nonfinite = false;        // a loss of those steps, or a gradient that was used, was not finite
  double compute_seconds = 0.0;  // since the trainer started
  std::optional<double> local_validation_loss;
  std::optional<std::uint64_t> bad_step = {};  // the first whose loss was not finite
  friend bool operator==(const Published&, const Published&) = default;
};

// A MergeOrder is done.
struct Merged {
  static constexpr const char* kType = "merged";
  std::uint64_t round = 0;
  std::uint32_t fragment = 0;
  std::uint64_t step = 0;
  std::uint64_t position = 0;
  double wait_seconds = 0.0;  // this merge waited so long for its result
  std::optional<double> validation_loss;
  bool saved = false;                     // the order's `save` was done
  std::optional<std::string> save_error;  // or why it was not; the trainer goes on
  std::optional<bool> saving = {};        // it goes on beside the steps, and `saved` says how it ended
  friend bool operator==(const Merged&, const Merged&) = default;
};

struct Loaded {
  static constexpr const char* kType = "loaded";
  std::vector<std::uint32_t> fragments;
  std::uint64_t step = 0;
  std::uint64_t position = 0;
  friend bool operator==(const Loaded&, const Loaded&) = default;
};

struct Saved {
  static constexpr const char* kType = "saved";
  std::string directory;
  std::uint64_t step = 0;
  std::uint64_t position = 0;
  std::optional<std::string> error;  // the state was not saved; the trainer goes on
  friend bool operator==(const Saved&, const Saved&) = default;
};

struct Evaluated {
  static constexpr const char* kType = "evaluated";
  std::optional<double> loss;  // nats per token, or the mean squared error of a flow; empty without held-out data or when not finite
  std::uint32_t batches = 0;
  std::uint64_t step = 0;
  friend bool operator==(const Evaluated&, const Evaluated&) = default;
};

struct Progress {
  static constexpr const char* kType = "progress";
  std::uint64_t step = 0;
  std::uint64_t position = 0;
  std::optional<double> loss;  // of the last step
  bool nonfinite = false;
  double tokens_per_second = 0.0;  // since the previous progress
  double compute_seconds = 0.0;    // since the trainer started
  double wait_seconds = 0.0;       // for results and orders, since the trainer started
  friend bool operator==(const Progress&, const Progress&) = default;
};

// How far a task is.
struct TaskProgress {
  static constexpr const char* kType = "task_progress";
  std::uint64_t step = 0;
  std::uint64_t steps = 0;  // of the whole task
  std::optional<double> loss;
  double images_per_second = 0.0;
  double compute_seconds = 0.0;  // since the trainer started
  friend bool operator==(const TaskProgress&, const TaskProgress&) = default;
};

// A file that a task can be continued from lies at `path`, complete; the agent takes it away.
struct TaskSaved {
  static constexpr const char* kType = "task_saved";
  std::string path;
  std::uint64_t step = 0;
  friend bool operator==(const TaskSaved&, const TaskSaved&) = default;
};

// A PNG of images that the model makes at this step lies at the task's `checkpoint` with ".png" behind it, complete.
struct TaskDrew {
  static constexpr const char* kType = "task_drew";
  std::uint64_t step = 0;
  friend bool operator==(const TaskDrew&, const TaskDrew&) = default;
};

// The task's result lies at the task's `output`, complete; `facts` is a JSON object for people. The trainer waits for `stop`.
struct TaskDone {
  static constexpr const char* kType = "task_done";
  std::string facts;
  friend bool operator==(const TaskDone&, const TaskDone&) = default;
};

// A number that the trainer has measured, by a name of its own.
struct Metric {
  std::string name;             // at most kLongestMetricName bytes
  std::optional<double> value;  // null: not finite
  friend bool operator==(const Metric&, const Metric&) = default;
};
inline constexpr std::size_t kMostMetrics = 32;
inline constexpr std::size_t kLongestMetricName = 64;

// The newest of each name stands. Said before the `published` or `merged` that they belong to.
struct Metrics {
  static constexpr const char* kType = "metrics";
  std::vector<Metric> values;  // at most kMostMetrics
  friend bool operator==(const Metrics&, const Metrics&) = default;
};

// The model is good enough: the run may end for all islands, after the next round.
struct Enough {
  static constexpr const char* kType = "enough";
  std::string why;
  friend bool operator==(const Enough&, const Enough&) = default;
};

// What a trainer is doing that may take longer than a step, for people: before it is ready, and until its next message later.
struct Preparing {
  static constexpr const char* kType = "preparing";
  std::string what;
  std::optional<std::string> data = {};  // what it reads: files, how much each holds, and as what
  friend bool operator==(const Preparing&, const Preparing&) = default;
};

// The trainer is about to exit, because of this.
struct Failed {
  static constexpr const char* kType = "failed";
  std::string why;
  std::optional<bool> permanent = {};  // it would fail again: it is not started again
  friend bool operator==(const Failed&, const Failed&) = default;
};

using TrainerMessage = std::variant<Hello, Manifest, Ready, PublishedNow, Published, Merged, Loaded, Saved, Evaluated, Progress,
                                    TaskProgress, TaskSaved, TaskDrew, TaskDone, Failed, Preparing, Metrics, Enough>;

// ---- agent → trainer --------------------------------------------------------------------------------------------------

struct Configure {
  static constexpr const char* kType = "configure";
  std::string run;
  std::string island;
  std::uint64_t seed = 0;
  Model model;  // not of an own trainer
  Data data;
  Training training;
  Payload payload = Payload::parameters;
  std::optional<Diffusion> diffusion;  // the data are images, and the model a diffusion transformer
  std::optional<Work> work;            // of one cluster of them: the model is this expert
  std::optional<Resume> resume;
  std::optional<OwnTrainer> trainer = {};  // instead of `model`
  std::optional<bool> saves_beside = {};   // the agent understands Merged::saving
  friend bool operator==(const Configure&, const Configure&) = default;
};

// In place of Configure: one task of a phase, from its inputs to one file. No arena, no orders; Stop may come at any time.
struct Task {
  static constexpr const char* kType = "task";
  std::string run;
  std::string island;
  std::string task;  // "experts/2"
  std::uint64_t seed = 0;
  Model model;
  Data data;
  Training training;
  Diffusion diffusion;
  std::vector<TaskInput> inputs;
  std::string output;                 // write the result here
  std::string checkpoint;             // write what can be continued from to this path with ".STEP" behind it
  std::optional<std::string> resume;  // a file that an earlier trainer saved, perhaps on another island
  friend bool operator==(const Task&, const Task&) = default;
};

struct ArenaLayout {
  static constexpr const char* kType = "arena";
  std::string path;
  std::uint64_t bytes = 0;  // of the file
  std::vector<Entry> entries;
  std::vector<Fragment> fragments;
  friend bool operator==(const ArenaLayout&, const ArenaLayout&) = default;
};

struct PublishNow {
  static constexpr const char* kType = "publish_now";
  std::vector<std::uint32_t> fragments;
  friend bool operator==(const PublishNow&, const PublishNow&) = default;
};

struct Load {
  static constexpr const char* kType = "load";
  std::vector<std::uint32_t> fragments;
  std::uint64_t step = 0;
  std::uint64_t position = 0;
  friend bool operator==(const Load&, const Load&) = default;
};

// Orders ahead; they are added to those still pending. `until_step` replaces the previous one.
struct Plan {
  static constexpr const char* kType = "plan";
  std::uint64_t until_step = 0;
  std::vector<PublishOrder> publish;
  std::vector<MergeOrder> merge;
  friend bool operator==(const Plan&, const Plan&) = default;
};

// The result of a round is in the arena (applied), or the round has none and the trainer keeps what it has.
struct RoundResult {
  static constexpr const char* kType = "result";
  std::uint64_t round = 0;
  std::uint32_t fragment = 0;
  bool applied = false;
  friend bool operator==(const RoundResult&, const RoundResult&) = default;
};

// "`round` is the last for now": no step beyond its merge, what is due after it is void, and the trainer's state is saved after that merge.
// With `now` its publish and merge are due at once, with however many steps were done. Only for trainers whose hello says `finishes`.
struct Finish {
  static constexpr const char* kType = "finish";
  std::uint64_t round = 0;
  bool now = false;
  std::optional<std::string> save;  // directory
  friend bool operator==(const Finish&, const Finish&) = default;
};

// "Stand at `step` now": the steps up to it are not done, the orders for them are due. Position and optimiser stay. Never back, never
// beyond `until_step`. Only for trainers whose hello says `finishes`.
struct Skip {
  static constexpr const char* kType = "skip";
  std::uint64_t step = 0;
  friend bool operator==(const Skip&, const Skip&) = default;
};

// The islands of the run have committed so many tokens of those after which it ends: what a learning rate follows. Only for trainers whose
// hello says `finishes`.
struct Committed {
  static constexpr const char* kType = "committed";
  std::uint64_t tokens = 0;
  std::uint64_t of = 0;
  friend bool operator==(const Committed&, const Committed&) = default;
};

// The data were dealt anew among the islands: from now on these stand in place of what `configure` said, as `data` has them. Only for
// trainers whose hello says `finishes`.
struct Dealt {
  static constexpr const char* kType = "dealt";
  std::uint32_t part = 0;
  std::uint32_t parts = 1;
  std::uint32_t classes = 1;
  std::vector<DataStretch> stretches;
  friend bool operator==(const Dealt&, const Dealt&) = default;
};

struct Save {
  static constexpr const char* kType = "save";
  std::string directory;
  friend bool operator==(const Save&, const Save&) = default;
};

struct Evaluate {
  static constexpr const char* kType = "evaluate";
  friend bool operator==(const Evaluate&, const Evaluate&) = default;
};

// With `complete` the run is completed, and the trainer was told to load its last parameters before: it has the time of
// [trainer].finish_within to end by itself. `first`: of all islands that completed it this is the one that writes what is written once.
struct Stop {
  static constexpr const char* kType = "stop";
  std::string why;
  std::optional<bool> complete = {};
  std::optional<bool> first = {};
  friend bool operator==(const Stop&, const Stop&) = default;
};

using AgentMessage =
    std::variant<Configure, Task, ArenaLayout, PublishNow, Load, Plan, RoundResult, Finish, Skip, Committed, Dealt, Save, Evaluate, Stop>;

// ---- text -------------------------------------------------------------------------------------------------------------

// JSON text of a message. May exceed kLargestMessage (a manifest of tens of thousands of parameters); the ends of the link
// refuse to send that.
std::string encode(const TrainerMessage& message);
std::string encode(const AgentMessage& message);

// The message that a text says. Never throws, whatever the text; allocates in proportion to its length.
// Errors: corrupt, naming the type and key, when the text is not a message of that direction.
Result<TrainerMessage> decode_trainer_message(std::string_view text);
Result<AgentMessage> decode_agent_message(std::string_view text);

// "hello", "plan": the type of a message, for logs.
std::string_view type_of(const TrainerMessage& message);
std::string_view type_of(const AgentMessage& message);

}  // namespace atl::island_link
