"""Checks bench/torch_step.py, the opponent of `strait bench step`: that it trains, and the same model.

    python3 tests/torch/step.py STRAIT

Exits as compare.py does where PyTorch is missing.
"""
import json
import math
import pathlib
import subprocess
import sys

import compare  # ends this program where PyTorch is missing

BENCH = pathlib.Path(__file__).resolve().parent.parent.parent / "bench"
SIZES = {"vocab": 96, "width": 32, "layers": 2, "heads": 2, "ffn": 48, "context": 16}
sys.path.insert(0, str(BENCH))
import torch_step


def output(command):
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(run.stdout.splitlines()[-1])


def measure(*options):
    flags = [word for key, value in SIZES.items() for word in (f"--{key}", str(value))]
    return output([sys.executable, "-B", str(BENCH / "torch_step.py"), str(BENCH / "cpu.yaml"), *flags,
                   "--batch", "2", "--threads", "1", *options])


def strait_parameters(strait):
    sets = [word for key, value in SIZES.items() for word in ("--set", f"model.{key}={value}")]
    return output([strait, "bench", "step", str(BENCH / "cpu.yaml"), *sets, "--set", "train.batch_tokens=32",
                   "--set", "stages.microbatch=2", "--set", "device.threads=1", "--steps", "1",
                   "--warm", "0"])["model_parameters"]


def main():
    early, late = measure("--steps", "1", "--warm", "0"), measure("--steps", "200", "--warm", "0")
    assert early["tokens_per_s"] > 0 and early["torch"] == compare.torch.__version__
    assert abs(early["loss"] - math.log(SIZES["vocab"])) < 0.1, early
    assert late["loss"] < early["loss"] - 0.2, (early, late)  # it learns its one batch
    assert early["parameters"] == strait_parameters(sys.argv[1]), early
    for path in (BENCH / f"gpu-{size}.yaml" for size in ("124m", "350m", "1.1b")):
        assert torch_step.read_run(path)["device"] == "cuda", path
    print(f"loss {early['loss']:.4f}, after 200 steps {late['loss']:.4f}")


if __name__ == "__main__":
    main()
