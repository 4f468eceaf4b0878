// Second part of the book's script: the pieces that the labs are made of.

const $ = (id) => document.getElementById(id);
const book = JSON.parse($("book").textContent);

function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

// Words with symbols: d_k gets its index below.
function words(text) {
  const parts = text.split(/\b([A-Za-z])_([A-Za-z0-9]+)\b/);
  const nodes = [];
  for (let i = 0; i < parts.length; i += 3) {
    nodes.push(parts[i]);
    if (i + 2 < parts.length) nodes.push(make("i", {}, parts[i + 1]), make("sub", {}, parts[i + 2]));
  }
  return make("span", { class: "math" }, ...nodes);
}

// A field for one number. What is no number changes nothing and is marked until it is one again.
function field(label, value, act, { min = -1e6, max = 1e6, step = "any" } = {}) {
  const node = make("input", { type: "number", "aria-label": label, min, max, step, value, class: "field" });
  node.addEventListener("input", () => {
    const read = node.valueAsNumber;
    const fits = Number.isFinite(read) && read >= min && read <= max;
    node.toggleAttribute("aria-invalid", !fits);
    node.title = fits ? "" : `a number from ${min} to ${max}`;
    if (fits) act(read);
  });
  return node;
}

// A slider with a field beside it; both show the same number.
function slider(label, value, act, { min, max, step }) {
  const both = (read, from) => {
    if (from !== range) range.value = read;
    if (from !== number) number.value = read;
    act(read);
  };
  const range = make("input", { type: "range", "aria-label": label, min, max, step, value });
  range.addEventListener("input", () => both(range.valueAsNumber, range));
  const number = field(`${label}, as a number`, value, (read) => both(read, number), { min, max });
  return [range, number];
}

// A slider over a list of allowed values: what is not in the list cannot be chosen.
function steps(label, list, value, act) {
  const said = make("output", { class: "number" }, String(value));
  const range = make("input", {
    type: "range",
    "aria-label": label,
    min: 0,
    max: list.length - 1,
    step: 1,
    value: list.indexOf(value),
    "aria-valuetext": String(value),
  });
  const show = (read) => {
    said.textContent = read;
    range.setAttribute("aria-valuetext", String(read));
  };
  range.addEventListener("input", () => {
    show(list[range.valueAsNumber]);
    act(list[range.valueAsNumber]);
  });
  const set = (newList, newValue) => {
    list = newList;
    range.max = list.length - 1;
    range.value = list.indexOf(newValue);
    show(newValue);
  };
  return { range, said, set };
}

const control = (name, ...nodes) =>
  make("div", { class: "control" }, make("span", { class: "name" }, words(name)), ...nodes);

function tick(label, on, act, name = null) {
  const box = make("input", { type: "checkbox", "aria-label": name ?? label });
  box.checked = on;
  box.addEventListener("change", () => act(box.checked));
  return make("label", { class: "tick" }, box, name ? "" : words(label));
}

function choose(label, options, value, act) {
  const node = make("select", { "aria-label": label });
  for (const [key, text] of options)
    node.append(make("option", { value: key, selected: key === value }, text));
  node.addEventListener("change", () => act(node.value));
  return node;
}

// Claims that hold, each with what was found. A claim that fails is marked, in words too.
function claims(list) {
  return make(
    "ul",
    { class: "checks" },
    ...list.map(([claim, holds, found]) =>
      make(
        "li",
        { class: holds ? "" : "fails" },
        words(claim),
        make("span", { class: "error" }, ` ${holds ? "" : "fails: "}${found}`),
      ),
    ),
  );
}

const shade = (weight) => (weight > 0 ? `w${Math.min(10, Math.max(1, Math.ceil(weight * 10)))}` : "");

// A grid of numbers; `cell(i, j)` may give a node of its own.
function matrix(name, rows, { shades = null, cell = null, down = null, across = null } = {}) {
  const body = rows.map((row, i) =>
    make(
      "tr",
      {},
      make("th", { scope: "row" }, down ? down[i] : String(i)),
      ...row.map((value, j) => {
        const inner = cell ? cell(i, j, value) : shown(value);
        return make("td", { class: shades ? shade(shades[i][j]) : "" }, inner);
      }),
    ),
  );
  const head = make(
    "tr",
    {},
    make("td"),
    ...rows[0].map((_, j) => make("th", { scope: "col" }, across ? across[j] : String(j))),
  );
  return make(
    "figure",
    { class: "matrix" },
    make("figcaption", {}, words(name)),
    make("div", { class: "scroll" }, make("table", {}, make("thead", {}, head), make("tbody", {}, ...body))),
  );
}

// The same, to type into; `act(i, j, value)` after each change.
function typed(name, rows, act) {
  return matrix(name, rows, {
    cell: (i, j, value) => field(`${name}, row ${i}, column ${j}`, value, (read) => act(i, j, read)),
  });
}

const bar = (share) => {
  const fill = make("span", { class: "fill" });
  fill.style.width = `${100 * Math.min(1, Math.max(0, share))}%`;
  return make("span", { class: "track", "aria-hidden": "true" }, fill);
};

const reset = (act) => make("button", { type: "button", class: "plain reset", onclick: act }, "Reset");
const pairs = (list) =>
  make(
    "table",
    { class: "numbers" },
    make(
      "tbody",
      {},
      ...list.map(([name, value, more]) =>
        make(
          "tr",
          {},
          make("th", { scope: "row" }, words(name)),
          make("td", { class: "number" }, value),
          more ? make("td", {}, more) : null,
        ),
      ),
    ),
  );
const copy = (value) => JSON.parse(JSON.stringify(value));
