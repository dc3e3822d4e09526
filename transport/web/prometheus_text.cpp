#include "transport/web/prometheus_text.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <system_error>

namespace atl::prometheus {

std::string label(std::string_view name, std::string_view value) {
  std::string text = std::string(name) + "=\"";
  for (const char c : value) {
    text += c == '\\' ? "\\\\" : c == '"' ? "\\\"" : c == '\n' ? "\\n" : std::string(1, c);
  }
  return text + "\"";
}

std::string head(std::string_view name, std::string_view type, std::string_view help) {
  return "# HELP " + std::string(name) + " " + std::string(help) + "\n# TYPE " + std::string(name) + " " + std::string(type) + "\n";
}

std::string line(std::string_view name, std::string_view labels, double value) {
  if (!std::isfinite(value)) {
    return "";
  }
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return std::string(name) + "{" + std::string(labels) + "} " + std::string(text.data(), end) + "\n";
}

std::string disk_lines(const std::filesystem::path& folder, std::string_view labels) {
  std::error_code failure;
  const std::filesystem::space_info space = std::filesystem::space(folder, failure);
  if (failure) {
    return "";
  }
  constexpr const char* kSize = "atoll_disk_size_bytes";
  constexpr const char* kFree = "atoll_disk_free_bytes";
  return head(kSize, "gauge", "Size of the disk with the state directory.") + line(kSize, labels, static_cast<double>(space.capacity)) +
         head(kFree, "gauge", "Room on the disk with the state directory.") + line(kFree, labels, static_cast<double>(space.available));
}

}  // namespace atl::prometheus
