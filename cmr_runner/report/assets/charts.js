// The charts: four quantities over epochs and the layer map, of one experiment at a time.

const data = JSON.parse(document.querySelector("#payload").textContent);
const FIRST_QUANTITIES = ["test_accuracy", "grad_norm", "kappa_mean", "mean_abs_moment"];
const MOST_GROUPS_AT_FIRST = 10;
const PRINTED_WIDTH = 680; // of A4 and Letter between usual margins, in CSS pixels
const CONFIG = {
  responsive: true, displaylogo: false, showSendToCloud: false, plotlyServerURL: "",
  modeBarButtonsToRemove: ["lasso2d", "select2d", "sendDataToCloud", "sendChartToCloud"],
};
const byId = (id) => document.getElementById(id);
const quantityOf = (id) => data.quantities.find((quantity) => quantity.id === id);
const shownGroups = new Set();
let printing = false;

function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

const options = (pairs) => pairs.map(([value, text]) => element("option", { value, textContent: text }));
const experiment = () => data.experiments[byId("experiment").value];

function ink(name) {
  if (printing) return { "--text": "#000000", "--line": "#cccccc", "--quiet": "#444444" }[name];
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

const LEAST_CONTRAST = 3;
const channels = (color) => [1, 3, 5].map((i) => parseInt(color.slice(i, i + 2), 16));
const hex = (color) => `#${color.map((part) => Math.round(part).toString(16).padStart(2, "0")).join("")}`;

function luminance(color) {
  const [red, green, blue] = channels(color).map((part) => (part / 255 <= 0.04045 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

function contrast(one, other) {
  const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
}

// A series' colour, moved towards black or white as far as it takes to be seen on the page.
function readable(color) {
  const ground = printing ? "#ffffff" : ink("--panel");
  const goal = luminance(ground) > 0.4 ? [0, 0, 0] : [255, 255, 255];
  if (color === "#000000") return printing ? color : ink("--text");
  let seen = color;
  for (let part = 0.05; contrast(seen, ground) < LEAST_CONTRAST && part <= 1; part += 0.05) {
    seen = hex(channels(color).map((value, i) => value + part * (goal[i] - value)));
  }
  return seen;
}

const lineColor = (group) => readable(group.color);
const faded = (color) => `rgba(${channels(color).join(",")},0.2)`;

function meanTraces(group, quantity) {
  const [centre, low, high] = group.curves[quantity] ?? [];
  if (!centre) return [];
  const color = lineColor(group);
  const traces = [{
    x: group.epochs, y: centre, name: `${group.label} (n = ${group.n})`, mode: "lines+markers",
    line: { color, dash: group.dash, width: 2 }, marker: { color, symbol: group.symbol, size: 7 },
    hovertemplate: "%{y:.4~g}",
  }];
  if (low) {
    const inside = group.epochs.map((_, i) => i).filter((i) => low[i] !== null && high[i] !== null);
    traces.unshift({
      x: [...inside.map((i) => group.epochs[i]), ...inside.map((i) => group.epochs[i]).reverse()],
      y: [...inside.map((i) => high[i]), ...inside.map((i) => low[i]).reverse()],
      fill: "toself", fillcolor: faded(color), line: { width: 0 }, mode: "lines", hoverinfo: "skip", showlegend: false,
    });
  }
  return traces;
}

function runTrace(run, group, quantity) {
  const y = run.curves[quantity] ?? [];
  const color = lineColor(group);
  const last = y.reduce((end, value, i) => (value === null ? end : i), -1);
  const mark = run.ending === "diverged" ? "x-thin" : "triangle-right";
  return {
    x: run.epochs, y, name: `${group.label}, seed ${run.seed}`, mode: "lines+markers",
    line: { color, dash: group.dash, width: 1.2 },
    marker: {
      color, symbol: y.map((_, i) => (i === last && !run.complete ? mark : group.symbol)),
      size: y.map((_, i) => (i === last && !run.complete ? 11 : 4)), line: { color, width: run.ending === "diverged" ? 2 : 0 },
    },
    hovertemplate: `%{y:.4~g}${run.complete ? "" : ` (${run.ending})`}`,
  };
}

// `view` turns a group or a run into what is drawn of it: as it is, epoch by epoch, or task by task.
const byTask = (one) => ({ ...one, ...one.tasks });

function groupTraces(group, quantity, view = (one) => one) {
  const runs = group.runs.filter(picked).map((i) => data.runs[i]);
  const complete = runs.filter((run) => run.complete);
  const asMean = byId("mode").value === "mean" && complete.length > 0 && complete.length === group.n;
  // Two seeds have no interval: they are drawn themselves.
  const single = asMean ? runs.filter((run) => !run.complete || group.n === 2) : runs;
  return [...(asMean ? meanTraces(view(group), quantity) : []), ...single.map((run) => runTrace(view(run), group, quantity))];
}

function layout(title, log) {
  const axis = { gridcolor: ink("--line"), linecolor: ink("--line"), zeroline: false, color: ink("--text"), automargin: true };
  return {
    margin: { l: 60, r: 12, t: 30, b: 44 }, modebar: { bgcolor: "rgba(0,0,0,0)", color: ink("--quiet"), activecolor: ink("--text") }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: ink("--text"), size: 12, family: getComputedStyle(document.body).fontFamily }, showlegend: false, hovermode: "x unified",
    hoverlabel: { bgcolor: printing ? "#ffffff" : ink("--panel"), font: { color: ink("--text") } },
    xaxis: { ...axis, title: { text: "epoch" }, rangemode: "tozero", hoverformat: "~g" },
    yaxis: { ...axis, title: { text: log ? `${title} (log)` : title }, type: log ? "log" : "linear", exponentformat: "power" },
  };
}

// Whole powers of ten where there are several; else steps between them.
function logTicks(traces) {
  const [low, high] = extremes(traces.flatMap((trace) => trace.y).filter((y) => y > 0));
  if (!(high / low <= 50)) return { dtick: Math.max(1, Math.round(Math.log10(high / low) / 6)) };
  const powers = [-1, 0, 1].map((step) => 10 ** (Math.floor(Math.log10(high)) + step));
  const steps = powers.flatMap((power) => (high / low > 5 ? [1, 2, 5] : [1, 1.5, 2, 3, 4, 5, 7]).map((digit) => digit * power));
  const tickvals = steps.filter((x) => x > low / 1.5 && x < high * 1.5);
  return { tickvals, ticktext: tickvals.map(shortNumber) };
}

// Spreading a long list over Math.min's arguments would overflow the stack.
const extremes = (values) => values.reduce(([a, b], x) => [Math.min(a, x), Math.max(b, x)], [Infinity, -Infinity]);

const shortNumber = (x) => (x < 1e5 ? String(Number(x.toPrecision(2))) : x.toExponential(1).replace("e+", "e"));

const curveTraces = (id) => experiment().groups.filter((i) => shownGroups.has(i)).flatMap((i) => groupTraces(data.groups[i], id));

function drawPanel(panel) {
  panel.button.textContent = panel.log ? "Linear axis" : "Log axis";
  drawCurve(panel.chart, quantityOf(panel.select.value), panel.log);
}

// `scale` are traces whose logarithmic axis this chart shares.
function drawCurve(target, quantity, log, title = quantity.label, scale = null) {
  const traces = curveTraces(quantity.id);
  const figure = layout(title, log);
  if (Math.max(0, ...traces.map((trace) => trace.x.at(-1) ?? 0)) <= 12) figure.xaxis.dtick = 1;
  if (log) Object.assign(figure.yaxis, logTicks(scale ?? traces));
  if (scale?.length) {
    const [low, high] = extremes(scale.flatMap((trace) => trace.y).filter((y) => y > 0).map(Math.log10));
    figure.yaxis.range = [low - 0.05 * (high - low) - 0.01, high + 0.05 * (high - low) + 0.01];
  }
  if (printing) figure.width = PRINTED_WIDTH / 2 - 30;
  if (traces.length > 24) figure.hovermode = "closest";
  if (!traces.some((trace) => trace.y.some((y) => y !== null))) {
    figure.annotations = [{ text: "nothing is logged or picked", showarrow: false, xref: "paper", yref: "paper", x: 0.5, y: 0.5 }];
  }
  target.setAttribute("aria-label", `${quantity.label} over epochs, ${experiment().name}`);
  Plotly.react(target, traces, figure, CONFIG);
}

function drawKinds() {
  const kinds = experiment().kinds.map(quantityOf);
  byId("kinds").hidden = !kinds.length;
  const box = byId("kind-charts");
  while (box.children.length > kinds.length) { Plotly.purge(box.lastChild.lastChild); box.lastChild.remove(); }
  while (box.children.length < kinds.length) {
    const chart = element("div", { className: "chart" });
    chart.setAttribute("role", "img");
    box.append(element("div", { className: "panel" }, element("b"), chart));
  }
  const scale = kinds.flatMap((kind) => curveTraces(kind.id));
  kinds.forEach((kind, i) => {
    const [heading, chart] = box.children[i].children;
    heading.textContent = kind.label;
    drawCurve(chart, kind, kind.log, "mean κ(W)", scale);
  });
}

function makePanel(first) {
  const select = element("select", { ariaLabel: "Quantity" }, ...options(data.quantities.map((q) => [q.id, q.label])));
  select.value = first;
  const button = element("button", { type: "button" });
  const chart = element("div", { className: "chart" });
  chart.setAttribute("role", "img");
  const panel = { select, button, chart, log: quantityOf(first).log };
  select.addEventListener("change", () => { panel.log = quantityOf(select.value).log; drawPanel(panel); });
  button.addEventListener("click", () => { panel.log = !panel.log; drawPanel(panel); keepView(); });
  byId("charts").append(element("div", { className: "panel" }, element("div", { className: "controls" }, select, button), chart));
  return panel;
}

// Both maps have the same rows: the layers that one of the two groups logs.
function drawLayers() {
  const pair = ["layer-group", "layer-group-2"].map((id) => data.groups[byId(id).value]);
  const rows = experiment().layers.map((_, i) => i).filter((i) => pair.some((group) => group?.kappa[i].some((k) => k > 0)));
  ["layer-map", "layer-map-2"].forEach((id, i) => drawLayerMap(byId(id), pair[i], rows));
}

function drawLayerMap(target, group, rows) {
  const names = rows.map((i) => experiment().layers[i]);
  const all = experiment().groups.flatMap((i) => data.groups[i].kappa.flat()).filter((k) => k > 0).map(Math.log10);
  if (!group || !all.length) {
    Plotly.purge(target);
    target.textContent = "No layers.csv for this experiment.";
    return;
  }
  if (!target.data) target.textContent = "";
  const [low, high] = extremes(all);
  const steps = [0, 0.25, 0.5, 0.75, 1].map((part) => low + part * (high - low));
  const figure = layout("", false);
  Object.assign(figure.yaxis, { autorange: "reversed", title: { text: "layer", standoff: 14 }, type: "category" });
  Object.assign(figure.xaxis, { dtick: Math.max(1, Math.ceil(group.layerEpochs.length / 12)), rangemode: "normal" });
  figure.hovermode = "closest";
  figure.height = Math.max(260, Math.min(40 + 22 * names.length, 900));
  if (printing) figure.width = PRINTED_WIDTH / 2 - 30;
  target.style.height = `${figure.height}px`;
  target.setAttribute("aria-label", `κ of every layer, ${group.label}`);
  const kappa = rows.map((i) => group.kappa[i]);
  Plotly.react(target, [{
    type: "heatmap", x: group.layerEpochs, y: names, z: kappa.map((row) => row.map((k) => (k > 0 ? Math.log10(k) : null))),
    customdata: kappa, colorscale: "Cividis", zmin: low, zmax: high > low ? high : low + 1,
    hovertemplate: "%{y}, epoch %{x}: κ = %{customdata:.4~g}<extra></extra>",
    colorbar: { title: { text: "κ(W)" }, tickvals: steps, ticktext: steps.map((x) => shortNumber(10 ** x)) },
  }], figure, CONFIG);
}

function listGroups() {
  const boxes = experiment().groups.map((i) => {
    const group = data.groups[i];
    const box = element("input", { type: "checkbox", checked: shownGroups.has(i) });
    box.addEventListener("change", () => { box.checked ? shownGroups.add(i) : shownGroups.delete(i); drawShown(); });
    const swatch = element("span", { className: "swatch" });
    swatch.style.borderTopColor = lineColor(group);
    swatch.style.borderTopStyle = { solid: "solid", dot: "dotted" }[group.dash] ?? "dashed";
    return element("label", { title: group.label }, box, swatch, `${group.short} (n = ${group.n})`);
  });
  const every = element("button", { type: "button", textContent: "All" });
  const none = element("button", { type: "button", textContent: "None" });
  every.addEventListener("click", () => { experiment().groups.forEach((i) => shownGroups.add(i)); listGroups(); drawShown(); keepView(); });
  none.addEventListener("click", () => { experiment().groups.forEach((i) => shownGroups.delete(i)); listGroups(); drawShown(); keepView(); });
  byId("groups").replaceChildren(byId("groups").querySelector("legend"), ...boxes, every, none);
}

const panels = FIRST_QUANTITIES.map((id) => (quantityOf(id) ?? data.quantities[0])?.id).filter(Boolean).map(makePanel);
const drawCurves = () => { panels.forEach(drawPanel); drawKinds(); };
const drawShown = () => { drawCurves(); drawFinal(); drawSpectra(); };
const drawAll = () => { listGroups(); drawShown(); drawLayers(); };

function fillChoices() {
  const logged = experiment().groups.filter((i) => data.groups[i].layerEpochs.length).map((i) => [i, data.groups[i].label]);
  ["layer-group", "layer-group-2"].forEach((id) => byId(id).replaceChildren(...options(logged)));
  if (logged.length > 1) byId("layer-group-2").value = logged[1][0];
  const word = experiment().headline.id === "test_loss" ? "loss" : "accuracy";
  const kinds = [...(experiment().tasks ? [["tasks", "accuracy by task"]] : []), ["groups", `${word} by group`], ["tradeoff", `${word} against κ`]];
  // A grid's own map comes first: a list of its groups says less.
  byId("final-kind").replaceChildren(...options([...gridKinds(experiment()), ...kinds, ...experiment().dependences.map((one) => [one.key, `${word} over ${one.key}`])]));
  byId("spectrum-layer").replaceChildren(...options(experiment().spectra.map((name, i) => [i, name])));
  byId("spectrum-layer").value = Math.floor(experiment().spectra.length / 2);
  stopPlaying();
  shownEpoch = null;
}

// A panel offers what the experiment logs; the first one follows what its task is judged by.
function fitPanels() {
  const { groups, headline } = experiment();
  const logged = new Set(groups.flatMap((i) => data.groups[i].runs).flatMap((i) => Object.keys(data.runs[i].curves)));
  panels.forEach(({ select }) => [...select.options].forEach((option) => { option.hidden = option.disabled = !logged.has(option.value); }));
  const [first] = panels;
  if (first && data.experiments.some((one) => one.headline.id === first.select.value)) {
    first.select.value = headline.id;
    first.log = headline.log;
  }
}

function chooseExperiment() {
  fitPanels();
  fillChoices();
  drawAll();
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  byId("theme").textContent = theme === "dark" ? "Light" : "Dark";
  byId("theme").setAttribute("aria-label", `Switch to ${theme === "dark" ? "light" : "dark"} colours`);
}

function setPrinting(now) {
  if (now === printing) return;
  printing = now;
  const theme = document.documentElement.dataset.theme;
  if (now) { document.documentElement.dataset.before = theme; setTheme("light"); }
  else setTheme(document.documentElement.dataset.before);
  drawAll();
  document.querySelectorAll("details").forEach((details) => { if (now) details.open = true; });
}

const prefersDark = matchMedia("(prefers-color-scheme: dark)");
setTheme(prefersDark.matches ? "dark" : "light");
prefersDark.addEventListener("change", () => { setTheme(prefersDark.matches ? "dark" : "light"); drawAll(); });
byId("theme").addEventListener("click", () => { setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"); drawAll(); keepView(); });
addEventListener("beforeprint", () => setPrinting(true));
addEventListener("afterprint", () => setPrinting(false));

data.experiments.forEach((one) => one.groups.slice(0, MOST_GROUPS_AT_FIRST).forEach((i) => shownGroups.add(i)));
byId("experiment").append(...options(data.experiments.map((one, i) => [i, one.name])));
byId("experiment").addEventListener("change", chooseExperiment);
byId("mode").addEventListener("change", () => { drawCurves(); drawFinal(); });
["layer-group", "layer-group-2"].forEach((id) => byId(id).addEventListener("change", drawLayers));
pickedListeners.push(drawCurves);
