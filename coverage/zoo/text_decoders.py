# SPDX-License-Identifier: Apache-2.0
"""Hugging Face decoders for text: causal language models with small random configurations."""

from __future__ import annotations

from typing import Any

from ..harness.problem import Problem
from .text import HEADS, LAYERS, VOCABULARY, WIDTH, causal_problem


def _llama_like(**options: Any) -> dict[str, Any]:
    """The configuration of the many models that name their sizes as Llama does, with `options` on top."""
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
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    } | options


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
    return causal_problem(GPT2LMHeadModel(config))


def gpt_neo() -> Problem:
    """GPT-Neo: one layer with global attention, one with local attention over 8 tokens."""
    from transformers import GPTNeoConfig, GPTNeoForCausalLM

    config = GPTNeoConfig(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        num_layers=LAYERS,
        num_heads=HEADS,
        attention_types=[[["global", "local"], 1]],
        window_size=8,
        max_position_embeddings=64,
        resid_dropout=0.1,
        embed_dropout=0.1,
        attention_dropout=0.1,
        bos_token_id=0,
        eos_token_id=0,
        use_cache=False,
    )
    return causal_problem(GPTNeoForCausalLM(config))


def gptj() -> Problem:
    """GPT-J: rotary positions on a part of each head, attention and feed-forward side by side."""
    from transformers import GPTJConfig, GPTJForCausalLM

    config = GPTJConfig(
        vocab_size=VOCABULARY,
        n_positions=64,
        n_embd=WIDTH,
        n_layer=LAYERS,
        n_head=HEADS,
        rotary_dim=8,
        resid_pdrop=0.1,
        embd_pdrop=0.1,
        attn_pdrop=0.1,
        bos_token_id=0,
        eos_token_id=0,
        use_cache=False,
    )
    return causal_problem(GPTJForCausalLM(config))


def gpt_neox() -> Problem:
    """GPT-NeoX: rotary positions on a quarter of each head, a parallel residual."""
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    options = _llama_like(hidden_dropout=0.1)
    del options["num_key_value_heads"]
    return causal_problem(GPTNeoXForCausalLM(GPTNeoXConfig(**options)))


def opt() -> Problem:
    """OPT: learned positions counted from the attention mask, ReLU."""
    from transformers import OPTConfig, OPTForCausalLM

    config = OPTConfig(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        word_embed_proj_dim=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        ffn_dim=2 * WIDTH,
        max_position_embeddings=64,
        dropout=0.1,
        attention_dropout=0.1,
        layerdrop=0.0,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        use_cache=False,
    )
    return causal_problem(OPTForCausalLM(config))


def bloom() -> Problem:
    """BLOOM: positions as a linear bias of the scores (ALiBi)."""
    from transformers import BloomConfig, BloomForCausalLM

    config = BloomConfig(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        n_layer=LAYERS,
        n_head=HEADS,
        hidden_dropout=0.1,
        attention_dropout=0.1,
        use_cache=False,
    )
    return causal_problem(BloomForCausalLM(config))


def llama() -> Problem:
    """Llama: rotary positions, RMS norm, SwiGLU, grouped key and value heads."""
    from transformers import LlamaConfig, LlamaForCausalLM

    return causal_problem(LlamaForCausalLM(LlamaConfig(**_llama_like())))


def mistral() -> Problem:
    """Mistral: as Llama with a sliding attention window, here shorter than the sequence."""
    from transformers import MistralConfig, MistralForCausalLM

    return causal_problem(MistralForCausalLM(MistralConfig(**_llama_like(sliding_window=8))))


def qwen2() -> Problem:
    """Qwen2: as Llama with biased query, key and value projections."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    return causal_problem(Qwen2ForCausalLM(Qwen2Config(**_llama_like())))


def qwen3() -> Problem:
    """Qwen3: as Llama with RMS norm of each head's queries and keys."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    return causal_problem(Qwen3ForCausalLM(Qwen3Config(**_llama_like(head_dim=16))))


def gemma2() -> Problem:
    """Gemma 2: capped scores and logits, norms before and after each part, one sliding window of 8."""
    from transformers import Gemma2Config, Gemma2ForCausalLM

    config = Gemma2Config(**_llama_like(head_dim=16, query_pre_attn_scalar=16, sliding_window=8))
    return causal_problem(Gemma2ForCausalLM(config))


def phi() -> Problem:
    """Phi: rotary positions on a half of each head, attention and feed-forward side by side, dropout on both."""
    from transformers import PhiConfig, PhiForCausalLM

    return causal_problem(PhiForCausalLM(PhiConfig(**_llama_like(resid_pdrop=0.1, embd_pdrop=0.1))))


def falcon() -> Problem:
    """Falcon: one key and value head for all queries, attention and feed-forward side by side."""
    from transformers import FalconConfig, FalconForCausalLM

    config = FalconConfig(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        multi_query=True,
        parallel_attn=True,
        new_decoder_architecture=False,
        hidden_dropout=0.1,
        attention_dropout=0.1,
        bos_token_id=0,
        eos_token_id=0,
        use_cache=False,
    )
    return causal_problem(FalconForCausalLM(config))


def _experts_problem(model: Any) -> Problem:
    """A mixture of experts as batched products of gathered weights: the grouped product takes no float64, and the
    float64 reference needs one."""
    model.set_experts_implementation("batched_mm")
    return causal_problem(model)


def mixtral() -> Problem:
    """Mixtral: 4 experts, 2 for each token."""
    from transformers import MixtralConfig, MixtralForCausalLM

    options = _llama_like(num_local_experts=4, num_experts_per_tok=2, output_router_logits=True)
    return _experts_problem(MixtralForCausalLM(MixtralConfig(**options)))


def qwen2_moe() -> Problem:
    """Qwen2-MoE: a shared expert with a gate beside 4 routed experts, 2 for each token."""
    from transformers import Qwen2MoeConfig, Qwen2MoeForCausalLM

    options = _llama_like(
        num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32, shared_expert_intermediate_size=32
    )
    return _experts_problem(Qwen2MoeForCausalLM(Qwen2MoeConfig(**options)))


def gpt_oss() -> Problem:
    """GPT-OSS: attention sinks, 4 experts with clamped SwiGLU, 2 for each token, one sliding window of 8."""
    from transformers import GptOssConfig, GptOssForCausalLM

    options = _llama_like(head_dim=16, num_local_experts=4, num_experts_per_tok=2, sliding_window=8)
    return _experts_problem(GptOssForCausalLM(GptOssConfig(**options)))


def mamba() -> Problem:
    """Mamba: a selective state space scanned over the sequence, in plain torch operations."""
    from transformers import MambaConfig, MambaForCausalLM

    config = MambaConfig(
        vocab_size=VOCABULARY, hidden_size=WIDTH, num_hidden_layers=LAYERS, state_size=8, use_cache=False
    )
    return causal_problem(MambaForCausalLM(config))


def mamba2() -> Problem:
    """Mamba 2: the state space as matrix products within and between chunks of 8."""
    from transformers import Mamba2Config, Mamba2ForCausalLM

    config = Mamba2Config(
        vocab_size=VOCABULARY,
        hidden_size=32,
        num_hidden_layers=LAYERS,
        state_size=8,
        num_heads=4,
        head_dim=16,
        n_groups=1,
        chunk_size=8,
        use_cache=False,
    )
    return causal_problem(Mamba2ForCausalLM(config))


def rwkv() -> Problem:
    """RWKV: a linear attention as a recurrence over the sequence, one step of it in Python for each token."""
    from transformers import RwkvConfig, RwkvForCausalLM

    config = RwkvConfig(
        vocab_size=VOCABULARY,
        context_length=64,
        hidden_size=32,
        attention_hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=LAYERS,
        use_cache=False,
    )
    return causal_problem(RwkvForCausalLM(config))


def xglm() -> Problem:
    """XGLM: sinusoidal positions, pre-norm, scaled embeddings."""
    from transformers import XGLMConfig, XGLMForCausalLM

    config = XGLMConfig(
        vocab_size=VOCABULARY,
        d_model=WIDTH,
        num_layers=LAYERS,
        attention_heads=HEADS,
        ffn_dim=2 * WIDTH,
        max_position_embeddings=64,
        dropout=0.1,
        attention_dropout=0.1,
        layerdrop=0.0,
        use_cache=False,
    )
    return causal_problem(XGLMForCausalLM(config))
