// Fourth part of the book's script: labs about what several heads do together.

// Spread of q . k, measured when the book was made, and what three divisors make of it.
labs.spread = (root, start) => {
  const result = make("div");
  const draw = (width) => {
    const spread = start.spread[width - 1];
    const eight = [-1.5, -1, -0.5, 0, 0.5, 1, 1.25, 1.5];
    const ways = [
      ["nothing", 1],
      ["\u221ad_k", Math.sqrt(width)],
      ["d_k", width],
    ];
    const body = ways.map(([name, divisor]) => {
      const top = Math.max(...softmax(eight.map((z) => (z * spread) / divisor)));
      return make(
        "tr",
        {},
        make("th", { scope: "row" }, words(name)),
        make("td", { class: "number" }, shown(spread / divisor)),
        make("td", { class: "wide" }, bar(top)),
        make("td", { class: "number" }, rounded(top, 4)),
      );
    });
    const head = ["divide by", "spread of the scores", "", "largest of eight weights"].map((name) =>
      make("th", { scope: "col" }, name),
    );
    result.replaceChildren(
      make(
        "div",
        { class: "scroll" },
        make(
          "table",
          { class: "keys" },
          make("thead", {}, make("tr", {}, ...head)),
          make("tbody", {}, ...body),
        ),
      ),
      claims([
        [
          "measured spread is \u221ad_k, to 3 %",
          Math.abs(spread / Math.sqrt(width) - 1) < 0.03,
          `${shown(spread)} and ${shown(Math.sqrt(width))}`,
        ],
      ]),
      make("p", { class: "quiet" }, "The eight keys score from \u22121.5 to 1.5 times the spread."),
    );
  };
  const width = slider("d_k", start.d_k, (read) => draw(Math.round(read)), {
    min: 1,
    max: start.spread.length,
    step: 1,
  });
  root.append(control("d_k", ...width), result);
  draw(start.d_k);
};

// Two heads and W_O: four ways to join.
labs.joining = (root, start) => {
  const state = copy(start);
  const result = make("div");
  const names = {
    concatenated: "concatenate, then W_O",
    projected: "own rows of W_O each, then add",
    summed: "add the heads, then the first rows of W_O",
    shared: "the first rows of W_O for all, then add",
  };
  const draw = () => {
    const ways = fourWays(state.heads, state.w_o);
    const away = Object.fromEntries(
      Object.keys(names).map((key) => [key, difference(ways[key], ways.concatenated)]),
    );
    result.replaceChildren(
      make(
        "div",
        { class: "matrices" },
        ...Object.entries(names).map(([key, name]) => matrix(name, ways[key])),
      ),
      pairs([["heads added first, against concatenating: largest difference", shown(away.summed)]]),
      claims([
        [
          "own rows, then added: the same as concatenating",
          away.projected <= 1e-12 * Math.max(1, largest(ways.concatenated)),
          `largest difference ${shown(away.projected)}`,
        ],
        [
          "one shared W_O: the same as adding first",
          difference(ways.shared, ways.summed) <= 1e-12 * Math.max(1, largest(ways.summed)),
          `largest difference ${shown(difference(ways.shared, ways.summed))}`,
        ],
      ]),
    );
  };
  const set = (rows) => (i, j, read) => {
    rows[i][j] = read;
    draw();
  };
  root.append(
    make(
      "div",
      { class: "matrices inputs" },
      ...state.heads.map((head, i) => typed(`head ${i}`, head, set(head))),
      typed("W_O", state.w_o, set(state.w_o)),
    ),
    result,
  );
  draw();
};

// A second head between a copy of the first and its own projections.
labs.diversity = (root, start) => {
  const result = make("div");
  const draw = (t) => {
    const w = Object.fromEntries(
      ["w_q", "w_k", "w_v"].map((name) => {
        const [first, own] = split(start[name], 2);
        return [name, concatenate([first, mix(first, own, t)])];
      }),
    );
    const [one, two] = multiHead(start.x, w, 2).heads;
    const alike = overlap(one.weights, two.weights);
    result.replaceChildren(
      make(
        "div",
        { class: "matrices" },
        ...[one, two].map((head, i) =>
          matrix(`weights of head ${i}`, head.weights, {
            shades: head.weights,
            cell: (a, b, w) => rounded(w, 2),
          }),
        ),
      ),
      pairs([
        ["overlap of the weights", shown(alike), bar(alike)],
        ["largest difference of the outputs", shown(difference(one.output, two.output))],
      ]),
      claims([
        t === 0
          ? [
              "same projections: same weights, same outputs",
              alike === 1 && difference(one.output, two.output) === 0,
              "",
            ]
          : ["the overlap lies between 0 and 1", alike >= 0 && alike <= 1, ""],
      ]),
    );
  };
  const move = slider("how far head 1 has its own projections", 0, draw, { min: 0, max: 1, step: 0.05 });
  root.append(
    control("own projections", ...move),
    make("p", { class: "quiet" }, "0: head 1 copies head 0. 1: it has its own."),
    result,
  );
  draw(0);
};

// The same words in another order.
labs.positions = (root, start) => {
  const first = start.words.map((_, i) => i);
  const state = { order: [...start.order], placed: false };
  const result = make("div");
  const chips = make("div", { class: "flow", role: "group", "aria-label": "order of the words" });
  const placed = (x) => (state.placed ? plus(x, start.encodings) : x);

  const draw = (focus = null) => {
    const before = multiHead(placed(start.x), start, start.heads).output;
    const after = multiHead(placed(permuted(start.x, state.order)), start, start.heads).output;
    const away = difference(after, permuted(before, state.order));
    const arrow = (place, step) =>
      make(
        "button",
        {
          type: "button",
          class: "plain",
          disabled: place + step < 0 || place + step >= first.length,
          "data-move": `${state.order[place]}.${step}`,
          "aria-label": `move ${start.words[state.order[place]]} ${step < 0 ? "earlier" : "later"}`,
          onclick: () => {
            const token = state.order[place];
            [state.order[place], state.order[place + step]] = [state.order[place + step], token];
            draw(`${token}.${step}`);
          },
        },
        step < 0 ? "\u2190" : "\u2192",
      );
    chips.replaceChildren(
      ...state.order.map((token, place) =>
        make("div", { class: "chip" }, arrow(place, -1), make("b", {}, start.words[token]), arrow(place, 1)),
      ),
    );
    const again =
      focus &&
      (chips.querySelector(`[data-move="${focus}"]:not(:disabled)`) ??
        chips.querySelector(`[data-move^="${focus.split(".")[0]}."]:not(:disabled)`));
    again?.focus();
    const moved = state.order.some((token, place) => token !== place);
    result.replaceChildren(
      make(
        "div",
        { class: "matrices" },
        matrix("outputs in the first order", before, { down: start.words, cell: (i, j, v) => rounded(v, 3) }),
        matrix("outputs in this order", after, {
          down: state.order.map((token) => start.words[token]),
          cell: (i, j, v) => rounded(v, 3),
        }),
      ),
      claims([
        state.placed
          ? [
              moved ? "with positions the order changes the outputs" : "the same order",
              moved ? away > 1e-9 : away === 0,
              `largest difference ${shown(away)}`,
            ]
          : [
              "without positions every word keeps its output",
              away < 1e-12,
              `largest difference ${shown(away)}`,
            ],
      ]),
    );
  };
  root.append(
    chips,
    make(
      "div",
      { class: "controls" },
      tick("add positions first", false, (on) => {
        state.placed = on;
        draw();
      }),
      make(
        "button",
        {
          type: "button",
          class: "plain",
          onclick: () => {
            state.order = [...first];
            draw();
          },
        },
        "First order",
      ),
    ),
    result,
  );
  draw();
};

// Which keys the heads of one width can point to.
labs.narrow = (root, start) => {
  const result = make("div");
  const n = start.x.length;
  const draw = (h) => {
    const [q, k] = [start.w_q, start.w_k].map((weight) => split(product(start.x, weight), h));
    const each = q.map((_, i) => favourites(product(q[i], transpose(k[i]))));
    const mean = each.reduce((sum, found) => sum + found.length, 0) / h;
    const strip = (found) =>
      make(
        "span",
        { class: "strip", "aria-hidden": "true" },
        ...Array.from({ length: n }, (_, j) => make("span", { class: found.includes(j) ? "on" : "" })),
      );
    const body = each.map((found, i) =>
      make(
        "tr",
        {},
        make("th", { scope: "row" }, `head ${i}`),
        make("td", {}, strip(found)),
        make("td", { class: "number" }, String(found.length)),
      ),
    );
    const width = start.d_model / h;
    const list = [
      ["h\u00b7d_k = d_model", h * width === start.d_model, `${h} \u00b7 ${width} = ${start.d_model}`],
    ];
    if (width === 1)
      list.push([
        "d_k = 1: at most two favourites per head",
        Math.max(...each.map((found) => found.length)) <= 2,
        `at most ${Math.max(...each.map((found) => found.length))}`,
      ]);
    result.replaceChildren(
      pairs([
        ["d_k", String(width)],
        ["favourites per head, on average", shown(mean)],
      ]),
      make(
        "div",
        { class: "scroll" },
        make(
          "table",
          { class: "keys" },
          make(
            "thead",
            {},
            make(
              "tr",
              {},
              ...["", `keys 0 to ${n - 1}`, "favourites"].map((name) => make("th", { scope: "col" }, name)),
            ),
          ),
          make("tbody", {}, ...body),
        ),
      ),
      claims(list),
    );
  };
  const heads = steps("h", divisors(start.d_model), 1, draw);
  root.append(control("h", heads.range, heads.said), result);
  draw(1);
};
