"""`atoll doctor` on machines of a live run: what is well, and each thing that is not, by name.

    doctor_test.py ATOLL TRAINER_MODULE
"""

import json
import os
import pathlib
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True
import live_run  # noqa: E402


class Doctor(live_run.LiveRun):
    atoll, module = (str(pathlib.Path(path).resolve()) for path in sys.argv[1:3])

    def examine(self, state, *more):
        """The exit code, the findings by what they are of, and the islands by name."""
        done = subprocess.run([self.atoll, "doctor", "--state", os.path.join(self.folder, state), "--json", *more], capture_output=True, text=True, timeout=60)
        document = json.loads(done.stdout)
        self.assertEqual(document["fit"], done.returncode == 0)
        return done.returncode, {one["what"]: one for one in document["findings"]}, {one["name"]: one for one in document["islands"]}

    def test_an_operator_sees_coordinator_clock_tokens_and_islands_and_an_island_its_coordinator_port_and_data(self):
        coordinator = self.start_coordinator()
        agents = self.start_agents("reef", "shoal", hold_at=200)
        self.command("token", "create", "-q", "--expires", "10m")
        self.wait_for("both islands are there", lambda: self.command("islands", "-q").split() == ["reef", "shoal"] and len(self.examine("coordinator")[2]) == 2)
        exit, findings, islands = self.examine("coordinator")
        self.assertEqual(exit, 0, findings)
        for what in ("coordinator", "version", "clock", "islands", "disk", "trainer", "device"):
            self.assertEqual(findings[what]["health"], "good", findings[what])
        self.assertEqual(findings["tokens"]["health"], "doubtful")
        for name in ("reef", "shoal"):
            self.assertTrue(islands[name]["answers"])
            self.assertLess(islands[name]["round_trip_ms"], 1000)
            self.assertGreater(islands[name]["mtu_bytes"], 1000)

        self.assertIn("2 directions", self.wait_for("the islands have tried the paths between them", lambda: self.examine("coordinator")[1].get("paths"))["text"])
        certificate = os.path.join(self.folder, "page.pem")
        key, request = os.path.join(self.folder, "page.key"), os.path.join(self.folder, "page.csr")
        subprocess.run(["openssl", "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=atoll", "-keyout", key, "-out", request],
                       check=True, capture_output=True)
        # OpenSSL 3.5 refuses a negative number of days and, as 3.0 cannot, takes dates.
        takes_dates = b"-not_after" in subprocess.run(["openssl", "x509", "-help"], capture_output=True).stderr
        for days, health in (("400", "good"), ("7", "doubtful"), ("-1", "bad"), (None, "bad")):
            if days:
                past = days == "-1" and takes_dates
                life = ["-not_before", "20200101000000Z", "-not_after", "20200102000000Z"] if past else ["-days", days]
                subprocess.run(["openssl", "x509", "-req", "-in", request, "-signkey", key, *life, "-out", certificate], check=True, capture_output=True)
            else:
                pathlib.Path(certificate).write_text("no certificate\n")
            exit, findings, _ = self.examine("coordinator", "--web-certificate", certificate)
            self.assertEqual((findings["certificate"]["health"], exit), (health, int(health == "bad")), findings["certificate"])
            self.assertEqual("has expired" in findings["certificate"]["text"], days == "-1", findings["certificate"])

        # An island's machine: who answers has the key that it joined, and its data sets can be read.
        pathlib.Path(self.folder, "reef", "agent.toml").write_text(f'uplink = "1gbit"\n[data]\ncorpus = "{self.folder}/text.txt"\nimages = "{self.folder}/none"\n')
        exit, findings, _ = self.examine("reef")
        self.assertEqual(exit, 1)
        self.assertIn("proves its key", findings["coordinator"]["text"])
        self.assertIn("the coordinator is on this machine", findings["reach"]["text"])
        self.assertEqual(findings["data"]["health"], "bad")  # the last one
        self.assertIn("data set images: ", findings["data"]["text"])
        pathlib.Path(self.folder, "reef", "agent.toml").write_text(f'data = ["corpus={self.folder}/text.txt"]\n')
        exit, findings, _ = self.examine("reef")
        self.assertRegex(findings["data"]["text"], r"^data set corpus can be read: 1 file of [\d.]+ \w+: text.txt [\d.]+ \w+$")
        self.assertEqual(exit, 0, findings)
        place = pathlib.Path(self.folder, "reef", "coordinator.json")
        place.write_text(json.dumps({**json.loads(place.read_text()), "key": json.loads(pathlib.Path(self.folder, "shoal", "coordinator.json").read_text())["key"][::-1]}))
        exit, findings, _ = self.examine("reef")
        self.assertEqual((exit, findings["coordinator"]["health"]), (1, "bad"), findings)

        # An island that does not answer is named; a coordinator that is gone is said to be.
        agents[1].kill()
        agents[1].wait()
        _, findings, islands = self.wait_for("the dead one is named", lambda: (found := self.examine("coordinator")) and "shoal" not in found[2] and found or
                                             (found[1]["islands"]["health"] == "doubtful" and found))
        if "shoal" in islands:
            self.assertIn("nobody listens at", islands["shoal"]["why_not"])
        coordinator.kill()
        coordinator.wait()
        exit, findings, _ = self.examine("coordinator")
        self.assertEqual(exit, 1)
        self.assertIn("nobody listens at", findings["coordinator"]["text"])

    def test_probe_measures_the_paths_between_the_islands_and_a_plan_needs_no_run_before_it(self):
        self.start_coordinator()
        self.start_agents("reef", "shoal", hold_at=200, options={"reef": ["--uplink", "40mbit"]})
        self.wait_for("both islands are there", lambda: self.command("islands", "-q").split() == ["reef", "shoal"])
        examine = [self.atoll, "doctor", "--state", self.state, "--probe", "1s"]
        done = subprocess.run([*examine, "--json"], capture_output=True, text=True, timeout=60)
        paths = {(path["from"], path["to"]): path for path in json.loads(done.stdout)["paths"]}
        self.assertEqual(set(paths), {("reef", "shoal"), ("shoal", "reef")}, done.stderr)
        for path in paths.values():
            self.assertGreater(path["round_trip_ms"], 0)
            self.assertLess(path["round_trip_ms"], 1000)
        thin, wide = paths["reef", "shoal"]["bits_per_second"], paths["shoal", "reef"]["bits_per_second"]
        self.assertLess(thin, 48e6)  # its owner's budget; the bucket holds a little more at first
        self.assertGreater(thin, 20e6)
        self.assertGreater(wide, 2 * thin)
        shown = subprocess.run(examine, capture_output=True, text=True, timeout=60, env={**os.environ, "COLUMNS": "80"})
        self.assertRegex(shown.stdout, r"FROM +TO +RATE +ROUND TRIP\nreef +shoal +[\d.]+ Mbit/s +[\d.]+ ms\nshoal +reef")
        self.assertIn("the slowest path between islands is that from reef to shoal", shown.stdout)
        plan = subprocess.run([self.atoll, "plan", os.path.join(self.folder, "run.toml"), "--state", self.state, "--probe", "500ms", "--step-time", "200ms", "--json"],
                              capture_output=True, text=True, timeout=120)
        self.assertEqual(plan.returncode, 0, plan.stderr)
        islands = {island["name"]: island for island in json.loads(plan.stdout)["islands"]}
        self.assertLess(islands["reef"]["uplink_bits_per_second"], islands["shoal"]["uplink_bits_per_second"])
        self.assertEqual(islands["reef"]["step_seconds"], 0.2)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
