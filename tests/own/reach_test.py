"""What `doctor` says on an island of how others reach it, behind routers of each kind, and in none.

reach_test.py ATOLL TRAINER_MODULE: needs root for machines (machines.py), nft for their routers, miniupnpd for one of them.
"""

import json
import sys
import unittest

import port_mapping_test
import relay_test

WHY_NOT = relay_test.WHY_NOT
COORDINATOR, RELAY = "9.77.0.1", "9.77.0.2"  # public: 10.77.0.0/24 is a private network
OF_ROUTER = "Please pass TCP port 4401 of {0} on to 192.168.1.2, port 4401: other machines of our group connect to it (Atoll)."


@unittest.skipIf(WHY_NOT, WHY_NOT)
class Reach(port_mapping_test.Homes):
    def setUp(self):
        super().setUp()
        for machine, address in ((self.coordinator, COORDINATOR), (self.relay, RELAY)):
            machine.do(f"ip addr add {address}/24 dev eth0")
        self.command(f"coordinator init --bind 'tcp://*:4400' --advertise tcp://{COORDINATOR}:4400 --network local")

    def begin_island(self, name, machine, more=" --no-port-mapping", trainer=True):
        (machine.home / "token").write_text(self.command("token create -q"))
        (machine.home / "text").write_text("others reach this island, or they do not. " * 400)
        environment = f"env ATOLL_TRAINER_MODULE={relay_test.MODULE} ATOLL_TEST_STEP_MS=10"
        machine.agent = machine.start(f"{environment} atoll agent --join-file token --name {name} --data corpus=text{more}")
        self.islands[name] = machine
        self.wait_for("the island is there", lambda: any(island["name"] == name and island["link"] == "up" for island in json.loads(self.command("islands --json"))["islands"]))
        return machine

    def at_home(self, name, router, address, more=" --no-port-mapping"):
        machine = self.network.behind_router(name, address.replace("9.", "10.", 1), router)
        machine.router.do(f"ip addr flush dev eth0 && ip addr add {address}/24 dev eth0")
        return self.begin_island(name, machine, more)

    def told(self, machine):
        """The two findings, by name, and how healthy the first is."""
        for left in range(4, -1, -1):  # what is so may change between the two
            done = machine.run("atoll doctor --json")
            findings = {each["what"]: each for each in json.loads(done.stdout)["findings"]}
            self.assertIn("reach", findings, done.stdout)
            text, shown = findings["reach"]["text"], machine.run("atoll doctor").stdout
            if text.split(" (")[0] in shown:  # the router's ports are others each time
                break
            self.assertTrue(left, f"{text}\n{shown}")
        return text, findings.get("open", {}).get("text", ""), findings["reach"]["health"]

    def test_a_home_router_keeps_the_port_and_one_of_a_company_does_not(self):
        self.start_coordinator(" --relay 4402")
        home = self.at_home("reef", relay_test.HOME, "9.77.0.11")
        text, opened, health = self.told(home)
        self.assertIn("others see 9.77.0.11, which is a router's: this machine has 192.168.1.2", text)
        self.assertIn("gives one port of this machine the same port towards each of 2 places: holes can be punched through it", text)
        self.assertIn("no port of the router is passed on", text)
        self.assertIn("no IPv6", text)
        self.assertEqual((opened, health), (f"for an administrator: {OF_ROUTER.format('9.77.0.11')}", "good"))
        company = self.at_home("shoal", relay_test.SYMMETRIC, "9.77.0.12")
        text, opened, health = self.told(company)
        self.assertRegex(text, r"another port for each connection \((\d+) for relay coordinator, (?!\1 )\d+ for its second port; a symmetric NAT\): no hole can be punched through it")
        self.assertIn("islands that it cannot dial it meets at a relay", text)
        self.assertEqual((opened, health), (f"for an administrator: {OF_ROUTER.format('9.77.0.12')}", "good"))

    def test_without_a_second_place_it_says_what_cannot_be_told(self):
        coordinator = self.start_coordinator()
        home = self.at_home("reef", relay_test.HOME, "9.77.0.11")
        text, opened, health = self.told(home)
        self.assertIn("others see 9.77.0.11, which is a router's", text)
        self.assertIn("whether holes can be punched through it cannot be told: start the coordinator with --relay PORT or --hole-punching PORT", text)
        self.assertEqual((opened, health), (f"for an administrator: {OF_ROUTER.format('9.77.0.11')}", "doubtful"))
        self.coordinator.stop(coordinator)
        coordinator.wait()
        self.start_coordinator(" --hole-punching 4402")
        self.coordinator.do("nft add table ip gate && nft 'add chain ip gate in { type filter hook input priority 0 ; }' && nft add rule ip gate in tcp dport 4403 drop")
        text, _, health = self.told(home)
        self.assertIn("cannot be told: one place alone saw it, relay coordinator; let TCP port 4403 there through as well", text)
        self.assertEqual(health, "doubtful")

    def test_a_router_that_keeps_the_port_towards_one_machine_and_not_towards_another_is_symmetric(self):
        self.relay.start(f"atoll relay --bind 'tcp://*:4402' --advertise tcp://{RELAY}:4402 --name frankfurt")
        ticket = self.relay.home / ".local/state/atoll/relay.ticket"
        self.wait_for("a ticket", ticket.exists, 10)
        (self.coordinator.home / "relay.ticket").write_text(ticket.read_text())
        (self.coordinator.home / "relay.ticket").chmod(0o600)
        self.start_coordinator(" --hole-punching 4402 --relay-ticket relay.ticket")
        home = self.at_home("reef", f"ip daddr {COORDINATOR} masquerade", "9.77.0.11")
        home.router.do(f"nft add rule ip nat out oifname eth0 ip daddr {RELAY} {relay_test.SYMMETRIC}")
        self.assertRegex(self.told(home)[0], r"another port for each connection \((\d+) for relay coordinator, \1 for its second port, (?!\1 )\d+ for relay frankfurt, \d+ for its second port; a symmetric NAT\)")

        plain = self.at_home("shoal", relay_test.HOME, "9.77.0.12")  # asks both relays from one port
        self.assertIn("the same port towards each of 4 places: holes can be punched through it", self.told(plain)[0])

    def test_a_machine_in_no_ones_network_and_one_in_the_coordinators(self):
        self.start_coordinator(" --relay 4402")
        open_to_all = self.network.machine("reef", "10.77.0.11", {})
        open_to_all.do("ip addr flush dev eth0 && ip addr add 9.77.0.11/24 dev eth0 && ip addr add 2001:db8:77::11/64 dev eth0 nodad")
        text, opened, health = self.told(self.begin_island("reef", open_to_all))
        self.assertIn("others see this machine's own address, 9.77.0.11: no router is in between", text)
        self.assertIn("IPv6: 2001:db8:77::11", text)
        self.assertNotIn("hole", text)
        self.assertEqual(opened, "for an administrator: Please let TCP connections to 9.77.0.11, port 4401, through the firewall: other machines of our group connect to it (Atoll).")
        neighbour = self.network.machine("shoal", "10.77.0.12", {})
        neighbour.do("ip route del default && ip route add 9.77.0.0/24 dev eth0")
        text, opened, health = self.told(self.begin_island("shoal", neighbour))
        self.assertIn("the coordinator sees this machine's own address, 10.77.0.12, which is private: both are in one network, and what islands elsewhere see cannot be told from here", text)
        self.assertIn("to 10.77.0.12, port 4401, through the firewall of this network", opened)

    def test_a_port_that_the_router_passes_on_is_named_and_so_is_one_that_is_dialled(self):
        self.start_coordinator(" --relay 4402")
        asked = self.home("reef", "10.77.0.11", nat_pmp="yes", begin=False)
        asked.router.do("ip addr del 10.77.0.11/24 dev eth0")
        self.begin(asked.router)
        self.begin_island("reef", asked, " --no-hole-punching")
        self.wait_for("a port is passed on", lambda: len(self.passed_on(asked)) == 1, 20)
        text, opened, health = self.wait_for("doctor knows it", lambda: (told := self.told(asked)) and "passes tcp://9.77.0.11:4401 on to this island" in told[0] and told, 20)
        self.assertEqual((opened, health), ("", "good"))
        asked.stop(asked.agent)
        self.assertEqual(asked.agent.wait(60), 0)
        self.assertIn("no port of the router is passed on", self.told(asked)[0])

        exposed = self.at_home("shoal", relay_test.HOME, "9.77.0.12")  # a full cone: whoever dials the router gets there
        exposed.router.do("nft 'add chain ip nat in { type nat hook prerouting priority -100 ; }' && nft add rule ip nat in iifname eth0 tcp dport 4401 dnat to 192.168.1.2"
                          " && nft add rule ip gate in ct status dnat accept")
        plain = self.network.machine("lagoon", "10.77.0.13", {})
        plain.do("ip addr flush dev eth0 && ip addr add 9.77.0.13/24 dev eth0")
        self.begin_island("lagoon", plain)
        text, opened, health = self.wait_for("it is dialled", lambda: (told := self.told(exposed)) and "another island dials it at tcp://9.77.0.12:4401 now" in told[0] and told, 30)
        self.assertEqual((opened, health), ("", "good"))


for test in [name for name in dir(port_mapping_test.Homes) if name.startswith("test_")]:
    setattr(Reach, test, None)  # those are run there

if __name__ == "__main__":
    if WHY_NOT:
        print(f"skipped: {WHY_NOT}")
        sys.exit(4)
    unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=2)
