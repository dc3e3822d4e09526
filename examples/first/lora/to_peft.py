"""`atoll export lora -o adapter/adapter_model.safetensors --through 'python3 to_peft.py'`: the run's adapters under the names that PEFT reads."""
import sys

from safetensors.torch import load_file, save_file


def at_peft(name):
    return "base_model.model." + name.replace(".modules_to_save.default.", ".").replace(".default.", ".")


exported, to = sys.argv[1:]
save_file({at_peft(name): tensor for name, tensor in load_file(exported).items()}, to)
