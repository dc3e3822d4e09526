"""Every block of command lines of README and docs, every example and every command is in pages_table.py, and what that names is there.

pages_test.py SOURCE
"""

import fnmatch
import pathlib
import re
import subprocess
import sys
import unittest

import pages_table
from pages_table import BLOCKS, COMMANDS, EXAMPLES, ByHand, Elsewhere, Typed

SOURCE = pathlib.Path(sys.argv.pop(1))


class Table(unittest.TestCase):
    def setUp(self):
        self.strangers = (SOURCE / "tests/own/strangers_test.py").read_text() + (SOURCE / "tests/own/strangers_pages_test.py").read_text()

    def is_there(self, how, block=""):
        if isinstance(how, Typed):
            test, method = how.split(".")
            self.assertTrue(f"class {test}(" in self.strangers, f"there is no class {test}")
            self.assertTrue(f"def {method}(" in self.strangers, f"there is no {method}")
        elif isinstance(how, Elsewhere):
            file, words = how.split(" ", 1)
            self.assertTrue(words in (SOURCE / file).read_text(), f"{file} does not have {words}")
        else:
            self.assertIsInstance(how, ByHand)
            for path in re.findall(r"(?<!\S)tests/bench/\S+", block):
                self.assertTrue((SOURCE / path).exists(), path)
                if path.endswith(".sh"):
                    subprocess.run(["bash", "-n", SOURCE / path], check=True)

    def test_every_block_of_command_lines_is_typed_or_it_is_said_why_not(self):
        unknown, used = [], set()
        for page in sorted(path.relative_to(SOURCE).as_posix() for pattern in pages_table.PAGES for path in SOURCE.glob(pattern)):
            for block in pages_table.blocks_of((SOURCE / page).read_text()):
                line = pages_table.first_line(block)
                keys = [key for key in BLOCKS if key[0] == page and line.startswith(key[1])]
                used.update(keys)
                if len(keys) != 1:
                    unknown.append(f"{page}: {line}")
                    continue
                with self.subTest(page=page, line=line):
                    self.is_there(BLOCKS[keys[0]], block)
        self.assertEqual(unknown, [], "blocks that pages_table.py does not know, or knows twice")
        self.assertEqual(sorted(set(BLOCKS) - used), [], "blocks that no page has")

    def test_every_example_is_run_or_it_is_said_why_not(self):
        examples = SOURCE / "examples"
        files = [path.relative_to(examples).as_posix() for path in examples.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
        self.assertEqual([file for file in files if not any(fnmatch.fnmatch(file, pattern) for pattern in EXAMPLES)], [])
        for pattern, how in EXAMPLES.items():
            with self.subTest(pattern):
                self.assertTrue(any(fnmatch.fnmatch(file, pattern) for file in files))
                self.is_there(how)

    def test_every_command_is_typed(self):
        commands = pages_table.commands_of((SOURCE / "docs/commands.md").read_text())
        self.assertGreater(len(commands), 30)
        self.assertEqual(set(commands) - set(COMMANDS), set())
        self.assertEqual(set(COMMANDS) - set(commands), set())
        for command, line in COMMANDS.items():
            if isinstance(line, (Typed, Elsewhere)):
                self.is_there(line)
            else:
                self.assertTrue(line.startswith(f"atoll {command} ") or line == f"atoll {command}", line)


if __name__ == "__main__":
    unittest.main()
