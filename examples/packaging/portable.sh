#!/bin/bash
# Makes what runs on any Linux with glibc 2.34 (Debian 12, Ubuntu 22.04, RHEL 9 and newer): a tarball, a wheel, Debian packages, an rpm and their sums.
#   examples/packaging/portable.sh [--machine aarch64] [FOLDER]       FOLDER is build/dist, or build/dist-aarch64, if none is given
# On Debian 12, from a fresh clone; installs what is missing (with sudo when not root). For x86-64, or with --machine for ARM by Debian's cross
# compiler; both may lie in one FOLDER. The same source and SOURCE_DATE_EPOCH give the same files.
set -euo pipefail
cd "$(dirname "$0")/../.."
machine=$(uname -m)
others=""
if [ "${1:-}" = --machine ]; then
  machine=${2:?--machine is followed by x86_64 or aarch64}
  shift 2
fi
case "$machine" in
  "$(uname -m)") build=build/portable libraries=build/portable-libraries preset=portable runs="" dist=build/dist ;;
  aarch64)
    build=build/portable-aarch64 libraries=build/portable-libraries-aarch64 preset=portable-aarch64 runs="qemu-aarch64 -L /usr/aarch64-linux-gnu"
    dist=build/dist-aarch64
    others=--aarch64
    export OBJDUMP=aarch64-linux-gnu-objdump
    ;;
  *) echo "portable.sh: unknown machine $machine (known: $(uname -m), aarch64)" >&2; exit 2 ;;
esac
mkdir -p "${1:-$dist}"
target=$(realpath "${1:-$dist}")
parts=examples/packaging/portable
jobs=${ATOLL_JOBS:-$(nproc)}
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-1767225600} LC_ALL=C.UTF-8

examples/install-packages.sh --portable --without-torch $others
if [ -n "$others" ]; then
  $parts/aarch64_root.sh build/aarch64-root
  $parts/libraries.sh $libraries "$machine"
else
  $parts/libraries.sh $libraries
fi
cmake --preset $preset >/dev/null
cmake --build $build -j "$jobs" --target atoll atoll_trainer_library atoll_trainer_data
version=$($runs $build/atoll --version | sed -n 's/^atoll \([0-9][^ ]*\).*/\1/p')

stage=$build/stage/atoll-$version
debian=$(sed -n 's/^SET(CPACK_DEBIAN_PACKAGE_ARCHITECTURE "\(.*\)")$/\1/Ip' $build/CPackConfig.cmake)
debian=${debian:-$(dpkg --print-architecture)}
rm -rf $build/stage "$target"/atoll-*"$machine".tar.gz "$target"/atoll-*"$machine".whl "$target"/atoll-*."$machine".rpm \
  "$target"/*_"$debian".deb "$target"/*_all.deb "$target/SHA256SUMS"
cmake --install $build --prefix "$stage" --strip >/dev/null
rm -r "$stage/lib/systemd"
$parts/check.sh "$stage/bin/atoll" "$stage/lib/libatoll_trainer.so.1"

# The tarball: what is installed, how, and the sums of its files.
cp $parts/install.sh LICENSE "$stage/"
cp -r $parts/systemd "$stage/"
cp $libraries/sources.txt "$stage/share/doc/atoll/libraries.txt"
echo "$machine" >"$stage/machine"
find "$stage" -type d -exec chmod 755 {} +
(cd "$stage" && find . -type f ! -name SHA256SUMS -printf '%P\n' | sort | xargs -d '\n' sha256sum >SHA256SUMS)
tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -C $build/stage -cf - "atoll-$version" |
  gzip -9n >"$target/atoll-$version-linux-$machine.tar.gz"

${others:+env CC=aarch64-linux-gnu-gcc LD=aarch64-linux-gnu-ld OBJCOPY=aarch64-linux-gnu-objcopy} $parts/trainer_sources.sh $build $build/stage/trainer
$parts/wheel.py "$stage" agent/island_link/python/atoll $build/stage/trainer "$target" "$version" >/dev/null
cpack -G DEB --config $build/CPackConfig.cmake -B "$target" >/dev/null
rm -rf "$target/_CPack_Packages"
packed=$(mktemp -d) # rpmbuild takes no space in a path
trap 'rm -rf "$packed"' EXIT
cpack -G RPM --config $build/CPackConfig.cmake -B "$packed" >"$packed/log" 2>&1 || { cat "$packed/log" >&2; exit 1; }
cp "$packed"/*.rpm "$target/"
(cd "$target" && sha256sum atoll-*.tar.gz atoll-*.whl ./*.deb atoll-*.rpm | sed 's# \./# #' >SHA256SUMS)
(cd "$target" && ls -l atoll-*.tar.gz atoll-*.whl ./*.deb atoll-*.rpm | awk '{ print $5, $9 }')
