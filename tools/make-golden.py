#!/usr/bin/python3
"""Writes tests/golden/*.safetensors: reference results of small models, computed with PyTorch.

Needs PyTorch (python3-torch) and nothing else; run it from anywhere, without arguments. The same
seed gives the same files. Everything is computed in double precision and stored as float32, so a
float32 program must agree with it up to its own rounding errors.

Each file holds, by name:
  value.NAME            initial weights                     grad.NAME   gradients of the first batch
  tokens, targets       [steps, batch * context] int32      logits      of the first batch, capped
  losses                [batch * context], first batch
  adamw.losses, muon.losses             mean loss of each step, before its update
  adamw.norms, muon.norms               gradient norm of each step, before clipping
  adamw.final.NAME, muon.final.NAME     every STRIDE-th weight after the last step
and in __metadata__ the sizes and settings, all as text.
"""
import json
import math
import os
import struct

import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "golden")
STRIDE = 7

LLAMA = dict(
    vocab=97, width=32, layers=2, heads=4, kv_heads=2, head_dim=8, ffn=44, context=24,
    activation="swiglu", rope="full", rope_theta=10000, qk_norm=0, attention_scale=0, softcap=0,
    tied=0, norm_epsilon=1e-5)
YARDSTICK = dict(
    vocab=61, width=32, layers=2, heads=2, kv_heads=2, head_dim=16, ffn=64, context=24,
    activation="relu2", rope="half", rope_theta=0, qk_norm=1, attention_scale=0.12, softcap=15,
    tied=0, norm_epsilon=1e-6)
TIED = dict(LLAMA, vocab=61, layers=1, tied=1, context=19)

BATCH = 2
TRAIN = dict(
    batch=BATCH, steps=10, warmup=3, final_rate=0.1, clip=1.0, stride=STRIDE,
    adamw_rate=3e-3, adamw_decay=0.1, adamw_beta1=0.9, adamw_beta2=0.95, adamw_epsilon=1e-8,
    muon_rate=0.02, muon_decay=0.05, muon_embedding_rate=0.3, muon_head_rate=0.003,
    muon_gain_rate=0.01, muon_other_decay=0.001, muon_beta1=0.8, muon_beta2=0.95,
    muon_epsilon=1e-10, muon_momentum=0.95, muon_momentum_start=0.85, muon_momentum_warmup=6)


def first_weights(c, generator):
    """Rounded to float32, so that both sides start from the same numbers."""
    normal = lambda spread, *size: torch.randn(*size, generator=generator) * spread
    gain = lambda n: 1 + normal(0.1, n)
    d, q, k = c["width"], c["heads"] * c["head_dim"], c["kv_heads"] * c["head_dim"]
    weights = {"embed.table": normal(1 if c["softcap"] else 0.5, c["vocab"], d)}
    for i in range(c["layers"]):
        block = {
            "attention.norm": gain(d),
            "attention.q": normal(d**-0.5, q, d),
            "attention.k": normal(d**-0.5, k, d),
            "attention.v": normal(d**-0.5, k, d),
            "attention.out": normal(0.5 * q**-0.5, d, q),
            "mlp.norm": gain(d),
            "mlp.gate": normal(d**-0.5, c["ffn"], d),
            "mlp.up": normal(d**-0.5, c["ffn"], d),
            "mlp.down": normal(0.5 * c["ffn"]**-0.5, d, c["ffn"]),
        }
        if c["activation"] == "relu2":
            del block["mlp.gate"]
        weights.update({f"blocks.{i}.{name}": w for name, w in block.items()})
    weights["head.norm"] = gain(d)
    if not c["tied"]:
        weights["head.out"] = normal(d**-0.5, c["vocab"], d)
    return {name: w.float().double().requires_grad_() for name, w in weights.items()}


def rms(x, epsilon, gain=1):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + epsilon) * gain


def angles(c):
    pairs = c["head_dim"] // 2
    if c["rope"] == "full":
        turn = c["rope_theta"] ** (-torch.arange(pairs) / pairs)
    else:
        turn = torch.cat([(1 / 1024) ** torch.linspace(0, 1, pairs // 2), torch.zeros(pairs // 2)])
    return torch.outer(torch.arange(c["context"], dtype=torch.float64), turn)


def rotate(x, angle):
    a, b = x.chunk(2, -1)
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)


def attention(c, w, x):
    n, t, _ = x.shape
    heads = lambda y, count: y.view(n, t, count, c["head_dim"]).transpose(1, 2)
    q, k = heads(x @ w["q"].T, c["heads"]), heads(x @ w["k"].T, c["kv_heads"])
    v = heads(x @ w["v"].T, c["kv_heads"])
    if c["qk_norm"]:
        q, k = rms(q, c["norm_epsilon"]), rms(k, c["norm_epsilon"])
    q, k = rotate(q, angles(c)), rotate(k, angles(c))
    group = c["heads"] // c["kv_heads"]  # query heads that share a key head are adjacent
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = q @ k.transpose(-2, -1) * (c["attention_scale"] or c["head_dim"]**-0.5)
    scores = scores.masked_fill(torch.ones(t, t, dtype=torch.bool).triu(1), -math.inf)
    return (scores.softmax(-1) @ v).transpose(1, 2).reshape(n, t, -1) @ w["out"].T


def mlp(c, w, x):
    if c["activation"] == "relu2":
        return F.relu(x @ w["up"].T).square() @ w["down"].T
    return (F.silu(x @ w["gate"].T) * (x @ w["up"].T)) @ w["down"].T


def logits_of(c, weights, tokens):
    x = weights["embed.table"][tokens.view(BATCH, c["context"])]
    for i in range(c["layers"]):
        for layer, run in (("attention", attention), ("mlp", mlp)):
            prefix = f"blocks.{i}.{layer}."
            w = {n[len(prefix):]: v for n, v in weights.items() if n.startswith(prefix)}
            x = x + run(c, w, rms(x, c["norm_epsilon"], w["norm"]))
    x = rms(x, c["norm_epsilon"], weights["head.norm"])
    logits = x @ weights["embed.table" if c["tied"] else "head.out"].T
    logits = logits.view(-1, c["vocab"])
    cap = c["softcap"]
    return logits / (1 + (logits / cap).square()).sqrt() if cap else logits


def role(name):
    if name == "embed.table":
        return "embedding"
    if name == "head.out":
        return "head"
    return "gain" if name.endswith("norm") else "matrix"


def factor(step):
    """The learning-rate factor of a step, counted from 0."""
    t = TRAIN
    if step < t["warmup"]:
        return (step + 1) / t["warmup"]
    return 1 - (1 - t["final_rate"]) * (step - t["warmup"]) / (t["steps"] - t["warmup"])


def adamw(weights):
    t = TRAIN
    groups = [dict(params=[w for n, w in weights.items() if (role(n) == "gain") == is_gain],
                   weight_decay=0 if is_gain else t["adamw_decay"], full=t["adamw_rate"])
              for is_gain in (False, True)]
    return torch.optim.AdamW(groups, lr=0, betas=(t["adamw_beta1"], t["adamw_beta2"]),
                             eps=t["adamw_epsilon"])


def adamw_of_the_rest(weights):
    t = TRAIN
    groups = [dict(params=[w for n, w in weights.items() if role(n) == kind],
                   weight_decay=t["muon_other_decay"], full=t[f"muon_{kind}_rate"])
              for kind in ("embedding", "head", "gain")]
    groups = [g for g in groups if g["params"]]
    return torch.optim.AdamW(groups, lr=0, betas=(t["muon_beta1"], t["muon_beta2"]),
                             eps=t["muon_epsilon"])


def newton_schulz(x):
    tall = x.size(0) > x.size(1)
    x = x.T if tall else x
    x = x / (x.norm() + 1e-7)
    for _ in range(8):
        a = x @ x.T
        x = 2 * x + (-1.5 * a + 0.5 * a @ a) @ x
    return x.T if tall else x


@torch.no_grad()
def muon_step(weights, momenta, step):
    t = TRAIN
    warm = min(step / t["muon_momentum_warmup"], 1)
    b = t["muon_momentum_start"] + (t["muon_momentum"] - t["muon_momentum_start"]) * warm
    rate = t["muon_rate"] * factor(step)
    for name, w in weights.items():
        if role(name) != "matrix":
            continue
        m = momenta.setdefault(name, torch.zeros_like(w))
        m.lerp_(w.grad, 1 - b)
        u = newton_schulz(w.grad.lerp(m, b))
        w.mul_(1 - rate * t["muon_decay"])
        w.sub_(u, alpha=rate * max(1, w.size(0) / w.size(1)) ** 0.5)


def train(kind, c, weights, tokens, targets):
    """Trains a copy of the weights for ten steps; returns losses, norms and the final weights."""
    weights = {n: w.detach().clone().requires_grad_() for n, w in weights.items()}
    optimizer = (adamw if kind == "adamw" else adamw_of_the_rest)(weights)
    momenta, losses, norms = {}, [], []
    for step in range(TRAIN["steps"]):
        loss = F.cross_entropy(logits_of(c, weights, tokens[step]), targets[step])
        optimizer.zero_grad()
        for w in weights.values():
            w.grad = None
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(weights.values(), TRAIN["clip"]).item())
        losses.append(loss.item())
        for group in optimizer.param_groups:
            group["lr"] = group["full"] * factor(step)
        optimizer.step()
        if kind == "muon":
            muon_step(weights, momenta, step)
    assert max(norms) > TRAIN["clip"], "no step was clipped"
    return losses, norms, weights


def write(path, tensors, metadata):
    header, data, offset = {"__metadata__": {k: str(v) for k, v in metadata.items()}}, [], 0
    for name, t in tensors.items():
        t = t.detach().float() if t.is_floating_point() else t.int()
        raw = t.contiguous().numpy().astype("<f4" if t.is_floating_point() else "<i4").tobytes()
        header[name] = dict(dtype="F32" if t.is_floating_point() else "I32", shape=list(t.shape),
                            data_offsets=[offset, offset + len(raw)])
        data.append(raw)
        offset += len(raw)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + b"".join(data))
    return 8 + len(text) + offset


def make(name, c, seed):
    generator = torch.Generator().manual_seed(seed)
    weights = first_weights(c, generator)
    size = (TRAIN["steps"], BATCH * c["context"])
    tokens = torch.randint(c["vocab"], size, generator=generator)
    targets = torch.randint(c["vocab"], size, generator=generator)
    logits = logits_of(c, weights, tokens[0])
    losses = F.cross_entropy(logits, targets[0], reduction="none")
    losses.mean().backward()
    tensors = {f"value.{n}": w for n, w in weights.items()}
    tensors.update({f"grad.{n}": w.grad for n, w in weights.items()})
    tensors.update(tokens=tokens, targets=targets, logits=logits, losses=losses)
    report = [f"{name}: loss {losses.mean().item():.4f}"]
    for kind in ("adamw", "muon"):
        curve, norms, final = train(kind, c, weights, tokens, targets)
        tensors[f"{kind}.losses"], tensors[f"{kind}.norms"] = torch.tensor(curve), torch.tensor(norms)
        tensors.update({f"{kind}.final.{n}": w.flatten()[::STRIDE] for n, w in final.items()})
        report.append(f"{kind} to {curve[-1]:.4f}")
    path = os.path.join(FOLDER, name + ".safetensors")
    report.append(f"{write(path, tensors, {**c, **TRAIN})} bytes")
    print(", ".join(report))


if __name__ == "__main__":
    torch.set_num_threads(1)
    make("llama", LLAMA, 1)
    make("yardstick", YARDSTICK, 2)
    make("tied", TIED, 3)
