#!/bin/bash
# Builds the static libraries of a portable Atoll that Debian has not, or has only with half of the system behind them:
#   examples/packaging/portable/libraries.sh FOLDER [aarch64]     for this machine's kind, or by Debian's cross compiler
# ZeroMQ without Kerberos, PGM and NORM; curl for HTTP and HTTPS alone; cpp-httplib, spdlog and fmt. Their sources are Debian's, of the release
# that this machine runs; apt checks their signatures, with settings below FOLDER, so the system's stay as they are. FOLDER/lib has the libraries
# afterwards, and FOLDER/sources.txt says which versions. What is there already is not built again.
set -euo pipefail
mkdir -p "$1"
folder=$(realpath "$1")
here=$(realpath "$(dirname "$0")")
machine=${2:-}
sources="zeromq3 curl cpp-httplib spdlog fmtlib"
recipe=$(sha256sum "$here/libraries.sh" | cut -d ' ' -f 1)
if [ "$(cat "$folder/recipe" 2>/dev/null || true)" = "$recipe" ]; then exit 0; fi
rm -rf "$folder/source" "$folder/lib" "$folder/recipe"
mkdir -p "$folder/source" "$folder/lib" "$folder/apt/lists/partial" "$folder/apt/cache/archives/partial"

release=$(. /etc/os-release && echo "$VERSION_CODENAME")
key=/usr/share/keyrings/debian-archive-keyring.gpg
for line in "debian $release" "debian $release-updates" "debian-security $release-security"; do
  echo "deb-src [signed-by=$key] http://deb.debian.org/${line% *} ${line#* } main"
done >"$folder/apt/sources.list"
apt="apt-get -q -o Dir::Etc::sourcelist=$folder/apt/sources.list -o Dir::Etc::sourceparts=/dev/null -o Dir::State::lists=$folder/apt/lists
  -o Dir::Cache=$folder/apt/cache -o APT::Sandbox::User=$(id -un)"
$apt update >&2
# shellcheck disable=SC2086
(cd "$folder/source" && $apt source --download-only $sources >&2 && for description in *.dsc; do dpkg-source -x "$description" >>unpacked.log 2>&1; done)

# No path of this machine is in what comes out. CMake 4 asks for the policies of 3.5 at least, which Debian's older sources do not name.
prefix=""
root=""
includes=""
if [ -n "$machine" ]; then
  prefix=$machine-linux-gnu-
  root=$(dirname "$folder")/$machine-root
  includes="-isystem $root/usr/include -isystem $root/usr/include/$machine-linux-gnu"
fi
common=(-G Ninja -D CMAKE_BUILD_TYPE=Release -D CMAKE_POSITION_INDEPENDENT_CODE=ON -D BUILD_SHARED_LIBS=OFF -D CMAKE_POLICY_VERSION_MINIMUM=3.5
  -D "CMAKE_C_FLAGS=-ffile-prefix-map=$folder=. -fvisibility=hidden $includes" -D "CMAKE_CXX_FLAGS=-ffile-prefix-map=$folder=. $includes"
  ${machine:+-D "CMAKE_TOOLCHAIN_FILE=$here/$machine.cmake" -D "ATOLL_ROOT=$root"})
export CCACHE_BASEDIR="$folder" CCACHE_NOHASHDIR=1
if command -v ccache >/dev/null; then common+=(-D CMAKE_C_COMPILER_LAUNCHER=ccache -D CMAKE_CXX_COMPILER_LAUNCHER=ccache); fi
build() { # build SOURCE TARGET OPTION…
  local source target=$2
  source=$(echo "$folder"/source/"$1"-*/)
  cmake -S "$source" -B "$folder/build/$1" "${common[@]}" "${@:3}" >"$folder/$1.log" 2>&1 &&
    cmake --build "$folder/build/$1" -j "${ATOLL_JOBS:-$(nproc)}" --target "$target" >>"$folder/$1.log" 2>&1 || { tail -n 40 "$folder/$1.log" >&2; exit 1; }
  find "$folder/build/$1" -name '*.a' -exec cp {} "$folder/lib/" \;
}
rm -rf "$folder/build"
build zeromq3 libzmq-static -D BUILD_SHARED=OFF -D BUILD_STATIC=ON -D BUILD_TESTS=OFF -D WITH_PERF_TOOL=OFF -D WITH_DOCS=OFF -D ENABLE_CPACK=OFF \
  -D ENABLE_CURVE=ON -D WITH_LIBSODIUM=ON -D WITH_LIBSODIUM_STATIC=OFF -D WITH_OPENPGM=OFF -D WITH_NORM=OFF -D WITH_VMCI=OFF -D WITH_LIBBSD=OFF \
  -D ENABLE_WS=OFF -D WITH_TLS=OFF -D ENABLE_DRAFTS=OFF
build curl libcurl -D HTTP_ONLY=ON -D BUILD_CURL_EXE=OFF -D BUILD_TESTING=OFF -D ENABLE_MANUAL=OFF -D CURL_USE_OPENSSL=ON -D CURL_DISABLE_LDAP=ON \
  -D USE_NGHTTP2=OFF -D USE_LIBIDN2=OFF -D CURL_USE_LIBSSH2=OFF -D CURL_USE_LIBPSL=OFF -D CURL_USE_GSSAPI=OFF -D CURL_BROTLI=OFF -D CURL_ZSTD=OFF \
  -D CURL_ZLIB=OFF -D ENABLE_THREADED_RESOLVER=ON -D CURL_CA_BUNDLE=none -D CURL_CA_PATH=none -D CURL_CA_FALLBACK=ON
build fmtlib fmt -D FMT_DOC=OFF -D FMT_TEST=OFF
build spdlog spdlog -D SPDLOG_FMT_EXTERNAL=ON -D SPDLOG_BUILD_EXAMPLE=OFF -D SPDLOG_BUILD_TESTS=OFF -D SPDLOG_BUILD_SHARED=OFF
# Debian compiles cpp-httplib's one header into a library; so does this, with what Debian's header says of it. Its one random number is the
# system's: what std::random_device calls in libstdc++ is newer than the oldest glibc.
httplib=$(echo "$folder"/source/cpp-httplib-*/)
python3 "${httplib%/}/split.py" --out "$folder/build/httplib" >/dev/null
sed -i 's/std::random_device seed_gen;/const auto seed_gen = [] { unsigned word = 0; return ::getrandom(\&word, sizeof word, 0) == sizeof word ? word : throw std::runtime_error("no random numbers"); };/' \
  "$folder/build/httplib/httplib.cc"
# shellcheck disable=SC2046
(cd "$folder/build/httplib" && ${CXX:-${prefix}g++} -std=c++17 -O2 -DNDEBUG -fPIC -ffile-prefix-map="$folder"=. -DCPPHTTPLIB_USE_POLL $(pkg-config --cflags cpp-httplib) \
  $includes -I. -include stdexcept -include sys/random.h -c httplib.cc -o httplib.o && ar rcsD "$folder/lib/libcpp-httplib.a" httplib.o)

(cd "$folder/source" && sed -n 's/^\(Source\|Version\): //p' -s ./*.dsc | paste -d ' ' - - | sort -u) >"$folder/sources.txt"
echo "$recipe" >"$folder/recipe"
