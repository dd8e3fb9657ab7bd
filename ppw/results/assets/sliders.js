// What all pages with sliders share.

const page = document.getElementById("sliders");
const data = JSON.parse(document.getElementById("ppw-sliders").textContent);

/** Quantile of sorted numbers, between two of them on a straight line. */
function quantile(sorted, share) {
  const at = share * (sorted.length - 1);
  const below = Math.floor(at);
  const above = Math.min(below + 1, sorted.length - 1);
  return sorted[below] + (at - below) * (sorted[above] - sorted[below]);
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
function slider({ key, label, stops, start, show }) {
  const input = element("input", { type: "range", min: 0, step: 1 });
  const made = { ...row(label, input), key, touched: false };
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

const headline = document.querySelector(".verdict .answer");
const keyFigures = document.querySelector(".verdict dl");
const asAsked = [headline.textContent, [...keyFigures.children]];

/** Put an answer on top of the page: a sentence and up to three [label, value, interval]. */
function answerOnTop(sentence, rows) {
  headline.textContent = sentence;
  const boxes = rows.map(([label, value, interval]) => {
    const box = element("div");
    box.append(element("dt", {}, label), element("dd", {}, value));
    box.append(element("dd", { class: "note" }, interval));
    return box;
  });
  keyFigures.replaceChildren(...boxes);
}

/** Keep what was moved in the address, so that it can be sent; on top stands its answer. */
function keep(controls, sentence, rows) {
  const moved = controls.filter((each) => each.touched);
  const state = new URLSearchParams(moved.map((each) => [each.key, each.value])).toString();
  if (state !== location.hash.slice(1)) history.replaceState(null, "", `#${state}`);
  if (moved.length) answerOnTop(sentence, rows);
  else [headline.textContent] = asAsked;
  if (!moved.length) keyFigures.replaceChildren(...asAsked[1]);
}

/** Show the controls, moved to where the address says, and whatever follows from them. */
function begin(controls, reset) {
  const restore = () => {
    reset();
    const asked = new URLSearchParams(location.hash.slice(1));
    for (const each of controls) if (asked.has(each.key)) each.near(asked.get(each.key));
    update();
  };
  page.querySelector(".sliders").replaceChildren(...controls.map((each) => each.row));
  page.querySelector("button").addEventListener("click", () => {
    reset();
    update();
  });
  window.addEventListener("hashchange", restore);
  restore();
  page.hidden = false;
}
