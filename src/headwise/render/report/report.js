// Last part of the page's script: what is chosen, the grid of all heads, and the start.

// ---------------------------------------------------------------- state, kept in the address

const telling = report.telling.map((entry) => ({
  ...entry,
  at: indexOf.get(`${entry.layer}.${entry.head}`),
}));
const firstHead = telling.length ? telling[0].at : 0;
const firstScore = scoreOf.has("max_weight") ? "max_weight" : scores[0].key;
const state = { at: firstHead, token: null, score: firstScore };

function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  const token = /^\d+$/.test(given.get("token") ?? "") ? Number(given.get("token")) : n;
  state.at = indexOf.get(`${given.get("layer")}.${given.get("head")}`) ?? firstHead;
  state.token = token < n ? token : null;
  state.score = scoreOf.has(given.get("score")) ? given.get("score") : firstScore;
}

function writeAddress() {
  const { layer, head } = heads[state.at];
  let address = `#layer=${layer}&head=${head}`;
  if (state.token !== null) address += `&token=${state.token}`;
  if (state.score !== firstScore) address += `&score=${encodeURIComponent(state.score)}`;
  if (location.hash === address) return;
  try {
    history.replaceState(null, "", address);
  } catch {
    // Inside a notebook's frame the address cannot be written; the page works without.
  }
}

function show(change) {
  const before = { ...state };
  Object.assign(state, change);
  writeAddress();
  draw(before);
}

function draw(before = {}) {
  const changed = (...names) => names.some((name) => before[name] !== state[name]);
  if (changed("score")) drawGrid();
  if (changed("at")) drawChoice();
  if (changed("at")) drawTitle();
  if (changed("at")) drawPanels();
  if (changed("at", "score")) drawScores();
  if (changed("at", "score")) drawReading();
  if (changed("at", "token")) drawText();
  if (changed("at", "token")) drawLines();
  if (changed("at", "token")) drawMap();
}

// ---------------------------------------------------------------- the grid

const LARGE = 20; // layers or heads above which cells are too small for letters and for every number
const grid = $("grid");
const cells = new Array(heads.length);
const oneColumn = matchMedia("(max-width: 68rem)");
const calm = matchMedia("(prefers-reduced-motion: reduce)");

function buildGrid() {
  const side = Math.floor(460 / layerNumbers.length);
  grid.style.setProperty("--heads", headNumbers.length);
  grid.style.setProperty("--cell", `${Math.max(12, Math.min(34, side))}px`);
  grid.classList.toggle("small", Math.max(headNumbers.length, layerNumbers.length) > LARGE);
  const corner = make("div", { role: "columnheader" }, span("hidden", "layer"));
  const names = headNumbers.map((head, i) => numberCell("column", "head", head, i, headNumbers.length));
  grid.append(make("div", { role: "row" }, corner, ...names));
  layerNumbers.forEach((layer, i) => {
    const name = numberCell("row", "layer", layer, i, layerNumbers.length);
    grid.append(make("div", { role: "row" }, name, ...headNumbers.map((head) => gridCell(layer, head))));
  });

  const atOf = (event) => event.target.closest("[data-at]")?.dataset.at;
  const onCell = (kind, act) =>
    grid.addEventListener(kind, (event) => atOf(event) && act(Number(atOf(event)), event));
  onCell("click", choose);
  onCell("keydown", gridKey);
  onCell("mouseover", drawReading);
  onCell("focusin", drawReading);
  grid.addEventListener("mouseleave", () => drawReading());
}

function numberCell(axis, noun, number, i, many) {
  const shown = many <= LARGE || i % 4 === 0 ? number : "";
  return make("div", { role: `${axis}header`, "aria-label": `${noun} ${number}` }, shown);
}

function gridCell(layer, head) {
  const at = indexOf.get(`${layer}.${head}`);
  if (at === undefined) return make("div", { role: "presentation" });
  const letter = heads[at].label === "unlabelled" ? "" : (labelOf.get(heads[at].label)?.letter ?? "");
  const place = { "data-at": at, "data-layer": layer, "data-head": head };
  cells[at] = make("div", { role: "gridcell", tabindex: -1, ...place }, letter);
  return cells[at];
}

function choose(at, far = oneColumn.matches) {
  show({ at });
  if (far) $("head-panel").scrollIntoView({ behavior: calm.matches ? "auto" : "smooth" });
}

function gridKey(at, event) {
  const steps = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
  const { layer, head } = heads[at];
  const row = headNumbers.map((number) => indexOf.get(`${layer}.${number}`)).filter((i) => i !== undefined);
  if (event.key === "Enter" || event.key === " ") choose(at);
  else if (event.key === "Home") focusCell(row[0]);
  else if (event.key === "End") focusCell(row[row.length - 1]);
  else if (event.key in steps) {
    const [down, right] = steps[event.key];
    const nextLayer = layerNumbers[layerNumbers.indexOf(layer) + down];
    const nextHead = headNumbers[headNumbers.indexOf(head) + right];
    focusCell(indexOf.get(`${nextLayer}.${nextHead}`) ?? at);
  } else return;
  event.preventDefault();
}

function focusCell(at) {
  for (const cell of cells) cell.tabIndex = -1;
  cells[at].tabIndex = 0;
  cells[at].focus();
}

function cellWords(at) {
  const { layer, head, label } = heads[at];
  return `Layer ${layer}, head ${head}: ${scoreWords(at, state.score)}, ${labelName(label)}`;
}

function drawReading(at = state.at) {
  $("grid-readout").textContent = cellWords(at);
}

function drawChoice() {
  cells.forEach((cell, at) => {
    cell.setAttribute("aria-selected", at === state.at);
    cell.tabIndex = at === state.at ? 0 : -1;
  });
  for (const button of $("telling").querySelectorAll("button")) {
    button.setAttribute("aria-current", Number(button.dataset.at) === state.at);
  }
}

function drawGrid() {
  const { unit, meaning, range: reach, higher, null: uniform } = scoreOf.get(state.score);
  const known = (column) => [column].flat().filter((value) => value !== null);
  const nulls = known(values[state.score].null);
  const top = Math.max(0, ...known(values[state.score].value), ...nulls) || 1;
  cells.forEach((cell, at) => {
    const value = valueOf(at, state.score);
    const parts = colour((value ?? 0) / top);
    cell.classList.toggle("no-value", value === null);
    cell.style.background = rgb(parts);
    cell.style.color = isLight(parts) ? "#14171b" : "#ffffff";
    cell.setAttribute("aria-label", cellWords(at));
  });
  $("score").value = state.score;
  $("score-meaning").textContent =
    `${meaning} Range ${reach}; higher: ${higher}. Uniform attention would give ${uniform}.`;
  drawLegend(top, unit, nulls);
}

function drawLegend(top, unit, nulls) {
  const bar = rampBar();
  const ends = make("div", { class: "ends" }, span("", "0"), span("", `${number(top)} ${unit}`));
  if (nulls.length) {
    const [low, high] = [Math.min(...nulls), Math.max(...nulls)];
    const uniform = number(low) === number(high) ? number(low) : `${number(low)} to ${number(high)}`;
    bar.appendChild(span("tick")).style.left = `${(50 * (low + high)) / top}%`;
    ends.firstChild.after(span("null-words", `uniform attention: ${uniform}`));
  }
  $("grid-legend").replaceChildren(bar, ends);
}

// ---------------------------------------------------------------- words that never change

function buildWords() {
  const { model } = report;
  const items = (sentences) => sentences.map((sentence) => make("li", {}, sentence));
  $("model-name").textContent = model.name;
  $("subject").textContent = report.subject;
  $("self-test").textContent = report.selfTest;
  $("caveat").textContent = report.caveat;
  $("left-out").hidden = !report.leftOut.length;
  $("left-out").append(...items(report.leftOut));
  $("notes").append(...items(report.notes));
  $("together").hidden = !report.panels.length;
  $("panels").append(...report.panels.map(panel));
  const source = model.source ? ` (${model.source}, ${model.architecture})` : "";
  $("origin").textContent = `Made by headwise ${report.headwise} from ${model.name}${source}.`;

  const line = (name, ...rest) =>
    make("tr", {}, make("th", { scope: "row" }, name), ...rest.map((cell) => make("td", {}, cell)));
  const explained = ({ meaning, over, source }) =>
    [meaning, over && over !== "all queries" && `Over ${over}.`, source && `Source: ${source}.`]
      .filter(Boolean)
      .join(" ");
  $("score-table").append(
    ...scores.map((score) => line(score.name, explained(score), score.range, score.null)),
  );
  $("label-table").append(
    ...labels.map((label) => line(`${label.letter} ${label.name}`, label.meaning, label.rule)),
  );
  $("score").append(...scores.map((score) => make("option", { value: score.key }, score.name)));
  for (const { key, letter, name, meaning } of labels) {
    const many = heads.filter((head) => head.label === key).length;
    if (!many) continue;
    $("label-legend").append(
      make("li", { title: meaning }, make("b", {}, letter), ` ${name} \u00d7 ${thousands(many)}`),
    );
  }
  $("telling").append(...telling.map((entry) => make("li", {}, tellingButton(entry))));
}

function tellingButton({ at, layer, head, score }) {
  const where = make(
    "span",
    { class: "where", "aria-label": `layer ${layer} head ${head}` },
    `${layer} \u00b7 ${head}`,
  );
  const parts = [where, labelName(heads[at].label), span("evidence", scoreWords(at, score))];
  if (heads[at].strongest) {
    const [query, key, weight] = heads[at].strongest;
    parts.push(span("evidence", quoted(query), " \u2192 ", quoted(key), ` ${weightWords(weight)}`));
  }
  return make("button", { type: "button", "data-at": at, onclick: () => choose(at) }, ...parts);
}

// The left column ends inside the window, wherever the page is scrolled to.
function fitOverview() {
  const overview = document.querySelector(".overview");
  const top = Math.max(overview.parentElement.getBoundingClientRect().top, 24);
  overview.style.setProperty("--overview-room", `${Math.max(innerHeight - top - 16, 480)}px`);
}

// ---------------------------------------------------------------- the start

function recolour() {
  readColours();
  drawGrid();
  drawMap();
}

function buildControls() {
  const dialog = $("keys-dialog");
  $("score").addEventListener("change", (event) => show({ score: event.target.value }));
  $("help").addEventListener("click", () => dialog.showModal());
  $("theme").addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    recolour();
  });
  for (const query of [darkWanted, onPaper]) query.addEventListener("change", recolour);
  document.addEventListener("keydown", (event) => {
    if (dialog.open || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "?") dialog.showModal();
    else if (event.key === "Escape" && state.token !== null) show({ token: null });
  });
  for (const kind of ["scroll", "resize"]) addEventListener(kind, fitOverview, { passive: true });
  addEventListener("hashchange", () => {
    readAddress();
    writeAddress();
    draw();
  });
}

readColours();
readAddress();
buildWords();
buildGrid();
buildText();
buildLines();
buildMap();
buildControls();
fitOverview();
draw();
