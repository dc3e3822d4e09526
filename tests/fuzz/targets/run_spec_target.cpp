// libFuzzer: any text as the JSON of a run's spec; what is accepted survives being written and read again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "strategies/specification/run_spec.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const atl::Result<atl::RunSpec> spec = atl::run_spec_from_json(std::string_view(reinterpret_cast<const char*>(data), size));
  if (spec) {
    const atl::Result<atl::RunSpec> back = atl::run_spec_from_json(atl::to_json(*spec));
    if (!back || *back != *spec) {
      std::abort();
    }
  }
  return 0;
}
