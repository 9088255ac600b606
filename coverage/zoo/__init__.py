"""The zoo: small training problems of the architectures people train, in train mode with dropout on.

The table below is all that is read to list or check names; a factory's file (and torch, transformers) is imported
when its problem is built. A factory takes a seed and gives the same problem for the same seed.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..problem import Problem


class Group(StrEnum):
    """Families of the zoo."""

    TINY = "tiny"
    TEXT = "text"
    VISION = "vision"
    RECURRENT = "recurrent"


@dataclass(frozen=True)
class ZooEntry:
    """One named problem of the zoo."""

    name: str
    group: Group
    factory: str  # function of the group's file (as zoo/text.py): factory(seed) -> Problem
    dropout: bool  # whether the architecture has a random part in training

    def build(self, seed: int) -> Problem:
        """The problem: parameters, inputs and targets drawn from `seed`."""
        from ..problem import seed_everything

        module = importlib.import_module(f".{self.group.value}", __name__)
        seed_everything(seed)
        problem: Problem = getattr(module, self.factory)()
        problem.module.train()
        return problem


ZOO: dict[str, ZooEntry] = {
    entry.name: entry
    for entry in (
        ZooEntry("seed-example", Group.TINY, "seed_example", dropout=False),
        ZooEntry("mlp", Group.TINY, "mlp", dropout=True),
        ZooEntry("cnn-bn", Group.VISION, "cnn_bn", dropout=True),
        ZooEntry("lstm", Group.RECURRENT, "lstm", dropout=True),
        ZooEntry("gru", Group.RECURRENT, "gru", dropout=True),
        ZooEntry("transformer-encoder", Group.TEXT, "transformer_encoder", dropout=True),
        ZooEntry("gpt2", Group.TEXT, "gpt2", dropout=True),
        ZooEntry("bert", Group.TEXT, "bert", dropout=True),
        ZooEntry("llama", Group.TEXT, "llama", dropout=True),
        ZooEntry("t5", Group.TEXT, "t5", dropout=True),
        ZooEntry("vit", Group.VISION, "vit", dropout=True),
        ZooEntry("resnet", Group.VISION, "resnet", dropout=False),
        ZooEntry("convnext", Group.VISION, "convnext", dropout=True),
        ZooEntry("distilbert", Group.TEXT, "distilbert", dropout=True),
        ZooEntry("mistral", Group.TEXT, "mistral", dropout=True),
    )
}
