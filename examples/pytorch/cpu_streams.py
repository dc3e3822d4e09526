"""What FSDP2 of PyTorch 2.4 to 2.6 asks of a processor and does not find: its streams have no events there. Later ones have them."""
import torch

if not hasattr(torch.cpu.Stream, "record_event"):
    torch.cpu.Stream.record_event = lambda self, event=None: torch.cpu.Event()
    torch.cpu.Stream.wait_event = lambda self, event: None
    if not torch.cuda.is_available():
        torch.cuda.current_stream = torch.cpu.current_stream  # it asks for this one whatever the device is
