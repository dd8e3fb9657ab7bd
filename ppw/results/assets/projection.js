// Sliders of a projection: figures of one group at a frequency, and what a host costs with them.

const HOURS = 8760;
const SECONDS = 3600 * HOURS;

for (const group of data.groups) {
  group.grid = data.lists[group.grid];
  group.points.at = data.lists[group.points.at];
  for (const each of [group.frequency, group.price]) each.stops = data.lists[each.stops];
  for (const [name, known] of Object.entries(group.metrics)) {
    const { value } = known;
    for (const end of ["lower", "upper"]) {
      if (!Array.isArray(known[end])) known[end] = value.map((_, i) => known[end][i] ?? null);
    }
    group.points[name] ??= group.points.at.map((f) => value[group.grid.indexOf(f)]);
  }
}

/** Value of a series over a grid: the one computed there, else interpolated. */
function between(grid, series, frequency) {
  const right = grid.findIndex((f) => f >= frequency);
  if (grid[right] === frequency) return series[right];
  const [x0, x1] = [grid[right - 1], grid[right]];
  const [y0, y1] = [series[right - 1], series[right]];
  // Laws of frequency are nearly powers of it: straight in logarithms.
  if (y0 > 0 && y1 > 0) return y0 * (y1 / y0) ** (Math.log(frequency / x0) / Math.log(x1 / x0));
  return y0 + ((y1 - y0) * (frequency - x0)) / (x1 - x0);
}

/** Estimate of a metric at a frequency; an interval without an upper end is open. */
function metric(group, name, frequency) {
  const { value, lower, upper } = group.metrics[name];
  const open = upper.map((end, i) => end ?? (lower[i] === null ? NaN : Infinity));
  const at = (series) => between(group.grid, series.map((y) => y ?? NaN), frequency);
  return { value: at(value), lower: at(lower), upper: at(open) };
}

/** Equally probable values of performance or power at a frequency. */
function values(group, name, frequency) {
  const rows = group.metrics[name].likely ?? [];
  return (rows[0] ?? []).map((_, i) => between(group.grid, rows.map((row) => row[i]), frequency));
}

/** Mean watts of the site for one host that is busy for a share of the time. */
function siteWatts(watts, { utilisation, pue }, idle) {
  return pue * (utilisation * watts + (1 - utilisation) * (idle ?? 0));
}

function electricity(watts, costs, idle) {
  return (costs.tariff * costs.years * HOURS * siteWatts(watts, costs, idle)) / 1000;
}

const totalCost = (watts, costs, idle) => costs.price + electricity(watts, costs, idle);

/** Work that is done while the host is kept, over all that it costs. */
function workPerCost(group, frequency, costs) {
  const busy = costs.utilisation * costs.years * SECONDS;
  const worth = (rate, watts) => (rate * busy) / totalCost(watts, costs, group.idle_w);
  const [rates, watts] = ["performance", "power"].map((name) => values(group, name, frequency));
  if (!rates.length || !watts.length) {
    const [rate, power] = ["performance", "power"].map((n) => metric(group, n, frequency).value);
    return { value: worth(rate, power), lower: NaN, upper: NaN };
  }
  const all = rates.flatMap((rate) => watts.map((power) => worth(rate, power)));
  // Time and power of a run correlate, which narrows the logarithm about its mean.
  const [rate, a] = logMoments(rates);
  const [cost, b] = logMoments(watts.map((power) => totalCost(power, costs, group.idle_w)));
  const narrower = Math.sqrt(1 + (2 * data.correlation * a * b) / (a * a + b * b || 1));
  const middle = rate - cost + Math.log(busy);
  const moved = all.map((x) => Math.exp(middle + narrower * (Math.log(x) - middle)));
  return estimate(Float64Array.from(moved).sort());
}

/** Mean and standard deviation of the logarithms of equally probable values. */
function logMoments(values) {
  const logs = values.map(Math.log);
  const mean = logs.reduce((sum, x) => sum + x, 0) / logs.length;
  const squares = logs.reduce((sum, x) => sum + (x - mean) ** 2, 0);
  return [mean, Math.sqrt(squares / logs.length)];
}

function estimate(sorted) {
  const [value, lower, upper] = [0, -data.level / 2, data.level / 2].map((apart) =>
    quantile(sorted, 0.5 + apart),
  );
  return { value, lower, upper };
}

/** Estimate of a figure that rises with another: its interval taken through. */
function through(known, rising) {
  return Object.fromEntries(Object.entries(known).map(([end, value]) => [end, rising(value)]));
}

function figures(group, frequency, costs) {
  const made = [];
  for (const [name, { unit }] of Object.entries(group.metrics)) {
    if (derived(group, name)) continue;
    made.push([name.replaceAll("_", " "), metric(group, name, frequency), unit, name]);
  }
  if ("performance" in group.metrics && costs.price > 0) {
    const rate = metric(group, "performance", frequency);
    made.push(["performance per price", through(rate, (x) => x / costs.price), "1/s per price"]);
  }
  if (!("power" in group.metrics)) return made;
  const power = metric(group, "power", frequency);
  const over = `${costs.years} year${costs.years === 1 ? "" : "s"}`;
  const site = (watts) => siteWatts(watts, costs, group.idle_w);
  made.push(["power of the site, mean", through(power, site), "W"]);
  made.push(["energy of a year", through(power, (w) => (site(w) * HOURS) / 1000), "kWh"]);
  const paid = (watts) => electricity(watts, costs, group.idle_w);
  if (costs.tariff > 0) made.push([`electricity over ${over}`, through(power, paid), "money"]);
  if (!(costs.price + costs.tariff > 0)) return made;
  const cost = (watts) => totalCost(watts, costs, group.idle_w);
  made.push([`total cost over ${over}`, through(power, cost), "money"]);
  if ("performance" in group.metrics) {
    made.push(["work per total cost", workPerCost(group, frequency, costs), "per price unit"]);
  }
  return made;
}

// These carry their unit, with a prefix; of all others it stands in the name.
const PREFIXED = ["s", "W", "J/run", "1/J", "kWh"];
const bare = (unit) => (PREFIXED.includes(unit) ? unit : "1");
const named = (label, unit) => {
  return bare(unit) === unit || unit === "money" ? label : `${label} (${unit})`;
};
const written = (value, unit) => (unit === "money" ? money(value) : shown(value, bare(unit)));

function interval({ value, lower, upper }, unit) {
  if (Number.isNaN(lower) || !(lower < upper)) return "–";
  const ends = unit === "money" ? `${money(lower)} … ${money(upper)}` : null;
  return [ends ?? shownInterval(value, lower, upper, bare(unit)), `${lower} ${upper}`];
}

/** Groups that differ in their cores alone, the fewest first. */
const families = [...new Set(data.groups.map((group) => group.family))].map((family) => {
  const alike = data.groups.filter((group) => group.family === family);
  return alike.sort((a, b) => a.cores - b.cores);
});

const chooser = element("select");
chooser.append(...families.map(([{ name }]) => element("option", {}, name)));
const choice = {
  ...row("group", chooser),
  key: "group",
  get value() {
    return families[chooser.selectedIndex][0].name;
  },
  get touched() {
    return chooser.selectedIndex > 0;
  },
  near(name) {
    chooser.selectedIndex = Math.max(0, families.findIndex(([group]) => group.name === name));
    choose();
  },
};
// Many groups are found by a part of their name.
const finder = { ...row("find a group", element("input", { type: "search" })), key: "find", near() {} };
finder.row.hidden = families.length <= 12;
finder.row.addEventListener("input", ({ target }) => {
  const part = target.value.toLowerCase();
  const found = families.filter(([{ name }]) => name.toLowerCase().includes(part));
  finder.said.textContent = part ? `${found.length} of ${families.length}` : "";
  for (const [i, option] of [...chooser.options].entries()) option.hidden = !found.includes(families[i]);
  if (found.length) go(found[0][0].name);
});
const nothing = { stops: [0], start: 0 };
const hertz = (f) => shown(f, "Hz");
const frequency = slider({ key: "frequency", label: "frequency", ...nothing, show: hertz });
const cores = slider({ key: "cores", label: "cores", ...nothing, show: (number) => shown(number) });
const price = slider({ key: "price", label: "price of a host", ...nothing, show: money });
const shared = new Map(
  data.sliders.map(({ key, label, unit, stops, start }) => {
    const show = (value) => (unit === "1" ? shown(value) : `${shown(value)} ${unit}`);
    return [key, slider({ key, label, stops, start, show })];
  }),
);
const alike = () => families[chooser.selectedIndex];
const chosen = () => alike().find((group) => group.cores === cores.value) ?? alike()[0];

/** Take the sliders to a group, with its own stops. */
function take(group) {
  frequency.lay(group.frequency);
  price.lay(group.price);
  const hasPower = "power" in group.metrics;
  for (const each of shared.values()) each.row.hidden = !hasPower;
  price.row.hidden = !(hasPower || "performance" in group.metrics);
}

function choose() {
  const counts = alike().map((group) => group.cores);
  cores.lay({ stops: counts, start: counts.length - 1 });
  cores.row.hidden = counts.length < 2;
  choice.row.hidden = families.length < 2;
  take(chosen());
}

/** Go to a group by its name, at the frequency that is shown. */
function go(name) {
  const asked = frequency.value;
  choice.near(name);
  frequency.near(asked);
  later();
}

// Charts: one of each metric, of the chosen group among the others.

const [BAND, CURVE, PROJECTED, OTHERS] = ["#bcd4ec", "#2563a8", "#d1495b", "#a9b5c1"];
const [MOST_OTHERS, MOST_APART] = [60, 8];
const GHZ = 1e9;
const views = new Map();

function chartOf(name, { unit }) {
  const x = "core frequency (GHz)";
  const y = name.replaceAll("_", " ") + (unit === "1" ? "" : ` (${unit})`);
  const layer = (source, mark, encoding = {}) => ({ data: { name: source }, mark, encoding });
  const ends = { y: { field: "lower", type: "quantitative" }, y2: { field: "upper" } };
  const line = { type: "line", order: null, point: "transparent" };
  const label = { type: "text", fill: INK, dy: -14, fontSize: 12, align: { expr: "datum.anchor" } };
  return {
    height: 220,
    title: y,
    datasets: { others: [], curve: [], points: [], now: [] },
    encoding: {
      x: { field: "x", type: "quantitative", title: x, scale: { zero: false, nice: false } },
      y: { field: "y", type: "quantitative", title: null, scale: { zero: true } },
    },
    layer: [
      layer("others", { ...line, stroke: OTHERS, strokeWidth: 1 }, { detail: { field: "n" } }),
      layer("curve", { type: "area", fill: BAND, tooltip: null, opacity: 0.7 }, ends),
      layer("curve", { ...line, stroke: CURVE }),
      layer("points", { type: "point", fill: INK, stroke: INK, size: 30 }),
      layer("now", { type: "rule", stroke: PROJECTED, strokeWidth: 2, tooltip: null }, ends),
      layer("now", { type: "point", shape: "diamond", fill: PROJECTED, stroke: PROJECTED, size: 90 }),
      layer("now", { ...label, tooltip: null }, { text: { field: "text", type: "nominal" } }),
    ],
    usermeta: { x: { title: x }, y: { title: y } },
  };
}

/** Rows of a group's curve, an open end of its interval left out. */
function curveOf(group, name) {
  const { value, lower, upper } = group.metrics[name];
  return group.grid.map((f, i) => {
    const ends = upper[i] === null ? {} : { lower: lower[i], upper: upper[i] };
    return { x: f / GHZ, y: value[i], ...ends };
  });
}

/** Curves of other groups, as many as can be told apart, of values that leave room to read. */
function othersOf(group, name, most) {
  const others = data.groups.filter((other) => other !== group && name in other.metrics);
  const every = Math.ceil(others.length / MOST_OTHERS);
  return others.flatMap((other, n) => {
    if (n % every) return [];
    const near = curveOf(other, name).filter(({ y }) => y <= MOST_APART * most);
    const on = other.cores === null ? "" : ` on ${shown(other.cores)} cores`;
    return near.map(({ x, y }) => ({ x, y, n, series: other.name + on, group: other.name }));
  });
}

function rowsOf(group, name, f) {
  const [{ unit }, curve] = [group.metrics[name], curveOf(group, name)];
  const { value, lower, upper } = metric(group, name, f);
  const anchor = f / GHZ > (curve[0].x + curve.at(-1).x) / 2 ? "right" : "left";
  const ends = lower < upper && Number.isFinite(upper) ? { lower, upper } : {};
  const now = { x: f / GHZ, y: value, series: "projected", anchor, text: written(value, unit) };
  const measured = group.points[name] ?? [];
  const points = group.points.at.map((x, i) => ({ x: x / GHZ, y: measured[i], series: "measured" }));
  return {
    others: othersOf(group, name, Math.max(...curve.map(({ y, upper: end }) => end ?? y ?? 0))),
    curve,
    points: points.filter(({ y }) => y !== null && y !== undefined),
    now: Number.isNaN(value) ? [] : [{ ...now, ...ends }],
  };
}

/** Bring the charts to a group and frequency; those of metrics that it lacks are hidden. */
function redraw(group, f) {
  for (const [name, { view, figure }] of views) {
    figure.hidden = !(name in group.metrics);
    if (figure.hidden || !view) continue;
    for (const [source, rows] of Object.entries(rowsOf(group, name, f))) view.data(source, rows);
    view.runAsync();
  }
}

async function drawCharts() {
  for (const [name, each] of views) {
    await rest();
    each.view = await draw(each.figure.querySelector(".chart"), chartOf(name, each));
    each.view.addEventListener("click", (_, item) => item?.datum?.group && go(item.datum.group));
  }
  redraw(chosen(), frequency.value);
}

const derived = ({ metrics }, name) =>
  name === "performance" && ("time" in metrics || "throughput" in metrics);
for (const group of data.groups) {
  for (const [name, { unit }] of Object.entries(group.metrics)) {
    if (derived(group, name) || views.has(name)) continue;
    const figure = element("figure");
    figure.append(element("div", { class: "chart", style: "min-height: 220px" }));
    views.set(name, { unit, figure });
  }
}
page.querySelector(".figures").append(...[...views.values()].map(({ figure }) => figure));
drawn = drawn.then(drawCharts);

// What is said.

/** Change of a metric (%) from the highest frequency at which it was measured. */
function changeOf(group, name, value) {
  const { at, [name]: measured = [] } = group.points;
  const top = Math.max(...at.filter((_, i) => measured[i] > 0));
  const there = measured.filter((y, i) => y > 0 && at[i] === top);
  const change = 100 * (value / (there.reduce((sum, y) => sum + y, 0) / there.length) - 1);
  return Number.isFinite(change) ? { top, change } : null;
}

/** Sentence for the top of the page: the changes from what was measured. */
function sentenceOf(group, made, status) {
  const changes = made.flatMap(([label, { value }, , name]) => {
    const found = name && changeOf(group, name, value);
    return found ? [{ ...found, text: `${label} by ${signed(found.change)} %` }] : [];
  });
  if (!changes.length) return status;
  const from = hertz(changes[0].top);
  const texts = changes.slice(0, 3).map(({ text }) => text).join(", ");
  return `${status} From ${from}, the highest frequency measured, that changes ${texts}.`;
}

const signed = (change) => `${change < 0 ? "" : "+"}${change.toFixed(1)}`;

function update() {
  const [group, f] = [chosen(), frequency.value];
  const costs = Object.fromEntries([...shared].map(([key, each]) => [key, each.value]));
  costs.utilisation /= 100;
  const made = figures(group, f, { ...costs, price: price.value });
  fill(made.map(([label, known, unit]) => {
    const value = [written(known.value, unit), known.value];
    return [named(label, unit), value, interval(known, unit)];
  }));
  const [label, { value }, unit] = made[0];
  const on = group.cores === null ? [] : [`${shown(group.cores)} core${group.cores === 1 ? "" : "s"}`];
  const where = [hertz(f), ...on];
  const status = `${group.name} at ${where.join(" on ")}: ${label} ${written(value, unit)}.`;
  page.querySelector("[role=status]").textContent = status;
  const paid = made.findIndex(([text]) => text.startsWith("total cost"));
  const costsMoved = [price, ...shared.values()].some((each) => each.touched);
  const top = costsMoved && paid > 0 ? [...made.slice(0, 2), made[paid]] : made.slice(0, 3);
  const onTop = top.map(([name, full, of]) => {
    const [known, ends] = [brief(full), interval(brief(full), of)];
    return [named(name, of), written(known.value, of), ends === "–" ? "" : ends[0]];
  });
  keep(controls, sentenceOf(group, made, status), onTop);
  redraw(group, f);
}

chooser.addEventListener("change", () => go(choice.value));
// The host is the same whatever the number of its cores that work: its price stays.
function takeCores() {
  const [asked, paid] = [frequency.value, price.value];
  take(chosen());
  frequency.near(asked);
  price.near(paid);
}
cores.row.addEventListener("input", takeCores);
const controls = [finder, choice, frequency, cores, price, ...shared.values()];
const nearCores = cores.near;
cores.near = (number) => {
  nearCores(number);
  takeCores();
};
begin(controls, () => {
  for (const each of shared.values()) each.set(each.start);
  chooser.selectedIndex = 0;
  choose();
});
