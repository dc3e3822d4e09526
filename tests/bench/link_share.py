"""Which share of an emulated line a whole round uses: real agents by `atoll local --link`, around the tests' trainer, which takes no time for a step.

    python3 tests/bench/link_share.py ATOLL TRAINER [--islands 2,4] [--rtt 0.2ms,20ms,100ms,200ms,300ms] [--rate 100mbit,1gbit,max] [--loss 0]
                                      [--millions 25] [--rounds 5]

Prints for each line the seconds of an exchange, from the first byte that is sent to the last one that has come on any island, and of a whole round,
from one commit to the next, medians of all rounds but the first; the rate at which an island received, and the share of the line's rate that this
is, by the exchange and by the whole round. The first round is told by itself: its connections have no windows yet.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

RUN = """[run]
name = "share"
[model]
layers = 1
width = 32
heads = 2
[data]
files = ["text"]
[training]
steps = {rounds}
batch = 4
sequence_length = 16
[strategy]
inner_steps = 1
outer_momentum = 0.5
[islands]
min = {islands}
max = {islands}
deadline = "10m"
[checkpoint]
every_rounds = 1000000
"""


def bits(rate):
    for unit, factor in (("gbit", 1e9), ("mbit", 1e6)):
        if rate.endswith(unit):
            return float(rate[: -len(unit)]) * factor
    return None


def ask(atoll, state, *words):
    done = subprocess.run([atoll, *words, "--state", state / "coordinator"], capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else ""


def rehearse(arguments, folder, text, islands, *options):
    """The events of a run of this run file between local islands, and the spans of its trace."""
    (folder / "text").write_bytes(b"x" * 100000)
    (folder / "run.toml").write_text(text)
    environment = dict(os.environ, ATOLL_TRAINER_MODULE=str(pathlib.Path(arguments.trainer).resolve()), ATOLL_TEST_STEP_MS="0",
                       ATOLL_TEST_HEAD=str(int(arguments.millions * 1e6) - 200))
    state = folder / "state"
    done = subprocess.run([arguments.atoll, "local", folder / "run.toml", "--islands", str(islands), "--state", state, *options, "--log-level", "warning"],
                          env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    with subprocess.Popen([arguments.atoll, "coordinator", "--state", state / "coordinator", "--log-level", "error"],
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as coordinator:
        for _ in range(100):
            events = ask(arguments.atoll, state, "events", "share", "-o", "json")
            if events:
                break
            time.sleep(0.1)
        ask(arguments.atoll, state, "trace", "share", "-o", folder / "trace.json")
        coordinator.terminate()
    spans = json.loads((folder / "trace.json").read_text())["traceEvents"]
    return [json.loads(line) for line in events.splitlines()], [event for event in spans if event["ph"] == "X"]


def exchanges_of(spans):
    """Seconds from the first byte that is sent to the last one that has come on any island, for each round."""
    rounds = {}
    for event in spans:
        if event["cat"] in ("send", "receive"):
            rounds.setdefault(event["args"]["round"], []).append((event["ts"] / 1e6, (event["ts"] + event["dur"]) / 1e6))
    return [max(end for _, end in rounds[r]) - min(start for start, _ in rounds[r]) for r in sorted(rounds)]


def rounds_of(events):
    """Seconds from one commit to the next, for each round."""
    rounds = {event["round"]: event["fields"]["seconds"] for event in events if event.get("kind") == "round_committed" and event["round"] > 0}
    return [rounds[r] for r in sorted(rounds)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("atoll")
    parser.add_argument("trainer")
    parser.add_argument("--islands", default="2,4")
    parser.add_argument("--rtt", default="0.2ms,20ms,100ms,200ms,300ms")
    parser.add_argument("--rate", default="100mbit,1gbit,max")
    parser.add_argument("--loss", default="0")
    parser.add_argument("--millions", type=float, default=25)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    print("islands,rtt,rate,loss,millions,first_exchange_s,exchange_s,round_s,exchange_gb_per_s,share_exchange,share_round", flush=True)
    for rate in arguments.rate.split(","):
        for islands in map(int, arguments.islands.split(",")):
            received = 4e6 * arguments.millions * (1 if islands == 2 else 2 * (islands - 1) / islands)
            for rtt in arguments.rtt.split(","):
                with tempfile.TemporaryDirectory() as folder:
                    text = RUN.format(islands=islands, rounds=arguments.rounds)
                    events, spans = rehearse(arguments, pathlib.Path(folder), text, islands, "--link", f"{rtt},{rate},{arguments.loss}")
                    exchanges, wholes = exchanges_of(spans), rounds_of(events)
                exchange, whole = statistics.median(exchanges[1:]), statistics.median(wholes[1:])
                least = 8 * received / bits(rate) if bits(rate) else None
                shares = [f"{least / seconds:.3f}" if least else "" for seconds in (exchange, whole)]
                print(",".join(map(str, (islands, rtt, rate, arguments.loss, arguments.millions, f"{exchanges[0]:.3f}", f"{exchange:.3f}", f"{whole:.3f}",
                                         f"{received / exchange / 1e9:.4f}", *shares))), flush=True)


if __name__ == "__main__":
    main()
