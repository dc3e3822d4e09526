#!/bin/bash
# Unpacks what Atoll is built with, for aarch64, below a folder: headers and static libraries out of Debian's packages, of the release that this
# machine runs. apt checks their signatures, with settings below FOLDER; the system gets no other architecture. The C library is the cross compiler's.
#   examples/packaging/portable/aarch64_root.sh FOLDER
set -euo pipefail
mkdir -p "$1"
folder=$(realpath "$1")
packages="libzmq3-dev cppzmq-dev libcli11-dev libtomlplusplus-dev libcurl4-openssl-dev libssl-dev libcpp-httplib-dev libflatbuffers-dev libsqlite3-dev libminiupnpc-dev libnatpmp-dev
  nlohmann-json3-dev libspdlog-dev libfmt-dev zlib1g-dev libzstd-dev libpng-dev libjpeg62-turbo-dev libsodium-dev libbrotli-dev catch2
  libfmt9 libspdlog1.10"
recipe=$(sha256sum "$0" | cut -d ' ' -f 1)
if [ "$(cat "$folder/recipe" 2>/dev/null || true)" = "$recipe" ]; then exit 0; fi
rm -rf "${folder:?}/"*
mkdir -p "$folder/apt/lists/partial" "$folder/apt/cache/archives/partial" "$folder/packages"
: >"$folder/apt/status"

release=$(. /etc/os-release && echo "$VERSION_CODENAME")
key=/usr/share/keyrings/debian-archive-keyring.gpg
for line in "debian $release" "debian $release-updates" "debian-security $release-security"; do
  echo "deb [signed-by=$key arch=arm64] http://deb.debian.org/${line% *} ${line#* } main"
done >"$folder/apt/sources.list"
apt="apt-get -q -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::Etc::sourcelist=$folder/apt/sources.list -o Dir::Etc::sourceparts=/dev/null
  -o Dir::State::lists=$folder/apt/lists -o Dir::State::status=$folder/apt/status -o Dir::Cache=$folder/apt/cache -o APT::Sandbox::User=$(id -un)"
$apt update >&2
# shellcheck disable=SC2086
(cd "$folder/packages" && $apt download $packages >&2)
for package in "$folder/packages/"*.deb; do dpkg-deb -x "$package" "$folder"; done
# What libraries.sh builds takes the place of these.
rm -f "$folder"/usr/lib/*/lib{zmq,curl,cpp-httplib,fmt,spdlog}.a
rm -rf "$folder/packages" "$folder/apt"
echo "$recipe" >"$folder/recipe"
