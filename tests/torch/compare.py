"""Trains small models in PyTorch by docs/codecs.md alone and compares their losses with Strait's.

    python3 tests/torch/compare.py STRAIT [CASE...]

Each case is a run of 20 steps in three stages, one codec each. The run starts from weights and
tokens that this program derives itself from the seed. Prints the largest difference of the losses
of a case; exits with 1 if one is too large, and with 77 where PyTorch is missing, or with 1 if
STRAIT_NEEDS_TORCH is set. The page and the program cannot drift apart unnoticed: what a reader of
the page computes is what is computed here.
"""
import json
import math
import os
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import torch
    import torch.nn.functional as F
except ImportError as error:
    is_needed = bool(os.environ.get("STRAIT_NEEDS_TORCH"))
    print(f"{'failed, because STRAIT_NEEDS_TORCH is set' if is_needed else 'skipped'}: {error}")
    sys.exit(1 if is_needed else 77)

import wire
from model import Model

TOLERANCE = 1e-3
# Rounding to codes amplifies the last bits of sums with every step. A wrong formula shows at once.
EARLY_STEPS, EARLY_TOLERANCE = 5, 1e-5

DEFAULTS = {
    "family": "yardstick", "init": "yardstick", "width": 64, "layers": 4, "heads": 4, "vocab": 300,
    "context": 32, "seed": 1, "steps": 20, "sequences": 16, "microbatch": 4, "split": [1, 2, 1],
    "local_every": 1,
    "optimizer": "muon", "codec": "none", "variant": "", "keep": 0, "bits": 32, "tile": 64,
    "basis_every": 0,  # link.codec.grassmann_every
    "set_bits": 0,  # link.codec.bits, where it is not the codec's default
    "ratio": 0,  # link.codec.ratio of strait: the rule of new runs; 0: the rule of earlier ones
}

CASES = {
    "none-fp32": {"variant": "fp32"},
    "none-bf16": {"variant": "bf16", "bits": 16},
    "int8": {"codec": "int8", "bits": 8},
    # Where output projections start at 0, a stream crosses the second boundary as the first one
    # restored it, on the grid of its payload, and last bits decide on its scales.
    "int4": {"codec": "int4", "bits": 4, "init": "llama"},
    "topk": {"codec": "topk"},
    # At 16 bits losses differ by up to 3e-4, at 32 by 1e-6: the formula is right, its rounding is
    # not stable enough for EARLY_TOLERANCE.
    "lowrank": {"codec": "lowrank", "set_bits": 32},
    "subspace": {"codec": "subspace", "variant": "full", "keep": 32, "bits": 16,
                 "optimizer": "adamw-rows"},
    "subspace-factored": {"codec": "subspace", "variant": "factored", "keep": 32, "bits": 16},
    "subspace-updates": {"codec": "subspace", "variant": "full", "keep": 8, "bits": 16,
                         "optimizer": "adamw-rows", "basis_every": 2},
    "subspace-factored-updates": {"codec": "subspace", "variant": "factored", "keep": 8, "bits": 16,
                                  "basis_every": 2},
    "resbm-a": {"codec": "resbm", "variant": "a", "keep": 32, "bits": 16},
    "resbm-b": {"codec": "resbm", "variant": "b", "keep": 32, "bits": 16},
    "strait-tied": {"codec": "strait", "variant": "tied", "keep": 32, "bits": 4},
    "strait-free": {"codec": "strait", "variant": "free", "keep": 32, "bits": 4},
    "strait-context": {"codec": "strait", "variant": "context", "keep": 31, "bits": 4},
    "context-one-microbatch": {"codec": "strait", "variant": "context", "keep": 31, "bits": 4,
                               "microbatch": 16},
    "strait-2x": {"codec": "int8", "bits": 8, "ratio": 2},
    "strait-8x": {"codec": "strait", "variant": "context", "keep": 31, "bits": 4, "ratio": 8},
    "strait-64x-two-layers": {"codec": "strait", "variant": "context", "keep": 7, "bits": 4,
                              "ratio": 64, "width": 128, "layers": 6, "split": [2, 2, 2],
                              "local_every": 2},
    "llama-adamw": {"variant": "fp32", "family": "llama", "init": "llama", "optimizer": "adamw"},
}

MUON_RATES = {"matrix": 0.02, "out": 0.02, "out-last": 0.02, "boundary": 0.02, "basis": 0.02,
              "embedding": 0.3, "table": 0.3, "head": 0.003, "values": 0.03, "gain": 0.01,
              "conv": 0.01, "mixing": 0.01}
CONTEXT_RATES = {"matrix": 0.045, "out": 0.0045, "out-last": 0.045, "boundary": 0.004,
                 "basis": 0.004, "embedding": 0.3, "table": 0.3, "head": 0.003, "values": 0.03,
                 "gain": 0.01, "conv": 0.02, "mixing": 0.001}
MATRICES = "matrix", "out", "out-last", "boundary", "basis", "gate"
TABLES = "embedding", "table", "head", "values"


def rates_by_ratio(ratio):
    """The learning rates of strait by its ratio."""
    out = float(f"{0.06 * math.sqrt(min(1, 4 / ratio)):.1e}")  # two digits
    return {**CONTEXT_RATES, "matrix": 0.06, "out": out, "out-last": 0.06, "basis": 0, "mixing": 0,
            "gate": 0.04}


class Optimizer:
    """AdamW, AdamW with row-wise second moments, or Muon, with the defaults of a run file."""

    def __init__(self, model):
        self.model, self.states = model, {}
        self.is_muon = model.optimizer == "muon"
        if self.is_muon:
            self.rates = CONTEXT_RATES if model.is_context else MUON_RATES
            if model.ratio:
                self.rates = rates_by_ratio(model.ratio)
            self.decay, self.table_decay, self.betas, self.epsilon = 0.05, 0.001, (0.8, 0.95), 1e-10
        else:
            self.rates = dict.fromkeys(MUON_RATES, 0.001)
            self.decay, self.table_decay, self.betas, self.epsilon = 0.1, 0.1, (0.9, 0.95), 1e-8

    def schedule(self, n):
        """n counts from 0."""
        if self.is_muon:
            return 1 - n / self.model.steps
        warmup = self.model.steps // 20
        if n < warmup:
            return (n + 1) / warmup
        t = (n - warmup) / (self.model.steps - warmup)
        return 1 - 0.9 * (1 - math.cos(math.pi * t)) / 2

    def gradients(self):
        """Summed over microbatches, then projected (subspace), then clipped (not with Muon)."""
        grads = {name: p.grad for name, p in self.model.params.items()}
        if self.model.is_confined:
            u = self.model.basis
            for name in self.model.confined():
                grads[name] = u @ (u.T @ grads[name])
            grads["embed.table"] = grads["embed.table"] @ u @ u.T
        norm = math.sqrt(sum(float(g.double().square().sum()) for g in grads.values()))
        if norm > 1 and not self.is_muon:
            grads = {name: g / norm for name, g in grads.items()}
        return grads

    @torch.no_grad()
    def step(self, n):
        f = self.schedule(n)
        for name, g in self.gradients().items():
            role, w = self.model.roles[name], self.model.params[name]
            rate = self.rates[role]
            if rate == 0:
                continue
            decay = self.decay * self.rates["matrix"] if role in MATRICES else 0
            if role in TABLES:
                decay = self.table_decay * rate
            if self.is_muon and role in MATRICES:
                update = self.muon(name, g, n) * math.sqrt(max(1, w.shape[0] / w.shape[1]))
            else:
                update = self.adamw(name, role, g, n)
            w.copy_((1 - decay * f) * w - rate * f * update)
        if self.model.is_confined:
            self.model.confine()
        if self.model.basis_every and (n + 1) % self.model.basis_every == 0:
            self.model.update_basis(self.states)

    def muon(self, name, g, n):
        mu = 0.85 + 0.10 * min(1, n / 300)
        m = mu * self.states.get(name, 0) + (1 - mu) * g
        self.states[name] = m
        x = mu * m + (1 - mu) * g
        x = x / (x.norm() + 1e-7)
        for _ in range(8):  # on the shorter side: the same function, fewer products
            square = x @ x.T if len(x) <= len(x.T) else x.T @ x
            times = lambda y: square @ y if len(x) <= len(x.T) else y @ square
            x = 2 * x - 1.5 * times(x) + 0.5 * times(times(x))
        return x

    def adamw(self, name, role, g, n):
        m, v = self.states.get(name, (0, 0))
        square = g.square()
        if self.model.optimizer == "adamw-rows" and role in ("out", "out-last", "embedding"):
            square = square.mean(1 if role == "embedding" else 0, keepdim=True)
        first, second = self.betas
        m, v = first * m + (1 - first) * g, second * v + (1 - second) * square
        self.states[name] = m, v
        return m / (1 - first**(n + 1)) / ((v / (1 - second**(n + 1))).sqrt() + self.epsilon)


def train(case, ids):
    """The losses of all steps, in PyTorch."""
    model = Model(case)
    optimizer, losses = Optimizer(model), []
    n_targets = model.sequences * model.context
    for step in range(model.steps):
        for p in model.params.values():
            p.grad = torch.zeros_like(p)
        losses.append(0)
        for microbatch in range(model.sequences // model.microbatch):
            first = step * model.sequences + microbatch * model.microbatch
            rows = [wire.sequence(ids, model.context, model.seed, first + j)
                    for j in range(model.microbatch)]
            t = torch.from_numpy(np.stack(rows))
            logits = model.logits(t[:, :-1], step, microbatch)
            loss = F.cross_entropy(logits.flatten(0, 1), t[:, 1:].flatten(), reduction="sum")
            (loss / n_targets).backward()
            losses[-1] += float(loss) / n_targets
        optimizer.step(step)
    return losses


def train_strait(strait, folder, case):
    """The losses that the program writes."""
    codec = (f'{{name: {case["codec"]}, variant: "{case["variant"]}", bits: {case["set_bits"]}, '
             f'keep: {case["keep"]}, grassmann_every: {case["basis_every"]}, rule: 1}}')
    if case["ratio"]:
        codec = f'{{name: strait, ratio: {case["ratio"]}}}'
    with open(f"{folder}/run.yaml", "w", encoding="utf-8") as f:
        f.write(f"""
model: {{family: {case["family"]}, init: {case["init"]}, width: {case["width"]},
        layers: {case["layers"]}, heads: {case["heads"]}, context: {case["context"]},
        vocab: {case["vocab"]}, local_every: {case["local_every"]}}}
data: {{train: train.bin}}
train: {{steps: {case["steps"]}, batch_tokens: {case["sequences"] * case["context"]},
        optimizer: {case["optimizer"]}, seed: {case["seed"]}, save_every: -1}}
stages: {{count: {len(case["split"])}, split: {case["split"]}, microbatch: {case["microbatch"]}}}
link: {{transport: inproc, codec: {codec}}}
device: {{kind: cpu, threads: 1, precision: fp32}}
""")
    out = tempfile.mkdtemp(dir=folder) + "/run"
    subprocess.run([strait, "train", f"{folder}/run.yaml", "-q", "--out", out], check=True)
    with open(f"{out}/metrics.jsonl", encoding="utf-8") as f:
        lines = [json.loads(line) for line in f]
    return [line["loss"] for line in lines if "grad_norm" in line]


def write_shard(path, vocab, n=40000):
    """Tokens that mostly follow from the one before, so that there is something to learn."""
    random = np.random.RandomState(1)
    following = random.randint(vocab, size=(vocab, 4))
    ids, t = np.empty(n, np.int64), 0
    for i in range(n):
        t = following[t, random.randint(4)] if random.rand() < 0.9 else random.randint(vocab)
        ids[i] = t
    header = np.zeros(256, "<u4")
    header[[0, 1, 2, 4]] = 20240520, 1, n, vocab
    with open(path, "wb") as f:
        f.write(header.tobytes() + ids.astype("<u2").tobytes())
    return ids


def main():
    strait, names = os.path.abspath(sys.argv[1]), sys.argv[2:] or CASES
    torch.set_num_threads(1)
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        ids = write_shard(f"{folder}/train.bin", DEFAULTS["vocab"])
        for name in names:
            case = {**DEFAULTS, **CASES[name]}
            expected = train_strait(strait, folder, case)
            assert len(expected) == case["steps"], f"{name}: {len(expected)} losses"
            gaps = np.abs(np.subtract(expected, train(case, ids)))
            early, all_steps = gaps[:EARLY_STEPS].max(), gaps.max()  # NaN if one is
            is_near = all_steps <= TOLERANCE and early <= EARLY_TOLERANCE
            failed += not is_near
            print(f"{name:24} {'ok' if is_near else 'FAILED'}: loss {expected[0]:.4f} to "
                  f"{expected[-1]:.4f}, differences up to {early:.1e} in {EARLY_STEPS} steps and "
                  f"{all_steps:.1e} in {len(gaps)}", flush=True)
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
