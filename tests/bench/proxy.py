#!/usr/bin/env python3
"""What a proxy carries of a line: one island behind a router that lets out the proxy alone, one outside, all on this machine.

proxy.py ATOLL TRAINER_MODULE [RATE…]: RATE of the inner island's line as tc has it (100mbit); without one it has no limit.
"""

import json
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "own"))
sys.dont_write_bytecode = True
RATES = sys.argv[3:] or ["", "100mbit"]
import proxy_test  # noqa: E402


class Bench(proxy_test.Company):
    def runTest(self):
        for kind in ("direct", "squid", "microsocks"):
            with self.subTest(kind):
                self.setUp()
                self.measure(kind)
                self.doCleanups()

    def measure(self, kind):
        url = {"direct": "", "squid": f"http://ali:open%3asesame@{proxy_test.PROXY}:3128", "microsocks": f"socks5h://ali:open%3asesame@{proxy_test.PROXY}:1080"}[kind]
        if url:
            getattr(self, "start_" + kind)()
        self.start_coordinator()
        self.begin("reef", self.network.machine("reef", "10.77.0.21", {}), "A=a", " --bind tcp://*:443")
        if url:
            lagoon = self.start_inside("lagoon", "10.77.0.11", url)
        else:
            lagoon = self.network.behind_router("lagoon", "10.77.0.11")
            self.begin("lagoon", lagoon, "A=a", " --no-port-mapping")
        begun = time.monotonic()
        run = self.submit(kind)
        self.wait_for("a round", lambda: self.round(run) >= 1)
        first = time.monotonic() - begun
        self.command(f"cancel {run}")
        for rate in RATES:
            lagoon.do(f"tc qdisc replace dev eth0 root tbf rate {rate} burst 256kb latency 50ms" if rate else "true")
            self.coordinator.run("atoll doctor --probe 4s")
            paths = [path for island in json.loads(self.command("islands --json"))["islands"] for path in island["paths"]]
            measured = ", ".join(f"{path['measured']['bits_per_second'] / 1e6:.0f} Mbit/s from {path['from']}" for path in paths)
            print(f"{kind}, line {rate or 'without a limit'}: {measured}; first round {first:.1f} s after submit", flush=True)


if __name__ == "__main__":
    import unittest
    result = unittest.TextTestRunner().run(Bench())
    sys.exit(0 if result.wasSuccessful() else 1)
