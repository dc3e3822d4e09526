"""The coordinator's page in a real browser. Exit status 4: no Chromium is here.

    page_test.py ATOLL TRAINER_MODULE [PICTURES]     PICTURES: a folder for screenshots at three widths, for people
"""

import http.server
import json
import os
import pathlib
import signal
import sys
import threading
import time
import unittest
import urllib.parse

sys.dont_write_bytecode = True
import chromium  # noqa: E402
import live_run  # noqa: E402

PAGE = pathlib.Path(__file__).resolve().parents[2] / "coordinator/web/page"
ATOLL, MODULE = (str(pathlib.Path(path).resolve()) for path in sys.argv[1:3])
PICTURES = sys.argv[3] if len(sys.argv) > 3 else None
NOW = 1767225600000
HOSTILE = "<img src=x onerror=\"document.title='broken'\"><script>document.title='broken'</script>"


def island(name, **more):
    return {"id": "i-" + name, "name": name, "active": True, "state": "training", "reason": "", "share": 0.5, "step": 800, "tokens": 5, "tokens_per_second": 1000.0,
            "training_loss": 1.9, "own_loss": None, "own_loss_round": None, "compute_seconds": 100.0, "wait_seconds": 4.0, "waits": [], "bytes_sent": 7, "bytes_received": 7,
            "agent_memory_bytes": 1, "trainer_memory_bytes": 2, "kernels": None, "connected": True, "last_seen_unix_ms": NOW, **more}


class Scripted(http.server.BaseHTTPRequestHandler):
    """The page's files with the real headers, and documents that a test chose."""

    documents = {}
    protocol_version = "HTTP/1.1"
    types = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}

    def do_GET(self):
        path = urllib.parse.unquote(urllib.parse.urlparse(self.path).path)
        if path.endswith("/events"):
            return self.answer("text/event-stream", b"event: ended\ndata: {}\n\n", close=True)
        if path.startswith("/api/"):
            document = self.documents.get(path, {"error": {"why": "there is no such thing"}})
            return self.answer("application/json", json.dumps(document).encode(), 404 if "error" in document else 200)
        file = PAGE / path[1:]
        file = file if path.count("/") == 1 and file.is_file() else PAGE / "index.html"
        return self.answer(self.types.get(file.suffix[1:], "text/plain"), file.read_bytes())

    def answer(self, kind, body, status=200, close=False):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = close

    def log_message(self, *_):
        pass


def documents_of(run, islands, rows, warnings=(), strips=None, islands_list=(), price=None):
    about = {"id": "r-1", "name": "text", "strategy": "diloco", "images": False, "part_of": None, "state": "running", "reason": "", "reason_since_unix_ms": None,
             "round": 7, "rounds": 20, "tokens": 1000, "tokens_per_second": 100.5, "initial_loss": 5.5, "outer_loss": 1.8, "min": 2, "max": 4, "members": 2,
             "bytes_sent": 1e6, "bytes_per_round": 1e5, "compute_seconds": 90.0, "wait_seconds": 10.0, "created_unix_ms": NOW, "started_unix_ms": NOW, "ended_unix_ms": None, "unsteady": [], **run}
    status = {"schema": 1, "now_unix_ms": NOW + 60000, "run": about, "phases": [], "islands": islands, "absences": [], "warnings": list(warnings)}
    listed = {**about, "islands": len(islands)}
    empty = {"from_unix_ms": 0, "to_unix_ms": 0, "bins": 240, "islands_known": 0, "islands": [], "links": []}
    return {"/api/runs": {"now_unix_ms": NOW, "runs": [listed]}, "/api/runs/r-1": status, "/api/runs/" + about["name"]: status,
            **{f"/api/runs/{name}/{what}": document for name in ("r-1", about["name"])
               for what, document in (("metrics", {"run": "r-1", "next": rows[-1]["round"] if rows else -1, "metrics": rows}), ("strips", strips or empty))},
            "/api/about": {"schema": 1, "price_per_gigabyte": price, "island": None},
            "/api/islands": {"now_unix_ms": NOW, "islands": list(islands_list)}}


def row(number, loss, seconds):
    return {"round": number, "time_unix_ms": NOW + int(seconds * 1000), "step": number * 30, "islands": 2, "outer_loss": loss, "local_loss": None,
            "training_loss": None if number == 0 else loss + 0.1, "norm": 1, "wait_seconds": 1, "tokens": 10 if number else 0, "bytes_sent": 10}


class ScriptedPages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Scripted)
        threading.Thread(target=cls.server.serve_forever, daemon=True).start()
        cls.url = f"http://127.0.0.1:{cls.server.server_port}"

    @classmethod
    def tearDownClass(cls):
        cls.server.shutdown()
        cls.server.server_close()

    def test_a_hostile_name_is_text_wherever_it_stands(self):
        waits = [{"what": "link", "island": "b", "from": HOSTILE, "text": f"the link {HOSTILE} → b", "seconds": 9}]
        strip = {"name": HOSTILE, "computing": [50] * 240, "waits": [{"bin": 3, "text": HOSTILE, "seconds": 1}]}
        Scripted.documents = documents_of(
            {"name": "text", "reason": HOSTILE}, [island(HOSTILE, reason=HOSTILE), island("b", waits=waits)], [row(n, 5 - n / 4, n) for n in range(8)],
            [{"time_unix_ms": NOW, "island": HOSTILE, "kind": HOSTILE, "text": HOSTILE}],
            {"from_unix_ms": NOW, "to_unix_ms": NOW + 9000, "bins": 240, "islands_known": 1, "islands": [strip],
             "links": [{"from": HOSTILE, "to": "b", "bytes": 5, "seconds": 1}]},
            [{"id": "i-1", "name": HOSTILE, "state": "free", "reason": HOSTILE, "run": None, "run_name": None, "address": HOSTILE, "platform": HOSTILE, "version": "1",
              "data_sets": [HOSTILE], "link": "up", "connected": True, "last_seen_unix_ms": NOW, "uplink_budget_bits_per_second": None,
              "uplink_bits_per_second": None, "downlink_bits_per_second": None, "paths": [{"from": "b", "passes": False, "why": HOSTILE}]}])
        Scripted.documents["/api/runs"]["runs"][0]["name"] = HOSTILE
        Scripted.documents["/api/runs/r-1"]["run"]["name"] = HOSTILE
        with chromium.Chromium() as browser:
            for path in ("/", "/r/r-1", "/r/r-1/summary", "/i/" + urllib.parse.quote(HOSTILE, safe="")):
                browser.open(self.url + path)
                browser.wait(f"document.querySelector('h1')?.textContent === {json.dumps(HOSTILE)}")
                browser.wait("document.querySelectorAll('main img, main script').length === 0")
                self.assertNotEqual(browser.value("document.title"), "broken")
                self.assertEqual(browser.faults(), [])

    def test_a_thousand_islands_and_a_hundred_thousand_rounds_fit_and_stay_smooth(self):
        rows = [row(n * 195, 5 / (1 + n / 40), n * 60) for n in range(513)]
        names = [f"island-{n}" for n in range(1000)]
        strips = [{"name": name, "computing": [60] * 240, "waiting": [40] * 240, "exchanging": [10] * 240, "waits": []} for name in names[:40]]
        Scripted.documents = documents_of({"round": 99900, "rounds": 100000}, [island(name) for name in names], rows, strips={
            "from_unix_ms": NOW, "to_unix_ms": NOW + 9000, "bins": 240, "islands_known": 1000, "islands": strips, "links": []})
        with chromium.Chromium() as browser:
            browser.open(self.url + "/")
            browser.wait("document.querySelectorAll('.strip canvas').length === 40")
            paint = browser.value("performance.getEntriesByName('first-contentful-paint')[0].startTime")
            longest = browser.value("""new Promise((done) => { let last = performance.now(), longest = 0, frames = 0; const tick = (now) => {
                longest = Math.max(longest, now - last); last = now; (frames += 1) < 120 ? requestAnimationFrame(tick) : done(longest); }; requestAnimationFrame(tick); })""")
            print(f"first paint after {paint:.0f} ms, {browser.bytes_received() / 1e6:.2f} MB, the longest of 120 frames {longest:.0f} ms")
            self.assertLess(browser.bytes_received(), 5 << 20)
            self.assertEqual(browser.faults(), [])

    def test_a_curve_is_zoomed_by_dragging_and_its_axes_are_chosen_by_keys(self):
        Scripted.documents = documents_of({}, [island("a"), island("b")], [row(n, 5 / (n + 1), n * 20) for n in range(20)])
        with chromium.Chromium() as browser:
            browser.open(self.url + "/r/text")
            browser.wait("document.querySelector('.u-over')")
            box = browser.value("(() => { document.querySelector('.curve').scrollIntoView(); const r = document.querySelector('.u-over').getBoundingClientRect(); return [r.x, r.y, r.width, r.height]; })()")
            self.assertFalse(browser.value("[...document.querySelectorAll('button')].some((b) => b.textContent === 'whole curve' && !b.hidden)"))
            browser.drag(box[0] + box[2] * 0.3, box[0] + box[2] * 0.6, box[1] + box[3] / 2)
            browser.wait("[...document.querySelectorAll('button')].some((b) => b.textContent === 'whole curve' && !b.hidden)")
            for _ in range(20):
                browser.press("Tab")
                if browser.value("document.activeElement.textContent") == "logarithmic":
                    break
            browser.press("Enter")
            browser.wait("document.activeElement.textContent === 'logarithmic' && document.activeElement.getAttribute('aria-pressed') === 'true'")
            self.assertEqual(browser.faults(), [])

    def test_what_fits_a_telephone_is_no_wider_and_a_summary_is_one_page(self):
        Scripted.documents = documents_of({"reason": "waits for " + "a-very-long-name-" * 12}, [island("a-very-long-name-" * 6), island("b")],
                                          [row(n, 5 / (n + 1), n * 20) for n in range(20)])
        with chromium.Chromium() as browser:
            for path in ("/r/text", "/r/text/summary"):
                browser.open(self.url + path, width=360)
                browser.wait("document.querySelector('.u-over')")
                self.assertLessEqual(browser.value("document.documentElement.scrollWidth"), 360)
            browser.open(self.url + "/r/text/summary")
            browser.wait("document.querySelector('.u-over')")
            self.assertEqual(browser.pdf_pages(), 1)
            self.assertEqual(browser.faults(), [])

    def test_bytes_have_a_price_and_a_path_that_does_not_pass_is_seen_before_any_exchange(self):
        listed = [{"id": "i-" + name, "name": name, "connected": True, "paths": [{"from": other, "passes": passes, "why": "a firewall"}]}
                  for name, other, passes in (("a", "b", True), ("b", "a", False))]
        Scripted.documents = documents_of({"bytes_sent": 34.5e9}, [island("a"), island("b")], [row(n, 5 / (n + 1), n * 20) for n in range(5)], islands_list=listed, price=0.09)
        with chromium.Chromium() as browser:
            browser.open(self.url + "/r/text")
            browser.wait("document.querySelector('.facts').innerText.includes('costs 3.10 at 0.09 a GB')")
            browser.wait("[...document.querySelectorAll('.matrix td')].map((cell) => cell.innerText).join() === ',does not pass,passes,'")
            self.assertEqual(browser.value("document.querySelector('.matrix .oneway').title"), "a firewall")
            browser.wait("document.body.innerText.includes('atoll doctor --probe 2s')")  # nothing was measured yet
            browser.open(self.url + "/r/text/summary")
            browser.wait("document.body.innerText.includes('sent 34.5 GB to each other, which costs 3.10 at 0.09 a GB')")
            self.assertEqual(browser.faults(), [])

    def test_a_path_that_comes_and_goes_is_named_with_its_rhythm(self):
        of_path = "the path a -> b comes and goes: there 51 % of the last 5 minutes, 50 changes"
        of_link = "the link of island b comes and goes: it was lost again and again"
        nothing = {"there_share": None, "changes": None, "within_ms": None, "until_unix_ms": NOW}
        unsteady = [{**nothing, "from": "a", "to": "b", "there_share": 0.51, "changes": 50, "within_ms": 300000, "text": of_path}, {**nothing, "from": None, "to": "b", "text": of_link}]
        listed = [{"id": "i-" + name, "name": name, "connected": True, "paths": [{"from": other, "passes": True, "why": ""}]} for name, other in (("a", "b"), ("b", "a"))]
        Scripted.documents = documents_of({"unsteady": unsteady}, [island("a"), island("b")], [row(n, 5 / (n + 1), n * 20) for n in range(5)], islands_list=listed)
        with chromium.Chromium() as browser:
            browser.open(self.url + "/r/text")
            browser.wait(f"[...document.querySelectorAll('.unsteady li')].map((line) => line.innerText).join('; ') === {json.dumps(of_path + '; ' + of_link)}")
            browser.wait("[...document.querySelectorAll('.matrix td')].map((cell) => cell.innerText).join() === ',comes and goes: there 51 %,passes,'")
            self.assertEqual(browser.value("document.querySelector('.matrix .oneway').title"), of_path)
            Scripted.documents = documents_of({}, [island("a"), island("b")], [row(n, 5 / (n + 1), n * 20) for n in range(5)], islands_list=listed)
            browser.wait("document.querySelector('.unsteady') === null")
            self.assertEqual(browser.faults(), [])

    def test_what_is_not_there_says_so(self):
        Scripted.documents = {"/api/runs": {"runs": []}}
        with chromium.Chromium() as browser:
            browser.open(self.url + "/")
            browser.wait("document.body.innerText.includes('No runs yet')")
            browser.open(self.url + "/r/nobody")
            browser.wait("document.body.innerText.includes('there is no such thing')")


class LivePage(live_run.LiveRun):
    atoll, module = ATOLL, MODULE

    def test_the_page_follows_real_agents_through_the_coordinators_death(self):
        web, release = self.web, self.release
        coordinator = self.start_coordinator()
        self.start_agents("reef", "shoal", hold_at=200)
        self.submit()
        with chromium.Chromium() as browser:
            browser.open(f"http://{web}/")
            browser.wait("document.querySelector('h1')?.textContent === 'tides'", 60)
            browser.wait("/round 20 of 40/.test(document.body.innerText)", 120)
            browser.wait("document.querySelector('.events').innerText.includes('round 5 ')", 60)
            browser.wait("document.querySelectorAll('.card').length === 2")
            coordinator.send_signal(signal.SIGKILL)
            coordinator.wait()
            browser.wait("document.getElementById('link').textContent.includes('no answer since')")
            pathlib.Path(release).touch()
            self.start("coordinator", "--state", self.state, "--web", web)
            browser.wait("document.getElementById('link').textContent === ''", 60)
            browser.wait("/Completed/.test(document.body.innerText) && /round 40 of 40/.test(document.body.innerText)", 120)
            browser.wait("document.querySelector('.events').innerText.includes('round 40 ')", 60)
            texts = browser.value("[...document.querySelectorAll('.events li')].map((line) => line.innerText)")
            for number in range(1, 41):
                self.assertEqual(sum(f"round {number} of run tides is committed" in text for text in texts), 1, number)
            unexpected = [fault for fault in browser.faults() if "ERR_CONNECTION_REFUSED" not in fault and "ERR_INCOMPLETE" not in fault and "ERR_CONNECTION_RESET" not in fault and "ERR_EMPTY_RESPONSE" not in fault]
            self.assertEqual(unexpected, [])
            for width, dark in ((1280, False), (768, True), (390, False)):
                if PICTURES:
                    browser.open(f"http://{web}/", width, dark)
                    browser.wait("document.querySelector('.strip canvas')")
                    time.sleep(1)
                    browser.picture(os.path.join(PICTURES, f"page-{width}.png"))


if __name__ == "__main__":
    if chromium.path() is None:
        print("skipped: Chromium is not installed (apt-get install chromium)")
        sys.exit(4)
    unittest.main(argv=sys.argv[:1], verbosity=2)
