"""Transformers for text: torch's own encoder, and Hugging Face models with small random configurations.

Batch 4, 16 to 32 tokens, width 64, 2 layers. Dropout is 0.1 wherever the architecture has it. The Hugging Face models
compute their loss from labels and use the attention implementation a user gets (SDPA).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..problem import Problem

VOCABULARY, WIDTH, HEADS, LAYERS, BATCH, LENGTH = 128, 64, 4, 2, 4, 24


class EncoderModel(nn.Module):
    """Token classifier on nn.TransformerEncoder. forward(tokens, labels): (batch, length) int64 -> the 0-d loss."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.position = nn.Parameter(torch.randn(LENGTH, WIDTH) * 0.02)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, dim_feedforward=2 * WIDTH, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, LAYERS)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
        hidden = self.encoder(self.embedding(tokens) + self.position)
        return F.cross_entropy(self.head(hidden).flatten(0, 1), labels.flatten())


def _tokens() -> Tensor:
    # from 3 up: the first few are padding, begin and end tokens in most of the configurations
    return torch.randint(3, VOCABULARY, (BATCH, LENGTH))


def _padded_mask() -> Tensor:
    """1 for a token, 0 for padding, (batch, length): rows of different lengths, as in a real batch."""
    lengths = torch.tensor([LENGTH, LENGTH - 3, LENGTH - 8, LENGTH - 1])
    return (torch.arange(LENGTH) < lengths[:, None]).long()


def transformer_encoder() -> Problem:
    """nn.TransformerEncoder, two layers, post-norm."""
    return Problem(EncoderModel(), (_tokens(), _tokens()))


def gpt2() -> Problem:
    """GPT-2 with tied embeddings."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=64,
        n_embd=WIDTH,
        n_layer=LAYERS,
        n_head=HEADS,
        resid_pdrop=0.1,
        embd_pdrop=0.1,
        attn_pdrop=0.1,
        bos_token_id=0,
        eos_token_id=0,
        use_cache=False,
    )
    tokens = _tokens()
    model = GPT2LMHeadModel(config)
    # The loss transformers picks anyway for this class, but with a logged warning, at which Dynamo breaks the graph.
    model.loss_type = "ForCausalLM"
    return Problem(model, kwargs={"input_ids": tokens, "labels": tokens})


def bert() -> Problem:
    """BERT with a masked language model head and a padded batch."""
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=2 * WIDTH,
        max_position_embeddings=64,
        hidden_dropout_prob=0.1,
        attention_probs_dropout_prob=0.1,
    )
    inputs = {"input_ids": _tokens(), "attention_mask": _padded_mask(), "labels": _tokens()}
    return Problem(BertForMaskedLM(config), kwargs=inputs)


def distilbert() -> Problem:
    """DistilBERT with a sequence classification head and a padded batch."""
    from transformers import DistilBertConfig, DistilBertForSequenceClassification

    config = DistilBertConfig(
        vocab_size=VOCABULARY,
        dim=WIDTH,
        n_layers=LAYERS,
        n_heads=HEADS,
        hidden_dim=2 * WIDTH,
        max_position_embeddings=64,
        dropout=0.1,
        attention_dropout=0.1,
        seq_classif_dropout=0.1,
        num_labels=4,
        problem_type="single_label_classification",  # as in vision.py: else the second forward is compiled anew
    )
    inputs = {"input_ids": _tokens(), "attention_mask": _padded_mask(), "labels": torch.randint(4, (BATCH,))}
    return Problem(DistilBertForSequenceClassification(config), kwargs=inputs)


def _decoder_config(**options: Any) -> dict[str, Any]:
    return {
        "vocab_size": VOCABULARY,
        "hidden_size": WIDTH,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": 2,
        "intermediate_size": 2 * WIDTH,
        "max_position_embeddings": 64,
        "attention_dropout": 0.1,
        "use_cache": False,
    } | options


def llama() -> Problem:
    """Llama: rotary positions, RMS norm, SwiGLU, grouped key and value heads."""
    from transformers import LlamaConfig, LlamaForCausalLM

    tokens = _tokens()
    model = LlamaForCausalLM(LlamaConfig(**_decoder_config()))
    return Problem(model, kwargs={"input_ids": tokens, "labels": tokens})


def mistral() -> Problem:
    """Mistral: as Llama with a sliding attention window, here shorter than the sequence."""
    from transformers import MistralConfig, MistralForCausalLM

    tokens = _tokens()
    model = MistralForCausalLM(MistralConfig(**_decoder_config(sliding_window=8)))
    return Problem(model, kwargs={"input_ids": tokens, "labels": tokens})


def t5() -> Problem:
    """T5: encoder and decoder, relative position buckets, a padded source."""
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(
        vocab_size=VOCABULARY,
        d_model=WIDTH,
        d_kv=WIDTH // HEADS,
        d_ff=2 * WIDTH,
        num_layers=LAYERS,
        num_heads=HEADS,
        dropout_rate=0.1,
        decoder_start_token_id=0,
        use_cache=False,
    )
    inputs = {"input_ids": _tokens(), "attention_mask": _padded_mask(), "labels": _tokens()[:, :16].contiguous()}
    return Problem(T5ForConditionalGeneration(config), kwargs=inputs)
