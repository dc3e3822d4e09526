#!/usr/bin/env python3
"""Packs a portable Atoll into a wheel: the program among the scripts, its library and the built-in trainer's sources inside the Python package,
manual pages and completions.

    wheel.py STAGE PACKAGE TRAINER FOLDER VERSION      prints the wheel's path

STAGE has bin/atoll, lib/libatoll_trainer.so.1 and share/; PACKAGE is the Python package's folder, TRAINER what trainer_sources.sh made. The same
files give the same wheel, byte by byte: times are SOURCE_DATE_EPOCH's, or those of 1980.
"""

import base64
import hashlib
import os
import pathlib
import sys
import time
import zipfile

NAME = "atoll"  # on the package index, too
TAGS = {"x86_64": "py3-none-manylinux_2_34_x86_64", "aarch64": "py3-none-manylinux_2_34_aarch64"}
MACHINES = {62: "x86_64", 183: "aarch64"}  # e_machine of an ELF file
SHARED = {  # of STAGE/share, below the environment's own share/
    "man/man1": "man/man1",
    "bash-completion/completions": "bash-completion/completions",
    "zsh/vendor-completions": "zsh/site-functions",
    "fish/vendor_completions.d": "fish/vendor_completions.d",
}
SUMMARY = "Training of one model across sites that are joined by the internet"


def machine_of(program):
    head = program.read_bytes()[:20]
    return MACHINES[int.from_bytes(head[18:20], "little")]


def files_of(stage, package, trainer, version):
    """Name in the wheel, bytes, whether it is a program."""
    data = f"{NAME}-{version}.data"
    for path in sorted(package.rglob("*.py")):
        yield f"{NAME}/{path.relative_to(package)}", path.read_bytes(), False
    yield f"{NAME}/py.typed", b"", False
    yield f"{NAME}/libatoll_trainer.so", (stage / "lib/libatoll_trainer.so.1").resolve().read_bytes(), True
    for path in sorted(filter(pathlib.Path.is_file, trainer.rglob("*"))):
        yield f"{NAME}/trainer/{path.relative_to(trainer)}", path.read_bytes(), False
    yield f"{data}/scripts/atoll", (stage / "bin/atoll").read_bytes(), True
    for below, target in SHARED.items():
        for path in sorted((stage / "share" / below).iterdir()):
            yield f"{data}/data/share/{target}/{path.name}", path.read_bytes(), False


def pack(stage, package, trainer, folder, version):
    tag = TAGS[machine_of(stage / "bin/atoll")]
    info = f"{NAME}-{version}.dist-info"
    metadata = (
        f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {version}\nSummary: {SUMMARY}\nLicense: Apache-2.0\n"
        "Requires-Python: >=3.9\nRequires-Dist: numpy\n"
    )
    wheel = f"Wheel-Version: 1.0\nGenerator: atoll\nRoot-Is-Purelib: false\nTag: {tag}\n"
    files = list(files_of(stage, package, trainer, version))
    files += [(f"{info}/METADATA", metadata.encode(), False), (f"{info}/WHEEL", wheel.encode(), False)]
    record = ""
    for name, content, _ in files:
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(content)}\n"
    files.append((f"{info}/RECORD", (record + f"{info}/RECORD,,\n").encode(), False))
    moment = time.gmtime(max(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), 315532800))[:6]  # a zip file knows nothing before 1980
    target = folder / f"{NAME}-{version}-{tag}.whl"
    with zipfile.ZipFile(target, "w") as archive:
        for name, content, runs in files:
            entry = zipfile.ZipInfo(name, moment)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3  # Unix, whose permissions follow
            entry.external_attr = (0o100755 if runs else 0o100644) << 16
            archive.writestr(entry, content, compresslevel=9)
    return target


if __name__ == "__main__":
    if len(sys.argv) != 6:
        sys.exit(__doc__)
    print(pack(*map(pathlib.Path, sys.argv[1:5]), sys.argv[5]))
