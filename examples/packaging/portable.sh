#!/bin/bash
# Makes what runs on any x86-64 Linux with glibc 2.34 (Debian 12, Ubuntu 22.04, RHEL 9 and newer): a tarball, a wheel, Debian packages and their sums.
#   examples/packaging/portable.sh [FOLDER]       FOLDER is build/dist if none is given
# On Debian 12, from a fresh clone; installs what is missing (with sudo when not root). The same source and SOURCE_DATE_EPOCH give the same files.
set -euo pipefail
cd "$(dirname "$0")/../.."
mkdir -p "${1:-build/dist}"
target=$(realpath "${1:-build/dist}")
parts=examples/packaging/portable
jobs=${ATOLL_JOBS:-$(nproc)}
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-1767225600} LC_ALL=C.UTF-8

examples/install-packages.sh --portable --without-torch
$parts/libraries.sh build/portable-libraries
cmake --preset portable >/dev/null
cmake --build build/portable -j "$jobs" --target atoll atoll_trainer_library
version=$(build/portable/atoll --version | sed -n 's/^atoll \([0-9][^ ]*\).*/\1/p')

stage=build/portable/stage/atoll-$version
rm -rf build/portable/stage "$target"/atoll-* "$target"/*.deb "$target/SHA256SUMS"
cmake --install build/portable --prefix "$stage" --strip >/dev/null
rm -r "$stage/lib/systemd"
$parts/check.sh "$stage/bin/atoll" "$stage/lib/libatoll_trainer.so.1"

# The tarball: what is installed, how, and the sums of its files.
cp $parts/install.sh LICENSE "$stage/"
cp -r $parts/systemd "$stage/"
cp build/portable-libraries/sources.txt "$stage/share/doc/atoll/libraries.txt"
uname -m >"$stage/machine"
find "$stage" -type d -exec chmod 755 {} +
(cd "$stage" && find . -type f ! -name SHA256SUMS -printf '%P\n' | sort | xargs -d '\n' sha256sum >SHA256SUMS)
tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -C build/portable/stage -cf - "atoll-$version" |
  gzip -9n >"$target/atoll-$version-linux-$(uname -m).tar.gz"

$parts/wheel.py "$stage" agent/island_link/python/atoll "$target" "$version" >/dev/null
cpack -G DEB --config build/portable/CPackConfig.cmake -B "$target" >/dev/null
rm -rf "$target/_CPack_Packages"
(cd "$target" && sha256sum atoll-*.tar.gz atoll-*.whl ./*.deb | sed 's# \./# #' >SHA256SUMS)
(cd "$target" && ls -l atoll-*.tar.gz atoll-*.whl ./*.deb | awk '{ print $5, $9 }')
