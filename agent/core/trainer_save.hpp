// What a trainer has of its own state where a checkpoint is to be.
#pragma once

#include <cstdint>

namespace atl::agent {

enum class TrainerSave : std::uint8_t {
  none,
  done,
  going_on,  // it writes it beside its steps, and says later how that ended
};

}  // namespace atl::agent
