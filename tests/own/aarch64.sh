#!/bin/bash
# Whether ARM computes what x86-64 computes: islands of both train one model, with the same bits in every round, and the tests
# of the papers' equations and figures pass on ARM. On Debian 12; programs for ARM run in QEMU, without root.
#   tests/own/aarch64.sh BUILD [TEST…]       BUILD is the build folder of this machine, build/release
# It makes the portable ARM packages on the way, in build/dist-aarch64 (examples/packaging/portable.sh --machine aarch64).
set -euo pipefail
build=$(realpath "$1")
cd "$(dirname "$0")/../.."
examples/packaging/portable.sh --machine aarch64
arm=build/portable-aarch64
room=$arm/room
mkdir -p $room
cp $arm/atoll $arm/libatoll_trainer.so.1 $room/
ln -sf libatoll_trainer.so.1 $room/libatoll_trainer.so
# Data-parallel islands take the optimiser's step in their trainers: one with the same roundings on both.
aarch64-linux-gnu-gcc -O2 -ffp-contract=off -I agent/island_link/client examples/own-trainer/linear.c -L $room -latoll_trainer -lm -Wl,--allow-shlib-undefined -o $room/linear
# They find the cross compiler's C library by themselves: with its folder as QEMU's root, "/" would be that folder, too.
for program in atoll linear; do
  patchelf --force-rpath --set-interpreter /usr/aarch64-linux-gnu/lib/ld-linux-aarch64.so.1 --set-rpath "/usr/aarch64-linux-gnu/lib:$(realpath $room)" $room/$program
done
if [ $# -eq 1 ]; then
  cmake --preset portable-aarch64 -D ATOLL_TESTS=ON >/dev/null
  cmake --build $arm -j "${ATOLL_JOBS:-$(nproc)}" --target test_paper
  qemu-aarch64 -L /usr/aarch64-linux-gnu $arm/tests/test_paper
fi
# An agent starts programs of its own machine: in here the kernel (6.7 or newer) gives them to QEMU, and the system is left as it is.
export build room
exec unshare -Urm bash -euo pipefail -c '
mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc
echo ":aarch64:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00:\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:$(command -v qemu-aarch64):" >/proc/sys/fs/binfmt_misc/register
exec "${PYTHON:-/usr/bin/python3}" tests/own/aarch64_test.py "$build/libatoll_trainer.so" "$build/atoll" "$build/tests/atoll_linear_trainer" $room "$@"' - "${@:2}"
