"""A model that was trained by Strait, with its boundaries: equations as in Strait's docs/codecs.md.

Names of parameters are those of the checkpoint. Rows are tokens, matrices are [outputs, inputs].
Codes are rounded for every token by itself, as `strait generate` does. Sequences of a batch have one
length: there is no padding.
"""
import math

import torch
import torch.nn.functional as F
from torch import nn
from transformers import DynamicCache, GenerationMixin, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast

from .configuration_strait import StraitConfig


def rms(x, epsilon, gain=None):
    x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + epsilon)
    return x if gain is None else x * gain


class Past:
    """What earlier calls computed, in a cache of transformers: layer i of it has the keys and values
    of block i. Further layers have, as keys, the rows that convolutions and boundaries look back on,
    in the order in which a pass needs them. Without a cache there is only this call."""

    def __init__(self, cache, n_blocks):
        self.cache, self.next = cache, n_blocks
        self.length = 0 if cache is None else cache.get_seq_length()

    def heads(self, k, v, block):
        return (k, v) if self.cache is None else self.cache.update(k, v, block)

    def rows(self, x, n):
        """The rows x with up to n rows before them."""
        if self.cache is None: return x
        kept, _ = self.cache.update(x[:, None], x[:, None, :, :1], self.next)
        self.next += 1
        return kept[:, 0, -(x.shape[1] + n):]


def shift(rows, j, n):
    """The last n rows, each replaced by the one j before it; zeros before the start."""
    return F.pad(rows, (0, 0, j, 0))[:, rows.shape[1] - n: rows.shape[1]]


def conv(x, taps, past):
    """x_i + the sum over j of taps_j x_{i-j}, column by column."""
    rows, n = past.rows(x, taps.shape[0] - 1), x.shape[1]
    return x + sum(taps[j] * shift(rows, j, n) for j in range(taps.shape[0]))


def last(rows, count, n):
    """Each of the last n rows with the count - 1 rows before it, side by side."""
    return torch.cat([shift(rows, j, n) for j in range(count)], -1)


def take_rows(table, tokens):
    """Rows of a table by token id. Ids beyond its end share the last quarter by a fixed hash."""
    n, mask = table.shape[0], 0xffffffff
    h = tokens.long()
    h = ((h ^ h >> 16) * 0x85ebca6b) & mask
    h = ((h ^ h >> 13) * 0xc2b2ae35) & mask
    shared = max(1, n // 4)
    return table[torch.where(tokens < n, tokens, n - shared + (h ^ h >> 16) % shared)]


class Holder(nn.Module):
    """Parameters by name: sizes {"q": (rows, cols)}."""

    def __init__(self, sizes):
        super().__init__()
        for name, size in sizes.items():
            setattr(self, name, nn.Parameter(torch.zeros(*size)))


class Block(nn.Module):
    """attention and mlp with their residual connections, and what is before them in the stream."""

    def __init__(self, c, index):
        super().__init__()
        self.c, self.index, i = c, index, c.integer
        d, p, v, taps = c.hidden_size, c.head_dim, c.vocab_size, i("conv")
        queries, keys = c.num_attention_heads * p, c.num_key_value_heads * p
        is_local = index % max(1, i("local_every")) == 0
        attention = dict(norm=(d,), q=(queries, d), k=(keys, d), v=(keys, d), out=(d, queries))
        mlp = dict(norm=(d,), up=(c.intermediate_size, d), down=(d, c.intermediate_size))
        if i("qkv_bias"): attention["qkv_bias"] = (queries + 2 * keys,)
        if i("qk_gain"): attention["qk_gain"] = (2, p)
        if taps: attention["conv"] = mlp["conv"] = (taps, d)
        if i("qkv_conv"): attention["qkv_conv"] = (taps, queries + 2 * keys)
        rows = i("table_rows") or v
        if i("value_tables") and is_local: attention["values"] = (rows, keys)
        if i("activation") == 0: mlp["gate"] = (c.intermediate_size, d)
        self.attention, self.mlp = Holder(attention), Holder(mlp)
        if taps and is_local and not i("inner_conv"): self.conv = nn.Parameter(torch.zeros(taps, d))
        if i("anchors") and is_local and index: self.anchor = nn.Parameter(torch.zeros(rows, d))

    def prepare(self, x, tokens, past):
        """The input of attention's norm: what the sender of a boundary calls x."""
        if hasattr(self, "anchor"): x = x + take_rows(self.anchor, tokens)
        return conv(x, self.conv, past) if hasattr(self, "conv") else x

    def attend(self, x, tokens, angles, past):
        c, a, epsilon = self.c, self.attention, self.c.number("norm_epsilon")
        heads, groups, p = c.num_attention_heads, c.num_key_value_heads, c.head_dim
        h = rms(x, epsilon, a.norm)
        if hasattr(a, "conv"): h = conv(h, a.conv, past)
        qkv = torch.cat([h @ a.q.T, h @ a.k.T, h @ a.v.T], -1)
        if hasattr(a, "qkv_bias"): qkv = qkv + a.qkv_bias
        if hasattr(a, "values"):
            qkv = qkv + F.pad(take_rows(a.values, tokens), ((heads + groups) * p, 0))
        if hasattr(a, "qkv_conv"): qkv = conv(qkv, a.qkv_conv, past)
        q, k, v = (t.unflatten(-1, (-1, p)).transpose(1, 2)
                   for t in qkv.split([heads * p, groups * p, groups * p], -1))
        if c.integer("qk_norm"):
            gain = getattr(a, "qk_gain", (None, None))
            q, k = rms(q, epsilon, gain[0]), rms(k, epsilon, gain[1])
        q, k = rotate(q, angles), rotate(k, angles)
        k, v = past.heads(k, v, self.index)
        k, v = (t.repeat_interleave(heads // groups, 1) for t in (k, v))
        scores = q @ k.transpose(-1, -2) * (c.number("attention_scale") or p ** -0.5)
        future = torch.ones_like(scores[0, 0], dtype=torch.bool).triu(1 + past.length)
        weights = scores.masked_fill(future, -math.inf).softmax(-1)
        return (weights @ v).transpose(1, 2).flatten(2) @ a.out.T

    def mix(self, x, past):
        m = self.mlp
        h = rms(x, self.c.number("norm_epsilon"), m.norm)
        if hasattr(m, "conv"): h = conv(h, m.conv, past)
        up = h @ m.up.T
        hidden = F.silu(h @ m.gate.T) * up if hasattr(m, "gate") else F.relu(up).square()
        return hidden @ m.down.T


def rotate(x, angles):
    """Pairs (i, i + half) turn by position times angle."""
    a, b = x.chunk(2, -1)
    return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1)


def rope_angles(c, first, n, device):
    pairs = c.head_dim // 2
    i = torch.arange(pairs, dtype=torch.float64)
    if c.integer("rope") == 1:  # half
        turning = pairs // 2
        angle = torch.where(i < turning, 1024.0 ** (-i / max(1, turning - 1)), torch.zeros_like(i))
    else:
        angle = c.number("rope_theta") ** (-i / pairs)
    slow = angle / (c.number("rope_factor") or 1)
    if c.integer("rope_scaling") == 1: angle = slow
    if c.integer("rope_scaling") == 2:
        low, high = c.number("rope_low"), c.number("rope_high")
        share = ((c.number("rope_original") * angle / (2 * math.pi) - low) / (high - low)).clamp(0, 1)
        angle = (1 - share) * slow + share * angle
    return torch.outer(torch.arange(first, first + n, dtype=torch.float64), angle).float().to(device)


def payload(x, bits):
    """Codes at 32, 16, 8 or 4 bits; at 8 and 4 every row has its own scale."""
    if bits == 32: return x
    if bits == 16: return x.bfloat16().to(x.dtype)
    most = 127 if bits == 8 else 7
    scale = x.abs().amax(-1, keepdim=True).clamp_min(1e-30) / most
    return (x / scale).round().clamp(-most, most) * scale


def log_scale(u):
    """Four bits per value, with row scales in steps of sqrt(2): section "The log-scale payload"."""
    size = u.abs().amax(-1, keepdim=True)
    top = torch.exp2(torch.ceil(2 * torch.log2(size.double().clamp_min(1e-30))) / 2).to(u.dtype)
    scale = torch.where(size >= top * 0.840896415, top, top * 0.707106781)
    unit = scale / 8
    return torch.where(size > 0, ((u * (1 / unit)).floor().clamp(-8, 7) + 0.5) * unit, u)


class Boundary(nn.Module):
    """The codec between two stages: `head` is its sender, `tail` its receiver."""

    def __init__(self, c, index):
        super().__init__()
        i, d, v = c.integer, c.hidden_size, c.vocab_size
        self.name, self.variant = c.strait.get("codec.name"), c.strait.get("codec.variant")
        self.bits, self.k, self.n = i("codec.bits"), i("codec.keep"), i("codec.context")
        self.keeps_identity = not i("codec.without_identity")
        self.encodes_input = i("codec.encode_input") == 1 and index == 0
        k, m, n, r = self.k, i("codec.hidden"), self.n, i("codec.anchors")
        head, tail = {}, {}
        if self.name == "resbm" and self.variant == "a":
            head, tail = dict(W1=(m, d), W2=(k, m)), dict(W1=(m, k), W2=(d, m))
        if self.name == "strait" and self.variant != "context":
            head = dict(E=(k, d))
            tail = dict(D=(d, k), V=(m, k), W=(d, m), T=(v, r), P=(d, r))
        if self.name == "strait" and self.variant == "context":
            head = dict(E=(k, d), A=(i("codec.encoder"), d), B=(k, i("codec.encoder")))
            tail = dict(D=(d, n * k), V=(m, n * k), W=(d, m))
            if index: head["M"] = (k, k)
            if i("codec.gains"): head["G"] = tail["G"] = (i("table_rows") or v, d)
            r = i("codec.gate_width")
            if r: head["P"] = tail["P"] = (r, d)
            if r: head["Q"] = tail["Q"] = (d, r)
        self.head, self.tail = Holder(head), Holder(tail)

    def gate(self, side, tokens, table):
        """What a side multiplies by; table is the token table of its stage."""
        if hasattr(side, "Q"):
            return 1 + F.silu(rms(take_rows(table, tokens), 1e-6) @ side.P.T) @ side.Q.T
        return 1 + take_rows(side.G, tokens) if hasattr(side, "G") else 1

    def send(self, y, x, z, tokens, table):
        """The code of a stage: its output y, its input x, the code z that it received."""
        h = self.head
        if self.name == "resbm" and self.variant == "a":
            u = F.silu(rms(y, 1e-6) @ h.W1.T) @ h.W2.T
            return payload(u + y[..., : self.k] if self.keeps_identity else u, self.bits)
        if self.name == "resbm": return payload(y, self.bits)
        if self.name != "strait": return y  # it approximates: the model is the same without it
        if self.variant != "context":
            u = (y - x) @ h.E.T
            return payload(u if z is None else z + u, self.bits)
        added = y if self.encodes_input else y - x
        u = (added * self.gate(h, tokens, table)) @ h.E.T + F.silu(rms(y, 1e-6) @ h.A.T) @ h.B.T
        if z is not None: u = u + z @ h.M.T
        return log_scale(u) if self.bits == 4 else payload(u, self.bits)

    def receive(self, z, tokens, past, table):
        """The input of the next stage."""
        t = self.tail
        if self.name == "resbm" and self.variant == "a":
            x = F.silu(z @ t.W1.T) @ t.W2.T
            return x + F.pad(z, (0, x.shape[-1] - self.k)) if self.keeps_identity else x
        if self.name != "strait": return z
        if self.variant != "context":
            return z @ t.D.T + F.silu(rms(z, 1e-6) @ t.V.T) @ t.W.T + t.T[tokens] @ t.P.T
        rows, n = past.rows(z, self.n - 1), z.shape[1]
        x = last(rows, self.n, n) @ t.D.T
        x = x + F.silu(last(rms(rows, 1e-6), self.n, n) @ t.V.T) @ t.W.T
        return x * self.gate(t, tokens, table)


class StraitForCausalLM(PreTrainedModel, GenerationMixin):
    config_class = StraitConfig
    _tied_weights_keys = {}
    all_tied_weights_keys = {}

    def __init__(self, config):
        super().__init__(config)
        d, v, stages = config.hidden_size, config.vocab_size, config.stages()
        self.embed = Holder(dict(table=(v, d)))
        self.blocks = nn.ModuleList(Block(config, i) for i in range(config.num_hidden_layers))
        self.head = Holder(dict(norm=(d,)) if config.integer("tied")
                           else dict(norm=(d,), out=(v, d)))
        self.boundary = nn.ModuleList(Boundary(config, i) for i in range(len(stages) - 1))
        self.has_ends = (config.strait.get("codec.name"), config.strait.get("codec.variant")) == (
            "resbm", "b")
        for i in range(len(stages) - 1) if self.has_ends else []:
            k = config.integer("codec.keep")
            self.blocks[stages[i][-1]].enc = nn.Parameter(torch.zeros(k, d))
            self.blocks[stages[i + 1][0]].dec = nn.Parameter(torch.zeros(d, k))

    def run_block(self, block, x, tokens, angles, past):
        """One block; with resbm b, its ends encode what it sends and decode what it received."""
        c, stream = self.config, x
        keeps_identity = not c.integer("codec.without_identity")
        if hasattr(block, "dec"):
            stream = F.pad(x, (0, c.hidden_size - x.shape[-1])) if keeps_identity else 0
            x = F.relu(x @ block.dec.T)
        a = stream + block.attend(x, tokens, angles, past)
        o = block.mix(a, past)
        if not hasattr(block, "enc"): return a + o
        z = F.silu(o) @ block.enc.T
        return z + a[..., : z.shape[-1]] if keeps_identity else z

    def table_of(self, stage):
        """The token table that a stage has, the first of its blocks; the embedding on stage 0."""
        tables = [self.blocks[i].anchor for i in stage if hasattr(self.blocks[i], "anchor")]
        return self.embed.table if stage[0] == 0 else tables[0] if tables else None

    def new_cache(self, cache, use_cache):
        """The cache to use: None, the one that is given, or a new one, which grows by the layers of
        Past; generate() gives one that has only as many as there are blocks."""
        if use_cache is None:  # not every version of transformers keeps it in the configuration
            use_cache = getattr(self.config, "use_cache", True) and not self.training
        if not use_cache: return None
        is_fixed = cache is not None and len(cache.layers) > 0 and cache.get_seq_length() == 0
        return DynamicCache() if cache is None or is_fixed else cache

    def forward(self, input_ids=None, labels=None, logits_to_keep=0, past_key_values=None,
                use_cache=None, attention_mask=None, **kwargs):
        if attention_mask is not None and not attention_mask.all():
            raise ValueError("padded sequences are not supported: use sequences of one length")
        c, tokens, z = self.config, input_ids, None
        cache = self.new_cache(past_key_values, use_cache)
        past = Past(cache, c.num_hidden_layers)
        angles = rope_angles(c, past.length, tokens.shape[1], tokens.device)
        y = self.embed.table[tokens]
        stages = c.stages()
        for s, stage in enumerate(stages):
            x = None
            for i in stage:
                y = self.blocks[i].prepare(y, tokens, past)
                x = y if x is None else x
                y = self.run_block(self.blocks[i], y, tokens, angles, past)
            if s < len(self.boundary):
                z = self.boundary[s].send(y, x, z, tokens, self.table_of(stages[s]))
                y = self.boundary[s].receive(z, tokens, past, self.table_of(stages[s + 1]))
        table = self.embed.table if c.integer("tied") else self.head.out
        y = rms(y, c.number("norm_epsilon"), self.head.norm)
        if logits_to_keep: y = y[:, -logits_to_keep:]
        logits, cap = y @ table.T, c.number("softcap")
        if cap: logits = logits / torch.sqrt(1 + (logits / cap) ** 2)
        loss = None
        if labels is not None:
            loss = F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), labels[:, 1:].flatten())
        return CausalLMOutputWithPast(loss=loss, logits=logits, past_key_values=cache)

    def prepare_inputs_for_generation(self, input_ids, past_key_values=None, use_cache=None,
                                      attention_mask=None, **kwargs):
        seen = 0 if past_key_values is None else past_key_values.get_seq_length()
        return dict(input_ids=input_ids[:, seen:], past_key_values=past_key_values,
                    use_cache=use_cache, attention_mask=attention_mask)

    def get_input_embeddings(self):
        return None

    def _init_weights(self, module):
        pass
