# SPDX-License-Identifier: Apache-2.0
"""Hugging Face encoders for text, with small random configurations and padded batches."""

from __future__ import annotations

import torch

from ..harness.problem import Problem
from .text import BATCH, BERT_LIKE, HEADS, LAYERS, VOCABULARY, WIDTH, masked_problem, padded_mask, tokens


def bert() -> Problem:
    """BERT with a masked language model head."""
    from transformers import BertConfig, BertForMaskedLM

    return masked_problem(BertForMaskedLM(BertConfig(**BERT_LIKE)))


def distilbert() -> Problem:
    """DistilBERT with a sequence classification head."""
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
    inputs = {"input_ids": tokens(), "attention_mask": padded_mask(), "labels": torch.randint(4, (BATCH,))}
    return Problem(DistilBertForSequenceClassification(config), kwargs=inputs)


def roberta() -> Problem:
    """RoBERTa with a masked language model head: positions counted from the padding mask of the tokens."""
    from transformers import RobertaConfig, RobertaForMaskedLM

    return masked_problem(RobertaForMaskedLM(RobertaConfig(**BERT_LIKE)))


def albert() -> Problem:
    """ALBERT: a factorised embedding, one layer's parameters used for all layers."""
    from transformers import AlbertConfig, AlbertForMaskedLM

    return masked_problem(AlbertForMaskedLM(AlbertConfig(**BERT_LIKE, embedding_size=32)))


def electra() -> Problem:
    """ELECTRA's discriminator: was each token replaced? Binary labels, one per token."""
    from transformers import ElectraConfig, ElectraForPreTraining

    model = ElectraForPreTraining(ElectraConfig(**BERT_LIKE, embedding_size=32))
    batch = tokens()
    labels = torch.randint(2, batch.shape)
    return Problem(model, kwargs={"input_ids": batch, "attention_mask": padded_mask(), "labels": labels})


def deberta_v2() -> Problem:
    """DeBERTa v2: attention disentangled into content and relative position, in both directions."""
    from transformers import DebertaV2Config, DebertaV2ForMaskedLM

    config = DebertaV2Config(
        **BERT_LIKE,
        relative_attention=True,
        max_relative_positions=16,
        pos_att_type=["c2p", "p2c"],
        pad_token_id=0,
    )
    return masked_problem(DebertaV2ForMaskedLM(config))


def mobilebert() -> Problem:
    """MobileBERT: bottlenecks, stacked feed-forward networks, scale-and-shift in place of layer norm."""
    from transformers import MobileBertConfig, MobileBertForMaskedLM

    config = MobileBertConfig(
        **BERT_LIKE, embedding_size=32, intra_bottleneck_size=32, true_hidden_size=32, num_feedforward_networks=2
    )
    return masked_problem(MobileBertForMaskedLM(config))


def convbert() -> Problem:
    """ConvBERT: half of the heads are span-based dynamic convolutions."""
    from transformers import ConvBertConfig, ConvBertForMaskedLM

    return masked_problem(ConvBertForMaskedLM(ConvBertConfig(**BERT_LIKE, embedding_size=32, conv_kernel_size=5)))


def layoutlm() -> Problem:
    """LayoutLM: each token with the bounding box it has on its page."""
    from transformers import LayoutLMConfig, LayoutLMForMaskedLM

    problem = masked_problem(LayoutLMForMaskedLM(LayoutLMConfig(**BERT_LIKE, max_2d_position_embeddings=64)))
    corner, size = torch.randint(32, (*tokens().shape, 2)), torch.randint(1, 32, (*tokens().shape, 2))
    problem.kwargs["bbox"] = torch.cat((corner, corner + size), dim=-1)
    return problem


def fnet() -> Problem:
    """FNet: a Fourier transform over width and length in place of attention."""
    from transformers import FNetConfig, FNetForMaskedLM

    sizes = {key: BERT_LIKE[key] for key in BERT_LIKE if "attention" not in key}
    batch = tokens()
    return Problem(FNetForMaskedLM(FNetConfig(**sizes)), kwargs={"input_ids": batch, "labels": tokens()})


def xlnet() -> Problem:
    """XLNet: two-stream attention parameters, relative positions shifted along the rows of the scores."""
    from transformers import XLNetConfig, XLNetLMHeadModel

    config = XLNetConfig(
        vocab_size=VOCABULARY, d_model=WIDTH, n_layer=LAYERS, n_head=HEADS, d_inner=2 * WIDTH, dropout=0.1
    )
    return Problem(XLNetLMHeadModel(config), kwargs={"input_ids": tokens(), "labels": tokens()})


def funnel() -> Problem:
    """Funnel transformer: the sequence is pooled between blocks, and upsampled again by a decoder."""
    from transformers import FunnelConfig, FunnelForMaskedLM

    config = FunnelConfig(
        vocab_size=VOCABULARY,
        block_sizes=[1, 1],
        num_decoder_layers=1,
        d_model=WIDTH,
        n_head=HEADS,
        d_head=WIDTH // HEADS,
        d_inner=2 * WIDTH,
        hidden_dropout=0.1,
        attention_dropout=0.1,
    )
    return masked_problem(FunnelForMaskedLM(config))


def longformer() -> Problem:
    """Longformer: attention in a sliding window of 8, and globally at the first token."""
    from transformers import LongformerConfig, LongformerForMaskedLM

    config = LongformerConfig(**BERT_LIKE, attention_window=[8] * LAYERS, pad_token_id=1)
    problem = masked_problem(LongformerForMaskedLM(config), length=32)
    mask = torch.zeros_like(problem.kwargs["attention_mask"])
    mask[:, 0] = 1
    problem.kwargs["global_attention_mask"] = mask
    return problem


def big_bird() -> Problem:
    """BigBird: blocks of 4, each attending to its neighbours, to the first and last, and to random ones."""
    from transformers import BigBirdConfig, BigBirdForMaskedLM

    sizes = BERT_LIKE | {"max_position_embeddings": 128}
    config = BigBirdConfig(**sizes, attention_type="block_sparse", block_size=4, num_random_blocks=2)
    return masked_problem(BigBirdForMaskedLM(config), length=64)
