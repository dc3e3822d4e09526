"""docs/python.md, the reference page of the Python package, made of its docstrings: `reference.py` prints it. reference_test.py compares."""

import importlib
import inspect
import pathlib
import sys
import textwrap

MODULES = "atoll.torch", "atoll.callbacks", "atoll.loggers", "atoll.jax", "atoll.ranks", "atoll"
HEAD = """# The Python package

Every public name of the package, made of its docstrings by `build/python/bin/python tests/own/reference.py > docs/python.md`.
[Bring your own training program](own-trainer.md) says how a program is written with it.
"""


def of_package(thing):
    return getattr(thing, "__module__", "").split(".")[0] == "atoll"


def said(thing):
    return f"```text\n{textwrap.dedent(inspect.cleandoc(thing.__doc__ or '')).strip()}\n```" if thing.__doc__ else ""


def signature(name, thing):
    try:
        given = inspect.signature(thing)
    except (TypeError, ValueError):
        return name
    return name + str(given.replace(parameters=[each for each in given.parameters.values() if each.name != "self"])).replace("'", "")


def members(kind):
    """Methods and properties of a class and of the package's own above it, the class's first."""
    found = {}
    for each in kind.__mro__:
        for name, member in vars(each).items() if of_package(each) else []:
            plain = member.fget if isinstance(member, property) else member
            if not name.startswith("_") and (inspect.isfunction(plain) or isinstance(member, property)):
                found.setdefault(name, member)
    return found


def of_name(module, name):
    thing = getattr(module, name)
    yield f"### {module.__name__}.{name}"
    if not inspect.isclass(thing):
        yield f"`{signature(name, thing)}`"
        yield said(thing)
        return
    yield said(thing)
    if issubclass(thing, BaseException):
        return
    for member, found in members(thing).items():
        if isinstance(found, property):
            yield f"`{member}`: {inspect.cleandoc(found.fget.__doc__ or 'a property')}"
        elif found.__doc__:
            yield f"`{signature(member, found)}`"
            yield said(found)


def page():
    parts, seen = [HEAD.rstrip()], {}
    for module in map(importlib.import_module, MODULES):
        parts += [f"## {module.__name__}"]
        again = []
        for name in module.__all__:
            thing = getattr(module, name)
            if thing in seen:
                again.append(f"`{name}` is `{seen[thing]}`.")
                continue
            seen[thing] = f"{module.__name__}.{name}"
            parts += [part for part in of_name(module, name) if part]
        parts += [" ".join(again)] if again else []
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "agent/island_link/python"))
    print(page(), end="")
