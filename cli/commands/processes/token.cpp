// `atoll token`: who may join.
#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>

#include "cli/line/command.hpp"
#include "cli/link/coordinator_client.hpp"
#include "cli/link/join_token_source.hpp"
#include "cli/settings/state_directory.hpp"
#include "cli/views/parts/document.hpp"
#include "cli/views/parts/printable.hpp"
#include "cli/views/views.hpp"
#include "transport/identity/identity.hpp"
#include "transport/identity/join_token.hpp"

namespace atl {
namespace {

struct CreateOptions {
  std::string role = "island";
  std::string name;
  std::string island;
  Duration expires = std::chrono::hours(24);
  bool quiet = false;
};

Exit create(const Invocation& invocation, const CreateOptions& options) {
  const bool viewer = options.role == "viewer";
  if (viewer ? !options.name.empty() : !options.island.empty()) {
    return report(invocation, Error{Code::invalid_argument, viewer ? "a viewer has no name; --island NAME shows it that island alone"
                                                                   : "--island goes with --role viewer"});
  }
  Result<CoordinatorClient> client = CoordinatorClient::open(invocation);
  if (!client) {
    return report(invocation, client.error());
  }
  const auto expires_ms = std::chrono::duration_cast<std::chrono::milliseconds>(options.expires).count();
  const Result<nlohmann::json> document =
      client->ask("token_create", {{"role", options.role}, {"name", viewer ? options.island : options.name}, {"expires_ms", expires_ms}});
  if (!document || invocation.json) {
    return show(invocation, document, render_tokens);
  }
  invocation.streams.out << printable(text_at(*document, "token"), 2000) << "\n" << std::flush;
  const std::string good_for = age_text(number_at(*document, "expires_unix_ms"), number_at(*document, "now_unix_ms"));
  if (!options.quiet && viewer) {
    invocation.streams.err << "good for " << good_for
                           << "; the viewer opens https://HOST:PORT/?token=TOKEN, as the coordinator's --web says it\n";
  } else if (!options.quiet) {
    const bool island = options.role == "island";
    invocation.streams.err
        << "good once, for " << good_for << "; on the "
        << (island ? "island, with the token in FILE: atoll agent --join-file FILE (`ps` shows it in: atoll agent --join TOKEN)"
                   : "operator's machine, with the token in FILE: atoll token use --join-file FILE")
        << "\n";
  }
  return Exit::ok;
}

std::string render_revoked_key(const nlohmann::json& document, const Terminal&) {
  const std::string kind = printable(text_at(document, "kind"));
  const std::string ended = text_at(document, "ended");
  const std::string who = printable(ended) + " (" + printable(text_at(document, "ended_id")) + ")";
  if (kind == "token") {
    return "revoked token " + printable(text_at(document, "revoked")) +
           (ended.empty() ? "" : "; " + who + ", which had used it, has no access any more") + "\n";
  }
  return flag_at(document, "changed") ? "revoked " + kind + " " + who + ": it has no access any more\n"
                                      : kind + " " + who + " had been revoked before: nothing changed\n";
}

// Makes this machine an operator's: a key of its own, enrolled with the token.
Status use(const Invocation& invocation, const std::string& argument, const std::string& file) {
  ATOLL_ASSIGN(const std::string text, join_token_text(invocation, argument, file));
  if (text.empty()) {
    return Error{Code::invalid_argument, "no token: give it in a file (--join-file FILE, - for standard input) or in $ATOLL_JOIN_TOKEN"};
  }
  ATOLL_ASSIGN(const JoinToken token, join_token_from_text(text));
  ATOLL_TRY(check_expiry(token, now()));
  if (token.role != "operator") {
    return Error{
        Code::invalid_argument,
        "this token is for an island: atoll agent --join-file FILE; make one for an operator with: atoll token create --role operator"};
  }
  ATOLL_ASSIGN(const std::filesystem::path state, state_directory(invocation.coordinator.state, invocation.environment));
  CoordinatorAccess access;
  access.address = invocation.coordinator.coordinator.empty() ? token.coordinator_address : invocation.coordinator.coordinator;
  access.coordinator_key = token.coordinator_key;
  access.insecure = invocation.coordinator.insecure;
  ATOLL_ASSIGN(access.keys, read_or_make_key_file(state / "keys" / "operator"));
  ATOLL_TRY(check_operator_file(state, access.coordinator_key));
  ATOLL_ASSIGN(CoordinatorClient client, CoordinatorClient::open(access));
  ATOLL_ASSIGN(const Enrolled enrolled, client.enrol(token.secret, ""));
  ATOLL_TRY(write_operator_file(state, access.address, access.coordinator_key));
  if (invocation.json) {
    invocation.streams.out << json_line(
                                  {{"schema", 1}, {"role", enrolled.role}, {"coordinator", access.address}, {"state", state.string()}})
                           << "\n";
  } else {
    invocation.streams.err << "this machine is now an operator of the coordinator at " << access.address << "; try: atoll runs\n";
  }
  return {};
}

Command create_command() {
  auto options = std::make_shared<CreateOptions>();
  Command command;
  command.name = "create";
  command.summary = "makes a token that lets one island or operator join, once, or a viewer see the page";
  command.options = {{"--role", "island, operator, or viewer of the page", &options->role, false, {"island", "operator", "viewer"}},
                     {"--expires", "how long it is good for", &options->expires},
                     {"--name", "what the joiner will be called; otherwise it chooses", &options->name},
                     {"--island",
                      "of a viewer: the link is for this island's owner and shows what concerns it, nothing else",
                      &options->island,
                      false,
                      {},
                      Completes::islands},
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
    return client ? show(invocation, client->ask("token_revoke", {{"id", *id}}), render_revoked_key) : report(invocation, client.error());
  };
  return command;
}

Command use_command() {
  auto token = std::make_shared<std::string>();
  auto file = std::make_shared<std::string>();
  Command command;
  command.name = "use";
  command.summary = "makes this machine an operator's, with a token of that role";
  command.details = "`ps` shows a token that is given as an argument; in a file, on standard input or in $ATOLL_JOIN_TOKEN it is not seen.";
  command.options = {
      {"--join-file", "the file of the token; - for standard input (else $ATOLL_JOIN_TOKEN)", file.get(), false, {}, Completes::files},
      {"TOKEN", "the token itself, which others on this machine can see", token.get()}};
  command.asks_coordinator = true;
  command.run = [token, file](Invocation& invocation) {
    const Status used = use(invocation, *token, *file);
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
