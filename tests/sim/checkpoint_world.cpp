#include "tests/sim/checkpoint_world.hpp"

#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "agent/storage/checkpoint.hpp"
#include "transport/base/rng.hpp"
#include "transport/identity/sha256.hpp"
#include "transport/simulated/simulated_disk.hpp"

namespace atl::sim {
namespace {

const RunId kRun("r-1");
constexpr const char* kSavedFile = "optimizer.bin";

// What one try to write a checkpoint put into it.
struct Written {
  Epoch epoch;
  Round round;
  std::uint64_t number = 0;  // of the try
  [[nodiscard]] Digest digest() const { return sha256(as_bytes("checkpoint " + std::to_string(number))); }
  [[nodiscard]] std::string saved() const { return "trainer of checkpoint " + std::to_string(number); }
};

class CheckpointWorld {
 public:
  CheckpointWorld(std::uint64_t seed, CheckpointWorldCounts& counts)
      : rng_(seed, stream_of("checkpoint world")),
        counts_(counts),
        disk_(std::make_shared<SimulatedDisk>()),
        folder_(DiskPath(disk_) / kRun.text / "checkpoints") {}

  std::string run() {
    const std::uint64_t lives = 2 + rng_.below(5);
    for (std::uint64_t life = 0; life < lives && failure_.empty(); ++life) {
      if (rng_.chance(0.8)) {
        disk_->set_power_until(rng_.below(120));
      }
      live();
      if (rng_.chance(0.75)) {
        disk_->lose_power(rng_);
        ++counts_.crashes;
      } else {
        disk_->set_power_until(UINT64_MAX);  // only the process died
      }
      disk_->set_full(false);
      look();
    }
    return failure_;
  }

 private:
  void live() {
    Result<CheckpointStore> store = CheckpointStore::open(folder_);
    for (std::uint64_t i = rng_.below(6); store && i > 0; --i) {
      disk_->set_full(rng_.chance(0.1));
      if (rng_.chance(0.1) && round_ > Round(2)) {
        epoch_ = epoch_.next();  // the run went back
        round_ = Round(round_.value - 2);
      }
      round_ = rng_.chance(0.15) ? round_ : round_.next();  // or the same once more
      if (const std::optional<Written> written = write(*store)) {
        promised_ = written;
        ++counts_.written;
        store->prune(1 + rng_.below(3), rng_.chance(0.2) ? std::set<Round>{Round(1)} : std::set<Round>{});
      } else {
        ++counts_.refused;
      }
    }
  }

  std::optional<Written> write(CheckpointStore& store) {
    const Written written{epoch_, round_, ++tries_};
    attempts_.emplace(written.digest(), written);
    const Result<DiskPath> partial = store.begin(written.round);
    if (!partial) {
      return std::nullopt;
    }
    const std::vector<float> values(1 + rng_.below(40), static_cast<float>(written.number));
    const Result<FileFacts> outer = store.write_outer(written.round, std::vector<TensorView>{TensorView{"w", {values.size()}, values}},
                                                      outer_metadata(kRun, written.round, written.digest(), {}, "[]"));
    if (!outer || !save(*partial / kTrainerFolder, written)) {
      return std::nullopt;
    }
    CheckpointMeta meta;
    meta.run = kRun;
    meta.round = written.round;
    meta.epoch = written.epoch;
    meta.digest = written.digest();
    return store.finish(std::move(meta)) ? std::optional(written) : std::nullopt;
  }

  // As a trainer does, which syncs nothing.
  static bool save(const DiskPath& folder, const Written& written) {
    if (!folder.make_folders()) {
      return false;
    }
    const Result<std::unique_ptr<DiskFile>> file = (folder / kSavedFile).open(OpenFor::creating);
    return file && (*file)->write(0, as_bytes(written.saved()));
  }

  void fail(const std::string& what) {
    if (failure_.empty()) {
      failure_ = what;
    }
  }

  // After the crash.
  void look() {
    Result<CheckpointStore> store = CheckpointStore::open(folder_);
    if (!store) {
      fail("the checkpoints cannot be read after a crash: " + store.error().why);
      return;
    }
    for (const DiskEntry& entry : folder_.list().value_or({})) {
      if (entry.name.starts_with(".")) {
        fail("'" + entry.name + "' is left over");
      }
    }
    const std::optional<CheckpointMeta> newest = store->newest_good();
    if (promised_ && (!newest || std::pair(newest->epoch, newest->round) < std::pair(promised_->epoch, promised_->round))) {
      fail("the checkpoint of round " + std::to_string(promised_->round.value) + " was written and is lost");
    }
    if (!newest) {
      return;
    }
    const auto attempt = attempts_.find(newest->digest);
    if (attempt == attempts_.end() || attempt->second.round != newest->round || attempt->second.epoch != newest->epoch) {
      fail("a checkpoint verifies that nobody wrote");
      return;
    }
    const Written& written = attempt->second;
    if (promised_ && written.round == promised_->round && written.epoch == promised_->epoch && written.number < promised_->number) {
      fail("the checkpoint of round " + std::to_string(promised_->round.value) + " is an older one again");
    }
    const DiskPath place = store->folder_of(newest->round);
    const Result<SafetensorsFile> file = SafetensorsFile::open(place / kOuterFile);
    const Result<Bytes> saved = read_file(place / kTrainerFolder / kSavedFile, 1000);
    if (!file || file->floats("w")->front() != static_cast<float>(written.number) || !saved || as_text(*saved) != written.saved()) {
      fail("a checkpoint verifies, and holds something else than was written");
    }
  }

  Rng rng_;
  CheckpointWorldCounts& counts_;
  std::shared_ptr<SimulatedDisk> disk_;
  DiskPath folder_;
  Epoch epoch_{1};
  Round round_{0};
  std::uint64_t tries_ = 0;
  std::map<Digest, Written> attempts_;
  std::optional<Written> promised_;
  std::string failure_;
};

}  // namespace

std::string run_checkpoint_world(std::uint64_t seed, CheckpointWorldCounts& counts) { return CheckpointWorld(seed, counts).run(); }

}  // namespace atl::sim
