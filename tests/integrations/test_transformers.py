"""Hugging Face's real Trainer with CMRCallback, Accelerate and timm's networks with attach, beside a plain loop.

Compared are the gradients as the optimiser gets them in each step, and the weights at the end.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from cmr_runner import CMR
from cmr_runner.data.torchvision_import import import_torchvision

import_torchvision()  # transformers imports it
transformers = pytest.importorskip("transformers")

from cmr_runner.integrations.transformers import CMRCallback  # noqa: E402 (needs transformers)

TOKENS = torch.randint(0, 50, (8, 10), generator=torch.Generator().manual_seed(1))
OPTIONS: dict[str, Any] = {"lam": 10.0, "warmup_steps": 2}
CLIP, LR = 0.5, 1e-3
Gradients = dict[str, Tensor]


def gpt2() -> nn.Module:
    torch.manual_seed(0)
    size = {"n_embd": 16, "n_layer": 1, "n_head": 2, "vocab_size": 50, "n_positions": 16}
    quiet = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**size, **quiet, bos_token_id=0, eos_token_id=0))


class Watching(transformers.TrainerCallback):
    """The gradients that the optimiser is given, step by step."""

    def __init__(self) -> None:
        self.seen: list[Gradients] = []

    def on_optimizer_step(self, *_: object, model: nn.Module, **__: object) -> None:
        self.seen.append(gradients(model))


def gradients(model: nn.Module) -> Gradients:
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def watched(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[Gradients]:
    """The same of a loop of one's own: filled while the optimiser steps."""
    seen: list[Gradients] = []
    optimizer.register_step_post_hook(lambda *_: seen.append(gradients(model)))
    return seen


def trainer_of(directory: Path, model: nn.Module, *callbacks: object, **keys: Any) -> Any:
    given = {"max_steps": 4, "save_strategy": "no", "logging_steps": 1, "optim": "sgd", **keys}
    arguments = transformers.TrainingArguments(
        str(directory),
        per_device_train_batch_size=8,
        learning_rate=LR,
        lr_scheduler_type="constant",
        max_grad_norm=CLIP,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        **given,
    )
    examples = [{"input_ids": row, "labels": row} for row in TOKENS]
    return transformers.Trainer(model, arguments, train_dataset=examples, callbacks=list(callbacks))


def trained(directory: Path, model: nn.Module, *callbacks: object, resume: str | None = None, **keys: Any) -> Any:
    trainer = trainer_of(directory, model, *callbacks, **keys)
    trainer.train(resume_from_checkpoint=resume)
    return trainer


def by_hand(model: nn.Module, steps: int) -> list[Gradients]:
    """Cap, mix, clip, step; the gradients that the optimiser saw."""
    cmr, optimizer = CMR(model, **OPTIONS), torch.optim.SGD(model.parameters(), lr=LR)
    seen = watched(model, optimizer)
    for _ in range(steps):
        optimizer.zero_grad()
        model(input_ids=TOKENS, labels=TOKENS).loss.backward()
        cmr.add_gradients()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
    return seen


def same(one: nn.Module, other: nn.Module) -> None:
    for a, b in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)


def same_gradients(seen: list[Gradients], expected: list[Gradients]) -> None:
    assert len(seen) == len(expected)
    for one, other in zip(seen, expected, strict=True):
        assert one.keys() == other.keys()
        for name, gradient in one.items():
            torch.testing.assert_close(gradient, other[name], rtol=1e-4, atol=1e-6, msg=name)


def test_trainer_steps_are_those_of_a_plain_loop_that_clips_after_mixing(tmp_path: Path) -> None:
    model, expected, watching = gpt2(), gpt2(), Watching()
    callback = CMRCallback(**OPTIONS)
    trainer = trained(tmp_path, model, callback, watching)
    same_gradients(watching.seen, by_hand(expected, 4))
    assert all(torch.cat([g.flatten() for g in seen.values()]).norm() <= CLIP * 1.0001 for seen in watching.seen)
    same(model, expected)
    assert trainer.args.max_grad_norm == CLIP  # given back
    assert callback.cmr is not None
    assert callback.cmr.last is not None
    assert float(callback.cmr.last.norm_task) > CLIP  # the cap saw the whole gradient, not the clipped one
    assert list(model.state_dict()) == list(gpt2().state_dict())


def test_training_again_after_an_interruption_still_clips(tmp_path: Path) -> None:
    class Interrupting(transformers.TrainerCallback):
        def on_optimizer_step(self, _: object, state: Any, *__: object, **___: object) -> None:
            if state.global_step == 1:
                raise KeyboardInterrupt

    watching, interrupting = Watching(), Interrupting()
    callback = CMRCallback(**OPTIONS)
    trainer = trainer_of(tmp_path, gpt2(), callback, watching, interrupting)
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    trainer.remove_callback(interrupting)
    trainer.remove_callback(callback)
    trainer.add_callback(CMRCallback(**OPTIONS))  # as when a notebook's cell is run again: the arguments are the same
    trainer.callback_handler.callbacks.remove(watching)
    trainer.add_callback(watching)  # after it: what it sees is clipped
    trainer.train()
    assert len(watching.seen) == 2 + 4
    assert all(torch.cat([g.flatten() for g in seen.values()]).norm() <= CLIP * 1.0001 for seen in watching.seen)
    assert trainer.args.max_grad_norm == CLIP


def test_numbers_join_the_trainers_log(tmp_path: Path) -> None:
    trainer = trained(tmp_path, gpt2(), CMRCallback(**OPTIONS), max_steps=2)
    entry = trainer.state.log_history[0]
    assert {"loss", "grad_norm", "cmr/kappa_mean", "cmr/cap", "cmr/penalty"} <= set(entry)
    json.dumps(entry)


def test_a_resumed_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    whole = gpt2()
    trained(tmp_path / "whole", whole, CMRCallback(**OPTIONS), max_steps=6)
    half = tmp_path / "half"
    trained(half, gpt2(), CMRCallback(**OPTIONS), max_steps=3, save_strategy="steps", save_steps=3)
    resumed, callback = gpt2(), CMRCallback(**OPTIONS)
    trained(half, resumed, callback, resume=str(half / "checkpoint-3"), max_steps=6)
    assert callback.cmr is not None
    assert callback.cmr.step == 6
    same(whole, resumed)


def test_accelerate_is_served_by_attach_and_waits_for_accumulated_gradients() -> None:
    accelerate = pytest.importorskip("accelerate")
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
    model, expected = gpt2(), gpt2()
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=LR))
    cmr = CMR(model, **OPTIONS)
    cmr.attach(optimizer, clip_norm=CLIP)
    seen = watched(model, optimizer.optimizer)
    for _ in range(3):
        for half in TOKENS.chunk(2):
            with accelerator.accumulate(model):
                accelerator.backward(model(input_ids=half, labels=half).loss)
                optimizer.step()
                optimizer.zero_grad()
    assert cmr.step == 3
    same_gradients(seen, by_hand(expected, 3))
    same(model, expected)


def test_timms_networks_train_by_attach_as_in_a_plain_loop() -> None:
    timm = pytest.importorskip("timm")

    def vit() -> nn.Module:
        torch.manual_seed(0)
        return timm.create_model("vit_tiny_patch16_224", img_size=32, depth=1, num_classes=10)

    images, labels = torch.randn(4, 3, 32, 32), torch.arange(4)

    def loss(model: nn.Module) -> Tensor:
        return nn.functional.cross_entropy(model(images), labels)

    attached, plain = vit(), vit()
    optimizer = torch.optim.SGD(attached.parameters(), lr=LR)
    CMR(attached, lam=1.0).attach(optimizer)
    cmr, other = CMR(plain, lam=1.0), torch.optim.SGD(plain.parameters(), lr=LR)
    seen, expected = watched(attached, optimizer), watched(plain, other)
    for _ in range(2):
        for model, stepper in ((attached, optimizer), (plain, other)):
            stepper.zero_grad()
            loss(model).backward()
            if model is plain:
                cmr.add_gradients()
            stepper.step()
    same_gradients(seen, expected)
    same(attached, plain)
