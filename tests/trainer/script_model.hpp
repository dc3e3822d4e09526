// A model in TorchScript, written by a test. A file of its own because LibTorch's headers of scripts and Catch2 both define CHECK.
#pragma once

#include <string>

namespace atl_test {

// `result`: an expression of the argument x, as in "x.flatten(1)".
void write_script_model(const std::string& path, const std::string& result);

}  // namespace atl_test
