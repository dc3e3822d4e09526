"""The page of a diffusion run: images that the experts draw while they are trained, in headless Chromium.

    images_test.py ATOLL MODULE [PICTURE.png]     the third: where a screenshot is kept

A coordinator and two agents on this machine with the built-in trainer (MODULE); the data are dark squares and grey bars that the test makes.
"""

import pathlib
import random
import sys
import unittest
import urllib.error
import urllib.request

sys.dont_write_bytecode = True
import chromium  # noqa: E402
import live_run  # noqa: E402

live_run.LiveRun.atoll, live_run.LiveRun.module = [str(pathlib.Path(path).resolve()) for path in sys.argv[1:3]]
PICTURE = sys.argv[3] if len(sys.argv) > 3 else None

RUN = """[run]
name = "shapes"
[model]
layers = 1
width = 32
heads = 2
[data]
set = "shapes"
format = "idx"
validation_fraction = 0.1
[training]
steps = 400
batch = 8
learning_rate = 3e-3
device = "cpu"
evaluate_batches = 2
max_steps_per_second = 40
[strategy]
name = "decentralized-diffusion"
[diffusion]
experts = 3
save_every = 40
fine_clusters = 32
feature_width = 8
router_layers = 1
router_width = 16
router_heads = 2
router_steps = 40
router_batch = 8
distill_steps = 60
distill_batch = 8
ema = 0.9
[islands]
min = 1
max = 2
"""


def shapes(count):
    """8 × 8, in idx format."""
    draw = random.Random(11)
    images = bytearray([0, 0, 8, 3, 0, 0, count >> 8, count & 255, 0, 0, 0, 8, 0, 0, 0, 8])
    for number in range(count):
        dark, place = number % 2 == 0, draw.randrange(5)
        for y in range(8):
            for x in range(8):
                on = place <= x < place + 3 and 2 <= y < 5 if dark else place <= y < place + 2
                images.append(255 if on else 0 if dark else 90)
    return bytes(images)


class Images(live_run.LiveRun):
    def setUp(self):
        super().setUp()
        self.shapes = pathlib.Path(self.folder) / "shapes.idx"
        self.shapes.write_bytes(shapes(240))
        (pathlib.Path(self.folder) / "run.toml").write_text(RUN)

    def answer(self, path):
        """Status, type and body."""
        try:
            with urllib.request.urlopen(f"http://{self.web}{path}", timeout=10) as answer:
                return answer.status, answer.headers["Content-Type"], answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.headers["Content-Type"], error.read()

    def test_images_come_while_the_experts_are_trained(self):
        self.start_coordinator()
        self.start_agents("reef", "shoal", hold_at=0, options={name: ["--data", f"shapes={self.shapes}"] for name in ("reef", "shoal")})
        shown = "[...document.querySelectorAll('.pictures img')].filter((image) => image.complete && image.naturalWidth > 0)"
        with chromium.Chromium() as browser:
            self.submit()  # when the browser is up: the run does not wait for it
            browser.open(f"http://{self.web}/")
            browser.wait(f"{shown}.length >= 1", 120)
            first = browser.value("document.querySelector('.pictures img').getAttribute('src')")
            self.assertIn("picture?task=experts%2F", first)
            browser.wait(f"document.querySelector('.pictures img').getAttribute('src') !== '{first}'", 120)  # a newer one takes its place
            browser.wait(f"{shown}.length === 4", 240)
            captions = browser.value("[...document.querySelectorAll('.pictures figcaption')].map((text) => text.innerText.split(',')[0]).join()")
            self.assertEqual(captions, "distill,experts/0,experts/1,experts/2")
            browser.wait("document.querySelector('.under').innerText.startsWith('8 of 8 tasks done')", 120)
            browser.wait("document.body.innerText.includes('atoll sample r-')")
            self.assertEqual(browser.faults(), [])
            if PICTURE:
                browser.picture(PICTURE)
        status, kind, body = self.answer("/api/runs/shapes/picture?task=experts/1")
        self.assertEqual((status, kind, body[:8]), (200, "image/png", b"\x89PNG\r\n\x1a\n"))
        self.assertLess(len(body), 96 * 1024)
        self.assertEqual(self.answer("/api/runs/shapes/picture?task=router")[0], 404)
        self.assertEqual(self.answer("/api/runs/shapes/picture?task=../../etc/passwd")[0], 404)
        self.assertEqual(self.answer("/api/runs/shapes/picture")[0], 400)
        self.assertEqual(self.answer("/api/runs/none/images")[0], 404)


if __name__ == "__main__":
    if chromium.path() is None:
        print("skipped: Chromium is not installed")
        sys.exit(4)
    unittest.main(argv=sys.argv[:1], verbosity=2)
