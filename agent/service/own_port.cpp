#include "agent/service/own_port.hpp"

#include <charconv>
#include <fstream>
#include <optional>
#include <string>
#include <utility>

#include "agent/storage/durable_file.hpp"
#include "transport/base/address.hpp"
#include "transport/base/log.hpp"
#include "transport/base/own_disk.hpp"

namespace atl::agent {
namespace {

// What is no port is no memory of one.
std::optional<std::uint16_t> remembered_port(const std::filesystem::path& file) {
  std::ifstream stream(file);
  std::string text;
  std::getline(stream, text);
  std::uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  return error == std::errc{} && end == text.data() + text.size() && port != 0 ? std::optional(port) : std::nullopt;
}

}  // namespace

Result<std::unique_ptr<ZmqBulkLink>> open_bulk_link(ZmqBulkSettings settings, const std::filesystem::path& state,
                                                    std::shared_ptr<BlobStore> blobs) {
  if (!settings.bind.empty()) {
    return ZmqBulkLink::open(settings, std::move(blobs));
  }
  const std::filesystem::path file = state / "port";
  const std::optional<std::uint16_t> before = remembered_port(file);
  const std::uint16_t wanted = before.value_or(kAgentPort);
  settings.bind = to_string(Address{"*", wanted});
  Result<std::unique_ptr<ZmqBulkLink>> link = ZmqBulkLink::open(settings, blobs);
  if (!link && link.error().code == Code::conflict) {
    settings.bind = "tcp://*:*";
    link = ZmqBulkLink::open(settings, std::move(blobs));
  }
  if (!link) {
    return link;
  }
  ATOLL_ASSIGN(const Address bound, parse_address((*link)->bound_address()));
  if (bound.port != wanted) {
    log_warning("port " + std::to_string(wanted) + " is in use, so other islands reach this one at port " + std::to_string(bound.port) +
                (before ? " this time" : " from now on") + "; --bind 'tcp://*:PORT' chooses one");
  }
  if (!before) {
    if (const Status kept = replace_file(on_this_machine(file), as_bytes(std::to_string(bound.port) + "\n")); !kept) {
      log_warning("the port is not remembered: " + kept.error().why);
    }
  }
  return link;
}

void remember_mapping(const std::filesystem::path& state, const std::string& address) {
  if (!address.empty()) {
    (void)replace_file(on_this_machine(state / "mapped"), as_bytes(address + "\n"));  // doctor alone reads it
  } else {
    std::error_code none;
    std::filesystem::remove(state / "mapped", none);
  }
}

std::string remembered_mapping(const std::filesystem::path& state) {
  std::string address;
  std::getline(std::ifstream(state / "mapped"), address);
  return address;
}

}  // namespace atl::agent
