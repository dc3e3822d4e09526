"""Web hooks of a live run: signed, posted again until they are taken, and not lost by the coordinator's death.

    notify_test.py ATOLL TRAINER_MODULE
"""

import hashlib
import hmac
import http.server
import json
import pathlib
import sys
import threading
import unittest

sys.dont_write_bytecode = True
import live_run  # noqa: E402

SECRET = "between us"


class Receiver(http.server.BaseHTTPRequestHandler):
    refusing = True
    refused = 0
    taken = []
    wrong = []

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        sign = "sha256=" + hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
        if self.headers["X-Atoll-Signature"] != sign or self.headers["X-Atoll-Event"] != json.loads(body)["event"]:
            Receiver.wrong.append(body)
        if Receiver.refusing:
            Receiver.refused += 1
        else:
            Receiver.taken.append(json.loads(body))
        self.send_response(503 if Receiver.refusing else 204)
        self.end_headers()

    def log_message(self, *_):
        pass


class Hooks(live_run.LiveRun):
    atoll, module = (str(pathlib.Path(path).resolve()) for path in sys.argv[1:3])

    def test_the_end_of_a_run_and_a_lost_island_are_posted_until_they_are_taken(self):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(lambda: (server.shutdown(), server.server_close()))
        pathlib.Path(self.folder, "hooks.toml").write_text(
            f'[notify]\nurl = "http://127.0.0.1:{server.server_port}/atoll"\nsecret = "{SECRET}"\nisland_lost_after = "2s"\n')
        coordinator = self.start_coordinator("--config", f"{self.folder}/hooks.toml")
        pathlib.Path(self.release).touch()
        agents = self.start_agents("reef", "shoal", hold_at=200)
        run = self.submit()
        self.wait_for("the end of the run is posted, and refused", lambda: Receiver.refused > 1, 120)
        coordinator.kill()
        coordinator.wait()
        agents[1].kill()
        kept = pathlib.Path(self.state, "notices.json")
        notices = json.loads(kept.read_text())
        kept.write_text(json.dumps({**notices, "waiting": [7, {}, {"text": 7, "event": "run_ended", "time_unix_ms": "now"}, *notices["waiting"]]}))  # somebody's hand
        Receiver.refusing = False
        self.start("coordinator", "--state", self.state, "--config", f"{self.folder}/hooks.toml")
        self.wait_for("both are taken", lambda: {notice["event"] for notice in Receiver.taken} >= {"run_ended", "island_lost"}, 60)
        ended = [notice for notice in Receiver.taken if notice["event"] == "run_ended"]
        self.assertEqual(len({notice["id"] for notice in ended}), 1)
        self.assertEqual((ended[0]["run"]["id"], ended[0]["run"]["state"], ended[0]["schema"]), (run, "completed", 1))
        self.assertTrue(ended[0]["text"].startswith("run tides (" + run + ") has completed"), ended[0]["text"])
        lost = [notice for notice in Receiver.taken if notice["event"] == "island_lost"]
        self.assertEqual({notice["island"]["name"] for notice in lost}, {"shoal"})
        self.assertEqual(Receiver.wrong, [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
