# SPDX-License-Identifier: Apache-2.0
"""Hugging Face encoder-decoders for text, with small random configurations and padded sources."""

from __future__ import annotations

from typing import Any

from torch import nn

from ..harness.problem import Problem
from .text import HEADS, LAYERS, VOCABULARY, WIDTH, padded_mask, tokens

TARGET = 16  # tokens of a target


def _problem(model: nn.Module) -> Problem:
    inputs = {"input_ids": tokens(), "attention_mask": padded_mask(), "labels": tokens(TARGET)}
    return Problem(model, kwargs=inputs)


def _bart_like() -> dict[str, Any]:
    """The configuration of the many models that name their sizes as BART does."""
    return {
        "vocab_size": VOCABULARY,
        "d_model": WIDTH,
        "encoder_layers": LAYERS,
        "decoder_layers": LAYERS,
        "encoder_attention_heads": HEADS,
        "decoder_attention_heads": HEADS,
        "encoder_ffn_dim": 2 * WIDTH,
        "decoder_ffn_dim": 2 * WIDTH,
        "max_position_embeddings": 64,
        "dropout": 0.1,
        "attention_dropout": 0.1,
        "activation_dropout": 0.1,
        "encoder_layerdrop": 0.0,  # whole layers, chosen in Python: it would compile anew for each choice
        "decoder_layerdrop": 0.0,
        "pad_token_id": 1,
        "bos_token_id": 0,
        "eos_token_id": 2,
        "decoder_start_token_id": 2,
        "forced_eos_token_id": None,
        "use_cache": False,
    }


def _t5_like(**options: Any) -> dict[str, Any]:
    return {
        "vocab_size": VOCABULARY,
        "d_model": WIDTH,
        "d_kv": WIDTH // HEADS,
        "d_ff": 2 * WIDTH,
        "num_layers": LAYERS,
        "num_heads": HEADS,
        "dropout_rate": 0.1,
        "decoder_start_token_id": 0,
        "use_cache": False,
    } | options


def t5() -> Problem:
    """T5: encoder and decoder, relative position buckets."""
    from transformers import T5Config, T5ForConditionalGeneration

    return _problem(T5ForConditionalGeneration(T5Config(**_t5_like())))


def mt5() -> Problem:
    """mT5: as T5 with gated GELU feed-forward networks and a head of its own."""
    from transformers import MT5Config, MT5ForConditionalGeneration

    return _problem(MT5ForConditionalGeneration(MT5Config(**_t5_like())))


def switch_transformers() -> Problem:
    """Switch Transformers: T5 with 4 experts in every second layer, one expert for each token."""
    from transformers import SwitchTransformersConfig, SwitchTransformersForConditionalGeneration

    options = _t5_like(num_experts=4, num_sparse_encoder_layers=1, num_sparse_decoder_layers=1, expert_capacity=64)
    return _problem(SwitchTransformersForConditionalGeneration(SwitchTransformersConfig(**options)))


def bart() -> Problem:
    """BART: learned positions, post-norm, tied embeddings."""
    from transformers import BartConfig, BartForConditionalGeneration

    return _problem(BartForConditionalGeneration(BartConfig(**_bart_like())))


def pegasus() -> Problem:
    """Pegasus: BART with pre-norm and sinusoidal positions."""
    from transformers import PegasusConfig, PegasusForConditionalGeneration

    return _problem(PegasusForConditionalGeneration(PegasusConfig(**_bart_like())))


def marian() -> Problem:
    """Marian: BART's translation sibling, with sinusoidal positions and a bias of the logits."""
    from transformers import MarianConfig, MarianMTModel

    return _problem(MarianMTModel(MarianConfig(**_bart_like())))


def blenderbot() -> Problem:
    """Blenderbot: BART with pre-norm and scaled embeddings."""
    from transformers import BlenderbotConfig, BlenderbotForConditionalGeneration

    return _problem(BlenderbotForConditionalGeneration(BlenderbotConfig(**_bart_like())))


def m2m100() -> Problem:
    """M2M100: many-to-many translation, positions counted over the tokens that are not padding."""
    from transformers import M2M100Config, M2M100ForConditionalGeneration

    return _problem(M2M100ForConditionalGeneration(M2M100Config(**_bart_like())))
