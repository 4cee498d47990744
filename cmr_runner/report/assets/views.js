// Final results as charts, spectra of a layer, the details of a run, and a link that opens the same view again.

const finalOf = (run, quantity) => (run.complete ? (run.curves[quantity] ?? []).at(-1) ?? null : null);
const finalsOf = (group, quantity) => group.runs.filter(picked).map((i) => finalOf(data.runs[i], quantity));
const isNumber = (value) => typeof value === "number";
const mean = (values, log) => {
  const total = values.reduce((sum, value) => sum + (log ? Math.log(value) : value), 0) / values.length;
  return log ? Math.exp(total) : total;
};
const visibleGroups = () => experiment().groups.filter((i) => shownGroups.has(i)).map((i) => data.groups[i]);
const marker = (group, size) => ({ color: lineColor(group), symbol: group.symbol, size });

// One point per run: accuracy by group, or against κ.
function pointTraces(kind) {
  return visibleGroups().map((group) => {
    const accuracy = finalsOf(group, "test_accuracy");
    const kappa = finalsOf(group, "kappa_mean");
    const both = accuracy.map((y, i) => [kappa[i], y]).filter(([x, y]) => isNumber(y) && (kind === "groups" || isNumber(x)));
    return {
      type: "scatter", mode: "markers", name: group.label, marker: marker(group, 9),
      x: both.map(([x, y]) => (kind === "groups" ? y : x)), y: both.map(([, y]) => (kind === "groups" ? group.short : y)),
      hovertemplate: kind === "groups" ? "%{x:.4~g} %" : "κ %{x:.4~g}, %{y:.4~g} %",
    };
  });
}

function dependenceTraces(dependence) {
  return dependence.series.map((series) => {
    const points = series.groups.map((i, place) => {
      const values = finalsOf(data.groups[i], "test_accuracy").filter(isNumber);
      return [series.values[place], values.length ? mean(values, false) : null, values];
    }).filter(([, y]) => y !== null);
    const group = data.groups[series.groups[0]];
    return {
      type: "scatter", mode: "lines+markers", name: series.label || group.label, x: points.map(([x]) => x), y: points.map(([, y]) => y),
      line: { color: lineColor(group), dash: group.dash }, marker: marker(group, 8), hovertemplate: "%{y:.4~g} %",
      error_y: { type: "data", symmetric: false, color: lineColor(group), thickness: 1,
        array: points.map(([, y, values]) => Math.max(...values) - y), arrayminus: points.map(([, y, values]) => y - Math.min(...values)) },
    };
  });
}

function drawFinal() {
  const kind = byId("final-kind").value;
  const target = byId("final-chart");
  const dependence = experiment().dependences.find((one) => one.key === kind);
  const figure = layout("final test accuracy (%)", false);
  figure.hovermode = "closest";
  figure.hoverlabel.namelength = -1;
  if (dependence) {
    const values = dependence.series.flatMap((series) => series.values).filter((x) => x > 0);
    const log = values.length && Math.max(...values) / Math.min(...values) >= 10 && dependence.series.every((s) => s.values.every((x) => x > 0));
    Object.assign(figure.xaxis, { title: { text: dependence.key }, type: log ? "log" : "linear", rangemode: "normal" });
    if (log) Object.assign(figure.xaxis, { tickvals: [...new Set(values)], ticktext: [...new Set(values)].map(String) });
  } else if (kind === "groups") {
    Object.assign(figure.xaxis, { title: { text: "final test accuracy (%)" }, rangemode: "normal" });
    Object.assign(figure.yaxis, { title: { text: "" }, type: "category", autorange: "reversed" });
  } else {
    Object.assign(figure.xaxis, { title: { text: "final mean κ(W) (log)" }, type: "log", rangemode: "normal", exponentformat: "power" });
  }
  const traces = dependence ? dependenceTraces(dependence) : pointTraces(kind);
  figure.height = kind === "groups" ? Math.max(220, 90 + 24 * traces.length) : 420;
  if (printing) figure.width = PRINTED_WIDTH;
  target.style.height = `${figure.height}px`;
  target.setAttribute("aria-label", `Final results, ${experiment().name}`);
  Plotly.react(target, traces, figure, CONFIG);
}

function drawSpectra() {
  const layer = byId("spectrum-layer").value;
  const target = byId("spectrum-chart");
  const shown = visibleGroups().filter((group) => group.spectra[layer]);
  if (!shown.length) {
    Plotly.purge(target);
    target.textContent = "No spectra.csv for this experiment.";
    return;
  }
  if (!target.data) target.textContent = "";
  const figure = layout("singular value σ", true);
  Object.assign(figure.xaxis, { title: { text: "percentile of the layer's singular values" }, dtick: 25 });
  figure.hovermode = "closest";
  figure.height = 420;
  target.style.height = `${figure.height}px`;
  if (printing) figure.width = PRINTED_WIDTH;
  const trace = (group, when) => ({
    type: "scatter", mode: "lines", name: `${group.label}, ${when}`, x: group.percentiles, y: group.spectra[layer][when],
    line: { color: lineColor(group), dash: when === "before" ? "dot" : group.dash, width: when === "before" ? 1.2 : 2 }, hovertemplate: "%{y:.4~g}",
  });
  target.setAttribute("aria-label", `Singular values of ${experiment().layers[layer]}, ${experiment().name}`);
  Plotly.react(target, shown.flatMap((group) => [trace(group, "before"), trace(group, "after")]), figure, CONFIG);
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
    t: document.documentElement.dataset.theme,
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
  (words.get("l") ?? "").split(".").forEach((at, i) => choose(["layer-group", "layer-group-2"][i], groups[Number(at)]));
  drawAll();
}

byId("final-kind").addEventListener("change", () => { drawFinal(); keepView(); });
byId("spectrum-layer").addEventListener("change", () => { drawSpectra(); keepView(); });
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
