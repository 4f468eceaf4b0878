// First part of the book's script: what is computed. No page, no state; the same numbers as headwise gives in Python.

"use strict";

const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);
const transpose = (a) => a[0].map((_, j) => a.map((row) => row[j]));
const product = (a, b) => {
  const columns = transpose(b);
  return a.map((row) => columns.map((column) => dot(row, column)));
};
const zip = (a, b, act) => a.map((row, i) => row.map((x, j) => act(x, b[i][j])));
const plus = (a, b) => zip(a, b, (x, y) => x + y);
const mix = (a, b, t) => zip(a, b, (x, y) => (1 - t) * x + t * y);
const largest = (a) => Math.max(0, ...a.flat(Infinity).map(Math.abs));
const difference = (a, b) => largest(zip(a, b, (x, y) => x - y));
const permuted = (a, order) => order.map((i) => a[i]);

// Shares of 1 over the keys that are seen; all 0 where none is.
function softmax(scores, seen = scores.map(() => true)) {
  const top = Math.max(...scores.filter((_, j) => seen[j]));
  const powers = scores.map((score, j) => (seen[j] ? Math.exp(score - top) : 0));
  const total = powers.reduce((sum, x) => sum + x, 0);
  return total === 0 ? powers : powers.map((x) => x / total);
}

function entropy(weights) {
  return weights.reduce((sum, w) => (w > 0 ? sum - w * Math.log(w) : sum), 0);
}

// One head: q (n_q, d_k), k (n_k, d_k), v (n_k, d_v). mask[i][j] true = seen. scale null = 1/sqrt(d_k).
function attend(q, k, v, { mask = null, causal = false, offset = 0, scale = null } = {}) {
  const factor = scale ?? 1 / Math.sqrt(q[0].length);
  const scores = product(q, transpose(k));
  const scaled = scores.map((row) => row.map((score) => score * factor));
  const seen = scores.map((row, i) =>
    row.map((_, j) => (mask === null || mask[i][j]) && (!causal || j <= i + offset)),
  );
  const weights = scaled.map((row, i) => softmax(row, seen[i]));
  return { scores, scaled, seen, weights, output: product(weights, v) };
}

// (n, h * d) -> h arrays (n, d), and back.
function split(a, h) {
  const d = a[0].length / h;
  return Array.from({ length: h }, (_, i) => a.map((row) => row.slice(i * d, (i + 1) * d)));
}
const concatenate = (heads) => heads[0].map((_, i) => heads.flatMap((head) => head[i]));

// A whole block; w holds w_q, w_k, w_v and w_o (left out: the concatenation is the output).
function multiHead(x, w, h, options = {}) {
  const [q, k, v] = [w.w_q, w.w_k, w.w_v].map((weight) => split(product(x, weight), h));
  const heads = q.map((_, i) => attend(q[i], k[i], v[i], options));
  const joined = concatenate(heads.map((head) => head.output));
  return { heads, joined, output: w.w_o ? product(joined, w.w_o) : joined };
}

// Four ways from head outputs to one array; only the first two are the same.
function fourWays(heads, wO) {
  const d = heads[0][0].length;
  const rows = (i) => wO.slice(i * d, (i + 1) * d);
  return {
    concatenated: product(concatenate(heads), wO),
    projected: heads.map((head, i) => product(head, rows(i))).reduce(plus),
    summed: product(heads.reduce(plus), rows(0)),
    shared: heads.map((head) => product(head, rows(0))).reduce(plus),
  };
}

// The part of their weights that two heads share, averaged over the queries: 1 for the same map.
function overlap(a, b) {
  const apart = a.map((row, i) => row.reduce((sum, x, j) => sum + Math.abs(x - b[i][j]), 0) / 2);
  return 1 - apart.reduce((sum, x) => sum + x, 0) / apart.length;
}

// The keys that are some query's highest score, in order.
function favourites(scores) {
  const found = new Set(scores.map((row) => row.indexOf(Math.max(...row))));
  return [...found].sort((a, b) => a - b);
}

// How far an output row lies outside the range of the values that are seen, per channel; 0 inside.
function outside(values, seen, output) {
  const rows = values.filter((_, j) => seen[j]);
  if (!rows.length) return largest([output]);
  const beyond = output.map((x, c) => {
    const column = rows.map((row) => row[c]);
    return Math.max(Math.min(...column) - x, x - Math.max(...column), 0);
  });
  return Math.max(...beyond);
}

const divides = (h, d) => Number.isInteger(h) && h >= 1 && d % h === 0;
const divisors = (d) => Array.from({ length: d }, (_, i) => i + 1).filter((h) => d % h === 0);

// The nearest numbers of heads that divide d: the largest not above h, the smallest above it.
function nearest(h, d) {
  const all = divisors(d);
  const below = all.filter((one) => one <= h);
  const above = all.filter((one) => one > h);
  return [...below.slice(-1), ...above.slice(0, 1)];
}

// Sizes and costs of a layer without biases: n queries over m keys. `exponential`: multiply-adds that one costs.
function counts(d, h, n, m, exponential) {
  const dk = d / h;
  const projections = 2 * d * h * dk * (2 * n + 2 * m);
  const core = 2 * 2 * h * n * m * dk;
  const exponentials = h * n * m;
  const work = exponential * exponentials;
  return {
    d_k: dk,
    perHead: d * dk,
    parameters: 4 * d * h * dk,
    projections,
    core,
    matmul: projections + core,
    exponentials,
    share: work / (work + core / 2),
  };
}

// A number as headwise writes it: six decimals, more where only rounding would make it whole.
function shown(value) {
  if (value === -Infinity) return "\u2212\u221e";
  if (!Number.isFinite(value)) return value > 0 ? "\u221e" : "NaN";
  const whole = Math.round(value);
  const near = whole === 0 ? value === 0 : Math.abs(value - whole) <= 4e-15 * Math.max(1, Math.abs(value));
  if (near) return String(whole === 0 ? 0 : whole).replace("-", "\u2212");
  const size = Math.abs(value);
  let text = value.toFixed(6);
  if (size < 1e-4 || size >= 1e7) {
    text = value
      .toExponential(4)
      .replace(/\.?0+e/, "e")
      .replace(/e([+-])(\d)$/, "e$10$2");
  } else if (Number.isInteger(Number(text))) {
    for (let digits = 8; digits < 18; digits++) {
      text = value.toPrecision(digits);
      if (!Number.isInteger(Number(text))) {
        text = digits < 14 ? value.toPrecision(digits + 2) : String(value);
        break;
      }
    }
    text = text.replace(/0+$/, "");
  } else {
    text = text.replace(/0+$/, "");
  }
  return text.replace("-", "\u2212").replace("e\u2212", "e-");
}

const grouped = (value) => String(Math.round(value)).replace(/\B(?=(\d{3})+$)/g, ",");
const rounded = (value, digits) => value.toFixed(digits).replace("-", "\u2212");
