# What the benches of clusters share, for `.`: a coordinator and islands as real processes on loopback, around the trainer of the process tests, in a
# temporary folder that is gone at the end. $1 and $2 are PATH_TO_ATOLL and PATH_TO_ARITHMETIC_TRAINER, $port may say where the coordinator listens.
atoll=$(realpath "$1")
ATOLL_TRAINER_MODULE=$(realpath "$2")
export ATOLL_TRAINER_MODULE
folder=$(mktemp -d)
pids=
stop() { for pid in $pids; do kill -9 "$pid" 2> /dev/null || true; done; wait; rm -rf "$folder"; }  # trainers die with their agents
trap stop EXIT
trap 'exit 130' INT TERM
export ATOLL_STATE="$folder/coordinator"
head -c 100000 /dev/zero | tr '\0' x > "$folder/text"

now_ms() { date +%s%3N; }
init() { # init NETWORK
  address=tcp://127.0.0.1:${port:-$((20000 + $$ % 20000))}
  "$atoll" coordinator init --network "$1" --bind "$address" --advertise "$address" > /dev/null 2>&1
  coordinator
}
coordinator() { "$atoll" coordinator --log-level error > /dev/null 2>> "$folder/log" & coordinator=$!; pids="$pids $coordinator"; }
# The first time an island joins; $log_level is its log's. Its process is in the variable of its name.
island() { # island NAME [OPTION…]
  name=$1
  shift
  if [ ! -d "$folder/$name" ]; then
    until token=$("$atoll" token create -q 2> /dev/null); do sleep 0.1; done
    set -- "$@" --join "$token"
  fi
  "$atoll" agent --state "$folder/$name" --name "$name" --data corpus="$folder/text" --log-level "${log_level:-error}" "$@" > /dev/null 2>> "$folder/log" &
  eval "$name=$!"
  pids="$pids $!"
}
# TOKENS TIME_MS of each committed round of a run but the initial one.
commits() { # commits RUN
  "$atoll" events "$1" --json | grep '"kind":"round_committed"' | grep -v '"round":0[,}]' |
    sed 's/.*"tokens":\([0-9]*\).*"time_unix_ms":\([0-9]*\).*/\1 \2/'
}
# RATE ROUNDS: a run's committed tokens a second from its second commit to its last, and how many commits these are.
committed_rate() { # committed_rate RUN
  commits "$1" | awk 'NR == 1 { begin = $2 } NR > 1 { tokens += $1; end = $2 } END { printf "%.1f %d\n", tokens * 1000 / (end - begin), NR - 1 }'
}
# A run file of which the lines below [training]'s come from stdin.
run_file() { # run_file NAME
  cat > "$folder/$1.toml" <<END
[run]
name = "$1"
[model]
layers = 1
width = 32
heads = 2
[data]
set = "corpus"
[training]
steps = 100000000
batch = 4
sequence_length = 16
warmup_steps = 1
END
  cat >> "$folder/$1.toml"
}
