#include "cli/link/join_token_source.hpp"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <istream>
#include <optional>

#include "cli/views/parts/printable.hpp"
#include "transport/base/plain_text.hpp"

namespace atl {
namespace {

constexpr std::size_t kLongestToken = 4096;

// The first line, without the spaces around it; "" if it is longer than any token. Errors: what it is instead of plain text.
Result<std::string> first_line(std::istream& in) {
  std::string line;
  for (int next = in.get(); next != std::istream::traits_type::eof() && next != '\n'; next = in.get()) {
    if (line.size() == kLongestToken) {
      return std::string();
    }
    line += static_cast<char>(next);
  }
  if (const std::string other = settle_encoding(line); !other.empty()) {
    return Error{Code::invalid_argument, other};
  }
  const std::size_t begin = line.find_first_not_of(" \t\r");
  return begin == std::string::npos ? std::string() : line.substr(begin, line.find_last_not_of(" \t\r") - begin + 1);
}

Result<std::string> token_in_file(const Invocation& invocation, const std::string& file) {
  const std::string name = file == "-" ? "standard input" : printable(file, 300);
  Result<std::string> token = std::string();
  if (file == "-") {
    token = first_line(invocation.streams.in);
  } else {
    std::error_code ignored;
    std::ifstream stream(file, std::ios::binary);
    const int number = errno;
    if (!stream || std::filesystem::is_directory(file, ignored)) {
      return Error{!stream && number == ENOENT ? Code::not_found : Code::io,
                   name + ": the join token cannot be read: " + std::strerror(stream ? EISDIR : number)};
    }
    token = first_line(stream);
  }
  if (!token) {
    return Error{token.error().code, name + " " + token.error().why};
  }
  return token->empty() ? Result<std::string>(Error{Code::invalid_argument, name + ": its first line is no join token"}) : token;
}

}  // namespace

Result<std::string> join_token_text(const Invocation& invocation, const std::string& argument, const std::string& file) {
  if (!argument.empty() && !file.empty()) {
    return Error{Code::invalid_argument, "give the join token once: as an argument or in a file"};
  }
  if (!argument.empty()) {
    return argument;
  }
  if (!file.empty()) {
    return token_in_file(invocation, file);
  }
  const std::optional<std::string> variable = invocation.environment(kJoinTokenVariable);
  ::unsetenv(kJoinTokenVariable);
  return variable.value_or("");
}

}  // namespace atl
