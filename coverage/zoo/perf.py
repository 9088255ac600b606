# SPDX-License-Identifier: Apache-2.0
"""Problems of the size of a small training on a CPU, to be timed: their architectures are elsewhere in the zoo, tiny.

Text: 4 layers of width 256, batches of 4 rows of 128 tokens, 4096 words. Images: 8 of 3 x 64 x 64. Dropout is on
wherever the architecture has it.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..harness.problem import Problem
from .tiny import Classifier
from .vision_dense import UNet

VOCABULARY, WIDTH, HEADS, LAYERS, BATCH, LENGTH = 4096, 256, 4, 4, 4, 128
IMAGES, SIZE, CLASSES = 8, 64, 100
SINGLE_LABEL: dict[str, Any] = {"problem_type": "single_label_classification", "num_labels": CLASSES}


def _tokens(length: int = LENGTH) -> Tensor:
    return torch.randint(3, VOCABULARY, (BATCH, length))


def _causal(model: nn.Module) -> Problem:
    batch = _tokens()
    model.loss_type = "ForCausalLM"  # type: ignore[assignment]  # as in text.py
    return Problem(model, kwargs={"input_ids": batch, "labels": batch})


def _images() -> Tensor:
    return torch.randn(IMAGES, 3, SIZE, SIZE)


def _classifier(model: nn.Module) -> Problem:
    """A Hugging Face image classifier, which computes its cross entropy itself."""
    return Problem(model, kwargs={"pixel_values": _images(), "labels": torch.randint(CLASSES, (IMAGES,))})


def perf_gpt2() -> Problem:
    """GPT-2."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=VOCABULARY, n_positions=LENGTH, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS,
        bos_token_id=0, eos_token_id=0, use_cache=False,
    )  # fmt: skip
    return _causal(GPT2LMHeadModel(config))


def perf_llama() -> Problem:
    """Llama with two key-value heads and dropout on attention."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
        num_key_value_heads=2, intermediate_size=688, max_position_embeddings=LENGTH, attention_dropout=0.1,
        use_cache=False, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    return _causal(LlamaForCausalLM(config))


def perf_bert() -> Problem:
    """BERT, every token predicted from rows of different lengths."""
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        vocab_size=VOCABULARY, hidden_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
        intermediate_size=4 * WIDTH, max_position_embeddings=LENGTH,
    )  # fmt: skip
    lengths = torch.tensor([LENGTH, LENGTH - 16, LENGTH - 40, LENGTH - 5])
    mask = (torch.arange(LENGTH) < lengths[:, None]).long()
    inputs = {"input_ids": _tokens(), "attention_mask": mask, "labels": _tokens()}
    return Problem(BertForMaskedLM(config), kwargs=inputs)


def perf_t5() -> Problem:
    """T5, two layers each side, targets of half the length."""
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(
        vocab_size=VOCABULARY, d_model=WIDTH, d_kv=WIDTH // HEADS, d_ff=4 * WIDTH, num_layers=LAYERS // 2,
        num_heads=HEADS, use_cache=False, decoder_start_token_id=0,
    )  # fmt: skip
    model = T5ForConditionalGeneration(config)
    return Problem(model, kwargs={"input_ids": _tokens(), "labels": _tokens(LENGTH // 2)})


def perf_vit() -> Problem:
    """ViT with patches of 8 x 8."""
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=HEADS, intermediate_size=4 * WIDTH,
        hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1, image_size=SIZE, patch_size=8, **SINGLE_LABEL,
    )  # fmt: skip
    return _classifier(ViTForImageClassification(config))


def perf_resnet() -> Problem:
    """ResNet-18's blocks in four stages of half its width."""
    from transformers import ResNetConfig, ResNetForImageClassification

    config = ResNetConfig(
        embedding_size=32, hidden_sizes=[32, 64, 128, 256], depths=[2, 2, 2, 2], layer_type="basic", **SINGLE_LABEL
    )
    return _classifier(ResNetForImageClassification(config))


def perf_convnext() -> Problem:
    """ConvNeXt in three stages."""
    from transformers import ConvNextConfig, ConvNextForImageClassification

    config = ConvNextConfig(
        num_stages=3, hidden_sizes=[48, 96, 192], depths=[2, 2, 4], drop_path_rate=0.1, layer_scale_init_value=0.1,
        image_size=SIZE, **SINGLE_LABEL,
    )  # fmt: skip
    return _classifier(ConvNextForImageClassification(config))


class LSTMLanguageModel(nn.Module):
    """Next-token model of two LSTM layers. forward(tokens) takes (batch, length) int64 and returns the 0-d loss."""

    def __init__(self, vocabulary: int):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, WIDTH)
        self.recurrent = nn.LSTM(WIDTH, WIDTH, num_layers=2, dropout=0.1, batch_first=True)
        self.head = nn.Linear(WIDTH, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden, _ = self.recurrent(self.embedding(tokens[:, :-1]))
        return F.cross_entropy(self.head(hidden).flatten(0, 1), tokens[:, 1:].flatten())


def perf_lstm() -> Problem:
    """A language model of two LSTM layers over 32 steps, 2048 words."""
    return Problem(LSTMLanguageModel(2048), (torch.randint(2048, (2 * BATCH, 32 + 1)),))


def perf_mlp() -> Problem:
    """Linear, LayerNorm, GELU, dropout: four hidden layers of 1024 on a batch of 64."""
    layers: list[nn.Module] = []
    for inner, outer in itertools.pairwise((256, 1024, 1024, 1024, 1024)):
        layers += [nn.Linear(inner, outer), nn.LayerNorm(outer), nn.GELU(), nn.Dropout(0.1)]
    network = nn.Sequential(*layers, nn.Linear(1024, CLASSES))
    return Problem(Classifier(network), (torch.randn(64, 256), torch.randint(CLASSES, (64,))))


class DLRM(nn.Module):
    """Deep learning recommendation model (Naumov et al. 2019): as in recommendation.py, of a size of use.

    forward(dense, values, offsets, clicks): (b, 13), bags x (n,) int64 and (b,) int64, (b,) -> the 0-d loss.
    """

    low: Tensor
    high: Tensor

    def __init__(self, bags: int = 8, rows: int = 10_000, width: int = 64):
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum") for _ in range(bags))
        self.bottom = self._mlp(13, 256, width)
        self.top = nn.Sequential(self._mlp(width + bags * (bags + 1) // 2, 256, 256), nn.Linear(256, 1))
        low, high = torch.tril_indices(bags + 1, bags + 1, offset=-1)
        self.register_buffer("low", low)
        self.register_buffer("high", high)

    @staticmethod
    def _mlp(*widths: int) -> nn.Sequential:
        pairs = itertools.pairwise(widths)
        return nn.Sequential(*(m for a, b in pairs for m in (nn.Linear(a, b), nn.ReLU(), nn.Dropout(0.1))))

    def forward(self, dense: Tensor, values: list[Tensor], offsets: list[Tensor], clicks: Tensor) -> Tensor:
        bottom = self.bottom(dense)
        bags = [bag(v, o) for bag, v, o in zip(self.bags, values, offsets, strict=True)]
        features = torch.stack([bottom, *bags], dim=1)
        products = features @ features.transpose(1, 2)
        logits = self.top(torch.cat((bottom, products[:, self.low, self.high]), dim=1)).squeeze(-1)
        return F.binary_cross_entropy_with_logits(logits, clicks)


def perf_dlrm() -> Problem:
    """DLRM with 8 tables of 10,000 rows, bags of 1 to 8 values, a batch of 256."""
    batch, values, offsets = 256, [], []
    for _ in range(8):
        sizes = torch.randint(1, 9, (batch,))
        offsets.append(sizes.cumsum(0) - sizes)
        values.append(torch.randint(10_000, (int(sizes.sum()),)))
    return Problem(DLRM(), (torch.randn(batch, 13), values, offsets, torch.randint(2, (batch,)).float()))


def perf_unet() -> Problem:
    """U-Net of three levels, a class for each pixel."""
    labels = torch.randint(10, (IMAGES // 2, SIZE, SIZE))
    return Problem(Classifier(UNet(width=16)), (torch.randn(IMAGES // 2, 3, SIZE, SIZE), labels))


def perf_cnn() -> Problem:
    """Four convolutions with batch norm, ReLU and pooling, dropout, a linear head."""
    layers: list[nn.Module] = []
    for inner, outer in itertools.pairwise((3, 32, 64, 128, 128)):
        layers += [nn.Conv2d(inner, outer, 3, padding=1), nn.BatchNorm2d(outer), nn.ReLU(), nn.MaxPool2d(2)]
    head = [nn.Flatten(), nn.Dropout(0.2), nn.Linear(128 * (SIZE // 16) ** 2, CLASSES)]
    return Problem(Classifier(nn.Sequential(*layers, *head)), (_images(), torch.randint(CLASSES, (IMAGES,))))
