// Sliders of a projection: figures of one group at a frequency, and what a host costs with them.

const HOURS = 8760;
const SECONDS = 3600 * HOURS;

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
  const rows = group.metrics[name].likely;
  return rows[0].map((_, i) => between(group.grid, rows.map((row) => row[i]), frequency));
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
    if (name === "performance" && ("time" in group.metrics || "throughput" in group.metrics)) continue;
    made.push([name.replaceAll("_", " "), metric(group, name, frequency), unit]);
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
const PREFIXED = ["s", "W", "J/run", "kWh"];
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
const choice = row("group", chooser);
const nothing = { stops: [0], start: 0 };
const frequency = slider({ label: "frequency", ...nothing, show: (f) => shown(f, "Hz") });
const cores = slider({ label: "cores", ...nothing, show: (number) => shown(number) });
const price = slider({ label: "price of a host", ...nothing, show: money });
const shared = new Map(
  data.sliders.map(({ key, label, unit, stops, start }) => {
    const show = (value) => (unit === "1" ? shown(value) : `${shown(value)} ${unit}`);
    return [key, slider({ label, stops, start, show })];
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
  const where = [shown(f, "Hz"), ...on];
  page.querySelector("[role=status]").textContent =
    `${group.name} at ${where.join(" on ")}: ${label} ${written(value, unit)}.`;
}

chooser.addEventListener("change", () => {
  const asked = frequency.value;
  choose();
  frequency.near(asked);
  later();
});
// The host is the same whatever the number of its cores that work: its price stays.
cores.row.addEventListener("input", () => {
  const [asked, paid] = [frequency.value, price.value];
  take(chosen());
  frequency.near(asked);
  price.near(paid);
});
choose();
const rows = [choice, frequency, cores, price, ...shared.values()].map((each) => each.row);
begin(rows, () => {
  for (const each of shared.values()) each.set(each.start);
  chooser.selectedIndex = 0;
  choose();
});
