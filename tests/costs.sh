#!/bin/sh
# Prints what a run of the tests cost: the seconds of its tests by label, the longest ones, and the time that passed; last of all the ends of
# what failed tests printed, as they are far up in the log, and some CI keeps only a log's end.
#   tests/costs.sh LOG BUILD_SECONDS TEST_SECONDS      LOG: what ctest printed
#   tests/costs.sh --names                             fails if costs.txt names a test that there is not
set -eu

if [ "$1" = --names ]; then
  cd "$(dirname "$0")"
  status=0
  while read -r tier _ _ name; do
    case "$tier" in "" | "#"*) continue ;; esac
    if ! grep -rqF --include="*.cpp" --include=CMakeLists.txt -e "\"$name\"" -e "\"$tier: $name\"" .; then
      echo "costs.txt: there is no test '$name': give its new name, or remove the line" >&2
      status=1
    fi
  done <costs.txt
  exit $status
fi

tests() { # LABEL SECONDS NAME of each test in the log
  sed -nE 's/^ *[0-9]+\/[0-9]+ Test +#[0-9]+: (.*[^ .]) \.*[ *]*[A-Z][A-Za-z ]* +([0-9.]+) sec.*$/\2 \1/p' "$1" |
    awk '{ label = $2; sub(/:.*/, "", label); if (label == "torch") label = "paper"; seconds = $1; $1 = ""; print label, seconds, substr($0, 2) }'
}

echo
echo "What this run cost:"
printf '  %-10s %6s %9s\n' label tests seconds
tests "$1" | awk '
  { seconds[$1] += $2; number[$1]++; all += $2 }
  END {
    for (label in seconds) printf "  %-10s %6d %9.0f\n", label, number[label], seconds[label] | "sort -k3,3nr -k1,1"
    close("sort -k3,3nr -k1,1")
    printf "  %-10s %6d %9.0f\n", "all", NR, all
  }'
echo "  the longest:"
tests "$1" | sort -k2,2nr | head -8 | while read -r _ seconds name; do
  printf '  %17s %9.0f  %.100s\n' "" "$seconds" "$name"
done
minutes() { printf '%d min %02d s' $(($1 / 60)) $(($1 % 60)); }
echo "  installing and building $(minutes "$2"), tests $(minutes "$3")"
# ctest prints what a test said behind its line, up to the next line of its own.
awk '
  /^ *[0-9]+\/[0-9]+ Test +#[0-9]+: / { if (failed) show(); failed = /\*\*\*/; number = 0; if (failed) name = $0; next }
  /^ *Start +[0-9]+: / || /^[0-9]+% tests passed/ { if (failed) show(); failed = 0 }
  failed { lines[++number] = $0 }
  function show(  k) {
    print "\nfailed: " name
    for (k = number > 60 ? number - 59 : 1; k <= number; k++) print "  " substr(lines[k], 1, 300)
  }' "$1"
