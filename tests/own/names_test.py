"""No name of a test has a semicolon: CMake takes such a name for two, and CTest then runs neither.

names_test.py SOURCE
"""

import pathlib
import re
import sys
import unittest

SOURCE = pathlib.Path(sys.argv.pop(1))

LITERAL = r'"(?:[^"\\\n]|\\.)*"'
# TEST_CASE("…", TEST_CASE_METHOD(Fixture, "…", TEMPLATE_TEST_CASE("…", SCENARIO("…; the name may be several literals on several lines.
CASE = re.compile(rf"\b(?:\w*TEST_CASE\w*|SCENARIO\w*)\s*\(\s*(?:[\w:<>]+\s*,\s*)?({LITERAL}(?:\s*{LITERAL})*)")
PROGRAM = re.compile(rf"\badd_test\s*\(\s*NAME\s+({LITERAL})")


def names(text, pattern):
    """The names that the pattern finds, each with its line."""
    for found in pattern.finditer(text):
        yield text.count("\n", 0, found.start()) + 1, "".join(literal[1:-1] for literal in re.findall(LITERAL, found[1]))


class Names(unittest.TestCase):
    def test_a_semicolon_is_found_however_the_name_is_written(self):
        for text in ('TEST_CASE("a; b") {', 'TEST_CASE(\n    "a"\n    "b; c") {', 'TEST_CASE_METHOD(Fixture, "a; b") {', 'SCENARIO("a; b") {',
                     'TEMPLATE_TEST_CASE("a; b", "[tag]", int) {', r'TEST_CASE("says \"no\"; goes on") {'):
            self.assertTrue(any(";" in name for _, name in names(text, CASE)), text)

    def test_no_name_has_a_semicolon(self):
        found, wrong = 0, []
        files = [(path, CASE) for path in sorted((SOURCE / "tests").rglob("*.cpp"))] + [(SOURCE / "tests/CMakeLists.txt", PROGRAM)]
        for path, pattern in files:
            for line, name in names(path.read_text(), pattern):
                found += 1
                if ";" in name:
                    wrong.append(f"{path.relative_to(SOURCE)}:{line}: {name}")
        self.assertGreater(found, 1000, "so many tests there are")
        self.assertEqual(wrong, [], "give these tests names without a semicolon")


if __name__ == "__main__":
    unittest.main()
