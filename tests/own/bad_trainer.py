"""Trainers that do what none should: `bad_trainer.py KIND`, for own_test.py."""

import os
import sys
import time

import numpy
from plain_trainer import ZMQ, Pair, Trainer


def hello(**other):
    link = Pair(os.environ["ATOLL_ISLAND_LINK"])
    link.send("hello", **{**dict(protocol=2, trainer="bad", version="1", pid=os.getpid(), rank=0, ranks=1), **other})
    return link


def declare(*parameters):
    link = hello()
    link.receive(60)
    link.send("manifest", parameters=[{"name": name, "shape": shape, "block": 0} for name, shape in parameters])
    return link


def failing(**how):
    hello().send("failed", why="there is no such model", **how)


def plain(change):
    trainer = Trainer(Pair(os.environ["ATOLL_ISLAND_LINK"]))
    change(trainer)
    trainer.run()


def writes_nan(trainer):
    def one_step():
        Trainer.one_step(trainer)
        trainer.model.parameters["w"][:] = numpy.nan

    trainer.one_step = one_step


def scribbles(trainer):
    def send(kind, **fields):
        trainer.link.__class__.send(trainer.link, kind, **fields)
        begin = time.monotonic()
        while kind == "published" and time.monotonic() < begin + 0.2:
            trainer.arena[0] += 1
            time.sleep(0.0005)

    trainer.link.send = send


def ends_early(trainer):
    trainer.on_plan = lambda message: sys.exit(0)


def prints():
    line = "x" * 99 + "\n"
    for _ in range(10_000):
        sys.stdout.write(line * 1000)  # a gigabyte in all
    sys.stdout.flush()


def differs():
    class Other(Trainer):
        def expect(self, kind):
            message = super().expect(kind)
            if kind == "configure" and message["island"] == "island-2":
                message["trainer"]["settings"]["size"] += 1
            return message

    Other(Pair(os.environ["ATOLL_ISLAND_LINK"])).run()


def other_code():
    """Each process says another version."""
    link = Pair(os.environ["ATOLL_ISLAND_LINK"])
    send = link.send
    link.send = lambda kind, **keys: send(kind, **{**keys, "version": str(os.getpid())} if kind == "hello" else keys)
    Trainer(link).run()


def flood():
    """Ten million parameters, as no client library would send them."""
    link = hello()
    link.receive(60)
    names = b",".join(b'{"name":"%d","shape":[1],"block":0}' % i for i in range(10_000_000))
    text = b'{"type":"manifest","parameters":[' + names + b"]}"
    ZMQ.zmq_send(link._socket, text, len(text), 0)


def many():
    import atoll

    atoll.join().start({f"parameter-{i}": numpy.zeros(1, numpy.float32) for i in range(100_000)})


def never_ready():
    link = hello()
    link.receive(60)
    link.send("preparing", what="compiling for ever")


def talks():
    """Forty megabytes of the agent's log, if each became a line."""
    link = hello()
    link.receive(60)
    for i in range(200_000):
        link.send("preparing", what=f"compiling {i} " + "x" * 100, data=f"{i} files")
    link.send("failed", why="there is no such model", permanent=True)


def lacks_a_module():
    island = joined()
    import no_such_module  # noqa: F401


def joined():
    import atoll

    island = atoll.join()
    island.start({"w": numpy.zeros(2)})
    return island


def done_twice():
    island = joined()
    for _ in island.steps():
        island.done(1.0, samples=1)
        island.done(1.0, samples=1)


def same_words():
    import atoll

    atoll.join()
    raise ValueError("the file of labels has 3 columns")


def same_status():
    sys.exit("the file of labels has 3 columns")


KINDS = {
    "module": lacks_a_module,
    "done_twice": done_twice,
    "same_words": same_words,
    "same_status": same_status,
    "unready": never_ready,
    "talks": talks,
    "silent": lambda: None,
    "version": lambda: hello(protocol=1),
    "ranks": lambda: hello(ranks=3),
    "none": lambda: declare(),
    "many": many,
    "flood": flood,
    "other_code": other_code,
    "twice": lambda: declare(("w", [2]), ("w", [2])),
    "empty": lambda: declare(("w", [2, 0])),
    "huge": lambda: declare(("w", [2**60])),
    "large": lambda: declare(("w", [2**30])),
    "permanent": lambda: failing(permanent=True),
    "nan": lambda: plain(writes_nan),
    "differs": differs,
    "early": lambda: plain(ends_early),
    "scribbles": lambda: plain(scribbles),
    "prints": prints,
}
if __name__ == "__main__":
    given = KINDS[sys.argv[1]]()
    time.sleep(1 if sys.argv[1] in ("early", "nan", "prints") else 1000)
