#!/bin/sh
# clang-tidy over the product's sources, with the checks of .clang-tidy; ends with 1 on a finding.
#   tests/tidy.sh [PATTERN]   only the units whose path matches, for example: tests/tidy.sh atoll_coordinator_core
# Sources are read in units of several (as the preset `product` builds them): headers are parsed once for all of them.
set -eu
cd "$(dirname "$0")/.."
command -v run-clang-tidy >/dev/null || { echo "tests/tidy.sh: needs clang-tidy (apt-get install clang-tidy)" >&2; exit 2; }
cmake --preset product -B build/tidy -DCMAKE_EXPORT_COMPILE_COMMANDS=ON >/dev/null
cmake --build build/tidy --target atoll_messages_header generated/page_files.cpp >/dev/null
# Options of GCC that Clang does not know are no findings. Clang 14 cannot parse what kernels/ops.cpp includes of LibTorch 1.13.
exec run-clang-tidy -quiet -p build/tidy -j "$(nproc)" -extra-arg=-Wno-unknown-warning-option "${1:-^(?!.*/kernels/ops\.cpp$)}"
