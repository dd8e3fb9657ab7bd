// Sliders of a procurement report: the model of ppw/procurement once more, one draw at a time. Names
// and equations are those of its demand, sizing, server, energy, carbon, money and ranking.

const HOURS_PER_YEAR = 8760;
const SLACK = 1e-9;
const wholeUp = (number) => Math.ceil(number * (1 - SLACK));
const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);

data.parts = Math.max(...data.workloads.map(({ profile }) => profile.length));
for (const workload of data.workloads) {
  const { name, profile } = workload;
  const kinds = ["rate", "share", "memory", "power"];
  workload.keys = Object.fromEntries(kinds.map((kind) => [kind, `workload.${name}.${kind}`]));
  workload.profile = Array.from({ length: data.parts }, (_, i) => profile[i % profile.length]);
}

/** Figures by key: a value, and the draws of one that is uncertain. */
const figures = new Map(
  data.figures.map(([key, value, packed]) => [key, { value, drawn: packed && unpacked(packed) }]),
);

function unpacked(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return new Float64Array(bytes.buffer);
}

/** Function from a key, behind a prefix, to its figure; a moved one is its value alone. */
function reader(moved, prefix = "") {
  const found = new Map();
  return (name) => {
    if (!found.has(name)) {
      const key = prefix + name;
      found.set(name, moved.has(key) ? { value: moved.get(key) } : figures.get(key));
    }
    return found.get(name);
  };
}

/** One candidate in a case, which is a draw by its number or null for the values. */
function caseOf(server, all, ours, years, draw) {
  const of = (figure, otherwise) => {
    if (!figure) return otherwise;
    return draw === null || !figure.drawn ? figure.value : figure.drawn[draw];
  };
  const at = (key, otherwise) => of(all(key), otherwise);
  const own = (name, otherwise) => of(ours(name), otherwise);
  const growth = 1 + at("demand.growth_per_year");
  return { server, years, at, own, growth, most: Math.max(1, growth ** (years - 1)) };
}

/** Demand of every workload in the first year, and what one server does of it. */
function demandOf({ server, at, own, most }) {
  const scale = at("demand.scale");
  return data.workloads.map(({ keys, profile }, i) => {
    const rate = at(keys.rate) ?? at("demand.rate") * at(keys.share);
    const full = own(keys.rate);
    return {
      rate: profile.map((part) => scale * rate * part),
      memory: scale * at(keys.memory, 0) * most,
      full,
      within: server.share_within_limit[i] * full,
      watts: own(keys.power),
    };
  });
}

/** Servers of a pool: by rate or memory in the busiest year, and the spare ones. */
function serversOf(pool, { at, own, most }) {
  const extra = 1 + at("demand.headroom");
  let needed = 0;
  for (let part = 0; part < data.parts; part++) {
    let load = 0;
    for (const w of pool) load += (w.rate[part] * most) / w.within;
    needed = Math.max(needed, load);
  }
  const byRate = wholeUp((needed * extra) / at("demand.max_utilisation"));
  const memory = sum(pool.map((w) => w.memory));
  const byMemory = memory ? wholeUp((memory * extra) / own("memory")) : 0;
  const least = Math.max(byRate, byMemory, 1);
  return least + data.spare_servers + wholeUp(least * at("demand.spare_share"));
}

function racksOf(servers, work, { server, at, own }) {
  const highest = Math.max(...work.map((w) => w.watts)) + own("beside_power", 0);
  const peak = own("rated_power", highest) + server.ports * at("costs.port_power");
  const bySpace = Math.floor(data.rack_units / server.height);
  const byPower = Math.floor(at("site.rack_power", Infinity) / peak + SLACK);
  const racks = wholeUp(servers / Math.max(Math.min(bySpace, byPower), 1));
  const power = at("site.power", Infinity) * (1 + SLACK);
  const room = racks <= (data.max_racks ?? Infinity) && servers * peak <= power;
  return { racks, fits: bySpace >= 1 && byPower >= 1 && room };
}

/** Watts of one server of a pool, averaged over the day. */
function meanWatts({ pool, servers }, grown, { server, own }) {
  const idle = own("idle_power");
  let total = 0;
  for (let part = 0; part < data.parts; part++) {
    let [load, weighted] = [0, 0];
    for (const w of pool) {
      const share = (w.rate[part] * grown) / (w.full * servers);
      load += share;
      weighted += share * w.watts;
    }
    const full = load > 0 ? weighted / load : idle;
    total += idle + shape(server.curve, load) * (full - idle);
  }
  return total / data.parts + own("beside_power", 0);
}

/** kWh of the site by year. */
function energyOf(sized, it) {
  const ports = it.server.ports * it.at("costs.port_power");
  return Array.from({ length: it.years }, (_, year) => {
    const watts = sized.map((each) => {
      return each.servers * (meanWatts(each, it.growth ** year, it) + ports);
    });
    return (it.at("site.pue") * sum(watts) * HOURS_PER_YEAR) / 1000;
  });
}

/** Present value of the parts of the cost. */
function moneyOf(servers, racks, energy, it) {
  const { server, at, own } = it;
  const worth = energy.map((_, year) => (1 + at("costs.discount_rate")) ** -(year + 1));
  const eachYear = sum(worth);
  const price = own("price");
  const perCore = at("costs.licence_per_core") + eachYear * at("costs.licence_per_core_per_year");
  const perServer = eachYear * at("costs.licence_per_server_per_year");
  const rise = 1 + at("site.electricity_change_per_year");
  const residual = own("residual_share", at("costs.residual_share"));
  return [
    servers * price,
    racks * (at("site.rack_price") + eachYear * at("site.rack_rent_per_year")),
    servers * server.ports * at("costs.port_price"),
    servers * (server.cores * perCore + perServer),
    servers * eachYear * own("support_per_year", price * at("costs.support_share")),
    sum(energy.map((kwh, year) => worth[year] * kwh * at("site.electricity") * rise ** year)),
    carbonCost(servers, energy, worth, it),
    -servers * price * residual * worth[worth.length - 1],
  ];
}

/** Carbon (kg) of making the servers and of their electricity. */
function carbonOf(servers, energy, { at, own }) {
  const change = 1 + at("site.grid_carbon_change_per_year");
  const use = energy.map((kwh, y) => at("site.grid_carbon", NaN) * change ** y * kwh);
  return servers * own("embodied_carbon", NaN) + sum(use);
}

function carbonCost(servers, energy, worth, { at, own }) {
  const paid = at("costs.carbon_price") / 1000;
  // Without a price nothing is paid, also for what is not known.
  if (!(paid > 0)) return 0;
  const change = 1 + at("site.grid_carbon_change_per_year");
  const use = energy.map((kwh, y) => worth[y] * at("site.grid_carbon", NaN) * change ** y * kwh);
  return paid * (servers * own("embodied_carbon", NaN) + sum(use));
}

/** What a candidate comes to. */
function outcome(it) {
  const work = demandOf(it);
  const pools = data.separate_pools ? work.map((each) => [each]) : [work];
  const sized = pools.map((pool) => ({ pool, servers: serversOf(pool, it) }));
  const servers = sum(sized.map((each) => each.servers));
  const { racks, fits } = racksOf(servers, work, it);
  const energy = energyOf(sized, it);
  const money = moneyOf(servers, racks, energy, it);
  const carbon = carbonOf(servers, energy, it);
  return { servers, racks, fits, energy: sum(energy), carbon, money, tco: sum(money) };
}

/** Share of the way from idle to full watts at a load, by the cubic piece that holds it. */
function shape(pieces, load) {
  const at = Math.min(Math.max(load, 0), 1);
  let piece = 0;
  while (piece + 1 < pieces.length && pieces[piece + 1][0] <= at) piece++;
  const [start, a, b, c, d] = pieces[piece];
  const x = at - start;
  return ((a * x + b) * x + c) * x + d;
}

/** Share of the draws in which each candidate costs least of those that fit; ties are shared. */
function shareCheapest(drawn) {
  const shares = drawn.map(() => 0);
  let known = 0;
  for (let draw = 0; draw < data.draws; draw++) {
    const costs = drawn.map((all) => (all[draw].fits ? all[draw].tco : Infinity));
    const least = Math.min(...costs);
    if (!Number.isFinite(least)) continue;
    known++;
    const best = costs.flatMap((cost, i) => (cost === least ? [i] : []));
    for (const i of best) shares[i] += 1 / best.length;
  }
  return shares.map((share) => (known ? share / known : NaN));
}

function answer(moved, years) {
  const all = reader(moved);
  const cases = data.servers.map((server) => {
    const own = reader(moved, `candidate.${server.key}.`);
    return (draw) => outcome(caseOf(server, all, own, years, draw));
  });
  const drawn = cases.map((come) => Array.from({ length: data.draws }, (_, draw) => come(draw)));
  const cheapest = shareCheapest(drawn);
  return data.servers.map((server, i) => {
    const costs = Float64Array.from(drawn[i], (one) => one.tco).sort();
    const ends = [-1, 1].map((side) => quantile(costs, 0.5 + (side * data.level) / 2));
    const apart = costs[0] < costs[costs.length - 1];
    return {
      name: server.name,
      ...cases[i](null),
      ends: apart ? ends : null,
      cheapest: cheapest[i],
    };
  });
}

/** Total to the cent as it is printed: of parts to the cent. */
const total = ({ money: parts }) => sum(parts.map((part) => Math.round(100 * part))) / 100;

function cells(one) {
  const ends = one.ends && [shownInterval(one.tco, ...one.ends, "1"), one.ends.join(" ")];
  return [
    one.name,
    [whole(one.servers), one.servers],
    one.fits ? [whole(one.racks), one.racks] : "does not fit",
    [whole(one.energy), one.energy],
    [money(total(one)), one.tco],
    ends ?? "–",
    [percent(one.cheapest), one.cheapest],
  ];
}

function verdict(answers, years) {
  const fitting = answers.filter((one) => one.fits);
  const [best, next] = (fitting.length ? fitting : answers).sort((a, b) => a.tco - b.tco);
  const over = years === 1 ? "one year" : `${years} years`;
  const cost = `${money(total(best))} ${data.currency}`;
  const room = fitting.length ? "" : "No candidate fits the site; as if there were room: ";
  if (!next) return `${room}At these values ${best.name} costs ${cost} over ${over}.`;
  const apart = `${money(total(next) - total(best))} ${data.currency}`;
  return `${room}At these values ${best.name} costs least over ${over}: ${cost}; ${next.name}, the next, costs ${apart} more.`;
}

// Charts: what each candidate costs by part, and cost against carbon or energy.

const names = data.servers.map(({ name }) => name);
const nominal = (field, more) => ({ field, type: "nominal", ...more });
const amount = (field, title) => ({ field, type: "quantitative", title, axis: { format: "~s", tickCount: 6 } });
const cost = `total cost (${data.currency})`;

function costChart() {
  const legend = { columns: window.innerWidth < 600 ? 1 : 4, symbolType: "square" };
  const colour = { domain: Object.keys(data.colours), range: Object.values(data.colours) };
  const parts = { x: amount("money", cost), color: nominal("part", { scale: colour, legend }) };
  const rule = { type: "rule", stroke: INK, strokeWidth: 2, tooltip: null };
  return {
    height: { step: 44 },
    datasets: { parts: [], totals: [] },
    encoding: { y: nominal("name", { title: null, sort: names, axis: { grid: false, labelLimit: 150 } }) },
    layer: [
      { data: { name: "parts" }, mark: { type: "bar", size: 24 }, encoding: parts },
      { data: { name: "totals" }, mark: rule, encoding: { x: amount("lower", cost), x2: { field: "upper" } } },
      { data: { name: "totals" }, mark: { type: "tick", color: INK, thickness: 3, size: 24 }, encoding: { x: amount("tco", cost) } },
    ],
  };
}

function frontChart() {
  const y = { ...amount("other", null), scale: { zero: false, padding: 16 } };
  const label = { type: "text", fill: INK, dy: -12, fontSize: 12, limit: 150, tooltip: null };
  label.align = { expr: "scale('x', datum.tco) > width / 2 ? 'right' : 'left'" };
  return {
    title: data.second === "carbon" ? "carbon (kg CO2e)" : "energy (kWh)",
    height: 44 * names.length + 120,
    datasets: { totals: [] },
    data: { name: "totals" },
    encoding: { x: { ...amount("tco", cost), scale: { zero: false, padding: 50 } }, y },
    layer: [
      { mark: { type: "point", fill: "#2563a8", stroke: "#2563a8", size: 80 } },
      { mark: label, encoding: { text: nominal("name") } },
    ],
  };
}

const views = new Map();
for (const [name, caption] of Object.entries(data.charts)) {
  const figure = element("figure");
  figure.append(element("figcaption", {}, caption), element("div", { class: "chart" }));
  page.querySelector(".figures").append(figure);
  views.set(name, { figure });
}
drawn = drawn.then(async () => {
  for (const [name, each] of views) {
    await rest();
    const spec = { costs: costChart, front: frontChart }[name]();
    const [figure, description] = [each.figure.querySelector(".chart"), data.charts[name]];
    each.view = await draw(figure, { ...spec, description });
  }
  update();
});

function redraw(answers) {
  const parts = answers.flatMap(({ name, money: all }) =>
    Object.keys(data.colours).map((part, i) => ({ name, part, money: all[i] })),
  );
  const totals = answers.map(({ name, tco, ends, energy, carbon }) => {
    const [lower, upper] = ends ?? [tco, tco];
    return { name, tco, lower, upper, other: data.second === "carbon" ? carbon : energy };
  });
  views.get("costs").view?.data("parts", parts).data("totals", totals).runAsync();
  views.get("front")?.view?.data("totals", totals).runAsync();
}

const sliders = data.sliders.map(({ key, label, stops, start, range }) => {
  const given = range && ` (${range.map((end) => shown(end)).join(" … ")})`;
  const show = (value, touched) => shown(value) + (given && !touched ? given : "");
  return slider({ key, label, stops, start, show });
});

function update() {
  const moved = new Map(sliders.filter((each) => each.touched).map((each) => [each.key, each.value]));
  const years = moved.get("demand.years") ?? data.years;
  const answers = answer(moved, years);
  fill(answers.map(cells));
  const sentence = verdict(answers, years);
  page.querySelector("[role=status]").textContent = sentence;
  const fitting = answers.filter((one) => one.fits);
  const best = (fitting.length ? fitting : answers).reduce((a, b) => (b.tco < a.tco ? b : a));
  const [lower, upper] = best.ends ?? [NaN, NaN];
  const paid = brief({ value: best.tco, lower, upper });
  const ends = best.ends ? shownInterval(paid.value, paid.lower, paid.upper, "1") : "";
  keep(sliders, sentence, [
    [`${cost} of ${best.name}`, shown(paid.value), ends],
    ["servers", whole(best.servers), ""],
    ["energy (kWh)", whole(best.energy), ""],
  ]);
  redraw(answers);
}

begin(sliders, () => sliders.forEach((each) => each.set(each.start)));
