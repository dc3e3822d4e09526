// Event files for TensorBoard: a run's metrics as scalars over its rounds.
//
// A file is a list of records (TFRecord): length as u64, its masked CRC-32C, the bytes, their masked CRC-32C, all little-endian. The bytes
// are an Event message of TensorFlow's event.proto: wall_time (1, double), step (2, int64), file_version (3, string) or summary (5), of
// whose values (1) each has a tag (1) and a simple_value (2, float). Threads: pure, but for the file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/recorded/run_metrics.hpp"
#include "transport/base/result.hpp"

namespace atl {

// CRC-32C (Castagnoli) of the bytes.
std::uint32_t crc32c(std::string_view bytes);

// The content of an event file: a tag for each number of the rows, step is the round.
std::string tensorboard_events(const RunMetrics& metrics);

// Writes FOLDER/RUN-NAME/events.out.tfevents.SECONDS.atoll, as TensorBoard expects one folder a run; writing again replaces it. The value
// is the path. Errors: those of OutputFile; io where the folder cannot be made.
Result<std::string> write_tensorboard(const std::string& folder, const RunMetrics& metrics);

}  // namespace atl
