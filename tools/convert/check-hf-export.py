#!/usr/bin/python3
"""Compares exported models, as transformers computes them, with what Strait computed.

    tools/convert/check-hf-export.py FOLDER...

Each folder is an export with two more files: expected.safetensors (tokens, the first N_GIVEN of
which were given and the rest chosen greedily, and the logits after each; tests/cli/helpers/logits.c
writes it) and, optionally, heldout.safetensors (tokens in rows of the context) with expected.json,
{"given": N_GIVEN, "loss": the loss of `strait eval` on it}. Prints a line per folder and exits with
1 if one fails. Needs PyTorch, transformers and safetensors.
"""
import json
import os
import sys

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

TOLERANCE = 1e-3  # of logits


def check_greedy(model, tokens, logits, given, use_cache):
    """How many tokens are equal, and whether that is enough: up to the first place where our two
    best logits are within TOLERANCE, or all."""
    made = model.generate(tokens[None, :given], max_new_tokens=len(tokens) - given, do_sample=False,
                          eos_token_id=None, pad_token_id=0, use_cache=use_cache)[0]
    for i in range(given, len(tokens)):
        if int(made[i]) != int(tokens[i]):
            best = logits[i - 1].topk(2).values
            return i - given, bool(best[0] - best[1] <= TOLERANCE) and i - given >= 100
    return len(tokens) - given, True


def cache_difference(model, tokens, given):
    """The largest difference of logits with a cache, in calls of one and of several tokens, from
    those without."""
    whole = model(input_ids=tokens[None], use_cache=False).logits[0]
    cache, at, most = None, 0, 0.0
    for n in [given, 1, 3] + [1] * (len(tokens) - given - 4):
        out = model(input_ids=tokens[None, at:at + n], past_key_values=cache, use_cache=True)
        most = max(most, (out.logits[0] - whole[at:at + n]).abs().max().item())
        cache, at = out.past_key_values, at + n
    return most


def held_out_loss(model, rows):
    total, n = 0.0, 0
    for row in rows.split(8):
        logits = model(input_ids=row[:, :-1]).logits.double()
        targets = row[:, 1:].flatten()
        total += torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets,
                                                   reduction="sum").item()
        n += targets.numel()
    return total / n


@torch.no_grad()
def check(folder):
    about = {"given": None}
    if os.path.exists(os.path.join(folder, "expected.json")):
        with open(os.path.join(folder, "expected.json")) as file:
            about = json.load(file)
    expected = load_file(os.path.join(folder, "expected.safetensors"))
    model, report = AutoModelForCausalLM.from_pretrained(
        folder, trust_remote_code=True, dtype=torch.float32, output_loading_info=True)
    model.eval()
    wrong = {k: sorted(v)[:3] for k, v in report.items() if v}
    tokens = expected["tokens"].long()
    logits = model(input_ids=tokens[None]).logits[0]
    apart = (logits - expected["logits"]).abs().amax(-1)
    is_good = apart.max().item() <= TOLERANCE and not wrong
    line = "%-12s %-20s logits %.2e (median %.1e, %d of %d rows above)" % (
        os.path.basename(folder), type(model).__name__, apart.max().item(), apart.median().item(),
        int((apart > TOLERANCE).sum()), len(tokens))
    if about["given"]:
        for use_cache in (True, False):
            same, is_enough = check_greedy(model, tokens, expected["logits"], about["given"],
                                           use_cache)
            line += "  greedy%s %d of %d" % (" with a cache" if use_cache else "", same,
                                             len(tokens) - about["given"])
            is_good = is_good and is_enough
        apart = cache_difference(model, tokens, about["given"])
        line += "  cache %.1e" % apart
        is_good = is_good and apart <= TOLERANCE
    if "loss" in about:
        loss = held_out_loss(model, load_file(os.path.join(folder, "heldout.safetensors"))["tokens"]
                             .long())
        line += "  loss %.6f, ours %.6f" % (loss, about["loss"])
        is_good = is_good and abs(loss - about["loss"]) < 5e-4
    print(line, wrong or "", "ok" if is_good else "FAILED", flush=True)
    return is_good


def main():
    results = []
    for folder in sys.argv[1:]:
        try:
            results.append(check(folder))
        except Exception as error:  # the other folders still say something
            print(os.path.basename(folder), "FAILED", type(error).__name__, str(error)[:600])
            results.append(False)
    sys.exit(0 if all(results) else 1)


main()
