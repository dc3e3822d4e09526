// Opening what lies below a folder, so that no path leads out of it: not an absolute one, not "..", not a link, whoever made it and
// whenever.
//
// The kernel does it in one call (openat2 with RESOLVE_BENEATH, Linux 5.6). Where that call is missing, or a container's filter refuses it,
// the path is walked part by part instead: each part is opened by its name alone in the folder that is held open, and never followed if it
// is a link. A link is read and its text walked in its place, and ".." goes back to the folder that the walk came from. Every folder of the
// walk was reached from the first one, so whatever is renamed meanwhile, nothing outside is opened. Errors: as open's, in errno; EXDEV for
// what would lead out, ELOOP for too many links. Threads: any.
#pragma once

#include <sys/types.h>

#include <filesystem>

#include "transport/base/file_descriptor.hpp"

namespace atl {

enum class Beneath { by_kernel, by_walk };

// What this system allows; asks it with one call.
[[nodiscard]] Beneath way_beneath(int folder);

// A descriptor, or none with errno. Flags are open's.
[[nodiscard]] FileDescriptor open_beneath(Beneath way, int folder, const std::filesystem::path& path, int flags, mode_t mode);

}  // namespace atl
