"""What bare TCP gets of a path when both islands send at one time: build/release/tests/packet_path 2 20 100 0 python3 tests/bench/two_way.py cubic|bbr MB STREAMS

Each island accepts so many connections, sends its part of the bytes over each, and reads as many from the other. Prints the seconds and Mbit/s
at which each island received.
"""
import os
import socket
import sys
import threading
import time

PORT = 7000


def send(connection, algorithm, count):
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, algorithm.encode())
    connection.recv(1)  # until the other one asks
    connection.sendall(bytes(count))
    connection.recv(1)


def receive(connection, count):
    connection.send(b"g")
    while count > 0:
        came = len(connection.recv(min(count, 1 << 18)))
        if came == 0:
            raise SystemExit("the other island has gone")
        count -= came
    connection.send(b"e")


def dial(address):
    for _ in range(200):
        try:
            return socket.create_connection((address, PORT))
        except OSError:
            time.sleep(0.05)
    raise SystemExit(f"{address} does not answer")


def main():
    algorithm, megabytes, streams = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    island = int(os.environ["PATH_ISLAND"])
    count = int(megabytes * 1e6 / streams)
    listener = socket.create_server((f"10.88.0.{island}", PORT), backlog=streams)
    out = [dial(f"10.88.0.{3 - island}") for _ in range(streams)]
    senders = [threading.Thread(target=send, args=(listener.accept()[0], algorithm, count)) for _ in range(streams)]
    receivers = [threading.Thread(target=receive, args=(connection, count)) for connection in out]
    for thread in senders:
        thread.start()
    time.sleep(0.5)
    begin = time.perf_counter()
    for thread in receivers:
        thread.start()
    for thread in receivers:
        thread.join()
    seconds = time.perf_counter() - begin
    print(f"{algorithm}, {streams} streams: island {island} received in {seconds:.2f} s, {megabytes * 8 / seconds:.0f} Mbit/s", flush=True)
    for thread in senders:
        thread.join()


main()
