#!/bin/bash
# Whether these files run on any Linux with glibc 2.34: what they need from outside is nothing but glibc and libgcc_s, no symbol of it is newer, and
# no path to libraries is written in them.
#   examples/packaging/portable/check.sh FILE…      $OBJDUMP reads files of another machine
set -euo pipefail
objdump=${OBJDUMP:-objdump}
floor=2.34
fail=0
for file in "$@"; do
  said=$("$objdump" -p "$file")
  while read -r library; do
    case "$library" in
      libc.so.6 | libm.so.6 | libgcc_s.so.1 | ld-linux-x86-64.so.2 | ld-linux-aarch64.so.1) ;;
      *) echo "$file needs $library" >&2; fail=1 ;;
    esac
  done < <(sed -n 's/^ *NEEDED *//p' <<<"$said")
  if grep -E '^ *(RPATH|RUNPATH)' <<<"$said" >&2; then echo "$file has a path to libraries in it" >&2; fail=1; fi
  newest=0
  while read -r version symbol; do
    case "$version" in
      GLIBC_PRIVATE | GLIBCXX_* | CXXABI_*) echo "$file needs $symbol of $version" >&2; fail=1 ;;
      GLIBC_*)
        number=${version#GLIBC_}
        newest=$(printf '%s\n' "$newest" "$number" | sort -V | tail -n 1)
        if [ "$(printf '%s\n' "$floor" "$number" | sort -V | tail -n 1)" != "$floor" ]; then
          echo "$file needs $symbol of $version, and the oldest system has $floor" >&2
          fail=1
        fi
        ;;
    esac
  done < <("$objdump" -T "$file" | sed -n 's/.*\*UND\*.*[[:space:](]\(\(GLIBC\|GLIBCXX\|CXXABI\|GCC\)_[A-Za-z0-9_.]*\)) *\([^ ]*\)$/\1 \3/p')
  [ "$fail" -ne 0 ] || echo "$(basename "$file"): $(stat -Lc %s "$file") bytes, glibc $newest"
done
exit $fail
