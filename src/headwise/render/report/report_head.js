// Third part of the page's script: the chosen head. Each draw function shows `state` (see report.js).

// ---------------------------------------------------------------- its label and its scores

function drawTitle() {
  const { layer, head, label, why } = heads[state.at];
  const rule = labelOf.get(label);
  const reason = rule?.score ? `${rule.meaning.slice(0, -1)} (${why}).` : report.noRule;
  $("head-title").textContent = `Layer ${layer}, head ${head}`;
  $("head-why").replaceChildren(span("chip", labelName(label)), span("quiet", reason));
}

function drawPanels() {
  $("head-panels").replaceChildren(...heads[state.at].panels.map(panel));
}

function drawScores() {
  // A part of the card of which this head has no number at all is not shown.
  const known = new Set(scores.filter(({ key }) => valueOf(state.at, key) !== null).map(({ group }) => group));
  const rows = [];
  let last = "";
  for (const score of scores) {
    if (score.group && !known.has(score.group)) continue;
    if (score.group !== last) rows.push(groupRow(score.group));
    last = score.group;
    rows.push(scoreRow(score));
  }
  $("scores").replaceChildren(...rows);
}

function groupRow(name) {
  return make("tr", { class: "group" }, make("th", { scope: "rowgroup", colspan: 4 }, name));
}

function scoreRow({ key, name, meaning, unit, top }) {
  const [value, uniform, share] = ["value", "null", "share"].map((part) => partOf(state.at, key, part));
  const pressed = key === state.score;
  const choose = () => show({ score: key });
  const header = make(
    "th",
    { scope: "row" },
    make("button", { type: "button", title: meaning, "aria-pressed": pressed, onclick: choose }, name),
  );
  const rows = share === 0 ? "no possible match" : `in ${Math.round(100 * share)} % of the rows`;
  const notes = [unit, share === null ? "" : rows].filter(Boolean);
  if (notes.length) header.append(span("note", notes.join(", ")));

  const track = make("div", { class: "track", "aria-hidden": "true" });
  const percent = (part) => `${Math.min(100, Math.max(0, (100 * part) / (top || 1)))}%`;
  if (value !== null) track.appendChild(make("div", { class: "fill" })).style.width = percent(value);
  if (uniform !== null) track.appendChild(make("div", { class: "tick" })).style.left = percent(uniform);
  const numbers = [value, uniform].map((part) => make("td", {}, number(part)));
  return make("tr", { "data-score": key }, header, make("td", {}, track), ...numbers);
}

// ---------------------------------------------------------------- the text: choose a query token

const PAGE = 800; // tokens of the text that are laid out at a time
const text = $("text");
let page = -1;

function drawText(wanted = Math.floor((state.token ?? Math.max(page, 0) * PAGE) / PAGE)) {
  if (wanted !== page) layOut(wanted);
  const { at, token } = state;
  const row = new Map(token === null ? [] : (rowOf(at, token) ?? []));
  const entry = token !== null && Math.floor(token / PAGE) === page ? token : page * PAGE;
  for (const option of text.children) {
    const position = Number(option.dataset.position);
    const chosen = position === token;
    const shade = row.has(position) && !chosen ? Math.round(8 + 52 * Math.sqrt(row.get(position))) : 0;
    option.setAttribute("aria-selected", chosen);
    option.tabIndex = position === entry ? 0 : -1;
    option.classList.toggle("without-row", !hasRow(at, position));
    option.style.color = shade ? "var(--ink)" : "";
    option.style.backgroundColor = shade ? `color-mix(in srgb, var(--key) ${shade}%, transparent)` : "";
    if (chosen) keepInView(option);
  }
}

function layOut(wanted) {
  page = wanted;
  const start = page * PAGE;
  const end = Math.min(n, start + PAGE);
  const options = [];
  for (let position = start; position < end; position++) {
    const kind = special.has(position) ? "special" : "";
    const properties = { role: "option", class: kind, "data-position": position, title: `token ${position}` };
    options.push(make("span", properties, word(position)));
  }
  text.replaceChildren(...options);
  text.scrollTop = 0;
  $("pager").hidden = n <= PAGE;
  $("page-words").textContent = `tokens ${thousands(start)} to ${thousands(end - 1)} of ${thousands(n)}`;
  $("earlier").disabled = page === 0;
  $("later").disabled = end === n;
}

// Scrolls inside the text only, never the page.
function keepInView(option) {
  const top = option.offsetTop;
  const inside = top >= text.scrollTop && top + option.offsetHeight <= text.scrollTop + text.clientHeight;
  if (!inside) text.scrollTop = top - text.clientHeight / 3;
}

const positionOf = (event) => event.target.closest("[data-position]")?.dataset.position;
const toggleToken = (token) => show({ token: token === state.token ? null : token });

// Moves the choice along the tokens; says whether the key was one of its own.
function tokenKey(event, position) {
  const goals = {
    ArrowLeft: -1,
    ArrowUp: -1,
    ArrowRight: 1,
    ArrowDown: 1,
    Home: -n,
    End: n,
    Enter: 0,
    " ": 0,
  };
  if (!(event.key in goals)) return false;
  event.preventDefault();
  const firstStep = event.key.startsWith("Arrow") && state.token === null; // takes the focused token itself
  const goal = position + (firstStep ? 0 : goals[event.key]);
  show({ token: Math.min(Math.max(goal, 0), n - 1) });
  return true;
}

function buildText() {
  text.addEventListener("click", (event) => {
    if (positionOf(event)) toggleToken(Number(positionOf(event)));
  });
  text.addEventListener("keydown", (event) => {
    if (!positionOf(event) || !tokenKey(event, Number(positionOf(event)))) return;
    text.querySelector('[tabindex="0"]').focus({ preventScroll: true });
  });
  $("earlier").addEventListener("click", () => drawText(page - 1));
  $("later").addEventListener("click", () => drawText(page + 1));
  $("clear").addEventListener("click", () => show({ token: null }));
}

// ---------------------------------------------------------------- the lines

const ALL_WORDS = 36; // up to here both columns show every token
const ROW = 1.5; // heights in rem, as in the style sheet
const GAP = 1.125;

// The rows of one column: all tokens, or those at `positions` with `near` neighbours, and gaps between.
function column(positions, near) {
  if (n <= ALL_WORDS) return tokens.map((_, position) => ({ position }));
  const wanted = new Set();
  for (const position of positions) {
    const [from, to] = [Math.max(0, position - near), Math.min(n - 1, position + near)];
    for (let i = from; i <= to; i++) wanted.add(i);
  }
  const rows = [];
  let next = 0;
  for (const position of ascending(wanted)) {
    if (position > next) rows.push({ skipped: position - next });
    rows.push({ position });
    next = position + 1;
  }
  if (next < n) rows.push({ skipped: n - next });
  return rows;
}

const heightOf = (rows) => rows.reduce((sum, row) => sum + (row.skipped ? GAP : ROW), 0);

// position -> the middle of its row, in a column centred in `full`
function middles(rows, full) {
  const places = new Map();
  let y = (full - heightOf(rows)) / 2;
  for (const row of rows) {
    if (!row.skipped) places.set(row.position, y + ROW / 2);
    y += row.skipped ? GAP : ROW;
  }
  return places;
}

function drawLines() {
  const { at, token } = state;
  const one = token !== null;
  const row = one ? rowOf(at, token) : null;
  const links = one ? (row ?? []).map(([key, weight]) => [token, key, weight]) : heads[at].links;
  const asking = one ? [token] : links.map((link) => link[0]);
  const answering = links.map((link) => link[1]);
  const left = column(asking, one ? 6 : 0);
  const right = one && !row ? [] : column(answering, one ? 1 : 0);
  const full = Math.max(heightOf(left), heightOf(right), ROW);
  const given = new Map(one ? row : []);

  const leftKind = (position) => (!asking.includes(position) ? "faint" : one ? "chosen" : "hit");
  const rightKind = (position) => (answering.includes(position) ? "hit" : "faint");
  $("queries").replaceChildren(...left.map((line) => lineWord(line, leftKind, null)));
  $("keys").replaceChildren(...right.map((line) => lineWord(line, rightKind, given)));
  drawCurves(links, middles(left, full), middles(right, full), full);
  drawLinkWords(links, row);
}

// A word of a column. Queries are buttons; keys show the weight that they are `given`.
function lineWord({ position, skipped }, kindOf, given) {
  if (skipped) return make("div", { class: "skipped" }, `\u22ee ${count(skipped, "token")}`);
  const kind = `word ${kindOf(position)}${special.has(position) ? " special" : ""}`;
  const parts = [word(position), span("at", position)];
  if (given?.has(position)) parts.unshift(span("given", weightWords(given.get(position))));
  const properties = { class: kind, "data-position": position, title: `token ${position}` };
  if (given) return make("div", properties, ...parts);
  return make("button", { ...properties, type: "button", tabindex: -1 }, ...parts);
}

function drawCurves(links, from, to, full) {
  const curves = [...links].reverse().map(([query, key, weight]) => {
    const [y1, y2] = [from.get(query), to.get(key)];
    const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
    path.setAttribute("d", `M0 ${y1}C45 ${y1} 55 ${y2} 100 ${y2}`);
    path.setAttribute("stroke-width", 1 + 7 * weight);
    path.setAttribute("stroke-opacity", 0.2 + 0.75 * Math.sqrt(weight));
    Object.assign(path.dataset, { query, key, weight: weightWords(weight) });
    return path;
  });
  $("curves").setAttribute("viewBox", `0 0 100 ${full}`);
  $("curves").style.height = `${full}rem`;
  $("curves").replaceChildren(...curves);
}

// The lines once more, in words.
function drawLinkWords(links, row) {
  const { token } = state;
  const one = token !== null;
  let hint = ["Choose a word to see where it looks."];
  let title = links.length ? "Strongest links" : "No link between two different words";
  let rest = "";
  if (one && row) {
    hint = [`Token ${token}, `, spoken(token), ", looks at the blue words; the deeper, the more weight."];
    title = "Weights of this token";
    rest = restWords(row);
  } else if (one) {
    const where = "were left out of this file to keep it small; the bright words of the text have theirs.";
    hint = [`The weights of token ${token}, `, spoken(token), `, ${where}`];
    title = "Weights left out";
  } else if (links.length && special.size) {
    rest = "Special tokens, and weights of a word on itself, are left out here.";
  }
  $("lines-hint").replaceChildren(...hint);
  $("links-title").textContent = title;
  $("links-rest").textContent = rest;
  $("links").replaceChildren(...links.map((link) => make("li", {}, linkWords(link, one))));
  $("clear").hidden = !one;
}

function linkWords([query, key, weight], one) {
  const value = span("given", weightWords(weight));
  const words = span("link", (one ? spoken : quoted)(query), " \u2192 ", quoted(key), " ", value);
  return one ? words : make("button", { type: "button", onclick: () => show({ token: query }) }, words);
}

function restWords(row) {
  if (!row.length) return "This token sees no other token.";
  const { causal, firstQuery, sees } = heads[state.at];
  const others = (causal ? state.token - firstQuery + 1 : sees) - row.length;
  const rest = row.reduce((left, [, weight]) => left - weight, 1);
  return others > 0 ? `The other ${count(others, "token")} share ${weightWords(Math.max(0, rest))}.` : "";
}

function buildLines() {
  const queries = $("queries");
  const focus = (position) =>
    queries.querySelector(`[data-position="${position}"]`)?.focus({ preventScroll: true });
  queries.addEventListener("click", (event) => {
    const position = positionOf(event);
    if (!position) return;
    toggleToken(Number(position));
    focus(position);
  });
  queries.addEventListener("keydown", (event) => {
    if (!positionOf(event) || event.key === "Enter" || event.key === " ") return; // a button's own keys
    if (tokenKey(event, Number(positionOf(event)))) focus(state.token);
  });
}

// ---------------------------------------------------------------- the map

const canvas = $("map");
let cursor = null; // [query cell, key cell] under the mouse or the keys
let room = 0; // width for the map; watched, so that a draw need not ask for the layout

function drawMap() {
  const { block, side, layer, head } = heads[state.at];
  canvas.closest(".card").hidden = side === 0; // a head that looks from one text to another has no map here
  if (side === 0) return;
  const cells = mapOf(state.at);
  const top = cells.reduce((most, value) => (value > most ? value : most), 0) || 1;
  const ratio = devicePixelRatio || 1;
  const cell = Math.max(1, Math.floor((room * ratio) / side)); // whole device pixels: crisp cells
  const size = cell * side;
  canvas.width = canvas.height = size;
  canvas.style.width = canvas.style.height = `${size / ratio}px`;
  canvas.parentElement.style.setProperty("--map-size", `${size / ratio}px`);

  const small = new ImageData(side, side);
  cells.forEach((value, i) => {
    if (!Number.isNaN(value)) small.data.set([...colour(Math.sqrt(value / top)), 255], 4 * i);
  });
  const source = make("canvas", { width: side, height: side });
  source.getContext("2d").putImageData(small, 0, 0);
  const pen = canvas.getContext("2d");
  pen.imageSmoothingEnabled = false;
  pen.drawImage(source, 0, 0, size, size);
  pen.lineWidth = 1.5 * ratio;
  pen.strokeStyle = chosenColour;
  if (state.token !== null) pen.strokeRect(0, Math.floor(state.token / block) * cell, size, cell);
  if (cursor) pen.strokeRect(cursor[1] * cell, cursor[0] * cell, cell, cell);

  const what = "query tokens down, key tokens across; arrow keys read its cells";
  canvas.setAttribute("aria-label", `Map of layer ${layer}, head ${head}: ${what}`);
  $("map-hint").textContent =
    block === 1
      ? "Row: the token that looks. Column: the token looked at."
      : `A cell holds ${block} \u00d7 ${block} tokens: the share of their weight that its query tokens give ` +
        "to its key tokens.";
  const ends = make("div", { class: "ends" }, ...[0, top / 4, top].map((value) => span("", number(value))));
  $("map-legend").replaceChildren(rampBar(), ends);
  drawReadout();
}

function drawReadout() {
  const { block, side } = heads[state.at];
  if (!cursor) return $("map-readout").replaceChildren();
  const [query, key] = cursor;
  const value = mapOf(state.at)[query * side + key];
  const found = make("b", {}, Number.isNaN(value) ? "sees no token" : weightWords(value));
  const words = ["query ", ...range(query, block), " \u2192 key ", ...range(key, block), ": ", found];
  return $("map-readout").replaceChildren(...words);
}

function range(cell, block) {
  const start = cell * block;
  const end = Math.min(n, start + block) - 1;
  if (start === end) return [`${start} `, spoken(start)];
  return [`${start} to ${end} `, spoken(start), " \u2026 ", spoken(end)];
}

function moveCursor(place) {
  cursor = place;
  drawMap();
}

function mapKey(event) {
  const { block, side } = heads[state.at];
  const [y, x] = cursor ?? [0, 0];
  const goals = {
    ArrowLeft: [y, x - 1],
    ArrowRight: [y, x + 1],
    ArrowUp: [y - 1, x],
    ArrowDown: [y + 1, x],
    Home: [y, 0],
    End: [y, side - 1],
  };
  if (event.key === "Enter") show({ token: y * block });
  else if (event.key in goals) moveCursor(goals[event.key].map((i) => Math.min(side - 1, Math.max(0, i))));
  else return;
  event.preventDefault();
}

function buildMap() {
  for (const last of document.querySelectorAll(".map-frame .last")) last.textContent = n > 1 ? n - 1 : "";
  canvas.addEventListener("mousemove", (event) => {
    const box = canvas.getBoundingClientRect();
    const { side } = heads[state.at];
    const cell = (part) => Math.min(side - 1, Math.max(0, Math.floor(part * side)));
    const place = [(event.clientY - box.top) / box.height, (event.clientX - box.left) / box.width];
    moveCursor(place.map(cell));
  });
  canvas.addEventListener("mouseleave", () => moveCursor(null));
  canvas.addEventListener("blur", () => moveCursor(null));
  canvas.addEventListener("focus", () => {
    const query = Math.floor((state.token ?? 0) / heads[state.at].block);
    if (canvas.matches(":focus-visible")) moveCursor([query, 0]);
  });
  canvas.addEventListener("click", () => cursor && toggleToken(cursor[0] * heads[state.at].block));
  canvas.addEventListener("keydown", mapKey);
  const measure = () => {
    room = Math.max(Math.min(canvas.parentElement.clientWidth - 22, 416), 96);
  };
  measure();
  new ResizeObserver(() => {
    measure();
    drawMap();
  }).observe(canvas.parentElement);
}
