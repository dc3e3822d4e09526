#include "coordinator/core/services.hpp"

#include "coordinator/core/core_state.hpp"

namespace atl::coordinator {

Services::Services(Core::State& core) : core_(core), settings_(core.settings), islands_(core.islands), runs_(core.runs), out_(core.out) {}

void Services::touch(const Run& run) { core_.touch(run); }

}  // namespace atl::coordinator
