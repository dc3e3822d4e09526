#!/bin/sh
# Reads every source of the product and of the tests with the compiler and the libraries of Debian 13 (GCC 14); a warning is an error.
#   tests/newer_compiler.sh [FOLDER]      as root; FOLDER (build/newer_compiler) becomes a Debian 13, some 2 GB, and is used again
# Nothing is compiled to machine code, linked or run: what only the optimiser or a run would find is not found. Sources that have not
# changed are not read again.
# Exit status: 0 all are fine, 1 a source or a package is not, 2 the folder is something else, 4 it cannot run here (why is said in one line).
set -eu
cd "$(dirname "$0")/.."
folder=${1:-build/newer_compiler}
mirror=http://deb.debian.org/debian

skip() { echo "tests/newer_compiler.sh: skipped: $1" >&2; exit 4; }

[ "$(id -u)" -eq 0 ] || skip "makes a Debian 13 by debootstrap and chroot, which only root can"
mkdir -p "$(dirname "$folder")"
folder=$(realpath -m "$folder")
log=$folder.log

if [ ! -e "$folder" ]; then
  if ! command -v debootstrap >/dev/null; then
    { apt-get update -q && env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends debootstrap; } >"$log" 2>&1 ||
      skip "debootstrap cannot be installed, see $log"
  fi
  echo "making a Debian 13 in $folder" >&2
  # Under another name until it is whole: a download that breaks off leaves nothing that looks like it.
  rm -rf --one-file-system "$folder.part"
  debootstrap --variant=minbase trixie "$folder.part" "$mirror" >"$log" 2>&1 || skip "Debian 13 cannot be made from $mirror, see $log"
  mv "$folder.part" "$folder"
fi
grep -qs "^VERSION_CODENAME=trixie" "$folder/etc/os-release" ||
  { echo "tests/newer_compiler.sh: $folder is not a Debian 13; name another folder or remove it" >&2; exit 2; }

# The tree as it stands, with what is new in it and without what is ignored or removed.
rm -rf --one-file-system "$folder/source"
mkdir "$folder/source"
git ls-files --cached --others --exclude-standard | while IFS= read -r file; do
  if [ -e "$file" ]; then printf '%s\n' "$file"; fi
done | tar -cf - -T - | tar -C "$folder/source" -xf -

here() { chroot "$folder" env LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"; }
# catch2 alone of what tests need: the others are for running them.
{ here /source/examples/install-packages.sh && { here dpkg -s catch2 >/dev/null || here apt-get install -q -y --no-install-recommends catch2; }; } \
  >"$log" 2>&1 || {
  if absent=$(grep -E "Unable to locate package|has no installation candidate" "$log"); then
    echo "tests/newer_compiler.sh: not in Debian 13: $absent" >&2
    exit 1
  fi
  skip "Debian 13's packages cannot be installed from $mirror, see $log"
}

# In front of each compilation and each link: a source is read, nothing is linked, and an empty file says that it was done.
cat >"$folder/read_only" <<'END'
#!/bin/sh
case " $* " in
  *" -c "*) "$@" -fsyntax-only -Werror || exit 1 ;;
esac
while [ "$1" != -o ]; do shift; done
: >"$2"
END
chmod +x "$folder/read_only"
here cmake --preset release -S /source -B /build -D CMAKE_CXX_COMPILER_LAUNCHER=/read_only -D CMAKE_CXX_LINKER_LAUNCHER=/read_only >"$log" 2>&1 ||
  { cat "$log" >&2; echo "tests/newer_compiler.sh: CMake cannot configure the tree on Debian 13" >&2; exit 1; }
objects=$(here ninja -C /build -t targets all | sed -n 's/^\(.*\.o\): CXX_COMPILER.*/\1/p')
[ -n "$objects" ] || { echo "tests/newer_compiler.sh: the tree has no sources" >&2; exit 1; }
# shellcheck disable=SC2086
here ninja -C /build -k 0 -j "${ATOLL_JOBS:-$(nproc)}" $objects >"$log" 2>&1 || {
  sed '/^\[/d; /^ninja:/d; s|/source/||g' "$log" >&2
  echo "tests/newer_compiler.sh: these sources do not compile with $(here g++ --version | head -n 1)" >&2
  exit 1
}
echo "every source is fine with $(here g++ --version | head -n 1) ($(echo "$objects" | wc -l) units)"
