#!/usr/bin/env python3
"""torch_step.py [RUN.yaml] [options] - time training steps of a LLaMA-like model in PyTorch.

The opponent of `strait bench step` (docs/benchmarks.md): the same model, batch and optimizer on random tokens, written
as somebody who wants speed would write it in plain PyTorch. RMSNorm, rotary embedding, SwiGLU, an untied head and
AdamW with PyTorch's defaults. A run file of bench/ gives model, batch, threads and device; options win over it, and
without either the model is that of bench/cpu.yaml. Prints one JSON line; tokens_per_s is of the median step.

On a CPU: float32, or bf16 by autocast. On a GPU: bf16 by autocast (or fp32 with TF32 products), the fused AdamW,
gradients clipped to a norm of 1.
"""
import argparse
import json
import re
import statistics
import time

import torch
from torch import nn
from torch.nn import functional as F

MODEL = {"vocab": 4096, "width": 256, "layers": 4, "heads": 4, "ffn": 688, "context": 256}
OTHERS = {"batch": 8, "threads": 0, "device": "cpu"}
HAS_RMS_NORM = hasattr(F, "rms_norm")


def read_run(path):
    """Returns what a run file says of model and machine. It reads `key: value` lines only, as in bench/*.yaml."""
    with open(path, encoding="utf-8") as file:
        pairs = dict(re.findall(r"^ +(\w+): *([^\s#{\[]+)", file.read(), re.MULTILINE))
    if pairs.get("family") != "llama" or pairs.get("tied") != "false":
        raise SystemExit(f"torch_step.py: {path} has no LLaMA-like model with an untied head")
    missing = [key for key in (*MODEL, "batch_tokens") if key not in pairs]
    if missing:
        raise SystemExit(f"torch_step.py: {path} does not give {', '.join(missing)}")
    found = {key: int(pairs[key]) for key in (*MODEL, "threads") if key in pairs}
    found["batch"] = int(pairs["batch_tokens"]) // found["context"]
    return {**found, "device": pairs.get("kind", "cpu")}


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", nargs="?", help="a run file: its model, batch, threads and device are the defaults")
    for key, value in {**MODEL, **OTHERS}.items():
        if key != "device":
            parser.add_argument(f"--{key}", type=int, default=value)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--dtype", choices=("fp32", "bf16"), help="of products (default: bf16 on cuda, fp32 on a CPU)")
    parser.add_argument("--steps", type=int, default=20, help="steps that are timed (default 20)")
    parser.add_argument("--warm", type=int, default=5, help="steps before them (default 5)")
    parser.add_argument("--compile", action="store_true", help="use torch.compile")
    path = parser.parse_args().run
    if path is not None:
        parser.set_defaults(**read_run(path))
    options = parser.parse_args()
    if options.dtype is None:
        options.dtype = "bf16" if options.device == "cuda" else "fp32"
    if options.width % (2 * options.heads) != 0:
        parser.error("--width must be a multiple of twice --heads")
    if options.compile and not hasattr(torch, "compile"):
        parser.error(f"PyTorch {torch.__version__} has no torch.compile")
    return options


class RMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, x):
        if HAS_RMS_NORM:
            return F.rms_norm(x, self.gain.shape, self.gain, 1e-5)
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * self.gain


def rotate(x, cos, sin):
    """Rotary embedding: value i of a head and value i + half of it are one point in the plane."""
    first, second = x.chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x, cos, sin, mask):
        batch, context, width = x.shape
        qkv = self.qkv(x).view(batch, context, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        if mask is None:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = torch.matmul(q * q.shape[-1] ** -0.5, k.transpose(-2, -1))
            y = torch.matmul(torch.softmax(scores + mask, -1), v)
        return self.out(y.transpose(1, 2).reshape(batch, context, width))


class Block(nn.Module):
    """Gate and value of the MLP are one product on a GPU. On a CPU they are two: halves of one result are not
    contiguous, and what reads them takes longer than the one product saves."""

    def __init__(self, width, heads, ffn, device):
        super().__init__()
        self.norm_attention, self.norm_mlp = RMSNorm(width), RMSNorm(width)
        self.attention = Attention(width, heads)
        outputs = [2 * ffn] if device == "cuda" else [ffn, ffn]
        self.up = nn.ModuleList(nn.Linear(width, n, bias=False) for n in outputs)
        self.down = nn.Linear(ffn, width, bias=False)

    def forward(self, x, cos, sin, mask):
        x = x + self.attention(self.norm_attention(x), cos, sin, mask)
        y = self.norm_mlp(x)
        gate, value = self.up[0](y).chunk(2, -1) if len(self.up) == 1 else [up(y) for up in self.up]
        return x + self.down(F.silu(gate) * value)


class Llama(nn.Module):
    def __init__(self, options):
        super().__init__()
        half = options.width // options.heads // 2
        self.embedding = nn.Embedding(options.vocab, options.width)
        self.blocks = nn.ModuleList(
            Block(options.width, options.heads, options.ffn, options.device) for _ in range(options.layers))
        self.norm = RMSNorm(options.width)
        self.head = nn.Linear(options.width, options.vocab, bias=False)
        angles = torch.outer(torch.arange(options.context), 10000.0 ** (-torch.arange(half) / half))
        dtype = torch.bfloat16 if options.dtype == "bf16" else torch.float32
        self.register_buffer("cos", angles.cos().to(dtype), False)
        self.register_buffer("sin", angles.sin().to(dtype), False)
        # PyTorch before 2.0 has scaled_dot_product_attention as a private function only, which on a CPU makes a mask
        # in every call: it takes as long as this, or longer.
        self.mask = None
        if not hasattr(F, "scaled_dot_product_attention"):
            self.mask = torch.full((options.context, options.context), float("-inf")).triu(1).to(options.device)
        for weight in self.parameters():
            if weight.dim() > 1:
                nn.init.normal_(weight, std=0.02)

    def forward(self, tokens, targets):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, self.cos, self.sin, self.mask)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


def make_step(options):
    """Returns a function that trains one step and returns its loss, and the number of parameters."""
    on_gpu = options.device == "cuda"
    model = Llama(options).to(options.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4 if on_gpu else 3e-4,
                                  **({"fused": True} if on_gpu else {}))
    run = torch.compile(model) if options.compile else model
    tokens, targets = (torch.randint(options.vocab, (options.batch, options.context), device=options.device)
                       for _ in range(2))

    def step():
        with torch.autocast(options.device, torch.bfloat16, enabled=options.dtype == "bf16"):
            loss = run(tokens, targets)
        loss.backward()
        if on_gpu:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    return step, sum(weight.numel() for weight in model.parameters())


def main():
    options = parse()
    if options.threads > 0:
        torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    wait = torch.cuda.synchronize if options.device == "cuda" else lambda: None
    step, n_parameters = make_step(options)
    seconds = []
    for _ in range(options.warm + options.steps):
        wait()
        begin = time.perf_counter()
        loss = step()
        wait()
        seconds.append(time.perf_counter() - begin)
    median = statistics.median(seconds[options.warm:])
    print(json.dumps({
        "tokens_per_s": round(options.batch * options.context / median, 1), "seconds_per_step": median,
        "steps": options.steps, "loss": loss.item(), "parameters": n_parameters, "dtype": options.dtype,
        "device": torch.cuda.get_device_name() if options.device == "cuda" else "cpu",
        "device_bytes": torch.cuda.max_memory_allocated() if options.device == "cuda" else 0,
        "threads": torch.get_num_threads(), "is_compiled": options.compile, "torch": torch.__version__}))


if __name__ == "__main__":
    main()
