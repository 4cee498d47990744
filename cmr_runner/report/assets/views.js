// Final results as charts, spectra of a layer over epochs, the details of a run, and a link that opens the same view.

const finalOf = (run, quantity) => (run.complete ? (run.curves[quantity] ?? []).at(-1) ?? null : null);
const finalsOf = (group, quantity) => group.runs.filter(picked).map((i) => finalOf(data.runs[i], quantity));
const isNumber = (value) => typeof value === "number";
const mean = (values, log) => {
  const total = values.reduce((sum, value) => sum + (log ? Math.log(value) : value), 0) / values.length;
  return log ? Math.exp(total) : total;
};
const visibleGroups = () => experiment().groups.filter((i) => shownGroups.has(i)).map((i) => data.groups[i]);
const marker = (group, size) => ({ color: lineColor(group), symbol: group.symbol, size });

// One point per run: what the task is judged by, by group or against κ.
function pointTraces(kind) {
  return visibleGroups().map((group) => {
    const { id, unit } = experiment().headline;
    const reached = finalsOf(group, id);
    const kappa = finalsOf(group, "kappa_mean");
    const both = reached.map((y, i) => [kappa[i], y]).filter(([x, y]) => isNumber(y) && (kind === "groups" || isNumber(x)));
    return {
      type: "scatter", mode: "markers", name: group.label, marker: marker(group, 9),
      x: both.map(([x, y]) => (kind === "groups" ? y : x)), y: both.map(([, y]) => (kind === "groups" ? group.short : y)),
      hovertemplate: kind === "groups" ? `%{x:.4~g}${unit}` : `κ %{x:.4~g}, %{y:.4~g}${unit}`,
    };
  });
}

function dependenceTraces(dependence) {
  const { id, log, unit } = experiment().headline;
  return dependence.series.map((series) => {
    const points = series.groups.map((i, place) => {
      const values = finalsOf(data.groups[i], id).filter(isNumber);
      return [series.values[place], values.length ? mean(values, log) : null, values];
    }).filter(([, y]) => y !== null);
    const group = data.groups[series.groups[0]];
    return {
      type: "scatter", mode: "lines+markers", name: series.label || group.label, x: points.map(([x]) => x), y: points.map(([, y]) => y),
      line: { color: lineColor(group), dash: group.dash }, marker: marker(group, 8), hovertemplate: `%{y:.4~g}${unit}`,
      error_y: { type: "data", symmetric: false, color: lineColor(group), thickness: 1,
        array: points.map(([, y, values]) => Math.max(...values) - y), arrayminus: points.map(([, y, values]) => y - Math.min(...values)) },
    };
  });
}

// The choices of a map: which grid of the experiment, and which quantity.
const gridKinds = (one) => one.grids.flatMap((grid, i) => Object.keys(grid.least).map((id) =>
  [`grid ${i} ${id}`, `${quantityOf(id).label} over ${grid.axes.join(" × ")}${grid.name ? `, ${grid.name}` : ""}`]));

function gridOf(kind) {
  const [word, place, id] = kind.split(" ");
  return word === "grid" ? { ...experiment().grids[place], quantity: quantityOf(id) } : null;
}

// A range that spans at least so much (a factor on a logarithmic scale), so that noise does not look like signal.
function spannedRange(values, log, least) {
  const [low, high] = extremes(values);
  const lacking = Math.max(0, (log ? Math.log10(least) : least) - (high - low));
  return log ? [low - lacking / 2, high + lacking / 2] : [low - lacking, high];
}

function gridTrace(grid) {
  const { id, log } = grid.quantity;
  const finals = grid.cells.map((row) => row.map((i) => (i === null ? [] : finalsOf(data.groups[i], id).filter(isNumber))));
  const means = finals.map((row) => row.map((values) => (values.length ? mean(values, log) : null)));
  const z = means.map((row) => row.map((value) => (value === null ? null : log ? Math.log10(value) : value)));
  const [zmin, zmax] = spannedRange(z.flat().filter(isNumber), log, grid.least[id]);
  const steps = [0, 0.25, 0.5, 0.75, 1].map((part) => zmin + part * (zmax - zmin));
  return {
    type: "heatmap", x: grid.columns, y: grid.rows, z, zmin, zmax, colorscale: "Cividis", xgap: 1, ygap: 1,
    text: means.map((row) => row.map((value) => (value === null ? "–" : value < 1000 ? value.toPrecision(3) : shortNumber(value)))), texttemplate: "%{text}",
    customdata: finals.map((row) => row.map((values) => values.length)),
    hovertemplate: `${grid.axes[0]} = %{y}, ${grid.axes[1]} = %{x}: %{text} (n = %{customdata})<extra></extra>`,
    colorbar: { title: { text: grid.quantity.label }, tickvals: steps, ticktext: steps.map((x) => shortNumber(log ? 10 ** x : x)) },
  };
}

function gridLayout(figure, grid) {
  Object.assign(figure.xaxis, { title: { text: grid.axes[1] }, type: "category", rangemode: "normal" });
  Object.assign(figure.yaxis, { title: { text: grid.axes[0] }, type: "category", autorange: "reversed" });
  const [row, column] = grid.paper ?? [];
  if (grid.paper) figure.shapes = [{ type: "rect", x0: column - 0.5, x1: column + 0.5, y0: row - 0.5, y1: row + 0.5, line: { color: "#D55E00", width: 3 } }];
}

function taskLayout(figure) {
  const last = Math.max(1, ...visibleGroups().flatMap((group) => group.runs.map((i) => data.runs[i].tasks.epochs?.at(-1) ?? 1)));
  Object.assign(figure.xaxis, { title: { text: "task" }, rangemode: "normal", dtick: Math.ceil(last / 12) });
  Object.assign(figure.yaxis, { title: { text: "test accuracy at the end of the task (%)" } });
}

function drawFinal() {
  const kind = byId("final-kind").value;
  const target = byId("final-chart");
  const grid = gridOf(kind);
  const dependence = experiment().dependences.find((one) => one.key === kind);
  const judged = experiment().headline;
  const figure = layout(`final ${judged.label}`, judged.log && kind !== "groups" && !grid);
  figure.hovermode = "closest";
  figure.hoverlabel.namelength = -1;
  if (grid) gridLayout(figure, grid);
  else if (kind === "tasks") taskLayout(figure);
  else if (dependence) {
    const values = dependence.series.flatMap((series) => series.values).filter((x) => x > 0);
    const log = values.length && Math.max(...values) / Math.min(...values) >= 10 && dependence.series.every((s) => s.values.every((x) => x > 0));
    Object.assign(figure.xaxis, { title: { text: dependence.key }, type: log ? "log" : "linear", rangemode: "normal" });
    if (log) Object.assign(figure.xaxis, { tickvals: [...new Set(values)], ticktext: [...new Set(values)].map(String) });
  } else if (kind === "groups") {
    Object.assign(figure.xaxis, { title: { text: `final ${judged.label}` }, type: judged.log ? "log" : "linear", rangemode: "normal" });
    Object.assign(figure.yaxis, { title: { text: "" }, type: "category", autorange: "reversed" });
  } else {
    Object.assign(figure.xaxis, { title: { text: "final mean κ(W) (log)" }, type: "log", rangemode: "normal", exponentformat: "power" });
  }
  const traces = grid ? [gridTrace(grid)] : kind === "tasks" ? visibleGroups().flatMap((group) => groupTraces(group, "test_accuracy", byTask)) : dependence ? dependenceTraces(dependence) : pointTraces(kind);
  figure.height = kind === "groups" ? Math.max(220, 90 + 24 * traces.length) : grid ? Math.max(260, 110 + 34 * grid.rows.length) : 420;
  if (printing) figure.width = PRINTED_WIDTH;
  target.style.height = `${figure.height}px`;
  target.setAttribute("aria-label", `Final results, ${experiment().name}`);
  Plotly.react(target, traces, figure, CONFIG);
}

// The epoch whose spectra are shown; null is the last one. `playing` is the clock that moves it on.
let shownEpoch = null;
let playing = null;
const FRAME_MILLISECONDS = 600;
const calm = matchMedia("(prefers-reduced-motion: reduce)");

const spectrumGroups = () => visibleGroups().filter((group) => group.spectra[byId("spectrum-layer").value]);
const spectrumEpochs = (groups, layer) => [...new Set(groups.flatMap((group) => group.spectra[layer].epochs))].sort((a, b) => a - b);

// The last epoch of a group that is not after `epoch`: a group that ended earlier stays as it ended.
function spectrumAt(spectra, epoch) {
  return spectra.sigma[Math.max(0, spectra.epochs.findLastIndex((logged) => logged <= epoch))];
}

function drawSpectra() {
  const layer = byId("spectrum-layer").value;
  const target = byId("spectrum-chart");
  const shown = spectrumGroups();
  const epochs = spectrumEpochs(shown, layer);
  byId("frames").hidden = epochs.length < 2;
  byId("play").hidden = epochs.length < 3 || calm.matches;
  if (!shown.length) {
    stopPlaying();
    Plotly.purge(target);
    target.textContent = "No spectra.csv for this experiment.";
    return;
  }
  if (!target.data) target.textContent = "";
  const place = shownEpoch === null ? epochs.length - 1 : Math.max(0, epochs.findLastIndex((epoch) => epoch <= shownEpoch));
  Object.assign(byId("frame"), { max: epochs.length - 1, value: place, ariaValueText: `epoch ${epochs[place]}` });
  byId("frame-epoch").textContent = `${epochs[place]} of ${epochs.at(-1)}`;
  const figure = layout("singular value σ", true);
  // All epochs on one scale, or nothing would be seen to move.
  const everything = shown.flatMap((group) => group.spectra[layer].sigma.flat()).filter((sigma) => sigma > 0);
  const [low, high] = extremes(everything.map(Math.log10));
  Object.assign(figure.yaxis, logTicks([{ y: everything }]), { range: [low - 0.05 * (high - low) - 0.01, high + 0.05 * (high - low) + 0.01] });
  Object.assign(figure.xaxis, { title: { text: "percentile of the layer's singular values" }, dtick: 25 });
  figure.hovermode = "closest";
  figure.height = 420;
  target.style.height = `${figure.height}px`;
  if (printing) figure.width = PRINTED_WIDTH;
  const trace = (group, name, sigma, line) => ({
    type: "scatter", mode: "lines", name: `${group.label}, ${name}`, x: group.spectra[layer].percentiles, y: sigma,
    line: { color: lineColor(group), ...line }, hovertemplate: "%{y:.4~g}",
  });
  target.setAttribute("aria-label", `Singular values of ${experiment().spectra[layer]}, epoch ${epochs[place]}, ${experiment().name}`);
  Plotly.react(target, shown.flatMap((group) => [
    trace(group, "before", group.spectra[layer].sigma[0], { dash: "dot", width: 1.2 }),
    trace(group, `epoch ${epochs[place]}`, spectrumAt(group.spectra[layer], epochs[place]), { dash: group.dash, width: 2 }),
  ]), figure, CONFIG);
}

function showFrame(place) {
  const epochs = spectrumEpochs(spectrumGroups(), byId("spectrum-layer").value);
  shownEpoch = place >= epochs.length - 1 ? null : epochs[place];
  drawSpectra();
}

function stopPlaying() {
  clearInterval(playing);
  playing = null;
  byId("play").textContent = "Play";
}

function nextFrame() {
  const slider = byId("frame");
  showFrame(Number(slider.value) + 1);
  if (slider.value === slider.max) { stopPlaying(); keepView(); }
}

function play() {
  if (playing !== null) { stopPlaying(); keepView(); return; }
  if (byId("frame").value === byId("frame").max) showFrame(0);
  byId("play").textContent = "Pause";
  playing = setInterval(nextFrame, FRAME_MILLISECONDS);
}

const rows = (table, values) => Object.entries(values).forEach(([key, value]) =>
  table.append(element("tr", {}, element("th", { scope: "row", textContent: key }), element("td", { textContent: String(value) }))));

function showRun(place) {
  const run = data.runs[place];
  const config = element("table");
  rows(config, { ...data.common, ...run.own });
  const made = element("table");
  rows(made, run.made);
  byId("run-name").textContent = run.name;
  byId("run-command").textContent = run.command || "not recorded";
  byId("run-config").replaceChildren(config);
  byId("run-made").replaceChildren(made);
  byId("run-details").showModal();
}

// The view as the fragment of the address, so that a copied address opens the same view.
const panelState = () => panels.map((panel) => `${panel.select.value}${panel.log ? "*" : ""}`).join("~");

function viewFragment() {
  const chosen = experiment();
  const words = {
    e: chosen.name, m: byId("mode").value, q: panelState(), f: byId("final-kind").value, s: byId("spectrum-layer").value,
    g: chosen.groups.map((i, place) => (shownGroups.has(i) ? place : null)).filter((place) => place !== null).join("."),
    l: [byId("layer-group").value, byId("layer-group-2").value].map((i) => chosen.groups.indexOf(Number(i))).join("."),
    t: document.documentElement.dataset.theme, ...(shownEpoch === null ? {} : { p: shownEpoch }),
  };
  return `#view?${new URLSearchParams(words)}`;
}

function keepView() { history.replaceState(null, "", viewFragment()); }

function openView() {
  if (!location.hash.startsWith("#view?")) return;
  const words = new URLSearchParams(location.hash.slice("#view?".length));
  const place = data.experiments.findIndex((one) => one.name === words.get("e"));
  if (place < 0) return;
  byId("experiment").value = place;
  fitPanels();
  const groups = data.experiments[place].groups;
  const wanted = new Set((words.get("g") ?? "").split(".").filter(Boolean).map(Number));
  groups.forEach((i, at) => { wanted.has(at) ? shownGroups.add(i) : shownGroups.delete(i); });
  const choose = (id, value) => { if ([...byId(id).options].some((option) => option.value === String(value))) byId(id).value = value; };
  choose("mode", words.get("m"));
  (words.get("q") ?? "").split("~").forEach((word, i) => {
    const id = word.replace(/\*$/, "");
    if (panels[i] && quantityOf(id)) { panels[i].select.value = id; panels[i].log = word.endsWith("*"); }
  });
  if (["dark", "light"].includes(words.get("t"))) setTheme(words.get("t"));
  fillChoices();
  choose("final-kind", words.get("f"));
  choose("spectrum-layer", words.get("s"));
  shownEpoch = words.has("p") && Number.isFinite(Number(words.get("p"))) ? Number(words.get("p")) : null;
  (words.get("l") ?? "").split(".").forEach((at, i) => choose(["layer-group", "layer-group-2"][i], groups[Number(at)]));
  drawAll();
}

byId("final-kind").addEventListener("change", () => { drawFinal(); keepView(); });
byId("spectrum-layer").addEventListener("change", () => { drawSpectra(); keepView(); });
byId("frame").addEventListener("input", () => { stopPlaying(); showFrame(Number(byId("frame").value)); });
byId("play").addEventListener("click", play);
calm.addEventListener("change", () => { stopPlaying(); drawSpectra(); });
byId("copy-link").addEventListener("click", async () => {
  keepView();
  try { await navigator.clipboard.writeText(location.href); byId("copied").textContent = "copied"; }
  catch { byId("copied").textContent = "the address bar has it"; }
});
document.querySelectorAll("#runs .run-link").forEach((button) => button.addEventListener("click", () => showRun(Number(button.dataset.run))));
byId("run-close").addEventListener("click", () => byId("run-details").close());
document.querySelector("main").addEventListener("change", keepView);
addEventListener("hashchange", openView);
pickedListeners.push(() => { drawFinal(); });

// A table that scrolls says so.
const scrollers = [...document.querySelectorAll(".scroll")];
const markScrollers = () => scrollers.forEach((box) => box.classList.toggle("scrolls", box.scrollWidth > box.clientWidth + 1));
addEventListener("resize", markScrollers);
document.querySelectorAll("details").forEach((details) => details.addEventListener("toggle", markScrollers));
markScrollers();
chooseExperiment();
openView();
