// A file that may be packed with gzip, as a whole, and what it may grow to.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "transport/base/result.hpp"

namespace atl {

// What data that is unpacked or decoded may take of this machine's memory: half of it.
std::uint64_t memory_for_data();

// From the first bytes of a file (all of it, or 64 KiB): how many bytes the whole of it has, if it is what it says.
using SizeFromHead = std::function<Result<std::uint64_t>(std::span<const std::uint8_t> head)>;

// The whole of a regular file, unpacked if it is gzip. A few packed bytes can unpack to any number: no more is read than the head
// announces. Errors: not_found, io; corrupt if it is cut short, longer than it says, or larger than memory_for_data; those of `size`. Each
// names the file.
Result<std::vector<std::uint8_t>> read_unpacked(const std::string& path, const SizeFromHead& size);

}  // namespace atl
