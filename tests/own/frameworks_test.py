"""The real transformers' Trainer, PEFT, TRL, Accelerate, Lightning and Muon on islands of the real executable. Arguments as own_test.py's.

It goes on with the Python of build/python, which tests/run.sh makes of tests/own/frameworks.txt where a package index is reached. Exit status 4:
they are not there.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest
import warnings
from unittest import mock

import environment

environment.enter("torch", "transformers", "accelerate", "lightning", "peft", "trl")

import torch
from followed import STRATEGIES, Followed
from islands import ATOLL, HERE, PYTHON, SOURCE, Clusters, tensors_of

STEPS = 100
LAUNCH = "-m accelerate.commands.launch --cpu --num_processes {} --num_machines 1 --mixed_precision no --dynamo_backend no"
WITHOUT = {key: value for key, value in os.environ.items() if key != "ATOLL_ISLAND_LINK"}
RATES = {
    "huggingface": lambda step: 0.01 * (1 - step / STEPS),
    "lora": lambda step: 0.01 * (1 - step / STEPS),
    "sft": lambda step: 0.01 * (1 - step / STEPS),
    "accelerate": lambda step: 0.01 * (1 - step / STEPS),
    "lightning": lambda step: 0.01 * max(0.02, 1 - step / STEPS),
    "muon": lambda step: 0.01 * max(0.02, 1 - step / STEPS),
}
# Of a line whose held-out loss begins at 3.6: after 100 steps 0.19 alone, and 0.45 on two islands that mix by halves (streaming-diloco).
SLACK = {"lightning": 0.3, "muon": 0.3}


class Alone(unittest.TestCase):
    def program(self, framework, folder, steps=40, code=0, **environment):
        command = [PYTHON, str(HERE / "frameworks_loops.py"), framework, str(steps), folder]
        done = subprocess.run(command, env={**WITHOUT, **environment}, capture_output=True, text=True, timeout=200)
        self.assertEqual(done.returncode, code, done.stderr[-3000:])
        return done.stderr + done.stdout

    def kept(self, folder):
        return torch.load(folder + "/alone.pt")

    def refused(self, framework, why, **arguments):
        with tempfile.TemporaryDirectory() as folder:
            self.assertRegex(self.program(framework, folder, code=1, ARGUMENTS=json.dumps(arguments)), why)

    def test_what_would_end_it_is_refused_with_both_numbers(self):
        self.refused("huggingface", r"max_steps=30 is 30 steps, and the run has 40 \(\[training\]\.steps\)", max_steps=30)
        self.refused("huggingface", r"num_train_epochs=2, of this island's data, is 80 steps, and the run has 40", num_train_epochs=2)
        self.refused("huggingface", "load_best_model_at_end would put another model in the place of the run's", load_best_model_at_end=True, save_steps=40)
        self.refused("huggingface", "train_sampling_strategy='group_by_length' would be left out, for .* an order of the run's seed", train_sampling_strategy="group_by_length")
        self.refused("lightning", "max_steps=30 is 30 steps, and the run has 40", max_steps=30)

    def test_what_averages_weights_at_the_end_is_refused_by_name(self):
        """As Lightning's callbacks are, behind which the model is not the exported one."""
        import atoll.torch
        import lightning

        from atoll._island import Refused
        from atoll.callbacks import LightningCallback

        class Module(lightning.LightningModule):
            def __init__(self):
                super().__init__()
                self.net = torch.nn.Linear(2, 1)

            def training_step(self, batch, number):
                return self.net(batch).sum()

            def configure_optimizers(self):
                return torch.optim.SGD(self.parameters(), 0.1)

        of = lightning.pytorch.callbacks
        for average in (of.StochasticWeightAveraging(0.01, swa_epoch_start=1), *([of.EMAWeightAveraging()] if hasattr(of, "EMAWeightAveraging") else [])):
            island = atoll.torch.TorchIsland(atoll.Alone({"training": {"steps": 3}}), {})
            trainer = lightning.Trainer(
                max_epochs=-1, callbacks=[LightningCallback(island), average], accelerator="cpu", devices=1, logger=False, enable_checkpointing=False,
                enable_progress_bar=False, enable_model_summary=False,
            )  # fmt: skip
            with self.assertRaisesRegex(Refused, f"the callback {type(average).__name__} would put an average"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                trainer.fit(Module(), island.loader(torch.ones(40, 2), batch_size=2))

    def test_a_trainer_that_makes_its_loader_itself_is_refused_by_name(self):
        """What it would have given its model is another order, or other weights of samples."""
        import atoll.torch
        import transformers
        from atoll._island import Refused
        from atoll.callbacks import attach

        class Weighted(transformers.Trainer):
            def _get_train_sampler(self, *dataset):
                return torch.utils.data.WeightedRandomSampler([1.0, 9.0], 2)

        class Looped(transformers.Trainer):
            def get_train_dataloader(self):
                return torch.utils.data.DataLoader([{"x": torch.ones(2)}] * 2)

        with tempfile.TemporaryDirectory() as folder:
            for kind, name in ((Weighted, "_get_train_sampler"), (Looped, "get_train_dataloader")):
                island = atoll.torch.TorchIsland(atoll.Alone({"training": {"steps": 3}}), {})
                trainer = kind(torch.nn.Linear(2, 1), transformers.TrainingArguments(folder, report_to=[], use_cpu=True), train_dataset=[{"x": torch.ones(2)}] * 2)
                with self.assertRaisesRegex(Refused, rf"{kind.__name__}\.{name}\(\) would be left out, for the islands' samples come in an order of the run's seed"):
                    attach(island, trainer)

    def test_a_step_s_loss_and_its_number_are_its_own_under_accumulation(self):
        """What Atoll was told is what the Trainer has logged by itself, and what Lightning has not divided."""
        with tempfile.TemporaryDirectory() as folder:
            said = self.program("huggingface", folder)
            told = {int(step): float(loss) for step, loss in re.findall(r"step (\d+): training loss ([\d.]+), held-out loss [\d.]+", said)}
            logged = {each["step"]: each["loss"] for each in self.kept(folder)["seen"] if "loss" in each}
            self.assertEqual(list(told), [10, 20, 30, 40])
            for step, loss in logged.items():
                self.assertAlmostEqual(told[step], loss, places=3)
        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
            first = [re.search(r"step 10: training loss ([\d.]+)", self.program("lightning", folder, **how))[1] for folder, how in ((one, {}), (two, {"MANUAL": "1"}))]
            self.assertAlmostEqual(float(first[0]), float(first[1]), delta=0.1)  # two optimisers in place of one, no accumulation: nearly the same steps

    def test_an_early_stop_is_enough(self):
        for framework, steps in (("huggingface", 80), ("lightning", 60)):
            with self.subTest(framework), tempfile.TemporaryDirectory() as folder:
                self.program(framework, folder, steps=400, STOPS="1")
                kept = self.kept(folder)
                self.assertTrue(kept["complete"])
                self.assertLess(kept["step"], 200)

    def test_it_goes_on_from_where_it_was(self):
        """Saved by join(folder=…), the Trainer counts, saves and logs the run's steps, not those of its process."""
        with tempfile.TemporaryDirectory() as folder:
            self.program("huggingface", folder, steps=60)
            self.program("huggingface", folder, steps=100)
            seen = self.kept(folder)["seen"]
            self.assertEqual([each["step"] for each in seen if "loss" in each], [70, 80, 90, 100])
            self.assertEqual([each["step"] for each in seen if "saved" in each], [100])
            self.assertEqual([each["step"] for each in seen if "eval_loss" in each], [80, 100])
            self.assertIn("checkpoint-50", os.listdir(folder + "/alone"))

    def saves(self, *given, ranks=1, code=0, **environment):
        """What train_loops.saves() has printed of each step: what counts, and the weights."""
        launch = ["-m", "atoll.ranks", str(ranks)] if ranks > 1 else []
        command = [PYTHON, *launch, str(HERE / "train_loops.py"), "saves", *given]
        done = subprocess.run(command, env={**WITHOUT, **environment}, capture_output=True, text=True, timeout=100)
        self.assertEqual(done.returncode, code, done.stderr[-3000:])
        return [json.loads(line) for line in done.stdout.splitlines()], done.stderr

    def test_a_checkpoint_of_pytorch_s_own_kind_goes_on_bit_for_bit(self):
        """torch.distributed.checkpoint, of one rank; the program was killed, and any other reads the model."""
        import torch.distributed.checkpoint as dcp

        with tempfile.TemporaryDirectory() as folder:
            whole, _ = self.saves("12", "", "noise", "none")
            self.saves("12", folder, "noise", "yes", code=9, DIES_AT="8")
            self.assertEqual(os.listdir(folder), ["6"])
            model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
            given = {"model": model.state_dict()}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                dcp.load(given, checkpoint_id=folder + "/6")
            self.assertEqual(torch.cat([each.reshape(-1) for each in given["model"].values()]).tolist(), whole[6][1])
            again, said = self.saves("12", "", "noise", "none", folder)
            self.assertIn(f"goes on after step 6, from {folder}/6", said)
            self.assertEqual(again, whole[6:])

    def test_shards_are_saved_by_their_ranks_and_any_number_of_ranks_goes_on(self):
        with tempfile.TemporaryDirectory() as folder:
            whole, _ = self.saves("9", folder + "/two", "sharded", "none", ranks=2)
            self.assertEqual(sorted(os.listdir(folder + "/two/6")), [".metadata", "__0_0.distcp", "__1_0.distcp", "alone.json"])
            for ranks, kind in ((2, "sharded"), (1, "whole")):
                with self.subTest(ranks=ranks):
                    shutil.copytree(folder + "/two", f"{folder}/{ranks}")
                    again, _ = self.saves("9", "", kind, "none", f"{folder}/{ranks}", ranks=ranks)
                    self.assertEqual([said for said, _ in again], [said for said, _ in whole[6:]])
                    for (_, weights), (_, expected) in zip(again, whole[6:]):
                        (self.assertEqual if ranks == 2 else self.close)(weights, expected)

    def close(self, some, others):
        torch.testing.assert_close(torch.tensor(some), torch.tensor(others), atol=1e-5, rtol=1e-5)

    def test_a_disk_that_is_full_leaves_the_checkpoint_before(self):
        with tempfile.TemporaryDirectory() as folder:
            for dcp, ranks, kind in (("no", 1, "whole"), ("none", 2, "sharded")):
                with self.subTest(dcp=dcp, ranks=ranks):
                    seen, said = self.saves("9", f"{folder}/{kind}", kind, dcp, ranks=ranks, FULL_AT="7")
                    self.assertEqual((len(seen), said.count("atoll: nothing is saved in"), os.listdir(f"{folder}/{kind}")), (9, 1, ["6"]), said)
                    self.assertRegex(said, "nothing is saved in .*, and what was there stays: .*(File too large|iostream error)")

    def test_weights_are_loaded_around_peft_s_adapters(self):
        """The base that another library has saved into a model that has adapters already, and adapters as PEFT saves them."""
        from frameworks_loops import adapters, llama
        from peft import get_peft_model

        from atoll.torch import Alone, TorchIsland

        base = llama()
        torch.nn.init.ones_(base.model.layers[0].self_attn.q_proj.weight)
        torch.nn.init.ones_(base.lm_head.weight)
        with tempfile.TemporaryDirectory() as folder:
            base.save_pretrained(folder + "/base")
            model, island = get_peft_model(llama(), adapters()), TorchIsland(Alone({}), {})
            found = island.load(model, folder + "/base", strict=False)
            self.assertEqual(found.left_over, [])
            self.assertTrue(all("lora_" in name or "modules_to_save" in name for name in found.missing), found.missing)
            self.assertEqual(float(model.base_model.model.model.layers[0].self_attn.q_proj.base_layer.weight.mean()), 1.0)
            trained = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
            digest = island.base(model, folder + "/base")
            self.assertEqual([name for name, parameter in model.named_parameters() if parameter.requires_grad], trained)
            self.assertEqual(island.base(llama(), folder + "/base", digest=digest), digest)
            for name, parameter in model.named_parameters():
                if parameter.requires_grad:
                    torch.nn.init.constant_(parameter, 0.5)
            model.save_pretrained(folder + "/adapters")
            again = get_peft_model(llama(), adapters())
            found = island.load(again, folder + "/adapters", strict=False)
            self.assertEqual(found.left_over, [])
            self.assertTrue(all(bool((parameter == 0.5).all()) for parameter in again.parameters() if parameter.requires_grad))


class OnIslands(Followed):
    def on_two_islands(self, framework, strategy, launcher="", said="was killed by signal 9", **settings):
        with tempfile.TemporaryDirectory() as folder:
            given = {"folder": folder, "pause": 0.02, **settings}
            process = self.local(folder, f"{PYTHON} {launcher} '{HERE}/frameworks_loops.py' {framework}", given, STEPS, STRATEGIES[strategy])
            self.goes_on(folder, process, "frameworks_loops.py", said)
            names = ["island-1", "island-2"]
            self.follow_the_run(folder, names, RATES[framework])
            self.have_the_exported_model(folder, names, tensors_of(folder + "/model.safetensors"))
            return [torch.load(f"{folder}/{name}.pt") for name in names]

    def trained(self, framework, strategies=STRATEGIES, **settings):
        with tempfile.TemporaryDirectory() as folder:
            Alone.program(self, framework, folder, steps=STEPS)
            plain = Alone.kept(self, folder)["loss"]
        for strategy in strategies:
            with self.subTest(framework, strategy=strategy):
                kept = self.on_two_islands(framework, strategy, **settings)
                self.assertLess(kept[0]["loss"], 1.3 * plain + SLACK.get(framework, 0.05))
        return kept


@unittest.skipUnless(ATOLL, "the executable is not given")
class Together(OnIslands):
    def test_transformers_trainer(self):
        self.trained("huggingface")

    def test_accelerate(self):
        self.trained("accelerate", strategies=["streaming-diloco"])

    def test_accelerate_launch(self):
        """Its command stands before the program in --trainer; it ends with the program that was killed, and both are started again."""
        self.on_two_islands("accelerate", "diloco", launcher=LAUNCH.format(1), said="ended with status 1")

    def test_lightning(self):
        self.trained("lightning")

    def test_lightning_s_manual_optimisation_of_two_optimisers(self):
        self.on_two_islands("lightning", "diloco", manual=True)

    def test_muon(self):
        self.trained("muon")


@unittest.skipUnless(ATOLL, "the executable is not given")
class Tuned(OnIslands):
    """What people fine-tune with: adapters beside a frozen model."""

    def test_peft_s_lora(self):
        self.trained("lora", strategies=["diloco"])

    def test_trl_s_sft_trainer(self):
        """Its own numbers are those of its training batches, and an evaluation's those of that evaluation."""
        for island in self.trained("sft", strategies=["diloco"]):
            trained = [each for each in island["seen"] if "loss" in each]
            self.assertEqual(trained[-1]["step"], STEPS)
            for each in trained:
                self.assertIn("mean_token_accuracy", each)
                self.assertFalse([name for name in each if name.startswith("eval_")], each)


@unittest.skipUnless(ATOLL, "the executable is not given")
class Examples(Clusters):
    """The programs that people copy, as they stand, on two islands, with a kill -9 in the middle of each."""

    HERE = SOURCE / "examples/huggingface"

    def ran(self, folder, name, **settings):
        """The file that the run exports."""
        text = (self.HERE / f"{name}.toml").read_text().replace("[training]\n", "[training]\nmax_steps_per_second = 20\n")
        given = "".join(f"{key} = {json.dumps(value)}\n" for key, value in settings.items())
        path = pathlib.Path(folder, "run.toml")
        path.write_text(text.replace("[trainer.settings]\n", "[trainer.settings]\n" + given))
        process = self.start(folder, str(path), "--trainer", f"{name}={PYTHON} '{self.HERE}/{name}.py'")
        self.goes_on(folder, process, f"{name}.py", "the trainer ")
        return folder + "/model.safetensors"

    def test_a_model_is_pretrained_fine_tuned_and_speaks(self):
        with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
            base = first + "/pretrained"
            exported = tensors_of(self.ran(first, "pretrain", out=base))
            written = tensors_of(base + "/model.safetensors")
            self.assertEqual(set(written), set(exported))
            for name, values in exported.items():
                self.assertTrue((written[name] == values).all(), name)
            adapters = self.ran(second, "finetune", base=base, out=second + "/adapters")
            self.assertTrue(all("lora_" in name for name in tensors_of(adapters)))
            command = [PYTHON, str(self.HERE / "generate.py"), base, adapters, "def "]
            done = subprocess.run(command, env=WITHOUT, capture_output=True, text=True, timeout=100)
            self.assertEqual(done.returncode, 0, done.stderr[-2000:])
            self.assertTrue(done.stdout.startswith("def "), done.stdout)

    def test_the_example_of_lora_ends_with_an_adapter_that_peft_loads(self):
        """`atoll example lora`, with fewer steps: the exported adapters, by their names at PEFT, are the trainer's."""
        from peft import PeftModel, get_peft_model_state_dict
        from transformers import LlamaConfig, LlamaForCausalLM

        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(SOURCE / "examples/first/lora", folder, dirs_exist_ok=True)
            path = pathlib.Path(folder, "run.toml")
            path.write_text(path.read_text().replace("\nsteps = 120 ", "\nsteps = 40 "))
            with mock.patch.dict(os.environ, PATH=f"{pathlib.Path(PYTHON).parent}:{os.environ['PATH']}"):
                run = self.completed(self.start(folder, str(path)))["run"]
            self.assertEqual(run["state"], "completed")
            self.assertLess(run["outer_loss"], run["initial_loss"] - 1)
            base = LlamaConfig(vocab_size=256, hidden_size=64, intermediate_size=192, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=64)

            def loaded():
                torch.manual_seed(1)
                return get_peft_model_state_dict(PeftModel.from_pretrained(LlamaForCausalLM(base), folder + "/adapter"))

            trainers, file = loaded(), folder + "/adapter/adapter_model.safetensors"
            os.unlink(file)
            subprocess.run([PYTHON, folder + "/to_peft.py", folder + "/model.safetensors", file], check=True, timeout=60)
            exported = loaded()
            self.assertEqual((len(exported), exported.keys()), (30, trainers.keys()))
            for name, values in exported.items():
                self.assertTrue(torch.equal(values, trainers[name]), name)
                self.assertGreater(values.abs().max(), 0, name)  # LoRA's B begins as zeros


if __name__ == "__main__":
    unittest.main(verbosity=2)
