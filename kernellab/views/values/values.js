// The widget of the values of a launch: the source with its names, and the tile of the one that is chosen. Tiles come
// from Python when they are asked for.

const KV_SIDE = 384;

function numbersOf(text) {
  const bytes = Uint8Array.from(atob(text), letter => letter.charCodeAt(0));
  return new Float64Array(bytes.buffer);
}

function bytesOf(text) {
  return Uint8Array.from(atob(text), letter => letter.charCodeAt(0));
}

export function numberWords(value) {
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
  const data = numbersOf(tile.data), mask = tile.mask ? bytesOf(tile.mask) : null;
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
  return { data, mask, cell, elements: tile.elements ? numbersOf(tile.elements) : null };
}

function hoverWords(tile, drawn, row, column) {
  const at = row * tile.columns + column, value = drawn.data[at];
  if (value === undefined) return "";
  const index = tile.shape.length > 1 ? `[${row}, ${column}]` : tile.shape.length ? `[${column}]` : "";
  const place = drawn.elements ? ` ${tile.argument}[${drawn.elements[at]}]` : "";
  const off = drawn.mask && !drawn.mask[at] ? " masked" : "";
  return `${index}${place} = ${numberWords(value)}${off}`;
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
  const button = (words, act, title = "") => {
    const control = document.createElement("button");
    control.textContent = words;
    control.title = title;
    control.disabled = !act;
    if (act) control.addEventListener("click", act);
    return control;
  };
  const stepper = (name, entries) => {
    const at = entries.findIndex(([position]) => position === tile.position), parts = [];
    const go = step => entries[at + step] && (() => choose(entries[at + step][0]));
    const slider = document.createElement("input");
    Object.assign(slider, { type: "range", min: 0, max: entries.length - 1, value: at });
    slider.setAttribute("aria-label", name);
    slider.addEventListener("input", () => choose(entries[slider.value][0]));
    parts.push(`${name} ${entries[at][1]}`, button("‹", go(-1), `${name} before`), slider, button("›", go(1), `${name} after`));
    return parts;
  };
  const show = () => {
    tile = model.get("tile");
    if (tile?.data === undefined) return;
    const began = performance.now();
    drawn = drawTile(canvas, tile, colours);
    const isScalar = !tile.shape.length;
    canvas.style.display = isScalar ? "none" : "";
    bar.replaceChildren(
      button("‹ previous", tile.position > 0 && (() => choose(tile.position - 1)), "the value computed before"),
      button("next ›", tile.position + 1 < tile.count && (() => choose(tile.position + 1)), "the value computed next"),
      ...(tile.iterations.length > 1 ? stepper("iteration", tile.iterations) : []),
      ...(tile.programs.length > 1 ? stepper("program", tile.programs) : []),
      ...(tile.pages > 1 ? [`plane ${tile.page + 1} of ${tile.pages}`,
        button("‹", tile.page > 0 && (() => choose(tile.position, tile.page - 1))),
        button("›", tile.page + 1 < tile.pages && (() => choose(tile.position, tile.page + 1)))] : []),
    );
    const counted = Object.entries(tile.facts).filter(([, words]) => words).map(([name, words]) => `${name} ${words}`);
    const sampled = tile.steps.length ? ` · every ${tile.steps.join(" x ")}-th element` : "";
    const title = document.createElement("b");
    title.textContent = tile.title;
    facts.replaceChildren(title, ` ${tile.shape.join("x") || "scalar"} ${tile.dtype} · ${counted.join(" · ")}${sampled}`);
    const number = document.createElement("div");
    number.className = "kv-number";
    number.textContent = isScalar ? numberWords(drawn.data[0]) : "";
    hover.replaceChildren(...(isScalar ? [number] : []));
    const words = text => Object.assign(document.createElement("span"), { textContent: text });
    const links = (text, entries) =>
      entries.length ? [words(text), ...entries.map(([at, label]) => button(label, () => choose(at)))] : [];
    flow.replaceChildren(...links("reads", tile.reads), ...tile.arguments.map(name => words(`argument ${name}`)),
      ...links("read by", tile.read_by.slice(0, 8)));
    for (const one of el.querySelectorAll(".kv-chosen")) one.classList.remove("kv-chosen");
    const place = tile.title.match(/\d+$/)[0], line = lines.find(one => one.dataset.line === place);
    line?.classList.add("kv-chosen");
    line?.scrollIntoView({ block: "nearest" });
    el.dataset.drawnMs = performance.now() - began;
  };
  source.addEventListener("click", event => {
    const chip = event.target.closest("button") ?? event.target.closest(".kv-line")?.querySelector("button");
    if (chip) choose(Number(chip.dataset.position));
  });
  el.addEventListener("keydown", event => {
    if (event.target.matches("input")) return;
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
  return () => model.off("change:tile", show);
}

const render = renderValues;
export default { render };
