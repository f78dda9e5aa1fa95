// The widget of the values of a launch: the source with its names, and the tile of the one that is chosen. Tiles come
// from Python when they are asked for.

const KV_SIDE = 384;

// 64-bit integers stay exact: their words come from these, their colours from floats.
const KV_ARRAYS = { int64: BigInt64Array, uint64: BigUint64Array, float64: Float64Array };

function numbersOf(text, kind = "float64") {
  return new KV_ARRAYS[kind](bytesOf(text).buffer);
}

function bytesOf(text) {
  return Uint8Array.from(atob(text), letter => letter.charCodeAt(0));
}

function numberWords(value) {
  if (typeof value === "bigint") return String(value);
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "inf" : "-inf";
  return Number.isInteger(value) ? String(value) : value.toPrecision(6).replace(/\.?0+($|e)/, "$1");
}

function colourScale(colours) {
  const parts = colours.map(colour => [1, 3, 5].map(at => parseInt(colour.slice(at, at + 2), 16)));
  return share => {
    const place = Math.min(Math.max(share, 0), 1) * (parts.length - 1);
    const left = Math.min(Math.floor(place), parts.length - 2), rest = place - left;
    return parts[left].map((tone, at) => Math.round(tone * (1 - rest) + parts[left + 1][at] * rest));
  };
}

function drawTile(canvas, tile, colours) {
  const exact = numbersOf(tile.data, tile.number), data = Float64Array.from(exact, Number);
  const mask = tile.mask ? bytesOf(tile.mask) : null;
  const { rows, columns } = tile, isRow = rows === 1;
  const cell = Math.max(1, Math.floor(KV_SIDE / Math.max(rows, columns)));
  const width = columns * cell, height = isRow ? 160 : rows * cell;
  canvas.width = width;
  canvas.height = height;
  const pen = canvas.getContext("2d"), scale = colourScale(colours.scale);
  const finite = data.filter((value, at) => Number.isFinite(value) && (!mask || mask[at]));
  let low = Infinity, high = -Infinity;
  for (const value of finite) { if (value < low) low = value; if (value > high) high = value; }
  if (!finite.length) { low = 0; high = 1; }
  const bottom = Math.min(low, 0), top = Math.max(high, 0), unit = height / ((top - bottom) || 1);
  for (let at = 0; at < data.length; at += 1) {
    const x = (at % columns) * cell, y = isRow ? 0 : Math.floor(at / columns) * cell, tall = isRow ? height : cell;
    if (mask && !mask[at]) {
      pen.strokeStyle = colours.masked;
      pen.lineWidth = 1;
      pen.beginPath();
      for (let down = 0; down < tall; down += 6) { pen.moveTo(x, y + Math.min(down + 6, tall)); pen.lineTo(x + cell, y + down); }
      pen.stroke();
      continue;
    }
    const value = data[at];
    if (Number.isNaN(value)) pen.fillStyle = colours.nan;
    else if (!Number.isFinite(value)) pen.fillStyle = colours.inf;
    else pen.fillStyle = `rgb(${scale((value - low) / ((high - low) || 1)).join(",")})`;
    if (isRow && Number.isFinite(value)) {
      const from = (top - Math.max(value, 0)) * unit;
      pen.fillRect(x, from, Math.max(1, cell - 1), Math.max(1, Math.abs(value) * unit));
    } else pen.fillRect(x, y, cell, tall);
  }
  return { exact, mask, cell, places: numbersOf(tile.places), elements: tile.elements ? numbersOf(tile.elements) : null };
}

function indexWords(tile, place) {
  const index = [];
  let rest = place;
  for (let axis = tile.held.length - 1; axis >= 0; axis -= 1) {
    index.unshift((rest % tile.held[axis]) * (tile.steps[axis] ?? 1));
    rest = Math.floor(rest / tile.held[axis]);
  }
  return tile.shape.length ? `[${index.join(", ")}]` : "";
}

function hoverWords(tile, drawn, row, column) {
  const at = row * tile.columns + column, value = drawn.exact[at];
  if (value === undefined || column >= tile.columns) return "";
  const place = drawn.elements ? ` ${tile.argument}[${drawn.elements[at]}]` : "";
  const off = drawn.mask && !drawn.mask[at] ? " masked" : "";
  return `${indexWords(tile, drawn.places[at])}${place} = ${numberWords(value)}${off}`;
}

function renderValues({ model, el }) {
  el.innerHTML = model.get("html");
  el.classList.add("kl-live");
  const colours = model.get("colours"), source = el.querySelector(".kv-source"), canvas = el.querySelector("canvas");
  const [bar, facts, hover, flow] = ["bar", "facts", "hover", "flow"].map(name => el.querySelector(`.kv-${name}`));
  const lines = [...el.querySelectorAll(".kv-line")].filter(line => line.querySelector("button"));
  let drawn = null, tile = null;
  const choose = (position, page = 0) => {
    model.set("page", page);
    model.set("position", position);
    model.save_changes();
  };
  const part = (tag, content, more = {}) => Object.assign(document.createElement(tag), { textContent: content, ...more });
  const button = (content, act, title = "") => {
    const control = part("button", content, { title });
    control.addEventListener("click", act);
    return control;
  };
  // What steps through values is made once, so that a slider can be dragged and a button keeps the focus.
  const stepper = (name, entries, go) => {
    const label = part("span", ""), slider = part("input", "", { type: "range", min: 0 });
    slider.setAttribute("aria-label", name);
    slider.addEventListener("input", () => go(Number(slider.value)));
    const before = button("‹", () => go(Number(slider.value) - 1), `${name} before`);
    const after = button("›", () => go(Number(slider.value) + 1), `${name} after`);
    const root = part("span", "", { className: "kv-step" });
    root.append(label, before, slider, after);
    return { root, update: () => {
      const { at, words } = entries();
      root.hidden = words.length < 2;
      label.textContent = `${name} ${words[at] ?? ""}`;
      Object.assign(slider, { max: words.length - 1, value: at });
      before.disabled = at <= 0;
      after.disabled = at + 1 >= words.length;
    } };
  };
  const of = name => () => ({
    at: tile[name].findIndex(([position]) => position === tile.position), words: tile[name].map(([, words]) => words),
  });
  const planes = () => ({ at: tile.page, words: Array.from({ length: tile.pages }, (_, at) => `${at + 1} of ${tile.pages}`) });
  const steppers = [
    stepper("iteration", of("iterations"), at => choose(tile.iterations[at][0])),
    stepper("program", of("programs"), at => choose(tile.programs[at][0])),
    stepper("plane", planes, at => choose(tile.position, at)),
  ];
  const previous = button("‹ previous", () => choose(tile.position - 1), "the value computed before");
  const next = button("next ›", () => choose(tile.position + 1), "the value computed next");
  // The graph is laid out when it is first looked at.
  const below = el.querySelector(".kv-graph"), root = below.querySelector(".kg");
  let pane = null, unlink = () => {};
  const toGraph = button("graph", () => showGraph(below.hidden), "the operations of the line in the dataflow graph (key g)");
  const showGraph = isShown => {
    below.hidden = !isShown;
    toGraph.setAttribute("aria-expanded", String(isShown));
    if (!isShown || !root) return;
    if (!pane) {
      root.querySelector(".kg-canvas").innerHTML = model.get("svg");
      pane = graphPane(root, linkOf(model));
      unlink = linked(model, root, pane);
    } else pane.showLine(model.get("file"), model.get("line"));
    below.scrollIntoView({ block: "nearest" });
  };
  toGraph.setAttribute("aria-expanded", "false");
  root?.addEventListener("kg-node", ({ detail: { line, file } }) => set(model, { line, file }));
  bar.append(previous, next, toGraph, ...steppers.map(({ root }) => root));
  const swatches = { NaN: colours.nan, inf: colours.inf, masked: "" };
  const factParts = () => Object.entries(tile.facts).filter(([, content]) => content).flatMap(([name, content]) => {
    const swatch = part("i", "", { className: name === "masked" ? "kv-swatch kv-hatch" : "kv-swatch" });
    if (swatches[name]) swatch.style.background = swatches[name];
    return [" · ", ...(name in swatches ? [swatch] : []), `${name} ${content}`];
  });
  const links = (content, entries) =>
    entries.length ? [part("span", content), ...entries.map(([at, label]) => button(label, () => choose(at)))] : [];
  const argumentLinks = () => tile.arguments.map(([name, words]) => {
    if (!model.get("arguments").includes(name)) return part("span", `argument ${words}`);
    const light = () => { showGraph(true); set(model, { slice: model.get("slice") === name ? "" : name }); };
    return button(`argument ${words}`, light, "its slice in the dataflow graph");
  });
  const show = () => {
    tile = model.get("tile");
    if (tile?.data === undefined) return;
    const began = performance.now(), isScalar = !tile.shape.length;
    drawn = drawTile(canvas, tile, colours);
    canvas.style.display = isScalar ? "none" : "";
    previous.disabled = tile.position <= 0;
    next.disabled = tile.position + 1 >= tile.count;
    for (const { update } of steppers) update();
    toGraph.textContent = root ? `graph: ${tile.operations || "no"} operation${tile.operations === 1 ? "" : "s"}` : "graph";
    const sampled = tile.steps.length ? ` · every ${tile.steps.join(" x ")}-th element` : "";
    const coarse = Math.max(...tile.cells_of) > 1 ? ` · a cell is ${tile.cells_of.join(" x ")} elements` : "";
    const shape = ` ${tile.shape.join("x") || "scalar"} ${tile.dtype}`;
    facts.replaceChildren(part("b", tile.title), shape, ...factParts(), sampled, coarse);
    hover.replaceChildren(...(isScalar ? [part("div", numberWords(drawn.exact[0]), { className: "kv-number" })] : []));
    const more = tile.more_readers ? [part("span", `and ${tile.more_readers} more`)] : [];
    flow.replaceChildren(...links("reads", tile.reads), ...argumentLinks(),
      ...links("read by", tile.read_by), ...more);
    for (const one of el.querySelectorAll(".kv-chosen")) one.classList.remove("kv-chosen");
    const line = lines.find(one => one.dataset.row === String(tile.row));
    line?.classList.add("kv-chosen");
    line?.scrollIntoView({ block: "nearest" });
    el.dataset.drawnMs = performance.now() - began;
  };
  source.addEventListener("click", event => {
    const chip = event.target.closest("button") ?? event.target.closest(".kv-line")?.querySelector("button");
    if (chip) choose(Number(chip.dataset.position));
  });
  el.addEventListener("keydown", event => {
    if (event.target.matches("input, select")) return;
    const at = lines.findIndex(line => line.classList.contains("kv-chosen"));
    const toLine = line => line && choose(Number(line.querySelector("button").dataset.position));
    const within = (entries, step) => {
      const here = entries?.findIndex(([position]) => position === tile.position) ?? -1;
      if (here >= 0 && entries[here + step]) choose(entries[here + step][0]);
    };
    const keys = {
      ArrowDown: () => toLine(lines[at + 1]),
      ArrowUp: () => toLine(lines[at - 1]),
      ArrowRight: () => within(tile?.iterations, 1),
      ArrowLeft: () => within(tile?.iterations, -1),
      n: () => tile && tile.position + 1 < tile.count && choose(tile.position + 1),
      g: () => showGraph(below.hidden),
      p: () => tile && tile.position > 0 && choose(tile.position - 1),
    };
    if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    keys[event.key]();
  });
  canvas.addEventListener("pointermove", event => {
    if (!drawn) return;
    const box = canvas.getBoundingClientRect(), across = canvas.width / box.width;
    const column = Math.floor((event.clientX - box.left) * across / drawn.cell);
    const row = tile.rows === 1 ? 0 : Math.floor((event.clientY - box.top) * across / drawn.cell);
    hover.textContent = hoverWords(tile, drawn, row, column);
  });
  model.on("change:tile", show);
  show();
  return () => { model.off("change:tile", show); unlink(); };
}
