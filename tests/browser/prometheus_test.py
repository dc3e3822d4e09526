"""Debian's Prometheus scrapes a live run, and its alerts notice an island that is gone. Exit status 4: Prometheus is not here.

    prometheus_test.py ATOLL TRAINER_MODULE
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest
import urllib.parse
import urllib.request

sys.dont_write_bytecode = True
import live_run  # noqa: E402

ALERTS = pathlib.Path(__file__).resolve().parents[2] / "examples/prometheus-alerts.yml"
CONFIG = """
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [%(folder)s/alerts.yml]
scrape_configs:
  - job_name: atoll
    static_configs:
      - targets: ["%(web)s"]
      - targets: ["%(agent)s"]
"""
# What the alert for a disk says of one that is nearly full, and of one that is not.
DISKS = """
rule_files: [%s]
tests:
  - interval: 1m
    input_series:
      - {series: 'atoll_disk_size_bytes{island="reef",instance="r"}', values: '100x20'}
      - {series: 'atoll_disk_free_bytes{island="reef",instance="r"}', values: '9x20'}
      - {series: 'atoll_disk_size_bytes{of="coordinator",instance="c"}', values: '100x20'}
      - {series: 'atoll_disk_free_bytes{of="coordinator",instance="c"}', values: '11x20'}
    alert_rule_test:
      - eval_time: 15m
        alertname: AtollDiskNearlyFull
        exp_alerts:
          - exp_labels: {severity: warning, island: reef, instance: r}
            exp_annotations: {summary: "9B are left on the state directory's disk of reef at r: less than a tenth"}
"""


class Scraped(live_run.LiveRun):
    atoll, module = (str(pathlib.Path(path).resolve()) for path in sys.argv[1:3])

    def start_prometheus(self):
        # The alerts as they are, but for their patience: minutes are seconds here.
        (pathlib.Path(self.folder) / "alerts.yml").write_text(re.sub(r"for: \d+m", "for: 2s", ALERTS.read_text()))
        (pathlib.Path(self.folder) / "prometheus.yml").write_text(CONFIG % {"folder": self.folder, "web": self.web, "agent": self.metrics})
        self.prometheus = f"127.0.0.1:{live_run.free_port()}"
        with open(os.path.join(self.folder, "prometheus.log"), "w") as log:
            process = subprocess.Popen(["prometheus", f"--config.file={self.folder}/prometheus.yml", f"--storage.tsdb.path={self.folder}/tsdb",
                                        f"--web.listen-address={self.prometheus}"], stdout=log, stderr=log)
        self.addCleanup(lambda: (process.kill(), process.wait()))

    def ask(self, path):
        try:
            with urllib.request.urlopen(f"http://{self.prometheus}/api/v1/{path}", timeout=5) as answer:
                return json.load(answer)["data"]
        except OSError:
            return None

    def values(self, expression):
        """The label sets and values of an instant query."""
        found = self.ask("query?query=" + urllib.parse.quote(expression))
        return [(one["metric"], float(one["value"][1])) for one in found["result"]] if found else []

    def test_the_alert_for_a_disk_fires_where_less_than_a_tenth_is_left(self):
        rules = pathlib.Path(self.folder) / "disks.yml"
        rules.write_text(DISKS % ALERTS)
        done = subprocess.run(["promtool", "test", "rules", str(rules)], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_prometheus_scrapes_a_live_run_and_an_alert_fires_for_a_lost_island(self):
        self.start_coordinator()
        self.metrics = f"127.0.0.1:{live_run.free_port()}"
        agents = self.start_agents("reef", "shoal", hold_at=200, options={"reef": ["--metrics", self.metrics]})
        run = self.submit()
        self.start_prometheus()
        self.wait_for("Prometheus has scraped", lambda: self.values("up == 1"))
        self.wait_for("round 20 is in Prometheus", lambda: self.values(f'atoll_run_round{{run="{run}",name="tides"}} == 20'), 120)
        self.wait_for("both islands", lambda: len(self.values("atoll_member_active == 1")) == 2)
        self.assertEqual({labels["island"] for labels, _ in self.values("atoll_member_tokens_total > 0")}, {"reef", "shoal"})
        self.wait_for("the agent's own figures", lambda: self.values('atoll_agent_step{island="reef"} >= 200'))
        self.wait_for("the coordinator's of its disk", lambda: len(self.values("atoll_disk_free_bytes > 0")) == 2)
        # By now each target has been scraped.
        self.assertEqual([(target["health"], target["lastError"]) for target in self.ask("targets")["activeTargets"]], [("up", "")] * 2)
        self.assertEqual({labels.get("island", labels.get("of")) for labels, _ in self.values("atoll_disk_free_bytes > 0")}, {"reef", "coordinator"})
        agents[1].kill()
        fired = self.wait_for("the alert fires", lambda: self.values('ALERTS{alertname="AtollIslandLost",alertstate="firing"}'))
        self.assertEqual([labels["island"] for labels, _ in fired], ["shoal"])


if __name__ == "__main__":
    if shutil.which("prometheus") is None:
        print("skipped: Prometheus is not installed (apt-get install prometheus)")
        sys.exit(4)
    unittest.main(argv=sys.argv[:1], verbosity=2)
