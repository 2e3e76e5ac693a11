"""Computes exported models with our own parts in PyTorch, with and without a cache.

    python3 tests/torch/cached.py STRAIT LOGITS

LOGITS is tests/cli/helpers/logits.c. Trains small runs for 10 steps, exports them, and runs
modeling_strait.py: logits must be Strait's, and those of one token after the other, with a cache of
keys, values and earlier rows, must be those of the whole sequence. Where transformers is missing,
as in Debian, the few names that the file imports are defined here; with transformers itself
tools/convert/check-hf-export.py compares. Exits as compare.py does where PyTorch is missing.
"""
import json
import os
import struct
import subprocess
import sys
import tempfile
import types

from compare import write_shard  # ends this program where PyTorch is missing
import torch

TOLERANCE = 1e-4
LENGTH = 24
ADDITIONS = "conv: 3, anchors: true, value_tables: true"
CASES = {  # codec, and additions to the model
    "strait context": ("{name: strait, variant: context, gains: true}", ADDITIONS + ", qkv_conv: true"),
    "computed gates": ("{name: strait, variant: context, gains: false, gate_width: 8}",
                       ADDITIONS + ", qkv_conv: true"),
    "tables that share rows": ("{name: strait, variant: context, gains: true}", ADDITIONS + ", table_rows: 90"),
    "gates from such tables": ("{name: strait, variant: context, gains: false, gate_width: 8}",
                               ADDITIONS + ", table_rows: 90"),
    "strait plain": ("{name: strait, variant: tied}", ADDITIONS),
    "resbm a": ("{name: resbm, variant: a}", ADDITIONS),
    "resbm b": ("{name: resbm, variant: b}", "conv: 3, inner_conv: true"),
}


class StandInCache:
    """What Past uses of transformers' DynamicCache."""

    def __init__(self):
        self.layers = []

    def get_seq_length(self):
        return self.layers[0][0].shape[-2] if self.layers and self.layers[0] else 0

    def update(self, keys, values, i):
        self.layers += [None] * (i + 1 - len(self.layers))
        old = self.layers[i]
        self.layers[i] = (keys, values) if old is None else (
            torch.cat([old[0], keys], -2), torch.cat([old[1], values], -2))
        return self.layers[i]


def stand_in():
    """The names of transformers that the exported files import."""
    class Config:
        def __init__(self, **rest):
            self.__dict__.update(rest)

    class Model(torch.nn.Module):
        def __init__(self, config):
            super().__init__()
            self.config = config

    package, outputs = types.ModuleType("transformers"), types.ModuleType("outputs")
    package.PretrainedConfig, package.PreTrainedModel = Config, Model
    package.GenerationMixin, package.DynamicCache = object, StandInCache
    outputs.CausalLMOutputWithPast = types.SimpleNamespace
    sys.modules["transformers"], sys.modules["transformers.modeling_outputs"] = package, outputs


def load(path):
    """The tensors of a safetensors file."""
    with open(path, "rb") as f:
        data = f.read()
    size, = struct.unpack("<Q", data[:8])
    types_ = {"F32": torch.float32, "I32": torch.int32}
    tensors = {}
    for name, t in json.loads(data[8:8 + size]).items():
        if name != "__metadata__":
            first, end = (8 + size + at for at in t["data_offsets"])
            tensors[name] = torch.frombuffer(bytearray(data[first:end]),
                                             dtype=types_[t["dtype"]]).reshape(t["shape"])
    return tensors


def make(strait, logits, folder, codec, additions):
    """Trains and exports a run; returns its export and what Strait computes."""
    with open(f"{folder}/run.yaml", "w", encoding="utf-8") as f:
        f.write(f"""
model: {{family: yardstick, width: 64, layers: 4, heads: 4, context: 32, vocab: 300,
        {additions}}}
data: {{train: train.bin}}
train: {{steps: 10, batch_tokens: 512, optimizer: muon}}
stages: {{count: 3}}
link: {{transport: inproc, codec: {codec}}}
device: {{kind: cpu, threads: 1, precision: fp32}}
""")
    out = tempfile.mkdtemp(dir=folder)
    for command in ([strait, "train", f"{folder}/run.yaml", "-q", "--out", f"{out}/run"],
                    [strait, "export", f"{out}/run", "--to", "hf", "--out", f"{out}/export"],
                    [logits, f"{out}/run", f"{out}/expected", str(LENGTH - 2), "5", "7"]):
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return f"{out}/export", load(f"{out}/expected")


@torch.no_grad()
def compare(folder, expected):
    """The largest differences of logits: from Strait's, and with a cache from those without."""
    package = types.ModuleType("export")
    package.__path__ = [folder]
    sys.modules["export"] = package
    for name in ("modeling_strait", "configuration_strait"):
        sys.modules.pop(f"export.{name}", None)
    from export.modeling_strait import StraitConfig, StraitForCausalLM
    with open(f"{folder}/config.json", encoding="utf-8") as f:
        model = StraitForCausalLM(StraitConfig(**json.load(f)))
    model.load_state_dict(load(f"{folder}/model.safetensors"))
    model.eval()
    tokens = expected["tokens"].long()[None]
    del model.config.use_cache  # as in transformers 5.17
    assert model(input_ids=tokens[:, :2]).past_key_values.get_seq_length() == 2
    whole = model(input_ids=tokens, use_cache=False).logits
    parts, cache = [], None
    for n in [9, 1, 3] + [1] * (LENGTH - 13):
        at = sum(p.shape[1] for p in parts)
        out = model(input_ids=tokens[:, at:at + n], past_key_values=cache, use_cache=True)
        parts, cache = parts + [out.logits], out.past_key_values
    return ((whole[0] - expected["logits"]).abs().max().item(),
            (torch.cat(parts, 1) - whole).abs().max().item())


def main():
    strait, logits = (os.path.abspath(path) for path in sys.argv[1:3])
    try:
        import transformers  # noqa: F401
    except ImportError:
        stand_in()
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        write_shard(f"{folder}/train.bin", 300)
        for name, case in CASES.items():
            ours, cached = compare(*make(strait, logits, folder, *case))
            is_near = ours <= TOLERANCE and cached <= TOLERANCE
            failed += not is_near
            print(f"{name:16} {'ok' if is_near else 'FAILED'}: from Strait's logits {ours:.1e}, "
                  f"with a cache {cached:.1e}", flush=True)
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
