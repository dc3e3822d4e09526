#include "agent/service/data_access.hpp"

#include <fnmatch.h>
#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <initializer_list>
#include <iterator>
#include <set>
#include <system_error>
#include <tuple>
#include <utility>

#include "strategies/specification/run_rules.hpp"
#include "transport/base/bytes.hpp"

namespace atl {
namespace fs = std::filesystem;
namespace {

constexpr int kMaxDepth = 64;
constexpr int kMostLinks = 16;

bool has_wildcard(std::string_view text) { return text.find_first_of("*?[") != std::string_view::npos; }

bool hidden(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.size() > 1 && name.front() == '.';
}

// Canonical, as far as it exists; empty if that cannot be told.
fs::path canonical_of(const fs::path& path) {
  std::error_code failure;
  const fs::path canonical = fs::weakly_canonical(path, failure);
  return failure ? fs::path() : canonical;
}

// What may be read, and how its refusal is put: whoever asks is told what to allow.
class Scope {
 public:
  Scope(std::vector<fs::path> folders, std::string asks) : folders_(std::move(folders)), asks_(std::move(asks)) {}

  [[nodiscard]] bool holds(const fs::path& canonical) const {
    return std::ranges::any_of(folders_, [&](const fs::path& folder) { return lies_within(canonical, folder); });
  }

  // Whether it may be looked up if there is something of this name: below what is allowed, or on the way there. To others not even that is
  // told.
  [[nodiscard]] bool shows(const fs::path& path) const {
    const fs::path normal = path.lexically_normal();
    return holds(canonical_of(path.parent_path())) ||
           std::ranges::any_of(folders_, [&](const fs::path& folder) { return lies_within(folder, normal); });
  }

  // Of a file or folder that was reached by a name that is allowed.
  [[nodiscard]] Error refused_link(const fs::path& named, const fs::path& canonical) const {
    std::error_code failure;
    const fs::path folder = fs::is_directory(canonical, failure) ? canonical : canonical.parent_path();
    const bool through_up = std::ranges::find(named, "..") != named.end();
    return {Code::unauthorized, asks_ + ": '" + named.string() + (through_up ? "' leads to '" : "' is a link to '") + canonical.string() +
                                    "', which the owner of this island has not allowed; start its agent with --allow-data " +
                                    folder.string() + ", too"};
  }

 private:
  std::vector<fs::path> folders_;  // canonical
  std::string asks_;
};

// A pattern's leading folder, or the path itself, and the names with wildcards after it.
struct Pattern {
  fs::path base;
  std::vector<std::string> rest;
};

// A name that exists is that name, whatever is in it: `photos [2024]` is no pattern where there is such a folder.
Pattern split_pattern(const std::string& text, const Scope& scope) {
  Pattern pattern;
  std::error_code failure;
  for (const fs::path& part : fs::absolute(text, failure)) {
    const fs::path path = pattern.base / part;
    const auto there = [&] { return scope.shows(path) && fs::exists(fs::symlink_status(path, failure)); };
    if (pattern.rest.empty() && (!has_wildcard(part.string()) || there())) {
      pattern.base = path;
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

// A file by the name by which it was found, which says its class, and by its own.
struct FoundFile {
  fs::path named;
  fs::path canonical;
  std::string below;  // its names below the path or pattern that was asked for; empty of a file that was asked for by name
};

// Collects what matches a pattern. Links to folders are followed after the folders that are there, so that a file gets its own name where
// it has one; a folder is entered once for each place in the pattern, however many links lead to it.
class Walk {
 public:
  Walk(const Pattern& pattern, const Scope& scope) : base_(pattern.base), rest_(pattern.rest), scope_(scope) {}

  Status run() {
    ATOLL_TRY(visit({base_, 0, 0, 0}));
    for (std::size_t i = 0; i < links_.size(); ++i) {  // grows meanwhile
      const Place link = links_[i];
      ATOLL_TRY(visit(link));
    }
    return {};
  }

  std::vector<FoundFile> found;

 private:
  // A path that has matched `at` names of the pattern.
  struct Place {
    fs::path path;
    std::size_t at;
    int depth;
    int links;  // to folders, in the path
  };

  // A regular file is taken where the pattern ends, a folder there stands for all below it.
  Status visit(const Place& place) {
    struct stat facts {};
    const bool all = place.at == rest_.size();
    if (::stat(place.path.c_str(), &facts) != 0) {
      const int number = errno;
      const bool would_count = all || rest_[place.at] == "**";
      return number != ENOENT && number != ENOTDIR ? unreadable(place.path, {number, std::generic_category()})
             : would_count                         ? absent(place.path)
                                                   : Status();
    }
    if (S_ISREG(facts.st_mode) && all) {
      return take(place.path);
    }
    if (!S_ISDIR(facts.st_mode) || !entered_.emplace(facts.st_dev, facts.st_ino, place.at).second) {
      return {};
    }
    if (place.depth > kMaxDepth || entered_.size() > kMaxDataFiles) {
      return place.depth > kMaxDepth ? Error{Code::invalid_argument, place.path.string() + ": more than " + std::to_string(kMaxDepth) +
                                                                         " folders below one another; name a lower one"}
                                     : too_many();
    }
    // What a link or `..` leads to is known to be allowed before anything in it is looked at.
    if (const fs::path canonical = canonical_of(place.path); !scope_.holds(canonical)) {
      return scope_.refused_link(place.path, canonical);
    }
    return all ? visit_children(place, "") : match(place, rest_[place.at]);
  }

  Status match(const Place& place, const std::string& part) {
    if (part == "..") {
      return visit({place.path / part, place.at + 1, place.depth + 1, place.links});
    }
    if (part == "**") {  // none or more folders
      ATOLL_TRY(visit({place.path, place.at + 1, place.depth, place.links}));
    }
    return visit_children(place, part);
  }

  Status visit_children(const Place& place, const std::string& part) {
    ATOLL_ASSIGN(const std::vector<fs::path> children, children_of(place.path));
    const bool any = part.empty() || part == "**";
    for (const fs::path& child : children) {
      if (any ? hidden(child) : ::fnmatch(part.c_str(), child.filename().c_str(), FNM_PERIOD) != 0) {
        continue;
      }
      Place next{child, place.at + (any ? 0 : 1), place.depth + 1, place.links};
      std::error_code failure;
      if (fs::is_symlink(child, failure) && fs::is_directory(child, failure)) {
        if (++next.links > kMostLinks) {  // the kernel follows 40 in one path
          next = {canonical_of(child), next.at, next.depth, 0};
        }
        links_.push_back(next);
        if (links_.size() > kMaxDataFiles) {
          return too_many();
        }
      } else {
        ATOLL_TRY(visit(next));
      }
    }
    return {};
  }

  Status take(const fs::path& path) {
    std::error_code failure;
    fs::path canonical = fs::canonical(path, failure);
    if (failure) {
      return unreadable(path, failure);
    }
    if (!scope_.holds(canonical)) {
      return scope_.refused_link(path, canonical);
    }
    const bool by_name = path == base_;
    const bool through_up = std::ranges::find(path, "..") != path.end();  // which cannot be left out of a name by itself
    found.push_back({through_up ? canonical : fs::absolute(path, failure), canonical,
                     by_name ? std::string() : path.lexically_relative(base_).generic_string()});
    return found.size() > kMaxDataFiles ? Status(too_many()) : Status();
  }

  // A link without its file is data that are missing; nothing at all was only asked for.
  static Status absent(const fs::path& path) {
    std::error_code failure;
    if (!fs::is_symlink(path, failure)) {
      return {};
    }
    return Error{Code::not_found, "'" + path.string() + "' is a link to '" + fs::read_symlink(path, failure).string() +
                                      "', which is not there; mend the link or remove it"};
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
    std::sort(children.begin(), children.end());  // the same names on every disk
    return children;
  }

  const fs::path& base_;
  const std::vector<std::string>& rest_;
  const Scope& scope_;
  std::vector<Place> links_;
  std::set<std::tuple<dev_t, ino_t, std::size_t>> entered_;
};

Error nothing_at(const std::string& pattern) { return {Code::not_found, "no files are at '" + pattern + "'"}; }

// Each file once, by its own name where it was found by that, in the order of the names.
Result<std::vector<fs::path>> distinct_files(std::vector<FoundFile> found, const std::string& pattern) {
  std::ranges::sort(found, [](const FoundFile& a, const FoundFile& b) {
    const bool by_link[] = {a.named != a.canonical, b.named != b.canonical};
    return std::tie(a.canonical, by_link[0], a.named) < std::tie(b.canonical, by_link[1], b.named);
  });
  const auto twice = std::ranges::unique(found, {}, &FoundFile::canonical);
  found.erase(twice.begin(), twice.end());
  std::vector<fs::path> files;
  std::ranges::transform(found, std::back_inserter(files), &FoundFile::named);
  std::sort(files.begin(), files.end());
  if (files.empty()) {
    return nothing_at(pattern);
  }
  return files;
}

// The words of a file's names, in small letters: "fineweb_val_000001.bin" has fineweb, val and bin.
bool has_word(const std::string& names, std::initializer_list<std::string_view> words) {
  std::string word;
  for (const char letter : names + "/") {
    if (std::isalpha(static_cast<unsigned char>(letter)) != 0) {
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
    } else if (!word.empty()) {
      if (std::ranges::find(words, word) != words.end()) {
        return true;
      }
      word.clear();
    }
  }
  return false;
}

// A folder as nanoGPT, llm.c, WikiText or ImageFolder have it holds what is held out beside what is trained on.
Status check_split(const std::vector<FoundFile>& found) {
  const auto trained = std::ranges::find_if(found, [](const FoundFile& file) { return has_word(file.below, {"train", "training"}); });
  const auto held = std::ranges::find_if(found, [](const FoundFile& file) {
    return has_word(file.below, {"val", "valid", "validation", "test", "eval"}) && !has_word(file.below, {"train", "training"});
  });
  if (trained == found.end() || held == found.end()) {
    return {};
  }
  return Error{Code::invalid_argument, held->named.string() + " lies beside " + trained->named.string() +
                                           ", and both would be trained on; name the files or the folder that are meant (a run holds out "
                                           "[data].validation_fraction of them by itself)"};
}

Result<std::vector<fs::path>> checked_files(const std::vector<FoundFile>& found, const std::string& pattern, DataReader reader) {
  if (reader == DataReader::built_in) {
    ATOLL_TRY(check_split(found));
  }
  return distinct_files(found, pattern);
}

std::vector<fs::path> canonical_folders(const std::vector<fs::path>& folders) {
  std::vector<fs::path> canonical;
  for (const fs::path& folder : folders) {
    std::error_code failure;
    const fs::path found = fs::canonical(folder, failure);
    if (!failure) {
      canonical.push_back(found);
    }
  }
  return canonical;
}

// The scope of what an owner names: all that may be found by the name itself, and what is allowed besides.
Scope scope_of_owner(const std::string& named, std::vector<fs::path> allowed, std::string asks) {
  const Scope everything({fs::path("/")}, "");
  const fs::path root = canonical_of(fs::absolute(split_pattern(named, everything).base));
  allowed.push_back(root);
  return {std::move(allowed), std::move(asks)};
}

Result<std::vector<fs::path>> resolve_set(const std::string& set, const DataPermissions& permissions, DataReader reader) {
  const auto mapped = permissions.sets.find(set);
  if (mapped == permissions.sets.end()) {
    return Error{Code::unauthorized, "the run asks for the data set '" + set +
                                         "', which this island has not mapped; start its agent with --data " + set + "=PATH"};
  }
  const Scope scope = scope_of_owner(mapped->second, canonical_folders(permissions.folders), "the data set '" + set + "'");
  const Pattern pattern = split_pattern(mapped->second, scope);
  Walk walk(pattern, scope);
  ATOLL_TRY(walk.run());
  return checked_files(walk.found, mapped->second, reader);
}

// Why the path of a run file may not be looked at: the first link in it that leads out of what is allowed, or that nothing of it is.
Error refused(const std::string& asked, const Pattern& pattern, const Scope& scope) {
  fs::path path;
  for (const fs::path& part : pattern.base) {
    const bool inside = !path.empty() && scope.holds(canonical_of(path));
    path /= part;
    std::error_code failure;
    if (inside && fs::is_symlink(path, failure) && !scope.holds(canonical_of(path))) {
      return scope.refused_link(path, canonical_of(path));
    }
  }
  const fs::path folder = pattern.rest.empty() ? pattern.base.parent_path() : pattern.base;
  return {Code::unauthorized, "the run asks for '" + asked + "', which the owner of this island has not allowed; start its agent with " +
                                  "--allow-data " + folder.string() + ", or map it with --data NAME=PATH and name the set"};
}

Result<std::vector<fs::path>> resolve_files(const std::vector<std::string>& patterns, const DataPermissions& permissions,
                                            DataReader reader) {
  const Scope scope(canonical_folders(permissions.folders), "the run's data");
  std::vector<FoundFile> all;
  for (const std::string& asked : patterns) {
    const Pattern pattern = split_pattern(asked, scope);
    if (!scope.holds(canonical_of(pattern.base))) {  // before it is looked at
      return refused(asked, pattern, scope);
    }
    Walk walk(pattern, scope);
    ATOLL_TRY(walk.run());
    if (walk.found.empty()) {  // what another entry stands for does not make up for it
      return nothing_at(asked);
    }
    std::ranges::move(walk.found, std::back_inserter(all));
  }
  return checked_files(all, patterns.empty() ? "" : patterns.front(), reader);
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
  const Scope scope = scope_of_owner(text, {}, text);
  const Pattern pattern = split_pattern(text, scope);
  Walk walk(pattern, scope);
  ATOLL_TRY(walk.run());
  return distinct_files(walk.found, text);
}

std::string listing_of(const std::vector<fs::path>& files) {
  constexpr std::size_t kMostListed = 6;
  std::uint64_t all = 0;
  std::string names;
  for (std::size_t i = 0; i < files.size(); ++i) {
    std::error_code failure;
    const std::uintmax_t size = fs::file_size(files[i], failure);
    const std::uint64_t bytes = failure ? 0 : size;
    all += bytes;
    if (i < kMostListed) {
      names += (i == 0 ? ": " : ", ") + files[i].filename().string() + " " + human_bytes(bytes);
    }
  }
  return std::to_string(files.size()) + (files.size() == 1 ? " file" : " files") + " of " + human_bytes(all) + names +
         (files.size() > kMostListed ? ", and " + std::to_string(files.size() - kMostListed) + " more" : "");
}

fs::path base_of_pattern(const std::string& text) { return split_pattern(text, Scope({fs::path("/")}, "")).base; }

Result<std::vector<fs::path>> resolve_data(const DataSpec& spec, const DataPermissions& permissions, const Downloader& download,
                                           DataReader reader) {
  if (!spec.set.empty()) {
    return resolve_set(spec.set, permissions, reader);
  }
  if (!spec.url.empty()) {
    ATOLL_ASSIGN(fs::path file, download(spec.url, spec.sha256));
    return std::vector<fs::path>{std::move(file)};
  }
  return resolve_files(spec.files, permissions, reader);
}

Result<std::string> resolve_features(const std::string& features, const DataPermissions& permissions) {
  const std::string file(features_file(features));
  if (file.empty()) {
    return features;
  }
  ATOLL_ASSIGN(const std::vector<fs::path> files, resolve_files({file}, permissions, DataReader::own));
  if (files.size() != 1) {
    return Error{Code::invalid_argument,
                 "diffusion.features: " + file + " stands for " + std::to_string(files.size()) + " files; name one"};
  }
  return features.substr(0, features.size() - file.size()) + files.front().string();
}

}  // namespace atl
