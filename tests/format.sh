#!/bin/sh
# Checks that every C++ file is formatted as .clang-format says, with the version of clang-format that the tree is formatted with.
#   tests/format.sh          names each file that is not, and ends with 1
#   tests/format.sh --fix    formats them
# Without that version it is skipped (exit status 4): other versions break lines elsewhere.
set -eu
cd "$(dirname "$0")/.."
wanted=14

formatter=""
for candidate in "clang-format-$wanted" clang-format; do
  if command -v "$candidate" >/dev/null && "$candidate" --version | grep -q "version $wanted\."; then
    formatter=$candidate
    break
  fi
done
if [ -z "$formatter" ]; then
  echo "tests/format.sh: skipped: needs clang-format $wanted (apt-get install clang-format-$wanted)" >&2
  exit 4
fi

files=$(find agent cli coordinator strategies transport tests -name '*.cpp' -o -name '*.hpp')
if [ "${1:-}" = --fix ]; then
  echo "$files" | xargs "$formatter" -i
else
  echo "$files" | xargs "$formatter" --dry-run --Werror
fi
