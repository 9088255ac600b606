# SPDX-License-Identifier: Apache-2.0
"""Hugging Face's Trainer, given a model after `model.compile(backend="relaxgrad")`: the same losses as in eager."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from relaxgrad.bridge.backend import record_graphs
from relaxgrad.bridge.kinds import Kind
from relaxgrad.bridge.schemas import GraphKind, GraphRecord

VOCABULARY, LENGTH, STEPS, SAVED = 64, 12, 4, 2


def model(compiled: bool) -> Any:
    """A GPT-2 of one layer. Dropout is on: its masks must be eager's."""
    transformers.set_seed(0)
    config = transformers.GPT2Config(
        vocab_size=VOCABULARY, n_positions=LENGTH, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0
    )
    made = transformers.GPT2LMHeadModel(config)
    if compiled:
        made.compile(backend="relaxgrad", dynamic=False)
    return made


def rows(count: int, seed: int) -> list[dict[str, torch.Tensor]]:
    """Token rows of several lengths, padded on the right: padding is masked, and takes no part in the loss."""
    generator = torch.Generator().manual_seed(seed)
    made = []
    for number in range(count):
        own = LENGTH - number % 4
        tokens = torch.randint(1, VOCABULARY, (LENGTH,), generator=generator)
        mask = (torch.arange(LENGTH) < own).long()
        made.append({"input_ids": tokens * mask, "attention_mask": mask, "labels": torch.where(mask > 0, tokens, -100)})
    return made


def train(folder: Path, compiled: bool, resume: bool = False) -> tuple[list[float], list[float]]:
    """The loss of each optimizer step, of two batches each, and of each evaluation."""
    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        max_steps=STEPS,
        per_device_train_batch_size=2,
        per_device_eval_batch_size=2,
        gradient_accumulation_steps=2,
        learning_rate=1e-2,
        logging_steps=1,
        save_steps=SAVED,
        eval_steps=SAVED,
        eval_strategy="steps",
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        seed=0,
    )
    trainer = transformers.Trainer(model(compiled), arguments, train_dataset=rows(16, 1), eval_dataset=rows(4, 2))
    trainer.train(resume_from_checkpoint=str(folder / f"checkpoint-{SAVED}") if resume else None)
    history = trainer.state.log_history
    return [row["loss"] for row in history if "loss" in row], [
        row["eval_loss"] for row in history if "eval_loss" in row
    ]


def check_ran(graphs: list[GraphRecord]) -> None:
    """One graph of each kind that ran on TVM, none in ATen: what fell back to eager would have no graph, or no runs."""
    runs = {graph.kind: graph.runs for graph in graphs}
    assert set(runs) == {GraphKind.FORWARD, GraphKind.BACKWARD, GraphKind.INFERENCE}
    assert runs[GraphKind.FORWARD] == runs[GraphKind.BACKWARD] == STEPS * 2
    assert runs[GraphKind.INFERENCE] == 2 * (STEPS // SAVED)
    assert all(graph.kernels and not graph.calls.get(Kind.FALLBACK) for graph in graphs)


def test_trainer_accumulates_saves_evaluates_and_resumes_as_in_eager(tmp_path: Path) -> None:
    """`model.compile` before Trainer: each loss is eager's, and a run that resumes goes on as the one that did not."""
    torch.compiler.reset()
    expected = train(tmp_path / "eager", compiled=False)
    with record_graphs() as graphs:
        found = train(tmp_path / "compiled", compiled=True)
    check_ran(graphs)
    assert len(expected[0]) == STEPS
    assert len(expected[1]) == STEPS // SAVED
    for one, other in zip(expected, found, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-5, atol=0)
    with record_graphs() as graphs:
        resumed = train(tmp_path / "compiled", compiled=True, resume=True)
    for one, other in zip(expected, resumed, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-5, atol=0)
    # the checkpoint of a compiled model is an ordinary one
    state = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "compiled" / f"checkpoint-{STEPS}").state_dict()
    other = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "eager" / f"checkpoint-{STEPS}").state_dict()
    torch.testing.assert_close(state, other, rtol=1e-4, atol=1e-5)


def test_trainer_refuses_a_backend_that_accelerate_does_not_list(tmp_path: Path) -> None:
    """The README says to call `model.compile` for this: where accelerate takes any name, say so there instead."""
    with pytest.raises(ValueError, match="RELAXGRAD"):
        transformers.Trainer(
            model(compiled=False),
            transformers.TrainingArguments(
                output_dir=str(tmp_path), torch_compile=True, torch_compile_backend="relaxgrad", use_cpu=True
            ),
        )
