"""The portable program as people install it: what the files need, and that each trains two islands where it was installed.

portable_test.py FOLDER SOURCE [TEST…]: FOLDER has what examples/packaging/portable.sh made.
"""

import ast
import hashlib
import http.server
import io
import os
import pathlib
import re
import shutil
import socket
import ssl
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import unittest
import zipfile

FOLDER, SOURCE = pathlib.Path(sys.argv.pop(1)).resolve(), pathlib.Path(sys.argv.pop(1)).resolve()
PAGE = (SOURCE / "docs/install.md").read_text()
PYTHON = os.environ.get("ATOLL_TORCH_PYTHON", "/usr/bin/python3")

RUN_FILE = """[run]
name = "installed"
[trainer]
name = "line"
command = "{command}"
[training]
steps = 60
[strategy]
inner_steps = 10
[islands]
min = 2
max = 2
"""
BUILT_IN = """[run]
name = "built-in"
[model]
layers = 1
width = 32
heads = 2
[data]
files = ["text"]
[training]
steps = 20
batch = 4
sequence_length = 16
warmup_steps = 1
device = "cpu"
[strategy]
inner_steps = 5
[islands]
min = 2
max = 2
"""
LOOP = """import numpy
import atoll
island = atoll.join()
w = numpy.zeros(4, numpy.float32)
island.start({"weights": w})
for step in island.steps():
    w -= 0.1 * (w - 3)
    island.done(float(numpy.square(w - 3).sum()), samples=1)
"""


def only(pattern):
    (path,) = FOLDER.glob(pattern)
    return path


class Installed(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="atoll installed ü "))  # a path as people have them
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.home = self.folder / "home"
        self.home.mkdir()

    def said(self, *words, code=0, folder=None, **variables):
        environment = {"HOME": str(self.home), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "TMPDIR": tempfile.gettempdir(), **variables}
        result = subprocess.run([str(word) for word in words], cwd=folder or self.folder, env=environment, capture_output=True, text=True, timeout=300)
        self.assertEqual(result.returncode, code, f"{words}\n{result.stdout}{result.stderr}")
        return result.stdout + result.stderr

    def trains(self, program, python, loop=LOOP, **variables):
        """Two islands with a program of one's own, by `atoll local`."""
        work = self.folder / "work"
        work.mkdir(exist_ok=True)
        (work / "train.py").write_text(loop)
        (work / "run.toml").write_text(RUN_FILE.format(command=f"'{python}' train.py"))
        said = self.said(program, "local", "run.toml", "--network", "local", "--state", self.folder / "s", "-o", "json", folder=work, **variables)
        self.assertIn('"completed"', said)
        shutil.rmtree(self.folder / "s")

    def started(self, *words, **variables):
        environment = {"HOME": str(self.home), "PATH": "/usr/bin:/bin", **variables}
        process = subprocess.Popen([str(word) for word in words], cwd=self.folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def until(self, what):
        for _ in range(600):
            if what():
                return
            time.sleep(0.1)
        self.fail("in vain")

    def venv(self, name="venv"):
        self.said(PYTHON, "-m", "venv", "--system-site-packages", self.folder / name)
        return self.folder / name / "bin"


class Files(Installed):
    def test_sums_are_of_all_that_is_there(self):
        sums = dict(reversed(line.split("  ")) for line in (FOLDER / "SHA256SUMS").read_text().splitlines())
        self.assertEqual(sorted(sums), sorted(path.name for path in FOLDER.iterdir() if path.is_file() and path.name != "SHA256SUMS"))
        for name, digest in sums.items():
            self.assertEqual(hashlib.sha256((FOLDER / name).read_bytes()).hexdigest(), digest, name)

    def test_nothing_needs_more_than_the_oldest_glibc(self):
        with zipfile.ZipFile(only("atoll-*.whl")) as wheel:
            wheel.extractall(self.folder / "wheel")
        with tarfile.open(only("atoll-*.tar.gz")) as archive:
            archive.extractall(self.folder / "tarball")
        for package in FOLDER.glob("*.deb"):
            self.said("dpkg-deb", "-x", package, self.folder / "deb")
        (self.folder / "rpm").mkdir()
        self.said("sh", "-c", 'rpm2archive - <"$0" | tar -xz', only("atoll-*.x86_64.rpm"), folder=self.folder / "rpm")
        found = [path for path in self.folder.rglob("*") if path.is_file() and not path.is_symlink() and path.read_bytes()[:4] == b"\x7fELF"]
        self.assertEqual(len(found), 7, found)  # the program and its library, three times, and the program of the rpm
        said = self.said(SOURCE / "examples/packaging/portable/check.sh", *found)
        print(said, file=sys.stderr)
        self.assertIn("needs", self.said(SOURCE / "examples/packaging/portable/check.sh", "/usr/bin/cmake", code=1))  # the check finds what it is for

    def test_no_file_has_a_path_of_the_machine_that_built_it(self):
        with zipfile.ZipFile(only("atoll-*.whl")) as wheel:
            for name in wheel.namelist():
                self.assertNotIn(str(SOURCE).encode(), wheel.read(name), name)


class Environment(Installed):
    def setUp(self):
        super().setUp()
        if subprocess.run([PYTHON, "-c", "import numpy, venv, ensurepip"], capture_output=True).returncode != 0:
            self.skipTest(f"{PYTHON} has no NumPy, or makes no environments")
        self.wheel = only("atoll-*.whl")

    def install(self, pip, *options):
        self.said(*pip, "install", "-q", "--disable-pip-version-check", "--no-index", "--no-deps", *options, self.wheel)


class Wheel(Environment):
    def test_an_environment_has_the_program_and_the_package_and_trains(self):
        bin = self.venv()
        self.install([bin / "pip"])
        self.assertEqual(self.said(bin / "atoll", "--version"), self.said(bin / "python3", "-m", "atoll", "--version"))
        self.assertTrue((bin.parent / "share/man/man1/atoll.1.gz").exists())
        self.assertTrue((bin.parent / "share/bash-completion/completions/atoll").exists())
        self.trains(bin / "atoll", bin / "python3")
        # As an agent's trainer that the shell has not told where anything is.
        self.trains(bin / "atoll", bin / "python3", LOOP.replace("import atoll\n", "import atoll, os; os.environ.pop('ATOLL_TRAINER_LIBRARY', None)\n"))
        self.said(bin / "pip", "uninstall", "-q", "-y", "atoll")
        self.assertFalse((bin / "atoll").exists())

    def test_a_pytorch_loop_of_the_pages_trains_from_the_wheel(self):
        if subprocess.run([PYTHON, "-c", "import torch"], capture_output=True).returncode != 0:
            self.skipTest(f"{PYTHON} has no PyTorch")
        bin = self.venv()
        self.install([bin / "pip"])
        for name in ("gpt.py", "gpt_model.py", "gpt.toml"):
            text = (SOURCE / "examples/pytorch" / name).read_text()
            (self.folder / name).write_text(text.replace("/usr/bin/python3", f"'{bin / 'python3'}'"))
        said = self.said(bin / "atoll", "local", "gpt.toml", "--network", "local", "--state", self.folder / "s", "-o", "json")
        self.assertIn('"completed"', said)

    def test_other_places_that_pip_knows(self):
        bin = self.venv()
        self.install([bin / "python3", "-m", "pip"], "--target", self.folder / "target")
        path = {"PYTHONPATH": str(self.folder / "target")}
        self.assertIn("atoll ", self.said(PYTHON, "-m", "atoll", "--version", **path))
        self.trains(self.folder / "target/bin/atoll", PYTHON, **path)
        self.install([bin / "python3", "-m", "pip"], "--prefix", self.folder / "conda")
        # A prefix whose libstdc++ is older and goes first, as conda's may.
        (self.folder / "conda/lib/libstdc++.so.6").write_bytes(b"not a library")
        self.assertIn("atoll ", self.said(self.folder / "conda/bin/atoll", "--version", LD_LIBRARY_PATH=str(self.folder / "conda/lib")))
        (packages,) = (self.folder / "conda/lib").glob("python3*/site-packages")
        path = {"PYTHONPATH": str(packages), "LD_LIBRARY_PATH": str(self.folder / "conda/lib")}
        self.assertIn("OSError", self.said(PYTHON, "-c", "import ctypes; ctypes.CDLL('libstdc++.so.6')", code=1, **path))
        self.trains(self.folder / "conda/bin/atoll", PYTHON, **path)
        if shutil.which("patchelf"):  # what conda's own Python has written in it
            python = self.folder / "conda/bin/python3"
            shutil.copy(os.path.realpath(PYTHON), python)
            self.said("patchelf", "--force-rpath", "--set-rpath", self.folder / "conda/lib", python)
            self.assertIn("OSError", self.said(python, "-c", "import ctypes; ctypes.CDLL('libstdc++.so.6')", code=1, PYTHONHOME="/usr"))
            self.trains(self.folder / "conda/bin/atoll", python, PYTHONPATH=str(packages), PYTHONHOME="/usr")
        self.install([PYTHON, "-m", "pip"], "--user", "--break-system-packages")
        self.assertIn("atoll ", self.said(PYTHON, "-m", "atoll", "--version"))
        self.trains(self.home / ".local/bin/atoll", PYTHON)

    def test_a_wheel_says_where_the_program_is_not(self):
        bin = self.venv()
        self.install([bin / "pip"])
        (bin / "atoll").unlink()
        self.assertIn("the program is not installed with this Python package", self.said(bin / "python3", "-m", "atoll", code=1))

    def test_an_upgrade_and_a_removal_leave_a_program_that_runs_and_its_state_alone(self):
        bin = self.venv()
        self.install([bin / "pip"])
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        state = self.folder / "s"
        self.said(bin / "atoll", "coordinator", "init", "--state", state, "--bind", f"tcp://127.0.0.1:{port}", "--network", "local")
        running = subprocess.Popen([bin / "atoll", "coordinator", "--state", state], stderr=subprocess.DEVNULL, env={"HOME": str(self.home)})
        try:
            self.install([bin / "pip"], "--force-reinstall")
            self.assertIsNone(running.poll())
            self.said(bin / "atoll", "runs", "--state", state)  # the new program asks the old one
            self.said(bin / "pip", "uninstall", "-q", "-y", "atoll")
            self.assertIsNone(running.poll())
        finally:
            running.terminate()
            running.wait()
        self.assertTrue((state / "ledger.db").exists())


class Unfit(Environment):
    """What a wheel's files say where they cannot work: one line, and no crash of Python."""

    LOADS, STARTS = ("-c", "import atoll; print(atoll._library.path_of_library())"), ("-m", "atoll", "--version")

    def setUp(self):
        super().setUp()
        self.bin = self.venv()
        self.install([self.bin / "pip"])
        self.program = self.bin / "atoll"
        (self.library,) = self.bin.parent.glob("lib/python3*/site-packages/atoll/libatoll_trainer.so")

    def last_line(self, *words, **options):
        return self.said(self.bin / "python3", *words, code=1, **options).splitlines()[-1]

    def test_a_half_written_install_is_named_and_kills_nobody(self):
        for path, what, words in ((self.library, "library", self.LOADS), (self.program, "program", self.STARTS)):
            self.assertNotIn("damaged", self.said(self.bin / "python3", *words))
            whole = path.read_bytes()
            for size in (0, 1000, len(whole) - 1, len(whole) // 2):
                with self.subTest(what, size=size):
                    path.write_bytes(whole[:size])
                    expected = f"{path} is damaged, or was written in part: install Atoll again (pip install --force-reinstall)"
                    self.assertTrue(self.last_line(*words).endswith(f": {expected}"))
            said = " ".join(self.said(self.bin / "python3", "-m", "atoll", "doctor", code=1).split())
            self.assertIn(f"BAD {what} {expected}", said)
            path.write_bytes(whole)

    def test_files_for_another_machine_are_named(self):
        with self.assertRaisesRegex(AssertionError, "not a supported wheel on this platform"):
            other = self.folder / self.wheel.name.replace("x86_64", "aarch64")
            shutil.copy(self.wheel, other)
            self.said(self.bin / "pip", "install", "--no-index", "--no-deps", other)
        for path, words in ((self.library, self.LOADS), (self.program, self.STARTS)):
            with path.open("r+b") as file:
                file.seek(18)
                file.write(bytes([183, 0]))  # e_machine
            self.assertTrue(self.last_line(*words).endswith(f": {path} is for aarch64, and this machine is x86_64: install Atoll for this one"))

    def test_an_older_python_is_told_which_one_it_takes(self):
        old = ("--python-version", "3.8", "--only-binary=:all:", "--no-index", "--no-deps", "--dest", self.folder, self.wheel)
        self.assertIn("requires a different Python: 3.8.0 not in '>=3.9'", self.said(self.bin / "pip", "download", *old, code=1))
        # As a package that lies on its path: what comes before the check is of every Python's language.
        ast.parse((self.library.parent / "__init__.py").read_text(), feature_version=(3, 4))
        said = self.last_line("-c", "import sys; sys.version_info = (3, 8, 18, 'final', 0); import atoll")
        self.assertRegex(said, r"^ImportError: atoll needs Python 3\.9 or newer, and .*/python3 is 3\.8: take an environment of a newer one$")


class TwoVersions(Environment):
    """The tarball's program and a wheel that is the same one under another number: what the program says of itself is written over."""

    def setUp(self):
        super().setUp()
        self.version = re.search(r"atoll-([\d.]+)-", self.wheel.name)[1]
        self.later = "9" + self.version[1:]  # the linker lets other strings ("1.0") share the end
        with tarfile.open(only("atoll-*.tar.gz")) as archive:
            archive.extractall(self.folder)
        (self.earlier,) = self.folder.glob("atoll-*/bin")
        self.bin = self.venv()

    def later_wheel(self):
        path = self.folder / self.wheel.name.replace(self.version, self.later)
        with zipfile.ZipFile(self.wheel) as whole, zipfile.ZipFile(path, "w") as renamed:
            for entry in whole.infolist():
                content = whole.read(entry)
                entry.filename = entry.filename.replace(f"atoll-{self.version}", f"atoll-{self.later}")
                if entry.filename.endswith(("/scripts/atoll", "/METADATA")):
                    content = content.replace(self.version.encode(), self.later.encode())
                renamed.writestr(entry, b"" if entry.filename.endswith("/RECORD") else content)
        return path

    def test_a_run_goes_on_while_what_it_runs_with_is_upgraded_and_two_versions_talk(self):
        self.install([self.bin / "pip"])
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        gate = f"    if island.steps_done >= 20 and not os.path.exists({str(self.folder / 'go')!r}):\n"
        (self.folder / "train.py").write_text("import os, time\n" + LOOP.replace("island.done(", f"""if step == 20:
        open("there", "w").close()
        while not os.path.exists("go"):
            time.sleep(0.05)
    island.done("""))
        (self.folder / "run.toml").write_text(re.sub("command = .*\n", "", RUN_FILE).replace("min = 2", "min = 1"))
        states = {name: ("--state", self.folder / name) for name in ("coordinator", "island")}
        coordinator = (self.bin / "atoll", "coordinator", *states["coordinator"])
        self.said(*coordinator[:2], "init", *states["coordinator"], "--bind", f"tcp://127.0.0.1:{port}", "--network", "local")
        first = self.started(*coordinator)
        asked = lambda *words, program=self.bin / "atoll": self.said(program, *words, *states["coordinator"])
        islands = lambda: subprocess.run([self.bin / "atoll", "islands", "--json", *states["coordinator"]], capture_output=True, text=True)
        self.until(lambda: islands().returncode == 0)
        (self.folder / "token").write_text(asked("token", "create", "-q"))
        agent = self.started(self.bin / "atoll", "agent", *states["island"], "--join-file", "token", "--name", "reef", "--bind", "tcp://127.0.0.1:*",
                             "--trainer", f"line='{self.bin / 'python3'}' train.py", "--no-port-mapping")
        asked("submit", "run.toml", "-q")
        self.until((self.folder / "there").exists)

        self.wheel = self.later_wheel()
        self.install([self.bin / "pip"])
        self.assertIn(f"atoll {self.later} ", self.said(self.bin / "atoll", "--version"))
        first.terminate()
        self.assertEqual(first.wait(), 0)
        self.started(*coordinator)
        self.until(lambda: f'"{self.version}"' in islands().stdout)  # the agent is still of the earlier version
        (self.folder / "go").touch()
        asked("wait", "installed", "--timeout", "2m")
        self.assertIsNone(agent.poll())
        # An earlier program that goes first in somebody's path asks the later coordinator.
        said = " ".join(asked("doctor", program=self.earlier / "atoll").split())
        self.assertIn(f"the coordinator has version {self.later}, and this program {self.version}; they work together, but upgrade the older one", said)

    def test_two_installations_in_the_path_train_with_the_program_of_one_and_the_package_of_the_other(self):
        self.wheel = self.later_wheel()
        self.install([self.bin / "pip"])
        for first, second, version in ((self.earlier, self.bin, self.version), (self.bin, self.earlier, self.later)):
            path = f"{first}:{second}:/usr/bin:/bin"
            self.assertIn(f"atoll {version} ", self.said("atoll", "--version", PATH=path))
            self.trains("atoll", self.bin / "python3", PATH=path)


class BuiltInTrainer(Environment):
    """`python -m atoll.build_trainer`, for the PyTorch that the other tests have."""

    def setUp(self):
        super().setUp()
        self.bin = self.venv()
        self.install([self.bin / "pip"])

    def refused(self, *options, **variables):
        said = self.said(self.bin / "python3", "-m", "atoll.build_trainer", *options, code=1, **variables)
        self.assertEqual([line.partition(":")[0] for line in said.splitlines() if not line.startswith("compiles ")], ["atoll.build_trainer"], said)
        return said

    def package(self, **files):
        """A folder that looks like a package torch, but for these files."""
        folder = self.folder / "torch"
        shutil.rmtree(folder, ignore_errors=True)
        everything = {"version.py": "__version__ = '2.9.1+cpu'\n", "include/ATen/ATen.h": "", "lib/libtorch.so": "", "lib/libtorch_cpu.so": "", "lib/libc10.so": ""}
        for name, text in {**everything, **files}.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        return folder

    def test_what_keeps_it_from_being_built_is_one_line_with_what_to_do(self):
        self.assertIn("has no version.py, from which a program could be built: take PyTorch as pip installs it", self.refused("--torch", "/usr"))
        self.assertIn("is 2.5.1, and the built-in trainer needs 2.6 or newer", self.refused("--torch", self.package(**{"version.py": "__version__ = '2.5.1'\n"})))
        old = {"share/cmake/Torch/TorchConfig.cmake": 'set(TORCH_CXX_FLAGS "-D_GLIBCXX_USE_CXX11_ABI=0")\n'}
        self.assertIn("PyTorch 2.9.1+cpu in", self.refused("--torch", self.package(**old)))
        self.assertIn("there is no C++ compiler: install g++", self.refused("--torch", self.package(), PATH=str(self.bin)))
        self.assertIn("the compiler no-such-g++ does not start", self.refused("--torch", self.package(), CXX="no-such-g++"))
        old_compiler = self.folder / "old g++"
        old_compiler.write_text("#!/bin/sh\necho \"g++: error: unrecognized command-line option '-std=c++20'\"; exit 1\n")
        old_compiler.chmod(0o755)
        self.assertIn("does not know C++20, which GCC 11 and Clang 14 do", self.refused("--torch", self.package(), CXX=f"'{old_compiler}'"))
        self.assertIn("/proc/none/atoll_trainer.so cannot be written", self.refused("--torch", self.package(), "--to", "/proc/none"))
        # A package that is none: the compiler's own first error, and nothing is installed.
        self.assertIn("compiling failed: ", self.refused("--torch", self.package()))
        self.assertFalse((self.bin.parent / "lib/atoll/atoll_trainer.so").exists())

    def test_two_islands_train_with_the_trainer_that_was_built(self):
        found = sorted(SOURCE.glob("build/python/lib/python3*/site-packages/torch"))
        if not found:
            self.skipTest("there is no PyTorch in build/python (examples/install-packages.sh installs it)")
        missing = self.said(self.bin / "atoll", "trainer", "--facts", code=4)
        self.assertIn("`python -m atoll.build_trainer` makes one", missing)
        built = self.said(self.bin / "python3", "-m", "atoll.build_trainer", "--torch", found[0], CXX=os.environ.get("CXX", "g++"))
        version = re.search(r"__version__ = '([\d.]+)", (found[0] / "version.py").read_text())[1]
        self.assertRegex(built, rf"lib/atoll/atoll_trainer.so trains with LibTorch {re.escape(version)} \(")
        self.assertIn(f"LibTorch {version}", self.said(self.bin / "atoll", "doctor", "--state", self.folder / "none"))
        work = self.folder / "work"
        work.mkdir()
        (work / "run.toml").write_text(BUILT_IN)
        (work / "text").write_text("what islands learn is short. " * 2000)
        said = self.said(self.bin / "atoll", "local", "run.toml", "--network", "local", "--state", self.folder / "s", folder=work)
        self.assertIn("completed with 2 of 2 islands", said)


class Tarball(Installed):
    def setUp(self):
        super().setUp()
        with tarfile.open(only("atoll-*.tar.gz")) as archive:
            archive.extractall(self.folder / "unpacked")
        (self.root,) = (self.folder / "unpacked").iterdir()

    def test_it_runs_where_it_is_unpacked(self):
        self.assertIn("atoll ", self.said(self.root / "bin/atoll", "--version"))

    def test_it_is_installed_below_the_home_folder_without_root(self):
        said = self.said(self.root / "install.sh")
        self.assertIn(f"installed: {self.home}/.local/bin/atoll", said)
        self.assertIn("add it to your path", said)
        for name in ("lib/libatoll_trainer.so.1", "include/atoll_trainer.h", "share/man/man1/atoll.1.gz", "lib/cmake/atoll_trainer/atoll_trainer-config.cmake"):
            self.assertTrue((self.home / ".local" / name).exists(), name)
        for name in ("agent", "coordinator"):
            unit = (self.home / f".config/systemd/user/atoll-{name}.service").read_text()
            self.assertIn(f'ExecStart="{self.home}/.local/bin/atoll" {name}', unit)
        self.said(self.root / "install.sh", self.folder / "elsewhere")  # and again, to another place
        if subprocess.run([PYTHON, "-c", "import numpy"], capture_output=True).returncode == 0:
            self.trains(self.folder / "elsewhere/bin/atoll", PYTHON, PYTHONPATH=str(SOURCE / "agent/island_link/python"))

    def test_what_is_damaged_or_for_another_machine_is_one_clear_line(self):
        (self.root / "machine").write_text("aarch64\n")
        self.assertIn("files are missing or damaged", self.said(self.root / "install.sh", code=1))
        sums = (self.root / "SHA256SUMS").read_text()
        (self.root / "SHA256SUMS").write_text(re.sub(r"\S+(?=  machine\n)", hashlib.sha256(b"aarch64\n").hexdigest(), sums))
        self.assertIn("this Atoll is for aarch64, and this machine is ", self.said(self.root / "install.sh", code=1))
        self.assertFalse((self.home / ".local").exists())

    def test_a_place_that_cannot_be_written_is_said(self):
        file = self.folder / "file"
        file.write_text("")
        self.assertIn("cannot be written; choose another folder", self.said(self.root / "install.sh", file / "below", code=1))


# Two versions of the rpm in this system, over which a folder lies that the script leaves as it was: $1 is that folder. What the packages' scripts ask
# of systemd is written down.
RPM = r"""set -eu
folder=$1 first=$2 second=$3 port=$4
mount -t tmpfs none "$folder" && cd "$folder" && mkdir lower upper work root
mount --bind / lower && mount -t overlay none -o lowerdir=lower,upperdir=upper,workdir=work root
mount -t proc proc root/proc && mount --rbind /dev root/dev
chroot root userdel atoll 2>/dev/null || true
rm -rf root/var/lib/atoll root/etc/atoll root/var/lib/rpm root/usr/bin/systemctl root/usr/bin/atoll root/systemctl.log
printf '#!/bin/sh\necho "$*" >>/systemctl.log\n' >root/usr/bin/systemctl && chmod 755 root/usr/bin/systemctl && mkdir -p root/run/systemd/system
packages() { rpm --root "$PWD/root" --dbpath /var/lib/rpm "$@" 2> >(grep -v "^rpm: \(RPM should\|However\)" >&2); }  # what Debian's says each time
as_atoll() { chroot --userspec=atoll:atoll root env HOME=/var/lib/atoll "$@"; }
asked() { echo "asked of systemd: $(tr '\n' ';' <root/systemctl.log)" && rm root/systemctl.log; }
settled() { for _ in $(seq 100); do if as_atoll atoll runs --state /var/lib/atoll/coordinator; then return; fi; sleep 0.1; done; false; }

packages --install --nodeps "$first"  # no package of this system is rpm's
echo "installed: $(chroot root atoll --version), of $(chroot root stat -c '%U %a' /var/lib/atoll)"
asked
as_atoll atoll coordinator init --state /var/lib/atoll/coordinator --bind "tcp://127.0.0.1:$port" --network local >/dev/null 2>&1
chroot --userspec=atoll:atoll root env HOME=/var/lib/atoll atoll coordinator --state /var/lib/atoll/coordinator 2>/dev/null & coordinator=$!
settled >/dev/null 2>&1 && echo "# the owner's" >>root/etc/atoll/agent.toml
packages --upgrade --nodeps "$second"
kill -0 $coordinator && settled && tail -n 1 root/etc/atoll/agent.toml && packages --query atoll
asked
packages --erase atoll
ls root/var/lib/atoll/coordinator/ledger.db root/etc/atoll/agent.toml.rpmsave && [ ! -e root/usr/bin/atoll ]
asked
"""


class Rpm(Installed):
    def setUp(self):
        super().setUp()
        self.rpm = only("atoll-*.x86_64.rpm")

    def test_it_holds_what_the_deb_holds_and_asks_for_nothing_of_debian(self):
        listed = self.said("rpm", "--query", "--package", "--list", self.rpm).split("\n")
        archive = subprocess.run(["dpkg-deb", "--fsys-tarfile", only("atoll_*.deb")], capture_output=True, check=True).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as deb:
            files = {name.name.removeprefix(".").replace("zsh/vendor-completions", "zsh/site-functions") for name in deb if not name.isdir()}
        self.assertEqual(files ^ {name for name in listed if name in files or "." in name or "/bin/" in name},
                         {"/usr/share/doc/atoll/changelog.gz"})
        self.assertIn("/usr/share/licenses/atoll/LICENSE", listed)
        self.assertEqual(self.said("rpm", "--query", "--package", "--configfiles", self.rpm).split(), ["/etc/atoll/agent.toml", "/etc/atoll/coordinator.toml"])
        needed = self.said("rpm", "--query", "--package", "--requires", self.rpm).splitlines()
        libraries = re.compile(r"(libc|libm|libgcc_s|ld-linux-x86-64)\.so\.\d\((?:(GLIBC|GCC)_([\d.]+))?\)\(64bit\)")
        others = {name for name in needed if not libraries.fullmatch(name) and not name.startswith(("rpmlib(", "config(atoll) = "))}
        self.assertEqual(others, {"/bin/sh", "rtld(GNU_HASH)", "shadow-utils"})
        versions = [tuple(map(int, found[3].split("."))) for found in map(libraries.fullmatch, needed) if found and found[2] == "GLIBC"]
        self.assertEqual(max(versions), (2, 34))

    def test_it_is_installed_upgraded_under_a_coordinator_that_runs_and_removed_without_its_state(self):
        if os.geteuid() != 0:
            self.skipTest("only root installs packages")
        newer = pathlib.Path(tempfile.mkdtemp(prefix="atoll-rpm-"))
        self.addCleanup(shutil.rmtree, newer)
        subprocess.run(["cpack", "-G", "RPM", "--config", SOURCE / "build/portable/CPackConfig.cmake", "-R", "9.9.9", "-D", "CPACK_RPM_COMPRESSION_TYPE=gzip",
                        "-B", newer], stdout=subprocess.DEVNULL, check=True)
        (second,) = newer.glob("*.rpm")
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        root = self.folder / "root"
        root.mkdir()
        said = self.said("unshare", "-mpf", "--kill-child", "--mount-proc", "bash", "-c", RPM, "-", root, self.rpm, second, port, PATH="/usr/bin:/bin:/usr/sbin:/sbin")
        print(said, file=sys.stderr)
        self.assertRegex(said, r"installed: atoll [\d.]+.*, of atoll 700\nasked of systemd: --system daemon-reload;\n")
        self.assertIn("# the owner's\natoll-9.9.9-1.x86_64\n", said)
        restarts = "".join(f"try-restart atoll-{name}.service;" for name in ("coordinator", "relay", "agent"))
        self.assertIn(f"asked of systemd: --system daemon-reload;{restarts}--system daemon-reload;\n", said)
        ends = "".join(f"--no-reload disable --now atoll-{name}.service;" for name in ("agent", "coordinator", "relay"))
        self.assertIn(f"asked of systemd: {ends}--system daemon-reload;\n", said)


# A command with another /dev, in which shm is what $1 says, and a home folder that is read-only.
PLACES = r"""set -eu
mount -t tmpfs none "$PWD/dev"
for name in null zero random urandom; do touch "$PWD/dev/$name"; mount --bind "/dev/$name" "$PWD/dev/$name"; done
if [ "$1" = read-only ]; then mkdir "$PWD/dev/shm" && mount -t tmpfs -o ro none "$PWD/dev/shm"; fi
mount --rbind "$PWD/dev" /dev && mount --bind "$HOME" "$HOME" && mount -o remount,bind,ro "$HOME"
shift && exec "$@"
"""


class Places(Installed):
    """What a container or a login node may lack."""

    def setUp(self):
        super().setUp()
        if os.geteuid() != 0:
            self.skipTest("only root makes places that lack something")
        with tarfile.open(only("atoll-*.tar.gz")) as archive:
            archive.extractall(self.folder)
        (self.root,) = self.folder.glob("atoll-*")
        (self.folder / "dev").mkdir()

    def where(self, memory, *words, **options):
        return self.said("unshare", "-m", "sh", "-c", PLACES, "-", memory, *words, **options)

    def test_without_shared_memory_islands_train_on_the_state_s_disk_and_doctor_says_so(self):
        (self.folder / "train.py").write_text(LOOP)
        (self.folder / "run.toml").write_text(RUN_FILE.format(command=f"'{PYTHON}' train.py"))
        library = {"ATOLL_TRAINER_LIBRARY": str(self.root / "lib/libatoll_trainer.so.1"), "PYTHONPATH": str(SOURCE / "agent/island_link/python")}
        for memory, why in (("none", "No such file or directory"), ("read-only", "Read-only file system")):
            said = self.where(memory, self.root / "bin/atoll", "doctor", "--state", self.folder / "none")
            self.assertIn(f"doubtful  nothing can be made in /dev/shm ({why}), so models being trained lie on the disk of the state directory: mount -t tmpfs", said)
            if subprocess.run([PYTHON, "-c", "import numpy"], capture_output=True).returncode == 0:
                words = ("local", "run.toml", "--network", "local", "--state", self.folder / memory, "-o", "json")
                self.assertIn('"completed"', self.where(memory, self.root / "bin/atoll", *words, **library))

    def test_a_home_that_is_read_only_is_one_line_that_says_where_else(self):
        (self.folder / "run.toml").write_text(RUN_FILE.format(command="true"))
        (self.folder / "token").write_text("atoll1-none")
        for words in (("local", "run.toml"), ("coordinator", "init"), ("agent", "--join-file", "token"), ("up",), ("relay",)):
            with self.subTest(words):
                said = self.where("none", self.root / "bin/atoll", *words, code=1).splitlines()
                self.assertRegex(said[-1], r"/home/\.local\b.*: Read-only file system; give --state DIR or set ATOLL_STATE$")
                self.assertEqual([line for line in said if line.startswith("atoll: ")], said[-1:])


class Sources(Installed):
    """Where they are built on something older."""

    def test_the_oldest_cmake_configures_the_product_and_names_what_it_cannot(self):
        cmake = SOURCE / "build/cmake-3.22/bin/cmake"
        if not cmake.exists():
            shutil.rmtree(SOURCE / "build/cmake-3.22", ignore_errors=True)
            subprocess.run([PYTHON, "-m", "venv", SOURCE / "build/cmake-3.22"], check=True)
            pip = (SOURCE / "build/cmake-3.22/bin/pip", "install", "-q", "--disable-pip-version-check", "cmake==3.22.*")
            if subprocess.run(pip, capture_output=True).returncode != 0:
                self.skipTest("pip reaches no package index")
        for preset, expected in (("product", "Build files have been written"), ("release", "the tests need CMake 3.25 or newer, and this is 3.22.")):
            words = (cmake, "--preset", preset, "-D", "ATOLL_TORCH=OFF", "-S", SOURCE, "-B", self.folder / preset)
            done = subprocess.run(words, cwd=SOURCE, capture_output=True, text=True)
            self.assertEqual((done.returncode, expected in done.stdout + done.stderr), (int(preset == "release"), True), done.stdout + done.stderr)

    def test_a_system_that_is_too_old_is_named_before_anything_is_installed(self):
        if os.geteuid() != 0:
            self.skipTest("only root gives a system another name")
        (self.folder / "os-release").write_text('ID=ubuntu\nVERSION_ID="22.04"\n')
        script = 'mount --bind "$PWD/os-release" /etc/os-release && exec "$0" --without-torch'
        said = self.said("unshare", "-m", "sh", "-c", script, SOURCE / "examples/install-packages.sh", code=1)
        self.assertRegex(said, r"^install-packages.sh: ubuntu22.04 has libraries older than Atoll is written for, [^\n]*\n$")


class OldProcessor(Installed):
    """QEMU's Nehalem, of 2008: x86-64 without AVX, where an instruction of AVX is an illegal one."""

    OLD = ("qemu-x86_64", "-cpu", "Nehalem")
    USES_AVX = """import ctypes, mmap
code = mmap.mmap(-1, 4096, prot=7)
code.write(bytes.fromhex("c5fc57c0c5f877c3"))
ctypes.CFUNCTYPE(None)(ctypes.addressof(ctypes.c_char.from_buffer(code)))()
"""

    def setUp(self):
        super().setUp()
        if shutil.which(self.OLD[0]) is None:
            self.skipTest("QEMU is not installed (apt-get install qemu-user)")
        with tarfile.open(only("atoll-*.tar.gz")) as archive:
            archive.extractall(self.folder)
        (self.root,) = self.folder.glob("atoll-*")
        self.program = (*self.OLD, self.root / "bin/atoll")

    def test_what_the_program_computes_takes_vectors_that_are_there(self):
        self.assertIn("atoll ", self.said(*self.program, "--version"))
        self.assertNotIn("bad ", self.said(*self.program, "doctor", "--state", self.folder / "none"))
        with self.assertRaisesRegex(AssertionError, "^-4 != 0"):  # SIGILL: the processor is as old as it should be
            self.said(*self.OLD, PYTHON, "-c", self.USES_AVX)

    def test_no_function_of_the_product_takes_wider_vectors_but_those_that_are_chosen_when_it_starts(self):
        chosen, others, function = set(), set(), ""
        for binary in ("atoll", "libatoll_trainer.so.1"):
            words = ("objdump", "-d", "--no-show-raw-insn", SOURCE / "build/portable" / binary)
            with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as listing:
                for line in listing.stdout:
                    if line.endswith(">:\n"):
                        function = line.partition("<")[2][:-3]
                    elif function.startswith("_Z") and ("%ymm" in line or "%zmm" in line or "\tv" in line and "%xmm" in line):
                        (chosen if function.endswith((".avx2", ".avx512f")) else others).add(function)
            self.assertEqual(listing.returncode, 0)
        self.assertGreater(len(chosen), 20)
        self.assertEqual(others, set())

    def test_two_islands_train_on_it(self):
        if subprocess.run([PYTHON, "-c", "import numpy"], capture_output=True).returncode != 0:
            self.skipTest(f"{PYTHON} has no NumPy")
        (self.folder / "train.py").write_text(LOOP.replace("atoll.join()", "atoll.join(path=__import__('sys').argv[1])").replace("zeros(4", "zeros(10_000"))
        strategy = "[strategy]\ncodec = 'fp4'\nrounding = 'stochastic'\nerror_feedback = true\npacking = 'zstd'\n"
        (self.folder / "run.toml").write_text(re.sub("command = .*\n", "", RUN_FILE).replace("[strategy]\n", strategy))
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        of = ("--state", self.folder / "c")
        self.said(*self.program, "coordinator", "init", *of, "--bind", f"tcp://127.0.0.1:{port}", "--network", "local")
        self.started(*self.program, "coordinator", *of)
        self.until(lambda: subprocess.run([*self.program, "runs", *of], capture_output=True).returncode == 0)
        for island in ("reef", "shoal"):
            (self.folder / "token").write_text(self.said(*self.program, "token", "create", "-q", *of))
            self.started(*self.program, "agent", "--state", self.folder / island, "--join-file", "token", "--name", island, "--bind", "tcp://127.0.0.1:*",
                         "--trainer", "line=attach", "--no-port-mapping")
            self.until((self.folder / island / "trainers").exists)
        self.said(*self.program, "submit", "run.toml", "-q", *of)
        library = {"ATOLL_TRAINER_LIBRARY": self.root / "lib/libatoll_trainer.so.1", "PYTHONPATH": SOURCE / "agent/island_link/python"}
        for island in ("reef", "shoal"):
            path = self.folder / island / "trainers/line"
            self.until(path.exists)
            self.started(*self.OLD, PYTHON, "train.py", path, **library)
        self.said(*self.program, "wait", "installed", "--timeout", "2m", *of)


class Nothing(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_error(404)

    def log_message(self, *words):
        pass


class Https(Installed):
    def test_authorities_are_those_that_the_system_or_a_variable_names(self):
        if shutil.which("openssl") is None:
            self.skipTest("openssl is not installed")
        name = ("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost")
        self.said("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "key.pem", "-out", "own.pem", "-days", "2", *name)
        server = http.server.HTTPServer(("127.0.0.1", 0), Nothing)
        settings = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        settings.load_cert_chain(self.folder / "own.pem", self.folder / "key.pem")
        server.socket = settings.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        with tarfile.open(only("atoll-*.tar.gz")) as archive:
            archive.extractall(self.folder)
        (program,) = self.folder.glob("atoll-*/bin/atoll")
        line = (program, "restore", f"https://localhost:{server.server_address[1]}/copies", "-o", "model")
        self.assertIn("does not prove who it is", self.said(*line, code=7))
        trusted = subprocess.run(line, cwd=self.folder, env={"SSL_CERT_FILE": str(self.folder / "own.pem")}, capture_output=True, text=True)
        self.assertIn("there is no copy of a checkpoint at", trusted.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]], verbosity=2)
