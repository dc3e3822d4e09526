"""How a PyTorch island's state lies on a disk: a file of torch.save(), or a folder of torch.distributed.checkpoint (DCP), in which each rank writes
what it has, and from which any number of ranks goes on."""

from __future__ import annotations

import io
import os
import shutil
import warnings
from typing import Any, Iterator, Mapping, Optional, Sequence

import torch
import torch.distributed as distributed

from ._island import Refused
from ._shards import is_sharded, like, local

STATE = "state.pt"
_METADATA = ".metadata"  # DCP's, which is written last
_ROOM = 1 << 20  # bytes; a disk that has less is full


class _Out:
    """A file for torch.save(), which must not meet an exception in here: PyTorch 1.13 ends the process then."""

    def __init__(self, file: io.RawIOBase):
        self._file = file
        self.failure: Optional[OSError] = None

    def write(self, data: Any) -> int:
        rest = memoryview(data).cast("B")
        whole = len(rest)
        try:
            while len(rest) and self.failure is None:
                rest = rest[self._file.write(rest) or 0 :]
        except OSError as failure:
            self.failure = failure
        return whole

    def flush(self) -> None:
        pass  # nothing waits here


def write_state(tree: Any, directory: str) -> None:
    """Errors: OSError, of a full disk too, of which torch.save() itself makes something else, or none."""
    with open(os.path.join(directory, STATE), "wb", buffering=0) as file:
        out = _Out(file)
        torch.save(tree, out)
        if out.failure is not None:
            raise out.failure


def need_dcp() -> Any:
    """The module torch.distributed.checkpoint. Errors: Refused where PyTorch has none that writes and reads by itself."""
    try:
        import torch.distributed.checkpoint as dcp

        dcp.save, dcp.load, dcp.FileSystemReader  # noqa: B018
        return dcp
    except (ImportError, AttributeError):
        raise Refused(
            f"island.save(…, dcp=True): PyTorch {torch.__version__} has no torch.distributed.checkpoint that can do it (2.4 has): leave dcp=True out, and "
            "torch.save() writes the state"
        ) from None


def is_dcp(directory: str) -> bool:
    return os.path.exists(os.path.join(directory, _METADATA))


def see(directory: str) -> None:
    """Errors: OSError where a rank does not, which then cannot write there."""
    if not os.path.isdir(directory):
        raise OSError(f"{directory} is not seen from {os.uname().nodename}: give a folder that all ranks see, or dcp=False")


def _reason(failure: BaseException, directory: str) -> str:
    """What of it a person needs: DCP wraps what went wrong, and torch.save() hides it."""
    if isinstance(failure, OSError):
        return str(failure)
    if shutil.disk_usage(directory).free < _ROOM:
        return f"no space left on the device of {directory}"
    inner = [wrapped[0] for wrapped in getattr(failure, "failures", {}).values()] or [failure]
    return str(inner[0]).strip().split("\n")[0] or type(inner[0]).__name__


def write_dcp(model: Any, optimizers: Sequence[Any], of_ranks: Optional[Sequence[Any]], directory: str, group: Any) -> None:
    """All ranks together. of_ranks: what else each rank has to keep, on rank 0 alone; None elsewhere.

    `model` there is model.state_dict(), `optimizer` a list of the optimisers' state_dict(). Errors: OSError, on all ranks if on one.
    """
    dcp = need_dcp()
    tree: dict[str, Any] = {"model": model.state_dict(), "optimizer": [one.state_dict() for one in optimizers]}
    for rank, kept in enumerate(of_ranks or ()):
        file = io.BytesIO()
        torch.save(kept, file)
        tree.setdefault("ranks", {})[str(rank)] = file.getvalue()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that there is no process group, where there need be none
            dcp.save(tree, checkpoint_id=directory, process_group=group)
    except BaseException as failure:  # DCP's CheckpointException is one
        if isinstance(failure, (KeyboardInterrupt, SystemExit)):
            raise
        raise OSError(_reason(failure, directory)) from None


def _place(tree: Any, path: Sequence[Any], value: Any) -> None:
    """Puts it into dicts (keys) and lists (numbers), which are made where they are missing."""
    for key, then in zip(path, [*path[1:], None]):
        if isinstance(key, int):
            tree.extend([None] * (key + 1 - len(tree)))
        if then is None:
            tree[key] = value
        else:
            made = tree[key] if isinstance(key, int) else tree.get(key)
            tree[key] = made if made is not None else [] if isinstance(then, int) else {}
            tree = tree[key]


def _empty(about: Any, path: Sequence[Any], optimizers: Sequence[Any]) -> Any:
    """Where a tensor of an optimiser's state is read to: sharded as its parameter is, if it has its shape. None for what is no tensor."""
    if not hasattr(about, "size") or not hasattr(about, "properties"):
        return None
    if path[0] == "optimizer" and path[2] == "state":
        parameter = [one for group in optimizers[int(path[1])].param_groups for one in group["params"]][int(path[3])]
        if is_sharded(parameter) and parameter.shape == about.size:
            return like(torch.empty(local(parameter).shape, dtype=about.properties.dtype), parameter)
    return torch.empty(about.size, dtype=about.properties.dtype)


def _wanted(metadata: Any, model: Mapping[str, Any], optimizers: Sequence[Any]) -> Iterator[tuple[str, Sequence[Any], Any]]:
    """(DCP's key, path, what it is read into)."""
    for key, path in metadata.planner_data.items():
        if path[0] == "optimizer" and int(path[1]) >= len(optimizers):
            raise Refused(f"the checkpoint is of more optimisers than the {len(optimizers)} of this program")
        if path[0] == "model" and path[1] not in model:
            raise Refused(f"the checkpoint has '{path[1]}', and this program's model has not")
        yield key, path, model[path[1]] if path[0] == "model" else _empty(metadata.state_dict_metadata[key], path, optimizers)


def read_dcp(model: Any, optimizers: Sequence[Any], directory: str, rank: int, group: Any) -> Any:
    """All ranks together, of any number. Gives what of_ranks had for this rank, or for the last. Errors: Refused for another program's."""
    dcp = need_dcp()
    own = model.state_dict()
    metadata = dcp.FileSystemReader(directory).read_metadata()
    wanted = list(_wanted(metadata, own, optimizers))
    missing = [name for name in own if f"model.{name}" not in metadata.planner_data]
    if missing:
        raise Refused(f"{directory} has no '{missing[0]}', which this program's model has")
    values = {key: value for key, _, value in wanted}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.load(values, checkpoint_id=directory, process_group=group)
    tree: dict[str, Any] = {}
    for key, path, _ in wanted:
        _place(tree, path, values[key])
    model.load_state_dict(tree["model"])
    for optimizer, kept in zip(optimizers, tree.get("optimizer", [])):
        state = {int(number): values for number, values in kept.get("state", {}).items()}  # DCP makes keys of numbers texts
        optimizer.load_state_dict({"state": state, "param_groups": kept["param_groups"]})
    of_rank = tree["ranks"][str(min(rank, len(tree["ranks"]) - 1))]
    return torch.load(io.BytesIO(of_rank), map_location="cpu", weights_only=False)  # what this program wrote on this island


def first_reason(why: Optional[str], rank: int, ranks: int, group: Any) -> Optional[str]:
    """What one of the ranks has to say, to all of them."""
    if ranks == 1:
        return why
    said: list[Any] = [None] * ranks
    distributed.all_gather_object(said, why, group=group)
    return next((f"rank {number}: {one}" for number, one in enumerate(said) if one), None)
