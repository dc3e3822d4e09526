#include "agent/service/preparation.hpp"

#include <string>
#include <thread>
#include <utility>

#include "agent/service/fetch_data.hpp"
#include "strategies/specification/model_kind.hpp"
#include "transport/base/log.hpp"

namespace atl::agent {
namespace fs = std::filesystem;
namespace {

using Files = Result<std::vector<fs::path>>;

Files no_files() { return std::vector<fs::path>(); }

// The files of a run, if it names any: a trainer of one's own may have data of its own.
Files files_of(const RunSpec& spec, const DataPermissions& permissions, const Downloader& download) {
  const bool own = spec.data.set.empty() && spec.data.files.empty() && spec.data.url.empty() && has_own_trainer(spec);
  const bool reads = spec.work.images.empty();  // else a group's islands have the images as results of its run
  const DataReader reader = has_own_trainer(spec) ? DataReader::own : DataReader::built_in;
  return reads && !own ? resolve_data(spec.data, permissions, download, reader) : no_files();
}

PreparedTask prepare_task(StartTask order, const DataPermissions& permissions, const Downloader& download) {
  // Where the data set is spread only its packing reads files of the owner's.
  const bool spread = order.spec.data.spread > 0;
  const bool packs = order.task.starts_with("images/");
  const bool of_owner = order.spec.diffusion.features.starts_with("npy:") && spread ? packs : order.task.starts_with("features");
  Files files = packs || !spread ? resolve_data(order.spec.data, permissions, download, DataReader::built_in) : no_files();
  if (of_owner && files) {
    if (Result<std::string> features = resolve_features(order.spec.diffusion.features, permissions)) {
      order.spec.diffusion.features = *std::move(features);
    } else {
      files = features.error();
    }
  }
  return {std::move(order), std::move(files)};
}

}  // namespace

Downloader Preparation::downloader(const RunId& run) const {
  return [run, cache = sources_.cache, http = sources_.allow_loopback_http](const std::string& url, const std::string& sha256) {
    return fetch_data(url, sha256, cache, http, run);
  };
}

void Preparation::begin(const StartTrainer& order) {
  std::thread([order, permissions = sources_.permissions, download = downloader(order.run), queue = prepared_] {
    Files files = files_of(order.spec, permissions, download);
    if (files && !files->empty()) {
      log_info("run " + order.run.text + ": the data are " + listing_of(*files));
    }
    queue->push(PreparedTrainer{order, std::move(files)});
  }).detach();
}

void Preparation::begin(const StartTask& order) {
  std::thread([order, permissions = sources_.permissions, download = downloader(order.run), queue = prepared_] {
    queue->push(prepare_task(order, permissions, download));
  }).detach();
}

void Preparation::begin(const FormInitialState& order, const RunSpec& spec) {
  std::thread([order, spec, permissions = sources_.permissions, runs = sources_.runs, download = downloader(order.run), queue = prepared_] {
    queue->push(PreparedParameters{order, resolve_parameters(spec, permissions, download, runs)});
  }).detach();
}

}  // namespace atl::agent
