"""Configuration of a model that was trained by Strait."""
from transformers import PretrainedConfig


class StraitConfig(PretrainedConfig):
    """The usual sizes, and under `strait` every property of the checkpoint's manifest, as text."""

    model_type = "strait"

    def __init__(self, strait=None, hidden_size=256, intermediate_size=688, num_hidden_layers=4,
                 num_attention_heads=4, num_key_value_heads=4, head_dim=64, vocab_size=256,
                 max_position_embeddings=256, **kwargs):
        self.strait = strait or {}
        self.hidden_size = hidden_size
        self.intermediate_size = intermediate_size
        self.num_hidden_layers = num_hidden_layers
        self.num_attention_heads = num_attention_heads
        self.num_key_value_heads = num_key_value_heads
        self.head_dim = head_dim
        self.vocab_size = vocab_size
        self.max_position_embeddings = max_position_embeddings
        kwargs.setdefault("use_cache", True)
        super().__init__(**kwargs)

    def number(self, key):
        """A property as a number; 0 where the manifest has none."""
        return float(self.strait.get(key, 0) or 0)

    def integer(self, key):
        return int(self.number(key))

    def stages(self):
        """The blocks of each stage."""
        counts = [int(n) for n in self.strait.get("stages", str(self.num_hidden_layers)).split(",")]
        first = [sum(counts[:i]) for i in range(len(counts))]
        return [range(a, a + n) for a, n in zip(first, counts)]
