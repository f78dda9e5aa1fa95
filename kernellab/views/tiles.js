// Scripts add to the pane of layouts: a click on a value of TTGIR chooses it; the owner of the element under the pointer.

const TILE_MARGIN = 30, TILE_CELL = 18; // as `kernellab.views.layouts` draws

// The owner of each element of a tile in registers: bases combine by exclusive or.
function holdersOf({ shape, register, lane, warp }) {
  const strides = shape.map((_, axis) => shape.slice(axis + 1).reduce((a, b) => a * b, 1));
  const flat = basis => basis.reduce((sum, value, axis) => sum + value * strides[axis], 0);
  const moves = bases => bases.map(flat).reduce((places, move) => [...places, ...places.map(place => place ^ move)], [0]);
  const owners = new Map();
  moves(warp).forEach((atWarp, w) => moves(lane).forEach((atLane, l) => moves(register).forEach((atRegister, r) => {
    const element = atWarp ^ atLane ^ atRegister, known = owners.get(element);
    if (known) known.copies += 1; else owners.set(element, { warp: w, lane: l, register: r, copies: 1 });
  })));
  return owners;
}

function tilesPane(root) {
  const pane = root.querySelector(".kx-tiles");
  if (!pane) return null;
  const labels = [...pane.querySelectorAll(".kx-values label")];
  const tiles = new Map([...pane.querySelectorAll("[data-tile]")].map(each => [each, JSON.parse(each.dataset.tile)]));
  const holders = new Map();
  const chosen = () => labels.find(label => label.querySelector("input").checked);

  const choose = label => {
    if (!label || label.querySelector("input").checked) return;
    label.querySelector("input").checked = true;
    label.dispatchEvent(new Event("change", { bubbles: true }));
  };
  pane.addEventListener("change", event => {
    const value = event.target.closest(".kx-values label")?.dataset.value;
    if (value) root.dispatchEvent(new CustomEvent("kx-value", { detail: value }));
  });

  const elementAt = (tile, figure, row, column) => {
    const [, , down, across] = figure.dataset.map.split(" ").map(Number), { shape } = tile;
    const columns = shape.length > 1 ? shape.at(-1) : Math.min(32, shape[0] ?? 1);
    return { flat: row * down * columns + column * across, row: row * down, column: column * across, columns };
  };
  // The owner of the element in a cell, as [key of the cells that are outlined with it, words].
  const holderAt = (part, figure, row, column) => {
    const tile = tiles.get(part), { flat, ...at } = elementAt(tile, figure, row, column);
    const index = tile.shape.length > 1 ? `[${[...Array(tile.shape.length - 2).fill(0), at.row, at.column].join(", ")}]` : `[${flat}]`;
    if (tile.places) {
      const place = tile.places[at.row * Math.min(32, at.columns) + at.column];
      if (place === undefined) return null;
      if (Array.isArray(place)) return [place[0], `${index}: row ${place[0]}, column ${place[1]} of tensor memory`];
      const byte = place * tile.bits / 8, bank = Math.floor(byte / 4) % 32;
      return [bank, `${index}: bank ${bank}, byte ${byte} of the tile in shared memory`];
    }
    if (!holders.has(part)) holders.set(part, holdersOf(tile));
    const owner = holders.get(part).get(flat);
    if (!owner) return null;
    const more = owner.copies > 1 ? `, and ${owner.copies - 1} more` : "";
    const same = figure.classList.contains("f0") ? owner.warp : `${owner.warp} ${owner.lane}`;
    return [same, `${index}: warp ${owner.warp}, lane ${owner.lane}, register ${owner.register}${more}`];
  };

  const cellAt = event => {
    const svg = event.target.closest("svg"), figure = event.target.closest("figure[data-map]");
    if (!svg || !figure) return null;
    const place = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    const column = Math.floor((place.x - TILE_MARGIN) / TILE_CELL), row = Math.floor((place.y - TILE_MARGIN) / TILE_CELL);
    const [rows, columns] = figure.dataset.map.split(" ").map(Number);
    return row >= 0 && column >= 0 && row < rows && column < columns ? { svg, figure, row, column, rows, columns } : null;
  };
  const clear = () => { for (const each of pane.querySelectorAll(".kx-same")) each.remove(); };
  pane.addEventListener("pointermove", event => {
    clear();
    const cell = cellAt(event), part = event.target.closest("[data-tile]");
    if (!part) return;
    const [key, words] = (cell && holderAt(part, cell.figure, cell.row, cell.column)) ?? [];
    part.querySelector("output").value = words ?? "";
    if (words === undefined) return;
    let path = "";
    for (let row = 0; row < cell.rows; row++) for (let column = 0; column < cell.columns; column++)
      if (holderAt(part, cell.figure, row, column)?.[0] === key)
        path += `M${TILE_MARGIN + column * TILE_CELL} ${TILE_MARGIN + row * TILE_CELL}h17v17h-17z`;
    const same = document.createElementNS("http://www.w3.org/2000/svg", "path");
    same.setAttribute("class", "kx-same");
    same.setAttribute("d", path);
    cell.svg.append(same);
  });
  pane.addEventListener("pointerleave", clear);

  const tree = root.getRootNode(), within = tree instanceof ShadowRoot ? { shadowRoots: [tree] } : {}; // as in marimo
  const nameAt = event => {
    const caret = document.caretPositionFromPoint?.(event.clientX, event.clientY, within);
    const range = caret ? null : document.caretRangeFromPoint?.(event.clientX, event.clientY);
    const node = caret?.offsetNode ?? range?.startContainer, at = caret?.offset ?? range?.startOffset;
    if (node?.nodeType !== Node.TEXT_NODE) return null;
    const start = node.data.lastIndexOf("\n", at - 1) + 1, end = node.data.indexOf("\n", at);
    const line = node.data.slice(start, end < 0 ? undefined : end);
    const names = [...line.matchAll(/%[\w-]+/g)];
    const hit = names.find(each => start + each.index <= at && at <= start + each.index + each[0].length);
    return [hit?.[0], ...names.map(each => each[0])].find(name => labels.some(label => label.dataset.value === name));
  };
  const showValue = name => {
    const label = labels.find(each => each.dataset.value === name);
    choose(label);
    label?.scrollIntoView({ block: "nearest" });
  };
  return {
    showValue,
    clicked: event => { const name = nameAt(event); if (name) showValue(name); return Boolean(name); },
    showLine: number => {
      const own = labels.filter(label => label.classList.contains(`k${number}`));
      if (own.length && !own.includes(chosen())) choose(own[0]);
    },
  };
}
