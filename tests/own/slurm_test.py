"""The page's script for Slurm, with 15 seconds for its ten minutes, on a cluster of Debian's slurmctld and slurmd: two partitions, which are two sites.

    slurm_test.py ATOLL SOURCE      needs root for machines (machines.py), and says with status 4 what is missing
"""

import json
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import time
import unittest

import machines

ATOLL, SOURCE = str(pathlib.Path(sys.argv[1]).resolve()), pathlib.Path(sys.argv[2]).resolve()
PATIENCE = 150
NAMES = {"10.77.0.1": "login", "10.77.0.2": "lyon", "10.77.0.3": "oslo"}

SLURM = """ClusterName=test
SlurmctldHost=login(10.77.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
# cred_expire is also how long a task that went back into the queue waits there.
AuthInfo=socket={folder}/munge,cred_expire=5
StateSaveLocation={folder}/controller
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
MailProg=/bin/true
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
SlurmdParameters=config_overrides
KillWait=30
NodeName=lyon NodeAddr=10.77.0.2 CPUs=16 Gres=gpu:2
NodeName=oslo NodeAddr=10.77.0.3 CPUs=16 Gres=gpu:2
PartitionName=lyon Nodes=lyon Default=YES
PartitionName=oslo Nodes=oslo
"""
# Nobody has such cards here; Slurm hands them out all the same.
CARDS = "AutoDetect=off\n" + "".join(f"NodeName=lyon,oslo Name=gpu File={file}\n" for file in ("/dev/null", "/dev/zero"))

RUN = """[run]
name = "slurm"
[data]
set = "corpus"
[model]
layers = 1
width = 32
heads = 2
[training]
steps = 2400
batch = 4
sequence_length = 32
max_steps_per_second = 20
[strategy]
name = "diloco"
inner_steps = 20
[islands]
min = 1
max = 2
"""


class Slurm(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="atoll-slurm-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def begin(self, network):
        """A login node with the controller, the coordinator and the users' home, and a node for each partition."""
        (self.folder / "slurm.conf").write_text(SLURM.format(folder=self.folder))
        (self.folder / "gres.conf").write_text(CARDS)
        (self.folder / "controller").mkdir()
        key = self.folder / "key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        self.login = network.machine("login", "10.77.0.1", NAMES)
        nodes = [network.machine(name, address, NAMES) for address, name in list(NAMES.items())[1:]]
        own = " ".join(f"--{name}={self.folder}/{file}" for name, file in
                       (("key-file", "key"), ("socket", "munge"), ("pid-file", "munge.pid"), ("log-file", "munge.log"), ("seed-file", "munge.seed")))  # fmt: skip
        self.login.start(f"munged --foreground --force {own}")
        self.wait(lambda: (self.folder / "munge").exists())
        self.login.start(self.slurm("slurmctld -D"))
        for node in nodes:
            node.start(self.slurm(f"slurmd -D -N {node.name}"))
        self.wait(lambda: self.asked("sinfo -h -N -o %T").split() == ["idle", "idle"])
        self.said("atoll coordinator init --bind 'tcp://*:4400' --advertise tcp://10.77.0.1:4400")
        self.coordinator = self.login.start("atoll coordinator")
        self.wait(lambda: self.read("atoll islands -o json") is not None)

    def slurm(self, line):
        return f"env SLURM_CONF={self.folder}/slurm.conf {line}"

    def asked(self, line):
        """What a command of Slurm's answers on the login node."""
        return self.login.run(self.slurm(line)).stdout

    def said(self, line):
        result = self.login.run(line)
        self.assertEqual(result.returncode, 0, f"{line}\n{result.stdout}{result.stderr}\n{self.logs()}")
        return result.stdout

    def read(self, line):
        result = self.login.run(line)
        return json.loads(result.stdout) if result.returncode == 0 else None

    def logs(self):
        return "\n".join(f"== {path}\n{path.read_text(errors='replace')[-3000:]}" for path in
                         [*self.login.home.glob("slurm-*.out"), *self.login.home.glob("started-*"), *self.folder.glob("slurm*.log")])  # fmt: skip

    def wait(self, what, patience=PATIENCE):
        end = time.monotonic() + patience
        while not (found := what()):
            self.assertLess(time.monotonic(), end, self.logs())
            time.sleep(0.3)
        return found

    def states(self, job):
        return self.asked(f"squeue -h -t all -j {job} -o %T").split()

    def test_a_task_whose_time_is_over_comes_back_as_the_same_island(self):
        with machines.Network(self.folder, ATOLL) as network:
            self.begin(network)
            script = self.login.home / "slurm.sbatch"
            text = (SOURCE / "examples/slurm.sbatch").read_text()
            self.assertIn("--leave-idle 10m ", text)
            script.write_text(text.replace("--leave-idle 10m", "--leave-idle 15s"))
            tokens = next(line for line in text.splitlines() if "atoll token create" in line).lstrip("# ")
            (self.login.home / "atoll/text").mkdir(parents=True)
            (self.login.home / "atoll/text/book.txt").write_text("".join(path.read_text() for path in sorted((SOURCE / "strategies").glob("*.cpp"))))
            self.said(tokens)
            (self.login.home / "run.toml").write_text(RUN)

            submit = lambda options: self.said(self.slurm(f"sbatch --parsable {options} {script}")).strip()  # noqa: E731
            # A minute is the least that Slurm knows, and it looks at the time every half one.
            short = submit("--partition=lyon --array=0 --time=1 --signal=B:USR1@30")
            long = submit("--partition=oslo --array=1 --time=30")
            run = self.said("atoll submit run.toml -q").strip()
            names = lambda: {one["name"]: one for one in self.read(f"atoll status {run} -o json")["islands"]}  # noqa: E731
            self.wait(lambda: all(one["active"] for one in names().values()) and len(names()) == 2)
            first = names()["slurm-0"]["id"]

            self.wait(lambda: not names()["slurm-0"]["active"])
            self.wait(lambda: self.states(short) == ["PENDING"])
            self.assertIn("leaving", (self.login.home / f"slurm-{short}_0.out").read_text())
            self.said(self.slurm(f"scontrol update JobId={short}_0 TimeLimit=30"))
            self.wait(lambda: names()["slurm-0"]["active"])
            self.assertEqual(names()["slurm-0"]["id"], first)
            self.assertEqual(self.states(short), ["RUNNING"])

            self.said(f"atoll wait {run}")
            self.said(f"atoll export {run} -o model.safetensors")
            document = self.read(f"atoll status {run} -o json")
            self.assertIn("completed with 2 of 2 islands; slurm-0 was away from round", document["run"]["reason"])
            self.assertTrue(self.read(f"atoll data {run} -o json")["proof"]["holds"])
            # Nothing to train: both give their nodes back by themselves.
            self.wait(lambda: not self.asked("squeue -h").strip())
            self.assertEqual(self.states(short) + self.states(long), ["COMPLETED", "COMPLETED"], self.logs())
            self.assertIn("it had nothing to do for 15.0 s", (self.login.home / f"slurm-{long}_1.out").read_text())

            # scancel ends a task in order, and it does not come back.
            last = submit("--partition=oslo --array=1")
            told = self.login.home / f"slurm-{last}_1.out"
            self.wait(lambda: told.exists() and "other islands reach it" in told.read_text())
            self.said(self.slurm(f"scancel {last}"))
            self.wait(lambda: self.states(last) == ["CANCELLED"])
            self.assertIn("has left", told.read_text())
            machines.Machine.stop(self.coordinator, signal.SIGTERM)
            self.assertEqual(self.coordinator.wait(60), 0)


if __name__ == "__main__":
    missing = machines.why_not() or ", ".join(tool for tool in ("munged", "slurmctld", "slurmd", "sbatch") if not shutil.which(tool, path="/usr/bin:/usr/sbin:/bin:/sbin"))
    if missing:
        print(f"cannot be tested here: {missing}")
        sys.exit(4)
    unittest.main(argv=sys.argv[:1], verbosity=2)
