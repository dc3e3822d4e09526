"""Runs that begin with given parameters ([model] from), of a trainer of one's own and of the built-in one. Arguments as own_test.py's."""

import json
import os
import pathlib
import sqlite3
import tempfile
import unittest
from unittest import mock

from islands import ATOLL, HERE, PYTHON, Clusters, tensors_of

import numpy


# In place of the library, which asks the network: what it gives and how it fails.
HUB = """
import json, os, sys
how = os.environ["HUB"]
if how == "none":
    raise ImportError("No module named 'huggingface_hub'")
class GatedRepoError(Exception):
    pass
def snapshot_download(repository, revision, **patterns):
    if how == "gated":
        raise GatedRepoError("401 Client Error.\\n\\nAccess to model org/name is restricted.")
    if how == "silent":
        os._exit(1)
    json.dump([repository, revision, dict(os.environ)], open(os.environ["ASKED"], "w"))
    print("a warning")
    return how
"""


def safetensors_of(tensors):
    header, data = {}, b""
    for name, values in tensors.items():
        header[name] = {"dtype": "F32", "shape": values.shape, "data_offsets": [len(data), len(data) + values.nbytes]}
        data += values.tobytes()
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


@unittest.skipUnless(ATOLL, "the executable is not given")
class GivenParameters(Clusters):
    def test_a_run_begins_with_given_parameters(self):
        loops = f"{PYTHON} '{HERE}/loops.py' numpy"
        with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
            self.completed(self.local(first, loops, {}, 20))
            end = tensors_of(first + "/model.safetensors")
            model = f"[model]\nfrom = '{first}/model.safetensors'\n"
            self.completed(self.local(second, loops, {}, 20, model=model))
            begun, ended = [tensors_of(path) for path in (self.outer(second, 0), second + "/model.safetensors")]
            for name, start in (("w", 1.0), ("b", 0.0)):
                numpy.testing.assert_array_equal(begun[name], end[name])
                numpy.testing.assert_allclose(ended[name] - end[name], end[name] - start, rtol=1e-5)  # its gradients are constants
            pathlib.Path(second, "state").rename(second + "/before")
            out, err = self.local(second, loops, {}, 20, model=f"{model}sha256 = '{'0' * 64}'\n").communicate(timeout=60)
            self.assertRegex(err, 'model.safetensors .model.from. has SHA-256 [0-9a-f]{64}, and the run file says 0{64}"')
            self.assertFalse(pathlib.Path(second, "state").exists())  # before anything was started
            document = json.loads(self.local(second, loops, {"size": 4}, 20, model=model).communicate(timeout=60)[0])
            self.assertEqual(document["run"]["state"], "failed")
            self.assertIn("its tensor is 3, and the model's 'w' (4)", json.dumps(document, ensure_ascii=False))

    def test_a_parameter_without_dimensions_keeps_its_shape(self):
        loops = f"{PYTHON} '{HERE}/loops.py' numbers"
        with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second, tempfile.TemporaryDirectory() as third:
            self.completed(self.local(first, loops, {}, 20))
            end = tensors_of(first + "/model.safetensors")
            self.assertEqual({name: values.shape for name, values in end.items()}, {"scale": (), "w": (3,)})
            self.completed(self.local(second, loops, {}, 20, model=f"[model]\nfrom = '{first}/model.safetensors'\n"))
            self.assertEqual(tensors_of(self.outer(second, 0))["scale"], end["scale"])
            content = pathlib.Path(first, "model.safetensors").read_bytes()  # as programs write it that know no such shape
            length = int.from_bytes(content[:8], "little")
            header = content[8 : 8 + length].rstrip().replace(b'"shape":[]', b'"shape":[1]')
            header += b" " * (-len(header) % 8)
            pathlib.Path(third, "one.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + content[8 + length :])
            self.completed(self.local(third, loops, {}, 20, model=f"[model]\nfrom = '{third}/one.safetensors'\n"))
            self.assertEqual(tensors_of(self.outer(third, 0))["scale"], end["scale"])

    def test_the_built_in_model_begins_with_exactly_the_loss_that_another_run_ended_with(self):
        if not (pathlib.Path(ATOLL).parent / "atoll_trainer.so").exists():
            self.skipTest("LibTorch is not installed")
        losses = []
        with tempfile.TemporaryDirectory() as folder:
            for name, model in (("first", ""), ("second", f"from = '{folder}/model.safetensors'\n"), ("third", "from = 'run:first'\n")):
                path = pathlib.Path(folder, name + ".toml")
                path.write_text(
                    f"[run]\nname = '{name}'\nseed = {len(name)}\n[model]\nlayers = 1\nwidth = 32\nheads = 2\n{model}"
                    "[data]\nfiles = ['text']\n[training]\nsteps = 20\nbatch = 4\nsequence_length = 32\nevaluate_every = 1\n"
                    "[strategy]\nname = 'diloco'\ninner_steps = 10\n[islands]\nmin = 2\nmax = 2\n[checkpoint]\nevery_rounds = 1\n"
                )
                pathlib.Path(folder, "text").write_text("".join(chr(97 + i * i % 23) for i in range(20000)))
                run = self.completed(self.start(folder, str(path)))["run"]
                self.assertEqual(run["state"], "completed")
                ledger = sqlite3.connect(folder + "/state/coordinator/ledger.db")
                rows = "SELECT outer_loss FROM metrics WHERE run = ? AND outer_loss IS NOT NULL ORDER BY round, island"
                losses.append([loss for (loss,) in ledger.execute(rows, (run["id"],))])
            self.assertEqual(losses[1][0], losses[0][-1])
            self.assertEqual(losses[2][0], losses[1][0])

    def test_a_trainer_of_ones_own_begins_with_the_tensors_of_a_folder(self):
        """As Hugging Face's cache has it: the files in blobs/, links to them in the snapshot."""
        loops = f"{PYTHON} '{HERE}/loops.py' numpy"
        given = {"w": numpy.array([1.5, -2.0, 0.25], "<f4"), "b": numpy.arange(4, dtype="<f4").reshape(2, 2), "frozen": numpy.ones(5, "<f4")}
        with tempfile.TemporaryDirectory() as folder:
            snapshot, blobs = pathlib.Path(folder, "snapshots/one"), pathlib.Path(folder, "blobs")
            snapshot.mkdir(parents=True)
            blobs.mkdir()
            files = {"model-00001-of-00002.safetensors": ("b", "frozen"), "model-00002-of-00002.safetensors": ("w",)}
            for file, names in files.items():
                (blobs / file[6:11]).write_bytes(safetensors_of({name: given[name] for name in names}))
                (snapshot / file).symlink_to("../../blobs/" + file[6:11])
            places = {name: file for file, names in files.items() for name in names}
            (snapshot / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": 36}, "weight_map": places}))
            self.completed(self.local(folder, loops, {}, 20, model=f"[model]\nfrom = '{snapshot}'\n"))
            begun = tensors_of(self.outer(folder, 0))
            for name in ("w", "b"):
                numpy.testing.assert_array_equal(begun[name], given[name])
            (blobs / "00002").rename(folder + "/elsewhere")
            pathlib.Path(folder, "state").rename(folder + "/before")
            out, err = self.local(folder, loops, {}, 20, model=f"[model]\nfrom = '{snapshot}'\n").communicate(timeout=60)
            self.assertIn("'model-00002-of-00002.safetensors' is not there, and 'model.safetensors.index.json' places tensors in it", err)
            self.assertFalse(pathlib.Path(folder, "state").exists())

    def test_the_hub_is_asked_through_the_users_own_python(self):
        loops = f"{PYTHON} '{HERE}/loops.py' numpy"
        with tempfile.TemporaryDirectory() as folder:
            snapshot = pathlib.Path(folder, "models--org--name/snapshots", "c" * 40)
            snapshot.mkdir(parents=True)
            given = {"w": numpy.array([1.5, -2.0, 0.25], "<f4"), "b": numpy.eye(2, dtype="<f4")}
            (snapshot / "adapter_model.safetensors").write_bytes(safetensors_of(given))
            pathlib.Path(folder, "huggingface_hub.py").write_text(HUB)
            secrets = {"AWS_SECRET_ACCESS_KEY": "s", "ATOLL_JOIN_TOKEN": "s", "HF_TOKEN": "the hub's", "https_proxy": "http://me:word@proxy:1"}
            ours = {"ATOLL_PYTHON": PYTHON, "PYTHONPATH": f"{folder}:{os.environ['PYTHONPATH']}", "ASKED": folder + "/asked", **secrets}

            def begun(how):
                with mock.patch.dict(os.environ, HUB=how, **ours):
                    return self.local(folder, loops, {}, 20, model="[model]\nfrom = 'hf:org/name@v1'\n")

            for how, words in {
                "none": f"'{PYTHON}' has no huggingface_hub, which fetches models of the hub (No module named 'huggingface_hub'): pip install huggingface_hub",
                "gated": "huggingface_hub: GatedRepoError: 401 Client Error. Access to model org/name is restricted.",
                "silent": "huggingface_hub: it ended without a word",
                "/tmp": "huggingface_hub gives '/tmp', which is no folder of a commit",
            }.items():
                with self.subTest(how):
                    out, err = begun(how).communicate(timeout=60)
                    self.assertIn(words, json.loads(err)["error"]["why"] if err.startswith("{") else err)
                    self.assertFalse(pathlib.Path(folder, "state").exists())
            self.completed(begun(str(snapshot)))
            for name, values in given.items():
                numpy.testing.assert_array_equal(tensors_of(self.outer(folder, 0))[name], values)
            repository, revision, inherited = json.loads(pathlib.Path(folder, "asked").read_text())
            self.assertEqual([repository, revision], ["org/name", "v1"])
            self.assertEqual({name: inherited.get(name) for name in secrets}, {**secrets, "AWS_SECRET_ACCESS_KEY": None, "ATOLL_JOIN_TOKEN": None})

    def outer(self, folder, round_number):
        return next(pathlib.Path(folder).glob(f"state/island-1/runs/*/checkpoints/{round_number}/outer.safetensors"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
