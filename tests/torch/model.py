"""The model and what its boundaries compute, as docs/codecs.md says; gradients are PyTorch's."""
import math

import numpy as np
import torch
import torch.nn.functional as F

import wire


def rms(v, epsilon=1e-6):
    return v * torch.rsqrt(v.square().mean(-1, keepdim=True) + epsilon)


def earlier(v, j):
    """Row i - j of each sequence; zeros before its start."""
    return F.pad(v, (0, 0, j, 0))[:, :v.shape[1]]


def conv(v, w):
    return v + sum(w[j] * earlier(v, j) for j in range(len(w)))


def last(v, n=4):
    return torch.cat([earlier(v, j) for j in range(n)], -1)


class Crossing(torch.autograd.Function):
    """One microbatch over a boundary: activations forward, gradients backward."""

    @staticmethod
    def forward(ctx, u, model, place):
        ctx.model, ctx.place = model, place
        return model.restored(u, place, is_gradient=False)

    @staticmethod
    def backward(ctx, g):
        return ctx.model.restored(g, ctx.place, is_gradient=True), None, None


class Model:
    """Parameters by name, with their roles; `case` is a dictionary of settings (compare.py)."""

    def __init__(self, case):
        self.__dict__.update(case)
        self.is_context = self.variant == "context"
        self.has_additions = self.is_context or self.ratio > 0
        self.is_factored = self.variant == "factored"
        self.is_confined = self.codec == "subspace" and not self.is_factored
        self.is_llama = self.family == "llama"
        self.params, self.roles, self.starts = {}, {}, {}
        self.firsts = [sum(self.split[:s]) for s in range(len(self.split))]
        self.ends = [sum(self.split[:s + 1]) - 1 for s in range(len(self.split))]
        self.add_normal("embed.table", "embedding", self.vocab,
                        self.keep if self.is_factored else self.width)
        for i in range(self.layers):
            self.add_block(i)
        self.add("head.norm", "gain", np.ones(self.width))
        self.add_normal("head.out", "head", self.vocab, self.width)
        for i in range(len(self.split) - 1):
            self.add_boundary(i, f"boundary.{i}.head.", f"boundary.{i}.tail.")
        if self.codec == "subspace":
            self.basis = torch.from_numpy(self.draw_basis("subspace.basis"))
            fixed = wire.normal(self.seed, "subspace.fixed", (self.vocab, self.width), 1)
            self.fixed = torch.from_numpy(fixed)
            self.gram = torch.zeros_like(self.basis)
        if self.is_confined:
            self.confine()

    # Parameters and their initial values.

    def add(self, name, role, value):
        self.params[name] = torch.from_numpy(np.array(value, np.float32)).requires_grad_()
        self.roles[name] = role

    def add_normal(self, name, role, rows, cols, stream=None):
        """With the model's own deviation."""
        if self.init == "llama":
            deviation = 0.02 / math.sqrt(2 * self.layers) if role.startswith("out") else 0.02
        else:
            tables = {"embedding": 1, "table": 1}
            deviation = tables.get(role, math.sqrt(0.33 / cols) if role == "matrix" else 0)
        self.add(name, role, wire.normal(self.seed, stream or name, (rows, cols), deviation))

    def add_drawn(self, name, role, rows, cols, deviation):
        """A tensor of a boundary, whose deviation is f32."""
        values = wire.normal(self.seed, name, (rows, cols), np.float32(deviation))
        self.add(name, role, values)

    def draw_basis(self, name):
        return wire.gram_schmidt(wire.normal(self.seed, name, (self.width, self.keep), 1))

    def add_block(self, i):
        d, b = self.width, f"blocks.{i}."
        out = "out-last" if i >= self.firsts[-1] else "out"
        ffn = math.ceil(8 * d / 48) * 16 if self.is_llama else 4 * d
        for part in "attention", "mlp":
            self.add(b + part + ".norm", "gain", np.ones(d))
        for part in "qkv":
            self.add_normal(b + "attention." + part, "matrix", d, d)
        written = self.keep if self.is_factored and out == "out" else d
        self.add_normal(b + "attention.out", out, written, d)
        for part in ("gate", "up") if self.is_llama else ("up",):
            self.add_normal(b + "mlp." + part, "matrix", ffn, d)
        self.add_normal(b + "mlp.down", out, written, ffn)
        if self.has_additions:
            is_local = i % self.local_every == 0
            for part in ("conv",) * is_local + ("attention.conv", "mlp.conv"):
                self.add(b + part, "conv", np.zeros((4, d)))
            self.add(b + "attention.qkv_conv", "conv", np.zeros((4, 3 * d)))
            if is_local:
                self.add(b + "attention.values", "values", np.zeros((self.vocab, d)))
            if is_local and i > 0:
                self.add_normal(b + "anchor", "table", self.vocab, d, stream="embed.table")
        if self.codec == "resbm" and self.variant == "b":
            draw = lambda name, rows, cols: self.add(name, "matrix", wire.normal(
                self.seed, name, (rows, cols), 1 / math.sqrt(cols)))
            if i in self.firsts[1:]:
                draw(b + "dec", d, self.keep)
            if i in self.ends[:-1]:
                draw(b + "enc", self.keep, d)

    def add_boundary(self, i, sender, receiver):
        d, k = self.width, self.keep
        if self.codec == "resbm" and self.variant == "a":
            m = max(4 * k, 256)
            for side, ins, outs in (sender, d, k), (receiver, k, d):
                self.add_drawn(side + "W1", "boundary", m, ins, math.sqrt(0.33 / ins))
                self.add_drawn(side + "W2", "boundary", outs, m, math.sqrt(0.33 / m))
        if self.codec != "strait":
            return
        e_deviation, d_columns = math.sqrt(0.33 / d), 4 * k if self.is_context else k
        self.add_drawn(sender + "E", "basis", k, d, e_deviation)
        self.add_drawn(receiver + "D", "boundary", d, d_columns, 1 / math.sqrt(k))
        m = 512 if self.is_context else 8 * k
        self.add_drawn(receiver + "V", "boundary", m, d_columns, 1 / math.sqrt(d_columns))
        self.add(receiver + "W", "boundary", np.zeros((d, m)))
        if self.variant == "tied":
            basis = self.draw_basis("strait.frame")
            self.add(sender + "E", "basis", basis.T)
            self.add(receiver + "D", "boundary", basis)
        if not self.is_context:
            r = min(128, d)
            self.add_drawn(receiver + "T", "table", self.vocab, r, 1)
            self.add_drawn(receiver + "P", "boundary", d, r, 1 / math.sqrt(r))
            return
        with torch.no_grad():
            self.params[receiver + "D"][:, k:] = 0
        self.add_drawn(sender + "A", "boundary", 256, d, e_deviation)
        self.add(sender + "B", "boundary", np.zeros((k, 256)))
        if self.ratio:
            basis = self.draw_basis("strait.frame")
            self.add(sender + "E", "basis", basis.T)
            with torch.no_grad():
                self.params[receiver + "D"][:, :k] = torch.from_numpy(basis)
        if i > 0:
            self.add(sender + "M", "mixing", np.eye(k))
        for side in sender, receiver:
            if self.ratio:
                r = math.ceil(d / 64) * 8
                self.add_drawn(side + "P", "gate", r, d, e_deviation)
                self.add(side + "Q", "gate", np.zeros((d, r)))
            else:
                self.add(side + "G", "values", np.zeros((self.vocab, d)))

    # Codec subspace.

    def confined(self):
        return [name for name, role in self.roles.items() if role == "out"]

    @torch.no_grad()
    def confine(self):
        """after_update: weights and embedding return to the span of the basis."""
        u, table = self.basis, self.params["embed.table"]
        for name in self.confined():
            self.params[name].copy_(u @ (u.T @ self.params[name]))
        table.copy_(self.fixed + (table - self.fixed) @ u @ u.T)

    def collect(self, g):
        """What a basis update needs of a gradient at the receiver of the last boundary."""
        g = g.flatten(0, 1)
        self.gram += g.T @ (g @ self.basis)

    @torch.no_grad()
    def update_basis(self, states):
        """Moves the basis; carries weights and the optimizer's states over to it."""
        u, a = self.basis.double(), self.gram.double()
        step = 0.1 * self.keep / torch.trace(u.T @ a) * (a - u @ (u.T @ a))
        self.basis = torch.from_numpy(wire.gram_schmidt((u + step).numpy()))
        self.gram.zero_()
        if self.is_confined:
            self.confine()
            for name in self.confined():
                m, v = states[name]
                states[name] = self.basis @ (self.basis.T @ m), v
            m, v = states["embed.table"]
            states["embed.table"] = m @ self.basis @ self.basis.T, v
            return
        turn = (u.T @ self.basis.double()).float()
        for name in self.confined():  # with Muon
            self.params[name].copy_(turn.T @ self.params[name])
            states[name] = turn.T @ states[name]
        table = self.params["embed.table"]
        table.copy_(table @ turn)
        m, v = states["embed.table"]
        states["embed.table"] = m @ turn, v @ turn.square()

    # Payloads.

    def restored(self, x, place, is_gradient):
        rows = np.ascontiguousarray(x.detach().numpy().reshape(-1, x.shape[-1]))
        r = None
        if is_gradient and self.bits < 16:
            stream = wire.stream_of("codec.rounding")
            for part in place:  # boundary, step, microbatch
                stream = wire.u64(self.seed, stream, part)
            r = wire.uniform(self.seed, stream, rows.size)
        if self.codec == "int4":
            out = wire.rotate(wire.payload(wire.rotate(rows, self.tile), 4, r), self.tile)
        elif self.codec == "topk":
            out = wire.topk(rows, self.width // 16)
        elif self.codec == "lowrank":
            out = self.low_rank(rows, (place[0], is_gradient))
        elif self.is_context:
            out = wire.log_scale(rows, r)
        else:
            out = wire.payload(rows, self.bits, r)
        return torch.from_numpy(np.ascontiguousarray(out.reshape(x.shape)))

    def low_rank(self, x, side):
        shape = (self.width, 16)
        first = wire.gram_schmidt(wire.normal(self.seed, "lowrank.first", shape, 1))
        left = wire.gram_schmidt(x @ self.starts.get(side, first))
        right = x.T @ left
        self.starts[side] = wire.gram_schmidt(right) + np.float32(1e-4) * first
        return wire.payload(left, self.bits) @ wire.payload(right, self.bits).T

    # The model.

    def norm(self, x, name):
        return rms(x, 1e-5 if self.is_llama else 1e-6) * self.params[name]

    def rotated(self, x):
        """The rotary position embedding."""
        h = x.shape[-1]
        if self.is_llama:
            angles = 10000.0 ** (-torch.arange(h // 2).double() / (h // 2))
        else:
            angles = 1024.0 ** (-torch.arange(h // 4).double() / (h // 4 - 1))
            angles = torch.cat([angles, torch.zeros(h // 4).double()])
        angles = torch.outer(torch.arange(x.shape[-2]).double(), angles)
        cos, sin = angles.cos().float(), angles.sin().float()
        p, r = x.chunk(2, -1)
        return torch.cat([p * cos - r * sin, r * cos + p * sin], -1)

    def attention(self, i, x, t):
        p, b = self.params, f"blocks.{i}.attention."
        h = self.norm(x, b + "norm")
        if self.has_additions:
            h = conv(h, p[b + "conv"])
        qkv = [h @ p[b + name].T for name in "qkv"]
        if self.has_additions:
            if b + "values" in p:
                qkv[2] = qkv[2] + p[b + "values"][t]
            qkv = conv(torch.cat(qkv, -1), p[b + "qkv_conv"]).chunk(3, -1)
        split = lambda a: a.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        query, key, value = (split(a) for a in qkv)
        if not self.is_llama:
            query, key = rms(query), rms(key)
        scale = 1 / math.sqrt(query.shape[-1]) if self.is_llama else 0.12
        scores = scale * self.rotated(query) @ self.rotated(key).transpose(-1, -2)
        later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        out = scores.masked_fill(later, -math.inf).softmax(-1) @ value
        return self.output(out.transpose(1, 2).flatten(-2), b + "out")

    def mlp(self, i, a):
        p, b = self.params, f"blocks.{i}.mlp."
        h = self.norm(a, b + "norm")
        if self.has_additions:
            h = conv(h, p[b + "conv"])
        up = h @ p[b + "up"].T
        h = F.silu(h @ p[b + "gate"].T) * up if self.is_llama else up.relu().square()
        return self.output(h, b + "down")

    def output(self, h, name):
        """What a residual output projection writes to the stream."""
        y = h @ self.params[name].T
        return y @ self.basis.T if self.is_factored and self.roles[name] == "out" else y

    def logits(self, t, step, microbatch):
        """t [sequences x context]."""
        p, x, z = self.params, self.params["embed.table"][t], None
        if self.is_factored:
            x = self.fixed[t] + x @ self.basis.T
        for s, first in enumerate(self.firsts):
            skip = None
            if s > 0:
                z = Crossing.apply(u, self, (s - 1, step, microbatch))
                x, skip = self.receive(s - 1, z, t)
            for i in range(first, first + self.split[s]):
                b = f"blocks.{i}."
                if b + "anchor" in p:
                    x = x + p[b + "anchor"][t]
                if b + "conv" in p:
                    x = conv(x, p[b + "conv"])
                stream = x
                if i == first:
                    x_in, stream = x, x if skip is None else skip
                a = stream + self.attention(i, x, t)
                o = self.mlp(i, a)
                x = a + o
            if s + 1 < len(self.firsts):
                u = self.send(s, z, x_in, x, t, (a, o))
        l = self.norm(x, "head.norm") @ p["head.out"].T
        return l if self.is_llama else l / torch.sqrt(1 + (l / 15).square())

    def gates(self, stage, side, t):
        """1 + G[t] or 1 + H[t]: of a table, or computed from the token table of the stage."""
        get = lambda name: self.params[side + name]
        if not self.ratio:
            return 1 + get("G")[t]
        table = self.params[f"blocks.{self.firsts[stage]}.anchor" if stage else "embed.table"]
        return 1 + F.silu(rms(table.detach()[t]) @ get("P").T) @ get("Q").T

    def send(self, i, z, x, y, t, parts):
        get = lambda name: self.params[f"boundary.{i}.head.{name}"]
        if self.codec == "subspace":
            return (y - self.fixed[t]) @ self.basis
        if self.codec == "resbm" and self.variant == "a":
            return y[..., :self.keep] + F.silu(rms(y) @ get("W1").T) @ get("W2").T
        if self.codec == "resbm":
            a, o = parts
            return a[..., :self.keep] + F.silu(o) @ self.params[f"blocks.{self.ends[i]}.enc"].T
        if self.codec != "strait":
            return y
        if not self.is_context:
            return (y - x) @ get("E").T + (0 if z is None else z)
        gated = self.gates(i, f"boundary.{i}.head.", t) * (y - x)
        u = gated @ get("E").T + F.silu(rms(y) @ get("A").T) @ get("B").T
        return u if z is None else u + z @ get("M").T

    def receive(self, i, z, t):
        """The input of the next stage, and for resbm b what its first attention is added to."""
        get = lambda name: self.params[f"boundary.{i}.tail.{name}"]
        padded = F.pad(z, (0, self.width - z.shape[-1]))
        if self.codec == "subspace":
            x = z @ self.basis.T + self.fixed[t]
            if i == len(self.split) - 2 and self.basis_every:
                x.register_hook(self.collect)
            return x, None
        if self.codec == "resbm" and self.variant == "a":
            return padded + F.silu(z @ get("W1").T) @ get("W2").T, None
        if self.codec == "resbm":
            return F.relu(z @ self.params[f"blocks.{self.firsts[i + 1]}.dec"].T), padded
        if self.codec != "strait":
            return z, None
        if not self.is_context:
            decoded = z @ get("D").T + F.silu(rms(z) @ get("V").T) @ get("W").T
            return decoded + get("T")[t] @ get("P").T, None
        v = last(z) @ get("D").T + F.silu(last(rms(z)) @ get("V").T) @ get("W").T
        return self.gates(i + 1, f"boundary.{i}.tail.", t) * v, None
