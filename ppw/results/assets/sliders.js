"use strict";
// What all pages with sliders share. Texts of the data reach the page as text content alone, so that
// no name becomes markup; nothing is fetched.

const page = document.getElementById("sliders");
const data = JSON.parse(document.getElementById("ppw-sliders").textContent);

const PREFIXES = [["G", 1e9], ["M", 1e6], ["k", 1e3], ["", 1], ["m", 1e-3], ["µ", 1e-6]];

/** Number with four significant digits, as `ppw.results.result.shown` writes it. */
function shown(value, unit = "1") {
  if (Number.isNaN(value)) return "–";
  if (!Number.isFinite(value)) return "∞";
  const [prefix, size] = prefixOf(value, unit);
  return unit === "1" ? digits(value) : `${digits(value / size)} ${prefix}${unit}`;
}

function prefixOf(value, unit) {
  const known = ["Hz", "W", "J", "J/run"].includes(unit) ? PREFIXES : [];
  return known.find(([, size]) => Math.abs(value) >= size) ?? ["", 1];
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
  const [, size] = prefixOf(value, unit);
  return `${shown(lower / size)} … ${shown(upper / size)}`;
}

const whole = (value) => grouped(value.toFixed(0));
const money = (value) => (Number.isNaN(value) ? "–" : grouped(value.toFixed(2)));
const percent = (share) => (Number.isNaN(share) ? "–" : `${Math.round(100 * share)}%`);

/** Thousands set apart by commas, whatever the reader's country: the tables do so too. */
function grouped(text) {
  const [front, back] = text.split(".");
  return [front.replace(/\B(?=(\d{3})+$)/g, ","), back].filter((part) => part).join(".");
}

/** Quantile of sorted numbers, between two of them on a straight line. */
function quantile(sorted, share) {
  const at = share * (sorted.length - 1);
  const below = Math.floor(at);
  const above = Math.min(below + 1, sorted.length - 1);
  return sorted[below] + (at - below) * (sorted[above] - sorted[below]);
}

function element(tag, attributes = {}, text = "") {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.textContent = text;
  return made;
}

let count = 0;

/** Labelled row of controls with what it says now. */
function row(label, control) {
  const id = `slider-${count++}`;
  const said = element("output", { for: id });
  const made = element("div");
  control.id = id;
  made.append(element("label", { for: id }, label), said, control);
  return { row: made, said };
}

/** Slider over given stops; it moves by their places, so that each can be met exactly. */
function slider({ label, stops, start, show }) {
  const input = element("input", { type: "range", min: 0, step: 1 });
  const made = { ...row(label, input), touched: false };
  const say = (place, touched) => {
    [made.value, made.touched] = [made.stops[place], touched];
    const text = show(made.value, touched);
    made.said.textContent = text;
    made.said.classList.toggle("moved", touched);
    input.setAttribute("aria-valuetext", text);
  };
  made.set = (place) => {
    input.value = place;
    say(place, place !== made.start);
  };
  /** Go to the stop nearest to a value. */
  made.near = (value) => {
    const apart = made.stops.map((stop) => Math.abs(stop - value));
    made.set(apart.indexOf(Math.min(...apart)));
  };
  made.lay = ({ stops, start }) => {
    Object.assign(made, { stops, start });
    input.max = stops.length - 1;
    made.set(start);
  };
  input.addEventListener("input", () => {
    say(Number(input.value), true);
    later();
  });
  made.lay({ stops, start });
  return made;
}

/** Fill the table; a cell is a text, or [text, numbers] for figures. */
function fill(rows) {
  const lines = rows.map((cells) => {
    const line = element("tr");
    for (const [place, cell] of cells.entries()) {
      const box = element("td", place ? { class: "n" } : {});
      if (Array.isArray(cell)) box.append(element("data", { value: cell[1] }, cell[0]));
      else box.textContent = cell;
      line.append(box);
    }
    return line;
  });
  page.querySelector("tbody").replaceChildren(...lines);
}

let due = 0;

/** Compute anew once before the next picture is drawn, however often sliders moved. */
function later() {
  due ||= requestAnimationFrame(() => {
    due = 0;
    update();
  });
}

function begin(rows, reset) {
  page.querySelector(".sliders").replaceChildren(...rows);
  page.querySelector("button").addEventListener("click", () => {
    reset();
    update();
  });
  update();
  page.hidden = false;
}
