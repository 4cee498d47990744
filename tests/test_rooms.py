"""The plan of the house: two trunks of rooms that meet in `commands`, imports go one way, results need no torch."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import cmr_runner

ROOT = Path(cmr_runner.__file__).parent
# A room imports from itself and from the steps above its own; rooms of one step are leaves, kept apart.
TRAINING_TRUNK = (
    {"spectral"},
    {"regularizers"},
    {"models", "inits", "data"},
    {"distributed"},
    {"training"},
    {"integrations"},
)
RESULTS_TRUNK = ({"runs"}, {"results"}, {"paper"}, {"figures"}, {"report"}, {"tracking"})
TRUNKS = (TRAINING_TRUNK, RESULTS_TRUNK)
COMMANDS = "commands"
ROOMS = {room for trunk in TRUNKS for step in trunk for room in step} | {COMMANDS}
WITHOUT_TORCH = {room for step in RESULTS_TRUNK for room in step}
# The contract of columns and file names, which both trunks write and read by; and the checks, which anyone may use.
SHARED = {"cmr_runner.runs.columns", "cmr_runner.checks"}
TORCH = {"torch", "torchvision"}
TRACKERS = {"tensorboard", "mlflow", "wandb"}
# Only the commands know how a run is configured and called.
COMMAND_LINE = {"hydra", "omegaconf", "argparse"}


def above(room: str) -> set[str]:
    """The rooms that a room may import from."""
    if room == COMMANDS:
        return ROOMS
    trunk = next(trunk for trunk in TRUNKS if any(room in step for step in trunk))
    place = next(i for i, step in enumerate(trunk) if room in step)
    return {room}.union(*trunk[:place])


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in sorted(ROOT.rglob("*.py"))}


def room_of(module: str) -> str | None:
    """The room of cmr_runner.<room>..., None for the package itself and for other packages."""
    parts = module.split(".")
    return parts[1] if parts[0] == "cmr_runner" and len(parts) > 1 and parts[1] in ROOMS else None


def imports_of(room: str) -> Iterator[tuple[str, str]]:
    """Module and imported name, for every import anywhere in the room."""
    return ((m, name) for m in MODULES if room_of(m) == room for name in imports(m, everywhere=True))


def imports(module: str, everywhere: bool) -> Iterator[str]:
    """Names a module imports, submodules of cmr_runner in full: at import time only, or in its functions as well."""
    nodes: list[ast.AST] = list(ast.parse(MODULES[module].read_text(encoding="utf-8")).body)
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = absolute(module, node)
            yield source
            yield from (f"{source}.{alias.name}" for alias in node.names if f"{source}.{alias.name}" in MODULES)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            nodes += node.orelse
        elif everywhere or not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            nodes += list(ast.iter_child_nodes(node))


def absolute(module: str, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    package = module.split(".") if MODULES[module].name == "__init__.py" else module.split(".")[:-1]
    base = package[: len(package) - node.level + 1]
    return ".".join([*base, *([node.module] if node.module else [])])


def imported_with(module: str) -> set[str]:
    """Everything that importing a module imports at once: its own imports, theirs, and the packages around each."""
    seen, waiting = set(), [module]
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        if "." in name:
            waiting.append(name.rpartition(".")[0])
        if name in MODULES:
            waiting += imports(name, everywhere=False)
    return seen


def test_every_room_of_the_package_is_in_the_plan():
    folders = {path.name for path in ROOT.iterdir() if (path / "__init__.py").exists()}
    assert folders <= ROOMS


@pytest.mark.parametrize("room", sorted(ROOMS))
def test_room_imports_only_from_those_above_it_in_its_trunk(room):
    wrong = [
        f"{module} imports {name}"
        for module, name in imports_of(room)
        if (other := room_of(name)) and other not in above(room) and name not in SHARED
    ]
    assert wrong == []


@pytest.mark.parametrize("module", sorted(SHARED & set(MODULES)))
def test_what_both_trunks_share_imports_nothing_of_the_package(module):
    assert [name for name in imports(module, everywhere=True) if name.split(".")[0] == "cmr_runner"] == []


def test_spectral_knows_torch_numpy_and_the_standard_library_only():
    found = {name.split(".")[0] for _, name in imports_of("spectral")}
    assert found - set(sys.stdlib_module_names) <= {"torch", "numpy", "cmr_runner"}


@pytest.mark.parametrize("room", sorted(WITHOUT_TORCH))
def test_no_torch_directly_or_through_others(room):
    wrong = []
    for module in (m for m in MODULES if room_of(m) == room):
        through = {name.split(".")[0] for name in imported_with(module)}
        anywhere = {name.split(".")[0] for name in imports(module, everywhere=True)}
        if found := (through | anywhere) & TORCH:
            wrong.append(f"{module}: {sorted(found)}")
    assert wrong == []


def test_only_figures_draw():
    wrong = [
        f"{module} imports {name}"
        for room in ROOMS - {"figures"}
        for module, name in imports_of(room)
        if name.split(".")[0] == "matplotlib"
    ]
    assert wrong == []


def optional(module: str) -> bool:
    """Whether a module is imported only by those who have installed what it is about."""
    return bool({name.split(".")[0] for name in imports(module, everywhere=True)} & TRACKERS)


def test_results_are_read_and_drawn_where_torch_cannot_be_imported():
    """The real thing: a fresh interpreter in which importing torch fails."""
    modules = ["cmr_runner", *(m for m in MODULES if room_of(m) in WITHOUT_TORCH and not optional(m))]
    code = "import sys, importlib\nsys.modules.update(torch=None, torchvision=None)\n"
    code += "\n".join(f"importlib.import_module({module!r})" for module in modules)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_only_commands_know_hydra_and_argparse():
    wrong = [
        f"{module} imports {name}"
        for room in ROOMS - {COMMANDS}
        for module, name in imports_of(room)
        if name.split(".")[0] in COMMAND_LINE
    ]
    assert wrong == []


def test_a_wrong_import_would_be_seen(tmp_path, monkeypatch):
    """The reader of imports sees functions, relative imports and packages; and leaves TYPE_CHECKING out."""
    source = "from ..spectral import svd\nfrom typing import TYPE_CHECKING\n"
    source += "if TYPE_CHECKING:\n    import hydra\ndef f():\n    import torch.nn\n"
    path = tmp_path / "probe.py"
    path.write_text(source, encoding="utf-8")
    monkeypatch.setitem(MODULES, "cmr_runner.runs.probe", path)
    assert set(imports("cmr_runner.runs.probe", everywhere=True)) == {"cmr_runner.spectral", "typing", "torch.nn"}
    assert "torch.nn" not in set(imports("cmr_runner.runs.probe", everywhere=False))
    assert "torch" in imported_with("cmr_runner.runs.probe")
