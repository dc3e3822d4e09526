// This machine's file systems as a Disk.
//
// A confined disk holds one folder open, and every path of it is resolved below that descriptor (beneath.hpp): an absolute path, "..", or a
// link that leads out of the folder is an error, whoever made it and whenever. What is opened has to be a regular file: a pipe is not
// waited for, a terminal is not taken. Once the folder was removed, or another lies in its place, nothing more is written below it: an
// error says so.
#pragma once

#include <filesystem>
#include <memory>

#include "transport/base/disk.hpp"
#include "transport/base/result.hpp"

namespace atl {

// Made with its parents if it is not there. Errors: io.
Result<DiskPath> confined_to(const std::filesystem::path& folder);

// A path as a person gave it, anywhere on this machine; links are followed.
DiskPath on_this_machine(const std::filesystem::path& path);

}  // namespace atl
