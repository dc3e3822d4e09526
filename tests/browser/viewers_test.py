"""Who may see the page: viewers with a token over TLS, a crowd of them, and nobody else.

    viewers_test.py ATOLL TRAINER_MODULE
"""

import http.client
import http.cookiejar
import json
import os
import pathlib
import socket
import ssl
import stat
import subprocess
import sys
import threading
import unittest
import urllib.error
import urllib.request

sys.dont_write_bytecode = True
import live_run  # noqa: E402


class Viewers(live_run.LiveRun):
    atoll, module = (str(pathlib.Path(path).resolve()) for path in sys.argv[1:3])

    def get(self, path, token=None, opener=None):
        """Status and body."""
        request = urllib.request.Request(f"https://{self.web}{path}", headers={"Authorization": "Bearer " + token} if token else {})
        try:
            with (opener or self.opener()).open(request, timeout=20) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def opener(self, *handlers):
        return urllib.request.build_opener(urllib.request.HTTPSHandler(context=self.trust), *handlers)

    def test_viewers_with_a_token_see_the_page_by_tls_until_it_is_revoked_and_nobody_else_does(self):
        coordinator = self.start_coordinator("--web-certificate", "own")
        certificate = os.path.join(self.state, "keys", "page-certificate.pem")
        self.assertEqual(stat.S_IMODE(os.stat(os.path.join(self.state, "keys", "page-key.pem")).st_mode), 0o600)
        self.trust = ssl.create_default_context(cafile=certificate)  # it proves that it has the key of this certificate
        self.trust.check_hostname = False
        viewer = self.command("token", "create", "--role", "viewer", "-q")
        self.assertEqual(self.get("/api/runs", viewer)[0], 200)
        self.assertIn("atoll_build_info", self.get("/metrics", viewer)[1])
        for path in ("/", "/api/runs", "/metrics", "/api/runs/x/events", "/?token=wrong"):
            status, text = self.get(path)
            self.assertEqual(status, 401, path)
            self.assertIn("token create --role viewer", text)
        for role in ("island", "operator"):
            self.assertEqual(self.get("/", self.command("token", "create", "--role", role, "-q"))[0], 401, role)

        # A browser is let in once and remembers it.
        jar = http.cookiejar.CookieJar()
        browser = self.opener(urllib.request.HTTPCookieProcessor(jar))
        self.assertIn("<html", self.get("/?token=" + viewer, opener=browser)[1])
        self.assertEqual(self.get("/api/islands", opener=browser)[0], 200)
        cookie = next(iter(jar))
        self.assertTrue(cookie.secure and cookie.has_nonstandard_attr("HttpOnly"))

        # Events come as they happen by TLS, too.
        run = self.submit()
        link = http.client.HTTPSConnection(self.web, timeout=20, context=self.trust)
        link.request("GET", f"/api/runs/{run}/events?since=0", headers={"Authorization": "Bearer " + viewer})
        self.assertIn(b"run_submitted", link.getresponse().read1(65536))
        link.close()

        # The token lets nobody join, ends when it is revoked, and the certificate stays through a restart.
        refused = subprocess.run([self.atoll, "token", "use", viewer, "--state", os.path.join(self.folder, "thief")], capture_output=True, text=True, timeout=60)
        self.assertNotEqual(refused.returncode, 0)
        tokens = json.loads(self.command("token", "list", "--json"))["tokens"]
        self.command("token", "revoke", next(token["id"] for token in tokens if token["role"] == "viewer"))
        self.wait_for("the viewer is turned away", lambda: self.get("/api/runs", viewer)[0] == 401 and self.get("/", opener=browser)[0] == 401)
        with socket.create_connection(self.web.split(":"), timeout=20) as plain:
            plain.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            self.assertNotIn(b"HTTP/1.1 200", plain.recv(100))
        before = pathlib.Path(certificate).read_text()
        coordinator.kill()
        coordinator.wait()
        self.start("coordinator", "--state", self.state, "--web", self.web, "--web-certificate", "own")
        self.wait_for("the page is back", lambda: self.answers())
        self.assertEqual(pathlib.Path(certificate).read_text(), before)

    def test_the_owner_of_an_island_sees_what_concerns_it_and_nothing_else(self):
        self.start_coordinator("--web-certificate", "own", "--price", "0.09/GB")
        self.trust = ssl.create_default_context(cafile=os.path.join(self.state, "keys", "page-certificate.pem"))
        self.trust.check_hostname = False
        self.start_agents("reef", "shoal", hold_at=60)
        run = self.submit()
        self.wait_for("both have joined", lambda: self.command("islands", "-q").split() == ["reef", "shoal"])
        link = self.command("token", "create", "--role", "viewer", "--island", "reef", "-q")
        jar = http.cookiejar.CookieJar()
        browser = self.opener(urllib.request.HTTPCookieProcessor(jar))
        self.assertIn("<html", self.get("/?token=" + link, opener=browser)[1])
        self.assertEqual(self.get("/api/about", link), (200, '{"island":"reef","price_per_gigabyte":0.09,"schema":1}'))
        self.wait_for("the island works for the run", lambda: json.loads(self.get("/api/islands", link)[1])["islands"][0]["run"] == run)
        self.wait_for("some rounds are done", lambda: json.loads(self.get(f"/api/runs/{run}", link)[1])["run"]["round"] >= 3)
        for path in ("/api/islands", "/i/reef", "/app.js"):
            status, text = self.get(path, link)
            self.assertEqual(status, 200, path)
            self.assertNotIn("shoal", text, path)
        shown = json.loads(self.get(f"/api/runs/{run}", link)[1])
        self.assertEqual([one["name"] for one in shown["islands"]], ["reef", "another, no. 1"])
        shown["islands"][0].update(waits=[], reason="")  # for whom it waited concerns it
        self.assertNotIn("shoal", json.dumps(shown))
        for path in ("/api/runs", "/metrics", "/i/shoal", f"/r/{run}", f"/api/runs/{run}/events", f"/api/runs/{run}/spans", f"/api/runs/{run}/metrics", "/api/runs/nobody", "/api/x"):
            self.assertEqual(self.get(path, link)[0], 403, path)
        refused = subprocess.run([self.atoll, "token", "create", "--role", "viewer", "--island", "atlantis", "--state", self.state], capture_output=True, text=True, timeout=60)
        self.assertIn("there is no island 'atlantis'", refused.stderr)

    def answers(self):
        try:
            return self.get("/")[0] == 401
        except OSError:
            return False

    def test_a_certificate_that_is_none_is_one_clear_line(self):
        self.command("coordinator", "init", "--bind", f"tcp://127.0.0.1:{live_run.free_port()}")
        broken = pathlib.Path(self.folder, "broken.pem")
        broken.write_text("no certificate\n")
        for path, part in ((str(broken), "holds no certificate"), (os.path.join(self.folder, "none.pem"), "cannot be read")):
            done = subprocess.run([self.atoll, "coordinator", "--state", self.state, "--web", self.web, "--web-certificate", path], capture_output=True, text=True, timeout=60)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(part, done.stderr)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)

    def test_of_a_crowd_everybody_is_answered_and_who_is_too_many_is_told(self):
        self.start_coordinator()
        run = self.submit()  # nobody serves it, so its events go on
        watching = []
        for _ in range(256):
            watching.append(socket.create_connection(self.web.split(":"), timeout=60))
            watching[-1].sendall(f"GET /api/runs/{run}/events HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        self.addCleanup(lambda: [one.close() for one in watching])
        for one in watching:
            self.assertIn(b" 200 ", one.recv(100))
        answers = []

        def look():
            try:
                link = http.client.HTTPConnection(self.web, timeout=60)
                link.request("GET", "/api/runs")
                answers.append(link.getresponse().status)
                link.close()
            except OSError as error:
                answers.append(repr(error))

        crowd = [threading.Thread(target=look) for _ in range(300)]
        for one in crowd:
            one.start()
        for one in crowd:
            one.join()
        self.assertEqual(len(answers), 300)
        self.assertEqual(set(answers), {503})
        for one in watching:
            one.close()
        self.wait_for("there is room again", lambda: answers.clear() or look() or answers == [200])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
