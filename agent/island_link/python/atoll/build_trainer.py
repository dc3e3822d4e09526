"""Builds the built-in trainer for the PyTorch of an environment, where Atoll's wheel is installed and a C++ compiler is.

    python -m atoll.build_trainer [--torch FOLDER] [--to FOLDER]

The trainer is C++ that LibTorch computes, so it is made for one version of it: the `torch` that this Python has, or the package in FOLDER. The wheel
brings what it is made from; this takes half a minute of a processor core, tries what came out, and puts `atoll_trainer.so` where the program `atoll`
of this installation looks for it, or into the folder after `--to`. The compiler is `$CXX`, else `c++` or `g++`: GCC 11 or Clang 14, or newer. Run it
again after another `torch` or another Atoll was installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from typing import Optional, Sequence

from ._program import anywhere

__all__ = ["main"]

_SOURCES = pathlib.Path(__file__).resolve().parent / "trainer"
_PARTS = "libatoll_trainer_parts.a"
_MODULE = "atoll_trainer.so"
_OLDEST = (2, 6)
_MOST_UNITS = 4  # a compiler takes 1.5 GB for one
_NEEDED = "version.py", "include/ATen/ATen.h", "lib/libtorch.so", "lib/libtorch_cpu.so", "lib/libc10.so"


class Refusal(Exception):
    """What keeps the trainer from being built, and what to do."""


def _torch(given: Optional[str]) -> pathlib.Path:
    """The package's folder. It is not imported, which would take seconds."""
    if given is None:
        found = importlib.util.find_spec("torch")
        if found is None or not found.submodule_search_locations:
            raise Refusal(f"{sys.executable} has no PyTorch: pip install torch, or give another's folder by --torch")
        folder = pathlib.Path(found.submodule_search_locations[0])
    else:
        folder = pathlib.Path(given)
    folder = folder.resolve()
    for needed in _NEEDED:
        if not (folder / needed).exists():
            raise Refusal(
                f"{folder} has no {needed}, from which a program could be built: take PyTorch as pip installs it (Debian 13's own has Debian's package atoll-torch)"
            )
    version = re.search(r"__version__ = '((\d+)\.(\d+)[^']*)'", (folder / "version.py").read_text())
    if version is None or (int(version[2]), int(version[3])) < _OLDEST:
        raise Refusal(f"the PyTorch in {folder} is {version[1] if version else 'of no version'}, and the built-in trainer needs 2.6 or newer")
    settings = folder / "share/cmake/Torch/TorchConfig.cmake"
    if settings.exists() and "_GLIBCXX_USE_CXX11_ABI=0" in settings.read_text():
        raise Refusal(f"the PyTorch {version[1]} in {folder} is compiled with C++'s old ABI, as most wheels before 2.7 are: take a newer one")
    return folder


def _compiler(work: pathlib.Path) -> list[str]:
    """The compiler's command, tried."""
    given = shlex.split(os.environ.get("CXX", ""))
    command = given or next(([name] for name in ("c++", "g++", "clang++") if shutil.which(name)), None)
    if command is None:
        raise Refusal("there is no C++ compiler: install g++ (apt-get install g++, dnf install gcc-c++, conda install gxx), or set CXX")
    probe = work / "probe.cpp"
    probe.write_text("#include <concepts>\n#include <ranges>\n#include <span>\nint main() { return std::ranges::empty(std::span<int>{}) ? 0 : 1; }\n")
    try:
        tried = subprocess.run([*command, "-std=c++20", "-fsyntax-only", str(probe)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    except OSError as failure:
        raise Refusal(f"the compiler {shlex.join(command)} does not start: {failure.strerror}; is CXX right?") from None
    if tried.returncode != 0:
        first = next(iter(tried.stdout.splitlines()), f"status {tried.returncode}")
        raise Refusal(f"the compiler {shlex.join(command)} does not know C++20, which GCC 11 and Clang 14 do; set CXX to another: {first}")
    return command


def _units(work: pathlib.Path) -> list[pathlib.Path]:
    """Sources in as many files as there are processors, of about equal size: headers of LibTorch are read once in each."""
    sources = sorted(_SOURCES.rglob("*.cpp"), key=lambda path: (-path.stat().st_size, path))
    shares: list[list[pathlib.Path]] = [[] for _ in range(min(len(os.sched_getaffinity(0)), _MOST_UNITS))]
    for source in sources:
        min(shares, key=lambda share: sum(path.stat().st_size for path in share)).append(source)
    units = []
    for number, share in enumerate(shares):
        unit = work / f"unit{number}.cpp"
        unit.write_text("".join(f'#include "{source.relative_to(_SOURCES).as_posix()}"\n' for source in share))
        units.append(unit)
    return units


def _finish(commands: Sequence[Sequence[str]], what: str) -> None:
    """Runs them beside each other. Errors: Refusal with the first error that one said; the others are ended."""
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for command in commands]
    try:
        for process in running:
            said = process.communicate()[0]
            if process.returncode != 0:
                lines = said.splitlines() or [f"status {process.returncode}"]
                raise Refusal(f"{what} failed: " + next((line for line in lines if re.search(r"error:|undefined|ld:", line)), lines[-1]))
    finally:
        for process in running:
            if process.poll() is None:
                process.kill()
                process.wait()


def _built(compiler: Sequence[str], torch: pathlib.Path, work: pathlib.Path) -> pathlib.Path:
    includes = [f"-I{_SOURCES}"] + [flag for below in ("include", "include/torch/csrc/api/include") for flag in ("-isystem", str(torch / below))]
    units = _units(work)
    print(f"compiles {len(units)} files with {shlex.join(compiler)} for the PyTorch in {torch}", flush=True)
    version = (_SOURCES / "version.txt").read_text().strip()
    flags = ["-std=c++20", "-O2", "-DNDEBUG", f'-DATOLL_VERSION="{version}"', "-fPIC", "-w", *includes]
    _finish([[*compiler, *flags, "-c", str(unit), "-o", str(unit.with_suffix(".o"))] for unit in units], "compiling")
    libraries = [str(torch / "lib" / f"lib{name}.so") for name in ("c10", "c10_cuda", "torch_cpu", "torch_cuda", "torch")]
    # Nothing calls libtorch_cuda by name, and it must be loaded all the same: it says by itself what it can do.
    linked = ["-Wl,--push-state,--no-as-needed", *filter(os.path.exists, libraries), "-Wl,--pop-state", "-Wl,--allow-shlib-undefined"]
    objects = [str(unit.with_suffix(".o")) for unit in units]
    module = work / _MODULE
    own = [str(_SOURCES / _PARTS), "-Wl,--exclude-libs,ALL", f"-Wl,-rpath,{torch / 'lib'}", "-pthread"]
    _finish([[*compiler, "-shared", "-s", "-o", str(module), *objects, *linked, *own]], "linking")
    return module


def _facts(program: str, module: pathlib.Path) -> str:
    """What the built module computes with, in its own words."""
    environment = {**os.environ, "ATOLL_TRAINER_MODULE": str(module)}
    tried = subprocess.run([program, "trainer", "--facts"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    if tried.returncode != 0:
        raise Refusal(f"what was built does not run: {tried.stderr.strip() or f'status {tried.returncode}'}")
    return tried.stdout.splitlines()[0]


def _put(folder: pathlib.Path, module: Optional[pathlib.Path]) -> pathlib.Path:
    """Without a module it only tries whether one could be put there."""
    place = folder / _MODULE
    beside = folder / f".{_MODULE}.{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            if module is None:
                beside.touch()
            else:
                shutil.copyfile(module, beside)
                beside.chmod(0o755)
                os.replace(beside, place)  # trainers that run keep the old file
        finally:
            beside.unlink(missing_ok=True)
    except OSError as failure:
        raise Refusal(f"{place} cannot be written: {failure.strerror}; name another folder by --to, and set ATOLL_TRAINER_MODULE to the file in it") from None
    return place


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """`arguments` are the command line's if not given. Returns the exit status: 0 built and tried, 1 not, 2 a bad option."""
    parser = argparse.ArgumentParser(prog="python -m atoll.build_trainer", description="builds Atoll's built-in trainer for a PyTorch")
    parser.add_argument("--torch", metavar="FOLDER", help="the package torch to build for (default: this Python's)")
    parser.add_argument("--to", metavar="FOLDER", type=pathlib.Path, help="where atoll_trainer.so is put (default: where this installation's atoll looks)")
    options = parser.parse_args(arguments)
    try:
        if not (_SOURCES / _PARTS).exists():
            raise Refusal("this Atoll was not installed by a wheel, and only that brings the sources; in a clone: cmake --preset product -DATOLL_TORCH=python")
        program = anywhere()
        if program is None:
            raise Refusal("the program atoll is neither beside this Python package nor in PATH, and what is built is tried with it")
        torch = _torch(options.torch)
        folder = options.to or pathlib.Path(program).resolve().parent.parent / "lib" / "atoll"
        with tempfile.TemporaryDirectory(prefix="atoll-build-") as name:
            work = pathlib.Path(name)
            compiler = _compiler(work)
            _put(folder, None)
            module = _built(compiler, torch, work)
            facts = _facts(program, module)
            place = _put(folder, module)
    except Refusal as refusal:
        print(f"atoll.build_trainer: {refusal}", file=sys.stderr)
        return 1
    except OSError as failure:  # of the folder that is compiled in
        print(f"atoll.build_trainer: {failure.filename or tempfile.gettempdir()}: {failure.strerror}", file=sys.stderr)
        return 1
    print(f"{place} trains with {facts}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
