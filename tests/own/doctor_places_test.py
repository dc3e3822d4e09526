"""`atoll doctor` where state and shared memory lie as users without root find them: each place made for real, on a machine of its own.

doctor_places_test.py ATOLL SOURCE: needs root for machines (machines.py).
"""

import json
import pathlib
import sys
import tempfile
import unittest

import machines

ATOLL, SOURCE = str(pathlib.Path(sys.argv[1]).resolve()), pathlib.Path(sys.argv[2]).resolve()
LARGE = """[run]
name = "large"
[trainer]
name = "mine"
parameters = "100M"
[training]
steps = 10
[strategy]
inner_steps = 5
"""


class Places(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.machine = machines.Machine(self.folder.name, "lyon", ATOLL)
        self.addCleanup(self.machine.switch_off)

    def found(self, *words):
        """The exit code, and the findings by what they are of."""
        done = self.machine.run(" ".join(["atoll doctor --json", *words]))
        return done.returncode, {one["what"]: one for one in json.loads(done.stdout)["findings"]}

    def test_a_container_s_shared_memory_is_too_small_for_a_run(self):
        self.machine.do("mount -t tmpfs -o size=64m none /dev/shm")
        (self.machine.home / "run.toml").write_text(LARGE)
        code, found = self.found()
        self.assertEqual((code, found["memory"]["health"]), (0, "doubtful"))
        self.assertIn("of a container --shm-size", found["memory"]["text"])
        code, found = self.found("run.toml")
        self.assertEqual((code, found["memory"]["health"]), (1, "bad"))
        self.assertRegex(found["memory"]["text"], r"^67\.1 MB are free in /dev/shm, and the run's model takes 400\.0 MB there: ")

    def test_a_home_that_is_read_only(self):
        self.machine.do("mkdir /srv/home && mount -t tmpfs -o ro none /srv/home")
        code, found = self.found("--state /srv/home/.local/state/atoll")
        self.assertEqual((code, found["state"]["health"]), (1, "bad"))
        self.assertIn("/srv/home is on a file system that is mounted read-only; give --state DIR", found["state"]["text"])
        self.machine.do("mount -o remount,rw /srv/home && mkdir -m 700 /srv/home/state && mount -o remount,ro /srv/home")
        code, found = self.found("--state /srv/home/state")
        self.assertEqual((code, found["disk"]["health"]), (1, "bad"))
        self.assertIn("mounted read-only; give --state DIR", found["disk"]["text"])

    def test_a_state_in_memory_is_gone_at_a_restart(self):
        code, found = self.found("--state /srv/state")  # /srv is a tmpfs of this machine
        self.assertEqual((code, found["filesystem"]["health"]), (0, "doubtful"))
        self.assertIn("is in memory (tmpfs)", found["filesystem"]["text"])

    def test_a_state_that_is_mounted_noexec_does_no_harm(self):
        self.machine.do(f"mkdir -m 700 {self.machine.home}/state && mount --bind {self.machine.home}/state {self.machine.home}/state")
        self.machine.do(f"mount -o remount,bind,noexec {self.machine.home}/state")
        code, found = self.found("--state state")
        self.assertEqual((code, found["filesystem"]["health"]), (0, "good"))
        self.assertIn("noexec, which does not matter", found["filesystem"]["text"])

    def test_a_place_that_is_full(self):
        self.machine.do("mkdir /srv/small && mount -t tmpfs -o size=4m,mode=700 none /srv/small")
        code, found = self.found("--state /srv/small")
        self.assertEqual((code, found["disk"]["health"]), (1, "bad"))
        self.assertIn("nothing can be written to /srv/small", found["disk"]["text"])


if __name__ == "__main__":
    if reason := machines.why_not():
        print("skipped: " + reason)
        sys.exit(4)
    unittest.main(argv=[sys.argv[0]])
