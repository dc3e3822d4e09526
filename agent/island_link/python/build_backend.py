"""Packs this folder's package into a wheel (PEP 517), with the standard library alone."""

import base64
import hashlib
import pathlib
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
NAME, VERSION = "atoll", "0.1.0"
METADATA = (
    f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {VERSION}\n"
    "Summary: Bring your own training program to Atoll's islands\nRequires-Python: >=3.9\nRequires-Dist: numpy\n"
)
WHEEL = "Wheel-Version: 1.0\nGenerator: atoll\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    info = f"{NAME}-{VERSION}.dist-info"
    files = {str(path.relative_to(HERE)): path.read_bytes() for path in sorted((HERE / NAME).rglob("*.py"))}
    files[f"{NAME}/py.typed"] = b""
    files[f"{info}/METADATA"] = METADATA.encode()
    files[f"{info}/WHEEL"] = WHEEL.encode()
    record = ""
    for name, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(content)}\n"
    files[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()
    wheel = f"{NAME}-{VERSION}-py3-none-any.whl"
    with zipfile.ZipFile(pathlib.Path(wheel_directory) / wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return wheel


def build_sdist(sdist_directory, config_settings=None):
    raise NotImplementedError("install from the source folder")
