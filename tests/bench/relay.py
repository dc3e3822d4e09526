#!/usr/bin/env python3
"""What a relay, or a punched hole, carries of a line, and what a relay costs: two islands behind routers of their own, all on this machine.

relay.py ATOLL TRAINER_MODULE [punched] [RATE…]: RATE of each island's line as tc has it (100mbit); without one the lines have no limit.
With `punched` the routers let the islands punch a hole.
"""

import json
import os
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "own"))
sys.dont_write_bytecode = True
PUNCHED = "punched" in sys.argv[3:]
RATES = [rate for rate in sys.argv[3:] if rate != "punched"] or ["", "100mbit", "500mbit"]
import relay_test  # noqa: E402


class Bench(relay_test.Relays):
    def runTest(self):
        relay = self.start_relay()
        self.start_coordinator(" --relay-ticket relay.ticket")
        for number, name in enumerate(("reef", "shoal")):
            self.start_island(name, f"10.77.0.1{number + 1}", relay_test.HOME if PUNCHED else relay_test.SYMMETRIC)
        self.wait_for("the islands meet", lambda: all(path["passes"] and path["way"] == ("punched" if PUNCHED else "relay frankfurt") for path in self.paths()) and len(self.paths()) == 2)
        process = pathlib.Path(f"/proc/{relay.pid}/task/{relay.pid}/children").read_text().split()[0]
        for rate in RATES:
            for island in self.islands.values():
                island.do(f"tc qdisc replace dev eth0 root tbf rate {rate} burst 256kb latency 50ms" if rate else "true")
            before = self.cost(process)
            self.coordinator.run("atoll doctor --probe 4s")
            seconds, moved = (now - then for now, then in zip(self.cost(process), before))
            measured = [path["measured"]["bits_per_second"] / 1e6 for path in self.paths()]
            line = f"line {rate or 'without a limit'}: " + ", ".join(f"{one:.1f} Mbit/s" for one in measured)
            if rate:
                line += ", share of the line " + ", ".join(f"{one / float(re.sub('[a-z]', '', rate)):.2f}" for one in measured)
            print(f"{line}; the relay moved {moved / 1e9:.3f} GB with {seconds:.2f} s of a core, {seconds / max(moved / 1e9, 1e-9):.3f} s for a GB", flush=True)

    def paths(self):
        return [path for island in json.loads(self.command("islands --json"))["islands"] for path in island["paths"]]

    def cost(self, process):
        fields = pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
        text = self.relay.do("sleep 1.2; curl -s http://127.0.0.1:4483/metrics")
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), float(re.search(r"(?m)^atoll_relay_bytes_total\{.*\} (\S+)", text)[1])


if __name__ == "__main__":
    import unittest
    result = unittest.TextTestRunner().run(Bench())
    sys.exit(0 if result.wasSuccessful() else 1)
