"""The report in a real browser: Debian's Chromium, driven by playwright."""

import re
import shutil

import pytest
from results.beyond_runs import write_stream, write_transformer
from synthetic_runs import write_baselines, write_kappa_stress, write_run

from cmr_runner.commands.report import main

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium"),
]
ODD_NAME = "x <img src=y onerror=alert(1)> 'q\""


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    write_kappa_stress(root, seeds=3, layers=3)
    write_run(root, method="none", seed=9, status="diverged", layers=3, name=ODD_NAME)
    write_baselines(root, seeds=1, epochs=6, layers=2)
    assert main([str(root)]) == 0
    return root / "report" / "report.html"


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield running
        running.close()


@pytest.fixture
def page(browser, report):
    """The report opened from disk. What it logs, asks for or trips over is kept and must be nothing."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    opened = context.new_page()
    opened.set_default_timeout(90_000)
    trouble = []
    opened.on("console", lambda message: trouble.append(message.text))
    opened.on("pageerror", lambda error: trouble.append(str(error)))
    opened.on("dialog", lambda dialog: trouble.append("dialog"))
    opened.on("request", lambda request: trouble.append(request.url) if not request.url.startswith("file:") else None)
    opened.goto(report.as_uri())
    opened.wait_for_selector("#layer-map .heatmaplayer")
    yield opened
    context.close()
    assert trouble == []


def column(page, heading):
    """The cells of a column of the visible runs, top to bottom."""
    return page.evaluate(
        """heading => {
            const at = [...document.querySelectorAll('#runs th')].findIndex(th => th.title === heading);
            return [...document.querySelectorAll('#runs tbody tr')].filter(row => !row.hidden)
                .map(row => row.cells[at].dataset.value);
        }""",
        heading,
    )


def chart(page, place, path):
    return page.evaluate(f"document.querySelectorAll('.panel .chart')[{place}].{path}")


def test_the_page_loads_with_all_charts_and_no_trouble(page):
    assert page.locator(".panel .main-svg").first.is_visible()
    assert page.locator(".panel .chart .plot-container").count() == 4
    assert chart(page, 0, "data.filter(t => t.mode === 'lines+markers').map(t => t.name)") == [
        "vanilla (n = 3)",
        "vanilla, seed 9",
        "CMR (n = 3)",
    ]
    assert page.get_by_text(ODD_NAME).count() > 0
    assert "cloud" not in page.locator(".panel .modebar").first.inner_html().lower()
    assert page.locator("[data-title*=Share]").count() == 0  # nothing offers to send data away


def test_a_heading_sorts_up_then_down_by_number(page):
    button = page.locator("#runs th[title='accuracy %'] button")
    button.click()
    finite = [float(value) for value in column(page, "accuracy %") if value != "nan"]
    assert finite == sorted(finite)
    assert page.locator("#runs th[title='accuracy %']").get_attribute("aria-sort") == "ascending"
    button.focus()
    page.keyboard.press("Enter")
    everything = column(page, "accuracy %")
    assert [float(v) for v in everything if v != "nan"] == sorted(finite, reverse=True)
    assert everything[-1] == "nan"


def test_words_and_columns_filter_the_runs(page):
    page.fill("#search", "cmr kappa_stress")
    assert set(column(page, "regularizer")) == {"cmr"}
    assert page.locator("#count").inner_text() == "3 of 12 runs"
    page.fill("#search", "")
    page.select_option("select[data-field=status]", "diverged")
    assert column(page, "run") == [ODD_NAME]


def test_drawing_only_the_filtered_runs_draws_them_one_by_one(page):
    page.fill("#search", "cmr-kappa_stress-seed1")
    page.click("#show-only")
    assert chart(page, 0, "data.map(t => t.name)") == ["CMR, seed 1"]
    page.click("#show-all")
    assert chart(page, 0, "data.length") == 5


def test_an_axis_switches_between_log_and_linear(page):
    kappa = 2
    assert chart(page, kappa, "layout.yaxis.type") == "log"
    page.locator(".panel > .controls button").nth(kappa).click()
    assert chart(page, kappa, "layout.yaxis.type") == "linear"
    page.locator(".panel > .controls button").nth(kappa).click()
    assert chart(page, kappa, "layout.yaxis.type") == "log"


def test_experiment_quantity_mode_and_groups_can_be_picked(page):
    page.select_option("#experiment", label="standard_baselines")
    assert chart(page, 0, "data.length") == 5
    page.locator(".panel select").first.select_option("kappa_max")
    assert "largest κ(W)" in chart(page, 0, "layout.yaxis.title.text")
    page.locator("#groups input").first.uncheck()
    assert "vanilla (n = 1)" not in chart(page, 0, "data.map(t => t.name)")
    page.select_option("#experiment", label="kappa_stress")
    page.select_option("#mode", "runs")
    assert chart(page, 0, "data.length") == 7


def test_hovering_tells_values(page):
    page.locator(".panel").nth(2).scroll_into_view_if_needed()
    box = page.locator(".panel .chart").nth(2).locator(".nsewdrag").bounding_box()
    for part in (0.55, 0.6):  # a browser tells of a movement, not of a place
        page.mouse.move(box["x"] + box["width"] * part, box["y"] + box["height"] / 2)
    page.wait_for_selector(".hoverlayer .legend")
    text = page.locator(".panel .chart").nth(2).locator(".hoverlayer").text_content()
    assert re.search(r"CMR \(n = 3\) : \d", text)


def test_dark_and_light_and_print_change_the_colours(page):
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.click("#theme")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != light
    dark_ink = chart(page, 0, "layout.font.color")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == light
    assert chart(page, 0, "layout.font.color") != dark_ink
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert chart(page, 0, "layout.font.color") == dark_ink


def test_a_printed_page_is_no_wider_than_its_paper(page):
    page.set_viewport_size({"width": 718, "height": 1000})  # A4 between margins of 1 cm
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("document.documentElement.scrollWidth") <= 718
    assert page.locator("#runs .field").first.is_hidden()


def test_a_narrow_screen_does_not_scroll_sideways(page):
    page.set_viewport_size({"width": 390, "height": 800})
    # The charts follow the window a moment later.
    fits = page.evaluate(
        """async () => {
            const page = document.documentElement;
            for (let frame = 0; frame < 600 && page.scrollWidth > innerWidth; frame++)
                await new Promise(requestAnimationFrame);
            return page.scrollWidth <= innerWidth;
        }"""
    )
    assert fits


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """A report on a sweep of λ, made in another directory than the runs'."""
    root = tmp_path_factory.mktemp("swept")
    for number, lam in enumerate((0.01, 0.1, 1.0)):
        for seed in range(2):
            write_run(root, "mine", "cmr", seed=seed, layers=2, options={"lam": lam}, target=(0.5 + number / 10, 9.0))
    assert main([str(root)]) == 0
    return root / "report" / "report.html"


def test_two_seeds_are_drawn_themselves_without_a_band(browser, swept):
    page = browser.new_context().new_page()
    page.goto(swept.as_uri())
    page.wait_for_selector(".panel .chart .scatterlayer")
    traces = page.evaluate("document.querySelector('.panel .chart').data.map(t => [t.name, t.fill ?? null])")
    assert len(traces) == 9
    assert [fill for _, fill in traces] == [None] * 9
    assert traces[1][0].endswith("seed 0")
    page.context.close()


def test_final_results_show_groups_a_swept_key_and_accuracy_against_kappa(browser, swept):
    page = browser.new_context().new_page()
    page.goto(swept.as_uri())
    page.wait_for_selector("#final-chart .scatterlayer")
    data = "document.querySelector('#final-chart').data"
    assert page.evaluate(f"{data}.map(t => t.x.length)") == [2, 2, 2]
    page.select_option("#final-kind", "regularizer.lam")
    (series,) = page.evaluate(f"{data}.map(t => [t.x, t.y.length])")
    assert series == [[0.01, 0.1, 1], 3]
    assert page.evaluate("document.querySelector('#final-chart').layout.xaxis.type") == "log"
    page.select_option("#final-kind", "tradeoff")
    assert page.evaluate("document.querySelector('#final-chart').layout.xaxis.type") == "log"
    page.context.close()


def test_panels_follow_the_task_kappa_is_drawn_by_kind_and_a_stream_task_by_task(browser, tmp_path):
    for seed in range(3):
        write_stream(tmp_path, "none", seed=seed, epochs=6)
        write_transformer(tmp_path, "cmr", seed=seed)
    write_run(tmp_path, "digits", layers=2)
    assert main([str(tmp_path)]) == 0
    page = browser.new_context().new_page()
    page.goto((tmp_path / "report" / "report.html").as_uri())
    page.wait_for_selector(".panel .chart .scatterlayer")
    first, final = "#charts select >> nth=0", "document.querySelector('#final-chart')"
    assert page.locator(first).input_value() == "test_accuracy"
    assert not page.locator("#kinds").is_visible()  # its layers are of one kind
    page.select_option("#experiment", label="stream")
    assert page.locator(first).input_value() == "task_mean_test_accuracy"
    assert page.locator("#final-kind").input_value() == "tasks"
    band, line = page.evaluate(f"{final}.data.map(t => t.x)")
    assert (line, band) == ([1, 2, 3], [1, 2, 3, 3, 2, 1])
    assert page.evaluate(f"{final}.layout.xaxis.title.text") == "task"
    page.select_option("#mode", "runs")
    assert page.evaluate(f"{final}.data.map(t => t.x)") == [[1, 2, 3]] * 3
    page.select_option("#experiment", label="transformer")
    assert page.locator(first).input_value() == "test_loss"
    assert page.locator(f"{first} >> option[value=task_mean_test_accuracy]").is_disabled()
    charts = "[...document.querySelectorAll('#kind-charts .chart')]"
    kinds = ["attention q, k, v", "attention output", "MLP", "head"]
    assert page.locator("#kind-charts b").all_inner_texts() == [f"mean κ(W), {kind}" for kind in kinds]
    assert len({tuple(span) for span in page.evaluate(f"{charts}.map(c => c.layout.yaxis.range)")}) == 1
    page.context.close()


def test_two_groups_layer_maps_stand_side_by_side_on_one_scale(page):
    maps = [f"document.querySelector('#{name}').data[0]" for name in ("layer-map", "layer-map-2")]
    assert page.evaluate(f"{maps[0]}.zmax") == page.evaluate(f"{maps[1]}.zmax")
    first = page.evaluate(f"{maps[0]}.z")
    assert page.evaluate(f"{maps[1]}.z") != first
    page.select_option("#layer-group-2", index=0)
    assert page.evaluate(f"{maps[1]}.z") == first


def test_spectra_of_a_layer_before_and_after(page):
    names = page.evaluate("document.querySelector('#spectrum-chart').data.map(t => t.name)")
    assert names == ["vanilla, before", "vanilla, epoch 5", "CMR, before", "CMR, epoch 5"]
    one = page.evaluate("document.querySelector('#spectrum-chart').data[1].y")
    page.select_option("#spectrum-layer", index=0)
    assert page.evaluate("document.querySelector('#spectrum-chart').data[1].y") != one


@pytest.fixture(scope="module")
def moving(tmp_path_factory):
    """A report on runs that kept the spectra of all epochs."""
    root = tmp_path_factory.mktemp("moving")
    for method in ("none", "cmr"):
        write_run(root, method=method, epochs=4, layers=1, spectra="all")
    assert main([str(root)]) == 0
    return root / "report" / "report.html"


def spectrum(page, path):
    return page.evaluate(f"document.querySelector('#spectrum-chart').{path}")


def test_the_spectrum_of_a_layer_plays_epoch_by_epoch_to_the_last(browser, moving):
    page = browser.new_context().new_page()
    page.goto(moving.as_uri())
    page.wait_for_selector("#spectrum-chart .scatterlayer")
    last, axis = spectrum(page, "data.map(t => t.y)"), spectrum(page, "layout.yaxis.range")
    page.locator("#frame").fill("1")
    assert spectrum(page, "data.map(t => t.name)")[1::2] == ["vanilla, epoch 1", "CMR, epoch 1"]
    assert page.locator("#frame-epoch").inner_text() == "1 of 4"
    first = spectrum(page, "data.map(t => t.y)")
    assert (first[0], first[1] != last[1], first[3] != last[3]) == (last[0], True, True)
    assert spectrum(page, "layout.yaxis.range") == axis
    other = browser.new_context().new_page()
    other.goto(page.evaluate("location.href"))
    other.wait_for_selector("#spectrum-chart .scatterlayer")
    assert spectrum(other, "data[1].name") == "vanilla, epoch 1"
    other.context.close()
    page.click("#play")
    assert page.locator("#play").inner_text() == "Pause"
    page.wait_for_function("() => document.querySelector('#play').textContent === 'Play'")
    assert spectrum(page, "data.map(t => t.y)") == last
    page.context.close()


def test_nothing_moves_by_itself_for_who_wants_less_motion(browser, moving, page):
    assert page.locator("#play").is_hidden()  # the ends alone are no motion
    calm = browser.new_context(reduced_motion="reduce").new_page()
    calm.goto(moving.as_uri())
    calm.wait_for_selector("#spectrum-chart .scatterlayer")
    assert calm.locator("#play").is_hidden()
    calm.locator("#frame").press("ArrowLeft")
    assert spectrum(calm, "data[1].name") == "vanilla, epoch 3"
    calm.context.close()


def test_a_grid_of_lambda_and_rho_is_a_map_that_does_not_make_noise_bright(browser, tmp_path):
    for lam in (0.01, 0.02):
        for rho in (0.1, 0.5):
            write_run(tmp_path, "mine", layers=1, options={"lam": lam, "rho_spec": rho}, target=(0.9 + lam, 3.0))
    assert main([str(tmp_path)]) == 0
    page = browser.new_context().new_page()
    page.goto((tmp_path / "report" / "report.html").as_uri())
    page.wait_for_selector("#final-chart .heatmaplayer")
    drawn = "document.querySelector('#final-chart')"
    assert page.locator("#final-kind option").first.inner_text() == "test accuracy (%) over λ × ρ_spec"
    accuracy = page.evaluate(f"{drawn}.data[0]")
    assert (accuracy["y"], accuracy["x"]) == (["0.01", "0.02"], ["0.1", "0.5"])
    cells = page.evaluate(
        "data.experiments[0].grids[0].cells.map(row => row.map(i => data.runs[data.groups[i].runs[0]].own))"
    )
    assert [[cell["regularizer.lam"], cell["regularizer.rho_spec"]] for row in cells for cell in row] == [
        ["0.01", "0.1"],
        ["0.01", "0.5"],
        ["0.02", "0.1"],
        ["0.02", "0.5"],
    ]
    assert min(map(min, accuracy["z"])) > 80
    assert accuracy["zmax"] - accuracy["zmin"] == pytest.approx(20)
    (frame,) = page.evaluate(f"{drawn}.layout.shapes")
    assert (frame["x0"], frame["y0"]) == (0.5, 0.5)
    page.select_option("#final-kind", "grid 0 kappa_mean")
    kappa = page.evaluate(f"{drawn}.data[0]")
    assert kappa["zmax"] - kappa["zmin"] >= 0.999  # a factor of ten
    page.context.close()


def test_a_click_on_a_run_shows_its_configuration_and_command(page):
    page.get_by_role("button", name="cmr-kappa_stress-seed1", exact=True).click()
    dialog = page.locator("#run-details")
    assert dialog.is_visible()
    text = dialog.inner_text()
    assert "regularizer.lam" in text
    assert "cmr-run" in text
    page.click("#run-close")
    assert not dialog.is_visible()


def test_the_address_reproduces_the_view(browser, page, report):
    page.select_option("#experiment", label="standard_baselines")
    page.locator(".panel select").first.select_option("kappa_max")
    page.locator("#groups input").first.uncheck()
    page.select_option("#final-kind", "tradeoff")
    page.click("#theme")
    address = page.evaluate("location.href")
    state = """() => [document.querySelector('#experiment').selectedOptions[0].textContent,
        document.querySelector('.panel .chart').data.map(t => t.name), document.querySelector('#final-kind').value,
        document.documentElement.dataset.theme, document.querySelector('.panel .chart').layout.yaxis.title.text]"""
    expected = page.evaluate(state)
    other = browser.new_context().new_page()
    other.goto(address)
    other.wait_for_selector("#layer-map .heatmaplayer")
    assert other.evaluate(state) == expected
    assert expected[0] == "standard_baselines"
    other.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_series_has_a_contrast_of_three_to_one(page, scheme):
    page.emulate_media(color_scheme=scheme)
    page.select_option("#experiment", label="standard_baselines")
    page.wait_for_function("scheme => document.documentElement.dataset.theme === scheme", arg=scheme)
    contrasts = page.evaluate(
        "document.querySelector('.panel .chart').data.filter(t => t.mode === 'lines+markers')"
        ".map(t => contrast(t.line.color, ink('--panel')))"
    )
    assert len(contrasts) == 5
    assert min(contrasts) >= 3


def test_at_420_pixels_a_table_that_scrolls_says_so(page):
    page.set_viewport_size({"width": 420, "height": 800})
    page.wait_for_function("() => document.querySelector('#all-runs .scroll').classList.contains('scrolls')")
    said = "getComputedStyle(document.querySelector('#all-runs .scroll'), '::before').content"
    assert "scrolls sideways" in page.evaluate(said)


def test_legend_entries_are_short_and_tell_the_long_name_on_hover(browser, tmp_path):
    long = "a_regularizer_with_a_very_long_name_indeed_for_a_legend"
    write_run(tmp_path, "mine", long, layers=1)
    main([str(tmp_path)])
    page = browser.new_context().new_page()
    page.goto((tmp_path / "report" / "report.html").as_uri())
    page.wait_for_selector("#groups label")
    label = page.locator("#groups label").first
    assert label.get_attribute("title") == long
    assert len(label.inner_text()) < 45
    page.context.close()
