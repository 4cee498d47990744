"""scripts/examples/notebook.ipynb, executed: it shows what its text says."""

import json
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[2] / "scripts" / "examples" / "notebook.ipynb"
FIGURES = 3


@pytest.mark.slow
def test_notebook_runs_draws_and_shows_what_its_text_says(monkeypatch: pytest.MonkeyPatch) -> None:
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    notebook.cells.append(nbformat.v4.new_code_cell("print(results.to_json(orient='values'))"))
    nbclient.NotebookClient(notebook, timeout=600, kernel_name="python3").execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert sum("image/png" in output.get("data", {}) for output in outputs) == FIGURES
    found = {(start, name): numbers for start, name, *numbers in json.loads(outputs[-1].text)}
    kappa, accuracy = ({run: numbers[i] for run, numbers in found.items()} for i in (0, 2))
    without, weak, strong = (("κ = 1000", name) for name in ("without CMR", "CMR, λ = 0.02", "CMR, λ = 0.1"))
    assert kappa[without] > 1000
    assert max(kappa[weak], kappa[strong]) < 10
    assert accuracy[strong] > accuracy[without] + 0.1
    usual, usual_cmr = (("torch's own", name) for name in ("without CMR", "CMR, λ = 0.1"))
    assert kappa[usual_cmr] < 10 < kappa[usual]
    assert abs(accuracy[usual_cmr] - accuracy[usual]) < 0.1


def test_notebook_is_committed_without_outputs() -> None:
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    assert all(not cell.get("outputs") and cell.get("execution_count") is None for cell in cells)
