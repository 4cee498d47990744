import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cmr_runner.regularizers.mixing import DELTA, CappedMixing, global_norm

norms = st.floats(min_value=1e-6, max_value=1e6)


@given(task=norms, spec=norms, lam=st.floats(0, 10), rho=st.floats(0.01, 1.0))
def test_capped_gradient_never_passes_rho_times_the_tasks(task: float, spec: float, lam: float, rho: float) -> None:
    for mixing in ("penalty_cap", "algorithm1"):
        mixer = CappedMixing(lam, rho, mixing)  # type: ignore[arg-type]
        factor, cap = mixer.factor(torch.tensor(task), torch.tensor(spec), lam)
        limit = rho * task * (1 if mixing == "penalty_cap" else max(lam, 1e-30))
        assert float(factor) * spec <= limit * (1 + 1e-5)
        assert 0 <= float(cap) <= 1


def test_each_mixing_is_its_formula() -> None:
    task, spec, lam, rho = torch.tensor(2.0), torch.tensor(100.0), 0.1, 0.5
    expected = {
        "penalty_cap": lam * (rho * 2 / (lam * 100 + DELTA)),
        "algorithm1": lam * (rho * 2 / (100 + DELTA)),
        "uncapped": lam,
    }
    for mixing, factor in expected.items():
        got, _ = CappedMixing(lam, rho, mixing).factor(task, spec, lam)  # type: ignore[arg-type]
        assert float(got) == pytest.approx(factor, rel=1e-6)


def test_cap_leaves_a_small_penalty_alone() -> None:
    factor, cap = CappedMixing(0.02, 0.5).factor(torch.tensor(10.0), torch.tensor(1.0), 0.02)
    assert float(cap) == 1.0
    assert float(factor) == pytest.approx(0.02)


def test_no_task_gradient_means_no_penalty_gradient() -> None:
    factor, _ = CappedMixing(0.02, 0.5).factor(torch.tensor(0.0), torch.tensor(1.0), 0.02)
    assert float(factor) == 0.0


def test_warmup_is_linear_and_then_constant() -> None:
    mixer = CappedMixing(0.02, warmup_steps=10)
    assert [mixer.lambda_at(step) for step in (0, 5, 10, 1000)] == pytest.approx([0, 0.01, 0.02, 0.02])
    assert CappedMixing(0.02).lambda_at(0) == 0.02


def test_global_norm_is_that_of_one_long_vector() -> None:
    parts = [torch.randn(3, 4), torch.randn(5)]
    assert float(global_norm(parts)) == pytest.approx(float(torch.cat([p.flatten() for p in parts]).norm()), rel=1e-6)
    assert float(global_norm([])) == 0.0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_norms_of_half_precision_are_taken_in_float32(dtype: torch.dtype) -> None:
    parts = [torch.full((1000,), 3000.0, dtype=dtype), torch.full((9,), 100.0)]  # 3000² is past float16's range
    exact = (1000 * float(parts[0][0]) ** 2 + 9e4) ** 0.5
    assert float(global_norm(parts)) == pytest.approx(exact, rel=1e-5)
