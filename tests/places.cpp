#include "tests/places.hpp"

namespace atl_test {

std::string source_folder() { return ATOLL_SOURCE_DIR; }

std::string atoll_program() { return ATOLL_PROGRAM; }
std::string later_program() { return ATOLL_LATER; }
std::string program_with_planted_bugs() { return ATOLL_WITH_PLANTED_BUGS; }

std::string built_in_trainer() { return ATOLL_TORCH_TRAINER; }
std::string arithmetic_trainer() { return ATOLL_ARITHMETIC_TRAINER; }
std::string fixture_module() { return ATOLL_FIXTURE_MODULE; }

std::string faulty_libc() { return ATOLL_FAULTY_LIBC; }

}  // namespace atl_test
