#!/bin/sh
# The Debian packages of this build: what each holds, that what is in them runs where they are unpacked, that only one needs LibTorch, that Debian's
# own tools find no error in them, and that the same build gives the same bytes.
#   tests/packages.sh BUILD PYTHON        exit 4: skipped
set -eu
cd "$(dirname "$0")/.."
build=$1
python=$2
for tool in cpack dpkg-deb dpkg-shlibdeps; do
  command -v $tool >/dev/null || { echo "skipped: $tool is not installed (apt-get install cmake dpkg-dev)"; exit 4; }
done
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() {
  echo "$1" >&2
  exit 1
}
make_packages() {
  SOURCE_DATE_EPOCH=1767225600 cpack -G DEB --config "$build/CPackConfig.cmake" -B "$1" >"$folder/log" 2>&1 || fail "$(cat "$folder/log")"
}
make_packages "$folder/packages"
for package in "$folder"/packages/*.deb; do
  name=$(dpkg-deb -f "$package" Package)
  dpkg-deb -x "$package" "$folder/root"
  case "$name:$(dpkg-deb -f "$package" Depends)" in
    atoll-torch:*libtorch*)  # where the system's LibTorch is new enough, Debian 13's
      case "$(dpkg-deb -f "$package" Depends)" in
        *libopenblas0*) ;;
        *) fail "atoll-torch does not ask for OpenBLAS: with the reference BLAS it trains many times slower" ;;
      esac
      ;;
    *libtorch*) fail "$name needs LibTorch" ;;
    atoll-torch:*) fail "atoll-torch does not say that it needs LibTorch" ;;
  esac
  echo "$name $(dpkg-deb -f "$package" Version) $(dpkg-deb -f "$package" Architecture)"
done
for file in bin/atoll lib/libatoll_trainer.so.1 include/atoll_trainer.h lib/python3/dist-packages/atoll/torch.py share/man/man1/atoll.1.gz \
  share/man/man1/atoll-token-create.1.gz share/bash-completion/completions/atoll share/zsh/vendor-completions/_atoll \
  share/fish/vendor_completions.d/atoll.fish lib/systemd/system/atoll-coordinator.service lib/systemd/system/atoll-agent.service \
  lib/systemd/system/atoll-relay.service; do
  [ -e "$folder/root/usr/$file" ] || fail "no package has $file"
done
"$folder/root/usr/bin/atoll" --version
for settings in agent.toml coordinator.toml; do
  grep -q "^/etc/atoll/$settings$" examples/packaging/debian/conffiles && [ -e "$folder/root/etc/atoll/$settings" ] || fail "no settings file $settings"
done
bash -n "$folder/root/usr/share/bash-completion/completions/atoll"
if command -v man >/dev/null; then
  for page in "$folder"/root/usr/share/man/man1/*.gz; do
    MANROFFSEQ='' MANWIDTH=80 LC_ALL=C.UTF-8 man --warnings -E UTF-8 -l "$page" >"$folder/shown" 2>"$folder/warnings"
    [ ! -s "$folder/warnings" ] || fail "$page: $(cat "$folder/warnings")"
  done
fi
if command -v systemd-analyze >/dev/null; then
  mkdir "$folder/units"
  for unit in atoll-coordinator atoll-agent atoll-relay; do
    sed "s#/usr/bin/atoll#$folder/root/usr/bin/atoll#" "$folder/root/usr/lib/systemd/system/$unit.service" >"$folder/units/$unit.service"
    said=$(systemd-analyze verify --man=no "$folder/units/$unit.service" 2>&1) || fail "$unit.service: $said"
    [ -z "$said" ] || fail "$unit.service: $said"
  done
fi
if command -v lintian >/dev/null; then
  lintian --allow-root --fail-on error --suppress-tags bogus-mail-host "$folder"/packages/*.deb || fail "lintian finds errors"
fi
make_packages "$folder/again"
for package in "$folder"/packages/*.deb; do
  cmp "$package" "$folder/again/$(basename "$package")" || fail "the same build gave another $(basename "$package")"
done
if [ -e "$folder/root/usr/lib/atoll/atoll_trainer.so" ]; then
  # It is found beside the program that was unpacked, not in the build.
  mkdir "$folder/data"
  head -c 20000 /dev/zero | tr '\0' 'x' >"$folder/data/text"
  printf '[run]\nname = "packed"\n[model]\nlayers = 1\nwidth = 32\nheads = 2\n[data]\nfiles = ["data/text"]\n[training]\nsteps = 4\nbatch = 2\nsequence_length = 16\nwarmup_steps = 1\n[strategy]\ninner_steps = 2\n[islands]\nmin = 2\nmax = 2\n' >"$folder/run.toml"
  (cd "$folder" && OMP_NUM_THREADS=1 root/usr/bin/atoll local run.toml --state state --network local -o json >out.json) || fail "a run of the unpacked program did not complete"
  grep -q '"state": *"completed"' "$folder/out.json" || fail "a run of the unpacked program did not complete"
fi
if "$python" -c 'import numpy' 2>/dev/null; then
  cd "$folder"
  PYTHONPATH="$folder/root/usr/lib/python3/dist-packages" LD_LIBRARY_PATH="$folder/root/usr/lib" "$python" -c '
import atoll, numpy
assert atoll.__file__.startswith("'"$folder"'"), atoll.__file__
from atoll import _library
assert _library._load() is not None
'
fi
