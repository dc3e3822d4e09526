// The text format of Prometheus (0.0.4), line by line. Names end in their unit, base units only; what only grows ends in _total.
// Threads: pure, but for disk_lines, which asks the file system.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace atl::prometheus {

inline constexpr const char* kType = "text/plain; version=0.0.4; charset=utf-8";

// name="value", with what the format wants escaped.
std::string label(std::string_view name, std::string_view value);
// What stands before the lines of a metric. type: counter | gauge.
std::string head(std::string_view name, std::string_view type, std::string_view help);
// name{labels} value; "" where the value is not finite: what is not known has no line.
std::string line(std::string_view name, std::string_view labels, double value);
// atoll_disk_size_bytes and atoll_disk_free_bytes of the disk with this folder; "" where that is not known.
std::string disk_lines(const std::filesystem::path& folder, std::string_view labels);

}  // namespace atl::prometheus
