"""Arrays of a NumPy loop that puts others in their place, and what it cannot save. Tests of own_test.py."""

import unittest

import numpy


def island():
    """One whose arena the caller writes into and reads."""
    from atoll import Alone, NumpyIsland
    from atoll import _library as library

    class Agent(Alone):
        def declare(self, parameters, description):
            entries, at = [], 0
            for index, (_, shape, _, _) in enumerate(parameters):
                entries.append(library.Entry(index, 0, at, int(numpy.prod(shape, dtype=int))))
                at += entries[-1].count
            return numpy.zeros(at, numpy.float32), entries

    return NumpyIsland(Agent({}), {})


def orders():
    from atoll import _library as library

    return [library.Order(getattr(library, name)) for name in ("WRITE", "MERGE", "WRITE_GRADIENT", "READ_GRADIENT")]


class Held(unittest.TestCase):
    def test_what_the_loop_s_dict_has_now_is_exchanged(self):
        write, merge, write_gradient, read_gradient = orders()
        one, p, g = island(), {"w": numpy.zeros(2), "b": numpy.zeros(())}, {"b": numpy.zeros(()), "w": numpy.zeros(2)}
        one.start(p, gradients=g)
        p["w"], g["w"], g["b"] = p["w"] + 1, g["w"] + 3, g["b"] + 4.0
        g["b"] = numpy.array(g["b"])
        one._carry_out(write)
        self.assertEqual(one._arena.tolist(), [1, 1, 0])
        one._arena[:] = 2
        one._carry_out(merge)
        self.assertEqual((p["w"].tolist(), p["b"].item()), ([2, 2], 2))
        one._carry_out(write_gradient)
        self.assertEqual(one._arena.tolist(), [3, 3, 4])
        one._arena[:] = 5
        one._carry_out(read_gradient)
        self.assertEqual((g["w"].tolist(), g["b"].item()), ([5, 5], 5))
        for bad in (numpy.zeros(3), 1.0, None):
            p["w"] = bad
            with self.assertRaisesRegex(ValueError, r"parameter 'w' was declared with shape \(2,\)"):
                one._carry_out(write)

    def test_an_array_that_the_loop_has_no_more_is_refused_by_name(self):
        write, merge, write_gradient, _ = orders()
        one, w, flat = island(), numpy.zeros(2), numpy.zeros(4)
        one.start({"w": w, "view": flat[1:]})
        w += 1
        for order in (write, merge):
            one._carry_out(order)
        w = w - 0.1
        with self.assertRaisesRegex(ValueError, "parameter 'w' is an array that the loop has no more"):
            one._carry_out(write)
        one, w, gradient = island(), numpy.zeros(2), numpy.zeros(2)
        one.start({"w": w}, gradients={"w": gradient})
        one._carry_out(write_gradient)
        gradient = gradient + w
        with self.assertRaisesRegex(ValueError, "gradient 'w' is an array that the loop has no more"):
            one._carry_out(write_gradient)

    def test_an_array_that_the_loop_never_had_is_not_refused(self):
        write, merge, *_ = orders()
        one = island()
        one.start({"w": numpy.zeros(2)})
        for order in (write, merge, write):
            one._carry_out(order)

    def test_what_cannot_be_changed_or_saved_is_refused_at_the_start(self):
        fixed = numpy.zeros(2)
        fixed.flags.writeable = False
        with self.assertRaisesRegex(ValueError, "parameter 'w' is read-only"):
            island().start({"w": fixed})
        with self.assertRaisesRegex(ValueError, r"state\['f'\] is of type function, which cannot be saved"):
            island().start({"w": numpy.zeros(2)}, state={"n": 1, "f": lambda: 1})

    def test_what_is_two_values_of_one_is_refused_at_the_start(self):
        whole = numpy.zeros((4, 6), numpy.float32)
        started = lambda **parameters: island().start(parameters)  # noqa: E731
        for one, two in ((whole, whole), (whole, whole.T), (whole[:3], whole[2:])):
            with self.assertRaisesRegex(ValueError, "parameters 'a' and 'b' lie over the same memory"):
                started(a=one, b=two)
        started(a=whole[:2], b=whole[2:, ::2], c=whole[2:, 1::2])
        with self.assertRaisesRegex(ValueError, "parameter 'a' is a masked array"):
            started(a=numpy.ma.masked_array(whole, whole > 0))
        with self.assertRaisesRegex(ValueError, "a parameter's name is 0, of type int"):
            island().start({0: whole})

    def test_a_state_that_an_exchange_forgets_is_refused(self):
        from atoll import Alone
        from atoll._exchange import ExchangeIsland, flatten_plain, rebuild_plain

        one = ExchangeIsland(Alone({}), {}, flatten_plain, rebuild_plain)
        parameters, state = one.start({"w": numpy.zeros(2)}, {"m": 0})
        parameters = one.exchange(parameters, 1.0, samples=1, state=state)
        with self.assertRaisesRegex(RuntimeError, "say state="):
            one.exchange(parameters, 1.0, samples=1)
