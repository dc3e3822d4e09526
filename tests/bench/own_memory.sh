#!/bin/bash
# What an agent needs for a large model of one's own, and how long a round's stages take: tests/bench/own_memory.sh BUILD [LAYERS [WIDTH [KEY=VALUE…]]]
# KEY=VALUE are further keys of [strategy]: outer_state=bf16 grouping=balanced fragments=8.
# 24 layers of width 1024 are 303 million parameters; two islands of them need some 18 GB of memory and 10 GB of disk.
set -euo pipefail
build=$(realpath "$1") here=$(realpath "$(dirname "$0")") layers=${2:-24} width=${3:-1024}
shift $(($# < 3 ? $# : 3))
keys=
for word in "$@"; do
  case ${word#*=} in
    [0-9]* | true | false) keys+="${word%%=*} = ${word#*=}"$'\n' ;;
    *) keys+="${word%%=*} = \"${word#*=}\""$'\n' ;;
  esac
done
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat > "$folder/run.toml" <<TOML
[run]
name = "large"
arena_limit = "16GiB"
[trainer]
name = "large"
tokens_per_sample = 8
[trainer.settings]
layers = $layers
width = $width
[training]
steps = 6
[strategy]
name = "diloco"
inner_steps = 2
$keys[islands]
min = 2
max = 2
deadline = "1h"
[checkpoint]
every_rounds = 3
TOML
export PYTHONPATH=$here/../../agent/island_link/python OMP_NUM_THREADS=1
"$build/atoll" local "$folder/run.toml" --state "$folder/state" -o json --trainer "large=/usr/bin/python3 $here/large_trainer.py" > "$folder/end.json" &
run=$!
: > "$folder/peak"
while kill -0 $run 2> /dev/null; do
  for pid in $(pgrep -P $run); do
    tr '\0' ' ' < "/proc/$pid/cmdline" 2> /dev/null | grep -q ' agent ' && awk '/^VmHWM/ {print $2}' "/proc/$pid/status" >> "$folder/peak" 2> /dev/null
  done
  sleep 1
done
wait $run
/usr/bin/python3 - "$folder" "$*" <<'PY'
import json, sqlite3, sys
folder, keys = sys.argv[1:]
run = json.load(open(folder + "/end.json"))["run"]
peak = max(int(line) for line in open(folder + "/peak")) * 1024
parameters = run["parameters"]
print(f"{keys + ': ' if keys else ''}{run['state']} after {run['round']} rounds: {parameters / 1e6:.1f} M parameters, an agent's peak {peak / 1e9:.2f} GB: {peak / parameters:.2f} bytes a parameter,"
      f" {(peak - 16 * parameters) / 2**20:+.0f} MiB against 16")
spans = sqlite3.connect(folder + "/state/coordinator/ledger.db").execute(
    "SELECT activity, count(*), avg(length_ns) / 1e9, max(length_ns) / 1e9 FROM spans GROUP BY activity ORDER BY activity")
for activity, count, mean, longest in spans:
    print(f"  {activity:12} {count:4} bars, mean {mean:7.2f} s, longest {longest:7.2f} s")
PY
