"""Which test types each block of command lines of README and docs, each example and each command; or why none does.

A block is named by its page and the beginning of its first line that is no comment.
"""

import pathlib
import re

PAGES = ("README.md", "docs/*.md", "docs/decisions/*.md", "docs/results/*.md")


class Typed(str):
    """A method of strangers_test.py or strangers_pages_test.py, "Class.method", which takes the block from the page."""


class Elsewhere(str):
    """Another test: its file, a space, and words that stand in it."""


class ByHand(str):
    """Why no test types it. Scripts and sources that it names are there."""


BENCH = ByHand("a bench: it measures for minutes or hours what the page shows")
SEEDS = ByHand("what to type once a seed has failed, or where no seed is to change; tests/run.sh runs the same executable")

# The bench that compares strategies, up to its parts.
COMPARISONS = "tests/bench/comparisons.sh build/release/atoll input.txt build/release/tests/atoll_arithmetic_trainer.so"
BLOCKS = {
    ("README.md", "./examples/quickstart.sh"): Elsewhere("tests/browser/quickstart_test.py examples/quickstart.sh"),
    ("README.md", "pip install atoll-*.whl"): Typed("Readme.test_the_first_five_minutes"),
    ("README.md", "atoll up --data corpus=/srv/text"): Typed("Readme.test_separate_machines"),
    ("docs/install.md", "atoll coordinator init --bind"): Typed("Apart.test_separate_machines"),
    ("docs/contributing.md", "cmake --preset release"): Elsewhere("tests/run.sh cmake --preset"),
    ("docs/contributing.md", "ATOLL_SIM_SEEDS=20000"): SEEDS,
    ("docs/install.md", "examples/packaging/portable.sh        #"): Elsewhere("tests/portable.sh examples/packaging/portable.sh"),
    ("docs/install.md", "examples/packaging/portable.sh --machine"): Elsewhere("tests/own/aarch64.sh examples/packaging/portable.sh"),
    ("docs/install.md", "pip install atoll-"): Elsewhere("tests/own/portable_test.py test_an_environment_has_the_program_and_the_package_and_trains"),
    ("docs/install.md", "python -m atoll.build_trainer"): Elsewhere("tests/own/portable_test.py test_two_islands_train_with_the_trainer_that_was_built"),
    ("docs/install.md", "tar xzf atoll-"): Elsewhere("tests/own/portable_test.py test_it_is_installed_below_the_home_folder_without_root"),
    ("docs/contributing.md", "ATOLL_SIM_DIGEST=before.txt"): SEEDS,
    ("docs/install.md", "cmake --preset product"): Elsewhere("tests/own/debian_packages.sh cpack -G DEB"),
    ("docs/install.md", "sudo -u atoll atoll coordinator init"): Typed("Pages.test_pages"),
    ("docs/install.md", "sudo systemctl enable --now atoll-agent"): Typed("Pages.test_pages"),
    ("docs/install.md", "export ALL_PROXY="): Elsewhere("tests/own/proxy_test.py atoll agent --join-file token"),
    ("docs/install.md", "atoll relay --bind"): Elsewhere("tests/own/relay_test.py atoll relay --bind 'tcp://*:4402'"),
    ("docs/install.md", "atoll agent --relay"): Elsewhere("tests/own/relay_test.py atoll agent --relay 4402 --relay-rate 100mbit"),
    ("docs/own-trainer.md", "python3 -m venv"): Typed("OwnTrainer.test_two_islands_on_one_machine"),
    ("docs/own-trainer.md", "atoll agent --join-file token --trainer gpt="): Typed("Programs.test_programs"),
    ("docs/own-trainer.md", "atoll coordinator init --state c"): Typed("OwnTrainer.test_two_islands_on_one_machine"),
    ("docs/copies.md", "export AWS_ACCESS_KEY_ID="): Typed("Pages.test_pages"),
    ("docs/copies.md", "atoll submit run.toml --restore newest"): Typed("Pages.test_pages"),
    ("docs/copies.md", "atoll restore s3://my-bucket/atoll"): Typed("Pages.test_pages"),
    ("docs/diffusion.md", "atoll local examples/decentralized-diffusion-mnist.toml"): Typed("Pages.test_pages"),
    ("docs/faults.md", "atoll local run.toml --data corpus=/srv/text --network local --faults"): Typed("Pages.test_pages"),
    ("docs/faults.md", "atoll local run.toml --data corpus=/srv/text --link"): Typed("Pages.test_pages"),
    ("docs/web.md", "atoll coordinator --web 127.0.0.1:4480"): Typed("Pages.test_pages"),
    ("docs/web.md", "ssh -L 4480"): ByHand("needs a login on another machine"),
    ("docs/web.md", "atoll coordinator --web 0.0.0.0:4480"): Typed("Pages.test_pages"),
    ("docs/results/README.md", COMPARISONS): BENCH,
    ("docs/results/asynchronous.md", "export SEED="): BENCH,
    ("docs/results/asynchronous.md", "tests/bench/far.sh"): BENCH,
    ("docs/results/asynchronous.md", "tests/bench/decoupled.sh"): BENCH,
    ("docs/results/asynchronous.md", "STEP_MS=100 tests/bench/hostile.sh"): BENCH,
    ("docs/results/asynchronous.md", "STRATEGY="): BENCH,
    ("docs/results/asynchronous.md", COMPARISONS + " rounds"): BENCH,
    ("docs/results/asynchronous.md", COMPARISONS + " radial"): BENCH,
    ("docs/results/diffusion.md", "bench_diffusion"): BENCH,
    ("docs/results/diffusion.md", "atoll sample digits"): BENCH,
    ("docs/results/emulator.md", "cmake --preset release"): BENCH,
    ("docs/results/reach.md", "tests/bench/relay.py"): BENCH,
    ("docs/results/reach.md", "tests/bench/proxy.py"): BENCH,
    ("docs/results/reach.md", "tests/bench/reach.py"): BENCH,
    ("docs/results/gossip.md", COMPARISONS + " rounds"): BENCH,
    ("docs/results/gossip.md", COMPARISONS + " stragglers"): BENCH,
    ("docs/results/gossip.md", "LAYERS=4 BATCH=8 ISLANDS=8 tests/bench/quality.sh"): BENCH,
    ("docs/results/gossip.md", "ctest --test-dir build/release -R"): Elsewhere("tests/run.sh ctest --test-dir"),
    ("docs/results/link.md", "python3 tests/bench/link_share.py"): BENCH,
    ("docs/results/link.md", "/usr/bin/python3 tests/bench/far_gloo.py"): BENCH,
    ("docs/results/planning.md", "tests/bench/plan.sh"): BENCH,
    ("docs/results/quality.md", COMPARISONS + " rounds"): BENCH,
    ("docs/results/quality.md", COMPARISONS + " long"): BENCH,
    ("docs/results/quality.md", "export SEED="): BENCH,
    ("docs/results/reliability.md", "ATOLL_FAULT_MATRIX="): BENCH,
    ("docs/results/speed.md", "python3 tests/bench/stages.py"): BENCH,
    ("docs/results/streaming.md", COMPARISONS + " rounds"): BENCH,
    ("docs/results/streaming.md", COMPARISONS + " links"): BENCH,
    ("docs/results/streaming.md", "ISLANDS=3"): BENCH,
}

# Run files for islands of the built-in trainer: shortened, each on real agents of one network.
RUN_FILES = Typed("Pages.test_pages")
PROGRAMS = Typed("Programs.test_programs")
EXAMPLES = {
    "cloud-init.yaml": ByHand("needs a cloud"),
    "kubernetes.yaml": ByHand("needs a cluster of Kubernetes"),
    "slurm.sbatch": Elsewhere("tests/own/slurm_test.py examples/slurm.sbatch"),
    "packaging/Containerfile": Elsewhere("tests/own/container.sh examples/packaging/Containerfile"),
    "packaging/atoll-agent.service": Typed("Pages.test_pages"),
    "packaging/atoll-coordinator.service": Typed("Pages.test_pages"),
    "packaging/atoll-relay.service": Elsewhere("tests/own/relay_test.py examples/packaging/atoll-relay.service"),
    "packaging/etc/agent.toml": Elsewhere("tests/cli/settings_file_test.cpp examples/packaging/etc"),
    "packaging/etc/coordinator.toml": Elsewhere("tests/cli/settings_file_test.cpp examples/packaging/etc"),
    "packaging/torch.txt": Elsewhere("tests/run.sh examples/packaging/torch.txt"),
    "packaging/portable.sh": Elsewhere("tests/portable.sh examples/packaging/portable.sh"),
    "packaging/portable/*": Elsewhere("tests/own/portable_test.py examples/packaging/portable"),
    "packaging/debian/*": Elsewhere("tests/packages.sh examples/packaging/debian"),
    "packaging/rpm/*": Elsewhere("tests/own/portable_test.py build/portable/CPackConfig.cmake"),
    "grafana.json": Elsewhere("tests/unit/web/site_test.cpp grafana.json"),
    "prometheus-alerts.yml": Elsewhere("tests/browser/prometheus_test.py examples/prometheus-alerts.yml"),
    "install-packages.sh": Elsewhere("tests/run.sh examples/install-packages.sh"),
    "quickstart.sh": Elsewhere("tests/browser/quickstart_test.py examples/quickstart.sh"),
    "quickstart.toml": Elsewhere("tests/browser/quickstart_test.py examples/quickstart.toml"),
    "faults/three-islands.toml": Elsewhere("tests/process/fault_matrix_test.cpp examples/faults/three-islands.toml"),
    "*-text.toml": RUN_FILES,
    "decentralized-diffusion-mnist.toml": Typed("Pages.test_pages"),
    "monolith-diffusion-mnist.toml": Typed("Pages.test_pages"),
    "first/lora/*": Elsewhere("tests/own/frameworks_test.py examples/first/lora"),
    "first/*": Typed("Examples.test_examples"),
    "own-trainer/linear.c": PROGRAMS,
    "own-trainer/linear.toml": PROGRAMS,
    "own-trainer/torch_mlp.cpp": PROGRAMS,
    "own-trainer/torch_mlp.toml": PROGRAMS,
    "pytorch/gpt.py": PROGRAMS,
    "pytorch/gpt.toml": PROGRAMS,
    "pytorch/gpt_alone.py": PROGRAMS,
    "pytorch/gpt_model.py": PROGRAMS,
    "pytorch/classifier.py": PROGRAMS,
    "pytorch/classifier.toml": PROGRAMS,
    "pytorch/lora.py": PROGRAMS,
    "pytorch/lora.toml": PROGRAMS,
    "pytorch/ddp.py": PROGRAMS,
    "pytorch/ddp.toml": PROGRAMS,
    "pytorch/fsdp.py": Elsewhere("tests/own/ranks_test.py any_may_be_killed(\"fsdp\")"),
    "pytorch/fsdp.toml": Elsewhere("tests/own/ranks_test.py examples/pytorch/{name}.toml"),
    "pytorch/cpu_streams.py": Elsewhere("tests/own/ranks_test.py any_may_be_killed(\"fsdp\")"),
    "huggingface/*": Elsewhere("tests/own/frameworks_test.py examples/huggingface"),
    "jax/fit.py": Elsewhere("tests/own/own_test.py self.program(\"fit\""),
    "jax/fit.toml": Elsewhere("tests/own/own_test.py kind=\"jax\""),
}

# Each command of docs/commands.md, and a line of it that Pages types on an operator's machine beside a run that has ended (first) and one
# that goes on (second). Code: what it ends with, if that is not 0.
COMMANDS = {
    "example": "atoll example",
    "up": Typed("Readme.test_separate_machines"),
    "join": Typed("Readme.test_separate_machines"),
    "coordinator backup": "atoll coordinator backup backup.db --state /var/lib/atoll/coordinator",
    "coordinator check": "atoll coordinator check backup.db",
    "token create": "atoll token create",
    "token list": "atoll token list",
    "token revoke": "atoll token revoke {token}",
    "doctor": "atoll doctor run.toml",
    "validate": "atoll validate run.toml",
    "plan": "atoll plan run.toml --step-time 250ms",
    "submit": "atoll submit run.toml --dry-run",
    "runs": "atoll runs",
    "status": "atoll status first",
    "islands": "atoll islands",
    "logs": "atoll logs first",
    "wait": "atoll wait first --timeout 1h",
    "events": "atoll events first",
    "trace": "atoll trace first -o trace.json",
    "diff": "atoll diff first second",
    "metrics": "atoll metrics first -o csv",
    "plot": "atoll plot first -o loss.svg",
    "compare": "atoll compare first second",
    "data": "atoll data first",
    "pause": "atoll pause second",
    "resume": "atoll resume second",
    "export": "atoll export first -o model.safetensors",
    "generate": "atoll generate --model model.safetensors --prompt 'Once upon a time'",
    "cancel": "atoll cancel second",
    "runs rm": "atoll runs rm second --dry-run",
    "drain": "atoll drain coordinator",
    "agent check": "atoll agent check --state /var/lib/atoll/agent",
    "islands revoke": "atoll islands revoke coordinator",
    "coordinator init": Typed("Pages.test_pages"),
    "coordinator": Typed("Pages.test_pages"),
    "token use": Typed("Pages.test_pages"),
    "agent": Typed("Pages.test_pages"),
    "relay": Elsewhere("tests/own/relay_test.py atoll relay --bind 'tcp://*:4402'"),
    "local": Typed("Pages.test_pages"),
    "restore": Typed("Pages.test_pages"),
    "sample": Typed("Pages.test_pages"),
}
CODES = {"doctor": (0, 1), "diff": (0, 1), "submit": (0, 8)}  # submit: the islands serve another run


def first_line(block):
    return next(line for line in block.splitlines() if line.strip() and not line.startswith("#"))


def blocks_of(page):
    """Blocks of lines for a shell."""
    return re.findall(r"^```(?:sh|bash|shell|console)\n(.*?)^```$", page, re.S | re.M)


def commands_of(page):
    """Those of the tables of docs/commands.md: "runs", "islands revoke" and so on."""
    found = []
    for table in re.findall(r"^\| command \| what \|\n(.*?)(?=^$)", page + "\n", re.S | re.M):
        for row in table.splitlines()[1:]:
            for code in re.findall(r"`([^`]+)`", row.split(" | ")[0]):
                found.append(re.match(r"[a-z]+( [a-z]+)*(?![a-z…])", code)[0])
    return found


def found_block(source, page, begins):
    """The block of that page."""
    (block,) = [block for block in blocks_of(pathlib.Path(source, page).read_text()) if first_line(block).startswith(begins)]
    return block
