"""`atoll export --hf`: what transformers' from_pretrained makes of the folder is the built-in model, to its logits. See environment.py.

    hugging_face_test.py LIBRARY.so ATOLL TEST_TRAINER
"""

import environment

environment.enter("torch", "transformers")

import os
import pathlib
import subprocess
import sys
import unittest

TEST_TRAINER = str(pathlib.Path(sys.argv.pop(3)).resolve())

from islands import ATOLL, Agents

import numpy
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

TEXT = "Islands of compute, joined by water alone; 1 + 1 = 2.\n\tÄäß — naïve, 水, 🐚!\n"


class HuggingFace(Agents):
    def exported(self, tied):
        """A run of two islands to its end, and its model as a folder."""
        path = pathlib.Path(self.state("run.toml"))
        path.write_text(
            f"[run]\nname = 'tied-{tied}'\n[model]\nlayers = 2\nwidth = 32\nheads = 4\ntied_embeddings = {tied}\n[data]\nset = 'text'\n[training]\nsteps = 120\n"
            "batch = 8\nsequence_length = 48\nlearning_rate = 3e-3\nwarmup_steps = 5\nthreads = 1\n[strategy]\nname = 'diloco'\ninner_steps = 20\n[islands]\nmin = 2\nmax = 2\n"
        )
        self.waited(self.said("submit", "-q", str(path), "--state", self.state("coordinator")))
        folder = self.state(f"tied-{tied}")
        self.said("export", f"tied-{tied}", "--hf", folder, "--state", self.state("coordinator"))
        return folder

    def test_the_folder_is_the_model(self):
        if not (pathlib.Path(ATOLL).parent / "atoll_trainer.so").exists():
            self.skipTest("LibTorch is not installed")
        pathlib.Path(self.state("text")).write_text(TEXT * 200, encoding="utf-8")
        for island in "ab":
            self.agent(island, "none", "--data", f"text={self.state('text')}")
        for tied in ("false", "true"):
            with self.subTest(tied=tied):
                self.compare(self.exported(tied))

    def compare(self, folder):
        tokenizer = AutoTokenizer.from_pretrained(folder)
        model, loading = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
        self.assertEqual([names for kind, names in loading.items() if names], [])  # nothing missing, unexpected or of another shape
        for text in (TEXT, "a", " two  blanks ", "\x00\x7f\r\n"):
            tokens = tokenizer(text)["input_ids"]
            self.assertEqual(tokens, list(text.encode()))
            self.assertEqual(tokenizer.decode(tokens), text)
        tokens = tokenizer(TEXT, return_tensors="pt")["input_ids"][:, :48]
        with torch.no_grad():
            theirs = model(tokens).logits[0].numpy()
        ours = self.logits_of(folder + "/model.safetensors", tokens[0].tolist())
        self.assertGreater(numpy.abs(ours).max(), 3)  # it has learnt something
        self.assertLess(numpy.abs(theirs - ours).max(), 1e-5 * max(1, numpy.abs(ours).max()))
        prompt = "Islands of"
        said = subprocess.run(
            [ATOLL, "generate", "--model", folder + "/model.safetensors", "--prompt", prompt, "--tokens", "30", "--temperature", "0",
            ],
            capture_output=True, text=True,
        )  # fmt: skip
        self.assertEqual(said.returncode, 0, said.stderr)
        inputs = tokenizer(prompt, return_tensors="pt")
        greedy = tokenizer.decode(model.generate(**inputs, max_new_tokens=30, do_sample=False)[0])
        self.assertEqual(said.stdout.rstrip("\n"), greedy.rstrip("\n"))

    def logits_of(self, path, tokens):
        pathlib.Path(self.state("tokens")).write_text(" ".join(map(str, tokens)))
        paths = {"MODEL": path, "TOKENS": self.state("tokens"), "LOGITS": self.state("logits")}
        done = subprocess.run([TEST_TRAINER, "[.logits]"], env={**os.environ, **{"ATOLL_TEST_" + name: value for name, value in paths.items()}}, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout)
        return numpy.fromfile(self.state("logits"), dtype=numpy.float32).reshape(len(tokens), -1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
