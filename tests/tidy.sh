#!/bin/sh
# clang-tidy over the product's sources, with the checks of .clang-tidy; ends with 1 on a finding.
#   tests/tidy.sh [PATTERN]   only the units whose path matches, for example: tests/tidy.sh atoll_coordinator_core
# Sources are read in units of several (as the preset `product` builds them): headers are parsed once for all of them.
set -eu
cd "$(dirname "$0")/.."
command -v run-clang-tidy >/dev/null || { echo "tests/tidy.sh: needs clang-tidy (apt-get install clang-tidy)" >&2; exit 2; }
cmake --preset product -B build/tidy -DCMAKE_EXPORT_COMPILE_COMMANDS=ON >/dev/null
cmake --build build/tidy --target atoll_messages_header generated/page_files.cpp >/dev/null
log=build/tidy/findings.log
# Options of GCC that Clang does not know are no findings.
run-clang-tidy -quiet -p build/tidy -j "$(nproc)" -extra-arg=-Wno-unknown-warning-option "${1:-.}" >"$log" 2>&1 || true
grep -q '^clang-tidy' "$log" || { cat "$log" >&2; echo "tests/tidy.sh: no unit was read" >&2; exit 2; }
# Errors in headers of others are not ours: Clang 14 cannot parse all of LibTorch, and reads on behind it.
findings=$(sed 's/\x1b\[[0-9;]*m//g' "$log" | grep -E "^$PWD/.*: (warning|error): " | sort -u || true)
[ -z "$findings" ] || { echo "$findings"; exit 1; }
