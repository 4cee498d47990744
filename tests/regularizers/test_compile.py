"""A model under torch.compile trains with CMR as it does without."""

import os
import shutil

import pytest
import torch
from torch.nn.functional import cross_entropy

from cmr_runner import CMR, analyze
from tests.regularizers.test_drop_in import X, Y, gradients, network

pytestmark = pytest.mark.slow  # importing the compiler alone takes seconds


def without_compiler() -> bool:
    """CI has a C++ compiler: there the test fails without one."""
    return not (os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")) and "CI" not in os.environ


@pytest.mark.parametrize(
    "backend",
    [
        "aot_eager",  # torch's own capture of forward and backward, without generated code
        pytest.param("inductor", marks=pytest.mark.skipif(without_compiler(), reason="needs a C++ compiler")),
    ],
)
def test_gradients_of_a_compiled_model_are_those_of_eager_training(backend: str) -> None:
    eager, inner = network(), network()
    compiled = torch.compile(inner, backend=backend)
    models = (eager, compiled)
    regularizers = [CMR(model, lam=10.0, warmup_steps=1) for model in models]
    optimizers = [torch.optim.Adam(model.parameters()) for model in models]
    for _ in range(3):
        for model, cmr, optimizer in zip(models, regularizers, optimizers, strict=True):
            optimizer.zero_grad()
            cross_entropy(model(X), Y).backward()
            cmr.add_gradients()
        for one, other in zip(gradients(eager), gradients(inner), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
        for optimizer in optimizers:
            optimizer.step()
    assert [layer.name for layer in regularizers[1].layers] == [f"_orig_mod.layers.{i}.weight" for i in range(4)]
    assert analyze(compiled)["kappa"].tolist() == pytest.approx(analyze(eager)["kappa"].tolist(), rel=1e-3)
    assert list(inner.state_dict()) == list(eager.state_dict())
