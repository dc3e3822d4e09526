#include "coordinator/service/init.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "coordinator/core/network.hpp"
#include "coordinator/ledger/admission.hpp"
#include "coordinator/ledger/durable_file.hpp"
#include "coordinator/ledger/ledger.hpp"
#include "transport/base/address.hpp"
#include "transport/base/private_folder.hpp"
#include "transport/bulk/interface_addresses.hpp"
#include "transport/identity/identity.hpp"

namespace atl::coordinator {
namespace {

std::string host_name() {
  std::array<char, 256> text{};
  if (::gethostname(text.data(), text.size() - 1) != 0 || text[0] == '\0') {
    return "coordinator";
  }
  return text.data();
}

std::string toml_text(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
    }
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out + "\"";
}

}  // namespace

CoordinatorSettings default_settings() {
  const std::string bind = to_string(Address{"*", kDefaultPort});
  return {host_name(), bind, advertised_for(bind)};
}

std::string advertised_for(const std::string& bind) {
  auto address = parse_address(bind);
  if (!address) {
    return bind;  // check_settings says what is wrong with it
  }
  if (address->host == "*" || address->host == "0.0.0.0" || address->host == "::") {
    address->host = first_host(interface_addresses()).value_or("127.0.0.1");
  }
  return to_string(*address);
}

std::string to_toml(const CoordinatorSettings& settings) {
  return "# Atoll coordinator. Restart it after a change; tokens that were handed out keep the address they carry.\n"
         "name = " +
         toml_text(settings.name) +
         "\n"
         "# Where it listens: tcp://*:PORT for every interface.\n"
         "bind = " +
         toml_text(settings.bind) +
         "\n"
         "# What islands and operators elsewhere dial: it goes into join tokens.\n"
         "advertise = " +
         toml_text(settings.advertise) +
         "\n# How soon silence counts as a loss: local (1.25 s), lan (5 s) or wan (20 s).\n"
         "network = " +
         toml_text(settings.network) +
         "\n# Where its page is served, on this machine only (docs/web.md):\n"
         "# web = \"127.0.0.1:4480\"\n";
}

Status check_settings(const CoordinatorSettings& settings) {
  ATOLL_TRY(settings_for_network(settings.network));
  const auto bind = parse_address(settings.bind);
  if (!bind) {
    return with_context(bind.error(), "bind");
  }
  const auto advertise = parse_address(settings.advertise);
  if (!advertise) {
    return with_context(advertise.error(), "advertise");
  }
  if (advertise->host == "*" || advertise->host == "0.0.0.0" || advertise->host == "::") {
    return Error{Code::invalid_argument,
                 "advertise: " + settings.advertise + " is no address that an island can dial; give this machine's name or address"};
  }
  if (bind->port == 0 || advertise->port == 0) {
    return Error{Code::invalid_argument,
                 "a coordinator needs a port that others know; give one, such as tcp://*:" + std::to_string(kDefaultPort)};
  }
  return {};
}

Status init_coordinator(const std::filesystem::path& state, const CoordinatorSettings& settings) {
  ATOLL_TRY(check_settings(settings));
  std::error_code problem;
  if (std::filesystem::exists(settings_file(state), problem)) {
    return Error{Code::conflict,
                 state.string() + " is a coordinator's state already; start it with `atoll coordinator`, or choose another --state"};
  }
  ATOLL_TRY(make_private_folders(state));
  if (::chmod(state.c_str(), 0700) != 0) {
    return Error{Code::io, "cannot make " + state.string() + " private to its owner; choose another --state"};
  }
  ATOLL_ASSIGN(const KeyPair own, read_or_make_key_file(coordinator_key_file(state)));
  ATOLL_ASSIGN(const KeyPair first_operator, read_or_make_key_file(operator_key_file(state)));
  ATOLL_ASSIGN(Ledger ledger, Ledger::open(state));
  ATOLL_TRY(ledger.found(own.public_key));
  ATOLL_ASSIGN(Admission admission, Admission::load(ledger.database()));
  ATOLL_TRY(admission.admit(first_operator.public_key, Role::operator_, "operator", now()));
  // Last: it is what makes the directory a coordinator's.
  return write_durable(settings_file(state), to_toml(settings));
}

}  // namespace atl::coordinator
