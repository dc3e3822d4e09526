"""`atoll export --hf`: what transformers' from_pretrained makes of the folder is the built-in model, to its logits; and `model.from`: what
save_pretrained writes is what a run begins with. See environment.py.

    hugging_face_test.py LIBRARY.so ATOLL TEST_TRAINER
"""

import environment

environment.enter("torch", "transformers")

import json
import os
import pathlib
import shutil
import subprocess
import sys
import unittest
from unittest import mock

TEST_TRAINER = str(pathlib.Path(sys.argv.pop(3)).resolve())

from islands import ATOLL, Agents

import numpy
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

TEXT = "Islands of compute, joined by water alone; 1 + 1 = 2.\n\tÄäß — naïve, 水, 🐚!\n"
MODEL = {"layers": 2, "width": 32, "heads": 4, "feed_forward": 80}


def llama(**other):
    """A small Llama as transformers makes it, none of whose parameters is what it would be by default."""
    sizes = {"vocab_size": 256, "hidden_size": 32, "intermediate_size": 80, "num_hidden_layers": 2, "num_attention_heads": 4}
    torch.manual_seed(5)
    model = LlamaForCausalLM(LlamaConfig(**{**sizes, "rms_norm_eps": 1e-5, "max_position_embeddings": 48, **other}))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return model


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

    def run_from(self, folder, name, options=(), **model):
        """What `submit` says of a run that begins from this folder, and changes nothing: its one step is too small for a float32."""
        path = pathlib.Path(self.state(f"{name}.toml"))
        given = "".join(f"{key} = {json.dumps(value)}\n" for key, value in {**MODEL, "from": str(folder), **model}.items())
        path.write_text(
            f"[run]\nname = '{name}'\n[model]\n{given}[data]\nset = 'text'\n[training]\nsteps = 1\nbatch = 1\nsequence_length = 48\nlearning_rate = 1e-30\n"
            "warmup_steps = 0\nthreads = 1\n[strategy]\nname = 'diloco'\ninner_steps = 1\n[islands]\nmin = 2\nmax = 2\n"
        )
        return subprocess.run([ATOLL, "submit", "-q", str(path), "--state", self.state("coordinator"), *options], capture_output=True, text=True)

    def comes_back(self, model, folder, name, **settings):
        """The run's export is the model that was saved in the folder: its logits, and its tensors bit for bit."""
        submitted = self.run_from(folder, name, **settings)
        self.assertEqual(submitted.returncode, 0, submitted.stderr)
        self.waited(submitted.stdout.strip())
        out = self.state(name + "-hf")
        self.said("export", name, "--hf", out, "--state", self.state("coordinator"))
        theirs = {key: value.float() for key, value in model.state_dict().items()}
        ours = load_file(out + "/model.safetensors")
        self.assertEqual(set(ours), set(theirs) - ({"lm_head.weight"} if model.config.tie_word_embeddings else set()))
        for key, value in ours.items():
            self.assertTrue(torch.equal(value, theirs[key]), key)
        tokens = torch.tensor([list(TEXT.encode()[:48])])
        reference = LlamaForCausalLM(model.config).float()
        reference.load_state_dict(theirs)
        with torch.no_grad():
            wanted, given = reference(tokens).logits, AutoModelForCausalLM.from_pretrained(out)(tokens).logits
        self.assertGreater(wanted.abs().max(), 3)
        self.assertLess((wanted - given).abs().max(), 1e-5)
        own = self.logits_of(out + "/model.safetensors", tokens[0].tolist())
        self.assertLess(numpy.abs(own - wanted[0].numpy()).max(), 1e-5 * max(1, wanted.abs().max().item()))

    def test_a_run_begins_from_a_folder(self):
        if not (pathlib.Path(ATOLL).parent / "atoll_trainer.so").exists():
            self.skipTest("LibTorch is not installed")
        pathlib.Path(self.state("text")).write_text(TEXT * 200, encoding="utf-8")
        folders = pathlib.Path(self.state("models"))
        # b may not read them, and copies what a has.
        self.agent("a", "none", "--data", f"text={self.state('text')}", "--allow-data", str(folders))
        self.agent("b", "none", "--data", f"text={self.state('text')}")
        for name, model, size in (("shards", llama(), "60KB"), ("tied", llama(tie_word_embeddings=True), "1GB"), ("half", llama().bfloat16(), "1GB")):
            model.save_pretrained(folders / name, max_shard_size=size)
            with self.subTest(name):
                self.assertEqual(len(list((folders / name).glob("*.safetensors"))), 3 if name == "shards" else 1)
                self.comes_back(model, folders / name, name, **({"tied_embeddings": True} if name == "tied" else {}))
        self.assertIn("has not allowed", self.log_of("b"))

        command = "sha256sum config.json *.safetensors *.index.json | LC_ALL=C sort -k2 | sha256sum"
        digest = subprocess.run(command, shell=True, cwd=folders / "shards", capture_output=True, text=True).stdout.split()[0]
        refused = self.run_from(folders / "shards", "pinned", sha256="0" * 64)
        self.assertEqual(refused.returncode, 2)
        self.assertIn(f"shards (model.from) has SHA-256 {digest}, and the run file says 000", refused.stderr)
        self.assertEqual(self.run_from(folders / "shards", "pinned", sha256=digest, options=("--dry-run",)).returncode, 0)

        # What goes out comes in again.
        again = self.state("shards-hf")
        self.comes_back(LlamaForCausalLM.from_pretrained(again), shutil.copytree(again, folders / "again"), "again")

    def test_another_model_is_refused_by_what_it_is(self):
        folders = pathlib.Path(self.state("models"))
        GPT2LMHeadModel(GPT2Config(vocab_size=256, n_embd=32, n_layer=2, n_head=4, n_positions=48)).save_pretrained(folders / "gpt2")
        made = {
            "size": {"hidden_size": 64, "num_hidden_layers": 3},
            "grouped": {"num_key_value_heads": 2},
            "epsilon": {"rms_norm_eps": 1e-6},
            "rope": {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 500000.0}},
            "bias": {"attention_bias": True, "hidden_act": "gelu"},
            "tied": {"tie_word_embeddings": True},
            "head": {"head_dim": 16},
        }
        for name, other in made.items():
            llama(**other).save_pretrained(folders / name)
        for name, whats in {
            "gpt2": ["gpt2", "GPT2LMHeadModel", "LlamaForCausalLM", "trainer of one's own"],
            "size": ["hidden_size is 64, and model.width 32: write width = 64", "num_hidden_layers is 3, and model.layers 2: write layers = 3"],
            "grouped": ["num_key_value_heads 2 (grouped-query attention)"],
            "epsilon": ["rms_norm_eps is 1e-06, and there 1e-05"],
            "rope": ["rope_theta is 500000.0, and there 10000.0", 'rope_type is "linear"'],
            "bias": ["attention_bias is true", 'hidden_act is "gelu"'],
            "tied": ["tie_word_embeddings is true, and model.tied_embeddings false: write tied_embeddings = true"],
            "head": ["head_dim 16"],
        }.items():
            with self.subTest(name):
                refused = self.run_from(folders / name, name)
                self.assertEqual(refused.returncode, 2, refused.stderr)
                self.assertEqual(refused.stderr.count("\n"), 1)
                for what in [str(folders / name / "config.json"), *whats]:
                    self.assertIn(what, refused.stderr)

    def cached(self, folder, cache):
        """A model's folder as huggingface_hub keeps a repository: a branch, the commit's links, and what they lead to."""
        commit = "0123456789abcdef0123456789abcdef01234567"
        repository = pathlib.Path(self.state(cache), "models--org--tiny-llama")
        for name in ("refs", "blobs", f"snapshots/{commit}"):
            (repository / name).mkdir(parents=True)
        (repository / "refs/main").write_text(commit)
        (repository / "refs/v1").write_text(commit)
        for number, file in enumerate(sorted(pathlib.Path(folder).iterdir())):
            shutil.copy(file, repository / "blobs" / f"{number:040x}")
            (repository / "snapshots" / commit / file.name).symlink_to(f"../../blobs/{number:040x}")
        return commit

    def test_a_model_of_the_hub_is_that_of_the_users_own_cache(self):
        if not (pathlib.Path(ATOLL).parent / "atoll_trainer.so").exists():
            self.skipTest("LibTorch is not installed")
        pathlib.Path(self.state("text")).write_text(TEXT * 200, encoding="utf-8")
        model = llama()
        model.save_pretrained(self.state("saved"), max_shard_size="60KB")
        commit = self.cached(self.state("saved"), "cache/hub")
        with mock.patch.dict(os.environ, HF_HOME=self.state("cache"), HF_HUB_OFFLINE="1", ATOLL_PYTHON=sys.executable):
            os.environ.pop("HF_HUB_CACHE", None)
            self.agent("a", "none", "--data", f"text={self.state('text')}", "--allow-data", self.state("cache/hub"))
            with mock.patch.dict(os.environ, HF_HOME=self.state("empty")):  # its owner allows it, but has it not
                os.mkdir(self.state("empty"))
                self.agent("b", "none", "--data", f"text={self.state('text')}", "--allow-data", self.state("empty"))
            self.comes_back(model, "hf:org/tiny-llama", "main")
            self.comes_back(model, f"hf:org/tiny-llama@{commit}", "commit")
            self.assertIn(f"snapshots/{commit}'; fetch it there by `hf download org/tiny-llama --revision {commit}`", self.log_of("b"))

            other = self.run_from("hf:org/tiny-llama@v2", "other")
            self.assertEqual(other.returncode, 3, other.stderr)
            self.assertRegex(other.stderr, "^atoll: model.from = .hf:org/tiny-llama@v2.: huggingface_hub: LocalEntryNotFoundError: Cannot find an appropriate cached snapshot")
            sizes = self.run_from("hf:org/tiny-llama@v1", "sizes", layers=3)
            self.assertIn("num_hidden_layers is 2, and model.layers 3: write layers = 2", sizes.stderr)

            refused = self.run_from("hf:org/tiny-llama", "digest", sha256="0" * 64)
            digest = refused.stderr.split("has SHA-256 ")[1][:64]
            os.environ["ATOLL_PYTHON"] = "/nonexistent/python3"
            self.assertEqual(self.run_from(f"hf:org/tiny-llama@{commit}", "digest", sha256=digest, options=("--dry-run",)).returncode, 0)  # asks nobody
            without = self.run_from("hf:org/tiny-llama", "without")
            self.assertEqual(without.returncode, 4)
            self.assertEqual(without.stderr.count("\n"), 1)
            self.assertIn("'/nonexistent/python3' cannot be started (No such file or directory): pip install huggingface_hub, and name its Python: ATOLL_PYTHON=", without.stderr)

    def test_a_rehearsal_begins_from_a_model_of_the_hub(self):
        if not (pathlib.Path(ATOLL).parent / "atoll_trainer.so").exists():
            self.skipTest("LibTorch is not installed")
        pathlib.Path(self.state("text")).write_text(TEXT * 200, encoding="utf-8")
        llama().save_pretrained(self.state("saved"))
        self.cached(self.state("saved"), "cache")
        with mock.patch.dict(os.environ, HF_HUB_CACHE=self.state("cache"), HF_HUB_OFFLINE="1", ATOLL_PYTHON=sys.executable):
            submitted = self.run_from("hf:org/tiny-llama@v1", "rehearsed", options=("--dry-run",))
            self.assertEqual(submitted.returncode, 8, submitted.stderr)  # there are no islands
            file = pathlib.Path(self.state("rehearsed.toml"))
            file.write_text(file.read_text().replace("set = 'text'", "files = ['text']"))
            self.completed(self.start(self.folder.name, str(file)))
        begun, saved = load_file(self.folder.name + "/model.safetensors"), load_file(self.state("saved") + "/model.safetensors")
        for name, value in saved.items():
            self.assertTrue(torch.equal(begun[name], value), name)


if __name__ == "__main__":
    unittest.main(verbosity=2)
