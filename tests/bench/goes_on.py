#!/usr/bin/env python3
"""Which strategies go on bit for bit: after a pause, and after all islands and the coordinator were killed with -9 at once.

For each strategy a small model is trained three times on three islands with the same run file: without a stop, paused and resumed half way, and
killed half way and started anew (`[checkpoint] every_rounds = 1`). The digest at the end is that of all rounds; equal digests are equal bytes.

Usage: tests/bench/goes_on.py ATOLL TEXT [STRATEGY…]    names as in SETTINGS
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

SETTINGS = {
    "diloco": ["inner_steps = 10"],
    "diloco, overlap_steps = 4": ["inner_steps = 10", "overlap_steps = 4"],
    "streaming-diloco": ["inner_steps = 10", "fragments = 2", "grouping = 'balanced'", "overlap_steps = 2"],
    "decoupled-diloco, quorum of all": ["inner_steps = 10", "fragments = 2", "quorum = 3", "pace = 'fixed'"],
    "data-parallel": [],
    "noloco, fixed pace": ["inner_steps = 10", "pace = 'fixed'", "max_skew = 1000"],
    "eager-diloco": ["inner_steps = 10"],
    "co2": ["inner_steps = 10"],
}
RUN_FILE = """
[run]
name = "goes-on"
seed = 3
[model]
layers = 2
width = 32
heads = 2
[data]
set = "text"
[training]
steps = 120
batch = 2
sequence_length = 32
warmup_steps = 5
max_steps_per_second = 15
evaluate_every = 0
[islands]
min = 3
max = 3
[checkpoint]
every_rounds = 1
[strategy]
"""
atoll, text, *wanted = sys.argv[1:] if len(sys.argv) > 2 else sys.exit(__doc__)


def run_of(state):
    said = subprocess.run([atoll, "status", "goes-on", "--state", state + "/coordinator", "--json"], capture_output=True, text=True)
    return json.loads(said.stdout)["run"] if said.returncode == 0 else None


def until(state, reached):
    end = time.monotonic() + 300
    while time.monotonic() < end:
        run = run_of(state)
        if run and reached(run):
            return
        time.sleep(0.05)
    sys.exit(f"{state}: not reached within five minutes")


def start(state):
    return subprocess.Popen([atoll, "local", state + ".toml", "--islands", "3", "--state", state, "--data", "text=" + text, "--json"],
                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True)


def outcome(folder, name, how):
    state = os.path.join(folder, how)
    shutil.rmtree(state, ignore_errors=True)
    with open(state + ".toml", "w", encoding="utf-8") as file:
        file.write(RUN_FILE + "\n".join([f'name = "{name.split(",")[0]}"', *SETTINGS[name]]) + "\n")
    process = start(state)
    if how != "not stopped":
        until(state, lambda run: 2 * run["round"] >= run["rounds"])
    if how == "paused":
        subprocess.run([atoll, "pause", "goes-on", "--state", state + "/coordinator"], check=True, capture_output=True)
        until(state, lambda run: run["state"] == "paused")
        subprocess.run([atoll, "resume", "goes-on", "--state", state + "/coordinator"], check=True, capture_output=True)
    elif how == "killed":
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process = start(state)
    run = json.loads(process.communicate(timeout=600)[0].decode().splitlines()[-1])["run"]
    if run["state"] != "completed":
        sys.exit(f"{name}, {how}: {run['reason']}")
    return run["digest"], run["outer_loss"]


os.environ["OMP_NUM_THREADS"] = "1"
with tempfile.TemporaryDirectory() as folder:
    for name in wanted or SETTINGS:
        digest, loss = outcome(folder, name, "not stopped")
        line = [f"{name}: loss {loss:.4f}"]
        for how in ("paused", "killed"):
            other, other_loss = outcome(folder, name, how)
            line.append(f"{how}: {'the same bytes' if other == digest else f'other bytes, loss {other_loss:.4f}'}")
        print("; ".join(line), flush=True)
