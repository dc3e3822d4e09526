#include "coordinator/ledger/admission.hpp"

#include <algorithm>
#include <utility>

#include "transport/identity/identity.hpp"
#include "transport/identity/sha256.hpp"

namespace atl::coordinator {
namespace {

constexpr std::string_view kTokenColumns = "SELECT token, role, name, created_ms, expires_ms, used_by, used_ms, revoked FROM tokens ";

Result<Token> read_token(const Statement& row) {
  Token token;
  token.id = row.text(0);
  ATOLL_ASSIGN(token.role, role_from_string(row.text(1)));
  token.name = row.text(2);
  token.created = from_unix_ms(row.integer(3));
  token.expires = from_unix_ms(row.integer(4));
  token.used_by = row.text(5);
  token.used = from_unix_ms(row.integer(6));
  token.revoked = row.boolean(7);
  return token;
}

Error unauthorized(std::string why) { return Error{Code::unauthorized, std::move(why)}; }

}  // namespace

std::string_view to_string(Role role) { return role == Role::island ? "island" : role == Role::operator_ ? "operator" : "viewer"; }

Result<Role> role_from_string(std::string_view text) {
  if (text == "island") {
    return Role::island;
  }
  if (text == "operator") {
    return Role::operator_;
  }
  if (text == "viewer") {
    return Role::viewer;
  }
  return Error{Code::invalid_argument, "there is no role '" + std::string(text.substr(0, 40)) + "'; roles are island, operator and viewer"};
}

Status check_name(std::string_view name) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); };
  const bool good = !name.empty() && name.size() <= 64 && letter(name.front()) &&
                    std::all_of(name.begin(), name.end(), [&](char c) { return letter(c) || c == '-' || c == '_' || c == '.'; });
  return good ? Status{}
              : Status{
                    Error{Code::invalid_argument,
                          "a name is 1 to 64 letters, digits, '-', '_' or '.', and begins with a letter or digit; choose one with --name"}};
}

std::string_view Token::state(TimePoint now) const {
  if (revoked) {
    return "revoked";
  }
  if (!used_by.empty()) {
    return "used";
  }
  return now >= expires ? "expired" : "usable";
}

Result<Admission> Admission::load(Database& database) {
  Admission admission(database);
  auto rows = database.prepare("SELECT public_key, role, island, name, enrolled_ms, revoked FROM keys");
  for (;;) {
    ATOLL_ASSIGN(const bool there, rows.row());
    if (!there) {
      return admission;
    }
    EnrolledKey key;
    key.public_key = rows.text(0);
    ATOLL_ASSIGN(key.role, role_from_string(rows.text(1)));
    key.island = IslandId(rows.text(2));
    key.name = rows.text(3);
    key.enrolled = from_unix_ms(rows.integer(4));
    key.revoked = rows.boolean(5);
    admission.keys_.emplace(key.public_key, key);
  }
}

const EnrolledKey* Admission::find(std::string_view public_key) const {
  const auto found = keys_.find(public_key);
  return found == keys_.end() ? nullptr : &found->second;
}

bool Admission::taken(Role role, std::string_view name) const {
  return std::any_of(keys_.begin(), keys_.end(),
                     [&](const auto& entry) { return entry.second.role == role && !entry.second.revoked && entry.second.name == name; });
}

std::string Admission::free_name(Role role, const std::string& name) const {
  std::string free = name;
  for (int number = 2; taken(role, free); ++number) {
    free = name.substr(0, 56) + "-" + std::to_string(number);
  }
  return free;
}

Status Admission::store(const EnrolledKey& key, const std::string& token, TimePoint now) {
  const Status stored = database_->transaction([&]() -> Status {
    ATOLL_TRY(database_
                  ->prepare("INSERT INTO keys(public_key, role, island, name, enrolled_ms, revoked) VALUES(?,?,?,?,?,0) "
                            "ON CONFLICT(public_key) DO UPDATE SET role=excluded.role, name=excluded.name, "
                            "enrolled_ms=excluded.enrolled_ms, revoked=0")
                  .bind(key.public_key)
                  .bind(to_string(key.role))
                  .bind(key.island.text)
                  .bind(key.name)
                  .bind(unix_ms(key.enrolled))
                  .run());
    if (token.empty()) {
      return {};
    }
    return database_->prepare("UPDATE tokens SET used_by=?, used_ms=? WHERE token=?")
        .bind(key.island.text)
        .bind(unix_ms(now))
        .bind(token)
        .run();
  });
  if (stored) {
    keys_.insert_or_assign(key.public_key, key);
  }
  return stored;
}

Status Admission::admit(const std::string& public_key, Role role, const std::string& name, TimePoint now) {
  ATOLL_TRY(check_name(name));
  return store(EnrolledKey{public_key, role, island_of(public_key), name, now, false}, "", now);
}

Result<EnrolledKey> Admission::enrol(const std::string& public_key, const Enrol& request, TimePoint now) {
  const EnrolledKey* present = find(public_key);
  if (request.protocol != kProtocolVersion) {
    return Error{Code::conflict, "this coordinator speaks protocol " + std::to_string(kProtocolVersion) + ", you speak " +
                                     std::to_string(request.protocol) + "; install the same version of atoll on both"};
  }
  if (present != nullptr && !present->revoked) {
    return *present;  // enrolled already; the token, if it is another one, stays good for somebody else
  }
  auto row = database_->prepare(std::string(kTokenColumns) + "WHERE secret=?");
  row.bind(sha256(as_bytes(request.token_secret)));
  ATOLL_ASSIGN(const bool there, row.row());
  if (!there) {
    return unauthorized("this join token is not one of this coordinator's; ask for a new one (`atoll token create`)");
  }
  ATOLL_ASSIGN(const Token token, read_token(row));
  if (token.role == Role::viewer) {
    return unauthorized("the token " + token.id +
                        " is for viewers of the page, not for joining: open the page's address with /?token=TOKEN");
  }
  const std::string_view state = token.state(now);
  if (state != "usable") {
    const std::string when = state == "used"      ? "was used at " + iso_time(token.used)
                             : state == "expired" ? "expired at " + iso_time(token.expires)
                                                  : "was revoked";
    return unauthorized("the join token " + token.id + " " + when + "; ask for a new one (`atoll token create`)");
  }
  std::string name = token.name.empty() ? request.name : token.name;
  if (name.empty() && token.role == Role::operator_) {
    name = free_name(token.role, "operator");  // whoever does not care what an operator is called
  }
  ATOLL_TRY(check_name(name));
  if (taken(token.role, name)) {
    return Error{Code::conflict, "an " + std::string(to_string(token.role)) + " named '" + name +
                                     "' is enrolled already; choose another name (--name " + free_name(token.role, name) +
                                     "), the token is still good"};
  }
  const EnrolledKey key{public_key, token.role, island_of(public_key), name, now, false};
  ATOLL_TRY(store(key, token.id, now));
  return key;
}

Status Admission::create_token(const Token& token, std::string_view secret) {
  if (!token.name.empty()) {
    ATOLL_TRY(check_name(token.name));
  }
  return database_->transaction([&]() -> Status {
    return database_
        ->prepare(
            "INSERT INTO tokens(token, secret, role, name, created_ms, expires_ms, used_by, used_ms, revoked) VALUES(?,?,?,?,?,?,'',0,0)")
        .bind(token.id)
        .bind(sha256(as_bytes(secret)))
        .bind(to_string(token.role))
        .bind(token.name)
        .bind(unix_ms(token.created))
        .bind(unix_ms(token.expires))
        .run();
  });
}

Result<std::vector<Token>> Admission::tokens() {
  auto rows = database_->prepare(std::string(kTokenColumns) + "ORDER BY created_ms DESC, token LIMIT 1000");
  std::vector<Token> tokens;
  for (;;) {
    ATOLL_ASSIGN(const bool there, rows.row());
    if (!there) {
      return tokens;
    }
    ATOLL_ASSIGN(Token token, read_token(rows));
    tokens.push_back(std::move(token));
  }
}

Result<std::map<Digest, std::string>> Admission::viewers(TimePoint now) {
  auto rows = database_->prepare("SELECT secret, name FROM tokens WHERE role='viewer' AND revoked=0 AND expires_ms>? LIMIT 1000");
  rows.bind(unix_ms(now));
  std::map<Digest, std::string> viewers;
  for (;;) {
    ATOLL_ASSIGN(const bool there, rows.row());
    if (!there) {
      return viewers;
    }
    viewers.emplace(rows.digest(0), rows.text(1));
  }
}

Result<Token> Admission::revoke_token(std::string_view id) {
  Token token;
  {
    auto rows = database_->prepare(std::string(kTokenColumns) + "WHERE substr(token, 1, ?)=? ORDER BY length(token), token LIMIT 2");
    rows.bind(static_cast<std::int64_t>(id.size())).bind(id);
    ATOLL_ASSIGN(const bool there, rows.row());
    if (id.empty() || !there) {
      return Error{Code::not_found, "there is no token '" + std::string(id.substr(0, 64)) + "'; `atoll token list` shows them"};
    }
    ATOLL_ASSIGN(token, read_token(rows));
    ATOLL_ASSIGN(const bool another, rows.row());
    if (another && token.id != id) {
      return Error{Code::conflict, "'" + std::string(id) + "' fits more than one token: " + token.id + ", " + rows.text(0)};
    }
  }
  ATOLL_TRY(database_->transaction(
      [&]() -> Status { return database_->prepare("UPDATE tokens SET revoked=1 WHERE token=?").bind(token.id).run(); }));
  token.revoked = true;
  return token;
}

Status Admission::revoke_key(const std::string& public_key) {
  ATOLL_TRY(database_->transaction(
      [&]() -> Status { return database_->prepare("UPDATE keys SET revoked=1 WHERE public_key=?").bind(public_key).run(); }));
  if (const auto found = keys_.find(public_key); found != keys_.end()) {
    found->second.revoked = true;
  }
  return {};
}

}  // namespace atl::coordinator
