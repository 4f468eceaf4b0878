// Second part of the page's script: the panels, parts that only some reports have, in the words of the terminal.

const said = (at) => report.phrases[at];

function panel([title, measure, sentences, items, tables]) {
  const card = make("div", { class: "card panel" }, make("h3", {}, said(title)));
  if (said(measure)) card.append(make("p", { class: "quiet hint" }, said(measure)));
  card.append(...sentences.map((sentence) => make("p", {}, said(sentence))));
  if (items.length) card.append(make("ul", {}, ...items.map((item) => make("li", {}, said(item)))));
  card.append(...tables.map((found) => panelTable(said(title), ...found)));
  return card;
}

function panelTable(title, columns, inWords, rows) {
  const kind = (i) => (inWords.includes(columns[i]) ? "in-words" : "number");
  const names = columns.map((name, i) => make("th", { scope: "col", class: kind(i) }, said(name)));
  const ranksHeads = said(columns[0]) === "layer" && said(columns[1]) === "head";
  const lines = rows.map((row) => {
    const cells = row.map((cell, i) => make("td", { class: kind(i) }, make("bdi", {}, said(cell))));
    if (ranksHeads) linkHead(cells[1], said(row[0]), said(row[1]));
    return make("tr", {}, ...cells);
  });
  const head = make("thead", {}, make("tr", {}, ...names));
  return make("div", { class: "wide" }, make("table", { "aria-label": title }, head, make("tbody", {}, ...lines)));
}

// The number of a head becomes a button that chooses it and goes up to its panel.
function linkHead(cell, layer, head) {
  const at = indexOf.get(`${layer}.${head}`);
  if (at === undefined) return;
  const go = () => {
    choose(at, true);
    $("head-panel").focus({ preventScroll: true });
  };
  const name = `layer ${layer}, head ${head}`;
  cell.replaceChildren(make("button", { type: "button", "aria-label": name, onclick: go }, head));
}
