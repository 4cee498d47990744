"""torchvision imports beside any torch, and nothing is declared unless it has to be."""

import subprocess
import sys
import textwrap

NMS_ERROR = "operator torchvision::nms does not exist"


def run(code: str, *path) -> str:
    """Output of a fresh interpreter, as an import can be tried once only in a process."""
    lines = ["import sys", f"sys.path[:0] = {[str(item) for item in path]!r}", textwrap.dedent(code)]
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def fake_torchvision(directory, body: str):
    package = directory / "torchvision"
    package.mkdir()
    (package / "__init__.py").write_text(textwrap.dedent(body))
    (package / "early.py").write_text("import sys\npackage = sys.modules['torchvision']\n")
    return directory


def test_torchvision_imports_beside_this_torch_and_resnet18_runs():
    code = """
        from cmr_runner.data.torchvision_import import import_torchvision
        returned = import_torchvision()
        import torch, torchvision
        assert torchvision is returned is import_torchvision()
        print(tuple(torchvision.models.resnet18().eval()(torch.zeros(1, 3, 32, 32)).shape))
    """
    assert run(code) == "(1, 1000)"


def test_where_the_extension_loads_nothing_is_declared(tmp_path):
    code = """
        from cmr_runner.data import torchvision_import
        torchvision_import.import_torchvision()
        print(torchvision_import._declared)
    """
    assert run(code, fake_torchvision(tmp_path, "loaded = True")) == "None"


def test_another_import_error_is_passed_on_and_nothing_is_declared(tmp_path):
    code = """
        from cmr_runner.data import torchvision_import
        try:
            torchvision_import.import_torchvision()
        except RuntimeError as error:
            print(error, torchvision_import._declared)
    """
    assert run(code, fake_torchvision(tmp_path, "raise RuntimeError('another')")) == "another None"


def test_a_second_attempt_sees_the_operators_and_none_of_the_first_attempts_modules(tmp_path):
    body = f"""
        import torchvision.early, torch
        assert torchvision.early.package is torchvision
        if not hasattr(torch.ops.torchvision, "nms"):
            raise RuntimeError("{NMS_ERROR}")
        assert hasattr(torch.ops.torchvision, "qnms")
    """
    code = """
        import gc
        from cmr_runner.data.torchvision_import import import_torchvision
        module = import_torchvision()
        gc.collect()
        import torch
        print(module.early.package is module, torch.ops.torchvision.nms.default._schema)
    """
    expected = "True torchvision::nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
    assert run(code, fake_torchvision(tmp_path, body)) == expected
