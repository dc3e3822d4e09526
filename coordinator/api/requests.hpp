// What operators ask, answered with the documents of coordinator/api/documents.md.
//
// A request is a verb with a JSON object from outside; the answer is a JSON document or an error for a person. Verbs that change
// something change the core or the admission; the driver makes that durable before it sends the answer. What is shown is durable, too: the
// driver writes down what the core has decided before it asks for a document, and while it cannot, documents show the runs as the ledger
// has them.
// Threads: the coordinator's.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/api/arguments.hpp"
#include "coordinator/api/durable_runs.hpp"
#include "coordinator/api/task_pictures.hpp"
#include "coordinator/core/core.hpp"
#include "coordinator/ledger/admission.hpp"
#include "coordinator/ledger/ledger.hpp"
#include "transport/base/result.hpp"
#include "transport/base/time.hpp"
#include "transport/control/message.hpp"

namespace atl::coordinator {

// What an exchange last moved, in each direction.
struct LinkRate {
  double up_bits_per_second = 0;
  double down_bits_per_second = 0;
};

// How the coordinator is reached and called: constant while it runs.
struct Place {
  std::string version;          // of Atoll
  std::string address;          // advertised; goes into join tokens
  std::string coordinator_key;  // Z85; goes into join tokens
};

class Requests {
 public:
  // What it works on must outlive it.
  Requests(Place place, Core& core, Ledger& ledger, Admission& admission);
  ~Requests();
  Requests(const Requests&) = delete;
  Requests& operator=(const Requests&) = delete;

  // The document, or why there is none.
  Result<std::string> answer(TimePoint now, const Request& request);
  // What an island may ask of itself: where its connection comes from, at which of its addresses others dial it, and its relays.
  [[nodiscard]] std::string reach(const IslandId& island, const std::string& seen_host, const Relays& relays) const;
  // True for a verb whose answer rests on something that must be durable first.
  static bool changes(std::string_view verb);

  // Tells what was seen outside the core: rates, and whether the ledger can be written.
  void note_rate(const IslandId& island, LinkRate rate) { rates_[island] = rate; }
  // Kept if the task is this island's. Errors: corrupt, naming the island, for what is no picture.
  Status note_images(TimePoint now, const IslandId& island, const TaskImages& message);
  void note_ledger(std::optional<Error> failure);

 private:
  struct Facts;  // of a run's spec, read once

  // Reading.
  Result<nlohmann::json> runs(TimePoint now);
  Result<nlohmann::json> status(TimePoint now, const Arguments& arguments);
  Result<nlohmann::json> islands(TimePoint now);
  Result<nlohmann::json> events(TimePoint now, const Arguments& arguments);
  Result<nlohmann::json> spans(TimePoint now, const Arguments& arguments);
  Result<nlohmann::json> metrics(TimePoint now, const Arguments& arguments);
  Result<nlohmann::json> data(TimePoint now, const Arguments& arguments);
  Result<nlohmann::json> images(TimePoint now, const Arguments& arguments);
  Result<nlohmann::json> tokens(TimePoint now);
  Result<nlohmann::json> viewers(TimePoint now);
  // Changing.
  Result<nlohmann::json> submit(TimePoint now, const Arguments& arguments);
  [[nodiscard]] nlohmann::json rehearse_submit(TimePoint now, const RunSpec& spec, const std::string& name) const;
  Result<nlohmann::json> token_create(TimePoint now, const Arguments& arguments);
  Result<nlohmann::json> token_revoke(TimePoint now, const Arguments& arguments);
  Result<nlohmann::json> cancel(TimePoint now, const Arguments& arguments);
  Result<nlohmann::json> resume(TimePoint now, const Arguments& arguments);
  Result<nlohmann::json> pause(TimePoint now, const Arguments& arguments);
  Result<nlohmann::json> remove(TimePoint now, const Arguments& arguments);
  Result<nlohmann::json> drain(TimePoint now, const Arguments& arguments);
  Result<nlohmann::json> measure_paths(TimePoint now, const Arguments& arguments);
  Result<nlohmann::json> serve(TimePoint now, const Arguments& arguments);
  Result<nlohmann::json> results(TimePoint now, const Arguments& arguments);

  Result<nlohmann::json> dispatch(TimePoint now, const Request& request);
  // The runs that may be shown, and one of them. Errors: io, where the ledger can neither be written nor read.
  [[nodiscard]] Result<std::vector<RunView>> shown_runs(TimePoint now) const;
  [[nodiscard]] Result<std::optional<RunView>> shown_run(TimePoint now, const RunId& id) const;
  // A run by id, prefix or name; `or_newest`: "" is the newest run that has not ended, else the newest.
  Result<RunView> find_run(TimePoint now, std::string_view which, bool or_newest = false) const;
  Result<RunView> named_run(TimePoint now, const Arguments& arguments) const;
  [[nodiscard]] Status refuse_part(TimePoint now, const RunView& run, const std::string& verb) const;
  // Of this role, or of any. Errors: not_found; conflict where `which` could mean two that have access.
  Result<EnrolledKey> find_key(std::string_view which, std::optional<Role> role) const;
  Status revoke_key(TimePoint now, const EnrolledKey& key);
  const Facts& facts(const RunView& run);
  [[nodiscard]] std::string name_of(const IslandId& island) const;
  [[nodiscard]] std::string reason_of(const RunView& run) const;

  // Of each island that has trained in the run: those that come now, else what the ledger has of it.
  Result<std::map<IslandId, IslandReport>> newest_reports(const RunView& run);
  Result<nlohmann::json> reads_document(const RunView& run);
  Result<nlohmann::json> run_document(const RunView& run, const std::map<IslandId, IslandReport>& reports);
  static nlohmann::json absences_document(const RunView& run);
  static nlohmann::json phases_document(const RunView& run);

  Place place_;
  Core& core_;
  Ledger& ledger_;
  Admission& admission_;
  std::map<RunId, Facts> facts_;
  std::map<IslandId, LinkRate> rates_;
  TaskPictures pictures_;
  std::optional<Error> ledger_failure_;
  Result<DurableRuns> durable_ = DurableRuns({});  // while the ledger cannot be written
};

}  // namespace atl::coordinator
