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


def numbers_of(text):
    return {number.replace(",", "") for number in re.findall(r"(?<![\w.,/-])\d(?:[\d,]*\d)?(?:\.\d+)?", text.replace("−", ""))}


class Results(unittest.TestCase):
    """README's figures are those of the pages that they link to: rounded there at most, or a share there and in per cent here."""

    @staticmethod
    def stands(number, page):
        step = 10 ** -len(number.partition(".")[2])
        return any(abs(times * float(other) - float(number)) <= 0.5 * step + 1e-9 for other in page for times in (1, 100))

    def test_each_figure_of_readme_stands_on_its_page(self):
        readme = (SOURCE / "README.md").read_text()
        rows = re.findall(r"^\| \[.*$", readme.partition("\n## Results\n")[2].partition("\n## ")[0], re.M)
        self.assertGreater(len(rows), 10)
        for row in rows:
            pages = re.findall(r"\]\((docs/results/[^)#]+)", row)
            there = numbers_of("\n".join((SOURCE / page).read_text() for page in pages))
            with self.subTest(row=row[:60]):
                missing = [number for number in numbers_of(re.sub(r"\]\([^)]*\)", "]", row)) if not self.stands(number, there)]
                self.assertEqual(missing, [], f"not on {pages}")

    def test_a_figure_that_no_page_has_is_found(self):
        page = numbers_of("81 % of 1,234 in 0.9949 s")
        self.assertEqual([self.stands(number, page) for number in ("81", "1234", "99.5", "0.99", "82", "99.6", "0.98")], [True] * 4 + [False] * 3)


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
