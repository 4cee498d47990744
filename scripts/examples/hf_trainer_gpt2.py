"""CMR in Hugging Face's Trainer, on a small GPT-2 that is made from a configuration.

pip install transformers accelerate && python scripts/examples/hf_trainer_gpt2.py
"""

import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from cmr_runner import analyze
from cmr_runner.integrations.transformers import CMRCallback  # <--

STEPS = 6


def main() -> None:
    torch.manual_seed(0)
    model = GPT2LMHeadModel(
        GPT2Config(n_embd=64, n_layer=2, n_head=4, vocab_size=128, n_positions=64, bos_token_id=0, eos_token_id=0)
    )
    print(analyze(model))  # the head shares the embedding's weight and is left out
    texts = [{"input_ids": row, "labels": row} for row in torch.randint(128, (64, 32))]
    callback = CMRCallback(lam=0.02, warmup_steps=2)  # <-- also takes the clip over: cap, mix, clip
    with tempfile.TemporaryDirectory() as directory:
        arguments = TrainingArguments(
            directory,
            max_steps=STEPS,
            per_device_train_batch_size=8,
            max_grad_norm=1.0,
            logging_steps=2,
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
        )
        Trainer(model, arguments, train_dataset=texts, callbacks=[callback]).train()  # <--
    assert callback.cmr is not None
    print(f"{callback.cmr} after {callback.cmr.step} steps: {callback.cmr.last}")


if __name__ == "__main__":
    main()
