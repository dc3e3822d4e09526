#include "coordinator/core/services.hpp"

#include "coordinator/core/core_state.hpp"

namespace atl::coordinator {

Services::Services(Core::State& core) : core_(core), settings_(core.settings), islands_(core.islands), runs_(core.runs), out_(core.out) {}

void Services::told(const RunId& run, const IslandId& island, std::string level, std::string kind, const std::string& text,
                    std::vector<Field> fields) {
  core_.told(run, island, std::move(level), std::move(kind), text, std::move(fields));
}

void Services::touch(const Run& run) { core_.touch(run); }

}  // namespace atl::coordinator
