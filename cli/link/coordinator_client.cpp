#include "cli/link/coordinator_client.hpp"

#include <poll.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostream>
#include <thread>

#include "cli/line/interrupt.hpp"
#include "cli/views/parts/printable.hpp"
#include "transport/base/nesting.hpp"
#include "transport/base/random_number.hpp"
#include "transport/zmq/control_client.hpp"

namespace atl {
namespace {

using nlohmann::json;

constexpr std::size_t kDeepestDocument = 64;

Error unreachable(const std::string& address) {
  return Error{Code::unavailable,
               "the coordinator at " + address +
                   " did not answer; check that it runs (atoll coordinator), the address (--coordinator) and the firewall"};
}

void wait_for(int fd, Duration at_most) {
  pollfd entry{fd, POLLIN, 0};
  const auto milliseconds = std::chrono::ceil<std::chrono::milliseconds>(at_most).count();
  ::poll(&entry, 1, static_cast<int>(std::clamp<std::int64_t>(milliseconds, 0, 10'000)));
}

}  // namespace

CoordinatorClient::CoordinatorClient(CoordinatorAccess access, std::unique_ptr<ZmqControlClient> link)
    : access_(std::move(access)), link_(std::move(link)), next_id_((random_number() & 0xffff'ffff'0000'0000ULL) | (1ULL << 62U)) {}
CoordinatorClient::CoordinatorClient(CoordinatorClient&&) noexcept = default;
CoordinatorClient& CoordinatorClient::operator=(CoordinatorClient&&) noexcept = default;
CoordinatorClient::~CoordinatorClient() = default;

Result<CoordinatorClient> CoordinatorClient::open(const Invocation& invocation) {
  ATOLL_ASSIGN(CoordinatorAccess access, find_coordinator(invocation.coordinator, invocation.environment));
  return open(std::move(access));
}

Result<CoordinatorClient> CoordinatorClient::open(CoordinatorAccess access) {
  ControlClientSettings settings;
  settings.address = access.address;
  settings.coordinator_key = access.coordinator_key;
  settings.keys = access.keys;
  settings.insecure = access.insecure;
  settings.log_changes = false;
  settings.connect_timeout = std::chrono::seconds(2);
  ATOLL_ASSIGN(std::unique_ptr<ZmqControlClient> link, ZmqControlClient::open(settings));
  return CoordinatorClient(std::move(access), std::move(link));
}

Result<json> CoordinatorClient::ask(std::string_view verb, const json& arguments, Duration patience) {
  Request request;
  request.id = next_id_++;
  request.verb = std::string(verb);
  request.arguments = json_line(arguments);
  Result<Reply> reply = link_->ask(request, patience);
  if (!reply) {
    // A question that was never answered is, for a command, a coordinator that is not there.
    return reply.error().code == Code::timeout ? unreachable(access_.address) : reply.error();
  }
  if (reply->error) {
    return *reply->error;
  }
  json document = json_nests_deeper(reply->document, kDeepestDocument) ? json() : json::parse(reply->document, nullptr, false);
  if (document.is_discarded() || !document.is_object()) {
    return Error{Code::internal,
                 "the coordinator at " + access_.address + " answered " + std::string(verb) + " with something that is no document"};
  }
  return document;
}

Result<json> CoordinatorClient::ask_patiently(const Invocation& invocation, std::string_view verb, const json& arguments,
                                              TimePoint deadline, const Interrupt* interrupt) {
  bool told = false;
  while (true) {
    Result<json> document = ask(verb, arguments, std::clamp<Duration>(deadline - now(), std::chrono::milliseconds(100), kPatience));
    if (document || document.error().code != Code::unavailable) {
      if (told && document) {
        invocation.streams.err << "atoll: the coordinator at " << printable(access_.address) << " answers again\n" << std::flush;
      }
      return document;
    }
    if (now() >= deadline) {
      return Error{Code::timeout, document.error().why};
    }
    if (!told) {
      invocation.streams.err << "atoll: " << printable(document.error().why, 500) << "; trying again\n" << std::flush;
      told = true;
    }
    const Duration pause = std::min<Duration>(std::chrono::milliseconds(500), deadline - now());
    if (interrupt == nullptr) {
      pause_between_questions(pause);
    } else if (interrupt->came(pause)) {
      return Error{Code::cancelled, "interrupted"};
    }
  }
}

Result<Enrolled> CoordinatorClient::enrol(const std::string& token_secret, const std::string& name) {
  const TimePoint deadline = now() + kPatience;
  Error last = unreachable(access_.address);
  while (now() < deadline) {
    const std::optional<LinkEvent> event = link_->receive();
    if (!event) {
      wait_for(link_->fd(), deadline - now());
      continue;
    }
    if (std::holds_alternative<LinkUp>(*event)) {
      ATOLL_TRY(link_->send(Enrol{kProtocolVersion, token_secret, name}));
    } else if (const auto* message = std::get_if<Message>(&*event)) {
      if (const auto* enrolled = std::get_if<Enrolled>(message)) {
        return *enrolled;
      }
      if (const auto* refused = std::get_if<Refused>(message)) {
        return refused->error;
      }
    } else if (const auto* down = std::get_if<LinkDown>(&*event)) {
      last = down->why;
    } else if (const auto* error = std::get_if<Error>(&*event)) {
      return *error;
    }
  }
  return last;
}

std::string json_line(const json& document) { return document.dump(-1, ' ', false, json::error_handler_t::replace); }

Exit show(const Invocation& invocation, const Result<json>& document,
          std::string (*render)(const json& document, const Terminal& terminal)) {
  if (!document) {
    return report(invocation, document.error());
  }
  invocation.streams.out << (invocation.json ? json_line(*document) + "\n" : render(*document, invocation.terminal)) << std::flush;
  return Exit::ok;
}

void pause_between_questions(Duration duration) { std::this_thread::sleep_for(std::max(duration, Duration::zero())); }

}  // namespace atl
