"""Starts a program as N ranks on this machine, as torchrun does: `launch.py N PROGRAM ARGUMENTS…`. Ends with the first rank that fails.

Debian 12's PyTorch 1.13 has a torchrun that does not start with its Python 3.11, Debian 13's 2.6 one that wants libuv, which it lacks.
"""

import os
import random
import socket
import subprocess
import sys
import time


def free_port() -> int:
    """Below the range from which outgoing connections get theirs: none of those takes it before it is listened at."""
    while True:
        port = random.randrange(15000, 32000)
        with socket.socket() as one:
            try:
                one.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue


def main() -> int:
    ranks, program = int(sys.argv[1]), sys.argv[2:]
    port = free_port()
    common = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo", "USE_LIBUV": "0"}
    processes = [
        subprocess.Popen([sys.executable, *program], env={**os.environ, **common, "RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank in range(ranks)
    ]
    while any(process.poll() is None for process in processes):
        failed = next((process.returncode for process in processes if process.returncode), None)
        if failed:
            for process in processes:
                process.kill()
            return 1
        time.sleep(0.05)
    return max(process.returncode != 0 for process in processes)


if __name__ == "__main__":
    sys.exit(main())
