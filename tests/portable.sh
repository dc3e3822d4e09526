#!/bin/sh
# Makes the portable program, tarball, wheel, Debian packages and rpm (examples/packaging/portable.sh) and tests them as people install them:
#   tests/portable.sh SOURCE PYTHON [TEST…]       exit 4: skipped
# What is compiled already for another build of these sources comes out of a compiler's cache, where there is one.
set -eu
source=$1
python=$2
shift 2
for tool in dpkg-source objdump cpack; do
  command -v $tool >/dev/null || { echo "skipped: $tool is not installed (apt-get install dpkg-dev binutils cmake)"; exit 4; }
done
if [ ! -e "$source/build/portable-libraries/recipe" ] && ! "$python" -c 'import urllib.request as u; u.urlopen("http://deb.debian.org/debian/", timeout=20)' 2>/dev/null; then
  echo "skipped: the sources of libraries are not here, and Debian's archive cannot be reached"
  exit 4
fi
"$source/examples/packaging/portable.sh" "$source/build/dist"
exec "$python" "$source/tests/own/portable_test.py" "$source/build/dist" "$source" "$@"
