#!/usr/bin/env python3
"""Which way each pair of kinds of places takes, what it carries of a line, how soon the first round is there, and what a relay costs.

reach.py ATOLL TRAINER_MODULE [KIND,KIND…]: a Markdown table, a row for each pair of kinds, or for the pairs that are named. Two islands, each
with a line of RATE in the direction from it, train with diloco; everything that anybody has to dial listens at port 443.
"""

import json
import os
import pathlib
import re
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "own"))
sys.dont_write_bytecode = True
KINDS = ("public", "full-cone", "port-restricted", "symmetric", "443-only")
PAIRS = [tuple(pair.split(",")) for pair in sys.argv[3:]] or [(a, b) for i, a in enumerate(KINDS) for b in KINDS[i:]]
RATE, ROUNDS, PARAMETERS = 100, 8, 3_000_000  # Mbit/s; rounds that are measured; of the model, in float32
import proxy_test  # noqa: E402
import relay_test  # noqa: E402

RELAY = relay_test.RELAY


class Bench(proxy_test.Company):
    def runTest(self):
        print(f"| the two are | way | share of {RATE} Mbit/s | from `submit` to the first round | the relay's CPU for a GB |\n|---|---|---|---|---|", flush=True)
        for pair in PAIRS:
            with self.subTest(pair):
                self.setUp()
                try:
                    self.measure(*pair)
                finally:
                    self.doCleanups()

    def start_relay(self):
        started = self.relay.start(f"atoll relay --bind 'tcp://*:443' --advertise tcp://{RELAY}:443 --name frankfurt --metrics 127.0.0.1:4483")
        self.wait_for("the relay is there", lambda: "listens on" in pathlib.Path(started.log).read_text())
        ticket = self.coordinator.home / "relay.ticket"
        ticket.write_text((self.relay.home / ".local/state/atoll/relay.ticket").read_text())
        ticket.chmod(0o600)
        return pathlib.Path(f"/proc/{started.pid}/task/{started.pid}/children").read_text().split()[0]

    def begin(self, name, machine, variables, more):
        super().begin(name, machine, f"{variables} ATOLL_TEST_HEAD={PARAMETERS}", more)

    def start(self, kind, name, address):
        options = " --no-port-mapping --bind tcp://*:443"
        if kind == "443-only":
            machine = self.start_inside(name, address, f"http://ali:open%3asesame@{proxy_test.PROXY}:3128")
        elif kind == "public":
            machine = self.network.machine(name, address, {})
            self.begin(name, machine, "A=a", options)
        else:
            machine = self.network.behind_router(name, address, relay_test.SYMMETRIC if kind == "symmetric" else relay_test.HOME)
            if kind == "full-cone":  # whoever dials the router gets to the island
                machine.router.do("nft 'add chain ip nat in { type nat hook prerouting priority -100 ; }' && nft add rule ip gate in ct status dnat accept"
                                  " && nft add rule ip nat in iifname eth0 tcp dport 443 dnat to 192.168.1.2")
                options += f" --advertise {address}"
            self.begin(name, machine, "A=a", options)
        machine.do(f"tc qdisc replace dev eth0 root tbf rate {RATE}mbit burst 256kb latency 50ms")

    def rows(self):
        return json.loads(self.command("islands --json"))["islands"]

    def cost(self, process):
        fields = pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
        text = self.relay.do("sleep 1.2; curl -s http://127.0.0.1:4483/metrics")
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), float(re.search(r"(?m)^atoll_relay_bytes_total\{.*\} (\S+)", text)[1])

    def measure(self, *kinds):
        process = self.start_relay()
        if "443-only" in kinds:
            self.start_squid()
        self.start_coordinator(" --relay-ticket relay.ticket")
        for kind, name, address in zip(kinds, ("reef", "shoal"), ("10.77.0.11", "10.77.0.12")):
            self.start(kind, name, address)
        self.wait_for("both are there", lambda: sum(row["link"] == "up" for row in self.rows()) == 2)
        begun = time.monotonic()
        run = self.submit("matrix")
        self.wait_for("a round", lambda: self.round(run) >= 1)
        first = time.monotonic() - begun
        before, shares, seen = self.cost(process), [], self.round(run)
        while len(shares) < ROUNDS:
            self.wait_for("the next round", lambda: self.round(run) > seen)
            seen = self.round(run)
            shares.append(min(row["uplink_bits_per_second"] for row in self.rows()) / RATE / 1e6)
        seconds, moved = (now - then for now, then in zip(self.cost(process), before))
        ways = {path["way"] for row in self.rows() for path in row["paths"]}
        cost = f"{seconds / moved * 1e9:.2f} s" if moved > 1e6 else "–"
        print(f"| {' and '.join(kinds)} | {', '.join(sorted(str(way) for way in ways))} | {statistics.median(shares):.2f} | {first:.1f} s | {cost} |", flush=True)
        self.command(f"cancel {run}")


for test in [name for name in dir(proxy_test.Company) if name.startswith("test_")]:
    setattr(Bench, test, None)

if __name__ == "__main__":
    import unittest
    result = unittest.TextTestRunner().run(Bench())
    sys.exit(0 if result.wasSuccessful() else 1)
