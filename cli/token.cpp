// `atoll token`: who may join.
#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>

#include "cli/command.hpp"
#include "cli/coordinator_client.hpp"
#include "cli/state_directory.hpp"
#include "cli/views/document.hpp"
#include "cli/views/printable.hpp"
#include "cli/views/views.hpp"
#include "transport/identity.hpp"
#include "transport/join_token.hpp"

namespace atl {
namespace {

struct CreateOptions {
  std::string role = "island";
  std::string name;
  Duration expires = std::chrono::hours(24);
  bool quiet = false;
};

Exit create(const Invocation& invocation, const CreateOptions& options) {
  Result<CoordinatorClient> client = CoordinatorClient::open(invocation);
  if (!client) {
    return report(invocation, client.error());
  }
  const auto expires_ms = std::chrono::duration_cast<std::chrono::milliseconds>(options.expires).count();
  const Result<nlohmann::json> document = client->ask("token_create", {{"role", options.role}, {"name", options.name}, {"expires_ms", expires_ms}});
  if (!document || invocation.json) {
    return show(invocation, document, render_tokens);
  }
  invocation.streams.out << printable(text_at(*document, "token"), 2000) << "\n" << std::flush;
  if (!options.quiet) {
    const bool island = options.role == "island";
    invocation.streams.err << "good once, for " << age_text(number_at(*document, "expires_unix_ms"), number_at(*document, "now_unix_ms")) << "; on the "
                           << (island ? "island: atoll agent --join TOKEN" : "operator's machine: atoll token use TOKEN") << "\n";
  }
  return Exit::ok;
}

std::string render_revoked(const nlohmann::json& document, const Terminal&) {
  const std::string ended = text_at(document, "kind") == "token" ? text_at(document, "ended") : "";
  return "revoked " + printable(text_at(document, "kind")) + " " + printable(text_at(document, "revoked")) +
         (ended.empty() ? "" : "; " + printable(ended) + ", which had used it, has no access any more") + "\n";
}

// Makes this machine an operator's: a key of its own, enrolled with the token.
Status use(const Invocation& invocation, const std::string& text) {
  ATOLL_ASSIGN(const JoinToken token, join_token_from_text(text));
  ATOLL_TRY(check_expiry(token, now()));
  if (token.role != "operator") {
    return Error{Code::invalid_argument, "this token is for an island: atoll agent --join TOKEN; make one for an operator with: atoll token create --role operator"};
  }
  ATOLL_ASSIGN(const std::filesystem::path state, state_directory(invocation.coordinator.state, invocation.environment));
  CoordinatorAccess access;
  access.address = token.coordinator_address;
  access.coordinator_key = token.coordinator_key;
  access.insecure = invocation.coordinator.insecure;
  ATOLL_ASSIGN(access.keys, read_or_make_key_file(state / "keys" / "operator"));
  ATOLL_TRY(write_operator_file(state, access.address, access.coordinator_key));
  ATOLL_ASSIGN(CoordinatorClient client, CoordinatorClient::open(access));
  ATOLL_ASSIGN(const Enrolled enrolled, client.enrol(token.secret, ""));
  if (invocation.json) {
    invocation.streams.out << json_line({{"schema", 1}, {"role", enrolled.role}, {"coordinator", access.address}, {"state", state.string()}}) << "\n";
  } else {
    invocation.streams.err << "this machine is now an operator of the coordinator at " << access.address << "; try: atoll runs\n";
  }
  return {};
}

Command create_command() {
  auto options = std::make_shared<CreateOptions>();
  Command command;
  command.name = "create";
  command.summary = "makes a token that lets one island or operator join, once";
  command.options = {{"--role", "island or operator", &options->role, false, {"island", "operator"}},
                     {"--expires", "how long it is good for", &options->expires},
                     {"--name", "what the newcomer will be called; otherwise it chooses", &options->name},
                     {"-q,--quiet", "print nothing but the token", &options->quiet}};
  command.asks_coordinator = true;
  command.run = [options](Invocation& invocation) { return create(invocation, *options); };
  return command;
}

Command list_command() {
  Command command;
  command.name = "list";
  command.summary = "lists the tokens and what became of them";
  command.asks_coordinator = true;
  command.run = [](Invocation& invocation) {
    Result<CoordinatorClient> client = CoordinatorClient::open(invocation);
    return client ? show(invocation, client->ask("tokens", nlohmann::json::object()), render_tokens) : report(invocation, client.error());
  };
  return command;
}

Command revoke_command() {
  auto id = std::make_shared<std::string>();
  Command command;
  command.name = "revoke";
  command.summary = "takes a token back with the access that it gave, or the key of an island or operator";
  command.options = {{"ID", "of a token, an island or an operator; or an island's name", id.get(), true, {}, Completes::islands}};
  command.asks_coordinator = true;
  command.run = [id](Invocation& invocation) {
    Result<CoordinatorClient> client = CoordinatorClient::open(invocation);
    return client ? show(invocation, client->ask("token_revoke", {{"id", *id}}), render_revoked) : report(invocation, client.error());
  };
  return command;
}

Command use_command() {
  auto token = std::make_shared<std::string>();
  Command command;
  command.name = "use";
  command.summary = "makes this machine an operator's, with a token of that role";
  command.options = {{"TOKEN", "the token", token.get(), true}};
  command.asks_coordinator = true;
  command.run = [token](Invocation& invocation) {
    const Status used = use(invocation, *token);
    return used ? Exit::ok : report(invocation, used.error());
  };
  return command;
}

}  // namespace

Command token_command() {
  Command command;
  command.name = "token";
  command.summary = "lets islands and operators join, and takes that back";
  command.subcommands = {create_command(), list_command(), revoke_command(), use_command()};
  return command;
}

}  // namespace atl
