// What of the messages does not touch the wire.
#include "transport/control/message.hpp"

#include <array>

namespace atl {
namespace {

// In the order of the variant.
constexpr std::array<std::string_view, 43> kKinds = {"hello",           "heartbeat",
                                                     "ready",           "exchanged",
                                                     "exchange_failed", "withdrawn",
                                                     "merged",          "checkpointed",
                                                     "caught_up",       "island_event",
                                                     "timeline",        "run_ended",
                                                     "leave",           "welcome",
                                                     "refused",         "invite",
                                                     "new_epoch",       "exchange",
                                                     "commit",          "abort",
                                                     "offer",           "catch_up",
                                                     "serve",           "release",
                                                     "enrol",           "enrolled",
                                                     "request",         "reply",
                                                     "drain",           "cut",
                                                     "pair_query",      "pair_answer",
                                                     "assignment",      "assignment_report",
                                                     "path_report",     "neighbours",
                                                     "task_images",     "copied",
                                                     "holds",           "over",
                                                     "relays",          "ways",
                                                     "own_relay"};
static_assert(kKinds.size() == std::variant_size_v<Message>);

}  // namespace

std::string_view kind_of(const Message& message) { return kKinds[message.index()]; }

Error protocol_mismatch(std::uint32_t sender, std::uint32_t receiver) {
  return Error{Code::conflict, "the sender speaks protocol version " + std::to_string(sender) + ", the receiver version " +
                                   std::to_string(receiver) + ": install the same version of atoll on both sides"};
}

}  // namespace atl
