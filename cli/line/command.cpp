#include "cli/line/command.hpp"

#include <nlohmann/json.hpp>
#include <ostream>

#include "cli/views/parts/printable.hpp"
#include "transport/base/log.hpp"
#include "transport/proxy/proxy_rules.hpp"

namespace atl {

std::vector<CommandOption> common_options(const Command& command, CommonOptions& common) {
  std::vector<CommandOption> options;
  options.push_back(
      {command.short_output ? "-o,--output" : "--format", "text for people, json for programs", &common.format, false, {"text", "json"}});
  options.push_back({"--json", "the same as json above", &common.json});
  options.push_back(
      {"--log-level", "least level that is logged to stderr", &common.log_level, false, {"debug", "info", "warning", "error"}});
  options.push_back({"--log-json", "log as JSON lines", &common.log_json});
  if (command.asks_coordinator) {
    options.push_back({"--coordinator", "the coordinator's address, tcp://HOST:PORT", &common.coordinator.coordinator});
    options.push_back({"--key", "file of an operator's key", &common.coordinator.key, false, {}, Completes::files});
    options.push_back({"--state",
                       "state directory (else $ATOLL_STATE, else ~/.local/state/atoll)",
                       &common.coordinator.state,
                       false,
                       {},
                       Completes::folders});
    options.push_back({"--proxy", kProxyDoc, &common.coordinator.proxy});
    options.push_back({"--insecure", "no encryption, as the coordinator was started; loopback only", &common.coordinator.insecure});
  }
  return options;
}

Status use_proxy(const Invocation& invocation, const std::string& given) {
  ATOLL_ASSIGN(ProxyRules rules, ProxyRules::read(given, invocation.environment));
  set_own_proxy(std::move(rules));
  return {};
}

Exit report(const Invocation& invocation, const Error& error) {
  set_log_sink({});  // what was logged is written before this is
  if (invocation.json) {
    const nlohmann::json object = {{"schema", 1}, {"error", {{"code", to_string(error.code)}, {"why", error.why}}}};
    invocation.streams.err << object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
  } else {
    invocation.streams.err << "atoll: " << printable(error.why, 2000) << "\n";
  }
  return exit_for(error.code);
}

Command atoll_command() {
  Command tree;
  tree.name = "atoll";
  tree.summary = "Trains one model across islands of compute that are joined only by slow links.";
  tree.details = "Begin with: atoll example gpt my-run && cd my-run && atoll local run.toml";
  tree.subcommands = {
      example_command(), up_command(),          join_command(),     local_command(),   validate_command(), plan_command(),
      submit_command(),  runs_command(),        status_command(),   logs_command(),    events_command(),   diff_command(),
      data_command(),    trace_command(),       wait_command(),     cancel_command(),  pause_command(),    resume_command(),
      drain_command(),   export_command(),      restore_command(),  islands_command(), token_command(),    agent_command(),
      relay_command(),   coordinator_command(), generate_command(), sample_command(),  trainer_command(),  version_command(),
      doctor_command(),  completion_command(),  manual_command(),   metrics_command(), plot_command(),     compare_command()};
  return tree;
}

}  // namespace atl
