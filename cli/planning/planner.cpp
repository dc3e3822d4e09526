#include "cli/planning/planner.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "agent/engine/built_in_model.hpp"
#include "agent/engine/parameter_layout.hpp"
#include "cli/views/parts/document.hpp"
#include "strategies/composition.hpp"
#include "strategies/diloco.hpp"
#include "strategies/planning/goodput.hpp"
#include "strategies/planning/gossip_timing.hpp"
#include "strategies/planning/streaming_table_4.hpp"
#include "strategies/specification/run_notes.hpp"
#include "strategies/specification/run_rules.hpp"

namespace atl {
namespace {

using nlohmann::json;

json island_documents(const std::vector<PlanIsland>& islands, const ForecastQuestion& question, const Forecast& forecast) {
  json documents = json::array();
  for (std::size_t i = 0; i < islands.size(); ++i) {
    const ForecastIsland& given = question.islands[i];
    const IslandForecast& found = forecast.islands[i];
    documents.push_back({{"name", given.name},
                         {"source", islands[i].source},
                         {"step_seconds", given.step_seconds},
                         {"steps", found.steps},
                         {"uplink_bits_per_second", given.uplink_bits_per_second},
                         {"downlink_bits_per_second", given.downlink_bits_per_second},
                         {"round_trip_seconds", given.round_trip_seconds},
                         {"overlap_steps", given.overlap_steps.value_or(question.composition.overlap_steps)},
                         {"bytes_sent", found.bytes_sent},
                         {"bytes_received", found.bytes_received},
                         {"bytes_sent_per_step", found.bytes_sent_per_step},
                         {"bytes_sent_per_day", found.bytes_sent_per_day},
                         {"mean_bits_per_second", found.mean_bits_per_second},
                         {"peak_bits_per_second", found.peak_bits_per_second},
                         {"sustained_bound_bits_per_second", found.sustained_bound_bits_per_second},
                         {"waiting_seconds", found.waiting_seconds},
                         {"utilisation", found.utilisation}});
  }
  return documents;
}

// What each fragment holds: layers by number, and whether embeddings and head are in it.
json fragment_documents(const ParameterLayout& layout, const Composition& parts, std::uint32_t members) {
  json documents = json::array();
  const auto head = static_cast<std::int32_t>(layout.manifest().parameters.back().block);
  for (const island_link::Fragment& fragment : layout.fragments()) {
    std::set<std::int32_t> layers;
    bool ends = false;
    for (const island_link::Entry& entry : layout.arena().entries) {
      if (entry.offset >= fragment.offset && entry.offset < fragment.offset + fragment.count) {
        const std::int32_t block = layout.manifest().parameters[entry.parameter].block;
        const bool end = block < 0 || block == head;
        ends = ends || end;
        if (!end) {
          layers.insert(block);
        }
      }
    }
    const Result<RoundCost> cost = exchange_cost(fragment.count, members, 0, parts.codec, parts.reduce_codec,
                                                 sums_by_groups(parts.aggregator) ? kOneLevelMembers : members);
    documents.push_back({{"fragment", documents.size()},
                         {"layers", layers},
                         {"embeddings_and_head", ends},
                         {"values", fragment.count},
                         {"bytes", parts.group == Group::nobody || !cost ? 0 : cost->bytes}});
  }
  return documents;
}

json round_document(const RoundPlan& plan, bool last) {
  return {
      {"round", plan.round.value}, {"fragment", plan.fragment}, {"start", plan.start.value}, {"apply", plan.apply.value}, {"last", last}};
}

// The first round of every fragment, and the last synchronisation.
Result<json> schedule_document(const Schedule& schedule) {
  json rounds = json::array();
  const std::uint64_t fragments = schedule.fragments();
  const std::uint64_t regular = schedule.rounds() - fragments;
  for (std::uint64_t round = 1; round <= schedule.rounds(); ++round) {
    if (round == fragments + 1 && round <= regular) {
      round = regular + 1;
    }
    ATOLL_ASSIGN(const RoundPlan plan, schedule.round_at(Round(round)));
    rounds.push_back(round_document(plan, round > regular));
  }
  return rounds;
}

json setting_document(const StrategySpec& strategy) {
  return {{"name", strategy.name},
          {"grouping", name_of(strategy.grouping)},
          {"inner_steps", strategy.inner_steps},
          {"overlap_steps", strategy.overlap_steps},
          {"codec", name_of(strategy.codec)},
          {"reduce_codec", name_of(strategy.reduce_codec)},
          {"merge_alpha", strategy.merge_alpha}};
}

// The steps of the schedule after which the run ends: the run file's, or fewer where `training.tokens` are committed before, which is seen
// at the end of a round. Islands outside a quorum take fewer steps of their own in that time; the others all take the schedule's.
std::uint64_t steps_until_end(const RunSpec& spec, const ForecastQuestion& question, const std::vector<PlanIsland>& islands) {
  const Composition& parts = question.composition;
  const TrainingSpec& training = spec.training;
  if (training.tokens == 0 || islands.empty()) {
    return training.steps;
  }
  std::vector<double> paces;
  paces.reserve(islands.size());
  for (const PlanIsland& island : islands) {
    paces.push_back(island.figures.step_seconds);
  }
  const double schedule = schedule_step_seconds(parts, paces);
  double steps = 0;  // of all islands in one of the schedule's
  for (const double pace : paces) {
    steps += parts.quorum > 0 && pace > schedule ? schedule / pace : 1;
  }
  const double per_step = steps * training.batch * static_cast<double>(tokens_per_sequence(spec));
  const double period = static_cast<double>(std::max<std::uint64_t>(1, parts.inner_steps / question.fragment_values.size()));
  const double needed = std::max(std::ceil(static_cast<double>(training.tokens) / per_step / period) * period,
                                 static_cast<double>(std::min(parts.inner_steps, training.steps)));
  return needed < static_cast<double>(training.steps) ? static_cast<std::uint64_t>(needed) : training.steps;
}

Result<ForecastQuestion> question_of(const RunSpec& spec, const std::vector<PlanIsland>& islands, const CostSource& costs,
                                     const std::optional<island_link::Manifest>& declared) {
  ForecastQuestion question;
  ATOLL_ASSIGN(question.composition, compose(spec.strategy));
  ATOLL_ASSIGN(const ParameterLayout layout,
               ParameterLayout::make(declared ? *declared : manifest_of(spec), question.composition.fragments));
  for (const island_link::Fragment& fragment : layout.fragments()) {
    question.fragment_values.push_back(fragment.count);
  }
  question.total_steps = steps_until_end(spec, question, islands);
  const double budget = run_uplink(spec);
  for (const PlanIsland& island : islands) {
    question.islands.push_back(island.figures);
    question.islands.back().overlap_steps = own_overlap(spec, island.figures.name);
    if (double& uplink = question.islands.back().uplink_bits_per_second; budget > 0 && uplink > budget) {
      uplink = budget;
    }
  }
  question.costs = costs.of(question.composition, islands.size(), *std::ranges::max_element(question.fragment_values));
  return question;
}

json costs_document(const AgentCosts& costs, const std::string& source) {
  return {{"source", source},
          {"form_seconds_per_value", costs.form_seconds_per_value},
          {"apply_seconds_per_value", costs.apply_seconds_per_value},
          {"round_seconds", costs.round_overhead_seconds}};
}

Status check_utilisation(double utilisation) {
  if (!(utilisation > 0 && utilisation <= 1)) {
    return Error{Code::invalid_argument, "--utilisation is a share above 0 and at most 1, such as 0.95"};
  }
  return {};
}

}  // namespace

Result<json> plan_document(const RunSpec& spec, const std::vector<PlanIsland>& islands, double utilisation, const CostSource& costs,
                           const std::optional<island_link::Manifest>& declared) {
  ATOLL_TRY(check_utilisation(utilisation));
  ATOLL_ASSIGN(const ForecastQuestion question, question_of(spec, islands, costs, declared));
  ATOLL_ASSIGN(const Forecast found, forecast(question, utilisation));
  const auto members = static_cast<std::uint32_t>(islands.size());
  ATOLL_ASSIGN(const Schedule schedule,
               schedule_of(question.composition, question.total_steps, static_cast<std::uint32_t>(question.fragment_values.size())));
  ATOLL_ASSIGN(json rounds, schedule_document(schedule));
  ATOLL_ASSIGN(const ParameterLayout layout,
               ParameterLayout::make(declared ? *declared : manifest_of(spec), question.composition.fragments));
  std::uint64_t parameters = 0;
  for (const std::uint64_t values : question.fragment_values) {
    parameters += values;
  }
  return json{{"schema", 1},
              {"kind", "plan"},
              {"run", spec.name},
              {"strategy", setting_document(spec.strategy)},
              {"steps", question.total_steps},
              {"token_limit", spec.training.tokens > 0 ? json(spec.training.tokens) : json()},
              {"step_limit", spec.training.steps},
              {"parameters", parameters},
              {"fragments", fragment_documents(layout, question.composition, members)},
              {"schedule", std::move(rounds)},
              {"rounds", found.rounds},
              {"bytes_per_round", found.bytes_per_round},
              {"seconds", found.seconds},
              {"utilisation", found.utilisation},
              {"utilisation_wanted", utilisation},
              {"agent_memory_bytes", found.agent_memory_bytes},
              {"agent_costs", costs_document(question.costs, costs.name)},
              {"notes", notes_on(spec)},
              {"islands", island_documents(islands, question, found)}};
}

// ------------------------------------------------------------------------------------------------------------------- sweep

namespace {

// The settings of a sweep: the usual ones and the run file's own.
template <typename Value>
std::vector<Value> with_own(std::vector<Value> usual, Value own) {
  usual.push_back(own);
  std::sort(usual.begin(), usual.end());
  usual.erase(std::unique(usual.begin(), usual.end()), usual.end());
  return usual;
}

// A codec for the second half of an exchange, as streaming_diloco.hpp reasons: nothing coarser than int8.
CodecKind reduce_codec_for(CodecKind codec, const StrategySpec& own) {
  return codec == own.codec ? own.reduce_codec : codec == CodecKind::fp4 ? CodecKind::int8 : codec;
}

// One row, or nothing where the setting is impossible (more fragments than layers, τ ≥ H, …).
Result<json> sweep_row(RunSpec spec, const std::vector<PlanIsland>& islands, double utilisation, const CostSource& costs,
                       const std::optional<island_link::Manifest>& declared) {
  ATOLL_ASSIGN(const ForecastQuestion question, question_of(spec, islands, costs, declared));
  ATOLL_ASSIGN(const Forecast found, forecast(question, utilisation));
  double sent = 0;
  double per_step = 0;
  double per_day = 0;
  double mean = 0;
  double peak = 0;
  double bound = 0;
  for (const IslandForecast& island : found.islands) {
    sent += static_cast<double>(island.bytes_sent);
    per_step = std::max(per_step, island.bytes_sent_per_step);
    per_day = std::max(per_day, island.bytes_sent_per_day);
    mean = std::max(mean, island.mean_bits_per_second);
    peak = std::max(peak, island.peak_bits_per_second);
    bound = std::max(bound, island.sustained_bound_bits_per_second);
  }
  return json{{"inner_steps", spec.strategy.inner_steps},
              {"fragments", question.fragment_values.size()},
              {"overlap_steps", spec.strategy.overlap_steps},
              {"codec", name_of(spec.strategy.codec)},
              {"reduce_codec", name_of(spec.strategy.reduce_codec)},
              {"bytes_sent_by_all", sent},
              {"bytes_per_round", found.bytes_per_round},
              {"bytes_sent_per_step", per_step},
              {"bytes_sent_per_day", per_day},
              {"mean_bits_per_second", mean},
              {"peak_bits_per_second", peak},
              {"sustained_bound_bits_per_second", bound},
              {"agent_memory_bytes", found.agent_memory_bytes},
              {"agent_costs", costs_document(question.costs, costs.name)},
              {"seconds", found.seconds},
              {"utilisation", found.utilisation},
              {"reaches", found.utilisation >= utilisation},
              {"cheapest_of_inner_steps", false},
              {"cheapest", false}};
}

// The run with `layer_fragments` fragments of layers; 0: the whole model as one.
RunSpec with_fragments(RunSpec spec, std::uint32_t layer_fragments) {
  if (layer_fragments == 0) {
    spec.strategy.grouping = FragmentKind::whole;
  } else if (spec.strategy.grouping == FragmentKind::whole) {
    spec.strategy.grouping = FragmentKind::strided;
  }
  spec.strategy.fragments = layer_fragments;
  return spec;
}

void mark_cheapest(json& rows) {
  const auto cheaper = [](const json& a, const json& b) {
    const auto key = [](const json& row) {
      return std::pair(row["bytes_sent_by_all"].get<double>(), row["peak_bits_per_second"].get<double>());
    };
    return key(a) < key(b);
  };
  json* best = nullptr;
  std::map<std::uint64_t, json*> best_of;
  for (json& row : rows) {
    if (!row["reaches"].get<bool>()) {
      continue;
    }
    json*& of_period = best_of[row["inner_steps"].get<std::uint64_t>()];
    of_period = of_period == nullptr || cheaper(row, *of_period) ? &row : of_period;
    best = best == nullptr || cheaper(row, *best) ? &row : best;
  }
  for (const auto& [inner_steps, row] : best_of) {
    (*row)["cheapest_of_inner_steps"] = true;
  }
  if (best != nullptr) {
    (*best)["cheapest"] = true;
  }
}

}  // namespace

Result<json> sweep_document(const RunSpec& spec, const std::vector<PlanIsland>& islands, double utilisation, const CostSource& costs,
                            const std::optional<island_link::Manifest>& declared) {
  ATOLL_TRY(check_utilisation(utilisation));
  ATOLL_ASSIGN(const Composition own, compose(spec.strategy));
  if (own.payload != PayloadKind::outer_gradient || own.group != Group::all) {
    return Error{Code::invalid_argument,
                 "strategy '" + spec.strategy.name + "' has nothing to sweep: its islands do not send outer gradients"};
  }
  ATOLL_ASSIGN(const json planned, plan_document(spec, islands, utilisation, costs, declared));  // the run file's own setting is possible
  const std::uint32_t layers = spec.model.layers;
  const bool balanced = spec.strategy.grouping == FragmentKind::balanced;
  const auto own_parts = static_cast<std::uint32_t>(planned["fragments"].size()) - 1;  // without the one of embeddings and head
  const std::vector<std::uint32_t> parts = balanced ? with_own<std::uint32_t>({2, 4, 8}, spec.strategy.fragments)
                                                    : with_own<std::uint32_t>({0, (layers + 2) / 3, layers}, own_parts);
  json rows = json::array();
  for (const std::uint64_t inner_steps : with_own<std::uint64_t>({30, 100, 300}, spec.strategy.inner_steps)) {
    for (const std::uint32_t fragments : parts) {
      for (const std::uint64_t overlap : with_own<std::uint64_t>({0, 1, 5}, spec.strategy.overlap_steps)) {
        for (const CodecKind codec : {CodecKind::f32, CodecKind::bf16, CodecKind::int8, CodecKind::fp4}) {
          RunSpec setting = with_fragments(spec, fragments);
          setting.strategy.inner_steps = inner_steps;
          setting.strategy.overlap_steps = overlap;
          setting.strategy.reduce_codec = reduce_codec_for(codec, spec.strategy);
          setting.strategy.codec = codec;
          if (inner_steps > setting.training.steps) {
            continue;
          }
          if (Result<json> row = sweep_row(std::move(setting), islands, utilisation, costs, declared)) {
            rows.push_back(*std::move(row));
          }
        }
      }
    }
  }
  mark_cheapest(rows);
  return json{{"schema", 1},
              {"kind", "sweep"},
              {"run", spec.name},
              {"steps", planned["steps"]},
              {"parameters", planned["parameters"]},
              {"islands", planned["islands"]},
              {"utilisation_wanted", utilisation},
              {"agent_costs_source", costs.name},
              {"settings", std::move(rows)}};
}

// ----------------------------------------------------------------------------------------------------------------- table 4

Result<json> table_4_document() {
  ATOLL_ASSIGN(const std::vector<Table4Cell> cells, streaming_table_4());
  json rows = json::array();
  std::size_t exact = 0;
  std::size_t within_one = 0;
  for (const Table4Cell& cell : cells) {
    exact += cell.points_apart == 0 ? 1 : 0;
    within_one += std::abs(cell.points_apart) <= 1 ? 1 : 0;
    rows.push_back({{"size", kTable4Sizes[cell.size].name},
                    {"method", kTable4Methods[cell.method]},
                    {"utilisation", kTable4Shares[cell.share]},
                    {"printed_gigabits_per_second", cell.printed_gbits},
                    {"ours_gigabits_per_second", cell.ours_gbits},
                    {"points_apart", cell.points_apart}});
  }
  return json{{"schema", 1},
              {"kind", "streaming-diloco-table-4"},
              {"bits_per_parameter", kPaperEffectiveBits},
              {"agent_seconds_per_value", 0},
              {"exact", exact},
              {"within_one_point", within_one},
              {"cells", std::move(rows)}};
}

Result<json> gossip_timing_document() {
  json rows = json::array();
  for (const GossipTimingRow& row : gossip_timing_table()) {
    rows.push_back({{"islands", row.islands},
                    {"constant_ratio", row.constant_ratio},
                    {"tree", row.tree},
                    {"pair", row.pair},
                    {"pair_closed_form", row.pair_closed_form},
                    {"ratio", row.tree / row.pair},
                    {"all_by_pairs", row.blocking},
                    {"all_by_alone", row.blocking_alone}});
  }
  return json{{"schema", 1}, {"kind", "noloco-latency"}, {"rows", std::move(rows)}};
}

Result<json> goodput_document() {
  json cells = json::array();
  for (const GoodputCell& cell : goodput_table()) {
    cells.push_back({{"method", std::string(kGoodputMethods[cell.method].name)},
                     {"islands", kGoodputMethods[cell.method].islands},
                     {"chips", kGoodputChips[cell.chips]},
                     {"printed", cell.printed},
                     {"ours", cell.ours},
                     {"rule", cell.rule},
                     {"waiting_for_all", cell.waiting},
                     {"quorum_of_one", cell.quorum}});
  }
  return json{{"schema", 1}, {"kind", "decoupled-diloco-goodput"}, {"cells", std::move(cells)}};
}

}  // namespace atl
