"""`gated.py FOLDER numpy|torch [disk|bad|quick]`: a loop whose state is written once FOLDER/gate, a named pipe, is opened for writing; then the disk is full,
or it cannot be pickled. quick: it is written before the loop goes on. The program of saves.py."""

import sys

import numpy


def gated(folder, write, how):
    """Opening a named pipe waits for the other end."""

    def gate(*given, **named):
        with open(folder + "/gate") as pipe:
            pipe.read()
        if how == "disk":
            raise OSError(28, "No space left on device")
        if how == "bad":
            raise TypeError("it cannot be pickled")
        return write(*given, **named)

    return gate


def program(folder, kind, how=""):
    import atoll
    from atoll._saver import Saver
    from loops import one_step, torch_parts

    if how == "quick":
        begin = Saver.begin
        Saver.begin = lambda self, *given: (begin(self, *given), self.wait())
    elif kind == "numpy":
        atoll._numpy.write_file = gated(folder, atoll._numpy.write_file, how)
    if kind == "numpy":
        island = atoll.join()
        w = numpy.ones(4, numpy.float32)
        island.start({"w": w}, state={})
        for _ in island.steps():
            w *= numpy.float32(0.875)
            island.done(0.5, samples=3)
        return
    torch, island, model, opt, xs = torch_parts()
    torch.save = gated(folder, torch.save, how)
    island.start(model, opt)
    for _ in island.steps():
        island.done(one_step(torch, model, opt, xs), samples=6)


program(*sys.argv[1:])
