"""cmr-report --serve: a page on loopback that follows the runs."""

import socket
import struct
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from contextlib import contextmanager

import pytest
from synthetic_runs import write_run

from cmr_runner.commands.report import main
from cmr_runner.report.live import LiveServer

from .test_browser import CHROMIUM, browser, playwright  # noqa: F401 (a fixture)


def test_a_browser_that_leaves_in_the_middle_is_no_trouble(capfd):
    large = "x" * 50_000_000  # more than any socket's buffer holds
    with LiveServer(lambda: large, lambda: "state") as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        with socket.create_connection(server.server_address) as visitor:
            visitor.sendall(f"GET / HTTP/1.1\r\nHost: {server.address.split('/')[2]}\r\n\r\n".encode())
            visitor.recv(100)
            visitor.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # cut, not closed
        with urllib.request.urlopen(f"{server.address}state") as answer:
            assert answer.read() == b"state"
        server.shutdown()
        thread.join()
    for worker in threading.enumerate():
        if worker is not threading.current_thread():
            worker.join(10)
    assert capfd.readouterr().err == ""


@pytest.fixture
def served(tmp_path):
    """The real command on two runs: where the runs are, and the address it printed."""
    for seed in range(2):
        write_run(tmp_path, seed=seed, layers=1)
    with serving(tmp_path) as address:
        yield tmp_path, address


@contextmanager
def serving(root, *arguments):
    command = [sys.executable, "-m", "cmr_runner.commands.report", str(root), "--serve", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield process.stdout.readline().split()[0]
    finally:
        process.terminate()
        process.communicate()


def test_only_this_machine_under_its_own_name_is_answered(served):
    _, address = served
    assert address.startswith("http://127.0.0.1:")
    before = urllib.request.urlopen(f"{address}state").read()
    assert urllib.request.urlopen(f"{address}state").read() == before
    write_run(served[0], seed=7, layers=1)
    assert urllib.request.urlopen(f"{address}state").read() != before
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(urllib.request.Request(address, headers={"Host": "elsewhere.example"}))
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"{address}run.json")


def test_a_filter_that_fits_no_run_yet_is_said_on_the_page_until_one_comes(tmp_path):
    write_run(tmp_path, seed=0, layers=1)
    with serving(tmp_path, "--filter", "seed=7") as address:
        assert "no run has seed=7; seed is one of 0" in urllib.request.urlopen(address).read().decode()
        write_run(tmp_path, seed=7, layers=1)
        assert "cmr-kappa_stress-seed7" in urllib.request.urlopen(address).read().decode()


def test_a_filter_of_an_unknown_field_is_refused_before_anything_is_served(tmp_path, capsys):
    write_run(tmp_path, layers=1)
    with pytest.raises(SystemExit) as stopped:
        main([str(tmp_path), "--serve", "--filter", "colour=red"])
    assert stopped.value.code == 2
    assert "argument --filter: 'colour' is not a field of these runs" in capsys.readouterr().err


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium")
def test_the_page_follows_the_runs_and_keeps_its_view(served, browser):  # noqa: F811
    root, address = served
    page = browser.new_context().new_page()
    page.set_default_timeout(90_000)
    page.goto(address)
    page.wait_for_selector("#layer-map .heatmaplayer")
    assert "2 runs" in page.title()
    page.select_option("#mode", "runs")
    write_run(root, seed=2, status="running", rows=2, layers=1)
    page.wait_for_function("() => document.title.includes('3 runs')")
    page.wait_for_selector("#layer-map .heatmaplayer")
    assert page.input_value("#mode") == "runs"
    assert page.inner_text("#live") == "live"
    page.context.close()
