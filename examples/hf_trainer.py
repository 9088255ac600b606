# SPDX-License-Identifier: Apache-2.0
"""Hugging Face's Trainer on a model that relaxgrad compiles: `model.compile(backend="relaxgrad")` before Trainer.

    pip install "transformers>=5" accelerate && python examples/hf_trainer.py --steps 60

A small GPT-2 with random weights learns sequences of which each token is the sum of the two before it.
"""

from __future__ import annotations

import argparse
import tempfile

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

VOCABULARY, LENGTH = 32, 24


class Sums(Dataset[dict[str, torch.Tensor]]):
    """Sequences of which each token is the sum of the two before it, modulo the vocabulary."""

    def __init__(self, count: int, seed: int):
        generator = torch.Generator().manual_seed(seed)
        self.rows = torch.randint(VOCABULARY, (count, LENGTH), generator=generator)
        for i in range(2, LENGTH):
            self.rows[:, i] = (self.rows[:, i - 1] + self.rows[:, i - 2]) % VOCABULARY

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.rows[index], "labels": self.rows[index]}


def train(steps: int, folder: str) -> list[float]:
    """The loss of every tenth step."""
    set_seed(0)
    config = GPT2Config(
        vocab_size=VOCABULARY, n_positions=LENGTH, n_embd=64, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0
    )
    model = GPT2LMHeadModel(config)
    model.compile(backend="relaxgrad")
    arguments = TrainingArguments(
        output_dir=folder,
        max_steps=steps,
        per_device_train_batch_size=32,
        learning_rate=3e-3,
        logging_steps=10,
        save_strategy="no",
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
    )
    trainer = Trainer(model, arguments, train_dataset=Sums(2048, seed=1))
    trainer.train()
    return [row["loss"] for row in trainer.state.log_history if "loss" in row]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    with tempfile.TemporaryDirectory() as output:
        print(train(parser.parse_args().steps, output))
