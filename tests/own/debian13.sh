#!/bin/bash
# Tests of PyTorch trainers with Debian 13's PyTorch (2.6, which has FSDP2) beside an Atoll that was built here:
#   tests/own/debian13.sh FOLDER BUILD       as root, for `debootstrap`, `chroot` and bind mounts in a namespace of their own
# FOLDER gets a Debian 13 if it has none (some 2 GB); BUILD is the build folder, build/release.
set -euo pipefail
folder=$1 build=$(realpath "$2") source=$(realpath "$(dirname "$0")/../..")
if [ ! -e "$folder/etc/debian_version" ]; then
  debootstrap --variant=minbase trixie "$folder" http://deb.debian.org/debian
fi
if [ ! -e "$folder/usr/lib/python3/dist-packages/torch" ]; then
  chroot "$folder" apt-get install -y --no-install-recommends python3-torch python3-numpy python3-zmq libzmq5
fi
mkdir -p "$folder$source" "$folder$build"
export folder build source
exec unshare -m bash -c '
  for place in /proc /dev /tmp "$source" "$build"; do mount --rbind "$place" "$folder$place"; done
  export ATOLL_TORCH_PYTHON="chroot $folder python3"
  exec "${PYTHON:-/usr/bin/python3}" "${SCRIPT:-$source/tests/own/ranks_test.py}" "$build"/libatoll_trainer.so "$build"/atoll "$build"/tests/atoll_linear_trainer "$@"' - "${@:3}"
