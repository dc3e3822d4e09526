"""docs/python.md is what the docstrings say, and has every public name and no other. See environment.py; arguments as own_test.py's."""

import environment

environment.enter("torch", "jax", "transformers", "lightning")

import importlib
import inspect
import os
import subprocess
import sys
import unittest

from islands import SOURCE

import reference


class Reference(unittest.TestCase):
    def test_the_page_is_made_of_the_docstrings(self):
        """By the command that the page names, which finds the package by itself."""
        alone = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "ATOLL_TRAINER_LIBRARY")}
        printed = subprocess.run([sys.executable, SOURCE / "tests/own/reference.py"], env=alone, capture_output=True, text=True)
        self.assertEqual(printed.returncode, 0, printed.stderr)
        self.assertEqual((SOURCE / "docs/python.md").read_text(), printed.stdout, "build/python/bin/python tests/own/reference.py > docs/python.md")

    def test_each_public_name_is_in_all_and_explained(self):
        """What a module defines by itself and does not hide is in its __all__; what is there is there, and of the package."""
        for module in map(importlib.import_module, reference.MODULES):
            own = {name for name, thing in vars(module).items() if not name.startswith("_") and getattr(thing, "__module__", "") == module.__name__}
            self.assertLessEqual(own, set(module.__all__), module.__name__)
            self.assertEqual(sorted(set(module.__all__)), sorted(module.__all__, key=str))
            for name in module.__all__:
                thing = getattr(module, name)
                self.assertTrue(reference.of_package(thing), name)
                self.assertTrue(inspect.getdoc(thing), f"{module.__name__}.{name} has no docstring")


if __name__ == "__main__":
    unittest.main(verbosity=2)
