// Who may talk to this coordinator: keys with a role, and the one-time tokens that enrol new keys.
//
// Every message arrives with the public key that CURVE proved. A key is in the ledger with its role (island or operator), or it
// is unknown and may do nothing but enrol with a token. A token is used once, expires, and only its SHA-256 is kept. Revoking a
// key ends its access with its next message.
// Threads: the coordinator's.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/ledger/database.hpp"
#include "transport/base/bytes.hpp"
#include "transport/base/ids.hpp"
#include "transport/base/result.hpp"
#include "transport/base/time.hpp"
#include "transport/control/message.hpp"

namespace atl::coordinator {

// A viewer has no key: its token lets it see the page, as often as it likes, until the token expires or is revoked.
enum class Role : std::uint8_t { island, operator_, viewer };
// "island", "operator", "viewer".
std::string_view to_string(Role role);
// Errors: invalid_argument naming the roles.
Result<Role> role_from_string(std::string_view text);

struct EnrolledKey {
  std::string public_key;  // Z85
  Role role = Role::island;
  IslandId island;  // derived from the key, whatever the role
  std::string name;
  TimePoint enrolled;
  bool revoked = false;
  friend bool operator==(const EnrolledKey&, const EnrolledKey&) = default;
};

struct Token {
  std::string id;  // "t-93ab12"
  Role role = Role::island;
  std::string name;  // of the joiner, "": as it likes; of a viewer the island that alone it sees, "": it sees all
  TimePoint created;
  TimePoint expires;
  std::string used_by;  // IslandId's text; "": not used
  TimePoint used;
  bool revoked = false;
  // "usable", "used", "expired" or "revoked".
  [[nodiscard]] std::string_view state(TimePoint now) const;
};

class Admission {
 public:
  // Reads the keys; the database must outlive it.
  static Result<Admission> load(Database& database);

  // The key's place, or null if it was never enrolled. Cost: one map lookup.
  [[nodiscard]] const EnrolledKey* find(std::string_view public_key) const;
  [[nodiscard]] const std::map<std::string, EnrolledKey, std::less<>>& keys() const { return keys_; }

  // Enrols a key without a token: the first operator's.
  Status admit(const std::string& public_key, Role role, const std::string& name, TimePoint now);
  // Enrols the key that sent this. Repeating it with the same key gives the same answer.
  // Errors: unauthorized for a token that is unknown, used by another key, expired or revoked, and for a revoked key; conflict if
  // the name is taken, with a free one; invalid_argument for a name that cannot be one.
  Result<EnrolledKey> enrol(const std::string& public_key, const Enrol& request, TimePoint now);

  // `secret` is what Enrol must carry. Errors: conflict if the id is taken; invalid_argument for a name that cannot be one.
  Status create_token(const Token& token, std::string_view secret);
  // Newest first.
  Result<std::vector<Token>> tokens();
  // The SHA-256 of the secrets of those viewers' tokens that are good now, each with the island that alone it shows ("": all).
  Result<std::map<Digest, std::string>> viewers(TimePoint now);
  // Revokes an unused token; `id` in full or a prefix that fits one token alone. Errors: not_found, conflict.
  Result<Token> revoke_token(std::string_view id);
  Status revoke_key(const std::string& public_key);

 private:
  explicit Admission(Database& database) : database_(&database) {}
  Status store(const EnrolledKey& key, const std::string& token, TimePoint now);
  [[nodiscard]] bool taken(Role role, std::string_view name) const;
  [[nodiscard]] std::string free_name(Role role, const std::string& name) const;

  Database* database_;
  std::map<std::string, EnrolledKey, std::less<>> keys_;
};

// A name a person gives to an island or an operator: 1 to 64 of letters, digits, '-', '_', '.', beginning with a letter or digit.
Status check_name(std::string_view name);

}  // namespace atl::coordinator
