// The files that a trainer, a task or a run's first parameters need: found or downloaded on a thread of their own each, so that the agent's
// thread never waits for a disk or a network.
// Threads: all functions on one. A thread that is still at work when this is destroyed ends unheard.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "agent/core/effect.hpp"
#include "agent/service/data_access.hpp"
#include "agent/service/given_parameters.hpp"
#include "agent/service/value_queue.hpp"
#include "transport/base/disk.hpp"
#include "transport/base/result.hpp"

namespace atl::agent {

// Each with the order that it was prepared for: by then another may have come.
struct PreparedTrainer {
  StartTrainer order;
  Result<std::vector<std::filesystem::path>> files;
};
struct PreparedTask {
  StartTask order;  // its [diffusion].features as a path on this island
  Result<std::vector<std::filesystem::path>> files;
};
struct PreparedParameters {
  FormInitialState order;
  Result<std::variant<std::filesystem::path, Lacking>> file;
};
using Prepared = std::variant<PreparedTrainer, PreparedTask, PreparedParameters>;

// What may be read, and where downloads are kept.
struct FileSources {
  DataPermissions permissions;
  std::filesystem::path cache;
  bool allow_loopback_http = false;
  DiskPath runs;  // STATE/runs, with other runs' checkpoints
};

class Preparation {
 public:
  explicit Preparation(FileSources sources) : sources_(std::move(sources)) {}

  void begin(const StartTrainer& order);
  void begin(const StartTask& order);
  // The parameters that [model].from of the specification names.
  void begin(const FormInitialState& order, const RunSpec& spec);

  [[nodiscard]] std::optional<Prepared> take() { return prepared_->pop(); }
  // Readable while something is prepared and not taken.
  [[nodiscard]] int fd() const { return prepared_->fd(); }

 private:
  [[nodiscard]] Downloader downloader(const RunId& run) const;

  FileSources sources_;
  std::shared_ptr<ValueQueue<Prepared>> prepared_ = std::make_shared<ValueQueue<Prepared>>();
};

}  // namespace atl::agent
