#include "agent/storage/checkpoint.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "strategies/specification/model_kind.hpp"
#include "transport/base/log.hpp"
#include "transport/base/nesting.hpp"
#include "transport/base/planted.hpp"
#include "transport/identity/sha256.hpp"

namespace atl {
namespace fs = std::filesystem;
namespace {

using Json = nlohmann::json;

constexpr int kSchema = 1;
constexpr const char* kMetaFile = "meta.json";
constexpr std::size_t kMaxMetaBytes = 16ULL << 20;
constexpr std::size_t kDeepestMeta = 8;  // the object, files, a file

Json files_json(const std::map<std::string, FileFacts>& files) {
  Json all = Json::object();
  for (const auto& [name, facts] : files) {
    all[name] = {{"bytes", facts.bytes}, {"sha256", to_hex(facts.sha256)}};
  }
  return all;
}

Json pending_json(const std::vector<PendingRound>& pending) {
  Json all = Json::array();
  for (const PendingRound& round : pending) {
    const double loss = round.facts.training_loss;
    all.push_back({{"round", round.round.value},
                   {"fragment", round.facts.fragment},
                   {"norm", round.facts.norm},
                   {"tokens", round.facts.tokens},
                   {"steps", round.facts.steps},
                   {"part", round.facts.data.part},
                   {"from", round.facts.data.from},
                   {"to", round.facts.data.to},
                   {"held_from", round.facts.data.held_from},
                   {"overwritten", round.facts.overwritten},
                   {"base", round.facts.base.value},
                   {"training_loss", std::isfinite(loss) ? Json(loss) : Json()}});
  }
  return all;
}

std::vector<PendingRound> pending_of(const Json& json) {
  std::vector<PendingRound> pending;
  for (const Json& item : json) {
    const Json& loss = item.at("training_loss");
    ContributionFacts facts;
    facts.tokens = item.at("tokens").get<std::uint64_t>();
    facts.steps = item.at("steps").get<std::uint64_t>();
    facts.training_loss = loss.is_null() ? kNotMeasured : loss.get<double>();
    facts.norm = item.at("norm").get<double>();
    facts.fragment = item.at("fragment").get<std::uint32_t>();
    facts.data = DataRange{item.value("part", 0U), item.value("from", std::uint64_t{0}), item.value("to", std::uint64_t{0}),
                           item.value("held_from", std::uint64_t{0})};
    facts.base = Round(item.value("base", std::uint64_t{0}));
    facts.overwritten = item.value("overwritten", std::uint64_t{0});
    pending.push_back({Round(item.at("round").get<std::uint64_t>()), facts});
  }
  return pending;
}

std::string meta_text(const CheckpointMeta& meta) {
  Json json = {{"schema", kSchema},
               {"run", meta.run.text},
               {"round", meta.round.value},
               {"epoch", meta.epoch.value},
               {"generation", {meta.generation.restored, meta.generation.starts, meta.generation.life}},
               {"digest", to_hex(meta.digest)},
               {"step", meta.step.value},
               {"part", meta.part},
               {"position", meta.position},
               {"pending", pending_json(meta.pending)},
               {"files", files_json(meta.files)}};
  json["sha256"] = to_hex(sha256(as_bytes(json.dump())));
  return json.dump(2) + "\n";
}

// A path that stays inside the folder it is relative to.
bool inside(const std::string& name) {
  const fs::path path(name);
  return !name.empty() && path.is_relative() && std::none_of(path.begin(), path.end(), [](const fs::path& part) { return part == ".."; });
}

Result<CheckpointMeta> read_meta(const DiskPath& path) {
  ATOLL_ASSIGN(const Bytes content, read_file(path, kMaxMetaBytes));
  const Error broken{Code::corrupt, path.text() + ": does not verify"};
  if (json_nests_deeper(as_text(content), kDeepestMeta)) {
    return broken;
  }
  try {
    Json json = Json::parse(as_text(content));
    const Result<Digest> said = digest_from_hex(json.at("sha256").get<std::string>());
    json.erase("sha256");
    if (!said || *said != sha256(as_bytes(json.dump())) || json.at("schema").get<int>() != kSchema) {
      return broken;
    }
    CheckpointMeta meta;
    meta.run = RunId(json.at("run").get<std::string>());
    meta.round = Round(json.at("round").get<std::uint64_t>());
    meta.epoch = Epoch(json.at("epoch").get<std::uint64_t>());
    if (const auto by = json.find("generation"); by != json.end()) {
      meta.generation = {by->at(0).get<std::uint64_t>(), by->at(1).get<std::uint64_t>(), by->at(2).get<std::uint64_t>(), {}};
    }
    ATOLL_ASSIGN(meta.digest, digest_from_hex(json.at("digest").get<std::string>()));
    meta.step = Step(json.at("step").get<std::uint64_t>());
    meta.part = json.value("part", 0U);
    meta.position = json.at("position").get<std::uint64_t>();
    meta.pending = pending_of(json.at("pending"));
    for (const auto& [name, facts] : json.at("files").items()) {
      ATOLL_ASSIGN(const Digest sha256, digest_from_hex(facts.at("sha256").get<std::string>()));
      if (!inside(name)) {
        return broken;
      }
      meta.files[name] = {facts.at("bytes").get<std::uint64_t>(), sha256};
    }
    return meta;
  } catch (const Json::exception&) {
    return broken;
  }
}

std::optional<Round> round_of(const std::string& name) {
  std::uint64_t value = 0;
  const auto [end, failure] = std::from_chars(name.data(), name.data() + name.size(), value);
  if (failure != std::errc() || end != name.data() + name.size() || name != std::to_string(value)) {
    return std::nullopt;
  }
  return Round(value);
}

void remove_quietly(const DiskPath& path) {
  if (const Status removed = path.remove(); !removed) {
    log_warning(removed.error().why);
  }
}

// Puts `from` in the place of the folder `to` in one step; what was there ends up at `from`.
Status replace_folder(const DiskPath& from, const DiskPath& to) {
  if (from.exchange_with(to)) {
    return to.folder().sync_folder();
  }
  return rename_durably(from, to);  // nothing was there
}

// The files below a folder by their names in it, each hashed and synced unless `facts` has it already; and the folders, the given one
// first. Errors: invalid_argument for what does not belong there.
Status gather(const DiskPath& at, const std::string& prefix, std::map<std::string, FileFacts>& facts, std::vector<DiskPath>& folders) {
  folders.push_back(at);
  ATOLL_ASSIGN(const std::vector<DiskEntry> entries, at.list());
  for (const DiskEntry& entry : entries) {
    const DiskPath path = at / entry.name;
    const std::string name = prefix + entry.name;
    const auto files = {kOuterFile, kResidualFile, kOwnFile, kTrainerFolder, kRoundsFolder};
    const bool known = !prefix.empty() || std::ranges::any_of(files, [&](const char* file) { return name == file; });
    if (!known) {
      return Error{Code::invalid_argument, path.text() + ": does not belong into a checkpoint"};
    }
    if (entry.kind == EntryKind::folder) {
      ATOLL_TRY(gather(path, name + "/", facts, folders));
    } else if (entry.kind != EntryKind::file) {
      return Error{Code::invalid_argument, path.text() + ": a checkpoint holds only regular files"};
    } else if (!facts.contains(name)) {
      ATOLL_ASSIGN(facts[name], facts_of(path));
      if (!ATOLL_PLANTED(named_unsynced)) {
        ATOLL_TRY(sync_file(path));
      }
    }
  }
  return {};
}

}  // namespace

const FileFacts* CheckpointMeta::outer() const {
  const auto found = files.find(kOuterFile);
  return found == files.end() ? nullptr : &found->second;
}

bool CheckpointMeta::has_trainer_state() const {
  return std::any_of(files.begin(), files.end(),
                     [](const auto& file) { return file.first.starts_with(std::string(kTrainerFolder) + "/"); });
}

std::map<std::string, std::string> outer_metadata(const RunId& run, Round round, const Digest& digest, const RunSpec& spec,
                                                  const std::string& manifest) {
  std::map<std::string, std::string> metadata = {{"atoll.format", "1"},
                                                 {"atoll.run", run.text},
                                                 {"atoll.round", std::to_string(round.value)},
                                                 {"atoll.digest", to_hex(digest)},
                                                 {"atoll.manifest", manifest}};
  const ModelKind kind = model_kind(spec);
  if (kind == ModelKind::own) {
    metadata[kTrainerKey] = spec.trainer.name;  // what the model is, is its affair
    return metadata;
  }
  metadata["atoll.data_format"] = spec.data.format;
  if (kind == ModelKind::diffusion) {
    return metadata;  // the trainer's description says what it is
  }
  const ModelSpec& model = spec.model;
  const Json text = {{"layers", model.layers},         {"width", model.width},
                     {"heads", model.heads},           {"feed_forward", model.feed_forward},
                     {"vocabulary", model.vocabulary}, {"tied_embeddings", model.tied_embeddings}};
  metadata["atoll.model"] = text.dump();
  metadata["atoll.sequence_length"] = std::to_string(spec.training.sequence_length);
  return metadata;
}

Result<CheckpointStore> CheckpointStore::open(DiskPath folder) {
  ATOLL_TRY(make_folders_durably(folder));  // a run's first checkpoint is worth nothing in a folder that a loss of power undoes
  ATOLL_ASSIGN(const std::vector<DiskEntry> entries, folder.list());
  for (const DiskEntry& entry : entries) {
    if (entry.name.starts_with(".")) {
      log_info("removing '" + (folder / entry.name).text() + "', which an interrupted checkpoint left");
      remove_quietly(folder / entry.name);
    }
  }
  return CheckpointStore(std::move(folder));
}

DiskPath CheckpointStore::folder_of(Round round) const { return folder_ / std::to_string(round.value); }
DiskPath CheckpointStore::partial_of(Round round) const { return folder_ / ("." + std::to_string(round.value) + ".partial"); }

Result<DiskPath> CheckpointStore::begin(Round round) {
  abandon(round);
  ATOLL_TRY(partial_of(round).make_folders());
  return partial_of(round);
}

Result<DiskPath> CheckpointStore::resume(Round round) {
  ATOLL_TRY(partial_of(round).make_folders());
  return partial_of(round);
}

void CheckpointStore::drop_trainer_state(Round round) {
  for (const DiskEntry& entry : partial_of(round).list().value_or({})) {
    if (entry.name != kOuterFile && entry.name != kRoundsFolder && entry.name != kResidualFile && entry.name != kOwnFile) {
      remove_quietly(partial_of(round) / entry.name);
    }
  }
}

void CheckpointStore::abandon(Round round) {
  written_.erase(round);
  remove_quietly(partial_of(round));
}

Result<std::shared_ptr<SnapshotFile>> CheckpointStore::begin_outer(Round round, std::vector<TensorView> tensors,
                                                                   const std::map<std::string, std::string>& metadata,
                                                                   std::uint64_t most_kept, std::size_t slice) {
  Bytes head;
  std::vector<ByteView> content;
  ATOLL_TRY(write_safetensors(std::move(tensors), metadata, [&](ByteView bytes) {
    if (head.empty()) {
      head.assign(bytes.begin(), bytes.end());
    } else {
      content.push_back(bytes);
    }
    return Status();
  }));
  ATOLL_ASSIGN(DurableFile file, DurableFile::create(partial_of(round) / kOuterFile));
  return std::make_shared<SnapshotFile>(std::move(file), std::move(head), content, most_kept, slice);
}

Result<FileFacts> CheckpointStore::write_outer(Round round, std::vector<TensorView> tensors,
                                               const std::map<std::string, std::string>& metadata) {
  ATOLL_ASSIGN(const std::shared_ptr<SnapshotFile> outer, begin_outer(round, std::move(tensors), metadata, 0));
  while (outer->write_some()) {
  }
  ATOLL_ASSIGN(written_[round], *outer->outcome());
  return written_[round];
}

Status complete_checkpoint(const DiskPath& partial, CheckpointMeta& meta) {
  std::vector<DiskPath> folders;
  ATOLL_TRY(gather(partial, "", meta.files, folders));
  ATOLL_ASSIGN(DurableFile file, DurableFile::create(partial / kMetaFile));
  ATOLL_TRY(file.write(as_bytes(meta_text(meta))));
  ATOLL_ASSIGN([[maybe_unused]] const FileFacts facts, file.finish());
  for (const DiskPath& folder : folders) {
    ATOLL_TRY(folder.sync_folder());
  }
  return {};
}

Result<CheckpointMeta> CheckpointStore::take(CheckpointMeta meta, Status completed) {
  if (completed) {
    completed = replace_folder(partial_of(meta.round), folder_of(meta.round));
  }
  abandon(meta.round);
  if (!completed) {
    return with_context(completed.error(), "the checkpoint of round " + std::to_string(meta.round.value) + " was not written");
  }
  refused_.erase(meta.round);
  verified_.insert(meta.round);
  read_.insert_or_assign(meta.round, meta);
  return meta;
}

Result<CheckpointMeta> CheckpointStore::finish(CheckpointMeta meta) {
  meta.files.clear();
  if (const auto outer = written_.find(meta.round); outer != written_.end()) {
    meta.files[kOuterFile] = outer->second;
  }
  const Status completed = complete_checkpoint(partial_of(meta.round), meta);
  return take(std::move(meta), completed);
}

const CheckpointMeta* CheckpointStore::known_meta(Round round) const {
  const auto known = read_.find(round);
  if (known != read_.end()) {
    return &known->second;
  }
  Result<CheckpointMeta> meta = read_meta(folder_of(round) / kMetaFile);
  return meta ? &read_.emplace(round, *std::move(meta)).first->second : nullptr;
}

std::vector<Round> CheckpointStore::rounds() const {
  std::vector<std::pair<Epoch, Round>> found;
  for (const DiskEntry& entry : folder_.list().value_or({})) {
    if (const std::optional<Round> round = round_of(entry.name)) {
      const CheckpointMeta* meta = known_meta(*round);
      found.emplace_back(meta != nullptr ? meta->epoch : Epoch(~0ULL), *round);
    }
  }
  std::sort(found.rbegin(), found.rend());
  std::vector<Round> rounds;
  rounds.reserve(found.size());
  for (const auto& [epoch, round] : found) {
    rounds.push_back(round);
  }
  return rounds;
}

std::vector<CheckpointMeta> CheckpointStore::list() const {
  std::vector<CheckpointMeta> all;
  for (const Round round : rounds()) {
    const CheckpointMeta* meta = known_meta(round);
    if (meta != nullptr && meta->round == round && !refused_.contains(round)) {
      all.push_back(*meta);
    }
  }
  return all;
}

Result<CheckpointMeta> CheckpointStore::meta_of(Round round) const {
  ATOLL_ASSIGN(CheckpointMeta meta, read_meta(folder_of(round) / kMetaFile));
  if (meta.round != round || meta.outer() == nullptr) {
    return Error{Code::corrupt, folder_of(round).text() + ": is not the checkpoint its name says"};
  }
  return meta;
}

Status CheckpointStore::verify_file(Round round, const std::string& name, const FileFacts& expected) const {
  ATOLL_ASSIGN(const FileFacts found, facts_of(folder_of(round) / name));
  return found == expected ? Status()
                           : Error{Code::corrupt, (folder_of(round) / name).text() + ": its SHA-256 is not the one it was written with"};
}

Result<CheckpointMeta> CheckpointStore::verify(Round round) const {
  ATOLL_ASSIGN(CheckpointMeta meta, meta_of(round));
  for (const auto& [name, expected] : meta.files) {
    ATOLL_TRY(verify_file(round, name, expected));
  }
  return meta;
}

CheckpointStore::Faults CheckpointStore::faults() const {
  Faults faults;
  for (const Round round : rounds()) {
    ++faults.checkpoints;
    const Result<CheckpointMeta> meta = meta_of(round);
    if (!meta) {
      faults.found.push_back(meta.error());
      continue;
    }
    for (const auto& [name, expected] : meta->files) {
      faults.bytes += expected.bytes;
      if (const Status sound = verify_file(round, name, expected); !sound) {
        faults.found.push_back(sound.error());
      }
    }
  }
  return faults;
}

std::optional<CheckpointMeta> CheckpointStore::newest_good() {
  for (const Round round : rounds()) {
    if (refused_.contains(round)) {
      continue;
    }
    Result<CheckpointMeta> meta = verify(round);
    if (meta) {
      verified_.insert(round);
      return *std::move(meta);
    }
    refused_.insert(round);
    read_.erase(round);
    log_warning("the checkpoint of round " + std::to_string(round.value) + " is refused, the next older one is tried: " + meta.error().why);
  }
  return std::nullopt;
}

void CheckpointStore::prune(std::size_t keep, const std::set<Round>& needed) {
  const std::vector<Round> all = rounds();
  const auto good =
      std::find_if(all.begin(), all.end(), [&](Round round) { return verified_.contains(round) && !refused_.contains(round); });
  if (good == all.end()) {
    return;  // nothing here is known to be good: nothing is removed
  }
  std::set<Round> readable;
  for (const CheckpointMeta& meta : list()) {
    readable.insert(meta.round);
  }
  std::size_t kept = 0;
  for (const Round round : all) {
    const bool usable = readable.contains(round);
    if (round == *good || (usable && (kept < keep || needed.contains(round)))) {
      ++kept;
      continue;
    }
    verified_.erase(round);
    read_.erase(round);
    // Out of sight in one step, so that a crash while removing leaves no half checkpoint under a round's name; durably, so that a loss of
    // power does not bring the name back without what was removed below it.
    const DiskPath hidden = folder_ / ("." + std::to_string(round.value) + ".removed");
    if (const Status gone = rename_durably(folder_of(round), hidden); !gone) {
      log_warning(gone.error().why);  // it goes with a later checkpoint, or when the folder is opened the next time
      continue;
    }
    remove_quietly(hidden);
  }
}

}  // namespace atl
