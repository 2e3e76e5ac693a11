"""Checks bench/torch_attention.py, the opponent of `strait bench kernels --only attention`: that it times causal attention
and its gradient. Exits as compare.py does where PyTorch is missing."""
import contextlib
import io
import json
import pathlib
import sys

import compare  # ends this program where PyTorch is missing

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "bench"))
import torch_attention

torch = compare.torch
SHAPE = {"sequences": 2, "context": 9, "heads": 3, "head-dim": 4}
FLAGS = [word for key, value in SHAPE.items() for word in (f"--{key}", str(value))]


def run(*flags):
    """Returns the exit code, what it printed and what it complained of."""
    sys.argv = ["torch_attention.py", *FLAGS, *flags]
    printed, complaint = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(complaint):
        try:
            torch_attention.main()
            code = 0
        except SystemExit as end:
            code = end.code
    return code, printed.getvalue(), complaint.getvalue()


def gradient_norm():
    """The norm of all gradients, by plain products, for the numbers that the script draws."""
    torch.manual_seed(1)
    q, k, v, back = (torch.randn(tuple(SHAPE.values())).transpose(1, 2) for _ in range(4))
    inputs = [x.requires_grad_() for x in (q, k, v)]
    scores = q @ k.transpose(2, 3) * SHAPE["head-dim"] ** -0.5
    future = torch.ones(SHAPE["context"], SHAPE["context"]).triu(1).bool()
    y = scores.masked_fill(future, float("-inf")).softmax(-1) @ v
    return float(torch.stack([g.norm() for g in torch.autograd.grad(y, inputs, back)]).norm())


def main():
    code, printed, complaint = run("--repeats", "2", "--warm", "0")
    assert code == 0, complaint
    line = json.loads(printed)
    assert line["backend"] == "default" and line["forward_us"] > 0 and line["backward_us"] > 0, line
    expected = gradient_norm()
    assert abs(line["gradient_norm"] / expected - 1) < 1e-5, (line, expected)
    code, printed, complaint = run("--backends", "fast")
    assert code == 2 and printed == "" and "fast is none of default,flash" in complaint, (code, printed, complaint)
    print(f"norm of the gradients {expected:.6f}")


if __name__ == "__main__":
    main()
