#!/usr/bin/env python3
"""torch_attention.py [options] - time causal attention and its gradient in PyTorch.

The opponent of `strait bench kernels --only attention` (docs/benchmarks.md): scaled_dot_product_attention with the same
shape, by itself, on random numbers. Prints one JSON line for each backend that PyTorch has for this device and shape:
microseconds of the forward and of the backward pass (medians), and the most bytes that both allocate beyond queries, keys,
values and the gradient of the output. The backend `default` is the one that PyTorch chooses.
"""
import argparse
import contextlib
import json
import statistics
import time

import torch
from torch.nn import functional as F

BACKENDS = {"default": None, "flash": "FLASH_ATTENTION", "cudnn": "CUDNN_ATTENTION",
            "efficient": "EFFICIENT_ATTENTION", "math": "MATH"}


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for key, value in {"sequences": 2, "context": 128, "heads": 4, "head-dim": 64, "repeats": 7, "warm": 3}.items():
        parser.add_argument(f"--{key}", type=int, default=value)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--dtype", choices=("fp32", "bf16"), help="default: bf16 on cuda, fp32 on a CPU")
    parser.add_argument("--backends", default="default", help=f"any of {','.join(BACKENDS)} (default: default)")
    options = parser.parse_args()
    options.backends = options.backends.split(",")
    for backend in options.backends:
        if backend not in BACKENDS:
            parser.error(f"--backends: {backend} is none of {','.join(BACKENDS)}")
    if options.dtype is None:
        options.dtype = "bf16" if options.device == "cuda" else "fp32"
    return options


def allow(backend):
    """Returns a context in which PyTorch may use one backend only, or any for `default`."""
    if BACKENDS[backend] is None:
        return contextlib.nullcontext()
    from torch.nn.attention import SDPBackend, sdpa_kernel
    return sdpa_kernel(getattr(SDPBackend, BACKENDS[backend]))


def attend(q, k, v):
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    # PyTorch before 2.0 has it as a private function that also returns the weights, or None.
    return F._scaled_dot_product_attention(q, k, v, None, 0.0, False, True)[0]


def timed(device, work):
    """Returns the result of work() and the microseconds that it takes on the device."""
    if device == "cpu":
        begin = time.perf_counter()
        return work(), (time.perf_counter() - begin) * 1e6
    events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    events[0].record()
    result = work()
    events[1].record()
    torch.cuda.synchronize()
    return result, events[0].elapsed_time(events[1]) * 1e3


def measure(options, backend):
    shape = options.sequences, options.context, options.heads, options.head_dim
    dtype = torch.bfloat16 if options.dtype == "bf16" else torch.float32
    torch.manual_seed(1)
    # Heads after tokens in memory, as a projection writes them.
    q, k, v, back = (torch.randn(shape, dtype=dtype, device=options.device).transpose(1, 2) for _ in range(4))
    inputs = [x.requires_grad_() for x in (q, k, v)]
    cuda = options.device == "cuda"
    before = torch.cuda.memory_allocated() if cuda else 0
    passes = []
    for _ in range(options.warm + options.repeats):
        y = gradients = None  # those of the last pass must not count as memory of this one
        y, forward = timed(options.device, lambda: attend(*inputs))
        gradients, backward = timed(options.device, lambda: torch.autograd.grad(y, inputs, back))
        passes.append((forward, backward))
    times = [statistics.median(column) for column in zip(*passes[options.warm:])]
    return {"forward_us": times[0], "backward_us": times[1],
            "peak_bytes": torch.cuda.max_memory_allocated() - before if cuda else None,
            "gradient_norm": float(torch.stack([g.float().norm() for g in gradients]).norm())}


def main():
    options = parse()
    for backend in options.backends:
        line = {"bench": "attention", "backend": backend, "torch": torch.__version__, "dtype": options.dtype,
                "sequences": options.sequences, "context": options.context, "heads": options.heads,
                "head_dim": options.head_dim}
        if options.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        try:
            with allow(backend):
                line.update(measure(options, backend))
        except (ImportError, RuntimeError) as error:  # a backend that does not take the shape, or is not built in
            line["error"] = str(error).splitlines()[0]
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
