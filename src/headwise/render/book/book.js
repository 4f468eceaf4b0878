// Last part of the book's script: the labs in their places, the self-test, the theme, and the start.

function place(root, lab) {
  const again = () => {
    place(root, lab);
    root.querySelector(".reset").focus();
  };
  root.replaceChildren(make("h3", {}, "Try it"), reset(again));
  labs[lab.kind](root, lab);
}
for (const root of document.querySelectorAll("[data-lab]")) place(root, book.labs[root.dataset.lab]);

// ---------------------------------------------------------------- progress, kept in this browser if it lets us

const PLACE = "headwise.learn";

function recall() {
  try {
    const read = JSON.parse(localStorage.getItem(PLACE));
    const known =
      read?.version === 1 && typeof read.known === "object" && read.known !== null ? read.known : {};
    return new Map(
      book.cards
        .filter((key) => Object.hasOwn(known, key) && typeof known[key] === "boolean")
        .map((key) => [key, known[key]]),
    );
  } catch {
    return new Map(); // no storage, or not ours
  }
}

function remember() {
  try {
    localStorage.setItem(PLACE, JSON.stringify({ version: 1, known: Object.fromEntries(progress) }));
    return true;
  } catch {
    return false;
  }
}

const progress = recall();
const test = { kind: "", at: null, open: false, remembers: true };
const kindOf = (key) => book.kinds[key];
const deck = () => book.cards.filter((key) => test.kind === "" || kindOf(key) === test.kind);

// The next card after this one that is not known yet, round and round; null when all are.
function next() {
  const cards = deck();
  const from = cards.indexOf(test.at) + 1;
  const order = [...cards.slice(from), ...cards.slice(0, from)];
  return order.find((key) => progress.get(key) !== true) ?? null;
}

function part(key, name) {
  const copied = document.querySelector(`#q-${key} .${name}`).cloneNode(true);
  for (const node of [copied, ...copied.querySelectorAll("[id]")]) node.removeAttribute("id");
  return copied;
}

function drawCard() {
  const cards = deck();
  const known = cards.filter((key) => progress.get(key) === true).length;
  $("flash-count").textContent = `${known} of ${cards.length} known`;
  $("flash-bar").replaceChildren(bar(known / cards.length));
  $("flash-memory").hidden = test.remembers;
  $("flash-forget").disabled = progress.size === 0;
  const done = test.at === null;
  $("flash-kind").textContent = done ? "" : kindOf(test.at);
  $("flash-ask").replaceChildren(
    done
      ? "All of these are known. Start over, or choose another kind."
      : make("div", {}, ...part(test.at, "ask").childNodes),
  );
  $("flash-reply").replaceChildren(...(test.open && !done ? [part(test.at, "reply")] : []));
  $("flash-show").hidden = done || test.open;
  $("flash-knew").hidden = $("flash-not").hidden = done || !test.open;
  $("flash-skip").hidden = done || test.open;
}

function turn(change) {
  Object.assign(test, change);
  drawCard();
}

function judge(knew) {
  progress.set(test.at, knew);
  test.remembers = remember();
  turn({ at: next(), open: false });
  if (test.at !== null) $("flash-show").focus();
}

$("flash-show").addEventListener("click", () => {
  turn({ open: true });
  $("flash-knew").focus();
});
$("flash-skip").addEventListener("click", () => turn({ at: next(), open: false }));
$("flash-knew").addEventListener("click", () => judge(true));
$("flash-not").addEventListener("click", () => judge(false));
$("flash-forget").addEventListener("click", () => {
  progress.clear();
  test.remembers = remember();
  turn({ at: null });
  turn({ at: next(), open: false });
});
$("flash-choose").addEventListener("change", (event) => {
  test.kind = event.target.value;
  turn({ at: null });
  turn({ at: next(), open: false });
});
turn({ at: next() });

// ---------------------------------------------------------------- the page around it

$("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme
    ? root.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
});

// On a narrow window the contents close after a choice.
$("contents").addEventListener("click", (event) => {
  if (event.target.closest("a") && matchMedia("(max-width: 60rem)").matches) $("contents").open = false;
});
$("contents").open = !matchMedia("(max-width: 60rem)").matches;
