// libFuzzer: any text as a run file. A valid one obeys the rules and survives JSON; any other says what is wrong.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "cli/run_file/run_file.hpp"
#include "strategies/specification/run_rules.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const atl::RunFile file = atl::parse_run_file(std::string_view(reinterpret_cast<const char*>(data), size), "fuzz");
  if (!file.valid()) {
    if (atl::problems_text(file).empty()) {
      std::abort();
    }
    return 0;
  }
  const atl::Result<atl::RunSpec> back = atl::run_spec_from_json(atl::to_json(file.spec));
  if (!atl::check_run_spec(file.spec) || !back || *back != file.spec) {
    std::abort();
  }
  return 0;
}
