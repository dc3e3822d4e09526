"""Where the time of a large round goes, and how much memory its agents take: real agents on loopback, around the tests' trainer, which takes no time for a step.

    python3 tests/bench/stages.py ATOLL TRAINER [--islands 2] [--millions 100] [--fragments 1] [--still] [--rounds 6] [--checkpoints N] [KEY=VALUE…]

Prints the median seconds of each stage of a round on an island, of all rounds but the first: of the encoding, the exchange, the outer step, a
checkpoint where one was written; of the whole round, from one commit to the next; the first round; the whole round as so many times its
exchange; and the largest peak of an agent, in bytes a parameter. KEY=VALUE are further keys of [strategy]. With --fragments a round moves one of so
many equal fragments; with --still the trainers keep no copy of the parameters, so that all memory is the agents' and their arenas'.
"""
import argparse
import os
import pathlib
import statistics
import tempfile
import threading
import time

from link_share import RUN, exchanges_of, rehearse, rounds_of


def peaks(stop, folder, found):
    """The largest resident memory of each agent in this folder, until it is told to stop."""
    while not stop.is_set():
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                words = (process / "cmdline").read_bytes().split(b"\0")
                if b"agent" in words[1:2] and str(folder).encode() in b" ".join(words):
                    status = (process / "status").read_text()
                    found[process.name] = int(status.split("VmHWM:")[1].split()[0]) * 1024
            except (OSError, IndexError):
                pass  # it has ended
        time.sleep(0.2)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("atoll")
    parser.add_argument("trainer")
    parser.add_argument("keys", nargs="*")
    parser.add_argument("--islands", type=int, default=2)
    parser.add_argument("--millions", type=float, default=100)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--fragments", type=int, default=1)
    parser.add_argument("--still", action="store_true")
    parser.add_argument("--checkpoints", type=int, default=1000000, help="every so many rounds")
    arguments = parser.parse_intermixed_args()
    text = RUN.format(islands=arguments.islands, rounds=arguments.rounds).replace("every_rounds = 1000000", f"every_rounds = {arguments.checkpoints}")
    if arguments.fragments > 1:
        os.environ["ATOLL_TEST_HEADS"] = str(arguments.fragments)
        text = text.replace("inner_steps = 1\n", f"inner_steps = {arguments.fragments}\nfragments = {arguments.fragments}\n")
        text = text.replace("[strategy]\n", '[strategy]\ngrouping = "balanced"\n')
    if arguments.still:
        os.environ["ATOLL_TEST_STILL"] = "1"
    for key in arguments.keys:
        name, value = key.split("=", 1)
        text = text.replace("[strategy]\n", f'[strategy]\n{name} = "{value}"\n')
    with tempfile.TemporaryDirectory() as folder:
        stop, found = threading.Event(), {}
        watch = threading.Thread(target=peaks, args=(stop, folder, found))
        watch.start()
        try:
            events, spans = rehearse(arguments, pathlib.Path(folder), text, arguments.islands)
        finally:
            stop.set()
            watch.join()
    exchanges, wholes = exchanges_of(spans), rounds_of(events)
    print(", ".join([f"{arguments.millions:g} M parameters", f"{arguments.islands} islands", *arguments.keys]))
    for stage in ("encode", "outer step", "checkpoint"):
        seconds = [event["dur"] / 1e6 for event in spans if event["cat"] == stage.replace(" ", "_")]
        if seconds:
            print(f"{stage}: {statistics.median(seconds):.2f} s, at most {max(seconds):.2f}")
    exchange, whole = statistics.median(exchanges[1:]), statistics.median(wholes[1:])
    print(f"exchange: {exchange:.2f} s; whole round: {whole:.2f} s, {whole / exchange:.2f} times the exchange; first round: {wholes[0]:.2f} s")
    print(f"agents: {max(found.values()) / 1e9:.2f} GB at the peak, {max(found.values()) / arguments.millions / 1e6:.1f} bytes a parameter")


if __name__ == "__main__":
    main()
