#include "agent/service/data_access.hpp"

#include <fnmatch.h>

#include <algorithm>
#include <system_error>

#include "strategies/specification/run_rules.hpp"

namespace atl {
namespace fs = std::filesystem;
namespace {

constexpr int kMaxDepth = 64;

bool has_wildcard(std::string_view text) { return text.find_first_of("*?[") != std::string_view::npos; }

bool hidden(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.size() > 1 && name.front() == '.';
}

// A pattern's leading folder without wildcards, and the names after it.
struct Pattern {
  fs::path base;
  std::vector<std::string> rest;
};

Pattern split_pattern(const std::string& text) {
  Pattern pattern;
  for (const fs::path& part : fs::path(text)) {
    if (pattern.rest.empty() && !has_wildcard(part.string())) {
      pattern.base /= part;
    } else if (!part.empty()) {
      pattern.rest.push_back(part.string());
    }
  }
  if (pattern.base.empty()) {
    pattern.base = ".";
  }
  return pattern;
}

Error too_many() {
  return {Code::invalid_argument, "more than " + std::to_string(kMaxDataFiles) + " files; name a smaller folder or fewer, larger files"};
}

Error unreadable(const fs::path& path, const std::error_code& failure) { return {Code::io, path.string() + ": " + failure.message()}; }

// Collects what matches `rest` (from index `at`) below `folder`.
class Walk {
 public:
  explicit Walk(const std::vector<std::string>& rest) : rest_(rest) {}

  Status match(const fs::path& path, std::size_t at, int depth) {
    if (at == rest_.size()) {
      return take(path, depth);
    }
    std::error_code failure;
    if (depth > kMaxDepth || !fs::is_directory(path, failure)) {
      return {};
    }
    const std::string& part = rest_[at];
    if (part == "..") {
      return match(path / part, at + 1, depth + 1);
    }
    if (part == "**") {
      ATOLL_TRY(match(path, at + 1, depth + 1));
    }
    ATOLL_ASSIGN(const std::vector<fs::path> children, children_of(path));
    for (const fs::path& child : children) {
      const std::string name = child.filename().string();
      if (part == "**") {
        if (!hidden(child) && !fs::is_symlink(child, failure)) {
          ATOLL_TRY(match(child, at, depth + 1));
        }
      } else if (::fnmatch(part.c_str(), name.c_str(), FNM_PERIOD) == 0) {
        ATOLL_TRY(match(child, at + 1, depth + 1));
      }
    }
    return {};
  }

  std::vector<fs::path> found;

 private:
  // A regular file is taken, a folder stands for all below it.
  Status take(const fs::path& path, int depth) {
    std::error_code failure;
    const fs::file_status status = fs::status(path, failure);
    if (fs::is_regular_file(status)) {
      found.push_back(path);
      return found.size() > kMaxDataFiles ? Status(too_many()) : Status();
    }
    if (!fs::is_directory(status) || depth > kMaxDepth) {
      return {};
    }
    ATOLL_ASSIGN(const std::vector<fs::path> children, children_of(path));
    for (const fs::path& child : children) {
      if (!hidden(child) && !(fs::is_symlink(child, failure) && fs::is_directory(child, failure))) {
        ATOLL_TRY(take(child, depth + 1));
      }
    }
    return {};
  }

  static Result<std::vector<fs::path>> children_of(const fs::path& folder) {
    std::error_code failure;
    std::vector<fs::path> children;
    fs::directory_iterator at(folder, failure);
    for (; !failure && at != fs::directory_iterator(); at.increment(failure)) {
      children.push_back(at->path());
      if (children.size() > kMaxDataFiles) {
        return too_many();
      }
    }
    if (failure) {
      return unreadable(folder, failure);
    }
    return children;
  }

  const std::vector<std::string>& rest_;
};

Result<std::vector<fs::path>> canonical_files(const std::vector<fs::path>& found, const std::string& pattern) {
  std::vector<fs::path> files;
  for (const fs::path& path : found) {
    std::error_code failure;
    fs::path canonical = fs::canonical(path, failure);
    if (failure) {
      return unreadable(path, failure);
    }
    files.push_back(std::move(canonical));
  }
  std::sort(files.begin(), files.end());
  files.erase(std::unique(files.begin(), files.end()), files.end());
  if (files.empty()) {
    return Error{Code::not_found, "no files are at '" + pattern + "'"};
  }
  return files;
}

Result<std::vector<fs::path>> resolve_set(const std::string& set, const DataPermissions& permissions) {
  const auto mapped = permissions.sets.find(set);
  if (mapped == permissions.sets.end()) {
    return Error{Code::unauthorized, "the run asks for the data set '" + set +
                                         "', which this island has not mapped; start its agent with --data " + set + "=PATH"};
  }
  ATOLL_ASSIGN(std::vector<fs::path> files, expand_files(mapped->second));
  std::error_code failure;
  const fs::path root = fs::canonical(split_pattern(mapped->second).base, failure);
  if (failure) {
    return unreadable(mapped->second, failure);
  }
  for (const fs::path& file : files) {
    const bool allowed =
        lies_within(file, root) || std::any_of(permissions.folders.begin(), permissions.folders.end(), [&](const fs::path& folder) {
          std::error_code missing;
          const fs::path canonical = fs::canonical(folder, missing);
          return !missing && lies_within(file, canonical);
        });
    if (!allowed) {
      return Error{Code::unauthorized, "the data set '" + set + "' reaches '" + file.string() + "' through a link that leaves '" +
                                           root.string() + "'; to allow it, start the agent with --allow-data " +
                                           file.parent_path().string()};
    }
  }
  return files;
}

// Whether a path that a run file names may be looked at, before it is: its base folder, as far as it exists.
bool base_allowed(const std::string& pattern, const std::vector<fs::path>& folders) {
  std::error_code failure;
  const fs::path base = fs::weakly_canonical(split_pattern(pattern).base, failure);
  return !failure && std::any_of(folders.begin(), folders.end(), [&](const fs::path& folder) { return lies_within(base, folder); });
}

Result<std::vector<fs::path>> resolve_files(const std::vector<std::string>& patterns, const DataPermissions& permissions) {
  std::vector<fs::path> folders;
  for (const fs::path& folder : permissions.folders) {
    std::error_code failure;
    const fs::path canonical = fs::canonical(folder, failure);
    if (!failure) {
      folders.push_back(canonical);
    }
  }
  const auto refused = [](const std::string& path, const fs::path& folder) {
    return Error{Code::unauthorized, "the run asks for '" + path +
                                         "', which the owner of this island has not allowed; start its agent with --allow-data " +
                                         folder.string() + ", or map it with --data NAME=PATH and name the set"};
  };
  std::vector<fs::path> all;
  for (const std::string& pattern : patterns) {
    if (!base_allowed(pattern, folders)) {
      const fs::path base = split_pattern(pattern).base;
      return refused(pattern, has_wildcard(pattern) ? base : base.parent_path());
    }
    ATOLL_ASSIGN(const std::vector<fs::path> files, expand_files(pattern));
    for (const fs::path& file : files) {
      if (std::none_of(folders.begin(), folders.end(), [&](const fs::path& folder) { return lies_within(file, folder); })) {
        return refused(file.string(), file.parent_path());
      }
    }
    all.insert(all.end(), files.begin(), files.end());
  }
  return canonical_files(all, patterns.empty() ? "" : patterns.front());
}

}  // namespace

bool lies_within(const fs::path& path, const fs::path& folder) {
  const auto [in_folder, in_path] = std::mismatch(folder.begin(), folder.end(), path.begin(), path.end());
  return in_folder == folder.end() || (in_folder->empty() && std::next(in_folder) == folder.end());
}

Status add_data_mapping(DataPermissions& permissions, std::string_view mapping) {
  const std::size_t equals = mapping.find('=');
  const std::string_view name = mapping.substr(0, equals);
  if (equals == std::string_view::npos || name.empty() || equals + 1 == mapping.size()) {
    return Error{Code::invalid_argument, "'" + std::string(mapping) + "' is not NAME=PATH, for example corpus=/srv/text"};
  }
  std::error_code failure;
  const std::string path = fs::absolute(std::string(mapping.substr(equals + 1)), failure).string();
  if (!permissions.sets.emplace(std::string(name), path).second) {
    return Error{Code::invalid_argument, "the data set '" + std::string(name) + "' is mapped twice; one --data for each name"};
  }
  return {};
}

Result<std::vector<fs::path>> expand_files(const std::string& text) {
  const Pattern pattern = split_pattern(text);
  Walk walk(pattern.rest);
  ATOLL_TRY(walk.match(pattern.base, 0, 0));
  return canonical_files(walk.found, text);
}

Result<std::vector<fs::path>> resolve_data(const DataSpec& spec, const DataPermissions& permissions, const Downloader& download) {
  if (!spec.set.empty()) {
    return resolve_set(spec.set, permissions);
  }
  if (!spec.url.empty()) {
    ATOLL_ASSIGN(fs::path file, download(spec.url, spec.sha256));
    return std::vector<fs::path>{std::move(file)};
  }
  return resolve_files(spec.files, permissions);
}

Result<std::string> resolve_features(const std::string& features, const DataPermissions& permissions) {
  const std::string file(features_file(features));
  if (file.empty()) {
    return features;
  }
  ATOLL_ASSIGN(const std::vector<fs::path> files, resolve_files({file}, permissions));
  if (files.size() != 1) {
    return Error{Code::invalid_argument,
                 "diffusion.features: " + file + " stands for " + std::to_string(files.size()) + " files; name one"};
  }
  return features.substr(0, features.size() - file.size()) + files.front().string();
}

}  // namespace atl
