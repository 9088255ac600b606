# SPDX-License-Identifier: Apache-2.0
"""Speech and sound: Hugging Face models with small random configurations, and two networks in plain torch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..harness.problem import Problem
from .tiny import Classifier

BATCH, CLASSES, SAMPLES = 2, 10, 800
VOCABULARY, TARGET = 32, 6  # letters, and how many of them a clip has

_WAVE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "conv_dim": (32, 32, 32),
    "conv_kernel": (10, 3, 3),
    "conv_stride": (5, 2, 2),
    "num_feat_extract_layers": 3,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
    "hidden_dropout": 0.1,
    "attention_dropout": 0.1,
    "activation_dropout": 0.1,
    "layerdrop": 0.0,  # whole layers, chosen in Python: it would compile anew for each choice
    "mask_time_prob": 0.0,  # masks drawn by numpy in the forward pass
    "mask_feature_prob": 0.0,
    "ctc_loss_reduction": "mean",
    "pad_token_id": 0,
}


def _ctc_problem(model: nn.Module) -> Problem:
    labels = torch.randint(1, VOCABULARY, (BATCH, TARGET))
    return Problem(model, kwargs={"input_values": torch.randn(BATCH, SAMPLES), "labels": labels})


def wav2vec2() -> Problem:
    """wav2vec 2.0: convolutions over the waveform, a weight-normed position convolution, CTC loss."""
    from transformers import Wav2Vec2Config, Wav2Vec2ForCTC

    return _ctc_problem(Wav2Vec2ForCTC(Wav2Vec2Config(**_WAVE)))


def hubert() -> Problem:
    """HuBERT with a CTC head."""
    from transformers import HubertConfig, HubertForCTC

    return _ctc_problem(HubertForCTC(HubertConfig(**_WAVE)))


def wavlm() -> Problem:
    """WavLM with a CTC head: a gated relative position bias."""
    from transformers import WavLMConfig, WavLMForCTC

    return _ctc_problem(WavLMForCTC(WavLMConfig(**_WAVE, num_buckets=16, max_bucket_distance=32)))


def whisper() -> Problem:
    """Whisper: convolutions over a spectrogram, an encoder and a decoder."""
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    config = WhisperConfig(
        vocab_size=VOCABULARY,
        num_mel_bins=16,
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        max_source_positions=32,
        max_target_positions=32,
        dropout=0.1,
        attention_dropout=0.1,
        activation_dropout=0.1,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        suppress_tokens=None,
        begin_suppress_tokens=None,
        use_cache=False,
    )
    features, labels = torch.randn(BATCH, 16, 64), torch.randint(3, VOCABULARY, (BATCH, 12))
    return Problem(WhisperForConditionalGeneration(config), kwargs={"input_features": features, "labels": labels})


def audio_spectrogram_transformer() -> Problem:
    """Audio spectrogram transformer: a ViT over overlapping patches of a spectrogram."""
    from transformers import ASTConfig, ASTForAudioClassification

    config = ASTConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        hidden_dropout_prob=0.1,
        attention_probs_dropout_prob=0.1,
        patch_size=8,
        frequency_stride=6,
        time_stride=6,
        max_length=32,
        num_mel_bins=16,
        num_labels=CLASSES,
        problem_type="single_label_classification",
    )
    inputs = {"input_values": torch.randn(BATCH, 32, 16), "labels": torch.randint(CLASSES, (BATCH,))}
    return Problem(ASTForAudioClassification(config), kwargs=inputs)


def speech_commands() -> Problem:
    """M5: one-dimensional convolutions over a waveform (Dai et al. 2017), for a few spoken words."""
    network = nn.Sequential(
        *(nn.Conv1d(1, 16, 16, stride=4), nn.BatchNorm1d(16), nn.ReLU(), nn.MaxPool1d(4)),
        *(nn.Conv1d(16, 32, 3, padding=1), nn.BatchNorm1d(32), nn.ReLU(), nn.MaxPool1d(2)),
        *(nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Dropout(0.1), nn.Linear(32, CLASSES)),
    )
    return Problem(Classifier(network), (torch.randn(BATCH, 1, SAMPLES), torch.randint(CLASSES, (BATCH,))))


class WaveNet(nn.Module):
    """WaveNet: gated dilated causal convolutions with skip connections (van den Oord et al. 2016).

    forward(samples): (b, length) int64 levels -> the 0-d loss of predicting each sample from those before it.
    """

    def __init__(self, levels: int = 32, width: int = 16, dilations: tuple[int, ...] = (1, 2, 4, 8)):
        super().__init__()
        self.dilations = dilations
        self.embedding = nn.Embedding(levels, width)
        self.gates = nn.ModuleList(nn.Conv1d(width, 2 * width, 2, dilation=d) for d in dilations)
        self.residuals = nn.ModuleList(nn.Conv1d(width, width, 1) for _ in dilations[1:])
        self.skips = nn.ModuleList(nn.Conv1d(width, width, 1) for _ in dilations)
        self.head = nn.Sequential(
            nn.ReLU(), nn.Conv1d(width, width, 1), nn.ReLU(), nn.Dropout(0.1), nn.Conv1d(width, levels, 1)
        )

    def forward(self, samples: Tensor) -> Tensor:
        hidden = self.embedding(samples[:, :-1]).transpose(1, 2)
        total = torch.zeros_like(hidden)
        for i, dilation in enumerate(self.dilations):
            values, gate = self.gates[i](F.pad(hidden, (dilation, 0))).chunk(2, dim=1)
            out = torch.tanh(values) * torch.sigmoid(gate)
            total = total + self.skips[i](out)
            if i < len(self.residuals):
                hidden = hidden + self.residuals[i](out)
        return F.cross_entropy(self.head(total), samples[:, 1:])


def wavenet() -> Problem:
    """WaveNet on 64 samples of 32 levels."""
    return Problem(WaveNet(), (torch.randint(32, (BATCH, 65)),))


class SpeechRecurrent(nn.Module):
    """Deep Speech 2: convolutions over a spectrogram, a bidirectional GRU, CTC loss (Amodei et al. 2016).

    forward(spectrogram, text, lengths): (b, 1, bands, frames), (b, letters) int64, (b,) int64 letters of each
    -> the 0-d loss.
    """

    def __init__(self, bands: int = 16, width: int = 16):
        super().__init__()
        self.convolutions = nn.Sequential(
            *(nn.Conv2d(1, 8, (5, 3), stride=(2, 1), padding=(2, 1)), nn.BatchNorm2d(8), nn.Hardtanh(0, 20)),
            *(nn.Conv2d(8, 8, (5, 3), stride=(2, 2), padding=(2, 1)), nn.BatchNorm2d(8), nn.Hardtanh(0, 20)),
        )
        self.recurrent = nn.GRU(8 * bands // 4, width, batch_first=True, bidirectional=True)
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(2 * width, VOCABULARY)

    def forward(self, spectrogram: Tensor, text: Tensor, lengths: Tensor) -> Tensor:
        hidden = self.convolutions(spectrogram).flatten(1, 2).transpose(1, 2)
        hidden, _ = self.recurrent(hidden)
        scores = self.head(self.drop(hidden)).log_softmax(-1).transpose(0, 1)
        frames = torch.full_like(lengths, scores.shape[0])
        return F.ctc_loss(scores, text, frames, lengths)


def deep_speech() -> Problem:
    """Deep Speech 2 on 32 frames of 16 bands."""
    text = torch.randint(1, VOCABULARY, (BATCH, TARGET))
    return Problem(SpeechRecurrent(), (torch.randn(BATCH, 1, 16, 32), text, torch.tensor([TARGET, TARGET - 2])))
