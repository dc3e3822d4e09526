"""What a program's samples count in tokens: own_test.py's tests with a coordinator and agents of the real executable."""

import json

from islands import Agents


class CountedTokens(Agents):
    def documents(self, more):
        """Of a run of two islands that take three samples in each of 20 steps: what `status` and `data` say."""
        for name in ("a", "b"):
            if name not in self.running:
                self.agent(name, "numpy")
        run = self.submitted(f"run{len(more)}", {}, "name = 'diloco'\ninner_steps = 5", least=2, more=more)
        self.waited(run)
        return [json.loads(self.said(what, run, "-o", "json", "--state", self.state("coordinator"))) for what in ("status", "data")]

    def test_samples_are_counted_in_tokens_as_the_run_file_says(self):
        for more, each in (("tokens_per_sample = 64\n", 64), ("", 1)):
            with self.subTest(more):
                status, data = self.documents(more)
                self.assertEqual(status["run"]["tokens"], 2 * 20 * 3 * each)
                self.assertEqual([island["merged"] for island in data["tokens"]], [20 * 3 * each] * 2)
                self.assertEqual([part["committed"] for part in data["parts"]], [60, 60])  # which are samples
