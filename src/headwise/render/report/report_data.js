// First part of the page's script: the data, and how it is decoded, worded and coloured.
// Text reaches the document through textContent only; nothing is fetched.
"use strict";

const report = JSON.parse(document.getElementById("report").textContent);
const { tokens, scores, labels, heads, values, encoding } = report;
const n = tokens.length;
const special = new Set(report.special);
const scoreOf = new Map(scores.map((score) => [score.key, score]));
const labelOf = new Map(labels.map((label) => [label.key, label]));
const layerNumbers = ascending(heads.map((head) => head.layer));
const headNumbers = ascending(heads.map((head) => head.head));
const indexOf = new Map(heads.map((head, at) => [`${head.layer}.${head.head}`, at]));

function ascending(numbers) {
  return [...new Set(numbers)].sort((a, b) => a - b);
}

// ---------------------------------------------------------------- numbers

function integers(text, size) {
  // base64 of little-endian integers of `size` bytes
  const raw = atob(text);
  const numbers = new Array(raw.length / size);
  for (let i = 0; i < numbers.length; i++) {
    let number = 0;
    for (let j = size - 1; j >= 0; j--) number = number * 256 + raw.charCodeAt(size * i + j);
    numbers[i] = number;
  }
  return numbers;
}

function weights(text) {
  return integers(text, 2).map((code) => (code === encoding.missing ? NaN : code / encoding.one));
}

// Keeps the last answer: most draws ask for the same head again.
function kept(read) {
  let last = -1;
  let answer;
  return (at) => {
    if (at !== last) [last, answer] = [at, read(at)];
    return answer;
  };
}

const mapOf = kept((at) => weights(heads[at].map));

const rowsOf = kept((at) => {
  const { keys, weights: codes, queries } = heads[at];
  const places = queries && integers(queries, encoding.indexBytes).map((query, place) => [query, place]);
  return {
    keys: integers(keys, encoding.indexBytes),
    weights: weights(codes),
    place: places ? new Map(places) : null, // null: every query has its row
  };
});

function hasRow(at, query) {
  const { place } = rowsOf(at);
  return !place || place.has(query);
}

// The strongest keys of a query as [key, weight], best first; null where the page lacks the row.
function rowOf(at, query) {
  if (!hasRow(at, query)) return null;
  const rows = rowsOf(at);
  const wide = heads[at].perRow;
  const start = wide * (rows.place ? rows.place.get(query) : query);
  const pairs = [];
  for (let i = start; i < start + wide; i++) {
    if (rows.weights[i] > 0) pairs.push([rows.keys[i], rows.weights[i]]);
  }
  return pairs;
}

// One part ("value", "null" or "share") of a head's score; null where there is none.
function partOf(at, key, part) {
  const column = values[key][part];
  return Array.isArray(column) ? column[at] : column;
}

const valueOf = (at, key) => partOf(at, key, "value");
const nullOf = (at, key) => partOf(at, key, "null");

// ---------------------------------------------------------------- words

const root = document.documentElement;
const $ = (id) => document.getElementById(id);

function make(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "class") node.className = value;
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

const span = (kind, ...children) => make("span", { class: kind }, ...children);
const word = (position) => make("bdi", {}, tokens[position]);

// A token in quotes.
const spoken = (position) => span("token", "\u201c", word(position), "\u201d");

const seen = new Set();
const repeated = new Set();
for (const token of tokens) (seen.has(token) ? repeated : seen).add(token);

// A token in quotes, with its position where the same word stands more than once.
function quoted(position) {
  const token = spoken(position);
  if (repeated.has(tokens[position])) token.append(span("place", position));
  return token;
}

// The same forms as in the terminal view.
function number(value) {
  if (value === null) return "\u2013";
  const size = Math.abs(value);
  if (size >= 0.00995 || size === 0) return value.toFixed(size < 9.995 ? 2 : size < 99.95 ? 1 : 0);
  return size >= 0.0005 ? value.toFixed(3) : "<0.001";
}

function weightWords(value) {
  if (value >= 0.995) return "1";
  return value >= 0.005 ? value.toFixed(2).slice(1) : "<.01";
}

const thousands = (many) => many.toLocaleString("en");
const count = (many, noun) => `${thousands(many)} ${noun}${many === 1 ? "" : "s"}`;
const labelName = (key) => labelOf.get(key)?.name ?? key;

function scoreWords(at, key) {
  const { inner, unit } = scoreOf.get(key);
  return `${inner} ${number(valueOf(at, key))}${unit && ` ${unit}`} (uniform ${number(nullOf(at, key))})`;
}

// ---------------------------------------------------------------- colours

const darkWanted = matchMedia("(prefers-color-scheme: dark)");
const onPaper = matchMedia("print");
let ramp = []; // the colours of the mode in force, lowest first, as [red, green, blue]
let chosenColour = "";

function dark() {
  if (onPaper.matches) return false;
  return root.dataset.theme ? root.dataset.theme === "dark" : darkWanted.matches;
}

function readColours() {
  const hexes = getComputedStyle(root).getPropertyValue(dark() ? "--ramp-dark" : "--ramp-light");
  const parts = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
  ramp = hexes.trim().split(/\s+/).map(parts);
  chosenColour = getComputedStyle($("map")).color;
}

// The ramp at a share from 0 to 1.
function colour(share) {
  const x = Math.min(Math.max(share, 0), 1) * (ramp.length - 1);
  const low = Math.min(Math.floor(x), ramp.length - 2);
  return ramp[low].map((part, i) => Math.round(part + (x - low) * (ramp[low + 1][i] - part)));
}

const rgb = (parts) => `rgb(${parts.join(" ")})`;
const isLight = ([red, green, blue]) => 0.299 * red + 0.587 * green + 0.114 * blue > 115;

function rampBar() {
  const bar = make("div", { class: "bar" });
  bar.style.background = `linear-gradient(90deg, ${ramp.map(rgb).join(", ")})`;
  return bar;
}
