# SPDX-License-Identifier: Apache-2.0
"""Generative models of images in plain torch: diffusion, autoencoder, adversarial pair, super-resolution."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..harness.problem import Problem

BATCH, SIZE = 4, 16
STEPS = 100  # of the diffusion


class TimeEmbedding(nn.Module):
    """Sinusoids of a time step, then two layers. (b,) int64 -> (b, width)."""

    frequencies: Tensor

    def __init__(self, width: int):
        super().__init__()
        half = width // 2
        self.register_buffer("frequencies", torch.exp(-math.log(10_000) * torch.arange(half) / half))
        self.layers = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))

    def forward(self, step: Tensor) -> Tensor:
        angles = step[:, None] * self.frequencies
        hidden: Tensor = self.layers(torch.cat((angles.sin(), angles.cos()), dim=-1))
        return hidden


class ResidualBlock(nn.Module):
    """Two convolutions with group norm, the time added between them. (b, c, h, w), (b, time) -> (b, width, h, w)."""

    def __init__(self, channels: int, width: int, time: int):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(4, channels), nn.Conv2d(channels, width, 3, padding=1)
        self.time = nn.Linear(time, width)
        self.norm2, self.conv2 = nn.GroupNorm(4, width), nn.Conv2d(width, width, 3, padding=1)
        self.drop = nn.Dropout(0.1)
        self.shortcut = nn.Conv2d(channels, width, 1) if channels != width else nn.Identity()

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        hidden = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(time))[:, :, None, None]
        hidden = self.conv2(self.drop(F.silu(self.norm2(hidden))))
        return hidden + self.shortcut(x)


class PixelAttention(nn.Module):
    """Self-attention over the pixels, then cross-attention to a condition (b, tokens, width). Keeps (b, c, h, w)."""

    def __init__(self, width: int, heads: int = 4):
        super().__init__()
        self.heads = heads
        self.norm = nn.GroupNorm(4, width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.query, self.key_value, self.cross_out = (
            nn.Linear(width, width),
            nn.Linear(width, 2 * width),
            nn.Linear(width, width),
        )

    def _attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        query, key, value = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (query, key, value))
        return F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        hidden = self.norm(x).flatten(2).transpose(1, 2)
        hidden = hidden + self.out(self._attend(*self.qkv(hidden).chunk(3, dim=-1)))
        key, value = self.key_value(condition).chunk(2, dim=-1)
        hidden = hidden + self.cross_out(self._attend(self.query(hidden), key, value))
        return x + hidden.transpose(1, 2).reshape(x.shape)


class DiffusionUNet(nn.Module):
    """Predicts the noise in an image (Ho et al. 2020), given a class by cross-attention (Rombach et al. 2022).

    forward(image, noise, step, label): (b, 3, h, w) twice, (b,) int64 twice -> the 0-d mean squared error.
    """

    kept: Tensor

    def __init__(self, width: int = 16, time: int = 32):
        super().__init__()
        self.register_buffer("kept", torch.linspace(1e-4, 0.02, STEPS).neg().add(1).cumprod(0))
        self.time = TimeEmbedding(time)
        self.label = nn.Embedding(10, 2 * width)
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.down1 = ResidualBlock(width, width, time)
        self.shrink = nn.Conv2d(width, width, 3, stride=2, padding=1)
        self.down2 = ResidualBlock(width, 2 * width, time)
        self.attention = PixelAttention(2 * width)
        self.middle = ResidualBlock(2 * width, 2 * width, time)
        self.grow = nn.Conv2d(2 * width, width, 3, padding=1)
        self.up = ResidualBlock(2 * width, width, time)
        self.norm, self.head = nn.GroupNorm(4, width), nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, image: Tensor, noise: Tensor, step: Tensor, label: Tensor) -> Tensor:
        kept = self.kept[step][:, None, None, None]
        noisy = kept.sqrt() * image + (1 - kept).sqrt() * noise
        time, condition = self.time(step), self.label(label)[:, None]
        top = self.down1(self.stem(noisy), time)
        low = self.down2(self.shrink(top), time)
        low = self.middle(self.attention(low, condition), time)
        low = self.grow(F.interpolate(low, scale_factor=2.0, mode="nearest"))
        hidden = self.up(torch.cat((low, top), dim=1), time)
        return F.mse_loss(self.head(F.silu(self.norm(hidden))), noise)


def diffusion_unet() -> Problem:
    """Denoising U-Net: time embedding, group norm, self- and cross-attention, nearest upsampling."""
    image, noise = torch.randn(BATCH, 3, SIZE, SIZE), torch.randn(BATCH, 3, SIZE, SIZE)
    step, label = torch.randint(STEPS, (BATCH,)), torch.randint(10, (BATCH,))
    return Problem(DiffusionUNet(), (image, noise, step, label))


class DiTBlock(nn.Module):
    """A transformer block whose norms are scaled, shifted and gated by a condition (Peebles & Xie 2023).

    (b, tokens, width), (b, width) -> (b, tokens, width).
    """

    def __init__(self, width: int):
        super().__init__()
        self.norm1 = nn.LayerNorm(width, elementwise_affine=False)
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.norm2 = nn.LayerNorm(width, elementwise_affine=False)
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(approximate="tanh"), nn.Dropout(0.1), nn.Linear(2 * width, width)
        )
        self.modulation = nn.Linear(width, 6 * width)

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        parts = self.modulation(F.silu(condition))[:, None].chunk(6, dim=-1)
        shift1, scale1, gate1, shift2, scale2, gate2 = parts
        hidden = self.norm1(x) * (1 + scale1) + shift1
        x = x + gate1 * self.attention(hidden, hidden, hidden, need_weights=False)[0]
        return x + gate2 * self.mlp(self.norm2(x) * (1 + scale2) + shift2)


class DiT(nn.Module):
    """Diffusion transformer on patches of 4 x 4. forward(image, noise, step) -> the 0-d mean squared error."""

    def __init__(self, width: int = 32):
        super().__init__()
        self.time = TimeEmbedding(width)
        self.patches = nn.Conv2d(3, width, 4, stride=4)
        self.position = nn.Parameter(torch.randn((SIZE // 4) ** 2, width) * 0.02)
        self.blocks = nn.ModuleList(DiTBlock(width) for _ in range(2))
        self.head = nn.Linear(width, 3 * 16)

    def forward(self, image: Tensor, noise: Tensor, step: Tensor) -> Tensor:
        share = (step / STEPS)[:, None, None, None]
        hidden = self.patches((1 - share) * image + share * noise).flatten(2).transpose(1, 2) + self.position
        condition = self.time(step)
        for block in self.blocks:
            hidden = block(hidden, condition)
        return F.mse_loss(F.fold(self.head(hidden).transpose(1, 2), SIZE, kernel_size=4, stride=4), noise - image)


def dit() -> Problem:
    """Diffusion transformer: norms modulated by the time, patches folded back into an image."""
    image, noise = torch.randn(BATCH, 3, SIZE, SIZE), torch.randn(BATCH, 3, SIZE, SIZE)
    return Problem(DiT(), (image, noise, torch.randint(STEPS, (BATCH,))))


class VAE(nn.Module):
    """Convolutional variational autoencoder (Kingma & Welling 2014). forward(x): (b, 3, 16, 16) in [0, 1] -> loss."""

    def __init__(self, width: int = 16, latent: int = 8):
        super().__init__()
        self.encoder = nn.Sequential(
            *(nn.Conv2d(3, width, 4, stride=2, padding=1), nn.ReLU()),
            *(nn.Conv2d(width, 2 * width, 4, stride=2, padding=1), nn.ReLU()),
            *(nn.Flatten(), nn.Linear(2 * width * 16, 2 * latent)),
        )
        self.decoder = nn.Sequential(
            *(nn.Linear(latent, 2 * width * 16), nn.Unflatten(1, (2 * width, 4, 4)), nn.ReLU()),
            *(nn.ConvTranspose2d(2 * width, width, 4, stride=2, padding=1), nn.ReLU()),
            nn.ConvTranspose2d(width, 3, 4, stride=2, padding=1),
        )

    def forward(self, x: Tensor) -> Tensor:
        mean, log_variance = self.encoder(x).chunk(2, dim=-1)
        sample = mean + torch.randn_like(mean) * torch.exp(0.5 * log_variance)
        likelihood = F.binary_cross_entropy_with_logits(self.decoder(sample), x, reduction="sum")
        divergence = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum()
        return (likelihood + divergence) / x.shape[0]


def vae() -> Problem:
    """Variational autoencoder: a sample drawn in the forward pass, transposed convolutions."""
    return Problem(VAE(), (torch.rand(BATCH, 3, SIZE, SIZE),))


class AdversarialPair(nn.Module):
    """DCGAN's generator and discriminator (Radford et al. 2016).

    forward(noise, real): (b, 16, 1, 1), (b, 3, 16, 16) -> the 0-d sum of both losses. Each network sees its own loss:
    the discriminator judges a detached image, the generator is judged with the discriminator's parameters detached.
    """

    def __init__(self, width: int = 16, latent: int = 16):
        super().__init__()
        self.generator = nn.Sequential(
            *(nn.ConvTranspose2d(latent, 2 * width, 4, bias=False), nn.BatchNorm2d(2 * width), nn.ReLU(True)),
            *(nn.ConvTranspose2d(2 * width, width, 4, 2, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(True)),
            *(nn.ConvTranspose2d(width, 3, 4, 2, 1, bias=False), nn.Tanh()),
        )
        self.discriminator = nn.Sequential(
            *(nn.Conv2d(3, width, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True)),
            *(nn.Conv2d(width, 2 * width, 4, 2, 1, bias=False), nn.BatchNorm2d(2 * width), nn.LeakyReLU(0.2, True)),
            nn.Conv2d(2 * width, 1, 4, bias=False),
        )

    def forward(self, noise: Tensor, real: Tensor) -> Tensor:
        fake = self.generator(noise)
        on_real, on_fake = self.discriminator(real).flatten(), self.discriminator(fake.detach()).flatten()
        ones, zeros = torch.ones_like(on_real), torch.zeros_like(on_fake)
        judge = F.binary_cross_entropy_with_logits(on_real, ones) + F.binary_cross_entropy_with_logits(on_fake, zeros)
        frozen = {name: parameter.detach() for name, parameter in self.discriminator.named_parameters()}
        fooled = torch.func.functional_call(self.discriminator, frozen, (fake,)).flatten()
        return judge + F.binary_cross_entropy_with_logits(fooled, ones)


def dcgan() -> Problem:
    """DCGAN: generator and discriminator trained in one step, batch norm run three times."""
    return Problem(AdversarialPair(), (torch.randn(BATCH, 16, 1, 1), torch.rand(BATCH, 3, SIZE, SIZE) * 2 - 1))


class SuperResolution(nn.Module):
    """Sub-pixel convolutions (Shi et al. 2016), instance norm. forward(small, large): (b, 3, 8, 8), (b, 3, 16, 16)."""

    def __init__(self, width: int = 16):
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.ReflectionPad2d(2), nn.Conv2d(3, width, 5), nn.InstanceNorm2d(width, affine=True), nn.PReLU(width)),
            *(nn.Conv2d(width, 12, 3, padding=1, padding_mode="replicate"), nn.PixelShuffle(2)),
        )

    def forward(self, small: Tensor, large: Tensor) -> Tensor:
        rough = F.interpolate(small, scale_factor=2.0, mode="bicubic", align_corners=False)
        return F.l1_loss(rough + self.layers(small), large)


def super_resolution() -> Problem:
    """Super-resolution: pixel shuffle, reflected and replicated borders, bicubic resizing, PReLU."""
    return Problem(SuperResolution(), (torch.rand(BATCH, 3, 8, 8), torch.rand(BATCH, 3, 16, 16)))
