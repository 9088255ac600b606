# SPDX-License-Identifier: Apache-2.0
"""Image transformers from Hugging Face, with small random configurations."""

from __future__ import annotations

from typing import Any

from torch import nn

from ..harness.problem import Problem
from .vision import INITIAL, SINGLE_LABEL, SIZE, classifier_problem, images

VIT_LIKE: dict[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "image_size": SIZE,
    "patch_size": 8,
}


def vit() -> Problem:
    """ViT with patches of 8 x 8."""
    from transformers import ViTConfig, ViTForImageClassification

    return classifier_problem(ViTForImageClassification(ViTConfig(**VIT_LIKE, **SINGLE_LABEL)))


def deit() -> Problem:
    """DeiT: ViT with a distillation token beside the class token."""
    from transformers import DeiTConfig, DeiTForImageClassification

    return classifier_problem(DeiTForImageClassification(DeiTConfig(**VIT_LIKE, **SINGLE_LABEL)))


def beit() -> Problem:
    """BEiT: relative position bias, layer scale, stochastic depth, mean of the patches as the output."""
    from transformers import BeitConfig, BeitForImageClassification

    config = BeitConfig(
        **VIT_LIKE,
        **SINGLE_LABEL,
        use_relative_position_bias=True,
        layer_scale_init_value=0.1,
        drop_path_rate=0.4,
    )
    return classifier_problem(BeitForImageClassification(config))


def dinov2() -> Problem:
    """DINOv2's architecture: SwiGLU feed-forward networks, layer scale."""
    from transformers import Dinov2Config, Dinov2ForImageClassification

    sizes = {key: value for key, value in VIT_LIKE.items() if key != "intermediate_size"}
    config = Dinov2Config(
        **sizes,
        **SINGLE_LABEL,
        mlp_ratio=2,
        use_swiglu_ffn=True,
        layerscale_value=0.1,
        drop_path_rate=0.4,
        use_mask_token=False,
    )
    return classifier_problem(Dinov2ForImageClassification(config))


def swin() -> Problem:
    """Swin: attention in windows of 4 x 4, shifted in every second layer; patches merged between stages."""
    from transformers import SwinConfig, SwinForImageClassification

    config = SwinConfig(
        image_size=SIZE,
        patch_size=4,
        embed_dim=32,
        depths=[2, 1],
        num_heads=[2, 4],
        window_size=4,
        mlp_ratio=2.0,
        hidden_dropout_prob=0.1,
        attention_probs_dropout_prob=0.1,
        drop_path_rate=0.1,
        **SINGLE_LABEL,
    )
    return classifier_problem(SwinForImageClassification(config))


def mobilevit() -> Problem:
    """MobileViT: inverted residuals, and transformers over the unfolded patches of feature maps."""
    from transformers import MobileViTConfig, MobileViTForImageClassification

    config = MobileViTConfig(
        image_size=SIZE,
        hidden_sizes=[32, 32, 32],
        neck_hidden_sizes=[8, 16, 24, 24, 32, 32, 64],
        num_attention_heads=4,
        mlp_ratio=2.0,
        expand_ratio=2.0,
        output_stride=8,
        hidden_dropout_prob=0.1,
        classifier_dropout_prob=0.1,
        **INITIAL,
        **SINGLE_LABEL,
    )
    return classifier_problem(MobileViTForImageClassification(config))


def poolformer() -> Problem:
    """PoolFormer: average pooling in place of attention."""
    from transformers import PoolFormerConfig, PoolFormerForImageClassification

    config = PoolFormerConfig(
        depths=[1, 1, 1, 1],
        hidden_sizes=[16, 24, 32, 32],
        mlp_ratio=2.0,
        drop_path_rate=0.2,
        layer_scale_init_value=0.1,
        **SINGLE_LABEL,
    )
    return classifier_problem(PoolFormerForImageClassification(config), size=64)  # else the last maps are of one pixel


def vit_mae() -> Problem:
    """Masked autoencoder: half of the patches hidden by a random order, sorted back and reconstructed."""
    from transformers import ViTMAEConfig, ViTMAEForPreTraining

    config = ViTMAEConfig(
        **VIT_LIKE,
        mask_ratio=0.5,
        decoder_hidden_size=32,
        decoder_num_hidden_layers=1,
        decoder_num_attention_heads=2,
        decoder_intermediate_size=64,
    )
    model = ViTMAEForPreTraining(config)
    # transformers leaves them at zero, with the masked tokens: the decoder's attention would have nothing to tell apart
    nn.init.normal_(model.decoder.decoder_pos_embed, std=0.5)
    return Problem(model, kwargs={"pixel_values": images()})
