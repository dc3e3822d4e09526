#!/bin/bash
# Installs the portable wheel, tarball and package in another system, and trains two islands with each:
#   tests/own/portable_elsewhere.sh FOLDER DIST [SUITE]   as root, for `debootstrap`, `chroot` and mounts in a namespace of their own
# FOLDER gets that system if it has none (some 400 MB): Debian 13 (trixie), or Ubuntu 22.04 (jammy; $KEYRING names Ubuntu's keys where `debootstrap`
# does not know them). DIST is what examples/packaging/portable.sh made.
set -euo pipefail
folder=$1 dist=$(realpath "$2") suite=${3:-trixie}
if [ ! -e "$folder/etc/os-release" ]; then
  case "$suite" in
    jammy | noble) mirror=http://archive.ubuntu.com/ubuntu components=main,universe ;;
    *) mirror=http://deb.debian.org/debian components=main ;;
  esac
  debootstrap --variant=minbase ${KEYRING:+--keyring="$KEYRING"} --components=$components --include=adduser,python3-venv,python3-numpy,ca-certificates "$suite" "$folder" $mirror
fi
folder=$(realpath "$folder")
rm -rf "$folder/dist" "$folder/tried" && mkdir -p "$folder/dist" "$folder/tried"
cp "$dist"/atoll* "$dist/SHA256SUMS" "$folder/dist/"
cat >"$folder/tried/train.py" <<'LOOP'
import numpy
import atoll
island = atoll.join()
w = numpy.zeros(4, numpy.float32)
island.start({"weights": w})
for step in island.steps():
    w -= 0.1 * (w - 3)
    island.done(float(numpy.square(w - 3).sum()), samples=1)
LOOP
cat >"$folder/tried/run.toml" <<'RUN'
[run]
name = "elsewhere"
[trainer]
name = "line"
command = "python3 train.py"
[training]
steps = 60
[strategy]
inner_steps = 10
[islands]
min = 2
max = 2
RUN
export folder
exec unshare -mp --fork --kill-child --mount-proc bash -euo pipefail -c '
mount -t proc proc "$folder/proc"
mount --rbind /dev "$folder/dev"
here() { chroot "$folder" env -i HOME=/root LANG=C.UTF-8 PATH="${1}/usr/bin:/bin:/usr/sbin:/sbin" sh -euc "cd /tried && $2"; }
trains="rm -rf s && atoll local run.toml --network local --state s -o json | grep -o completed | head -n 1"
. "$folder/etc/os-release"
echo "on $PRETTY_NAME, glibc $(here "" "ldd --version | sed -n 1p")"
here "" "rm -rf venv && python3 -m venv --system-site-packages venv && venv/bin/pip install -q --no-index --no-deps --disable-pip-version-check /dist/*.whl"
echo "wheel: $(here /tried/venv/bin: "atoll --version; $trains; python3 -m atoll --version")"
here "" "tar xzf /dist/atoll-*.tar.gz && atoll-*/install.sh /tried/opt >/dev/null"
echo "tarball: $(here /tried/opt/bin: "atoll --version")"
here "" "dpkg -i --force-depends /dist/atoll_*.deb >/dev/null 2>&1"
[ "$(here "" "command -v atoll")" = /usr/bin/atoll ]
echo "package: $(here "" "atoll --version; dpkg -s atoll | sed -n s/^Depends:/needs/p")"
echo "a coordinator of the package: $(here "" "rm -rf c && atoll coordinator init --state c --bind tcp://127.0.0.1:44400 >/dev/null 2>&1; ls c/ledger.db")"
'
