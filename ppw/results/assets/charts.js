"use strict";
// What all pages share: numbers as ppw writes them, and charts by Vega-Lite. Texts of the data reach
// the page as text content alone, so that no name becomes markup; nothing is fetched.

const PREFIXES = [["G", 1e9], ["M", 1e6], ["k", 1e3], ["", 1], ["m", 1e-3], ["µ", 1e-6]];
// Work per energy of less than this is read by the kWh.
const FEW_PER_JOULE = 0.1, J_PER_KWH = 3.6e6;

/** Number with four significant digits, as `ppw.results.result.shown` writes it. */
function shown(value, unit = "1") {
  if (Number.isNaN(value)) return "–";
  if (!Number.isFinite(value)) return "∞";
  const [readable, size] = readableUnit(value, unit);
  return unit === "1" ? digits(value) : `${digits(value / size)} ${readable}`;
}

/** Unit in which a value reads well ("kHz" of "Hz"), and its size in the given one. */
function readableUnit(value, unit) {
  if (unit === "1/J" && value >= 0 && value < FEW_PER_JOULE) return ["1/kWh", 1 / J_PER_KWH];
  const known = ["Hz", "W", "J", "J/run"].includes(unit) ? PREFIXES : [];
  const [prefix, size] = known.find((p) => Math.abs(value) >= p[1]) ?? ["", 1];
  return [prefix + unit, size];
}

function digits(value) {
  const size = Math.abs(value);
  if (size >= 9999.5 && size < 1e12) return whole(value);
  const [mantissa, exponent] = value.toExponential(3).split("e");
  if (+exponent >= -4 && +exponent < 4) return String(+value.toPrecision(4));
  return `${+mantissa}e${exponent[0]}${exponent.slice(1).padStart(2, "0")}`;
}

/** Ends of an interval in the prefix of its value, as `ppw.results.result.shown_interval`. */
function shownInterval(value, lower, upper, unit) {
  const [, size] = readableUnit(value, unit);
  const ends = [lower / size, upper / size];
  let texts = ends.map((end) => shown(end));
  if (texts[0] === texts[1] && lower < upper) {
    // Ends that print alike take one digit more, and none where that does not tell them apart.
    const isLong = (end) => Math.abs(end) >= 9999.5 && Math.abs(end) < 1e12;
    texts = ends.map((end) => (isLong(end) ? grouped(end.toFixed(1)) : String(+end.toPrecision(5))));
    if (texts[0] === texts[1]) return "–";
  }
  return texts.join(" … ");
}

const whole = (value) => grouped(value.toFixed(0));
const money = (value) => (Number.isNaN(value) ? "–" : grouped(value.toFixed(2)));
const percent = (share) => (Number.isNaN(share) ? "–" : `${Math.round(100 * share)}%`);

/** Thousands set apart by commas, whatever the reader's country: the tables do so too. */
function grouped(text) {
  const [front, back] = text.split(".");
  return [front.replace(/\B(?=(\d{3})+$)/g, ","), back].filter((part) => part).join(".");
}

/** Estimate in three digits, unless its interval is narrower than they show. */
function brief(known) {
  if (known.upper - known.lower < 0.01 * Math.abs(known.value)) return known;
  return Object.fromEntries(Object.entries(known).map(([end, x]) => [end, +x.toPrecision(3)]));
}

function element(tag, attributes = {}, text = "") {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.textContent = text;
  return made;
}

// Charts. style.css changes these colours in the dark.
const [INK, LINE, FONT] = ["#1f2933", "#d9e0e7", 'system-ui, "DejaVu Sans", sans-serif'];
const THEME = {
  background: null,
  font: FONT,
  view: { stroke: null },
  title: { anchor: "start", fontSize: 13, fontWeight: 500, color: INK, offset: 8 },
  axis: {
    gridColor: LINE, domainColor: LINE, tickColor: LINE, labelColor: INK, titleColor: INK,
    labelFontSize: 12, titleFontSize: 12, titleFontWeight: 400, labelLimit: 260, titlePadding: 8,
  },
  legend: { orient: "top", title: null, labelFontSize: 12, labelColor: INK },
  mark: { tooltip: { content: "data" }, aria: false },
};

/** Text under the pointer: the titles of the axes, and what the mark has there. */
function tooltip(row, axes, escape) {
  const named = ({ at, texts }, value) => {
    const apart = at.map((place) => Math.abs(place - value));
    return texts[apart.indexOf(Math.min(...apart))];
  };
  const lines = ["x", "y"].map((name) => {
    const [axis, value, end] = [axes[name], row[name], row[`${name}2`]];
    if (axis.at) return named(axis, end === undefined ? value : (value + end) / 2);
    if (row.length !== undefined) return `${axis.title}: ${shown(row.length)}`;
    const range = end === undefined || end === value ? "" : ` … ${shown(end)}`;
    return `${axis.title}: ${shown(value)}${range}`;
  });
  const heading = row.series ? [`<strong>${escape(row.series)}</strong>`] : [];
  return [...heading, ...lines.map(escape)].join("<br>");
}

/** Draw a specification in a box; the promise holds Vega's view. */
async function draw(box, spec) {
  const formatTooltip = (row, escape) => {
    if (spec.usermeta) return tooltip(row, spec.usermeta, escape);
    const lines = Object.entries(row).map(([name, value]) => `${name}: ${value?.toFixed ? shown(value) : value}`);
    return lines.map(escape).join("<br>");
  };
  const options = { mode: "vega-lite", actions: false, ast: true, renderer: "svg" };
  const { view } = await vegaEmbed(
    box,
    { width: "container", autosize: { type: "fit", contains: "padding", resize: true }, ...spec },
    { ...options, config: THEME, tooltip: { formatTooltip } },
  );
  return view;
}

const specs = JSON.parse(document.getElementById("ppw-charts")?.textContent ?? "[]");
const rest = () => new Promise((resume) => (window.requestIdleCallback ?? setTimeout)(resume));

/** Draw the charts of Python's plots, one at a time, so that the page answers between them. */
async function drawAll() {
  for (const box of document.querySelectorAll(".chart[data-chart]")) {
    await rest();
    await draw(box, specs[box.dataset.chart]);
  }
}

let drawn = document.fonts.ready.then(drawAll);
// What is folded is printed, too.
window.addEventListener("beforeprint", () => {
  for (const folded of document.querySelectorAll("details")) folded.open = true;
});
