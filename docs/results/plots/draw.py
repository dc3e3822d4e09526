#!/usr/bin/env python3
"""Draws every plot of docs/results from the data file beside it: NAME.csv becomes NAME.svg.

  docs/results/plots/draw.py           writes all plots
  docs/results/plots/draw.py --check   writes nothing; exits with 1 and names the plots that are not what their data give

Needs the Python standard library only. The same data give the same bytes.
"""

import csv
import math
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
# Okabe and Ito's palette, which people with any kind of colour vision can tell apart.
BLUE, ORANGE, GREEN, RED, GREY, PURPLE = "#0072b2", "#e69f00", "#009e73", "#d55e00", "#7f7f7f", "#cc79a7"
PALETTE = [BLUE, ORANGE, GREEN, PURPLE, RED, GREY]
WIDTH = 760
FONT = "font-family=\"DejaVu Sans, Verdana, Helvetica, Arial, sans-serif\""


def rows_of(name):
    with open(os.path.join(HERE, name + ".csv"), encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def escaped(text):
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def short(value):
    text = f"{value:.4f}".rstrip("0").rstrip(".")
    return text if text not in ("", "-0") else "0"


class Picture:
    """An SVG that is put together line by line."""

    def __init__(self, height, title):
        self.height = height
        self.lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" {FONT} font-size="13">',
            f"<title>{escaped(title)}</title>",
            f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        ]
        self.text(16, 26, title, size=15, weight="bold")

    def text(self, x, y, words, anchor="start", size=13, colour="#222222", weight="normal"):
        self.lines.append(
            f'<text x="{short(x)}" y="{short(y)}" text-anchor="{anchor}" font-size="{size}" font-weight="{weight}" fill="{colour}">{escaped(words)}</text>'
        )

    def line(self, x1, y1, x2, y2, colour="#dddddd", width=1.0):
        self.lines.append(
            f'<line x1="{short(x1)}" y1="{short(y1)}" x2="{short(x2)}" y2="{short(y2)}" stroke="{colour}" stroke-width="{width}"/>'
        )

    def path(self, points, colour, dash=""):
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        places = " ".join(f"{short(x)},{short(y)}" for x, y in points)
        self.lines.append(f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="2"{dashes}/>')

    def dot(self, x, y, colour, radius=5.0, hollow=False):
        fill = "#ffffff" if hollow else colour
        self.lines.append(f'<circle cx="{short(x)}" cy="{short(y)}" r="{radius}" fill="{fill}" stroke="{colour}" stroke-width="1.5"/>')

    def bar(self, x, y, width, height, colour):
        self.lines.append(f'<rect x="{short(x)}" y="{short(y)}" width="{short(width)}" height="{short(height)}" fill="{colour}"/>')

    def legend(self, x, y, entries):
        """entries: (words, colour, kind) with kind dot, ring or bar; in a row."""
        for words, colour, kind in entries:
            if kind == "bar":
                self.bar(x, y - 9, 12, 10, colour)
            else:
                self.dot(x + 6, y - 4, colour, 4.5 if kind == "dot" else 3, kind == "ring")
            self.text(x + 22, y, words, size=12)
            x += 22 + 7.3 * len(words) + 22

    def svg(self):
        return "\n".join(self.lines + ["</svg>", ""])


class Scale:
    """From values to places; `log` counts in powers."""

    def __init__(self, low, high, begin, end, log=False):
        self.low, self.high, self.begin, self.end, self.log = low, high, begin, end, log

    def __call__(self, value):
        turn = math.log if self.log else float
        share = (turn(value) - turn(self.low)) / (turn(self.high) - turn(self.low))
        return self.begin + share * (self.end - self.begin)


def dots(title, axis, rows, low, high, ticks, legend=(), left=270):
    """One row for each label: small rings for the single values, a dot for their mean, which is written beside it.

    rows: (label, colour, values, mean as a text). A row without values is a heading.
    """
    top = 44 if not legend else 66
    height = top + 26 * len(rows) + 52
    picture = Picture(height, title)
    if legend:
        picture.legend(16, 50, legend)
    scale = Scale(low, high, left, WIDTH - 78)
    bottom = top + 26 * len(rows)
    for tick in ticks:
        picture.line(scale(tick), top, scale(tick), bottom)
        picture.text(scale(tick), bottom + 18, short(tick), "middle", 12, "#555555")
    picture.text((left + WIDTH - 78) / 2, bottom + 40, axis, "middle", 12, "#555555")
    for index, (label, colour, values, mean) in enumerate(rows):
        y = top + 26 * index + 14
        if not values:
            picture.text(16, y + 4, label, weight="bold", size=12)
            continue
        picture.text(left - 14, y + 4, label, "end", 12)
        picture.line(scale(low), y, scale(high), y, "#eeeeee")
        if len(values) > 1:
            picture.line(scale(min(values)), y, scale(max(values)), y, colour, 1.5)
            for value in values:
                picture.dot(scale(value), y, colour, 3, hollow=True)
        picture.dot(scale(float(mean)), y, colour)
        picture.text(WIDTH - 14, y + 4, mean, "end", 12)
    return picture.svg()


def apart(places, distance):
    """The places, in their order from top to bottom, moved so that each is at least `distance` below the one before."""
    order = sorted(range(len(places)), key=lambda index: places[index])
    moved = list(places)
    for before, after in zip(order, order[1:]):
        moved[after] = max(moved[after], moved[before] + distance)
    return moved


def lines(title, x_axis, y_axis, series, x_ticks, y_ticks, log=False, x_text=str, margin=180, height=380):
    """Lines over a common axis, each named at its right end. series: (name, colour, dashed, [(x, y)…])."""
    left, right, top = 70, WIDTH - margin, 66
    bottom = height - 56
    picture = Picture(height, title)
    across = Scale(x_ticks[0], x_ticks[-1], left + 10, right - 10, log)
    up = Scale(y_ticks[0], y_ticks[-1], bottom, top)
    for tick in y_ticks:
        picture.line(left, up(tick), right, up(tick))
        picture.text(left - 8, up(tick) + 4, short(tick), "end", 12, "#555555")
    for tick in x_ticks:
        picture.line(across(tick), bottom, across(tick), bottom + 5, "#888888")
        picture.text(across(tick), bottom + 20, x_text(tick), "middle", 12, "#555555")
    picture.text((left + right) / 2, height - 12, x_axis, "middle", 12, "#555555")
    picture.text(16, 50, y_axis, "start", 12, "#555555")
    names = apart([up(points[-1][1]) for _, _, _, points in series], 15)
    for (name, colour, dashed, points), place in zip(series, names):
        picture.path([(across(x), up(y)) for x, y in points], colour, "6 4" if dashed else "")
        for x, y in points:
            picture.dot(across(x), up(y), colour, 3.5, hollow=dashed)
        picture.text(right + 6, place + 4, name, size=12, colour=colour)
    return picture.svg()


def numbers(text):
    return [float(value) for value in text.split()]


# ---- the plots --------------------------------------------------------------------------------------------------------------------


def quality():
    colours = {"data-parallel": GREY, "diloco": BLUE, "streaming-diloco": GREEN, "noloco": PURPLE, "decoupled-diloco": ORANGE, "other": RED,
               "local": GREY}
    rows = []
    group = None
    for row in rows_of("quality"):
        if row["group"] != group:
            group = row["group"]
            rows.append((group, "", [], ""))
        rows.append((row["label"], colours[row["strategy"]], numbers(row["losses"]), row["median"]))
    return dots("Validation loss at the end, four islands, 600 steps", "nats per byte; less is better", rows, 1.9, 2.4,
                [1.9, 2.0, 2.1, 2.2, 2.3, 2.4],
                legend=[("one seed", GREY, "ring"), ("median of three seeds, also as a number", GREY, "dot")], left=330)


def gossip_quality():
    colours = {"diloco": BLUE, "noloco": GREEN, "local": ORANGE}
    rows = [(row["label"], colours[row["strategy"]], numbers(row["losses"]), row["median"]) for row in rows_of("gossip-quality")]
    return dots("Validation loss at the end: all islands together, in pairs, alone", "nats per byte; less is better", rows, 2.0, 2.4,
                [2.0, 2.1, 2.2, 2.3, 2.4],
                legend=[("one seed", GREY, "ring"), ("median of three seeds, also as a number", GREY, "dot")], left=300)


def streaming_quality():
    colours = {"data-parallel": GREY, "diloco": BLUE, "streaming-diloco": GREEN}
    rows = []
    for row in rows_of("streaming-quality"):
        label = f"{row['label']} ({row['sent_mb']} MB)"
        rows.append((label, colours[row["strategy"]], numbers(row["losses"]), row["median"]))
    return dots("Validation loss at the end and what each island sent", "nats per byte; less is better", rows, 1.9, 2.25,
                [1.9, 2.0, 2.1, 2.2],
                legend=[("one seed", GREY, "ring"), ("median of three seeds, also as a number", GREY, "dot")], left=330)


def utilisation():
    rows = rows_of("utilisation")
    series = []
    for strategy, colour in (("diloco", BLUE), ("streaming-diloco", GREEN)):
        for islands, dashed in (("2", False), ("3", True)):
            points = [(float(row["uplink_mbit"]), float(row["measured_percent"])) for row in rows
                      if row["strategy"] == strategy and row["islands"] == islands]
            series.append((f"{strategy}, {islands} islands", colour, dashed, points))
    return lines("Share of the time in which islands compute, measured", "uplink of each island, Mbit/s", "per cent", series, [5, 20, 100],
                 [0, 20, 40, 60, 80, 100], log=True)


def stragglers():
    rows = rows_of("stragglers")
    height = 66 + 62 * len(rows) + 50
    picture = Picture(height, "What one island that is three times slower costs the five others")
    picture.legend(16, 50, [("all equally fast", GREY, "bar"), ("one three times slower", RED, "bar")])
    scale = Scale(0, 1400, 190, WIDTH - 90)
    bottom = 66 + 62 * len(rows)
    for tick in range(0, 1401, 200):
        picture.line(scale(tick), 66, scale(tick), bottom)
        picture.text(scale(tick), bottom + 18, f"{tick:,}", "middle", 12, "#555555")
    for index, row in enumerate(rows):
        y = 66 + 62 * index + 8
        equal, slow = float(row["equal_tokens_per_second"]), float(row["slow_tokens_per_second"])
        picture.text(178, y + 26, row["strategy"], "end", 12)
        picture.bar(scale(0), y, scale(equal) - scale(0), 19, GREY)
        picture.text(scale(equal) + 6, y + 14, f"{equal:,.0f}", size=12)
        picture.bar(scale(0), y + 22, scale(slow) - scale(0), 19, RED)
        picture.text(scale(slow) + 6, y + 36, f"{slow:,.0f} ({row['change']})", size=12)
    picture.text((190 + WIDTH - 90) / 2, bottom + 40, "tokens per second of each fast island, mean", "middle", 12, "#555555")
    return picture.svg()


def gossip_latency():
    rows = rows_of("gossip-latency")
    series = [(name, colour, False, [(float(row["islands"]), float(row[key])) for row in rows])
              for name, colour, key in (("tree all-reduce of all", BLUE, "tree"), ("a pair (NoLoCo)", GREEN, "pair"))]
    return lines("Mean time to average with others, simulated", "islands", "medians of a message's time", series,
                 [2, 4, 16, 64, 256, 1024], [0, 10, 20, 30, 40, 50, 60], log=True, x_text=lambda x: f"{x:,}")


def link_share():
    rows = rows_of("link-share")
    series = []
    for rate, name, colour in (("100mbit", "100 Mbit/s", BLUE), ("1gbit", "1 Gbit/s", ORANGE)):
        for islands, dashed in (("2", False), ("4", True)):
            points = [(float(row["rtt"].removesuffix("ms")), 100 * float(row["share_round"])) for row in rows
                      if row["rate"] == rate and row["islands"] == islands]
            series.append((f"{name}, {islands} islands", colour, dashed, points))
    return lines("Share of an emulated line that whole rounds use", "round trip, ms", "per cent", series, [0, 100, 200, 300],
                 [0, 20, 40, 60, 80, 100])


def goodput():
    rows = rows_of("goodput")
    names = list(dict.fromkeys(row["setting"] for row in rows))
    series = [(name, PALETTE[index], False,
               [(float(row["chips"]) / 1e6, float(row["simulated_percent"])) for row in rows if row["setting"] == name])
              for index, name in enumerate(names)]
    return lines("Chip time that ends in the model, simulated: each chip is interrupted once a year", "chips, millions", "per cent", series,
                 [0.15, 0.3, 0.6, 1.2, 2.4], [0, 20, 40, 60, 80, 100], log=True)


def diffusion_quality():
    colours = {"monolith": GREY, "clusters": GREEN, "random": ORANGE}
    rows = []
    measure = None
    for row in rows_of("diffusion-quality"):
        if row["heading"] != measure:
            measure = row["heading"]
            rows.append((measure, "", [], ""))
        rows.append((row["label"], colours[row["model"]], numbers(row["losses"]), row["mean"]))
    return dots("Four experts against one model of the same operations", "flow-matching loss on held-out digits; less is better", rows, 0.28,
                0.34, [0.28, 0.29, 0.3, 0.31, 0.32, 0.33, 0.34],
                legend=[("one seed", GREY, "ring"), ("mean of the seeds, also as a number", GREY, "dot")], left=345)


def grouped(name, values, mean):
    """The rows of an asynchronous plot below the headings of their groups; `values` and `mean` name the columns."""
    colours = {"diloco": BLUE, "streaming-diloco": GREEN, "decoupled-diloco": ORANGE, "eager-diloco": PURPLE, "co2": RED}
    rows = []
    group = None
    for row in rows_of(name):
        if row["group"] != group:
            group = row["group"]
            rows.append((group, "", [], ""))
        rows.append((row["label"], colours[row["strategy"]], numbers(row[values]), row[mean]))
    return rows


def asynchronous_quality():
    rows = grouped("asynchronous-quality", "losses", "median")
    return dots("Validation loss at the end of rounds that nobody waits for, H = 30", "nats per byte; less is better", rows, 2.0, 2.5,
                [2.0, 2.1, 2.2, 2.3, 2.4, 2.5],
                legend=[("one seed", GREY, "ring"), ("median of three seeds, also as a number", GREY, "dot")], left=330)


def asynchronous_momentum():
    rows = grouped("asynchronous-momentum", "losses", "mean")
    return dots("Final validation loss by outer rate and momentum, H = 30", "nats per byte; less is better", rows, 1.9, 2.7,
                [1.9, 2.1, 2.3, 2.5, 2.7],
                legend=[("one seed", GREY, "ring"), ("mean of three seeds, also as a number", GREY, "dot")], left=330)


def asynchronous_computing():
    rows = grouped("asynchronous-computing", "percent", "percent")
    return dots("Time that trainers compute on far and broken links", "percent of the islands' time; more is better", rows, 0, 100,
                [0, 20, 40, 60, 80, 100], left=300)


def asynchronous_tokens():
    rows = grouped("asynchronous-tokens", "percent", "percent")
    return dots("Tokens that are committed, of those without the disturbance", "percent; more is better", rows, 70, 100,
                [70, 75, 80, 85, 90, 95, 100], left=300)


PLOTS = {
    "asynchronous-momentum": asynchronous_momentum,
    "asynchronous-tokens": asynchronous_tokens,
    "asynchronous-computing": asynchronous_computing,
    "quality": quality,
    "gossip-quality": gossip_quality,
    "streaming-quality": streaming_quality,
    "utilisation": utilisation,
    "stragglers": stragglers,
    "gossip-latency": gossip_latency,
    "goodput": goodput,
    "link-share": link_share,
    "diffusion-quality": diffusion_quality,
    "asynchronous-quality": asynchronous_quality,
}


def main():
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit(__doc__)
    different = []
    for name, draw in PLOTS.items():
        path = os.path.join(HERE, name + ".svg")
        svg = draw()
        if sys.argv[1:] == ["--check"]:
            with open(path, encoding="utf-8") as file:
                if file.read() != svg:
                    different.append(name)
        else:
            with open(path, "w", encoding="utf-8") as file:
                file.write(svg)
    if different:
        sys.exit("not what their data give (run docs/results/plots/draw.py): " + ", ".join(different))


if __name__ == "__main__":
    main()
