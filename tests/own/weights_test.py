"""island.load(): whose tensor is whose, whatever wraps the model or wrapped it when the file was written. Arguments as own_test.py's."""

import contextlib
import io
import json
import pathlib
import struct
import tempfile
import unittest

from islands import ATOLL, HERE, PYTHON, Clusters, needs_torch

TYPES = {"torch.float32": "F32", "torch.bfloat16": "BF16", "torch.float16": "F16", "torch.int64": "I64"}


def write(path, tensors):
    """As safetensors.torch.save_file does."""
    header, content = {"__metadata__": {"format": "pt"}}, b""
    for name, tensor in tensors.items():
        import torch

        values = bytes(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        header[name] = {"dtype": TYPES[str(tensor.dtype)], "shape": list(tensor.shape), "data_offsets": [len(content), len(content) + len(values)]}
        content += values
    said = json.dumps(header).encode()
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(said)) + said + content)


@needs_torch
class Loads(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = self.folder.name + "/model.safetensors"

    def model(self, seed):
        import torch

        torch.manual_seed(seed)
        model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 4, bias=False), torch.nn.Linear(4, 4, bias=False))
        model[3].weight = model[2].weight  # tied
        return model

    def loaded(self, model, **how):
        from atoll.torch import Alone, TorchIsland

        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            found = TorchIsland(Alone({}), {}).load(model, self.path, **how)
        return found, said.getvalue()

    def same(self, one, other):
        import torch

        for (name, value), (_, wanted) in zip(one.state_dict().items(), other.state_dict().items()):
            torch.testing.assert_close(value, wanted, msg=name)

    def test_names_of_wrappers_are_left_out_on_both_sides(self):
        import torch

        class Model(torch.nn.Module):
            """A module of the user's own that is called module."""

            def __init__(self, seed):
                super().__init__()
                torch.manual_seed(seed)
                self.module, self.model = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)

        averaged = torch.optim.swa_utils.AveragedModel
        writers = {"plain": lambda model: model, "averaged": averaged, "parallel": torch.nn.DataParallel}
        if hasattr(torch, "compile"):
            writers["compiled"] = torch.compile
        for make in (self.model, Model):
            for writer, wrap in writers.items():
                for reader, unwrap in writers.items():
                    with self.subTest(make=make, writer=writer, reader=reader):
                        one, other = make(1), make(2)
                        tensors = {name: value for name, value in wrap(one).state_dict().items() if name != "n_averaged"}
                        write(self.path, tensors)
                        wrapped = unwrap(other)
                        found, _ = self.loaded(wrapped)
                        self.assertEqual((found.missing, found.left_over), ([], []))
                        held = wrapped.module if reader in ("averaged", "parallel") else other
                        self.same(held, one)

    def test_what_an_export_has_is_enough_and_other_types_are_turned(self):
        """Of a tied parameter one name, no counts; bfloat16."""
        import torch

        one, other = self.model(1), self.model(2)
        kept = {name: value.bfloat16() for name, value in one.state_dict().items() if name != "3.weight" and value.is_floating_point()}
        write(self.path, kept)
        found, said = self.loaded(other)
        self.assertIn(f"{self.path}: 7 tensors loaded\n", said)
        self.assertEqual(len(found.matched), 7)
        torch.testing.assert_close(other[3].weight, one[2].weight.bfloat16().float())

    def test_what_does_not_fit_is_said_and_nothing_is_loaded(self):
        import torch

        one, other, untouched = self.model(1), self.model(2), self.model(2)
        kept = dict(one.state_dict())
        del kept["0.bias"]
        write(self.path, {**kept, "head.weight": torch.ones(2)})
        with self.assertRaisesRegex(ValueError, "nothing is loaded: 8 tensors would fit; 1 missing in the file: 0.bias; 1 left over in the file: head.weight; strict=False"):
            self.loaded(other)
        self.same(other, untouched)
        found, said = self.loaded(other, strict=False)
        self.assertEqual((found.missing, found.left_over), (["0.bias"], ["head.weight"]))
        self.assertIn("1 missing in the file: 0.bias", said)
        write(self.path, {**one.state_dict(), "0.weight": torch.ones(4, 5)})
        with self.assertRaisesRegex(ValueError, r"'0.weight' has shape \[4, 5\], and the model's '0.weight' \[4, 3\]"):
            self.loaded(other, strict=False)
        write(self.path, {"0.weight": torch.ones(4, 3), "module.0.weight": torch.ones(4, 3)})
        with self.assertRaisesRegex(ValueError, "'0.weight' and 'module.0.weight' would both be the model's '0.weight'"):
            self.loaded(other, strict=False)

    def test_folders_and_files_that_are_none(self):
        one, other = self.model(1), self.model(2)
        folder = pathlib.Path(self.folder.name)
        parts = list(one.state_dict().items())
        write(folder / "a.safetensors", dict(parts[:3]))
        write(folder / "b.safetensors", dict(parts[3:]))
        of = {name: "a.safetensors" if place < 3 else "b.safetensors" for place, (name, _) in enumerate(parts)}
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": of}))
        self.path = str(folder)
        self.loaded(other)
        self.same(other, one)
        for content, why in ((b"", "no safetensors"), (b"\xff" * 20, "no safetensors"), (struct.pack("<Q", 2) + b"[]", "no safetensors"), (None, "No such file")):
            self.path = str(folder / "bad")
            pathlib.Path(self.path).unlink(missing_ok=True)
            if content is not None:
                pathlib.Path(self.path).write_bytes(content)
            with self.subTest(content), self.assertRaisesRegex(ValueError, why):
                self.loaded(other)

    def test_a_base_is_frozen_and_is_the_one_that_is_wanted(self):
        """However it is cut into files; what it lacks is trained."""
        import torch

        from atoll.torch import Alone, TorchIsland

        one, folder, island = self.model(1), pathlib.Path(self.folder.name), TorchIsland(Alone({"training": {"steps": 1}}), {})
        parts = dict(list(one.state_dict().items())[:-2])  # without the last layer
        write(self.path, parts)
        names = list(parts)
        write(folder / "a.safetensors", {name: parts[name] for name in names[:2]})
        write(folder / "b.safetensors", {name: parts[name] for name in names[2:]})
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {name: f"{'ab'[place > 1]}.safetensors" for place, name in enumerate(names)}}))
        with contextlib.redirect_stderr(io.StringIO()) as said:
            model = self.model(2)
            digest = island.base(model, self.path)
            self.assertEqual(island.base(self.model(2), folder, digest=digest.upper()), digest)
        self.assertIn(f"frozen, with the digest {digest}\n", said.getvalue())
        trained = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
        self.assertEqual(trained, [name for name, _ in model.named_parameters() if name not in parts])
        self.assertTrue(all(torch.equal(values, model.state_dict()[name]) for name, values in parts.items()))
        other = self.model(2)
        write(self.path, {**parts, names[0]: parts[names[0]] + 1e-7})
        with self.assertRaisesRegex(ValueError, f"has the digest [0-9a-f]{{64}}, and {digest} is wanted: it is another base, or has changed"):
            island.base(other, self.path, digest=digest)
        write(self.path, {**parts, "more": torch.ones(2)})
        with self.assertRaisesRegex(ValueError, "is no base of this model, and nothing is loaded: .* would fit.*1 left over in the file: more"):
            island.base(other, self.path)
        other.requires_grad_(False)
        write(self.path, parts)
        with self.assertRaisesRegex(ValueError, f"it lacks '{trained[0]}', which is frozen"):
            island.base(other, self.path)
        self.same(other, self.model(2))
        island.start(model)
        with self.assertRaisesRegex(RuntimeError, r"island.base\(model, path\) comes before island.train"):
            island.base(model, self.path)

    def test_it_comes_before_the_run(self):
        from atoll.torch import Alone, TorchIsland

        model = self.model(1)
        write(self.path, model.state_dict())
        island = TorchIsland(Alone({"training": {"steps": 1}}), {})
        island.start(model)
        with self.assertRaisesRegex(RuntimeError, "comes before island.train"):
            island.load(model, self.path)


@needs_torch
@unittest.skipUnless(ATOLL, "the executable is not given")
class Exported(Clusters):
    def test_an_export_is_loaded(self):
        """Into the plain model, by the name of what `atoll local --export` has written."""
        with tempfile.TemporaryDirectory() as folder:
            self.completed(self.local(folder, f"{PYTHON} '{HERE}/loops.py' ends", {"folder": folder, "tail": 0, "run": "r"}, 20))
            import torch

            from atoll.torch import Alone, TorchIsland

            model = torch.nn.DataParallel(torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)))
            with contextlib.redirect_stderr(io.StringIO()):
                found = TorchIsland(Alone({}), {}).load(model, folder + "/model.safetensors")
            self.assertFalse(found.missing + found.left_over)
            kept = torch.load(next(pathlib.Path(folder).glob("island-*.pt")))["model"]
            for name, values in model.module.state_dict().items():
                self.assertTrue(torch.equal(values, kept[name]), name)


if __name__ == "__main__":
    unittest.main(verbosity=2)
