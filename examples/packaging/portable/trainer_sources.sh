#!/bin/bash
# Gathers what `python -m atoll.build_trainer` makes the built-in trainer of, for the LibTorch of a user's environment:
#   examples/packaging/portable/trainer_sources.sh BUILD FOLDER
# FOLDER has sources and headers afterwards, below the paths by which they include each other, and libatoll_trainer_parts.a: one object of all that
# needs no LibTorch, with the libraries that it takes from. BUILD is the folder of a portable build; $CC, $LD and $OBJCOPY are those for another machine.
set -euo pipefail
cd "$(dirname "$0")/../../.."
build=$1 folder=$2
rm -rf "$folder"
mkdir -p "$folder"
cp -r --parents agent/trainer agent/island_link/*.hpp agent/island_link/client/*.hpp agent/storage/safetensors.hpp transport/base/*.hpp "$folder"
rm -r "$folder/agent/trainer/data"/*.cpp
find "$folder" -type f ! -name '*.cpp' ! -name '*.hpp' -delete
json=$(sed -n 's/^nlohmann_json_DIR:[A-Z]*=//p' "$build/CMakeCache.txt")
cp -r "${json%/share/cmake/*}/include/nlohmann" "$folder/"
sed -n 's/^CMAKE_PROJECT_VERSION:[A-Z]*=//p' "$build/CMakeCache.txt" >"$folder/version.txt"

# Each archive is followed by what it needs.
libraries=""
for name in zmq sodium png16 jpeg z; do
  libraries="$libraries $(sed -n "s/^ATOLL_STATIC_$name:[A-Z]*=//p" "$build/CMakeCache.txt")"
done
# shellcheck disable=SC2086
"${LD:-ld}" -r --whole-archive "$build"/libatoll_{trainer_client,trainer_data,island_link,base}.a --no-whole-archive $libraries -o "$folder/most.o"
# Debian's libpng and libjpeg are compiled for programs, not for shared objects: their references to stderr are to a variable of the object's own.
"${OBJCOPY:-objcopy}" --strip-debug --redefine-sym stderr=atoll_stderr "$folder/most.o"
echo '#include <stdio.h>
__attribute__((visibility("hidden"))) FILE* atoll_stderr;
__attribute__((constructor)) static void set(void) { atoll_stderr = stderr; }' | "${CC:-cc}" -O2 -fPIC -x c -c -o "$folder/stderr.o" -
(cd "$folder" && "${LD:-ld}" -r most.o stderr.o -o parts.o && ar rcsD libatoll_trainer_parts.a parts.o && rm ./*.o)
