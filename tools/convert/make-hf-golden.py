#!/usr/bin/python3
"""Writes small random models as Hugging Face folders, with the logits that transformers computes.

    tools/convert/make-hf-golden.py FOLDER

Needs PyTorch, transformers, tokenizers and safetensors. FOLDER/NAME is what save_pretrained writes;
FOLDER/NAME/expected.safetensors holds token ids and their logits, computed in float32 from the
weights as they are stored. tests/golden/hf holds the result, of which FOLDER/versions.txt says
where it comes from.
"""
import os
import sys

import torch
import transformers
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

TOKENS = 24
TEXT = ["The strait is narrow, and the ships that pass it are many.",
        "A model is trained on one side; its weights cross to the other.",
        "def add(a, b):\n    return a + b\n", "Ströme fließen, 1234567 tokens, 日本語."] * 4


def config(name, **changes):
    base = dict(vocab_size=288, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
                rms_norm_eps=1e-5, tie_word_embeddings=False, bos_token_id=None, eos_token_id=0,
                pad_token_id=None)
    base.update(changes)
    return getattr(transformers, name)(**base)


def rope(kind, **settings):
    """Today's transformers take rope_parameters, older ones rope_scaling and rope_theta."""
    theta = settings.pop("theta", 10000.0)
    if int(transformers.__version__.split(".")[0]) >= 5:
        return dict(rope_parameters=dict(rope_type=kind, rope_theta=theta, **settings))
    scaling = None if kind == "default" else dict(rope_type=kind, **settings)
    return dict(rope_scaling=scaling, rope_theta=theta)


LLAMA3 = dict(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=16, theta=500000.0)
MODELS = {
    # name: (class, config, dtype, largest shard)
    "llama2": ("Llama", dict(num_key_value_heads=4, **rope("default")), torch.float32, "5GB"),
    "llama3": ("Llama", dict(tie_word_embeddings=True, **rope("llama3", **LLAMA3)),
               torch.bfloat16, "5GB"),
    "linear": ("Llama", dict(head_dim=12, tie_word_embeddings=True,
                             **rope("linear", factor=2.0)), torch.float16, "5GB"),
    "mistral": ("Mistral", dict(head_dim=16, sliding_window=None, **rope("default", theta=1e6)),
                torch.bfloat16, "20KB"),
    "qwen2": ("Qwen2", dict(rms_norm_eps=1e-6, **rope("default", theta=1e6)), torch.float32,
              "40KB"),
    "qwen3": ("Qwen3", dict(rms_norm_eps=1e-6, head_dim=16, tie_word_embeddings=True,
                            **rope("default", theta=1e6)), torch.float32, "5GB"),
}


def randomise(model, generator):
    """Weights whose logits are of size 1, and gains and biases that matter."""
    for name, value in model.named_parameters():
        noise = torch.randn(value.shape, generator=generator)
        with torch.no_grad():
            if "norm" in name:
                value.copy_(1 + 0.2 * noise)
            elif name.endswith("bias"):
                value.copy_(0.5 * noise)
            elif "embed" in name:
                value.copy_(0.4 * noise if model.config.tie_word_embeddings else noise)
            else:
                value.copy_(noise * value.shape[-1] ** -0.5)


def write(folder, name, kind, settings, dtype, shard):
    generator = torch.Generator().manual_seed(sum(map(ord, name)))
    model = getattr(transformers, kind + "ForCausalLM")(config(kind + "Config", **settings)).eval()
    randomise(model, generator)
    model = model.to(dtype)
    path = os.path.join(folder, name)
    model.save_pretrained(path, max_shard_size=shard, safe_serialization=True)
    stored = getattr(transformers, kind + "ForCausalLM").from_pretrained(path)
    stored = stored.to(torch.float32).eval()
    tokens = torch.randint(0, stored.config.vocab_size, (1, TOKENS), generator=generator)
    with torch.no_grad():
        logits = stored(input_ids=tokens).logits[0]
    save_file({"tokens": tokens[0].to(torch.int32), "logits": logits.contiguous()},
              os.path.join(path, "expected.safetensors"))
    print(name, sorted(os.listdir(path)), "largest logit %.3f" % logits.abs().max().item())


def byte_level(path):
    """A tokenizer of the kind that Llama 3 and Qwen have, small enough to keep."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(TEXT, trainers.BpeTrainer(
        vocab_size=288, special_tokens=["<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>")
    fast.save_pretrained(path)
    print("tokenizer of", tokenizer.get_vocab_size(), "tokens:", fast(TEXT[0])["input_ids"])


def main():
    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "versions.txt"), "w") as out:
        print("torch", torch.__version__, "transformers", transformers.__version__, file=out)
    for name, (kind, settings, dtype, shard) in MODELS.items():
        try:
            write(folder, name, kind, dict(settings), dtype, shard)
        except Exception as error:  # one class that fails must not lose the others
            print("FAILED", name, repr(error))
    byte_level(os.path.join(folder, "qwen2"))


main()
