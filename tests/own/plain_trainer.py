"""A trainer written from agent/island_link/README.md alone: the standard library, libzmq and NumPy, none of Atoll's code.

It is the proof that the page is enough. The model is linear, with the settings `size`, `samples` and `rate`."""

import ctypes, json, math, os, pickle, signal, sys, time  # noqa: E401

import numpy

ZMQ = ctypes.CDLL("libzmq.so.5", use_errno=True)
ZMQ.zmq_ctx_new.restype = ZMQ.zmq_socket.restype = ctypes.c_void_p
PAIR, POLLIN, DONTWAIT = 0, 1, 1


class PollItem(ctypes.Structure):
    _fields_ = [("socket", ctypes.c_void_p), ("fd", ctypes.c_int), ("events", ctypes.c_short), ("revents", ctypes.c_short)]


class Pair:
    def __init__(self, path, bind=False):
        self._context = ctypes.c_void_p(ZMQ.zmq_ctx_new())
        self._socket = ctypes.c_void_p(ZMQ.zmq_socket(self._context, PAIR))
        attach = ZMQ.zmq_bind if bind else ZMQ.zmq_connect
        if attach(self._socket, f"ipc://{path}".encode()) != 0:
            raise OSError(ctypes.get_errno(), f"cannot use {path}")
        self._buffer = ctypes.create_string_buffer(1 << 20)

    def send(self, kind, **keys):
        text = json.dumps({"type": kind, **{k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in keys.items()}}).encode()
        ZMQ.zmq_send(self._socket, text, len(text), 0)

    def receive(self, seconds):
        item = PollItem(self._socket, 0, POLLIN, 0)
        if ZMQ.zmq_poll(ctypes.byref(item), 1, int(seconds * 1000)) <= 0:
            return None
        size = ZMQ.zmq_recv(self._socket, self._buffer, len(self._buffer), DONTWAIT)
        return json.loads(self._buffer.raw[:size]) if size >= 0 else None


class Model:
    def __init__(self, settings, seed):
        self.size, self.samples, self.rate, self.pause = settings["size"], settings["samples"], settings["rate"], settings.get("pause", 0)
        draw = numpy.random.default_rng(seed)
        self.truth = draw.standard_normal(self.size)
        self.parameters = {"w": draw.standard_normal(self.size).astype(numpy.float32), "b": numpy.zeros(1, numpy.float32)}
        self.gradients = {name: numpy.zeros_like(value) for name, value in self.parameters.items()}

    def gradient(self, seed, part, position):
        x = numpy.random.default_rng([seed, part, position]).standard_normal((self.samples, self.size))
        error = x @ self.parameters["w"] + self.parameters["b"] - (x @ self.truth + 1)
        self.gradients = {"w": (2 * x.T @ error / self.samples).astype(numpy.float32), "b": numpy.float32([2 * error.mean()])}
        return float((error**2).mean())

    def update(self):
        for name, gradient in self.gradients.items():
            self.parameters[name] -= numpy.float32(self.rate) * gradient

    def norm(self):
        return math.sqrt(sum(float((gradient.astype(float) ** 2).sum()) for gradient in self.gradients.values()))


class Trainer:
    def __init__(self, link):
        self.link = link
        link.send("hello", protocol=2, trainer="plain", version=sys.version.split()[0], pid=os.getpid(), rank=0, ranks=1)
        self.configure = self.expect("configure")
        self.seed, self.part = self.configure["seed"], self.configure["data"]["part"]
        self.gradients = self.configure["payload"] == "gradient"
        self.model = Model(self.configure["trainer"]["settings"], self.seed)
        self.names = list(self.model.parameters)
        self.step = self.position = self.until = 0
        self.publishes, self.merges, self.results, self.parked, self.loads = [], [], {}, [], 0
        self.compute = self.waited = 0.0
        self.said, self.said_step = time.monotonic(), 0
        link.send("manifest", parameters=[{"name": name, "shape": list(self.model.parameters[name].shape), "block": 0} for name in self.names])
        arena = self.expect("arena")
        self.arena = numpy.memmap(arena["path"], numpy.float32, "r+", shape=(arena["bytes"] // 4,))
        self.fragments = [
            [entry for entry in arena["entries"] if f["offset"] <= entry["offset"] < f["offset"] + f["count"]] for f in arena["fragments"]
        ]
        self.tallies = [[0, 0.0, False] for _ in self.fragments]
        resume = self.configure.get("resume") or {}
        self.step, self.position = resume.get("step", 0), resume.get("position", 0)
        if resume.get("directory"):
            with open(os.path.join(resume["directory"], "state"), "rb") as file:
                self.model.parameters, self.tallies = pickle.load(file)
        link.send("ready", step=self.step, position=self.position, tokens_available=0)

    def expect(self, kind):
        message = self.link.receive(60)
        if message is None or message["type"] != kind:
            raise SystemExit(0 if message and message["type"] == "stop" else f"{kind} was due, not {message}")
        return message

    def read(self, seconds):
        message = self.link.receive(seconds)
        if message is None:
            if os.getppid() == 1:
                raise SystemExit("the agent is gone")
            return False
        getattr(self, "on_" + message["type"])(message)
        return True

    def on_stop(self, message):
        sys.exit(0)

    def on_plan(self, message):
        self.until = max(self.until, message["until_step"])
        self.publishes += message["publish"]
        self.merges += message["merge"]

    def on_result(self, message):
        self.results[message["round"], message["fragment"]] = message["applied"]

    def on_publish_now(self, message):
        for fragment in message["fragments"]:
            self.write(fragment, self.model.parameters)
        self.link.send("published_now", fragments=message["fragments"], step=self.step, position=self.position)

    def on_load(self, message):
        self.step, self.position, self.until = message["step"], message["position"], message["step"]
        for fragment in message["fragments"]:
            self.read_arena(fragment, self.model.parameters, 0.0)
        self.publishes, self.merges, self.results = [], [], {}
        self.loads += 1
        self.tallies = [[0, 0.0, False] for _ in self.fragments]
        self.link.send("loaded", fragments=message["fragments"], step=self.step, position=self.position)

    def on_save(self, message):
        error = self.save(message["directory"])
        self.link.send("saved", directory=message["directory"], step=self.step, position=self.position, error=error)

    def on_evaluate(self, message):
        self.link.send("evaluated", loss=None, batches=0, step=self.step)

    def write(self, fragment, arrays):
        for entry in self.fragments[fragment]:
            array = arrays[self.names[entry["parameter"]]]
            self.arena[entry["offset"] : entry["offset"] + array.size] = array.reshape(-1)

    def read_arena(self, fragment, arrays, alpha):
        for entry in self.fragments[fragment]:
            array = arrays[self.names[entry["parameter"]]]
            new = self.arena[entry["offset"] : entry["offset"] + array.size].reshape(array.shape)
            array[...] = new if alpha == 0 else numpy.float32(alpha) * array + numpy.float32(1 - alpha) * new

    def save(self, directory):
        try:
            os.makedirs(directory, exist_ok=True)
            with open(os.path.join(directory, "state.new"), "wb") as file:
                pickle.dump((self.model.parameters, self.tallies), file)
                file.flush()
                os.fsync(file.fileno())
            os.rename(os.path.join(directory, "state.new"), os.path.join(directory, "state"))
        except OSError as failure:
            return str(failure)

    def execute(self, step):
        loads = self.loads
        while loads == self.loads:
            publish = next((order for order in self.publishes if order["step"] <= step), None)
            merge = next((order for order in self.merges if order["step"] <= step), None)
            if publish:  # rounds of a fragment are executed in their order
                before = [m for m in self.merges if m["fragment"] == publish["fragment"] and m["round"] < publish["round"]]
                publish, merge = (None, before[0]) if before else (publish, merge)
            if publish:
                self.publishes.remove(publish)
                self.publish(publish)
            elif merge:
                self.merges.remove(merge)
                self.merge(merge)
            else:
                return

    def publish(self, order):
        self.write(order["fragment"], self.model.gradients if self.gradients else self.model.parameters)
        steps, total, bad = self.tallies[order["fragment"]]
        self.tallies[order["fragment"]] = [0, 0.0, False]
        ahead = 1 if self.gradients else 0
        norm = self.model.norm()
        self.link.send(
            "published", round=order["round"], fragment=order["fragment"], step=self.step + ahead,
            position=self.position + ahead * self.model.samples, tokens=steps * self.model.samples, steps=steps, local_validation_loss=None,
            loss=total / steps if steps and not bad else None, norm=norm, nonfinite=bad or not math.isfinite(norm),
            compute_seconds=self.compute,
        )  # fmt: skip

    def merge(self, order):
        began, loads, key = time.monotonic(), self.loads, (order["round"], order["fragment"])
        while key not in self.results:
            self.read(1)
            if loads != self.loads:
                return
        waited = time.monotonic() - began
        self.waited += waited
        if self.results.pop(key):
            self.read_arena(order["fragment"], self.model.gradients if self.gradients else self.model.parameters, order["alpha"])
        self.parked.append((order, waited)) if self.gradients else self.merged(order, waited)

    def merged(self, order, waited):
        directory = order.get("save")
        error = self.save(directory) if directory else None
        if self.gradients and (order["parameters"] or directory):
            self.write(order["fragment"], self.model.parameters)
        self.link.send(
            "merged", round=order["round"], fragment=order["fragment"], step=self.step, position=self.position, wait_seconds=waited,
            validation_loss=None, saved=bool(directory) and error is None, save_error=error,
        )  # fmt: skip

    def one_step(self):
        began, loads = time.monotonic(), self.loads
        time.sleep(self.model.pause)
        loss = self.model.gradient(self.seed, self.part, self.position)
        for tally in self.tallies:
            tally[0], tally[1], tally[2] = tally[0] + 1, tally[1] + loss, tally[2] or not math.isfinite(loss)
        if self.gradients:
            self.execute(self.step + 1)
            if loads != self.loads:
                self.parked = []
                return
        self.model.update()
        self.step, self.position = self.step + 1, self.position + self.model.samples
        self.compute += time.monotonic() - began
        for order, waited in self.parked:
            self.merged(order, waited)
        self.parked = []
        now = time.monotonic()
        if now - self.said >= 0.5:
            pace = (self.step - self.said_step) * self.model.samples / (now - self.said)
            self.said, self.said_step = now, self.step
            self.link.send(
                "progress", step=self.step, position=self.position, loss=loss, nonfinite=not math.isfinite(loss), tokens_per_second=pace,
                compute_seconds=self.compute, wait_seconds=self.waited,
            )  # fmt: skip

    def run(self):
        while True:
            while self.read(0 if self.step < self.until else 1):
                pass
            if not self.gradients:
                self.execute(self.step)
            if self.step < self.until:
                self.one_step()
                if not self.gradients:
                    self.execute(self.step)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Trainer(Pair(os.environ["ATOLL_ISLAND_LINK"])).run()
