#include "cli/models/export_model.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <system_error>
#include <thread>

#include "agent/engine/parameter_layout.hpp"
#include "agent/storage/checkpoint.hpp"
#include "agent/storage/durable_file.hpp"
#include "agent/storage/safetensors.hpp"
#include "cli/line/scratch_folder.hpp"
#include "cli/models/ensemble_folder.hpp"
#include "cli/views/parts/document.hpp"
#include "cli/views/parts/printable.hpp"
#include "transport/base/address.hpp"
#include "transport/base/bytes.hpp"
#include "transport/base/descriptor_limit.hpp"
#include "transport/base/output_file.hpp"
#include "transport/base/own_disk.hpp"
#include "transport/base/plain_text.hpp"
#include "transport/bulk/blob_fetch.hpp"
#include "transport/identity/identity.hpp"
#include "transport/zmq/zmq_bulk_link.hpp"

namespace atl {
namespace {

namespace fs = std::filesystem;

// A checkpoint that the coordinator named, with the islands that have it.
struct OfferedCheckpoint {
  BlobFetchPlan fetch;
  std::vector<Member> islands;
};

Result<OfferedCheckpoint> checkpoint_from(const nlohmann::json& entry, const RunId& run, const std::string& path) {
  OfferedCheckpoint offered;
  offered.fetch.blob.run = run;
  offered.fetch.blob.round = Round(static_cast<std::uint64_t>(number_at(entry, "round").value_or(0)));
  offered.fetch.blob.kind = BlobKind::checkpoint_file;
  offered.fetch.size = static_cast<std::uint64_t>(std::clamp(number_at(entry, "file_bytes").value_or(0), 0.0, 1e15));
  ATOLL_ASSIGN(offered.fetch.digest, digest_from_hex(text_at(entry, "file_sha256")));
  offered.fetch.path = on_this_machine(path);
  offered.islands = members_at(entry, "sources");
  return offered;
}

// The newest first.
Result<std::vector<OfferedCheckpoint>> checkpoints_from(const nlohmann::json& document, const std::string& path) {
  const RunId run(text_at(document, "run"));
  std::vector<OfferedCheckpoint> offered;
  ATOLL_ASSIGN(OfferedCheckpoint newest, checkpoint_from(document, run, path));
  offered.push_back(std::move(newest));
  for (const nlohmann::json& entry : list_at(document, "alternatives")) {
    ATOLL_ASSIGN(OfferedCheckpoint other, checkpoint_from(entry, run, path));
    offered.push_back(std::move(other));
  }
  return offered;
}

Status unless_interrupted(const Interrupt& interrupt) {
  return interrupt.came() ? Status(Error{Code::cancelled, "interrupted; no file was written"}) : Status();
}

}  // namespace

Status fetch_blob(BulkLink& link, BlobFetch& blob, const Interrupt& interrupt, const ExportProgress& progress) {
  while (!blob.done() && !blob.failure()) {
    ATOLL_TRY(unless_interrupted(interrupt));
    for (const OutgoingWant& want : blob.take_wants(now())) {
      if (const Status sent = link.want(want); !sent) {
        blob.not_sent(now(), want);
      }
    }
    link.wait(std::chrono::milliseconds(50));
    while (link.receive(now(), blob)) {
    }
    if (progress.bytes) {
      const BlobFetchProgress here = blob.progress(now());
      progress.bytes(here.bytes_done, here.bytes_total);
    }
  }
  return blob.done() ? Status() : Status(*blob.failure());
}

std::vector<Member> members_at(const nlohmann::json& document, const std::string& key) {
  std::vector<Member> members;
  for (const nlohmann::json& member : list_at(document, key.c_str())) {
    std::vector<std::string> addresses = {text_at(member, "bulk_address")};
    for (const nlohmann::json& address : list_at(member, "addresses")) {
      addresses.push_back(address.is_string() ? address.get<std::string>() : "");
    }
    members.push_back({IslandId(text_at(member, "id")), text_at(member, "name"), text_at(member, "public_key"), address_text(addresses)});
  }
  return members;
}

Status fetch_from(const CoordinatorAccess& access, Holders& holders, const std::vector<Member>& islands, BlobFetchPlan plan,
                  const Interrupt& interrupt, const ExportProgress& progress) {
  const std::vector<Member> reached = holders.reached(islands);
  if (reached.empty()) {
    return Error{Code::unavailable, "no island that has it can be reached from here: " + holders.failures(islands)};
  }
  plan.sources.clear();
  for (const Member& island : reached) {
    plan.sources.push_back(island.island);
  }
  ATOLL_ASSIGN(const std::unique_ptr<BulkLink> link, open_reader_link(access, reached));
  ATOLL_ASSIGN(const std::unique_ptr<BlobFetch> blob, BlobFetch::begin(std::move(plan), now()));
  const Status done = fetch_blob(*link, *blob, interrupt, progress);
  if (done || blob->dropped().size() < reached.size()) {
    return done;
  }
  holders.failed(blob->dropped());
  return Error{done.error().code, "no island that has it delivers it: " + holders.failures(islands)};
}

Result<std::unique_ptr<BulkLink>> open_reader_link(const CoordinatorAccess& access, const std::vector<Member>& sources) {
  ATOLL_TRY(raise_descriptor_limit_to_serve());
  ZmqBulkSettings settings;
  settings.island = island_of(access.keys.public_key);
  settings.public_key = access.keys.public_key;
  settings.secret_key = access.keys.secret_key;
  settings.bind = "";
  settings.insecure = access.insecure;
  ATOLL_ASSIGN(std::unique_ptr<ZmqBulkLink> link, ZmqBulkLink::open(settings, std::make_shared<BlobStore>()));
  ATOLL_TRY(link->set_peers(sources));
  return std::unique_ptr<BulkLink>(std::move(link));
}

namespace {

std::string round_of(const OfferedCheckpoint& offered) { return "round " + std::to_string(offered.fetch.blob.round.value); }

// Of the newest checkpoint, or where no island that has it can be reached of another one; that is told.
Status fetch_offered(const CoordinatorAccess& access, const std::vector<OfferedCheckpoint>& offered, const Interrupt& interrupt,
                     const ExportProgress& progress) {
  std::vector<Member> everybody;
  for (const OfferedCheckpoint& one : offered) {
    add_islands(everybody, one.islands);
  }
  Holders holders = Holders::dial(everybody, kDialPatience);
  Status last = Error{Code::unavailable, "no island that has its model is known"};
  for (const OfferedCheckpoint& one : offered) {
    last = fetch_from(access, holders, one.islands, one.fetch, interrupt, progress);
    const bool elsewhere = !last && last.error().code != Code::cancelled && last.error().code != Code::io;
    if (last && &one != &offered.front() && progress.note) {
      progress.note("this is the model of " + round_of(one) + " and not of " + round_of(offered.front()) +
                    ", for no island that has that can be reached: " + holders.failures(offered.front().islands));
    }
    if (!elsewhere || last.error().code == Code::not_found) {
      return last;
    }
  }
  return Error{last.error().code, "no island that has its model can be reached from here: " + holders.failures() +
                                      ". Open one of these addresses for this machine, or run this command where one can be reached"};
}

// A newer checkpoint may take the place of the one that the coordinator named, before its island has heard who reads it: then the
// coordinator is asked again, and names the newer one.
Status fetch_checkpoint(CoordinatorClient& client, const std::string& run, const std::string& island, const fs::path& path,
                        const Interrupt& interrupt, const ExportProgress& progress) {
  constexpr int kTries = 20;
  constexpr auto kPause = std::chrono::milliseconds(250);
  const CoordinatorAccess& access = client.access();
  nlohmann::json question = {{"run", run}, {"reader_key", access.keys.public_key}};
  if (!island.empty()) {
    question["island"] = island;
  }
  for (int tries = 1;; ++tries) {
    ATOLL_ASSIGN(const nlohmann::json document, client.ask("export", question));
    ATOLL_ASSIGN(const std::vector<OfferedCheckpoint> offered, checkpoints_from(document, path.string()));
    const Status done = fetch_offered(access, offered, interrupt, progress);
    if (done || done.error().code != Code::not_found || tries == kTries) {
      return done;
    }
    std::this_thread::sleep_for(kPause);
  }
}

ExportProgress progress_on(const Streams& streams) {
  const bool terminal = streams.err_is_terminal;
  ExportProgress progress;
  progress.note = [&err = streams.err, terminal](const std::string& text) {
    err << (terminal ? "\r\x1b[K" : "") << printable(text, 4000) << "\n";
  };
  if (terminal) {
    progress.bytes = [&err = streams.err](std::uint64_t done, std::uint64_t total) {
      err << "\r\x1b[K" << human_bytes(done) << " of " << human_bytes(total) << std::flush;
    };
  }
  return progress;
}

// What the exported file says of itself, from what the checkpoint says.
std::map<std::string, std::string> model_metadata(const std::map<std::string, std::string>& checkpoint) {
  static constexpr std::array<std::array<const char*, 2>, 7> kKept = {{{"atoll.model", "atoll.model"},
                                                                       {kDescriptionKey, kDescriptionKey},
                                                                       {kTrainerKey, kTrainerKey},
                                                                       {"atoll.data_format", "atoll.format"},
                                                                       {"atoll.sequence_length", "atoll.sequence_length"},
                                                                       {"atoll.run", "atoll.run"},
                                                                       {"atoll.round", "atoll.round"}}};
  std::map<std::string, std::string> metadata = {{"format", "pt"}};  // what readers in Python expect
  for (const auto& [from, to] : kKept) {
    if (const auto found = checkpoint.find(from); found != checkpoint.end()) {
      metadata[to] = found->second;
    }
  }
  return metadata;
}

}  // namespace

Status write_model(const fs::path& checkpoint, const fs::path& path, const Interrupt* interrupt) {
  ATOLL_ASSIGN(const SafetensorsFile file, SafetensorsFile::open(checkpoint));
  std::vector<TensorView> tensors;
  for (const TensorEntry& entry : file.header().tensors) {
    if (std::ranges::none_of(kMoments, [&](std::string_view prefix) { return entry.name.starts_with(prefix); })) {
      ATOLL_ASSIGN(const std::span<const float> values, file.floats(entry.name));
      tensors.push_back({entry.name, entry.shape, values});
    }
  }
  ATOLL_ASSIGN(OutputFile out, OutputFile::create(path, [interrupt] { return interrupt != nullptr && interrupt->came(); }));
  ATOLL_TRY(
      write_safetensors(std::move(tensors), model_metadata(file.header().metadata), [&](ByteView bytes) { return out.write(bytes); }));
  return out.finish();
}

Result<Exported> export_model(CoordinatorClient& client, const std::string& run, const fs::path& path, const Interrupt& interrupt,
                              const ExportProgress& progress, const std::string& island) {
  ATOLL_ASSIGN(const std::optional<fs::path> folder, OutputFile::folder_for(path));
  ATOLL_ASSIGN(const ScratchFolder scratch, folder ? ScratchFolder::make_in(*folder) : ScratchFolder::make());
  const fs::path fetched = scratch.path() / "outer.safetensors";
  Status done = fetch_checkpoint(client, run, island, fetched, interrupt, progress);
  if (done) {
    done = write_model(fetched, path, &interrupt);
  }
  if (!done) {
    return with_context(done.error(), "export of run " + run);
  }
  if (!own_trainer_of(fetched).empty()) {
    return Exported::own_model;
  }
  return is_model_of_images(fetched) ? Exported::image_model : Exported::text_model;
}

namespace {

Result<bool> has_ensemble(CoordinatorClient& client, const std::string& run) {
  ATOLL_ASSIGN(const nlohmann::json document, client.ask("status", {{"run", run}}));
  const nlohmann::json& phases = list_at(document, "phases");
  return std::any_of(phases.begin(), phases.end(), [](const nlohmann::json& phase) { return !list_at(phase, "tasks").empty(); });
}

// Runs `work(client, interrupt, progress)` for a command.
template <typename Work>
Result<Exported> for_command(const Invocation& invocation, const Work& work) {
  ATOLL_ASSIGN(CoordinatorClient client, CoordinatorClient::open(invocation));
  ATOLL_ASSIGN(const Interrupt interrupt, Interrupt::open());
  Result<Exported> exported = work(client, interrupt, progress_on(invocation.streams));
  if (invocation.streams.err_is_terminal) {
    invocation.streams.err << "\r\x1b[K" << std::flush;
  }
  return exported;
}

}  // namespace

Result<Exported> export_model(const Invocation& invocation, const std::string& run, const fs::path& path, const std::string& island) {
  return for_command(invocation, [&](CoordinatorClient& client, const Interrupt& interrupt, const ExportProgress& progress) {
    return export_model(client, run, path, interrupt, progress, island);
  });
}

std::string own_trainer_of(const fs::path& path) {
  const Result<SafetensorsFile> file = SafetensorsFile::open(path);
  if (!file) {
    return "";
  }
  const auto found = file->header().metadata.find(kTrainerKey);
  return found == file->header().metadata.end() ? "" : make_plain(found->second, TextRule::name, 64);
}

bool is_model_of_images(const fs::path& path) {
  const Result<SafetensorsFile> file = SafetensorsFile::open(path);
  return file && file->header().metadata.contains(kDescriptionKey) && !file->header().metadata.contains("atoll.model");
}

Result<Exported> export_run(CoordinatorClient& client, const std::string& run, const fs::path& path, const Interrupt& interrupt,
                            const ExportProgress& progress, const std::string& island) {
  const Result<bool> ensemble = has_ensemble(client, run);
  if (!ensemble) {
    return with_context(ensemble.error(), "export of run " + run);
  }
  if (!*ensemble) {
    return export_model(client, run, path, interrupt, progress, island);
  }
  if (!island.empty()) {
    return Error{Code::invalid_argument, "--island has no effect on run " + run + ": its ensemble is one"};
  }
  ATOLL_TRY(fetch_ensemble(client, run, path, interrupt, progress));
  return Exported::ensemble;
}

Result<Exported> export_run(const Invocation& invocation, const std::string& run, const fs::path& path, const std::string& island) {
  return for_command(invocation, [&](CoordinatorClient& client, const Interrupt& interrupt, const ExportProgress& progress) {
    return export_run(client, run, path, interrupt, progress, island);
  });
}

Exit report_no_model(const Invocation& invocation, const Error& error) {
  const Exit exit = report(invocation, error);
  return error.code == Code::cancelled ? Exit::interrupted : exit;
}

}  // namespace atl
