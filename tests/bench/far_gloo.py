"""Atoll's exchange beside Gloo's all-reduce of as many parameters, on the same far path: real packets, and the kernel's own TCP.

    /usr/bin/python3 tests/bench/far_gloo.py ATOLL TRAINER PACKET_PATH [--islands 2] [--rtt 20,100,200,300] [--mbit 100] [--loss 0]
                                             [--millions 5] [--rounds 6]

Each island is in a network of its own, with a process of Gloo's, or with an agent and the tests' trainer, which takes no time for a step; the
coordinator is in the first island's. Prints the seconds of the first exchange and the median of the others, and the share of the line's rate that
this is. Needs root, and PyTorch for Gloo.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from link_share import RUN, exchanges_of

PATIENCE = 900


def wait_for(path):
    for _ in range(PATIENCE * 10):
        if path.exists():
            return path
        time.sleep(0.1)
    raise SystemExit(f"{path} did not come")


def gloo(island, islands, elements, rounds):
    import torch
    import torch.distributed as dist

    os.environ.update(MASTER_ADDR="10.88.0.1", MASTER_PORT="29571", GLOO_SOCKET_IFNAME="path")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=island - 1, world_size=islands)
    values = torch.ones(elements)
    times = []
    for _ in range(rounds):
        dist.barrier()
        begin = time.perf_counter()
        dist.all_reduce(values)
        times.append(time.perf_counter() - begin)
    dist.barrier()
    dist.destroy_process_group()
    return times


def atoll(island, islands, elements, rounds, program, trainer, folder):
    """The seconds of each exchange, at island 1."""
    environment = dict(os.environ, ATOLL_TRAINER_MODULE=trainer, ATOLL_TEST_STEP_MS="0", ATOLL_TEST_HEAD=str(elements - 200))
    quiet = {"stdout": subprocess.DEVNULL, "stderr": open(folder / f"log-{island}", "w")}
    home = folder / "coordinator"
    started = []

    def ask(*words):
        return subprocess.run([program, *words, "--state", home], capture_output=True, text=True, check=True).stdout

    if island == 1:
        (folder / "text").write_bytes(b"x" * 100000)
        (folder / "run.toml").write_text(RUN.format(islands=islands, rounds=rounds).replace('files = ["text"]', 'set = "text"'))
        ask("coordinator", "init", "--bind", "tcp://10.88.0.1:4400", "--advertise", "tcp://10.88.0.1:4400")
        started.append(subprocess.Popen([program, "coordinator", "--state", home], **quiet))
        time.sleep(2)
        for number in range(1, islands + 1):
            (folder / "new").write_text(ask("token", "create", "-q"))
            (folder / "new").rename(folder / f"token-{number}")
    token = wait_for(folder / f"token-{island}")
    started.append(subprocess.Popen([program, "agent", "--state", folder / f"agent-{island}", "--join-file", token, "--name", f"island-{island}",
                                     "--data", f"text={folder / 'text'}", "--bind", f"tcp://10.88.0.{island}:4401"], env=environment, **quiet))
    times = []
    if island == 1:
        run = ask("submit", folder / "run.toml", "-q").strip()
        ask("wait", run)
        ask("trace", run, "-o", folder / "trace.json")
        times = exchanges_of([event for event in json.loads((folder / "trace.json").read_text())["traceEvents"] if event["ph"] == "X"])
        (folder / "over").touch()
    wait_for(folder / "over")
    for process in reversed(started):
        process.terminate()
        process.wait()
    return times


def play(arguments):
    """In the network of one island."""
    island, islands = int(os.environ["PATH_ISLAND"]), int(os.environ["PATH_ISLANDS"])
    elements, folder = int(arguments.millions * 1e6), pathlib.Path(arguments.inside)
    times = gloo(island, islands, elements, arguments.rounds) if arguments.what == "gloo" else atoll(
        island, islands, elements, arguments.rounds, arguments.atoll, arguments.trainer, folder)
    if island == 1:
        (folder / "figures").write_text(json.dumps(times))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("atoll")
    parser.add_argument("trainer")
    parser.add_argument("packet_path")
    parser.add_argument("--islands", type=int, default=2)
    parser.add_argument("--rtt", default="20,100,200,300")
    parser.add_argument("--mbit", type=float, default=100)
    parser.add_argument("--loss", type=float, default=0)
    parser.add_argument("--millions", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    parser.add_argument("--what", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        return play(arguments)
    received = 4e6 * arguments.millions * 2 * (arguments.islands - 1) / arguments.islands
    on_paper = received * 8 / (arguments.mbit * 1e6)
    print(f"{arguments.islands} islands, {arguments.mbit:g} Mbit/s, loss {arguments.loss:g}, {arguments.millions:g} M float32: {on_paper:.2f} s on paper")
    for round_trip in arguments.rtt.split(","):
        for what in ("gloo", "atoll"):  # each on a path of its own: the kernel remembers what the last connections found
            with tempfile.TemporaryDirectory() as folder:
                subprocess.run([arguments.packet_path, str(arguments.islands), round_trip, str(arguments.mbit), str(arguments.loss), sys.executable,
                                __file__, str(pathlib.Path(arguments.atoll).resolve()), str(pathlib.Path(arguments.trainer).resolve()),
                                arguments.packet_path, "--millions", str(arguments.millions), "--rounds", str(arguments.rounds), "--inside", folder,
                                "--what", what], check=True)
                times = json.loads((pathlib.Path(folder) / "figures").read_text())
            usual = statistics.median(times[1:])
            print(f"{round_trip} ms, {what}: first {times[0]:.2f} s, then {usual:.2f} s, {on_paper / usual:.2f} of the line", flush=True)


if __name__ == "__main__":
    main()
