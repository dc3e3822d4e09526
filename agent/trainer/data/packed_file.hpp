// A file that may be packed with gzip, as a whole.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "transport/base/result.hpp"

namespace atl {

// The whole of a file, unpacked if it is gzip. Errors: not_found, io; corrupt if it is cut short or larger than 64 GiB unpacked. Each names the file.
Result<std::vector<std::uint8_t>> read_unpacked(const std::string& path);

}  // namespace atl
