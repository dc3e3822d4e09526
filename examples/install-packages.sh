#!/bin/sh
# Installs what Atoll builds with, if anything of it is missing: Debian's packages (with sudo when not root), and where Debian has no LibTorch
# of 2.6 or newer, as Debian 12 has not, that of PyPI's torch, into an environment of its own, build/python.
#   examples/install-packages.sh [--with-tests] [--without-torch] [--portable] [--aarch64]
set -eu

packages="g++ cmake ninja-build pkg-config libzmq3-dev cppzmq-dev libcli11-dev libtomlplusplus-dev libcurl4-openssl-dev libssl-dev
  libcpp-httplib-dev libflatbuffers-dev flatbuffers-compiler libsqlite3-dev libminiupnpc-dev libnatpmp-dev nlohmann-json3-dev libspdlog-dev zlib1g-dev libzstd-dev libpng-dev libjpeg-dev"
root=$(cd "$(dirname "$0")/.." && pwd)
release=$(. /etc/os-release && echo "${ID:-}${VERSION_ID:-}")
case "$release" in
  ubuntu1?.* | ubuntu2[0-3].* | debian1[01])
    echo "install-packages.sh: $release has libraries older than Atoll is written for, and no toml++: install the wheel, the tarball or the package (docs/install.md), or build on Debian 12 or newer" >&2
    exit 1
    ;;
  debian1[3-9]*) torch="libtorch-dev libopenblas0-pthread" wheel="" ;;
  *) torch="python3 python3-venv" wheel=yes ;;
esac
python_torch=""
for argument in "$@"; do
  case "$argument" in
    --with-tests) # with what trainers in Python and the page in a browser are tested with; the portable program is compiled a second time,
      # which ccache spares
      packages="$packages catch2 ccache dpkg-dev clang-format iproute2 nftables miniupnpd miniupnpd-nftables python3-numpy python3-pip python3-venv chromium librsvg2-bin prometheus
        munge slurmctld slurmd slurm-client squid microsocks rpm qemu-user patchelf"
      python_torch="python3-torch"
      ;;
    --without-torch) torch="" wheel="" ;;
    --portable) packages="$packages dpkg-dev python3 rpm" ;; # with what examples/packaging/portable.sh builds libraries of
    --aarch64) packages="$packages g++-aarch64-linux-gnu qemu-user patchelf" ;; # with what compiles for ARM, and runs what was compiled
    *) echo "install-packages.sh: unknown argument $argument (known: --with-tests, --without-torch, --portable, --aarch64)" >&2; exit 2 ;;
  esac
done

[ -z "$torch" ] || torch="$torch $python_torch"

# PyTorch's own index first where it is reached: it has wheels for processors alone, where those of PyPI bring gigabytes for GPUs.
install_wheel() {
  wanted=$root/examples/packaging/torch.txt
  environment=$root/build/python
  cmp -s "$wanted" "$environment/torch.txt" && return
  echo "installing into build/python: $(grep -v '^#' "$wanted" | tr '\n' ' ')" >&2
  [ -x "$environment/bin/python" ] || python3 -m venv "$environment" >&2
  processors=https://download.pytorch.org/whl/cpu
  "$environment/bin/python" -c "import urllib.request as u; u.urlopen('$processors/torch/', timeout=5)" 2>/dev/null || processors=""
  if ! "$environment/bin/python" -m pip install -q --disable-pip-version-check ${processors:+--extra-index-url $processors} -r "$wanted" >&2; then
    rm -rf "$environment"
    echo "install-packages.sh: no LibTorch for the built-in trainer: pip install torch failed. Give one of your own (cmake -DATOLL_TORCH=FOLDER)" \
      "or build without it (--without-torch here, -DATOLL_TORCH=OFF for cmake)" >&2
    exit 1
  fi
  cp "$wanted" "$environment/torch.txt"
}

missing=""
for package in $packages $torch; do
  if ! dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q '^install ok installed'; then
    missing="$missing $package"
  fi
done
if [ -z "$missing" ]; then
  [ -z "$wheel" ] || install_wheel
  exit 0
fi

echo "installing:$missing" >&2
as_root=""
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "install-packages.sh: not root and no sudo; install these packages first:$missing" >&2
    exit 1
  fi
  as_root="sudo"
fi
$as_root apt-get update -q >&2

# These are here for tests, which start them themselves: their services neither start now nor with the machine.
policy=/usr/sbin/policy-rc.d
services=""
for service in prometheus munge slurmctld slurmd squid microsocks; do
  case "$missing " in *" $service "*) services="$services $service" ;; esac
done
if [ -n "$services" ] && [ ! -e "$policy" ]; then
  printf '#!/bin/sh\ncase "$1" in prometheus*|munge*|slurm*) exit 101 ;; esac\n' | $as_root tee "$policy" >/dev/null
  $as_root chmod 755 "$policy"
  trap '$as_root rm -f "$policy"' EXIT
fi
# shellcheck disable=SC2086
$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $missing >&2
if [ -n "$services" ] && command -v systemctl >/dev/null; then
  # shellcheck disable=SC2086
  $as_root systemctl disable --quiet $services 2>/dev/null || true
fi
[ -z "$wheel" ] || install_wheel
