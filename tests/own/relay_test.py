"""Islands of which none can dial another: each behind a router that masquerades, the coordinator and a relay outside.

relay_test.py ATOLL TRAINER_MODULE: needs root for machines (machines.py) and nft for their routers.
"""

import json
import pathlib
import re
import shutil
import signal
import sys
import tempfile
import time
import unittest

import machines

ATOLL, MODULE = (str(pathlib.Path(path).resolve()) for path in sys.argv[1:3])
WHY_NOT = machines.why_not() or ("" if shutil.which("nft") else "nft is missing")
COORDINATOR, RELAY = "10.77.0.1", "10.77.0.2"
SYMMETRIC, HOME = "masquerade fully-random", "masquerade"  # what routers do: another port for each connection, or the same one
RUN = """[run]
name = "{name}"
[model]
layers = 1
width = {width}
heads = 2
[data]
set = "corpus"
[training]
steps = {steps}
batch = 4
sequence_length = 16
warmup_steps = 1
[strategy]
name = "diloco"
inner_steps = 5
[islands]
min = 2
max = 2
deadline = "20s"
"""


class Relays(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="atoll-relay-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.network = machines.Network(folder.name, ATOLL).__enter__()
        self.addCleanup(self.network.__exit__)
        self.coordinator = self.network.machine("coordinator", COORDINATOR, {})
        self.relay = self.network.machine("relay", RELAY, {})
        self.islands = {}

    def wait_for(self, what, condition, seconds=60):
        until = time.monotonic() + seconds
        while not (found := condition()):
            if time.monotonic() > until:
                self.fail(f"{what() if callable(what) else what}: not within {seconds} s\n" + self.logs())
            time.sleep(0.1)
        return found

    def logs(self):
        return "".join(f"--- {log.parent.name} {log.name}\n{log.read_text(errors='replace')[-6000:]}" for log in sorted(self.folder.glob("*/started-*")))

    def command(self, line, timeout=120):
        done = self.coordinator.run("atoll " + line, timeout)
        self.assertEqual(done.returncode, 0, f"{line}\n{done.stdout}{done.stderr}\n{self.logs()}")
        return done.stdout

    def start_coordinator(self, more=""):
        if not (self.coordinator.home / ".local").exists():
            self.command(f"coordinator init --bind 'tcp://*:4400' --advertise tcp://{COORDINATOR}:4400 --network local")
        started = self.coordinator.start("atoll coordinator" + more)
        log = pathlib.Path(started.log)
        self.wait_for("the coordinator is there", lambda: "listens on" in log.read_text())
        return started

    def start_relay(self):
        started = self.relay.start(f"atoll relay --bind 'tcp://*:4402' --advertise tcp://{RELAY}:4402 --name frankfurt --metrics 127.0.0.1:4483")
        log = pathlib.Path(started.log)
        self.wait_for("the relay is there", lambda: "listens on" in log.read_text())
        ticket = self.relay.home / ".local/state/atoll/relay.ticket"
        shutil.copy(ticket, self.coordinator.home / "relay.ticket")
        return started

    def start_island(self, name, address, router=SYMMETRIC, strangers="drop", more=""):
        machine = self.network.behind_router(name, address, router, strangers)
        (machine.home / "text").write_text("islands that cannot dial each other train all the same. " * 400)
        (machine.home / "token").write_text(self.command("token create -q"))
        step = "ATOLL_TEST_STEP_MS=10"
        self.islands[name] = machine
        machine.start(f"env ATOLL_TRAINER_MODULE={MODULE} {step} atoll agent --join-file token --name {name} --data corpus=text{more}")
        return machine

    def submit(self, name, steps=100_000, width=32):
        (self.coordinator.home / "run.toml").write_text(RUN.format(name=name, steps=steps, width=width))
        return self.command("submit run.toml -q").strip()

    def status(self, run):
        return json.loads(self.command(f"status {run} --json"))

    def round(self, run):
        return self.status(run)["run"]["round"]


@unittest.skipIf(WHY_NOT, WHY_NOT)
class Pair(Relays):
    def test_two_islands_behind_routers_train_over_a_relay_that_is_killed_and_comes_back(self):
        relay = self.start_relay()
        self.start_coordinator(" --relay-ticket relay.ticket")
        self.start_island("reef", "10.77.0.11")
        self.start_island("shoal", "10.77.0.12")
        run = self.submit("hidden")
        self.wait_for("rounds over the relay", lambda: self.round(run) >= 3)
        self.assertIn("reef and shoal exchange over relay frankfurt", self.command(f"status {run}"))
        reason = "neither can dial the other, and both routers give each connection another port (symmetric NATs)"
        self.wait_for("both say what their routers do", lambda: self.status(run)["run"]["relayed"][0]["why_indirect"] == reason, 30)
        for line in (f"status {run}", "islands", "doctor"):
            self.assertIn(reason, " ".join(self.coordinator.run("atoll " + line).stdout.split()))
        islands = json.loads(self.command("islands --json"))["islands"]
        self.assertEqual({path["way"] for island in islands for path in island["paths"]}, {"relay frankfurt"})
        self.assertIn("relay frankfurt", self.command("islands"))
        self.assertIn("data between islands", self.command(f"events {run}"))
        figures = "curl -s http://127.0.0.1:4483/metrics"  # not older than a second
        self.wait_for("the relay counts two islands", lambda: 'atoll_relay_islands{relay="frankfurt"} 2' in self.relay.do(figures), 10)
        unit = (pathlib.Path(__file__).parents[2] / "examples/packaging/atoll-relay.service").read_text()
        self.assertEqual(self.relay.run(re.search(r"ExecStart=/usr/bin/(.+)", unit)[1] + " --help").returncode, 0)

        # It is killed, and comes back: rounds stand meanwhile, and say why.
        self.relay.stop(relay, signal.SIGKILL)
        self.wait_for("no pair is connected", lambda: not self.status(run)["run"]["relayed"], 60)
        time.sleep(2)
        before = self.round(run)
        self.start_relay()
        self.wait_for("rounds go on", lambda: self.round(run) > before + 3, 90)
        self.assertIn("exchange over relay frankfurt", self.command(f"status {run}"))
        self.command(f"cancel {run}")

        # What the next run would go over and cost, while none has the islands.
        (self.coordinator.home / "run.toml").write_text(RUN.format(name="next", steps=100, width=32))
        rehearsed = self.wait_for("a plan", lambda: (told := json.loads(self.coordinator.run("atoll submit run.toml --dry-run --json").stdout)) and told["plan"] and told, 30)
        self.assertEqual([(pair["islands"], pair["way"]) for pair in rehearsed["pairs"]], [(["reef", "shoal"], "relay frankfurt")])
        load, = rehearsed["plan"]["relays"]
        self.assertEqual((load["relay"], load["pairs"], load["bytes_per_round"]), ("frankfurt", 1, 2 * rehearsed["plan"]["bytes_per_round"]))
        shown = self.command("submit run.toml --dry-run") + self.command("plan run.toml")
        self.assertEqual(shown.count("relay frankfurt carries"), 2)
        carried = lambda: int(re.search(r'atoll_relay_bytes_total\{relay="frankfurt"\} (\d+)', self.relay.do(figures))[1])
        time.sleep(2)  # figures are not older than a second
        before = carried()

        # A run that ends: both islands have the same bytes.
        short = self.submit("short", steps=100)
        self.assertIn("completed with 2 of 2 islands", self.command(f"wait {short} --timeout 100s") + self.command(f"status {short}"))
        time.sleep(2)
        self.assertGreaterEqual(carried() - before, self.status(short)["run"]["bytes_sent"])  # all that the two send
        files = [sorted(island.home.glob(f".local/state/atoll/runs/{short}/checkpoints/*/outer.safetensors"), key=lambda file: int(file.parent.name))[-1]
                 for island in self.islands.values()]
        self.assertEqual(files[0].parent.name, files[1].parent.name)
        self.assertEqual(files[0].read_bytes(), files[1].read_bytes())


@unittest.skipIf(WHY_NOT, WHY_NOT)
class WithoutRelay(Relays):
    def test_islands_that_no_way_joins_say_what_is_missing_and_the_coordinators_own_relay_is_enough(self):
        coordinator = self.start_coordinator()
        self.start_island("reef", "10.77.0.11")
        self.start_island("shoal", "10.77.0.12")
        run = self.submit("apart")
        said = self.wait_for("the run says why it stands", lambda: (reason := self.status(run)["run"]["reason"]) and "cannot exchange data" in reason and reason)
        self.assertIn("start the coordinator with --relay PORT, or with the ticket of a relay that both can dial (atoll relay)", said)
        self.assertEqual(self.round(run), 0)
        self.coordinator.stop(coordinator)
        coordinator.wait()
        self.start_coordinator(" --relay 4402")
        self.wait_for("rounds over the coordinator's relay", lambda: self.round(run) >= 3, 120)
        self.assertIn("exchange over relay coordinator", self.command(f"status {run}"))
        self.command(f"cancel {run}")


@unittest.skipIf(WHY_NOT, WHY_NOT)
class OfAnIsland(Relays):
    def start_open_island(self, name, address, line="atoll agent", settings='relay = 4402\nrelay_rate = "500mbit"\n'):
        """One that everybody can dial, and that has a relay: its owner says so in agent.toml, or by the line."""
        machine = self.network.machine(name, address, {})
        (machine.home / "text").write_text("an island that everybody can dial has a relay for the others. " * 400)
        (machine.home / "token").write_text(self.command("token create -q"))
        state = machine.home / ".local/state/atoll"
        state.mkdir(parents=True, mode=0o700)
        (state / "agent.toml").write_text(f'name = "{name}"\ndata = ["corpus=text"]\n{settings}')
        self.islands[name] = machine
        self.start_agent(name, line + " --join-file token")

    def start_agent(self, name, line="atoll agent"):
        machine = self.islands[name]
        machine.agent = machine.start(f"env ATOLL_TRAINER_MODULE={MODULE} ATOLL_TEST_STEP_MS=10 {line}")

    def wait_for_way(self, a, b, way, seconds=60):
        def ways():
            islands = json.loads(self.command("islands --json"))["islands"]
            return {(island["name"], path["from"]): path["way"] for island in islands for path in island["paths"]}
        self.wait_for(lambda: f"{a} and {b} meet by {way}, and not by {ways()}", lambda: (now := ways()).get((a, b)) == now.get((b, a)) == way, seconds)

    def kill(self, name):
        self.islands[name].stop(self.islands[name].agent, signal.SIGKILL)
        self.islands[name].agent.wait()

    def test_an_island_that_can_be_dialled_has_a_relay_for_two_that_cannot(self):
        self.start_coordinator()
        self.start_open_island("lagoon", "10.77.0.3")
        self.start_island("reef", "10.77.0.11")
        self.start_island("shoal", "10.77.0.12")
        self.wait_for_way("reef", "shoal", "relay of lagoon")
        self.assertIn("relay of lagoon", self.command("islands"))
        self.assertIn("over relay of lagoon", " ".join(self.coordinator.run("atoll doctor").stdout.split()))
        self.assertIn("for relay of lagoon", " ".join(self.islands["reef"].run("atoll doctor").stdout.split()))
        (self.coordinator.home / "run.toml").write_text(RUN.format(name="three", steps=100_000, width=32).replace("max = 2", "max = 3"))
        run = self.command("submit run.toml -q").strip()
        self.wait_for("rounds over the relay", lambda: self.round(run) >= 3)
        self.assertIn("reef and shoal exchange over relay of lagoon", self.command(f"status {run}"))

        # It is killed: a member and the relay are gone at once. It comes back, and the relay with it.
        self.kill("lagoon")
        self.wait_for("the two do not meet", lambda: not self.status(run)["run"]["relayed"], 60)
        before = self.round(run)
        self.start_agent("lagoon")
        self.wait_for("rounds go on", lambda: self.round(run) > before + 3, 90)
        self.assertIn("reef and shoal exchange over relay of lagoon", self.command(f"status {run}"))
        self.command(f"cancel {run}")

        # A second one comes, which touches nobody; the first one loses its key, and the second one's is there.
        self.start_open_island("atoll", "10.77.0.4", "atoll agent --relay 4402 --relay-rate 100mbit", "")
        self.wait_for_way("lagoon", "atoll", "direct")
        self.wait_for("the two know it", lambda: "for relay of atoll" in " ".join(self.islands["reef"].run("atoll doctor").stdout.split()), 30)
        time.sleep(7)  # whoever wanted to go there would have gone
        self.wait_for_way("reef", "shoal", "relay of lagoon", 1)
        self.command("islands revoke lagoon")
        self.wait_for_way("reef", "shoal", "relay of atoll", 90)
        self.assertNotIn("for relay of lagoon", " ".join(self.islands["reef"].run("atoll doctor").stdout.split()))

    def test_two_that_cannot_dial_each_other_meet_at_the_first_machine(self):
        (self.coordinator.home / "text").write_text("the first machine has the relay. " * 400)
        started = self.coordinator.start(f"env ATOLL_TRAINER_MODULE={MODULE} atoll up --relay 4402 --advertise {COORDINATOR} --name first --data corpus=text")
        self.wait_for("the first machine is there", lambda: "4400" in pathlib.Path(started.log).read_text() and self.coordinator.run("atoll islands").stdout.count("first"))
        self.start_island("reef", "10.77.0.11")
        self.start_island("shoal", "10.77.0.12")
        self.wait_for_way("reef", "shoal", "relay coordinator")

    def test_a_port_in_use_is_named_and_a_rate_without_a_relay_refused(self):
        self.start_coordinator()
        self.start_open_island("lagoon", "10.77.0.3")
        self.wait_for("it is there", lambda: '"connected"' in self.command("islands --json") or '"up"' in self.command("islands --json"))
        (self.islands["lagoon"].home / "second").write_text(self.command("token create -q"))
        taken = self.islands["lagoon"].run("atoll agent --state second-state --join-file second --name second --relay 4402")
        self.assertNotEqual(taken.returncode, 0)
        self.assertIn("4402", taken.stderr.splitlines()[-1])
        refused = self.islands["lagoon"].run("atoll agent --state third --relay-rate 1gbit")
        self.assertEqual(refused.returncode, 2, refused.stderr)
        self.assertIn("give --relay PORT", refused.stderr)


@unittest.skipIf(WHY_NOT, WHY_NOT)
class Holes(Relays):
    def connections_of(self, name):
        """The island's own connections over its router, as (own port, address and port of the other end)."""
        lines = self.islands[name].do("ss -Htn state established").splitlines()
        return [(line.split()[2].rsplit(":", 1)[1], line.split()[3]) for line in lines if line.split()[3].startswith("10.77.0.")]

    def test_two_islands_behind_home_routers_punch_a_hole_and_train_without_a_relay(self):
        coordinator = self.start_coordinator(" --hole-punching 4402")
        self.start_island("reef", "10.77.0.11", HOME, "reject with tcp reset")
        self.start_island("shoal", "10.77.0.12", HOME)
        run = self.submit("holes")
        self.wait_for("rounds through the hole", lambda: self.round(run) >= 3)
        self.assertIn("reef and shoal exchange through punched holes", self.command(f"status {run}"))
        self.assertIn(": neither can dial the other", self.command("islands").splitlines()[-1])
        self.assertIn("data between islands reef and shoal go through a hole that both punched", self.command(f"events {run}"))
        islands = json.loads(self.command("islands --json"))["islands"]
        self.assertEqual({path["way"] for island in islands for path in island["paths"]}, {"punched"})
        self.assertIn("punched", self.command("islands"))
        self.assertIn("through punched holes", self.coordinator.run("atoll doctor").stdout)

        # A stranger knocks at the ports of the hole.
        ports = [port for port, end in self.connections_of("reef") if end.startswith("10.77.0.12:")]
        self.assertTrue(ports)
        for port in ports:
            knocked = self.relay.run(f"timeout 3 python3 -c 'import socket; s = socket.create_connection((\"10.77.0.11\", {port}), 2); print(s.recv(1))'")
            self.assertNotEqual(knocked.returncode, 0, knocked.stdout)

        # The coordinator is away: the hole stays.
        self.coordinator.stop(coordinator)
        coordinator.wait()
        self.start_coordinator(" --hole-punching 4402")
        before = self.round(run)
        self.wait_for("rounds go on", lambda: self.round(run) > before + 3, 90)

        # A router has another address from now on: the hole is punched anew.
        self.islands["shoal"].router.do("ip link set eth0 down && ip addr flush dev eth0 && ip addr add 10.77.0.22/24 dev eth0 && ip link set eth0 up && ip route replace default via 10.77.0.254")
        self.wait_for("the hole leads to the new address", lambda: any(end.startswith("10.77.0.22:") for _, end in self.connections_of("reef")), 120)
        before = self.round(run)
        self.wait_for("rounds go on", lambda: self.round(run) > before + 3, 90)
        self.command(f"cancel {run}")

        short = self.submit("short", steps=100)
        self.assertIn("completed with 2 of 2 islands", self.command(f"wait {short} --timeout 100s") + self.command(f"status {short}"))

    def test_a_router_that_gives_each_connection_another_port_is_recognised_and_goes_over_the_relay(self):
        self.start_coordinator(" --relay 4402")
        self.start_island("reef", "10.77.0.11", HOME)
        self.start_island("shoal", "10.77.0.12", SYMMETRIC)
        run = self.submit("symmetric")
        self.wait_for("rounds over the relay", lambda: self.round(run) >= 3)
        self.assertIn("exchange over relay coordinator", self.command(f"status {run}"))
        self.wait_for("status says why", lambda: [row["why_indirect"] for row in self.status(run)["run"]["relayed"]]
                      == ["neither can dial the other, and the router of island shoal gives each connection another port (a symmetric NAT)"], 30)
        self.assertIn("no hole is punched: the router of island shoal gives each connection another port", self.command(f"events {run}"))
        self.assertIn("its router gives each connection another port", (self.islands["reef"].home / "started-0").read_text())

    def test_an_owner_switches_it_off(self):
        self.start_coordinator(" --relay 4402")
        self.start_island("reef", "10.77.0.11", HOME)
        self.start_island("shoal", "10.77.0.12", HOME, more=" --no-hole-punching")
        run = self.submit("off")
        self.wait_for("rounds over the relay", lambda: self.round(run) >= 3)
        self.assertIn("exchange over relay coordinator", self.command(f"status {run}"))
        self.wait_for("status says why", lambda: [row["why_indirect"] for row in self.status(run)["run"]["relayed"]]
                      == ["neither can dial the other, and island shoal was started with --no-hole-punching"], 30)
        self.command(f"cancel {run}")


if __name__ == "__main__":
    if WHY_NOT:
        print(f"skipped: {WHY_NOT}")
        sys.exit(4)
    unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=2)
