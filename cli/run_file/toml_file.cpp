#include "cli/run_file/toml_file.hpp"

#include <fstream>
#include <system_error>

#include "cli/views/parts/printable.hpp"
#include "transport/base/plain_text.hpp"

namespace atl {

std::string problems_text(const std::string& source, const std::vector<TomlProblem>& problems) {
  std::string text;
  for (const TomlProblem& problem : problems) {
    text += source + ":" + std::to_string(problem.line) + ":" + std::to_string(problem.column) + ": " + problem.why + "\n";
  }
  return text;
}

Result<std::string> read_toml_file(const std::filesystem::path& path) {
  const std::string name = printable(path.string(), 300);
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::not_found) {
    return Error{Code::not_found, name + ": there is no such file"};
  }
  if (!std::filesystem::is_regular_file(status)) {
    return Error{Code::invalid_argument, name + ": not a file that can be read" + (error ? " (" + error.message() + ")" : "")};
  }
  std::ifstream stream(path, std::ios::binary);
  std::string text(kLargestTomlFile + 1, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (stream.bad() || (!stream.eof() && stream.fail())) {
    return Error{Code::io, name + ": cannot be read; check its permissions"};
  }
  text.resize(static_cast<std::size_t>(stream.gcount()));
  if (const std::string other = settle_encoding(text); !other.empty()) {
    return Error{Code::invalid_argument, name + " " + other};
  }
  return text;
}

std::string listed(std::span<const std::string_view> names) {
  std::string all;
  for (const std::string_view name : names) {
    all += (all.empty() ? "" : ", ") + std::string(name);
  }
  return all;
}

}  // namespace atl
