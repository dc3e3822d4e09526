#include "cli/settings/state_directory.hpp"

#include <algorithm>
#include <array>
#include <fstream>
#include <system_error>

#include "cli/run_file/toml.hpp"
#include "cli/run_file/toml_guard.hpp"
#include "cli/views/parts/printable.hpp"
#include "transport/base/address.hpp"
#include "transport/base/plain_text.hpp"
#include "transport/base/private_folder.hpp"
#include "transport/base/spelling.hpp"

namespace atl {
namespace {

namespace fs = std::filesystem;

std::optional<std::string> set_value(const Environment& environment, const std::string& name) {
  const auto value = environment(name);
  return value && !value->empty() ? value : std::nullopt;
}

// The address that this machine dials for one that a coordinator listens on.
Result<std::string> dial_address(const std::string& bind) {
  ATOLL_ASSIGN(Address address, parse_address(bind));
  if (address.host == "*" || address.host == "0.0.0.0") {
    address.host = "127.0.0.1";
  } else if (address.host == "::") {
    address.host = "::1";
  }
  return to_string(address);
}

// Address and coordinator's key, as the state directory has them.
Result<CoordinatorAccess> read_state(const fs::path& state) {
  CoordinatorAccess access;
  if (is_there(state / "coordinator.toml")) {
    ATOLL_ASSIGN(const CoordinatorFile file, read_coordinator_file(state / "coordinator.toml"));
    ATOLL_ASSIGN(access.address, dial_address(file.bind));
    ATOLL_ASSIGN(const KeyPair keys, read_key_file(state / "keys" / "coordinator"));
    access.coordinator_key = keys.public_key;
    return access;
  }
  if (is_there(state / "operator.toml")) {
    ATOLL_ASSIGN(const CoordinatorFile file, read_coordinator_file(state / "operator.toml"));
    access.address = file.address;
    access.coordinator_key = file.coordinator_key;
    return access;
  }
  return Error{Code::unavailable,
               "no coordinator is known in " + state.string() +
                   "; make one here with: atoll coordinator init, or become an operator of one with: atoll token use TOKEN"};
}

}  // namespace

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

Result<fs::path> state_directory(const std::string& given, const Environment& environment) {
  if (!given.empty()) {
    return fs::path(given);
  }
  if (const auto state = set_value(environment, "ATOLL_STATE")) {
    return fs::path(*state);
  }
  if (const auto xdg = set_value(environment, "XDG_STATE_HOME")) {
    return fs::path(*xdg) / "atoll";
  }
  if (const auto home = set_value(environment, "HOME")) {
    return fs::path(*home) / ".local" / "state" / "atoll";
  }
  return Error{Code::invalid_argument, "no state directory: give --state DIR or set ATOLL_STATE or HOME"};
}

Result<CoordinatorAccess> find_coordinator(const CoordinatorOptions& options, const Environment& environment) {
  if (!options.key.empty() && !is_there(options.key)) {
    return Error{Code::unauthorized,
                 "there is no operator's key at " + options.key + " (--key); without --key the state directory's is taken"};
  }
  const bool by_key = options.state.empty() && !options.key.empty();
  const std::string given = by_key ? fs::absolute(options.key).parent_path().parent_path().string() : options.state;
  ATOLL_ASSIGN(const fs::path state, state_directory(given, environment));
  CoordinatorAccess access;
  if (Result<CoordinatorAccess> known = read_state(state)) {
    access = std::move(known).value();
  } else if (!options.insecure || options.coordinator.empty()) {
    return by_key ? Error{Code::unavailable,
                          "the key " + options.key + " (--key) lies in no coordinator's state directory; name that with --state DIR"}
                  : known.error();
  }
  access.insecure = options.insecure;
  if (!options.coordinator.empty()) {
    ATOLL_ASSIGN(access.address, dial_address(options.coordinator));
  }
  const fs::path key = options.key.empty() ? state / "keys" / "operator" : fs::path(options.key);
  if (!is_there(key)) {
    return Error{Code::unauthorized,
                 "there is no operator's key at " + key.string() + "; give --key FILE, or become an operator with: atoll token use TOKEN"};
  }
  ATOLL_ASSIGN(access.keys, read_key_file(key));
  return access;
}

Status check_operator_file(const fs::path& state, const std::string& coordinator_key) {
  const fs::path path = state / "operator.toml";
  if (is_there(path)) {
    ATOLL_ASSIGN(const CoordinatorFile file, read_coordinator_file(path));
    if (file.coordinator_key != coordinator_key) {
      return Error{Code::conflict, path.string() + " names another coordinator (" + printable(file.address) + "); use another --state"};
    }
  }
  return {};
}

Status write_operator_file(const fs::path& state, const std::string& address, const std::string& coordinator_key) {
  const fs::path path = state / "operator.toml";
  ATOLL_TRY(check_operator_file(state, coordinator_key));
  ATOLL_TRY(make_private_folders(state));
  std::ofstream stream(path, std::ios::trunc);
  stream << "# the coordinator that this machine is an operator of\naddress = \"" << address << "\"\ncoordinator_key = '" << coordinator_key
         << "'\n";
  stream.close();
  return stream ? Status() : Error{Code::io, path.string() + " cannot be written; check the folder's permissions and the disk's space"};
}

Result<CoordinatorFile> read_coordinator_file(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) {
    return Error{is_there(path) ? Code::io : Code::not_found, path.string() + " cannot be read"};
  }
  std::string text(std::size_t{1} << 16, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(stream.gcount()));
  if (const std::string other = settle_encoding(text); !other.empty()) {
    return Error{Code::invalid_argument, path.string() + " " + other};
  }
  if (const std::optional<TomlFault> fault = find_toml_fault(text)) {
    return Error{Code::invalid_argument, path.string() + ":" + std::to_string(fault->line) + ": " + fault->why};
  }
  try {
    const toml::table table = toml::parse(text);
    static constexpr std::array<std::string_view, 7> kKeys = {"name", "bind", "advertise", "address", "coordinator_key", "network", "web"};
    for (const auto& [key, value] : table) {
      const std::string_view word = key.str();
      if (word == "notify" && value.is_table()) {
        continue;  // read_notify_settings (notify_settings.hpp) reads it
      }
      const bool known = std::ranges::find(kKeys, word) != kKeys.end();
      const std::string_view near = nearest(word, kKeys);
      if (!known || !value.is_string()) {
        return Error{Code::invalid_argument,
                     path.string() + ":" + std::to_string(key.source().begin.line) + ": " +
                         (known ? in_quotes(word) + " is a text, in quotation marks"
                                : "unknown key " + in_quotes(word) + (near.empty() ? "" : "; nearest is " + std::string(near)))};
      }
    }
    const auto text_of = [&](std::string_view key) { return table[key].value_or(std::string()); };
    return CoordinatorFile{text_of("name"),    text_of("bind"), text_of("advertise"), text_of("address"), text_of("coordinator_key"),
                           text_of("network"), text_of("web")};
  } catch (const toml::parse_error& error) {
    return Error{Code::invalid_argument,
                 path.string() + ":" + std::to_string(error.source().begin.line) + ": not TOML: " + printable(error.description(), 300)};
  }
}

}  // namespace atl
