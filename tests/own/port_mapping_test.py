"""Islands at home: each behind a router that lets nobody in, and passes a port on when it is asked, by Debian's miniupnpd.

port_mapping_test.py ATOLL TRAINER_MODULE: needs root for machines (machines.py), nft and miniupnpd for their routers.
"""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

import machines
import relay_test

WHY_NOT = relay_test.WHY_NOT or ("" if shutil.which("miniupnpd") else "miniupnpd is missing")
PUBLIC = {"reef": "9.77.0.11", "shoal": "9.77.0.12", "atoll": "9.77.0.13"}  # of their routers
CHAINS = """table inet filter {
  chain miniupnpd { }
  chain prerouting_miniupnpd { }
  chain postrouting_miniupnpd { }
  chain prerouting { type nat hook prerouting priority -100 ; jump prerouting_miniupnpd ; }
  chain postrouting { type nat hook postrouting priority 100 ; jump postrouting_miniupnpd ; }
  chain forward { type filter hook forward priority 0 ; jump miniupnpd ; }
}
"""
CONFIGURATION = """ext_ifname=eth0
listening_ip=inside
secure_mode=yes
lease_file=leases
enable_natpmp={nat_pmp}
enable_upnp={upnp}
uuid=6c85faa0-1b76-46c1-86d7-a15108d32717
"""


@unittest.skipIf(WHY_NOT, WHY_NOT)
class Homes(relay_test.Relays):
    def home(self, name, address, nat_pmp="no", upnp="no", more="", begin=True):
        machine = self.network.behind_router(name, address)
        router = machine.router
        (router.home / "chains").write_text(CHAINS)
        (router.home / "upnpd.conf").write_text(CONFIGURATION.format(nat_pmp=nat_pmp, upnp=upnp))
        # The daemon offers no ports of a private address, nor of one that is for documents.
        router.do(f"ip addr flush dev eth0 && ip addr add {PUBLIC[name]}/24 dev eth0 && ip addr add {address}/24 dev eth0 && ip route add default via 10.77.0.254"
                  " && nft -f chains && nft add rule ip gate in ct status dnat accept")
        if begin:
            self.begin(router)
            self.join(name, machine, more)
        return machine

    def begin(self, router):
        log = pathlib.Path(router.start("miniupnpd -d -f upnpd.conf -P upnpd.pid").log)
        self.wait_for("the router takes requests", lambda: re.search("HTTP listening|Listening for NAT-PMP", log.read_text(errors="replace")), 10)

    def join(self, name, machine, more=""):
        (machine.home / "text").write_text("islands at home train all the same. " * 400)
        (machine.home / "token").write_text(self.command("token create -q"))
        self.islands[name] = machine
        environment = f"ATOLL_TRAINER_MODULE={relay_test.MODULE} ATOLL_TEST_STEP_MS=10"
        machine.agent = machine.start(f"env {environment} atoll agent --join-file token --name {name} --data corpus=text --no-hole-punching{more}")

    def addresses(self):
        return {island["name"]: island["addresses"] for island in json.loads(self.command("islands --json"))["islands"]}

    def passed_on(self, machine):
        """The ports that a router passes on, with where to."""
        return [line.strip() for line in machine.router.do("nft list chain inet filter prerouting_miniupnpd").splitlines() if "dnat" in line]

    def test_two_at_home_train_by_the_ports_that_their_routers_pass_on_until_they_leave(self):
        self.start_coordinator()
        reef = self.home("reef", "10.77.0.11", nat_pmp="yes")
        shoal = self.home("shoal", "10.77.0.12", upnp="yes")
        self.wait_for("both are reached at their routers", lambda: [said[:1] for said in self.addresses().values()] == [["tcp://9.77.0.11:4401"], ["tcp://9.77.0.12:4401"]], 20)
        run = self.submit("homes")
        self.wait_for("rounds", lambda: self.round(run) >= 5)
        paths = [path for island in json.loads(self.command("islands --json"))["islands"] for path in island["paths"]]
        self.assertEqual({path["way"] for path in paths}, {"direct"})
        self.assertEqual({path["address"] for path in paths}, {"tcp://9.77.0.11:4401", "tcp://9.77.0.12:4401"})
        self.assertIn("(NAT-PMP", self.logs())
        self.assertIn("(UPnP", self.logs())
        for machine in (reef, shoal):
            self.assertEqual(len(self.passed_on(machine)), 1, self.passed_on(machine))
            machine.stop(machine.agent)
            self.assertEqual(machine.agent.wait(60), 0)
            self.assertEqual(self.passed_on(machine), [])

    def test_of_two_in_one_house_the_second_gets_another_port_and_both_are_dialled_from_afar(self):
        self.start_coordinator()
        for way in ("upnp", "nat_pmp"):
            with self.subTest(way):
                self.house(way)

    def house(self, way):
        first, second = ("reef", "shoal") if way == "upnp" else ("atoll", "lagoon")
        address = "10.77.0.11" if way == "upnp" else "10.77.0.13"
        one = self.home(first, address, **{way: "yes"}, begin=False)
        router = one.router
        two = machines.Machine(self.network.folder, second, self.network.atoll, {})
        self.network.machines.append(two)
        # The daemon listens at the interface that has the address: the cable of the second is a network of its own beside it.
        cable = ["ip", "link", "add", "lan2", "type", "veth", "peer", "name", "eth0", "netns", str(two.first)]
        subprocess.run(["nsenter", "-t", str(router.first), "--net", *cable], check=True)
        router.do("ip link add lan type bridge && ip addr flush dev inside && ip link set inside name lan1 && ip link set lan1 master lan up"
                  " && ip link set lan name inside && ip addr add 192.168.1.1/24 dev inside && ip link set inside up && ip link set lan2 master inside up")
        two.do("ip addr add 192.168.1.3/24 dev eth0 && ip link set eth0 up && ip route add default via 192.168.1.1")
        self.begin(router)
        self.join(first, one)
        self.wait_for("a port", lambda: len(self.passed_on(one)) == 1, 20)
        self.join(second, two)
        host = PUBLIC[first]
        expected = {first: f"tcp://{host}:4401", second: f"tcp://{host}:4402"}
        self.wait_for(lambda: f"each has a port: {self.addresses()}", lambda: {name: said[0] for name, said in self.addresses().items() if name in expected and said} == expected, 20)
        self.coordinator.do("ip addr replace 9.77.0.1/24 dev eth0")
        for port in (4401, 4402):
            knock = f"python3 -c 'import socket; socket.create_connection((\"{host}\", {port}), 2)'"
            self.assertEqual(self.coordinator.run(knock).returncode, 0, port)

    def test_who_does_not_want_it_asks_no_router_and_whose_router_knows_neither_trains_with_those_it_can_dial(self):
        self.start_coordinator()
        quiet = self.home("reef", "10.77.0.11", nat_pmp="yes", upnp="yes", more=" --no-port-mapping")
        plain = self.network.machine("shoal", "10.77.0.12", {})
        self.join("shoal", plain)
        run = self.submit("quiet")
        self.wait_for("rounds", lambda: self.round(run) >= 5)
        self.assertEqual(self.passed_on(quiet), [])
        self.assertEqual(self.addresses()["shoal"], ["tcp://10.77.0.12:4401"])


if __name__ == "__main__":
    if WHY_NOT:
        print(f"skipped: {WHY_NOT}")
        sys.exit(4)
    unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=2)
