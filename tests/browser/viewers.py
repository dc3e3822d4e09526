"""What viewers cost: asks a coordinator's page as N browsers do, and prints what its process took meanwhile.

    viewers.py HOST:PORT PID VIEWERS SECONDS
"""

import gzip
import http.client
import json
import os
import sys
import threading
import time

HOST, PID, VIEWERS, SECONDS = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
received = [0] * max(VIEWERS, 1)
asked = [0] * max(VIEWERS, 1)
end = time.monotonic() + SECONDS


def ticks():
    with open(f"/proc/{PID}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])


def get(viewer, connection, path):
    connection.request("GET", path, headers={"Accept-Encoding": "gzip"})
    answer = connection.getresponse()
    body = answer.read()
    received[viewer] += len(body)
    asked[viewer] += 1
    return json.loads(gzip.decompress(body) if answer.headers.get("Content-Encoding") == "gzip" else body)


def listen(viewer, run):
    connection = http.client.HTTPConnection(HOST, timeout=30)
    connection.request("GET", f"/api/runs/{run}/events?since=0")
    answer = connection.getresponse()
    while time.monotonic() < end:
        received[viewer] += len(answer.read1(65536))


def view(viewer):
    """What coordinator/web/page/app.js does."""
    time.sleep(2.0 * viewer / VIEWERS)
    connection = http.client.HTTPConnection(HOST, timeout=30)
    run = get(viewer, connection, "/api/runs")["runs"][0]["id"]
    get(viewer, connection, "/api/about")
    threading.Thread(target=listen, args=(viewer, run), daemon=True).start()
    after, turn = -1, 0
    while time.monotonic() < end:
        get(viewer, connection, f"/api/runs/{run}")
        get(viewer, connection, "/api/runs")
        after = max(after, get(viewer, connection, f"/api/runs/{run}/metrics?after={after}")["next"] - 8)
        if turn % 3 == 0:
            get(viewer, connection, f"/api/runs/{run}/strips?from=0&to=0")
            get(viewer, connection, "/api/islands")
        turn += 1
        time.sleep(2)


before = ticks()
threads = [threading.Thread(target=view, args=(viewer,)) for viewer in range(VIEWERS)]
for thread in threads:
    thread.start()
time.sleep(max(0, end - time.monotonic()))
for thread in threads:
    thread.join()
took = (ticks() - before) / os.sysconf("SC_CLK_TCK")
with open(f"/proc/{PID}/status") as file:
    memory = next(line.split()[1] for line in file if line.startswith("VmRSS"))
print(f"{VIEWERS} viewers, {SECONDS:.0f} s: {sum(asked)} requests, {sum(received) / 1e6:.2f} MB; {100 * took / SECONDS:.2f} % of a core, {int(memory) / 1000:.1f} MB of memory")
