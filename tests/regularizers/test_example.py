import runpy
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "example_resnet18.py"


@pytest.mark.slow
def test_example_runs_on_a_network_that_is_not_ours(capsys: pytest.CaptureFixture[str]) -> None:
    main = runpy.run_path(str(SCRIPT))["main"]
    main.__globals__["STEPS"] = 2
    main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[:2]] == [["step", "0"], ["step", "1"]]
    assert lines[-1].startswith("21 layers, mean κ ")
    before, after = (float(text) for text in lines[-1].rpartition("κ ")[2].split(" -> "))
    assert after <= before
