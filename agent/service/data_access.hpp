// What an island's owner lets runs read, and the files a run gets of it.
//
// A run file comes from whoever may submit runs; the disk belongs to the island's owner. So a run names a set, files or a url,
// and gets only what the owner mapped (`--data NAME=PATH`, PATH a file, a folder or a glob) or allowed (`--allow-data DIR`).
// Everything is decided on canonical paths, after symbolic links and `..`: what lies outside is refused, whatever it is called.
// Globs: `*`, `?`, `[…]` within one name, `**` for any number of folders; a name that exists is that name, whatever is in it. A folder
// means every regular file below it; names that begin with a dot are left out. Links to files and folders are followed as far as they lead
// to what is allowed; one that leads elsewhere, or nowhere, is an error that says so. A folder is entered once, however many links lead to
// it. Each file comes once, by the absolute path by which it was found (its folder is its class), in the byte order of these paths.
// Threads: plain values; the file system is read when `resolve_data` is called, a large tree takes a while.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "strategies/specification/run_spec.hpp"
#include "transport/base/result.hpp"

namespace atl {

// What the owner allowed.
struct DataPermissions {
  std::map<std::string, std::string> sets;     // NAME → file, folder or glob
  std::vector<std::filesystem::path> folders;  // --allow-data: run files may name files below these
};

// Reads one `NAME=PATH`. Errors: invalid_argument.
Status add_data_mapping(DataPermissions& permissions, std::string_view mapping);

// Fetches a url whose content has this SHA-256 into the island's cache and returns the file.
using Downloader = std::function<Result<std::filesystem::path>(const std::string& url, const std::string& sha256)>;

inline constexpr std::size_t kMaxDataFiles = 1'000'000;

// Who reads the files. The built-in trainer holds a part of them out by itself: a folder or pattern in which files for training lie beside
// others for validation or tests, by their names, is refused.
enum class DataReader : std::uint8_t { built_in, own };

// The files of a run on this island, at least one.
// Errors: unauthorized names the path and the flag that would allow it; not_found; io; invalid_argument for too many files, too deep a
// tree, or a folder with files for training and for validation; those of the downloader.
Result<std::vector<std::filesystem::path>> resolve_data(const DataSpec& spec, const DataPermissions& permissions,
                                                        const Downloader& download, DataReader reader = DataReader::own);

// [diffusion].features with its FILE, if it has one, as a path on this island. Errors: as above; invalid_argument if it stands for several
// files.
Result<std::string> resolve_features(const std::string& features, const DataPermissions& permissions);

// The regular files a path, folder or glob of this machine's user stands for, as above. Errors: as of resolve_data.
Result<std::vector<std::filesystem::path>> expand_files(const std::string& pattern);

// For people: "3 files of 1.1 MB: input.txt 1.1 MB, notes.txt 2.0 kB, and 1 more".
std::string listing_of(const std::vector<std::filesystem::path>& files);

// The part of it before the first name with a wildcard that does not exist as it is; all of it if there is none.
std::filesystem::path base_of_pattern(const std::string& pattern);

// True if a canonical path is `folder` or lies below it (both canonical).
[[nodiscard]] bool lies_within(const std::filesystem::path& path, const std::filesystem::path& folder);

}  // namespace atl
