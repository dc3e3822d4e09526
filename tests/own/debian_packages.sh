#!/bin/bash
# Installs the packages in a clean Debian, runs a coordinator and two islands by the units' own command lines, upgrades the packages while a run
# goes on, then removes and purges them:
#   tests/own/debian_packages.sh FOLDER BUILD [SUITE [PORTABLE]]   as root, for `debootstrap`, `chroot` and mounts in a namespace of their own
# FOLDER gets a Debian of that suite (bookworm) if it has none (some 300 MB); BUILD is a build folder with tests on Debian 12, build/release: the
# packages for bookworm are those of that build, the packages for another suite are built in FOLDER (without LibTorch, which takes another 2 GB
# there). PORTABLE is build/portable: its packages are for every suite, Ubuntu's jammy among them ($KEYRING names Ubuntu's keys where `debootstrap`
# does not know them). The islands train with the tests' trainer.
set -euo pipefail
folder=$1 build=$(realpath "$2") suite=${3:-bookworm} portable=${4:-}
source=$(realpath "$(dirname "$0")/../..")
if [ ! -e "$folder/etc/debian_version" ]; then
  case "$suite" in
    jammy | noble) mirror=http://archive.ubuntu.com/ubuntu components=main,universe ;;
    *) mirror=http://deb.debian.org/debian components=main ;;
  esac
  debootstrap --variant=minbase ${KEYRING:+--keyring="$KEYRING"} --components=$components "$suite" "$folder" $mirror
fi
folder=$(realpath "$folder")
rm -rf "$folder/packages" && mkdir "$folder/packages"
if [ "$suite" = bookworm ] || [ -n "$portable" ]; then
  for version in 0.1.0 0.1.1; do
    cpack -G DEB --config "${portable:-$build}/CPackConfig.cmake" -D CPACK_COMPONENTS_ALL=atoll -R $version -B "$folder/packages" >/dev/null
  done
else
  mkdir -p "$folder/source" "$folder/build"
  export source folder
  unshare -mp --fork --kill-child --mount-proc bash -euo pipefail -c '
mount -t proc proc "$folder/proc"
mount --rbind /dev "$folder/dev"
mount --bind -o ro "$source" "$folder/source"
here() { chroot "$folder" env LC_ALL=C.UTF-8 "$@"; }
here apt-get update -q >/dev/null
here /source/examples/install-packages.sh --without-torch >/dev/null
here apt-get install -q -y --no-install-recommends file dpkg-dev >/dev/null
here cmake --preset product -S /source -B /build -D ATOLL_TORCH=OFF >/dev/null
here cmake --build /build -j "$(nproc)"
for version in 0.1.0 0.1.1; do
  here cpack -G DEB --config /build/CPackConfig.cmake -D CPACK_COMPONENTS_ALL=atoll -R $version -B /packages >/dev/null
done
'
fi
cp "$build/tests/atoll_arithmetic_trainer.so" "$folder/packages/"
echo "on $(. "$folder/etc/os-release" && echo "$PRETTY_NAME"): $(ls "$folder/packages" | grep deb$ | tr "\n" " ")"
export folder portable
exec unshare -mp --fork --kill-child --mount-proc bash -euo pipefail -c '
mount -t proc proc "$folder/proc"
mount --rbind /dev "$folder/dev"
here() { chroot "$folder" "$@"; }
# As a plain command in the background this is the process itself, so that a signal reaches the program.
atoll_user=(chroot --userspec=atoll:atoll "$folder" env HOME=/var/lib/atoll ATOLL_TRAINER_MODULE=/packages/atoll_arithmetic_trainer.so)
as_atoll() { "${atoll_user[@]}" "$@"; }
fail() { echo "$1" >&2; tail -n 5 "$folder"/tmp/*.log >&2 || true; exit 1; }
command_of() { sed -n "s/^ExecStart=//p" "$folder/usr/lib/systemd/system/$1.service"; }
status() { as_atoll atoll status --state /var/lib/atoll/coordinator "$@"; }
wait_for() { for _ in $(seq 300); do if eval "$2"; then return; fi; sleep 0.2; done; fail "in vain: $1"; }

here apt-get update -q >/dev/null
here apt-get purge -q -y atoll >/dev/null 2>&1 || true
if [ -n "$portable" ]; then here apt-get install -q -y --no-install-recommends libzmq5 >/dev/null; fi  # which the trainer of the tests needs
rm -rf "$folder/var/lib/atoll" "$folder/etc/atoll" "$folder"/tmp/*.log
here apt-get install -q -y --no-install-recommends /packages/atoll_0.1.0_amd64.deb >/dev/null
here getent passwd atoll >/dev/null || fail "no user atoll"
[ "$(here stat -c "%U %a" /var/lib/atoll)" = "atoll 700" ] || fail "the state directory is not the user'"'"'s alone"
echo "installed: $(here atoll --version)"

# The services, as systemd would start them.
as_atoll atoll coordinator init --state /var/lib/atoll/coordinator --bind tcp://127.0.0.1:44400 --network local >/dev/null 2>&1
"${atoll_user[@]}" $(command_of atoll-coordinator) >"$folder/tmp/coordinator.log" 2>&1 & coordinator=$!
wait_for "the coordinator answers" "as_atoll atoll runs --state /var/lib/atoll/coordinator >/dev/null 2>&1"
head -c 100000 /dev/zero | tr "\0" x >"$folder/var/lib/atoll/text"
printf "data = [\"corpus=/var/lib/atoll/text\"]\n" >>"$folder/etc/atoll/agent.toml"
start_agent() {
  "${atoll_user[@]}" ATOLL_TEST_HOLD_AT=200 ATOLL_TEST_RELEASE=/tmp/release ${2:-} $(command_of atoll-agent | sed "s#/var/lib/atoll/agent#/var/lib/atoll/$1#") --name "$1" >>"$folder/tmp/$1.log" 2>&1 &
}
rm -f "$folder/tmp/release"
declare -A agents
for name in a b; do
  start_agent $name "ATOLL_JOIN_TOKEN=$(as_atoll atoll token create -q --state /var/lib/atoll/coordinator)"
  agents[$name]=$!
done
cat >"$folder/tmp/run.toml" <<RUN
[run]
name = "upgraded"
[model]
layers = 1
width = 32
heads = 2
[data]
set = "corpus"
[training]
steps = 400
batch = 4
sequence_length = 16
warmup_steps = 1
[strategy]
inner_steps = 10
[islands]
min = 1
max = 2
deadline = "60s"
RUN
as_atoll atoll submit /tmp/run.toml -q --state /var/lib/atoll/coordinator >/dev/null
wait_for "round 20" "status --json | grep -q \"\\\"round\\\":20,\""

# An upgrade: the files first, then one service after the other.
here apt-get install -q -y --no-install-recommends /packages/atoll_0.1.1_amd64.deb >/dev/null
grep -q corpus=/var/lib/atoll/text "$folder/etc/atoll/agent.toml" || fail "an upgrade lost settings"
kill -TERM $coordinator; wait $coordinator || true
"${atoll_user[@]}" $(command_of atoll-coordinator) >>"$folder/tmp/coordinator.log" 2>&1 & coordinator=$!
touch "$folder/tmp/release"
for name in a b; do
  kill -TERM ${agents[$name]}; wait ${agents[$name]} || fail "the agent $name did not leave well"
  start_agent $name; agents[$name]=$!
done
as_atoll atoll wait upgraded --timeout 2m --state /var/lib/atoll/coordinator >"$folder/tmp/end.log" 2>&1 || fail "the run did not survive the upgrade"
echo "upgraded while a run went on: $(here dpkg-query -W -f "\${Version}" atoll); $(grep -o "completed.*" "$folder/tmp/end.log" | head -1)"
for process in "${agents[@]}" $coordinator; do kill -TERM $process; wait $process || true; done

here apt-get remove -q -y atoll >/dev/null
[ ! -e "$folder/usr/bin/atoll" ] && [ -e "$folder/var/lib/atoll/coordinator/ledger.db" ] && [ -e "$folder/etc/atoll/agent.toml" ] || fail "remove takes the wrong things"
here apt-get purge -q -y atoll >/dev/null
[ ! -e "$folder/var/lib/atoll" ] && [ ! -e "$folder/etc/atoll/agent.toml" ] || fail "purge leaves state or settings"
echo "removed and purged"
'
