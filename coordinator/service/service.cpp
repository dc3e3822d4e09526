#include "coordinator/service/service.hpp"

#include <optional>
#include <utility>

#include "coordinator/ledger/ledger.hpp"
#include "coordinator/service/driver.hpp"
#include "coordinator/service/offered_relays.hpp"
#include "coordinator/service/questions.hpp"
#include "coordinator/web/web.hpp"
#include "transport/base/random_number.hpp"
#include "transport/base/room_on_disk.hpp"
#include "transport/http/post.hpp"
#include "transport/identity/generation_proof.hpp"
#include "transport/identity/identity.hpp"
#include "transport/zmq/control_server.hpp"

namespace atl::coordinator {
namespace {

// How long a viewer waits for a document. The page asks again by itself.
constexpr Duration kPatience = std::chrono::seconds(5);

Result<std::unique_ptr<Web>> start_page(const WebSettings& settings, Questions& questions) {
  if (settings.address.empty()) {
    return std::unique_ptr<Web>();
  }
  return Web::start(
      settings, [&questions](const std::string& verb, const std::string& arguments) { return questions.ask(verb, arguments, kPatience); });
}

}  // namespace

Status run_service(const ServiceOptions& options, int stop_fd,
                   const std::function<void(const std::string& address, const std::string& page)>& ready) {
  ATOLL_TRY(check_settings(options.settings));
  auto keys = read_key_file(coordinator_key_file(options.state));
  if (!keys) {
    return keys.error().code != Code::not_found
               ? keys.error()
               : Error{Code::not_found,
                       coordinator_key_file(options.state).string() +
                           " is gone, the key by which islands know this coordinator: put it back from a copy, or make the "
                           "coordinator anew from a backup in another directory (atoll coordinator init --from FILE)"};
  }
  std::optional<Ledger> ledger;
  Generation generation;
  const auto open = [&]() -> Status {
    ledger.reset();
    ATOLL_TRY(Ledger::check_presence(options.state));
    ATOLL_ASSIGN(Ledger opened, Ledger::open(options.state));
    ATOLL_ASSIGN(generation, opened.begin_generation(keys->public_key));
    ledger.emplace(std::move(opened));
    return {};
  };
  ATOLL_TRY(once_there_is_room(options.state, stop_fd, open));
  Settings core = options.core;
  core.generation_key = generation_key(keys->secret_key);
  generation.life = random_number();
  prove(generation, core.generation_key);
  core.generation = generation;
  ATOLL_ASSIGN(std::unique_ptr<ZmqControlServer> server,
               ZmqControlServer::open(ControlServerSettings{options.settings.bind, *keys, options.insecure}));
  const std::string bound = server->bound_address();
  ATOLL_ASSIGN(const std::unique_ptr<OfferedRelays> relays, OfferedRelays::open(options, keys->secret_key));
  core.relays = relays->names();
  ATOLL_ASSIGN(const std::unique_ptr<Driver> driver,
               Driver::start(std::move(core), Place{options.version, options.settings.advertise, keys->public_key}, *std::move(ledger),
                             std::move(server), now()));
  ATOLL_ASSIGN(const std::unique_ptr<Questions> questions, Questions::open());
  ATOLL_ASSIGN(const std::unique_ptr<Web> web, start_page(options.web, *questions));
  std::optional<Notifier> notifier;
  if (!options.notify.url.empty()) {
    ATOLL_TRY(check_post_address(options.notify.url));
    notifier.emplace(options.notify, options.state, [&questions](const std::string& verb, const std::string& arguments) {
      return questions->ask(verb, arguments, kPatience);
    });
  }
  driver->offer_relays(relays->tickets());
  ready(bound, web ? web->url() : "");
  Status ended = driver->run(stop_fd, *questions);
  questions->stop();
  return ended;
}

}  // namespace atl::coordinator
