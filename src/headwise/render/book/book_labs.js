// Third part of the book's script: what the reader can move. Each lab is drawn whole on "Reset" and keeps its fields
// while numbers change, so that the focus stays where it was.

const labs = {};

// One query over its keys.
labs.row = (root, start) => {
  const state = copy(start);
  state.seen = start.scores.map(() => true);
  state.divide = "root";
  const [min, max] = start.range ?? [-10, 10];
  const rows = start.scores.map((_, j) => ({
    weight: make("td", { class: "number" }),
    bar: make("td", { class: "wide" }),
    scaled: make("td", { class: "number" }),
  }));
  const result = make("div");
  const wide = start.d_k !== undefined;

  const draw = () => {
    const factor =
      !wide || state.divide === "none"
        ? 1
        : state.divide === "root"
          ? 1 / Math.sqrt(state.d_k)
          : 1 / state.d_k;
    const scaled = state.scores.map((score) => score * factor);
    const weights = softmax(scaled, state.seen);
    rows.forEach((row, j) => {
      row.weight.textContent = shown(weights[j]);
      row.bar.replaceChildren(bar(weights[j]));
      row.scaled.textContent = state.seen[j] ? shown(scaled[j]) : shown(-Infinity);
    });
    const sum = weights.reduce((total, w) => total + w, 0);
    const empty = !state.seen.includes(true);
    const list = [
      [
        empty ? "no key is seen: every weight is 0" : "weights sum to 1",
        empty ? sum === 0 : Math.abs(sum - 1) < 1e-12,
        shown(sum),
      ],
      ["no weight is negative", Math.min(...weights) >= 0, `smallest ${shown(Math.min(...weights))}`],
    ];
    const lines = [];
    if (state.values) {
      const output = product([weights], state.values)[0];
      const reach = state.values.filter((_, j) => state.seen[j]).map((row) => row[0]);
      const far = outside(state.values, state.seen, output);
      lines.push(["output", output.map(shown).join(", ")]);
      list.push([
        empty ? "its output is 0" : "output inside the range of the values seen",
        far <= 1e-12 * Math.max(1, largest(state.values)),
        empty ? shown(output[0]) : `${shown(Math.min(...reach))} \u2026 ${shown(Math.max(...reach))}`,
      ]);
    }
    if (!empty) lines.push(["entropy, in nats", shown(entropy(weights))]);
    result.replaceChildren(pairs(lines), claims(list));
  };

  const body = start.scores.map((_, j) => {
    const name = start.keys[j];
    const score = slider(
      `score of ${name}`,
      state.scores[j],
      (read) => {
        state.scores[j] = read;
        draw();
      },
      { min, max, step: 0.1 },
    );
    const value =
      start.values && start.values[j].length === 1
        ? make(
            "td",
            {},
            field(`value of ${name}`, state.values[j][0], (read) => {
              state.values[j][0] = read;
              draw();
            }),
          )
        : null;
    const seen = tick(
      "",
      true,
      (on) => {
        state.seen[j] = on;
        draw();
      },
      `${name} is seen`,
    );
    return make(
      "tr",
      {},
      make("th", { scope: "row" }, name),
      make("td", {}, make("div", { class: "moves" }, ...score)),
      wide ? rows[j].scaled : null,
      make("td", {}, seen),
      rows[j].bar,
      rows[j].weight,
      value,
    );
  });
  const head = ["key", "score", wide ? "divided" : null, "seen", "", "weight", start.values ? "value" : null];
  const table = make(
    "table",
    { class: "keys" },
    make(
      "thead",
      {},
      make(
        "tr",
        {},
        ...head
          .filter((name) => name !== null)
          .map((name) => make("th", { scope: "col", class: name ? "" : "wide" }, name)),
      ),
    ),
    make("tbody", {}, ...body),
  );
  root.append(make("div", { class: "scroll" }, table));
  if (wide) {
    const width = slider(
      "d_k",
      state.d_k,
      (read) => {
        state.d_k = Math.max(1, Math.round(read));
        draw();
      },
      { min: 1, max: 256, step: 1 },
    );
    const ways = [
      ["root", "\u221ad\u2096"],
      ["none", "nothing"],
      ["width", "d\u2096"],
    ];
    root.append(
      control("d_k", ...width),
      control(
        "divide by",
        choose("divide by", ways, state.divide, (read) => {
          state.divide = read;
          draw();
        }),
      ),
    );
  }
  root.append(result);
  draw();
};

// Queries, keys and values of one head, all typed.
labs.grid = (root, start) => {
  const state = copy(start);
  state.causal = start.causal ?? false;
  state.root = true;
  state.mask = start.query.map(() => start.key.map(() => true));
  const result = make("div");
  const places = new Map();

  const draw = () => {
    const { query, key, value, mask, causal } = state;
    const found = attend(query, key, value, { mask, causal, scale: state.root ? null : 1 });
    const at = document.activeElement?.dataset?.cell;
    places.clear();
    const toggle = (i, j) => {
      const open = found.seen[i][j];
      const fixed = causal && j > i;
      const node = make(
        "button",
        {
          type: "button",
          class: "cell",
          "data-cell": `${i}.${j}`,
          "aria-pressed": String(open),
          disabled: fixed,
          "aria-label": `query ${i}, key ${j}: ${open ? shown(found.weights[i][j]) : "hidden"}`,
          onclick: () => {
            state.mask[i][j] = !state.mask[i][j];
            draw();
          },
        },
        open ? shown(found.weights[i][j]) : "hidden",
      );
      places.set(`${i}.${j}`, node);
      return node;
    };
    const sums = found.weights.map((row) => row.reduce((total, w) => total + w, 0));
    const empty = found.seen.map((row) => !row.includes(true));
    const far = Math.max(...found.output.map((row, i) => outside(value, found.seen[i], row)));
    const leak = Math.max(0, ...found.weights.flatMap((row, i) => row.filter((_, j) => !found.seen[i][j])));
    result.replaceChildren(
      make(
        "div",
        { class: "matrices" },
        matrix("scores Q K\u1d40", found.scores),
        matrix(state.root ? "divided by \u221ad_k" : "not divided", found.scaled),
        matrix("weights", found.weights, { shades: found.weights, cell: toggle }),
        matrix("output", found.output),
      ),
      claims([
        [
          "every row of weights sums to 1" + (empty.includes(true) ? " (to 0 where no key is seen)" : ""),
          sums.every((sum, i) => Math.abs(sum - (empty[i] ? 0 : 1)) < 1e-12),
          sums.map(shown).join(", "),
        ],
        ["hidden keys have weight exactly 0", leak === 0, shown(leak)],
        [
          "every output inside the range of the values seen",
          far <= 1e-12 * Math.max(1, largest(value)),
          far === 0 ? "" : shown(far),
        ],
      ]),
    );
    if (at) places.get(at)?.focus();
  };

  const change = (name) => (i, j, read) => {
    state[name][i][j] = read;
    draw();
  };
  root.append(
    make(
      "div",
      { class: "matrices inputs" },
      typed("Q", state.query, change("query")),
      typed("K", state.key, change("key")),
      typed("V", state.value, change("value")),
    ),
    make(
      "div",
      { class: "controls" },
      tick("causal", state.causal, (on) => {
        state.causal = on;
        draw();
      }),
      tick("divide by \u221ad_k", state.root, (on) => {
        state.root = on;
        draw();
      }),
    ),
    make("p", { class: "quiet" }, "A click on a weight hides or shows that key for that query."),
    result,
  );
  draw();
};

// One token through selecting projections: slices, concatenation, W_O.
labs.split = (root, start) => {
  const state = { x: copy(start.x), h: 2, way: "same" };
  const width = state.x.length;
  const unit = (order) => order.map((from) => state.x.map((_, j) => (j === from ? 1 : 0)));
  const ways = {
    same: ["the unit matrix", unit(state.x.map((_, i) => i))],
    turned: ["turns the order round", unit(state.x.map((_, i) => width - 1 - i))],
    mean: ["the mean of all, everywhere", state.x.map(() => state.x.map(() => 1 / width))],
  };
  const result = make("div");
  const draw = () => {
    const eye = ways.same[1];
    const found = multiHead([state.x], { w_q: eye, w_k: eye, w_v: eye, w_o: ways[state.way][1] }, state.h);
    const chip = (row, kind, name) =>
      make(
        "div",
        { class: `chip ${kind}` },
        make("span", { class: "quiet" }, words(name)),
        make("b", {}, `(${row.map(shown).join(", ")})`),
      );
    result.replaceChildren(
      make(
        "div",
        { class: "flow" },
        ...found.heads.map((head, i) => chip(head.output[0], `head${i % 4}`, `head ${i}`)),
      ),
      make(
        "div",
        { class: "flow" },
        chip(found.joined[0], "", "concatenated"),
        chip(found.output[0], "", "after W_O"),
      ),
      claims([
        [
          "h\u00b7d_v = d_model",
          state.h * (width / state.h) === width,
          `${state.h} \u00b7 ${width / state.h} = ${width}`,
        ],
        ["the only weight of every head is 1", found.heads.every((head) => head.weights[0][0] === 1), ""],
        ["the slices come back in order", difference(found.joined, [state.x]) === 0, ""],
      ]),
    );
  };
  const heads = steps("h", divisors(width), state.h, (read) => {
    state.h = read;
    draw();
  });
  root.append(
    control(
      "x",
      make(
        "span",
        { class: "fields" },
        ...state.x.map((value, i) =>
          field(`x, column ${i}`, value, (read) => {
            state.x[i] = read;
            draw();
          }),
        ),
      ),
    ),
    control("h", heads.range, heads.said),
    control(
      "W_O",
      choose(
        "W_O",
        Object.entries(ways).map(([key, [text]]) => [key, text]),
        state.way,
        (read) => {
          state.way = read;
          draw();
        },
      ),
    ),
    result,
  );
  draw();
};

// Sizes of a layer: shapes, parameters, cost.
labs.shapes = (root, start) => {
  const state = copy(start);
  const widths = [8, 16, 64, 128, 256, 512, 768, 1024, 2048, 4096];
  const lengths = [1, 2, 3, 4, 5, 6, 8, 10, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768];
  const result = make("div");
  const said = make("div", { class: "refused", role: "status" });
  const one = start.n === start.m;

  const draw = () => {
    const { d_model: d, h, n, m } = state;
    const found = counts(d, h, n, m, state.exponential);
    const by = (a, b) => `${grouped(a)} \u00d7 ${grouped(b)}`;
    const parts = [];
    if (state.show.includes("shapes")) {
      parts.push(
        pairs([
          ["d_k = d_v", grouped(found.d_k)],
          ["slice of W_Q for one head", by(d, found.d_k)],
          ["Q_i", by(n, found.d_k)],
          ["K_i, V_i", by(m, found.d_k)],
          ["scores and weights of a head", by(n, m)],
          ["output of a head", by(n, found.d_k)],
          ["concatenated", by(n, h * found.d_k)],
          ["after W_O", by(n, d)],
        ]),
        claims([
          [
            "h\u00b7d_v = d_model",
            h * found.d_k === d,
            `${grouped(h)} \u00b7 ${grouped(found.d_k)} = ${grouped(d)}`,
          ],
        ]),
      );
    }
    if (state.show.includes("parameters")) {
      const slices = 3 * h * found.perHead;
      parts.push(
        pairs([
          ["W_Q of one head, d_model\u00b7d_k", grouped(found.perHead)],
          ["W_Q, W_K and W_V of all heads", grouped(slices)],
          ["W_O", grouped(d * d)],
          ["together", grouped(found.parameters)],
        ]),
        claims([
          [
            "together 4\u00b7d_model\u00b2, whatever h is",
            found.parameters === 4 * d * d && slices + d * d === found.parameters,
            grouped(4 * d * d),
          ],
        ]),
      );
    }
    if (state.show.includes("cost")) {
      const single = counts(d, 1, n, m, state.exponential);
      parts.push(
        pairs([
          ["FLOPs of scores and values", grouped(found.core)],
          ["FLOPs of all matrix products", grouped(found.matmul)],
          ["exponentials, h\u00b7n\u00b2", grouped(found.exponentials)],
          ["softmax, share of the vector work", `${(100 * found.share).toFixed(1)} %`, bar(found.share)],
        ]),
        claims([
          ["matrix products as with one head", found.matmul === single.matmul, grouped(single.matmul)],
          [
            "exponentials h times those of one head",
            found.exponentials === h * single.exponentials,
            `${grouped(h)} \u00b7 ${grouped(single.exponentials)}`,
          ],
        ]),
        make(
          "p",
          { class: "quiet" },
          `A multiply-add is 2 FLOPs; an exponential is taken as ${state.exponential} multiply-adds.`,
        ),
      );
    }
    result.replaceChildren(...parts);
  };

  const take = (h) => {
    state.h = h;
    said.replaceChildren();
    number.value = h;
    number.removeAttribute("aria-invalid");
    heads.set(divisors(state.d_model), h);
    draw();
  };
  const offer = (h) => {
    const close = nearest(h, state.d_model);
    said.replaceChildren(
      words(
        `h = ${h} does not divide d_model = ${state.d_model}: the slices would not be whole. Nearest that work: `,
      ),
      ...close.map((one) =>
        make(
          "button",
          { type: "button", class: "plain", onclick: () => take(one) },
          `h = ${one} (d_k = ${state.d_model / one})`,
        ),
      ),
    );
  };
  const number = make("input", {
    type: "number",
    class: "field",
    "aria-label": "h, as a number",
    min: 1,
    step: 1,
    value: state.h,
  });
  number.addEventListener("input", () => {
    const read = number.valueAsNumber;
    number.toggleAttribute("aria-invalid", !divides(read, state.d_model));
    if (divides(read, state.d_model)) take(read);
    else if (Number.isFinite(read)) offer(read);
  });
  const heads = steps("h", divisors(state.d_model), state.h, take);
  heads.said.hidden = true;
  const width = steps("d_model", widths, state.d_model, (read) => {
    state.d_model = read;
    const keep = divides(state.h, read) ? state.h : nearest(state.h, read)[0];
    take(keep);
  });
  const long = (name, text) => {
    const made = steps(text, lengths, state[name], (read) => {
      state[name] = read;
      if (one) state.m = read;
      draw();
    });
    return control(text, made.range, made.said);
  };
  root.append(
    control("d_model", width.range, width.said),
    control("h", heads.range, number),
    said,
    ...(state.show.includes("parameters")
      ? []
      : one
        ? [long("n", "n")]
        : [long("n", "n (queries)"), long("m", "m (keys)")]),
    result,
  );
  draw();
};
