"""Islands with several addresses each: which of them others use, when one is dead, barred, preferred, or becomes another one.

addresses_test.py ATOLL TRAINER_MODULE: needs root for machines (machines.py) and nft for their router.
"""

import json
import subprocess
import sys
import time
import unittest

import machines
import relay_test

PORT = 4401


@unittest.skipIf(relay_test.WHY_NOT, relay_test.WHY_NOT)
class Addresses(relay_test.Relays):
    def start_agent(self, name, machine, more="", holes=" --no-hole-punching"):
        (machine.home / "text").write_text("islands that have several addresses train all the same. " * 400)
        (machine.home / "token").write_text(self.command("token create -q"))
        self.islands[name] = machine
        environment = f"ATOLL_TRAINER_MODULE={relay_test.MODULE} ATOLL_TEST_STEP_MS=10"
        machine.start(f"env {environment} atoll agent --join-file token --name {name} --data corpus=text{holes}{more}")

    def paths(self):
        """The host at which each island reaches the other."""
        islands = json.loads(self.command("islands --json"))["islands"]
        found = {island["name"]: path["address"] for island in islands for path in island["paths"] if path["way"] == "direct" and path["address"]}
        return {name: address.removeprefix("tcp://").removesuffix(f":{PORT}") for name, address in found.items()}

    def wait_for_paths(self, **hosts):
        self.wait_for(lambda: f"they reach each other at {hosts}, and not {self.paths()}", lambda: self.paths() == hosts, 30)

    def cable(self, name, machine, interface, address, to):
        """Another network card of a machine, at a switch of its own."""
        ends = ["ip", "link", "add", name, "type", "veth", "peer", "name", interface, "netns", str(machine.first)]
        subprocess.run(["nsenter", "-t", str(self.network.switch.first), "--net", *ends], check=True)
        self.network.switch.do(f"ip link set {name} master {to} up")
        machine.do(f"ip addr add {address} dev {interface} && ip link set {interface} up")

    def two_with_an_overlay(self, of_reef="", of_shoal=""):
        self.start_coordinator()
        self.network.switch.do("ip link add br1 type bridge && ip link set br1 up")
        for number, (name, more) in enumerate({"reef": of_reef, "shoal": of_shoal}.items(), 11):
            machine = self.network.machine(name, f"10.77.0.{number}", {})
            self.cable(f"o{number}", machine, "wg0", f"10.99.0.{number}/24", "br1")
            self.start_agent(name, machine, more)

    def received_over(self, name, interface):
        return json.loads(self.islands[name].do(f"ip -j -s link show dev {interface}"))[0]["stats64"]["rx"]["bytes"]

    def one_house(self, inwards=""):
        """Two islands behind one router. inwards: what else the router does with what comes to its outer address."""
        first = self.network.behind_router("reef", "10.77.0.11", relay_test.HOME)
        second = machines.Machine(self.network.folder, "shoal", self.network.atoll, {})
        self.network.machines.append(second)
        router = first.router
        router.do("ip addr flush dev inside && ip link add lan type bridge && ip link set inside master lan && ip addr add 192.168.1.1/24 dev lan && ip link set lan up" + inwards)
        cable = ["ip", "link", "add", "inside2", "type", "veth", "peer", "name", "eth0", "netns", str(second.first)]
        subprocess.run(["nsenter", "-t", str(router.first), "--net", *cable], check=True)
        router.do("ip link set inside2 master lan up")
        second.do("ip addr add 192.168.1.3/24 dev eth0 && ip link set eth0 up && ip route add default via 192.168.1.1")
        return first, second

    def test_two_islands_of_one_network_meet_there_and_not_at_their_router(self):
        self.start_coordinator()
        # The router passes the port on to the first, from inside as well.
        first, second = self.one_house(
            " && nft flush chain ip gate in && nft add rule ip gate in accept && nft flush chain ip gate own"
            " && nft 'add chain ip nat in { type nat hook prerouting priority -100 ; }'"
            f" && nft add rule ip nat in ip daddr 10.77.0.11 tcp dport {PORT} dnat to 192.168.1.2"
            " && nft add rule ip nat out ip saddr 192.168.1.0/24 ip daddr 192.168.1.0/24 masquerade")
        self.start_agent("reef", first, " --advertise 10.77.0.11")
        self.start_agent("shoal", second)
        knock = f"python3 -c 'import socket; socket.create_connection((\"10.77.0.11\", {PORT}), 2)'"
        self.wait_for("the router passes the port on to the first, from inside", lambda: second.run(knock).returncode == 0, 10)
        run = self.submit("near")
        self.wait_for("rounds", lambda: self.round(run) >= 3)
        self.wait_for_paths(reef="192.168.1.3", shoal="192.168.1.2")

    def test_two_of_one_house_whose_router_does_not_hairpin_meet_in_it_and_the_third_elsewhere(self):
        self.start_coordinator(" --relay 4402")
        # From outside the port leads to the first; from inside the router's outer address leads nowhere.
        first, second = self.one_house(
            " && nft insert rule ip gate in iifname lan accept && nft add rule ip gate in ct status dnat accept"
            " && nft add chain ip gate bend '{ type filter hook prerouting priority -150 ; }' && nft add rule ip gate bend iifname lan ip daddr 10.77.0.11 counter drop"
            " && nft 'add chain ip nat in { type nat hook prerouting priority -100 ; }'"
            f" && nft add rule ip nat in iifname eth0 tcp dport {PORT} dnat to 192.168.1.2")
        self.start_agent("reef", first, " --advertise 10.77.0.11", holes="")
        self.start_agent("shoal", second, holes="")
        third = self.network.behind_router("atoll", "10.77.0.13", relay_test.HOME)
        self.start_agent("atoll", third, holes="")
        knock = f"python3 -c 'import socket; socket.create_connection((\"10.77.0.11\", {PORT}), 2)'"
        self.wait_for("the port is passed on from outside", lambda: third.run(knock).returncode == 0, 10)
        self.assertNotEqual(second.run(knock).returncode, 0)

        def ways():
            islands = json.loads(self.command("islands --json"))["islands"]
            return {(island["name"], path["from"]): (path["way"], path["address"]) for island in islands for path in island["paths"]}
        def met():
            now = ways()
            at_home = {now.get(pair) for pair in (("reef", "shoal"), ("shoal", "reef"))}
            return (at_home <= {("direct", None), ("direct", f"tcp://192.168.1.2:{PORT}"), ("direct", f"tcp://192.168.1.3:{PORT}")} and at_home != {("direct", None)}
                    and ("direct", f"tcp://10.77.0.11:{PORT}") in (now.get(("reef", "atoll")), now.get(("atoll", "reef")))
                    and now.get(("shoal", "atoll"), [None])[0] == now.get(("atoll", "shoal"), [None])[0] == "punched")
        self.wait_for(lambda: f"two meet at home, and not by {ways()}", met, 60)
        (self.coordinator.home / "run.toml").write_text(relay_test.RUN.format(name="house", steps=100_000, width=32).replace("min = 2", "min = 3").replace("max = 2", "max = 3"))
        run = self.command("submit run.toml -q").strip()
        self.wait_for("rounds of all three", lambda: self.round(run) >= 3)
        # The two are connected at home, and not by way of their router's outer address.
        ends = {line.split()[3].rsplit(":", 1)[0].strip("[]").removeprefix("::ffff:") for line in second.do("ss -Htn state established").splitlines()}
        self.assertIn("192.168.1.2", ends)
        self.assertNotIn("10.77.0.11", ends)

    def test_a_dead_ipv6_address_beside_a_living_ipv4_one_costs_no_time(self):
        self.start_coordinator()
        for number, name in enumerate(("reef", "shoal"), 11):
            machine = self.network.machine(name, f"10.77.0.{number}", {})
            machine.do(f"ip -6 addr add 2001:db8:77::{number}/64 dev eth0 nodad && ip -6 route add default via 2001:db8:77::ffff")
            # What comes by IPv6 vanishes.
            machine.do("nft add table ip6 dead && nft 'add chain ip6 dead in { type filter hook input priority 0 ; policy drop ; }'")
            self.start_agent(name, machine, f" --advertise '[2001:db8:99::{number}]' --advertise '[2001:db8:77::{number}]' --advertise 10.77.0.{number}")
        self.wait_for("both are there", lambda: len(json.loads(self.command("islands --json"))["islands"]) == 2)
        begun = time.monotonic()
        run = self.submit("six")
        self.wait_for("the first exchange", lambda: self.round(run) >= 1, 20)
        self.assertLess(time.monotonic() - begun, 10)
        self.wait_for_paths(reef="10.77.0.12", shoal="10.77.0.11")

    def test_nothing_goes_over_a_network_that_an_owner_bars(self):
        # What one of them offers the other takes before anything else: still, the first does not answer there.
        self.two_with_an_overlay(" --never-over wg0", " --prefer wg0")
        run = self.submit("barred")
        self.wait_for("rounds", lambda: self.round(run) >= 3)
        self.wait_for_paths(reef="10.77.0.12", shoal="10.77.0.11")
        islands = json.loads(self.command("islands --json"))["islands"]
        said = {island["name"]: island["addresses"] for island in islands}
        self.assertNotIn(f"tcp://10.99.0.11:{PORT}", said["reef"])
        self.assertIn(f"tcp://10.99.0.12:{PORT}", said["shoal"])
        self.assertLess(self.received_over("reef", "wg0"), 20_000)
        self.assertGreater(self.received_over("reef", "eth0"), 50_000)

    def test_a_network_that_an_owner_prefers_goes_first_and_another_address_in_the_middle_is_found(self):
        self.two_with_an_overlay(" --prefer wg0", " --prefer wg0")
        run = self.submit("preferred")
        self.wait_for("rounds", lambda: self.round(run) >= 3)
        self.wait_for_paths(reef="10.99.0.12", shoal="10.99.0.11")
        # The coordinator stays connected meanwhile.
        self.islands["shoal"].do("ip addr flush dev wg0 && ip addr add 10.99.0.22/24 dev wg0")
        self.wait_for_paths(reef="10.99.0.22", shoal="10.99.0.11")
        before = self.round(run)
        self.wait_for("rounds go on", lambda: self.round(run) > before + 2)
        self.assertIn("island reef reaches island shoal at tcp://10.99.0.22:4401", self.command(f"events {run}"))


if __name__ == "__main__":
    if relay_test.WHY_NOT:
        print(f"skipped: {relay_test.WHY_NOT}")
        sys.exit(4)
    unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=2)
