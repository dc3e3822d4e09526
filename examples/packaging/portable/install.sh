#!/bin/sh
# Installs this unpacked Atoll below a folder, ~/.local if none is given; nothing of it needs root:
#   ./install.sh [PREFIX]
# Where there is a systemd of the user's own, its units go to ~/.config/systemd/user, and `systemctl --user enable --now atoll-agent` starts an agent.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
prefix=${1:-$HOME/.local}
fail() {
  echo "install.sh: $1" >&2
  exit 1
}
(cd "$here" && sha256sum --quiet --strict -c SHA256SUMS) || fail "files are missing or damaged; unpack the archive again"
machine=$(uname -m)
[ "$machine" = "$(cat "$here/machine")" ] || fail "this Atoll is for $(cat "$here/machine"), and this machine is $machine"
"$here/bin/atoll" --version >/dev/null || fail "the program does not run here; it needs Linux with glibc 2.34 or newer (ldd --version)"
mkdir -p "$prefix" 2>/dev/null && [ -w "$prefix" ] || fail "$prefix cannot be written; choose another folder: ./install.sh PREFIX"
prefix=$(cd "$prefix" && pwd)
(cd "$here" && find bin lib share include ! -type d) | while read -r file; do
  mkdir -p "$prefix/$(dirname "$file")"
  # Beside the old one and then in its place: a program that runs goes on with its own file.
  cp -P "$here/$file" "$prefix/$file.new$$" && mv -f "$prefix/$file.new$$" "$prefix/$file" || fail "$prefix/$file cannot be written"
done
units="${XDG_CONFIG_HOME:-$HOME/.config}/systemd/user"
if [ -z "${1:-}" ] && mkdir -p "$units" 2>/dev/null; then
  for unit in "$here"/systemd/*.service; do
    sed "s#@PREFIX@#$prefix#g" "$unit" >"$units/$(basename "$unit")"
  done
fi
echo "installed: $prefix/bin/atoll ($("$prefix/bin/atoll" --version))"
case ":$PATH:" in
  *":$prefix/bin:"*) ;;
  *) echo "add it to your path: export PATH=\"$prefix/bin:\$PATH\"" ;;
esac
