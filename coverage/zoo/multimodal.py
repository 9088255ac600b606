# SPDX-License-Identifier: Apache-2.0
"""Models of images and text together: Hugging Face models with small random configurations."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ..harness.problem import Problem
from .text import VOCABULARY, padded_mask, tokens
from .vision import SIZE, images

_SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "attention_dropout": 0.1,
}


class Contrastive(nn.Module):
    """A two-tower model of transformers with its contrastive loss switched on: forward(**inputs) -> the 0-d loss."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, **inputs: Tensor) -> Tensor:
        loss: Tensor = self.model(**inputs, return_loss=True).loss
        return loss


def clip() -> Problem:
    """CLIP: an image and a text tower, a contrastive loss over the batch."""
    from transformers import CLIPConfig, CLIPModel

    text = {"vocab_size": VOCABULARY, "max_position_embeddings": 64, "bos_token_id": 0, "eos_token_id": 2}
    config = CLIPConfig(
        text_config=_SIZES | text | {"projection_dim": 16, "pad_token_id": 1},
        vision_config=_SIZES | {"image_size": SIZE, "patch_size": 8, "projection_dim": 16},
        projection_dim=16,
    )
    batch = tokens()
    batch[:, -1] = 2  # the end token, whose place the text tower reads
    inputs = {"input_ids": batch, "attention_mask": torch.ones_like(batch), "pixel_values": images()}
    return Problem(Contrastive(CLIPModel(config)), kwargs=inputs)


def siglip() -> Problem:
    """SigLIP: CLIP with a sigmoid loss for each pair, and attention pooling of the image."""
    from transformers import SiglipConfig, SiglipModel

    config = SiglipConfig(
        text_config=_SIZES | {"vocab_size": VOCABULARY, "max_position_embeddings": 64, "projection_size": 32},
        vision_config=_SIZES | {"image_size": SIZE, "patch_size": 8},
    )
    return Problem(Contrastive(SiglipModel(config)), kwargs={"input_ids": tokens(), "pixel_values": images()})


def blip() -> Problem:
    """BLIP: a caption decoded with cross-attention to the patches of an image."""
    from transformers import BlipConfig, BlipForConditionalGeneration

    text = {
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 64,
        "encoder_hidden_size": 32,
        "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "sep_token_id": 2,
        "pad_token_id": 0,
        "use_cache": False,
    }
    config = BlipConfig(
        text_config=_SIZES | text | {"projection_dim": 16},
        vision_config=_SIZES | {"image_size": SIZE, "patch_size": 8, "projection_dim": 16},
        projection_dim=16,
        image_text_hidden_size=16,
    )
    batch = tokens()
    return Problem(
        BlipForConditionalGeneration(config), kwargs={"input_ids": batch, "labels": batch, "pixel_values": images()}
    )


def vilt() -> Problem:
    """ViLT: patches and tokens in one transformer, answers to a question about an image as scores in [0, 1]."""
    from transformers import ViltConfig, ViltForQuestionAnswering

    config = ViltConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        hidden_dropout_prob=0.1,
        attention_probs_dropout_prob=0.1,
        max_position_embeddings=64,
        image_size=SIZE,
        patch_size=8,
        num_labels=6,
    )
    inputs = {"input_ids": tokens(), "attention_mask": padded_mask(), "pixel_values": images()}
    return Problem(ViltForQuestionAnswering(config), kwargs=inputs | {"labels": torch.rand(4, 6)})


def llava() -> Problem:
    """LLaVA: the patches of an image put in place of a decoder's image tokens."""
    from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration

    image_token = 3
    config = LlavaConfig(
        vision_config=CLIPVisionConfig(**_SIZES, image_size=SIZE, patch_size=8),
        text_config=LlamaConfig(
            **_SIZES,
            vocab_size=VOCABULARY,
            num_key_value_heads=2,
            max_position_embeddings=64,
            use_cache=False,
        ),
        image_token_index=image_token,
        vision_feature_layer=-1,
        image_seq_length=16,
    )
    batch = torch.randint(4, VOCABULARY, (4, 32))
    batch[:, 2:18] = image_token  # 16 patches, without the class token
    labels = batch.masked_fill(batch == image_token, -100)
    return Problem(
        LlavaForConditionalGeneration(config), kwargs={"input_ids": batch, "pixel_values": images(), "labels": labels}
    )
