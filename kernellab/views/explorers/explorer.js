// Scripts add to the explorer's HTML: linked scrolling, a search, keys, and a linked graph. The same file, behind those of
// the graph and the tiles, serves a page of its own and the widget; without it, everything else still works.

const LINKED_AFTER_MS = 80;

export function enhance(root, graph = null) {
  const source = root.querySelector(".kx-source");
  const stages = [...root.querySelectorAll(".kx-stage")];
  const tabs = [...root.querySelectorAll(".kx-tabs input")];
  if (!source || !stages.length) return;
  const tiles = tilesPane(root);
  const active = () => stages[Math.max(0, tabs.findIndex(tab => tab.checked))];
  const numberOf = element => element?.closest("[class*='k']")?.className.match(/(?:^| )k(\d+)/)?.[1];
  const runs = number => [...active().querySelectorAll(`.k${number}`)];
  const rowOf = number => source.querySelector(`.k${number}`);
  const chosen = () => root.querySelector(".kx-panes input:checked")?.className.slice(1);
  let turn = 0; // which of its runs a line that is clicked again shows

  const show = (pane, element, where = 1 / 3) => {
    if (!element) return;
    const top = element.getBoundingClientRect().top - pane.getBoundingClientRect().top + pane.scrollTop;
    hold();
    pane.scrollTop = top - pane.clientHeight * where;
  };

  // Linked scrolling: the pane under the pointer leads. A scroll that this made itself does not answer.
  let leader = null, held = 0;
  const hold = () => { held = performance.now() + LINKED_AFTER_MS; };
  const linked = part("input", { type: "checkbox", checked: "" });
  const follow = pane => {
    if (!linked.checked || pane !== leader || performance.now() < held) return;
    const edge = pane.getBoundingClientRect().top + pane.clientHeight / 3;
    const parts = pane === source ? source.querySelectorAll(".s") : pane.querySelectorAll("label");
    const passed = part => part.getBoundingClientRect().bottom < edge;
    let low = 0, high = parts.length;
    while (low < high) { const middle = (low + high) >> 1; if (passed(parts[middle])) low = middle + 1; else high = middle; }
    const number = numberOf(parts[Math.min(low, parts.length - 1)]);
    if (number === undefined) return;
    if (pane === source) show(active(), runs(number)[0]); else show(source, rowOf(number));
  };
  for (const pane of [source, ...stages]) {
    pane.addEventListener("pointerenter", () => { leader = pane; });
    pane.addEventListener("wheel", () => { leader = pane; held = 0; }, { passive: true });
    pane.addEventListener("scroll", () => follow(pane), { passive: true });
  }

  const choose = (number, from) => {
    const again = number === chosen() && from === source;
    const lines = runs(number);
    turn = again && lines.length ? (turn + 1) % lines.length : 0;
    const button = root.querySelector(`.kx-source .r${number}`);
    if (button) { button.checked = true; if (from !== graph) button.focus({ preventScroll: true }); } else unchoose();
    if (from !== active()) show(active(), lines[turn]);
    if (from !== source) show(source, rowOf(number));
    const place = placeOf(rowOf(number));
    if (from !== graph) graph?.showLine(place.file, place.line);
    tiles?.showLine(number);
    root.dispatchEvent(new CustomEvent("kx-line", { detail: place }));
  };
  const placeOf = row => ({ line: Number(row?.querySelector("i").textContent ?? 0), file: row?.dataset.file ?? "" });
  const rowAt = (file, line) => {
    const rows = [...source.querySelectorAll(".s")].filter(row => placeOf(row).line === line);
    return rows.find(row => placeOf(row).file === file) ?? rows.find(row => !placeOf(row).file);
  };
  const unchoose = () => { for (const button of root.querySelectorAll(".kx-panes input:checked")) button.checked = false; };
  root.addEventListener("kg-node", event => {
    const row = event.detail.line ? rowAt(event.detail.file, event.detail.line) : null;
    if (row) { choose(numberOf(row), graph); return; }
    unchoose();
    root.dispatchEvent(new CustomEvent("kx-line", { detail: { line: 0, file: "" } }));
  });
  source.addEventListener("click", event => {
    const number = numberOf(event.target.closest(".s"));
    if (number === undefined) return;
    event.preventDefault();
    choose(number, source);
  });
  for (const stage of stages) stage.addEventListener("click", event => {
    const run = event.target.closest("label");
    if (!run || String(getSelection())) return;
    event.preventDefault();
    choose(numberOf(run), stage);
    tiles?.clicked(event);
  });
  for (const tab of tabs) tab.addEventListener("change", () => {
    const number = chosen();
    if (number !== undefined) show(active(), runs(number)[0]);
    find.oninput();
    root.dispatchEvent(new CustomEvent("kx-stage", { detail: tab.closest("label").querySelector("b").textContent.toLowerCase() }));
  });

  // The arrow keys walk the source lines that became something in this stage.
  root.addEventListener("keydown", event => {
    const step = { ArrowDown: 1, ArrowUp: -1, j: 1, k: -1 }[event.key];
    if (!step || event.target === find || event.target.closest(".kx-tabs, .kx-tiles, .kg")) return;
    event.preventDefault();
    const rows = [...source.querySelectorAll(".s")].filter(row => runs(numberOf(row)).length);
    const at = rows.findIndex(row => numberOf(row) === chosen());
    const next = rows[Math.min(rows.length - 1, Math.max(0, at + step))];
    if (next) { choose(numberOf(next), null); }
  });

  // The search looks through the active stage; Enter goes on, Shift+Enter back.
  const find = part("input", { type: "search", placeholder: "search this stage", "aria-label": "search this stage" });
  const count = part("output"), link = part("label", {}, linked, " linked scrolling");
  root.querySelector(".kx-tabs").append(part("div", { class: "kx-find" }, link, find, count));
  let hits = [], hit = 0;
  const mark = () => {
    if (!("highlights" in CSS)) return;
    CSS.highlights.set("kx-hit", new Highlight(...hits));
    CSS.highlights.set("kx-this", new Highlight(...(hits[hit] ? [hits[hit]] : [])));
  };
  const goTo = index => {
    if (!hits.length) return;
    hit = (index + hits.length) % hits.length;
    count.value = `${hit + 1} of ${hits.length}`;
    show(active(), hits[hit]);
    mark();
  };
  find.oninput = () => {
    hits = []; hit = 0; count.value = "";
    const wanted = find.value.toLowerCase();
    if (wanted) {
      const walker = document.createTreeWalker(active().querySelector("pre"), NodeFilter.SHOW_TEXT);
      for (let node = walker.nextNode(); node; node = walker.nextNode()) {
        const text = node.data.toLowerCase();
        for (let at = text.indexOf(wanted); at >= 0; at = text.indexOf(wanted, at + wanted.length)) {
          const range = document.createRange();
          range.setStart(node, at);
          range.setEnd(node, at + wanted.length);
          hits.push(range);
        }
      }
      count.value = hits.length ? "" : "not found";
    }
    mark();
    goTo(0);
  };
  find.addEventListener("keydown", event => {
    if (event.key === "Enter") { event.preventDefault(); goTo(hit + (event.shiftKey ? -1 : 1)); }
  });

  return {
    showLine: (file, line) => {
      const row = rowAt(file, line);
      if (!line) { unchoose(); graph?.showLine("", 0); }
      else if (row && numberOf(row) !== chosen()) choose(numberOf(row), null);
    },
    showValue: name => tiles?.showValue(name),
    showStage: name => {
      const tab = tabs.find(each => each.closest("label").querySelector("b").textContent.toLowerCase() === name);
      if (tab && !tab.checked) { tab.checked = true; tab.dispatchEvent(new Event("change")); }
    },
  };
}
