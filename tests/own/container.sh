#!/bin/bash
# Builds the container image of examples/packaging/Containerfile and trains in it, with nothing fetched but Debian's packages:
#   tests/own/container.sh FOLDER BUILD   as root, with buildah and debootstrap
# FOLDER gets a Debian 12 if it has none (some 300 MB): it stands in for the base image, which would come from a registry. BUILD is
# build/release on Debian 12; what trains is the C example, which is linked with the image's library. The images are removed at the end.
set -euo pipefail
folder=$1 build=$(realpath "$2")
source=$(realpath "$(dirname "$0")/../..")
if [ ! -e "$folder/etc/debian_version" ]; then
  debootstrap --variant=minbase bookworm "$folder" http://deb.debian.org/debian
fi
work=$(mktemp -d)
export BUILDAH_ISOLATION=chroot STORAGE_DRIVER=vfs
export CONTAINERS_STORAGE_CONF=$work/storage.conf
printf '[storage]\ndriver = "vfs"\ngraphroot = "%s/images"\nrunroot = "%s/run"\n' "$work" "$work" >"$CONTAINERS_STORAGE_CONF"
trap 'buildah rm --all >/dev/null 2>&1 || true; rm -rf "$work"' EXIT
cpack -G DEB --config "$build/CPackConfig.cmake" -B "$work/packages" >/dev/null
base=$(buildah from scratch)
buildah add "$base" "$folder" / >/dev/null
buildah commit "$base" docker.io/library/debian:bookworm-slim >/dev/null 2>&1
buildah bud --pull-never -f "$source/examples/packaging/Containerfile" -t atoll "$work/packages" >"$work/log" 2>&1 || { tail -n 20 "$work/log"; exit 1; }
container=$(buildah from --pull-never localhost/atoll)
buildah add "$container" "$build/tests/atoll_linear_trainer" /usr/local/bin/ >/dev/null
buildah add "$container" "$source/examples/own-trainer/linear.toml" /usr/local/share/ >/dev/null
buildah run "$container" -- sh -euc '
[ "$(id -un)" = atoll ]
cd /var/lib/atoll
atoll --version
atoll local /usr/local/share/linear.toml --islands 2 --export model.safetensors --trainer "linear=env LD_LIBRARY_PATH=/usr/lib /usr/local/bin/atoll_linear_trainer"
[ -s model.safetensors ]'
echo "built, and trained as the image's user"
