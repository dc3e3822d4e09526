// Where the tested tree and what was built of it lie. Only places.cpp is compiled with these paths, so that every other source of a test
// has the same flags in every folder: a compiler's cache knows it in another clone.
#pragma once

#include <string>

namespace atl_test {

std::string source_folder();

std::string atoll_program();
std::string later_program();              // of a later version, whose messages say more
std::string program_with_planted_bugs();  // with checks that a test can leave out

// Modules that `atoll trainer` loads ($ATOLL_TRAINER_MODULE).
std::string built_in_trainer();    // empty where Atoll is built without LibTorch
std::string arithmetic_trainer();  // whose result a test can compute
std::string fixture_module();

std::string faulty_libc();  // for LD_PRELOAD: a clock and a disk that go wrong

}  // namespace atl_test
