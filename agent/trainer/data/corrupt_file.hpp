// What the readers of files say of one that is not what its name promises.
#pragma once

#include <string>

#include "transport/base/result.hpp"

namespace atl {

inline Error corrupt(const std::string& path, const std::string& why) { return Error{Code::corrupt, path + ": " + why}; }

}  // namespace atl
