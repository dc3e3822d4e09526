// `atoll restore`: the model of a run's checkpoint that was copied to a store ([checkpoint] copy), as a safetensors file.
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>
#include <system_error>

#include "agent/service/checkpoint_copy.hpp"
#include "cli/line/command.hpp"
#include "cli/line/interrupt.hpp"
#include "cli/models/export_model.hpp"
#include "cli/views/parts/document.hpp"
#include "cli/views/parts/printable.hpp"
#include "transport/base/output_file.hpp"
#include "transport/base/store_address.hpp"

namespace atl {
namespace {

struct RestoreOptions {
  std::string address;
  std::string path;
  std::uint64_t round = 0;
  std::string proxy;
};

Result<agent::CopiedCheckpoint> restore_model(const Invocation& invocation, const RestoreOptions& options) {
  ATOLL_TRY(OutputFile::check(options.path));
  ATOLL_TRY(check_store_address(options.address));
  ATOLL_ASSIGN(const StoreCredentials credentials, StoreCredentials::from(invocation.environment));
  ATOLL_ASSIGN(const Interrupt interrupt, Interrupt::open());
  ATOLL_ASSIGN(const ObjectStore store, ObjectStore::open(options.address, credentials, [&interrupt] { return !interrupt.came(); }));
  agent::CopyPatience patience;
  patience.wait = [&interrupt](Duration time) { return !interrupt.came(time); };
  const std::optional<Round> round = options.round > 0 ? std::optional(Round(options.round)) : std::nullopt;
  ATOLL_ASSIGN(const std::string folder, agent::newest_folder(store, patience));
  // Beside the file that becomes of it. What came before an interruption stays there, and is not fetched again.
  const std::filesystem::path checkpoint = options.path + ".checkpoint";
  ATOLL_ASSIGN(const agent::CopiedCheckpoint copy, agent::fetch_copy(store, folder, round, checkpoint, patience));
  const Status written = write_model(checkpoint, options.path, &interrupt);
  std::error_code ignored;
  std::filesystem::remove(checkpoint, ignored);
  if (!written) {
    return written.error();
  }
  return copy;
}

Exit run_restore(const Invocation& invocation, const RestoreOptions& options) {
  const Result<agent::CopiedCheckpoint> copy = restore_model(invocation, options);
  if (!copy) {
    return report_no_model(invocation, copy.error());
  }
  if (invocation.json) {
    invocation.streams.out << json_line({{"schema", 1},
                                         {"run", copy->run.text},
                                         {"round", copy->round.value},
                                         {"digest", to_hex(copy->digest)},
                                         {"file", options.path}})
                           << "\n";
  } else {
    invocation.streams.err << "wrote " << printable(options.path, 1000) << ", run " << printable(copy->run.text) << " after round "
                           << copy->round.value << "\n";
  }
  return Exit::ok;
}

}  // namespace

Command restore_command() {
  auto options = std::make_shared<RestoreOptions>();
  Command command;
  command.name = "restore";
  command.summary = "writes the model of a checkpoint that was copied to a store as safetensors; needs no coordinator";
  command.details =
      "ADDRESS is [checkpoint] copy of the run's file (then it is the run that was copied last), or that with the run's id behind it. Keys "
      "come from\nthe environment: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION, AWS_ENDPOINT_URL; of https "
      "ATOLL_STORE_TOKEN or\nATOLL_STORE_TOKEN_FILE. Every byte is verified. A run goes on from its copy by: atoll submit FILE --restore "
      "newest";
  command.options = {{"ADDRESS", "s3://BUCKET/PREFIX or https://HOST/PATH, or one run's place below it", &options->address, true},
                     {"-o,--output", "the file to write", &options->path, true, {}, Completes::files},
                     {"--round", "of this round (else the newest that was copied)", &options->round},
                     {"--proxy", kProxyDoc, &options->proxy}};
  command.short_output = false;
  command.run = [options](Invocation& invocation) {
    const Status proxied = use_proxy(invocation, options->proxy);
    return proxied ? run_restore(invocation, *options) : report(invocation, proxied.error());
  };
  return command;
}

}  // namespace atl
