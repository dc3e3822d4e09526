#include "coordinator/api/requests.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "coordinator/api/run_facts.hpp"
#include "strategies/specification/run_rules.hpp"
#include "strategies/specification/run_spec.hpp"
#include "transport/base/address.hpp"
#include "transport/base/bytes.hpp"
#include "transport/base/name.hpp"
#include "transport/base/random_number.hpp"
#include "transport/base/spelling.hpp"
#include "transport/identity/identity.hpp"
#include "transport/identity/join_token.hpp"

namespace atl::coordinator {
namespace {

using nlohmann::json;

constexpr std::int64_t kLongestToken = std::int64_t{366} * 24 * 3600 * 1000;

std::string random_hex(std::size_t digits) {
  std::string text;
  while (text.size() < digits) {
    const std::uint64_t word = random_number();
    text += to_hex(std::as_bytes(std::span(&word, 1)));
  }
  text.resize(digits);
  return text;
}

// What a person typed, short enough for a message.
std::string in_quotes(std::string_view text) { return "'" + std::string(text.substr(0, 64)) + "'"; }

// Where a reader finds an island.
json address_of(const Member& island) {
  return {{"id", island.island.text},
          {"name", island.name},
          {"public_key", island.public_key},
          {"bulk_address", first_address(island.bulk_address)},
          {"addresses", addresses_in(island.bulk_address)}};
}

// The one thing that `which` fits: its id, its name, or a prefix of its id. `things` yields (id, name).
struct Named {
  std::string id;
  std::string name;
};
Result<std::size_t> find_named(const std::vector<Named>& things, std::string_view which, std::string_view kind,
                               std::string_view list_command) {
  std::vector<std::size_t> fits;
  for (std::size_t i = 0; i < things.size(); ++i) {
    if (things[i].id == which) {
      return i;
    }
  }
  for (std::size_t i = things.size(); i > 0; --i) {
    if (things[i - 1].name == which) {
      return i - 1;  // the newest of that name
    }
  }
  for (std::size_t i = 0; i < things.size(); ++i) {
    const std::string_view id = things[i].id;
    if (!which.empty() && (id.starts_with(which) || id.substr(std::min<std::size_t>(2, id.size())).starts_with(which))) {
      fits.push_back(i);
    }
  }
  if (fits.size() == 1) {
    return fits.front();
  }
  const std::string a = kind == "island" ? "an " : "a ";
  if (fits.empty()) {
    std::vector<std::string_view> known;
    for (const Named& thing : things) {
      known.insert(known.end(), {thing.id, thing.name});
    }
    const std::string_view near = nearest(which, known);
    return Error{Code::not_found, "there is no " + std::string(kind) + " " + in_quotes(which) +
                                      (near.empty() ? "" : "; did you mean " + std::string(near) + "?") + " (`" +
                                      std::string(list_command) + "` shows them)"};
  }
  std::string ids;
  for (std::size_t i = 0; i < std::min<std::size_t>(fits.size(), 5); ++i) {
    ids += (i == 0 ? "" : ", ") + things[fits[i]].id;
  }
  return Error{Code::conflict, in_quotes(which) + " fits more than one " + std::string(kind) + ": " + ids + (fits.size() > 5 ? ", …" : "") +
                                   "; give more of the id"};
}

}  // namespace

Requests::Requests(Place place, Core& core, Ledger& ledger, Admission& admission)
    : place_(std::move(place)), core_(core), ledger_(ledger), admission_(admission) {}
Requests::~Requests() = default;

bool Requests::changes(std::string_view verb) {
  return verb == "submit" || verb == "cancel" || verb == "resume" || verb == "pause" || verb == "remove" || verb == "drain" ||
         verb == "export" || verb == "results" || verb == "token_create" || verb == "token_revoke";
}

Result<std::string> Requests::answer(TimePoint now, const Request& request) {
  if (request.protocol != kProtocolVersion) {
    return protocol_mismatch(request.protocol, kProtocolVersion);
  }
  if (ledger_failure_ && changes(request.verb)) {
    return with_context(*ledger_failure_, "the coordinator cannot write its ledger, so it decides nothing at the moment");
  }
  ATOLL_ASSIGN(json document, dispatch(now, request));
  document["schema"] = 1;
  document["now_unix_ms"] = unix_ms(now);
  return document.dump(-1, ' ', false, json::error_handler_t::replace);
}

Result<json> Requests::dispatch(TimePoint now, const Request& request) {
  struct Verb {
    std::string_view name;
    std::vector<std::string_view> keys;
    Result<json> (Requests::*take)(TimePoint, const Arguments&) = nullptr;
    Result<json> (Requests::*plain)(TimePoint) = nullptr;
  };
  static const std::vector<Verb> kVerbs = {
      {"submit", {"spec", "once", "dry_run", "copy"}, &Requests::submit, nullptr},
      {"runs", {}, nullptr, &Requests::runs},
      {"status", {"run"}, &Requests::status, nullptr},
      {"islands", {}, nullptr, &Requests::islands},
      {"events", {"run", "after", "limit", "island", "since_unix_ms", "level"}, &Requests::events, nullptr},
      {"spans", {"run", "after", "limit"}, &Requests::spans, nullptr},
      {"metrics", {"run", "island", "after", "limit"}, &Requests::metrics, nullptr},
      {"data", {"run"}, &Requests::data, nullptr},
      {"images", {"run", "task"}, &Requests::images, nullptr},
      {"tokens", {}, nullptr, &Requests::tokens},
      {"viewers", {}, nullptr, &Requests::viewers},
      {"token_create", {"role", "expires_ms", "name"}, &Requests::token_create, nullptr},
      {"token_revoke", {"id", "kind"}, &Requests::token_revoke, nullptr},
      {"cancel", {"run"}, &Requests::cancel, nullptr},
      {"resume", {"run"}, &Requests::resume, nullptr},
      {"pause", {"run"}, &Requests::pause, nullptr},
      {"remove", {"run", "dry_run"}, &Requests::remove, nullptr},
      {"drain", {"island"}, &Requests::drain, nullptr},
      {"measure_paths", {"each_ms"}, &Requests::measure_paths, nullptr},
      {"export", {"run", "reader_key", "island"}, &Requests::serve, nullptr},
      {"results", {"run", "reader_key"}, &Requests::results, nullptr},
      {"ping", {}, nullptr, nullptr},
  };
  for (const Verb& verb : kVerbs) {
    if (verb.name != request.verb) {
      continue;
    }
    ATOLL_ASSIGN(const Arguments arguments, Arguments::parse(verb.name, request.arguments, verb.keys));
    if (verb.take != nullptr) {
      return (this->*verb.take)(now, arguments);
    }
    if (verb.plain != nullptr) {
      return (this->*verb.plain)(now);
    }
    return json{{"version", place_.version}, {"protocol", kProtocolVersion}};
  }
  return Error{Code::invalid_argument,
               "the coordinator (atoll " + place_.version + ") does not know the request " + in_quotes(request.verb)};
}

// --------------------------------------------------------------------------------------------------------- finding things

void Requests::note_ledger(std::optional<Error> failure) {
  if (failure && (!ledger_failure_ || !durable_)) {
    const Result<Recovered> ledger = ledger_.recover();
    durable_ = ledger ? Result<DurableRuns>(DurableRuns(*ledger)) : with_context(ledger.error(), "the coordinator cannot read its ledger");
  }
  ledger_failure_ = std::move(failure);
}

Result<std::vector<RunView>> Requests::shown_runs(TimePoint now) const {
  std::vector<RunView> runs = core_.runs(now);
  if (!ledger_failure_) {
    return runs;
  }
  if (!durable_) {
    return durable_.error();
  }
  std::vector<RunView> shown;
  for (RunView& run : runs) {
    if (std::optional<RunView> durable = durable_->corrected(std::move(run))) {
      shown.push_back(*std::move(durable));
    }
  }
  return shown;
}

Result<std::optional<RunView>> Requests::shown_run(TimePoint now, const RunId& id) const {
  std::optional<RunView> run = core_.run(now, id);
  if (!run || !ledger_failure_) {
    return run;
  }
  if (!durable_) {
    return durable_.error();
  }
  return durable_->corrected(*std::move(run));
}

Result<RunView> Requests::find_run(TimePoint now, std::string_view which, bool or_newest) const {
  ATOLL_ASSIGN(std::vector<RunView> runs, shown_runs(now));
  if (which.empty() && or_newest) {
    if (runs.empty()) {
      return Error{Code::not_found, "there are no runs yet; submit one with `atoll submit run.toml`"};
    }
    std::erase_if(runs, [](const RunView& run) { return !run.part_of.empty(); });  // the run that it is part of tells of it
    for (std::size_t i = runs.size(); i > 0; --i) {
      if (!has_ended(runs[i - 1].state)) {
        return std::move(runs[i - 1]);
      }
    }
    return std::move(runs.back());
  }
  std::vector<Named> things;
  things.reserve(runs.size());
  for (const RunView& run : runs) {
    things.push_back({run.id.text, run.name});
  }
  ATOLL_ASSIGN(const std::size_t at, find_named(things, which, "run", "atoll runs"));
  return std::move(runs[at]);
}

Result<RunView> Requests::named_run(TimePoint now, const Arguments& arguments) const {
  ATOLL_ASSIGN(const std::string which, arguments.text("run"));
  return find_run(now, which);
}

// A name is that of the one who has access now; only where nobody of that name has, it is the last one's that had.
Result<EnrolledKey> Requests::find_key(std::string_view which, std::optional<Role> role) const {
  std::vector<const EnrolledKey*> keys;
  std::vector<const EnrolledKey*> named;
  for (const auto& [text, key] : admission_.keys()) {
    if (role && key.role != *role) {
      continue;
    }
    if (key.island.text == which) {
      return key;
    }
    keys.push_back(&key);
    if (key.name == which) {
      named.push_back(&key);
    }
  }
  std::ranges::stable_sort(named, [](const EnrolledKey* a, const EnrolledKey* b) {
    return std::pair(a->revoked, b->enrolled) < std::pair(b->revoked, a->enrolled);
  });
  if (named.size() > 1 && !named[1]->revoked) {
    return Error{Code::conflict, in_quotes(which) + " is the name of an " + std::string(to_string(named[0]->role)) + " (" +
                                     named[0]->island.text + ") and of an " + std::string(to_string(named[1]->role)) + " (" +
                                     named[1]->island.text + "); give the id"};
  }
  if (!named.empty()) {
    return *named.front();
  }
  std::vector<Named> things;
  std::ranges::transform(keys, std::back_inserter(things), [](const EnrolledKey* key) { return Named{key->island.text, key->name}; });
  ATOLL_ASSIGN(const std::size_t at, find_named(things, which, "island", "atoll islands"));
  return *keys[at];
}

std::string Requests::name_of(const IslandId& island) const {
  for (const auto& [text, key] : admission_.keys()) {
    if (key.island == island) {
      return key.name;
    }
  }
  return island.text;
}

// ------------------------------------------------------------------------------------------------------------------- runs

namespace {

// The name under which a run that is to exist once does: of the run with this file that has this name; else of the newest with this file,
// a new try. One that failed or was cancelled does not count: "" is a new try under a name of its own.
std::string name_for_once(const std::vector<RunView>& runs, const std::string& wanted, const std::string& file) {
  std::string name = wanted;
  for (const RunView& run : runs) {
    if (run.file != file) {
      continue;
    }
    if (run.state == RunState::failed || run.state == RunState::cancelled) {
      name = name == wanted ? "" : name;
    } else if (run.name == wanted) {
      return wanted;
    } else {
      name = run.name;
    }
  }
  return name;
}

}  // namespace

namespace {

struct NamedCopy {
  RunId run;
  CopyToGoOnFrom copy;
};

// The copy of a checkpoint that a run is to go on from: {"run", "round", "digest", "epoch", "data": [[part, sequences], …]}.
Result<NamedCopy> named_copy(const std::string& text) {
  const Error wrong{Code::invalid_argument, "copy: expected the run, round, epoch and digest of a checkpoint, and how far its data are"};
  try {
    const json value = json::parse(text);
    const std::string run = value.at("run").get<std::string>();
    NamedCopy named{RunId(run), {Round(value.at("round").get<std::uint64_t>()), {}, Epoch(value.at("epoch").get<std::uint64_t>()), {}}};
    ATOLL_ASSIGN(named.copy.digest, digest_from_hex(value.at("digest").get<std::string>()));
    for (const json& part : value.value("data", json::array())) {
      named.copy.data.push_back(DataRange{part.at(0).get<std::uint32_t>(), 0, part.at(1).get<std::uint64_t>()});
    }
    constexpr std::uint64_t kLargest = std::uint64_t{1} << 62U;
    const bool possible =
        is_name(run) && named.copy.round > Round(0) && named.copy.round.value < kLargest && named.copy.epoch.value < kLargest;
    return possible ? Result<NamedCopy>(std::move(named)) : Result<NamedCopy>(wrong);
  } catch (const json::exception&) {
    return wrong;
  }
}

}  // namespace

Result<json> Requests::submit(TimePoint now, const Arguments& arguments) {
  ATOLL_ASSIGN(const std::string text, arguments.object("spec"));
  std::optional<NamedCopy> from;
  if (arguments.has("copy")) {
    ATOLL_ASSIGN(const std::string copy, arguments.object("copy"));
    ATOLL_ASSIGN(from, named_copy(copy));
  }
  ATOLL_ASSIGN(const bool once, arguments.boolean("once", false));
  ATOLL_ASSIGN(const bool dry_run, arguments.boolean("dry_run", false));
  ATOLL_ASSIGN(const RunSpec spec, run_spec_from_json(text));
  ATOLL_TRY(check_run_spec(spec));
  const std::string file = to_json(spec);
  const std::vector<RunView> before = core_.runs(now);
  const std::string name = once ? name_for_once(before, spec.name, file) : "";
  if (dry_run) {
    return rehearse_submit(now, spec, name.empty() ? spec.name : name);
  }
  const StartView start = core_.rehearse_start(now, spec);
  const std::optional<CopyToGoOnFrom> copy = from ? std::optional(from->copy) : std::nullopt;
  ATOLL_ASSIGN(const RunId id, core_.submit(now, from ? from->run : RunId("r-" + random_hex(8)), spec, name, file, copy));
  const bool created = std::none_of(before.begin(), before.end(), [&](const RunView& run) { return run.id == id; });
  const std::optional<RunView> run = core_.run(now, id);
  if (!run) {
    return Error{Code::internal, "the run " + id.text + " was submitted and is not there"};
  }
  return json{
      {"run", id.text},      {"name", run->name}, {"created", created}, {"state", to_string(run->state)}, {"reason", run->reason.text},
      {"apart", start.apart}};
}

json Requests::rehearse_submit(TimePoint now, const RunSpec& spec, const std::string& name) const {
  const StartView start = core_.rehearse_start(now, spec);
  json islands = json::array();
  for (const StartCandidateView& island : start.islands) {
    islands.push_back(
        {{"id", island.island.text}, {"name", island.name}, {"takes_part", island.takes_part}, {"obstacle", island.obstacle}});
  }
  return json{{"run", nullptr},          {"name", name},
              {"created", false},        {"state", "queued"},
              {"reason", start.wait},    {"dry_run", true},
              {"enough", start.enough},  {"min", spec.islands.min},
              {"max", spec.islands.max}, {"islands", std::move(islands)},
              {"apart", start.apart}};
}

// Of the run of a group: whoever changes it changes the run that it is part of.
Status Requests::refuse_part(TimePoint now, const RunView& run, const std::string& verb) const {
  if (run.part_of.empty()) {
    return {};
  }
  const std::optional<RunView> whole = core_.run(now, run.part_of);
  const std::string name = whole ? whole->name : run.part_of.text;
  return Error{Code::conflict, "run " + run.name + " is part of run " + name + "; try: atoll " + verb + " " + name};
}

Result<json> Requests::cancel(TimePoint now, const Arguments& arguments) {
  ATOLL_ASSIGN(const RunView run, named_run(now, arguments));
  ATOLL_TRY(refuse_part(now, run, "cancel"));
  const bool changed = run.state != RunState::cancelled;
  if (changed) {
    ATOLL_TRY(core_.cancel(now, run.id, "cancelled by an operator"));
  }
  return json{{"run", run.id.text}, {"name", run.name}, {"state", to_string(RunState::cancelled)}, {"changed", changed}};
}

Result<json> Requests::resume(TimePoint now, const Arguments& arguments) {
  ATOLL_ASSIGN(const RunView run, named_run(now, arguments));
  ATOLL_TRY(refuse_part(now, run, "resume"));
  const bool refused = std::any_of(run.memberships.begin(), run.memberships.end(),
                                   [](const MembershipView& membership) { return membership.state == MembershipState::refused; });
  const bool changed = is_idle(run.state) || (refused && run.state != RunState::completed);  // quarantines are lifted
  if (changed) {
    ATOLL_TRY(core_.resume(now, run.id));
  }
  const std::optional<RunView> after = core_.run(now, run.id);
  return json{{"run", run.id.text}, {"name", run.name}, {"state", to_string(after ? after->state : run.state)}, {"changed", changed}};
}

Result<json> Requests::pause(TimePoint now, const Arguments& arguments) {
  ATOLL_ASSIGN(const RunView run, named_run(now, arguments));
  ATOLL_TRY(refuse_part(now, run, "pause"));
  const bool changed = run.state != RunState::paused;
  ATOLL_TRY(core_.pause(now, run.id));
  const std::optional<RunView> after = core_.run(now, run.id);
  return json{{"run", run.id.text}, {"name", run.name}, {"state", to_string(after ? after->state : run.state)}, {"changed", changed}};
}

Result<json> Requests::remove(TimePoint now, const Arguments& arguments) {
  ATOLL_ASSIGN(const RunView run, named_run(now, arguments));
  ATOLL_TRY(refuse_part(now, run, "runs rm"));
  ATOLL_ASSIGN(const bool rehearse, arguments.boolean("dry_run", false));
  ATOLL_ASSIGN(const Removal removal, core_.remove(now, run.id, rehearse));
  json islands = json::array();
  for (const Holder& holder : removal.islands) {
    islands.push_back({{"id", holder.island.text}, {"name", holder.name}, {"connected", holder.connected}});
  }
  if (!rehearse) {
    facts_.erase(run.id);
  }
  return json{{"run", run.id.text}, {"name", run.name}, {"removed", !rehearse}, {"islands", std::move(islands)}};
}

Result<json> Requests::drain(TimePoint now, const Arguments& arguments) {
  ATOLL_ASSIGN(const std::string which, arguments.text("island"));
  ATOLL_ASSIGN(const EnrolledKey key, find_key(which, Role::island));
  if (key.revoked) {
    return Error{Code::conflict, "island " + key.name + " (" + key.island.text + ") has no access any more: its key was revoked"};
  }
  ATOLL_TRY(core_.drain(now, key.island, "drained by an operator"));
  return json{{"island", key.island.text}, {"name", key.name}};
}

Result<json> Requests::measure_paths(TimePoint now, const Arguments& arguments) {
  ATOLL_ASSIGN(const std::int64_t each, arguments.integer("each_ms", 100, 30'000));
  ATOLL_ASSIGN(const std::uint32_t measurement, core_.measure_paths(now, std::chrono::milliseconds(each)));
  const auto connected = std::ranges::count_if(core_.islands(now), [](const IslandView& island) { return island.state == "connected"; });
  return json{{"measurement", measurement}, {"islands", connected}};
}

Result<json> Requests::serve(TimePoint now, const Arguments& arguments) {
  ATOLL_ASSIGN(const std::string reader, arguments.text("reader_key"));
  if (!is_key(reader)) {
    return Error{Code::invalid_argument, "export: 'reader_key' is no public key (40 characters Z85)"};
  }
  ATOLL_ASSIGN(const RunView run, named_run(now, arguments));
  std::optional<IslandId> island;
  ATOLL_ASSIGN(const std::string which, arguments.text("island", ""));
  if (!which.empty()) {
    ATOLL_ASSIGN(const EnrolledKey key, find_key(which, Role::island));
    if (key.revoked) {
      return Error{Code::conflict, "island " + key.name + " (" + key.island.text + ") has no access any more: its key was revoked"};
    }
    island = key.island;
  }
  ATOLL_ASSIGN(const std::vector<ExportSource> sources, core_.serve(now, run.id, reader, island));
  std::vector<json> checkpoints;  // with the islands that have each, the newest first
  for (ExportSource source : sources) {
    if (source.file.empty()) {
      // The core learns it from the island's next checkpoint only; the ledger has it from before a restart.
      ATOLL_ASSIGN(const auto told, ledger_.checkpoint_file(run.id, source.island.island, source.round, source.digest));
      if (!told) {
        continue;
      }
      source.file = told->file;
      source.file_bytes = told->bytes;
    }
    const json checkpoint = {
        {"round", source.round.value}, {"file_bytes", source.file_bytes}, {"file_sha256", to_hex(source.file)}, {"sources", json::array()}};
    const auto same = std::ranges::find_if(checkpoints, [&](const json& known) {
      return known["round"] == checkpoint["round"] && known["file_sha256"] == checkpoint["file_sha256"];
    });
    json& known = same == checkpoints.end() ? checkpoints.emplace_back(checkpoint) : *same;
    known["sources"].push_back(address_of(source.island));
  }
  if (checkpoints.empty()) {
    return Error{Code::unavailable, "island " + sources.front().island.name + " has not told the digest of its checkpoint of round " +
                                        std::to_string(sources.front().round.value) + " yet; try again in a moment"};
  }
  json document = {{"run", run.id.text}, {"name", run.name}, {"file", "outer.safetensors"}};
  document.update(checkpoints.front());
  document["alternatives"] = std::vector<json>(checkpoints.begin() + 1, checkpoints.end());
  return document;
}

Result<json> Requests::results(TimePoint now, const Arguments& arguments) {
  ATOLL_ASSIGN(const std::string reader, arguments.text("reader_key"));
  if (!is_key(reader)) {
    return Error{Code::invalid_argument, "results: 'reader_key' is no public key (40 characters Z85)"};
  }
  ATOLL_ASSIGN(const RunView run, named_run(now, arguments));
  ATOLL_ASSIGN(const std::vector<TaskResult> results, core_.serve_results(now, run.id, reader));
  json list = json::array();
  for (const TaskResult& result : results) {
    json sources = json::array();
    std::ranges::transform(result.sources, std::back_inserter(sources), address_of);
    list.push_back({{"task", result.task}, {"sha256", to_hex(result.digest)}, {"bytes", result.bytes}, {"sources", std::move(sources)}});
  }
  return json{{"run", run.id.text}, {"name", run.name}, {"results", std::move(list)}};
}

// ----------------------------------------------------------------------------------------------------------------- tokens

Result<json> Requests::token_create(TimePoint now, const Arguments& arguments) {
  ATOLL_ASSIGN(const std::string role_text, arguments.text("role", "island"));
  ATOLL_ASSIGN(const Role role, role_from_string(role_text));
  ATOLL_ASSIGN(const std::int64_t expires_ms, arguments.integer("expires_ms", 1, kLongestToken, std::int64_t{24} * 3600 * 1000));
  ATOLL_ASSIGN(const std::string name, arguments.text("name", ""));
  if (role == Role::viewer && !name.empty()) {
    ATOLL_ASSIGN(const EnrolledKey island, find_key(name, Role::island));
    if (island.name != name) {
      return Error{Code::invalid_argument, "a viewer's link is for an island by its name: " + island.name};
    }
  }
  const TimePoint expires = from_unix_ms(unix_ms(now) + expires_ms);
  const std::string secret = make_token_secret();
  std::string word = secret;  // a viewer's is all that a browser needs
  if (role != Role::viewer) {
    ATOLL_ASSIGN(word, to_text(JoinToken{place_.address, place_.coordinator_key, secret, role_text, expires}));
  }
  for (int attempt = 0;; ++attempt) {
    const Token token{"t-" + random_hex(6), role, name, now, expires, "", {}, false};
    const Status made = admission_.create_token(token, secret);
    if (made) {
      return json{{"id", token.id}, {"role", role_text}, {"token", word}, {"expires_unix_ms", unix_ms(expires)}};
    }
    if (made.error().code != Code::conflict || attempt == 3) {
      return made.error();
    }
  }
}

Result<json> Requests::viewers(TimePoint now) {
  ATOLL_ASSIGN(const auto viewers, admission_.viewers(now));
  json list = json::array();
  for (const auto& [secret, island] : viewers) {
    list.push_back({{"sha256", to_hex(secret)}, {"island", island}});
  }
  return json{{"viewers", std::move(list)}};
}

Result<json> Requests::token_revoke(TimePoint now, const Arguments& arguments) {
  ATOLL_ASSIGN(const std::string which, arguments.text("id"));
  ATOLL_ASSIGN(const std::string kind, arguments.text("kind", ""));
  ATOLL_ASSIGN(const Role role, role_from_string(kind.empty() ? "island" : kind));
  if (which.starts_with("t-")) {
    ATOLL_ASSIGN(const Token token, admission_.revoke_token(which));
    json ended;
    json ended_id;
    for (const auto& [text, key] : admission_.keys()) {
      if (!token.used_by.empty() && key.island.text == token.used_by && key.role == token.role && !key.revoked) {
        // What the token gave is taken back with it.
        const EnrolledKey enrolled = key;
        ATOLL_TRY(revoke_key(now, enrolled));
        ended = enrolled.name;
        ended_id = enrolled.island.text;
        break;
      }
    }
    return json{{"revoked", token.id}, {"kind", "token"}, {"ended", std::move(ended)}, {"ended_id", std::move(ended_id)}};
  }
  ATOLL_ASSIGN(const EnrolledKey key, find_key(which, kind.empty() ? std::nullopt : std::optional(role)));
  ATOLL_TRY(revoke_key(now, key));
  return json{{"revoked", key.island.text},
              {"kind", to_string(key.role)},
              {"ended", key.name},
              {"ended_id", key.island.text},
              {"changed", !key.revoked}};
}

Status Requests::revoke_key(TimePoint now, const EnrolledKey& key) {
  if (!key.revoked) {
    const auto operators = std::count_if(admission_.keys().begin(), admission_.keys().end(),
                                         [](const auto& entry) { return entry.second.role == Role::operator_ && !entry.second.revoked; });
    if (key.role == Role::operator_ && operators == 1) {
      return Error{Code::conflict,
                   "'" + key.name + "' is the only operator left; enrol another one first (`atoll token create --role operator`)"};
    }
    ATOLL_TRY(admission_.revoke_key(key.public_key));
    if (key.role == Role::island) {
      core_.revoke(now, key.island, "its key was revoked by an operator");
    } else {
      core_.withdraw_reader(now, key.public_key);
    }
  }
  return {};
}

}  // namespace atl::coordinator
