"""Random numbers, the order of tokens, and payloads, as docs/codecs.md and docs/formats.md say."""
import math

import numpy as np

f32 = np.float32
LOW = np.uint64(0xFFFFFFFF)
HALF = np.uint64(32)


def draw(seed, stream, counters):
    """Philox 4x32-10: four words per counter."""
    c = np.atleast_1d(np.asarray(counters, np.uint64))
    c = [c & LOW, c >> HALF, np.full_like(c, stream & 0xFFFFFFFF), np.full_like(c, stream >> 32)]
    key = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        a, b = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [(b >> HALF) ^ c[1] ^ np.uint64(key[0]), b & LOW,
             (a >> HALF) ^ c[3] ^ np.uint64(key[1]), a & LOW]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return np.stack(c, -1)


def u64(seed, stream, counter):
    w = draw(seed, stream % 2**64, counter)[0]
    return int(w[0]) + (int(w[1]) << 32)


def stream_of(name):
    """FNV-1a."""
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = ((h ^ byte) * 0x100000001B3) % 2**64
    return h


def uniform(seed, stream, n):
    w = draw(seed, stream, np.arange((n + 3) // 4)).reshape(-1)[:n]
    return ((w >> np.uint64(8)) / 2.0**24).astype(f32)


def normal(seed, name, shape, deviation):
    """Pass a boundary's deviation as f32, the model's as a double."""
    n = int(np.prod(shape))
    w = draw(seed, stream_of(name), np.arange((n + 3) // 4)).astype(np.float64)
    length = np.sqrt(-2 * np.log((w[:, 0::2] + 1) / 2**32))
    angle = 2 * math.pi * w[:, 1::2] / 2**32
    values = np.stack([length * np.cos(angle), length * np.sin(angle)], -1).reshape(-1)[:n]
    return (values.astype(f32).astype(np.float64) * float(deviation)).astype(f32).reshape(shape)


def gram_schmidt(a):
    """Orthonormal columns, in double precision; a column that depends on earlier ones becomes 0."""
    a = a.astype(np.float64)
    for j in range(a.shape[1]):
        before = a[:, j] @ a[:, j]
        for _ in range(2):
            a[:, j] -= a[:, :j] @ (a[:, :j].T @ a[:, j])
        square = a[:, j] @ a[:, j]
        a[:, j] *= 0 if square <= max(1e-10 * before, 1e-60) else 1 / math.sqrt(square)
    return a.astype(f32)


def sequence(ids, context, seed, i):
    """Inputs and last target of sequence i of a run with one shard."""
    n = len(ids)
    n_windows = max(1, n // context - 1)
    epoch, x = divmod(i, n_windows)
    h = 1
    while 4**h < n_windows:
        h += 1
    while True:
        left, right = x >> h, x % 2**h
        for j in range(6):
            mixed = u64(seed, stream_of("sampler.order") + epoch, (j << 32) + right)
            left, right = right, left ^ (mixed % 2**h)
        x = (left << h) + right
        if x < n_windows:
            break
    slack = min(context, n - n_windows * context)
    first = u64(seed, stream_of("sampler.phase") + epoch, 0) % slack + x * context
    return ids[first:first + context + 1]


def bf16(v):
    bits = np.ascontiguousarray(v, f32).view(np.uint32).astype(np.uint64)
    bits += np.uint64(0x7FFF) + ((bits >> np.uint64(16)) & np.uint64(1))
    return (bits & np.uint64(0xFFFF0000)).astype(np.uint32).view(f32)


def payload(v, bits, r=None):
    """What a receiver restores of rows v; r rounds stochastically."""
    if bits >= 16:
        return v if bits == 32 else bf16(v)
    most = f32(2**(bits - 1) - 1)
    largest = np.abs(v).max(1)
    base = largest.max() / most
    if base * most < largest.max():
        base = np.nextafter(base, f32(np.inf))
    if base < 2.0**-100:
        return np.zeros_like(v)
    down = 255 - np.arange(256)
    scales = base * (2.0**(-(down % 16) / 16)).astype(f32) / (2.0**(down // 16)).astype(f32)
    code = np.clip(np.searchsorted(scales * most, largest), 1, 255)
    scale = np.where(largest > 0, scales[code], f32(1))[:, None]
    q = v * (f32(1) / scale)
    q = np.rint(q) if r is None else np.floor(q + r.reshape(v.shape))
    return np.clip(q, -most, most) * scale


def log_scale(v, r=None):
    """The log-scale payload: what a receiver restores of rows v; r marks a gradient."""
    largest = np.abs(v).max(1)
    root = f32(0.707106781)
    if largest.max() <= 2.0**-100:
        return np.zeros_like(v)
    e = math.floor(2 * math.log2(largest.max())) - 1
    power = lambda e: f32(2.0**((e + 1) // 2)) * (root if e % 2 else f32(1))
    while power(e) < largest.max():
        e += 1
    c = np.arange(16)
    scales = power(e) * np.where(c % 2, root, f32(1)) / (2.0**(c // 2)).astype(f32)
    if r is None:
        covers = largest[:, None] >= scales * f32(0.840896415)
        scale = scales[np.where(covers.any(1), covers.argmax(1), 15)][:, None]
        unit = scale / f32(8)
        q = np.floor(v * (f32(1) / unit)) + 8
    else:
        scale = scales[np.maximum((scales >= largest[:, None]).sum(1) - 1, 0)][:, None]
        unit = scale / f32(7.5)
        q = np.floor(v * (f32(1) / unit) + (f32(7.5) + r.reshape(v.shape)))
    return (np.clip(q, 0, 15) - f32(7.5)).astype(f32) * unit


def rotate(v, tile):
    """Multiplies every tile by the Hadamard matrix over sqrt(tile), in the order of the page."""
    v, step = v.reshape(-1, tile), 1
    while step < tile:
        pairs = v.reshape(-1, tile // (2 * step), 2, step)
        low, high = pairs[:, :, 0], pairs[:, :, 1]
        v, step = np.stack([low + high, low - high], 2).reshape(-1, tile), 2 * step
    return v * (f32(1) / np.sqrt(f32(tile)))


def topk(v, keep):
    order = np.argsort(-np.abs(v), axis=1, kind="stable")[:, :keep]
    out = np.zeros_like(v)
    np.put_along_axis(out, order, bf16(np.take_along_axis(v, order, 1)), 1)
    return out
