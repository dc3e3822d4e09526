"""Runs a program under a PyTorch whose FSDP2 does not know CPUs (2.6): `fsdp_on_cpu.py PROGRAM ARGUMENTS…`. Its stand-in for a stream
has no events."""

import os
import runpy
import sys

import torch

if not hasattr(torch.cpu.Stream, "record_event"):
    torch.cpu.Stream.record_event = lambda self, event=None: torch.cpu.Event()
    torch.cpu.Stream.wait_event = lambda self, event: None
    if not torch.cuda.is_available():
        torch.cuda.current_stream = torch.cpu.current_stream  # it asks for this one whatever the device is

if __name__ == "__main__":
    sys.argv = sys.argv[1:]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    runpy.run_path(sys.argv[0], run_name="__main__")
