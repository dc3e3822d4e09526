"""The built-in trainer for the LibTorch of a Python package torch (-DATOLL_TORCH=FOLDER): built without its CMake files, it finds its
libraries in that folder alone, and two islands train with it.

torch_package_test.py CMAKE SOURCE ATOLL. Exit status 4: there is no package. It is $ATOLL_TEST_TORCH, or the one in build/python. ATOLL's build folder has
the module for it where the system has no LibTorch of 2.6; else it is built."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

CMAKE, SOURCE, ATOLL = (pathlib.Path(sys.argv.pop(1)) for _ in range(3))
RUN = """
[run]
name = "package"
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


def torch_folder():
    given = os.environ.get("ATOLL_TEST_TORCH")
    found = [pathlib.Path(given)] if given else sorted(SOURCE.glob("build/python/lib/python3*/site-packages/torch"))
    if not found or not (found[0] / "lib" / "libtorch.so").exists():
        raise unittest.SkipTest("there is no Python package torch in build/python (tests/run.sh installs it), nor in $ATOLL_TEST_TORCH")
    return found[0].resolve()


def said_by(*command, **options):
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    return done.returncode, done.stdout


class Refused(unittest.TestCase):
    def refusal(self, torch, source=SOURCE):
        status, said = said_by(CMAKE, f"-DATOLL_TORCH={torch}", "-P", source / "agent" / "trainer" / "torch_package.cmake")
        self.assertNotEqual(status, 0, said)
        return " ".join(said.split())

    def test_a_folder_that_is_no_package_is_refused_with_what_it_lacks(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertIn(f"{folder} is no folder of a Python package torch: it has no include/ATen/ATen.h", self.refusal(folder))

    def test_without_any_libtorch_it_says_what_to_do(self):
        with tempfile.TemporaryDirectory() as folder:
            place = pathlib.Path(folder, "agent", "trainer", "torch_package.cmake")
            place.parent.mkdir(parents=True)
            place.write_text((SOURCE / "agent" / "trainer" / "torch_package.cmake").read_text())
            said = self.refusal("ON", pathlib.Path(folder))
            self.assertIn("There is no LibTorch of 2.6 or newer: neither the system's nor one in build/python. examples/install-packages.sh installs one", said)

    def test_a_package_with_the_old_abi_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            for file in ("include/ATen/ATen.h", "include/torch/csrc/api/include/torch/version.h", "lib/libtorch.so", "lib/libtorch_cpu.so",
                         "lib/libc10.so", "share/cmake/Torch/TorchConfig.cmake"):
                path = pathlib.Path(folder, file)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text('set(TORCH_CXX_FLAGS "-D_GLIBCXX_USE_CXX11_ABI=0")\n')
            self.assertIn("is compiled with C++'s old ABI", self.refusal(folder))


class Trains(unittest.TestCase):
    def test_two_islands_train_with_a_module_that_is_installed(self):
        torch = torch_folder()
        build = ATOLL.resolve().parent
        if str(torch / "lib") not in said_by("readelf", "-d", build / "atoll_trainer.so")[1]:
            build = SOURCE / "build" / "torch-package"
            for step in ([CMAKE, "--preset", "product", "-B", build, f"-DATOLL_TORCH={torch}"],
                         [CMAKE, "--build", build, "--target", "atoll_trainer", "-j", "2"]):
                status, said = said_by(*step, cwd=SOURCE)
                self.assertEqual(status, 0, said[-4000:])
        with tempfile.TemporaryDirectory() as folder:
            status, said = said_by(CMAKE, "--install", build, "--component", "torch", "--prefix", f"{folder}/usr")
            self.assertEqual(status, 0, said)
            [module] = pathlib.Path(folder, "usr").rglob("atoll_trainer.so")
            environment = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
            for file in (build / "atoll_trainer.so", module):
                with self.subTest(file=file):
                    [path] = re.findall(r"R(?:UN)?PATH\).*\[(.*)\]", said_by("readelf", "-d", file)[1])
                    self.assertEqual(path.split(":"), [str(torch / "lib")])
                    libraries = dict(re.findall(r"(lib(?:torch|c10)\S*) => (\S+)", said_by("ldd", file, env=environment)[1]))
                    self.assertTrue({"libtorch_cpu.so", "libc10.so"} <= set(libraries), libraries)
                    self.assertEqual({os.path.dirname(os.path.realpath(place)) for place in libraries.values()}, {str(torch / "lib")})
            pathlib.Path(folder, "run.toml").write_text(RUN)
            pathlib.Path(folder, "text").write_text("what islands learn is short. " * 2000)
            environment["ATOLL_TRAINER_MODULE"] = str(module)
            status, said = said_by(ATOLL, "local", "run.toml", "--state", "state", cwd=folder, env=environment)
            self.assertEqual(status, 0, said)
            self.assertIn("completed with 2 of 2 islands", said)
            version = re.search(r"__version__ = '([\d.]+)", (torch / "version.py").read_text())[1]
            for island in ("island-1", "island-2"):
                log = pathlib.Path(folder, "state", f"{island}.log").read_text()
                self.assertIn(f"trainers are to compute with LibTorch {version} (", log)
                self.assertIn(f"the trainer computes with LibTorch {version} (", log)


if __name__ == "__main__":
    result = unittest.main(exit=False).result
    sys.exit(1 if not result.wasSuccessful() else 4 if result.skipped else 0)
