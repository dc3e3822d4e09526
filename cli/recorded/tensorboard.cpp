#include "cli/recorded/tensorboard.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "cli/views/parts/document.hpp"
#include "transport/base/bytes.hpp"
#include "transport/base/output_file.hpp"

namespace atl {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::array kTags = {std::pair{"outer_loss", "loss/validation"},
                              std::pair{"local_loss", "loss/validation of islands"},
                              std::pair{"training_loss", "loss/training"},
                              std::pair{"norm", "contribution/norm"},
                              std::pair{"wait_seconds", "round/wait seconds"},
                              std::pair{"tokens", "round/tokens"},
                              std::pair{"bytes_sent", "round/bytes sent"},
                              std::pair{"islands", "round/islands"},
                              std::pair{"step", "round/inner step"}};

template <typename T>
std::string raw(T value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7U) {
    bytes += static_cast<char>((value & 0x7FU) | 0x80U);
  }
  return bytes + static_cast<char>(value);
}

// Fields of a message of Protocol Buffers: a key that holds number and kind, then the value.
std::string text_field(unsigned number, std::string_view bytes) {
  return varint(number << 3U | 2U) + varint(bytes.size()) + std::string(bytes);
}
std::string double_field(unsigned number, double value) { return varint(number << 3U | 1U) + raw(value); }
std::string float_field(unsigned number, float value) { return varint(number << 3U | 5U) + raw(value); }
std::string int_field(unsigned number, std::uint64_t value) { return varint(number << 3U) + varint(value); }

std::uint32_t masked(std::uint32_t crc) { return ((crc >> 15U) | (crc << 17U)) + 0xA282EAD8U; }

std::string record(const std::string& bytes) {
  const std::string length = raw(static_cast<std::uint64_t>(bytes.size()));
  return length + raw(masked(crc32c(length))) + bytes + raw(masked(crc32c(bytes)));
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t crc = 0xFFFFFFFFU;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1U) ^ ((crc & 1U) != 0 ? 0x82F63B78U : 0U);
    }
  }
  return ~crc;
}

std::string tensorboard_events(const RunMetrics& metrics) {
  const double begin = metrics.rows.empty() ? 0 : number_at(metrics.rows.front(), "time_unix_ms").value_or(0) / 1000;
  std::string file = record(double_field(1, begin) + text_field(3, "brain.Event:2"));
  for (const nlohmann::json& row : metrics.rows) {
    std::string summary;
    for (const auto& [key, tag] : kTags) {
      if (const auto value = number_at(row, key)) {
        summary += text_field(1, text_field(1, tag) + float_field(2, static_cast<float>(*value)));
      }
    }
    file += record(double_field(1, number_at(row, "time_unix_ms").value_or(0) / 1000) +
                   int_field(2, static_cast<std::uint64_t>(number_at(row, "round").value_or(0))) + text_field(5, summary));
  }
  return file;
}

Result<std::string> write_tensorboard(const std::string& folder, const RunMetrics& metrics) {
  // The run's name is somebody else's word, its id is not: only what is harmless in a file's name is taken over.
  std::string name;
  for (const char c : metrics.name + "-" + metrics.id) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
    name += plain ? c : '_';
  }
  const std::filesystem::path where = std::filesystem::path(folder) / name;
  std::error_code error;
  std::filesystem::create_directories(where, error);
  if (error) {
    return Error{Code::io, where.string() + " cannot be made: " + error.message()};
  }
  const double begin = metrics.rows.empty() ? 0 : number_at(metrics.rows.front(), "time_unix_ms").value_or(0) / 1000;
  const std::string path =
      where / ("events.out.tfevents." + std::to_string(static_cast<std::int64_t>(std::clamp(begin, 0.0, 1e12))) + ".atoll");
  ATOLL_ASSIGN(OutputFile file, OutputFile::create(path));
  ATOLL_TRY(file.write(as_bytes(tensorboard_events(metrics))));
  ATOLL_TRY(file.finish());
  return path;
}

}  // namespace atl
