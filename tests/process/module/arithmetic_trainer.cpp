// A trainer for tests: it speaks the island link as agent/island_link/README.md says, and its "training" is arithmetic that a test can
// repeat. Step s (from 1) of part p takes from element i of each of its parameters:
//     drift(p, s, i) = ((p + 1) · s mod 7 + i mod 5) / 1024
// so the outer parameters after any number of rounds follow from who contributed how many steps. (Elements from the 4,096th
// on stand still: a large model is there to move bytes.) It is loaded by `atoll trainer` ($ATOLL_TRAINER_MODULE), so the processes around
// it are the real ones. $ATOLL_TEST_STEP_MS is what a step takes at least, or the path of a file in which that stands and may change,
// $ATOLL_TEST_HEAD another size of its last parameter, which $ATOLL_TEST_HEADS cuts into so many with a block each; with $ATOLL_TEST_STILL
// it keeps no copy of its own of what stands still, which is in the arena alone: for models that fit into memory only so. With
// $ATOLL_TEST_HOLD_AT it goes no further than that step until the file
// $ATOLL_TEST_RELEASE is there, and then to the step that stands in it or to the end, so that a test decides what happens before what;
// $ATOLL_TEST_START_MS is how long it takes before it says a word, as an interpreter with its libraries does, or the path of such a file.
// $ATOLL_TEST_BREAK, if set, makes it misbehave once at step 7: exit | abort | hang | nan | memory (once: the file $ATOLL_TEST_ONCE
// remembers it).
#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "agent/island_link/arena.hpp"
#include "agent/island_link/round_orders.hpp"
#include "agent/island_link/trainer_link.hpp"

using namespace atl;
using namespace atl::island_link;
namespace fs = std::filesystem;

namespace {

// What the variable says, or the file whose path it is.
int milliseconds_of(const char* variable, int otherwise) {
  const char* set = ::getenv(variable);
  if (set != nullptr && *set == '/') {
    std::ifstream(set) >> otherwise;
    return otherwise;
  }
  return set != nullptr ? std::atoi(set) : otherwise;
}

constexpr std::uint64_t kSequencesAStep = 4;
constexpr std::size_t kMovingElements = 4096;

class ArithmeticTrainer {
 public:
  explicit ArithmeticTrainer(TrainerLink link) : link_(std::move(link)) {}

  int run() {
    const std::uint64_t head = number_from("ATOLL_TEST_HEAD", 3);
    const std::uint64_t heads = number_from("ATOLL_TEST_HEADS", 1);
    manifest_.parameters = {{"embedding", {10, 10}, -1}, {"layer", {25, 4}, 0}};
    for (std::uint64_t i = 0; i < heads; ++i) {
      manifest_.parameters.push_back({heads == 1 ? "head" : "head" + std::to_string(i), {head / heads}, static_cast<int>(1 + i)});
    }
    for (const Parameter& parameter : manifest_.parameters) {
      const std::uint64_t kept = ::getenv("ATOLL_TEST_STILL") != nullptr ? kMovingElements : SIZE_MAX;
      values_.emplace_back(std::min(elements(parameter), kept), 0.5F);
    }
    send(island_link::Hello{kProtocol, "arithmetic", "1", 0, 0, 1, true});
    while (!stopped_) {
      const bool held = is_held();
      const bool idle = step_ >= until_ || waiting();
      if (!read(idle ? Duration(std::chrono::seconds(1)) : held ? Duration(std::chrono::milliseconds(20)) : Duration::zero())) {
        return 1;
      }
      if (!idle && !held && configured_) {
        one_step();
      }
      execute_orders();
    }
    return 0;
  }

 private:
  bool read(Duration timeout) {
    while (true) {
      const Result<std::optional<AgentMessage>> message = link_.receive(timeout);
      if (!message) {
        return false;
      }
      if (!*message) {
        return true;
      }
      std::visit([this](const auto& order) { take(order); }, **message);
      timeout = Duration::zero();
    }
  }
  void send(const TrainerMessage& message) { (void)link_.send(message); }

  void take(const Configure& order) {
    configure_ = order;
    configured_ = true;
    if (order.resume) {
      step_ = order.resume->step;
      position_ = order.resume->position;
      if (order.resume->directory) {
        restore(*order.resume->directory);
      }
    }
    send(manifest_);
  }
  void take(const ArenaLayout& order) {
    layout_ = order;
    arena_ = Arena::open(order.path, order.bytes).value();
    since_.resize(order.fragments.size());
    send(Ready{step_, position_, 1'000'000});
  }
  void take(const PublishNow& order) {
    for (const std::uint32_t fragment : order.fragments) {
      copy_out(fragment);
    }
    send(PublishedNow{order.fragments, step_, position_});
  }
  void take(const Load& order) {
    for (const std::uint32_t fragment : order.fragments) {
      copy_in(fragment, 0);
    }
    step_ = order.step;
    position_ = order.position;
    orders_.clear();
    awaited_.reset();
    results_.clear();
    until_ = order.step;
    since_.assign(since_.size(), 0);
    finish_.reset();
    send(Loaded{order.fragments, step_, position_});
  }
  void take(const Plan& order) {
    until_ = std::max(until_, order.until_step);
    orders_.add(order.publish, order.merge);
  }
  void take(const Finish& order) {
    finish_ = order;
    until_ = orders_.finish(order.round, order.now, step_);
  }
  void take(const Skip& order) { step_ = std::max(step_, std::min(order.step, until_)); }
  void take(const Committed&) {}
  void take(const Dealt&) {}  // it cuts no data
  void take(const RoundResult& order) { results_[{order.round, order.fragment}] = order.applied; }
  void take(const Save& order) { send(Saved{order.directory, step_, position_, std::nullopt}); }
  void take(const Evaluate&) { send(Evaluated{loss(), 1, step_}); }
  void take(const Task& order) { send(Failed{"this trainer knows no task '" + order.task + "'"}); }
  void take(const Stop&) { stopped_ = true; }

  [[nodiscard]] bool waiting() const { return awaited_.has_value(); }
  [[nodiscard]] double loss() const { return static_cast<double>(values_[0][0]); }

  [[nodiscard]] bool is_held() const {
    const char* at = ::getenv("ATOLL_TEST_HOLD_AT");
    if (at == nullptr || step_ < std::stoull(at)) {
      return false;
    }
    const fs::path release = ::getenv("ATOLL_TEST_RELEASE");
    std::uint64_t further = 0;
    return !fs::exists(release) || (std::ifstream(release) >> further && step_ >= further);
  }

  [[nodiscard]] static std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
    const char* set = ::getenv(variable);
    return set != nullptr ? std::stoull(set) : otherwise;
  }

  void one_step() {
    const int ms = milliseconds_of("ATOLL_TEST_STEP_MS", 1);
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(ms);
    const std::uint64_t step = ++step_;
    position_ += kSequencesAStep;
    for (std::uint64_t& steps : since_) {
      ++steps;
    }
    misbehave(step);
    for (std::vector<float>& tensor : values_) {
      for (std::size_t i = 0; i < std::min(tensor.size(), kMovingElements); ++i) {
        tensor[i] -= static_cast<float>((configure_.data.part + 1) * step % 7 + i % 5) / 1024.0F;
      }
    }
    std::this_thread::sleep_until(end);
    compute_seconds_ += ms / 1000.0;
    send(Progress{step_, position_, loss(), false, 1000.0, compute_seconds_, wait_seconds_});
  }

  void misbehave(std::uint64_t step) {
    const char* set = ::getenv("ATOLL_TEST_BREAK");
    const std::string how = set != nullptr ? set : "";
    const fs::path once = fs::path(::getenv("ATOLL_TEST_ONCE") != nullptr ? ::getenv("ATOLL_TEST_ONCE") : "/nonexistent/once");
    if (how.empty() || step != 7 || fs::exists(once)) {
      return;
    }
    std::ofstream(once) << how;
    if (how == "exit") {
      std::fprintf(stderr, "the arithmetic went wrong\n");
      std::exit(3);
    } else if (how == "abort") {
      std::abort();
    } else if (how == "hang") {
      std::this_thread::sleep_for(std::chrono::hours(1));
    } else if (how == "memory") {
      std::vector<char> much(600U << 20, 1);
      std::this_thread::sleep_for(std::chrono::seconds(30));
      std::fprintf(stderr, "%d\n", much[5]);
    } else if (how == "nan") {
      values_[0][3] = std::numeric_limits<float>::quiet_NaN();
    }
  }

  void publish(const PublishOrder& order) {
    copy_out(order.fragment);
    Published said;
    said.round = order.round;
    said.fragment = order.fragment;
    said.step = step_;
    said.position = position_;
    said.steps = since_[order.fragment];
    said.tokens = said.steps * kSequencesAStep * configure_.training.sequence_length;
    said.loss = loss();
    said.compute_seconds = compute_seconds_;
    since_[order.fragment] = 0;
    send(said);
  }

  void merge(const MergeOrder& order, bool applied) {
    if (applied) {
      copy_in(order.fragment, static_cast<float>(order.alpha));
    }
    Merged said;
    said.round = order.round;
    said.fragment = order.fragment;
    said.step = step_;
    said.position = position_;
    if (order.evaluate) {
      said.validation_loss = loss();
    }
    if (stands_since_) {
      said.wait_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - *stands_since_).count();
      wait_seconds_ += said.wait_seconds;
      stands_since_.reset();
    }
    const bool last = finish_ && finish_->round == order.round && finish_->save;
    if (order.save || last) {
      said.saved = save(last ? *finish_->save : *order.save);
    }
    send(said);
  }

  void execute_orders() {
    while (true) {
      if (!awaited_ && !take_order()) {
        return;
      }
      if (!awaited_) {
        continue;
      }
      const auto result = results_.find({awaited_->round, awaited_->fragment});
      if (result == results_.end()) {
        stands_since_ = stands_since_ ? stands_since_ : std::chrono::steady_clock::now();
        return;
      }
      const bool applied = result->second;
      results_.erase(result);
      merge(*std::exchange(awaited_, std::nullopt), applied);
    }
  }

  // Begins the order that comes next; false if none is due.
  bool take_order() {
    if (const auto next = finish_ && finish_->now ? orders_.next_step() : std::nullopt) {
      step_ = std::max(step_, *next);
    }
    const auto due = orders_.take(step_);
    if (due && std::holds_alternative<PublishOrder>(*due)) {
      publish(std::get<PublishOrder>(*due));
    } else if (due) {
      awaited_ = std::get<MergeOrder>(*due);
    }
    return due.has_value();
  }

  bool save(const fs::path& folder) {
    const fs::path fresh = folder.string() + ".new";
    std::error_code failure;
    fs::create_directories(fresh, failure);
    std::ofstream file(fresh / "values", std::ios::binary);
    for (const std::vector<float>& tensor : values_) {
      file.write(reinterpret_cast<const char*>(tensor.data()), static_cast<std::streamsize>(tensor.size() * sizeof(float)));
    }
    file.write(reinterpret_cast<const char*>(since_.data()), static_cast<std::streamsize>(since_.size() * sizeof since_[0]));
    file.close();
    fs::rename(fresh, folder, failure);
    return !failure;
  }
  void restore(const fs::path& folder) {
    std::ifstream file(folder / "values", std::ios::binary);
    since_.clear();
    for (std::vector<float>& tensor : values_) {
      file.read(reinterpret_cast<char*>(tensor.data()), static_cast<std::streamsize>(tensor.size() * sizeof(float)));
    }
    const bool whole = static_cast<bool>(file);
    for (std::uint64_t steps = 0; file.read(reinterpret_cast<char*>(&steps), sizeof steps);) {
      since_.push_back(steps);
    }
    if (!whole) {
      std::fprintf(stderr, "%s: cannot be read\n", folder.c_str());
      std::exit(4);
    }
  }
  // Each parameter of a fragment with its place in the arena.
  template <typename Do>
  void each_of(std::uint32_t fragment, Do&& what) {
    const Fragment& range = layout_.fragments.at(fragment);
    for (const Entry& entry : layout_.entries) {
      if (entry.offset >= range.offset && entry.offset < range.offset + range.count) {
        what(values_[entry.parameter], arena_.floats().subspan(entry.offset, values_[entry.parameter].size()));
      }
    }
  }
  void copy_out(std::uint32_t fragment) {
    each_of(fragment,
            [](const std::vector<float>& tensor, std::span<float> place) { std::copy(tensor.begin(), tensor.end(), place.begin()); });
  }
  void copy_in(std::uint32_t fragment, float alpha) {
    each_of(fragment, [alpha](std::vector<float>& tensor, std::span<const float> place) {
      for (std::size_t i = 0; i < tensor.size(); ++i) {
        tensor[i] = alpha == 0 ? place[i] : alpha * tensor[i] + (1 - alpha) * place[i];
      }
    });
  }

  TrainerLink link_;
  Manifest manifest_;
  Configure configure_;
  bool configured_ = false;
  ArenaLayout layout_;
  Arena arena_;
  std::vector<std::vector<float>> values_;
  std::uint64_t step_ = 0;
  std::uint64_t position_ = 0;
  std::vector<std::uint64_t> since_;  // steps since the last publish of each fragment
  std::uint64_t until_ = 0;
  std::optional<Finish> finish_;
  double compute_seconds_ = 0;
  double wait_seconds_ = 0;
  std::optional<std::chrono::steady_clock::time_point> stands_since_;  // it waits for the result of its next merge
  bool stopped_ = false;
  RoundOrders<PublishOrder, MergeOrder> orders_;
  std::optional<MergeOrder> awaited_;                                // waits for its result
  std::map<std::pair<std::uint64_t, std::uint32_t>, bool> results_;  // by round and fragment: whether it was applied
};

}  // namespace

extern "C" const char* atoll_trainer_misfit(const char*) { return nullptr; }

extern "C" int atoll_trainer_main(int, const char* const*) {
  if (!die_with_parent()) {
    return 1;
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds_of("ATOLL_TEST_START_MS", 0)));
  const char* path = ::getenv(kLinkVariable);
  Result<TrainerLink> link = TrainerLink::connect(path != nullptr ? path : "");
  if (!link) {
    std::fprintf(stderr, "%s\n", link.error().why.c_str());
    return 1;
  }
  return ArithmeticTrainer(*std::move(link)).run();
}
