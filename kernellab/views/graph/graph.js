// What scripts add to the picture of a graph: zoom, search, keys, and, where Python answers, frames that fold, slices
// and views. The same file serves the static pages and the widgets; without it the picture still shows.

const ZOOM = 1.2, SMALLEST = .1, LARGEST = 4, READABLE = .85;

function part(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value); else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

// ``ask(name, value)`` asks Python for a value of its state; ``known(name)`` is the last value from Python. Without them,
// only what the picture itself holds can be done.
export function graphPane(root, { ask = null, known = () => undefined } = {}) {
  const canvas = root.querySelector(".kg-canvas");
  const svg = () => canvas.querySelector("svg");
  const things = () => [...canvas.querySelectorAll("[data-node], [data-frame]")];
  const named = name => canvas.querySelector(`[data-node="${CSS.escape(name)}"], [data-frame="${CSS.escape(name)}"]`);
  const nameOf = thing => thing.dataset.node ?? thing.dataset.frame;
  const state = { line: 0, file: "", node: "", members: null, hits: [], hit: 0, scale: 1, own: false };
  const emit = (name, detail) => root.dispatchEvent(new CustomEvent(name, { detail, bubbles: true }));

  // Zooming sets the size of the picture; the canvas scrolls, so panning is scrolling.
  const natural = () => { const box = svg().viewBox.baseVal; return [box.width, box.height]; };
  const zoom = (scale, x = canvas.clientWidth / 2, y = canvas.clientHeight / 2) => {
    if (!svg()) return;
    const [width, height] = natural(), before = svg().getBoundingClientRect(), frame = canvas.getBoundingClientRect();
    const across = (x + frame.left - before.left) / before.width, down = (y + frame.top - before.top) / before.height;
    state.scale = Math.min(LARGEST, Math.max(SMALLEST, scale));
    svg().style.width = `${width * state.scale}px`;
    svg().style.height = `${height * state.scale}px`;
    const after = svg().getBoundingClientRect();
    canvas.scrollLeft += after.left + across * after.width - (x + frame.left);
    canvas.scrollTop += after.top + down * after.height - (y + frame.top);
    size.textContent = `${Math.round(state.scale * 100)}%`;
  };
  const room = () => [canvas.clientWidth - 16, canvas.clientHeight - 16];
  const fit = () => { const [w, h] = natural(), [x, y] = room(); state.own = true; zoom(Math.min(x / w, y / h, 1)); };
  const settle = () => {
    if (!svg() || !canvas.clientWidth || state.own) return;
    const [width, height] = natural(), scale = Math.min(1, Math.max(READABLE, room()[0] / width));
    if (!canvas.style.height) canvas.style.height = `min(${Math.ceil(height * scale) + 30}px, ${getComputedStyle(canvas).height})`;
    zoom(scale);
  };
  const step = factor => { state.own = true; zoom(state.scale * factor); };

  // The tools.
  const status = part("output", { class: "kg-status", "aria-live": "polite" });
  const size = part("button", { type: "button", class: "kg-size", title: "the size of the text in the page (key 1)", "aria-label": "zoom to 100%", onclick: () => { state.own = true; zoom(1); } }, "100%");
  const find = part("input", { type: "search", placeholder: "search the graph", "aria-label": "search the graph", oninput: () => { search(find.value); ask?.("query", find.value); } });
  const count = part("output", { class: "kg-count", "aria-live": "polite" });
  const choice = (label, name) => part("select", { "aria-label": label, title: label, onchange: event => ask(name, event.target.value) });
  const views = choice("what a box stands for", "view"), starts = choice("the argument whose slice is lit", "slice");
  const directions = choice("which half of the slice", "direction");
  const tool = (label, title, act) => part("button", { type: "button", title, "aria-label": title, onclick: act }, label);
  const tools = part("div", { class: "kg-tools", role: "toolbar", "aria-label": "graph" });
  if (ask) tools.append(views, starts, directions,
    tool("▸ fold", "collapse every frame", () => ask("collapsed", frames())), tool("▾ unfold", "expand every frame", () => ask("collapsed", [])));
  tools.append(find, count, part("span", { class: "kg-gap" }),
    tool("−", "zoom out (key -)", () => step(1 / ZOOM)), size, tool("+", "zoom in (key +)", () => step(ZOOM)), tool("fit", "fit the whole graph (key 0)", fit));
  root.querySelector(".kg-tools")?.remove();
  root.querySelector(".kg-status")?.remove();
  canvas.before(tools);
  canvas.after(status);

  const frames = () => [...new Set((known("index") ?? []).flatMap(([, , around]) => around))];
  const options = (select, pairs, value) => {
    select.replaceChildren(...pairs.map(([key, words]) => part("option", { value: key }, words)));
    select.value = value;
  };
  const fillTools = () => {
    if (!ask) return;
    const start = known("slice"), names = known("arguments") ?? [];
    options(views, (known("views") ?? []).map(view => [view, view === "source" ? "by source line" : "by operation"]), known("view"));
    const boxed = [...new Set([start, state.node])].filter(name => name && !names.includes(name)).map(name => [name, `slice: ${titleOf(name)}`]);
    options(starts, [["", "no slice"], ...names.map(name => [name, `slice: ${name}`]), ...boxed], start);
    options(directions, [["both", "both ways"], ["forward", "what it leads to"], ["backward", "what leads to it"]], known("direction"));
    directions.hidden = !start;
  };
  const HINT = `click or Enter chooses · arrow keys walk${ask ? " · s lights the slice of a box · ▾ and ▸ fold and unfold" : ""} · Ctrl and wheel zoom`;
  const say = text => { status.value = text || HINT; status.classList.toggle("kg-hint", !text); };
  const titleOf = name => named(name)?.querySelector("text")?.textContent.replace(/^[▸▾] /, "") ?? name;

  // What is lit: the boxes of the line, the chosen box, the hits of the search; what is outside the slice is dim.
  const light = () => {
    const hits = new Set(state.hits.map(shownBox)), current = state.hits.length ? shownBox(state.hits[state.hit]) : null;
    const boxes = canvas.querySelectorAll("[data-node]");
    const ofLine = box => state.line && Number(box.dataset.line) === state.line && (box.dataset.file ?? "") === state.file;
    for (const box of boxes) {
      const name = box.dataset.node;
      box.classList.toggle("kg-on", Boolean(ofLine(box)));
      box.classList.toggle("kg-this", name === state.node);
      box.classList.toggle("kg-hit", hits.has(name));
      box.classList.toggle("kg-now", name === current);
      box.classList.toggle("kg-dim", state.members !== null && !state.members.has(name));
      box.setAttribute("aria-pressed", String(name === state.node));
    }
    for (const arrow of canvas.querySelectorAll("[data-edge]")) {
      const ends = arrow.dataset.edge.split(" ");
      arrow.classList.toggle("kg-dim", state.members !== null && !ends.every(end => state.members.has(end)));
      arrow.classList.toggle("kg-beside", ends.includes(state.node));
    }
  };
  const show = (box, focus = false) => {
    if (!box) return;
    const inner = (box.querySelector("text") ?? box).getBoundingClientRect(), frame = canvas.getBoundingClientRect(), edge = 24;
    if (inner.left < frame.left + edge || inner.right > frame.right - edge) canvas.scrollLeft += inner.left + inner.width / 2 - frame.left - frame.width / 2;
    if (inner.top < frame.top + edge || inner.bottom > frame.bottom - edge) canvas.scrollTop += inner.top + inner.height / 2 - frame.top - frame.height / 2;
    if (focus) rove(box);
  };
  const words = box => (box?.querySelector("title")?.textContent ?? "").split("\n").filter(Boolean).join(" · ");

  const choose = box => {
    const again = state.node === box.dataset.node;
    state.node = again ? "" : box.dataset.node;
    state.line = again ? 0 : Number(box.dataset.line ?? 0);
    state.file = again ? "" : box.dataset.file ?? "";
    say(again ? "" : words(box));
    light();
    fillTools();
    emit("kg-node", { node: state.node, line: state.line, file: state.file });
    ask?.("node", state.node);
  };
  let toggled = null; // the box or frame that was folded or unfolded, and where it stood
  const toggle = thing => {
    if (!ask || !(thing.dataset.folds || thing.dataset.frame)) return false;
    const name = nameOf(thing), collapsed = known("collapsed") ?? [];
    const place = (thing.querySelector("text") ?? thing).getBoundingClientRect();
    toggled = { name, left: place.left, top: place.top, focus: canvas.contains(document.activeElement) };
    ask("collapsed", thing.dataset.frame ? [...collapsed, name] : collapsed.filter(frame => frame !== name));
    return true;
  };

  // Keys: one box is in the order of Tab, the arrows go from box to box.
  const rove = thing => {
    for (const other of things()) other.setAttribute("tabindex", other === thing ? "0" : "-1");
    thing.focus({ preventScroll: true });
  };
  const ways = { ArrowDown: [0, 1], ArrowUp: [0, -1], ArrowRight: [1, 0], ArrowLeft: [-1, 0] };
  const center = thing => { const r = (thing.querySelector("text") ?? thing).getBoundingClientRect(); return [r.left + r.width / 2, r.top + r.height / 2]; };
  const neighbour = (thing, [dx, dy]) => {
    const [x, y] = center(thing);
    const far = other => {
      const [ox, oy] = center(other), along = (ox - x) * dx + (oy - y) * dy, aside = Math.abs((ox - x) * dy) + Math.abs((oy - y) * dx);
      return along > 2 ? along + 2 * aside : Infinity;
    };
    return things().filter(other => other !== thing).map(other => [far(other), other]).reduce((a, b) => b[0] < a[0] ? b : a, [Infinity, null])[1];
  };
  canvas.addEventListener("keydown", event => {
    const thing = event.target.closest("[data-node], [data-frame]");
    const acts = { "+": () => step(ZOOM), "=": () => step(ZOOM), "-": () => step(1 / ZOOM), "0": fit, "1": () => { state.own = true; zoom(1); }, "/": () => find.focus(), Escape: clear };
    if (thing) Object.assign(acts, {
      Enter: () => { if (!toggle(thing)) choose(thing); },
      " ": () => { if (thing.dataset.node) choose(thing); else toggle(thing); },
      s: () => ask?.("slice", nameOf(thing)),
    });
    if (thing && ways[event.key]) acts[event.key] = () => { const next = neighbour(thing, ways[event.key]); if (next) show(next, true); };
    if (!acts[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    acts[event.key]();
  });
  const clear = () => {
    find.value = "";
    search("");
    Object.assign(state, { node: "", line: 0, file: "" });
    say("");
    light();
    emit("kg-node", { node: "", line: 0, file: "" });
    ask?.("query", "");
    ask?.("slice", "");
    ask?.("node", "");
  };

  // A drag on the ground pans; a click on a box chooses it, one on a fold mark or on the name of a frame folds.
  let drag = null;
  canvas.addEventListener("pointerdown", event => {
    if (event.button || event.target.closest("[data-node], [data-frame] > text")) return;
    drag = [event.clientX + canvas.scrollLeft, event.clientY + canvas.scrollTop];
    canvas.setPointerCapture(event.pointerId);
    canvas.classList.add("kg-drag");
  });
  canvas.addEventListener("pointermove", event => {
    if (drag) { canvas.scrollLeft = drag[0] - event.clientX; canvas.scrollTop = drag[1] - event.clientY; }
  });
  const drop = () => { drag = null; canvas.classList.remove("kg-drag"); };
  canvas.addEventListener("pointerup", drop);
  canvas.addEventListener("pointercancel", drop);
  canvas.addEventListener("click", event => {
    const frame = event.target.closest("[data-frame] > text")?.parentElement, box = event.target.closest("[data-node]");
    if (frame) toggle(frame);
    else if (box && event.target.closest(".kg-mark")) toggle(box);
    else if (box) { rove(box); choose(box); }
  });
  canvas.addEventListener("dblclick", event => { const box = event.target.closest("[data-folds]"); if (box) toggle(box); });
  canvas.addEventListener("wheel", event => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const frame = canvas.getBoundingClientRect();
    state.own = true;
    zoom(state.scale * (event.deltaY < 0 ? ZOOM : 1 / ZOOM), event.clientX - frame.left, event.clientY - frame.top);
  }, { passive: false });

  // The search looks through all boxes, folded ones too: those count where the box stands that they are folded into.
  const inPicture = () => [...canvas.querySelectorAll("[data-node]")].map(box => [box.dataset.node, box.textContent, []]);
  const shownBox = ([name, , around]) => around.find(frame => canvas.querySelector(`[data-node="${frame}"]`)) ?? name;
  const search = text => {
    const wanted = text.trim().toLowerCase();
    const index = known("index")?.length ? known("index") : inPicture();
    state.hits = wanted ? index.filter(([, words]) => words.toLowerCase().includes(wanted)) : [];
    count.value = wanted && !state.hits.length ? "not found" : "";
    goTo(0);
  };
  const goTo = at => {
    const many = state.hits.length;
    if (many) {
      state.hit = (at + many) % many;
      const [name] = state.hits[state.hit], box = shownBox(state.hits[state.hit]);
      count.value = `${state.hit + 1} of ${many}${box === name ? "" : " (folded)"}`;
      show(named(box));
    }
    light();
  };
  find.addEventListener("keydown", event => {
    if (event.key === "Enter") { event.preventDefault(); goTo(state.hit + (event.shiftKey ? -1 : 1)); }
    if (event.key === "Escape") { find.value = ""; search(""); ask?.("query", ""); }
    event.stopPropagation();
  });

  // A new picture: make it reachable by keys and readers, and keep in place what was folded or unfolded.
  const prepare = () => {
    if (!svg()) return;
    svg().setAttribute("role", "group");
    for (const thing of things()) {
      thing.setAttribute("tabindex", "-1");
      const text = thing.querySelector("text");
      if (thing.dataset.frame) {
        if (!ask) { thing.removeAttribute("tabindex"); continue; }
        if (text && !text.textContent.startsWith("▾")) text.textContent = `▾ ${text.textContent}`;
        thing.setAttribute("aria-expanded", "true");
      }
      thing.setAttribute("role", "button");
      if (thing.dataset.folds && ask) {
        thing.setAttribute("aria-expanded", "false");
        if (!text.querySelector(".kg-mark")) text.innerHTML = text.innerHTML.replace("▸", '<tspan class="kg-mark">▸</tspan>');
      }
      thing.setAttribute("aria-label", [...thing.querySelectorAll("text")].map(each => each.textContent).join(", ") + (thing.dataset.line ? `, line ${thing.dataset.line}` : ""));
    }
    canvas.querySelector("[data-node]")?.setAttribute("tabindex", "0");
    fillTools();
  };
  const repaint = text => {
    const before = [canvas.scrollLeft, canvas.scrollTop];
    canvas.innerHTML = text;
    prepare();
    if (state.own) zoom(state.scale); else settle();
    [canvas.scrollLeft, canvas.scrollTop] = before;
    if (find.value) search(find.value); else light();
    const thing = toggled && named(toggled.name);
    if (thing) {
      const place = (thing.querySelector("text") ?? thing).getBoundingClientRect();
      canvas.scrollLeft += place.left - toggled.left;
      canvas.scrollTop += place.top - toggled.top;
      if (toggled.focus) rove(thing);
    }
    toggled = null;
  };

  prepare();
  say("");
  settle();
  const watch = new ResizeObserver(settle);
  watch.observe(canvas);
  return {
    repaint, fillTools, fit,
    showLine: (file, line) => {
      const boxes = [...canvas.querySelectorAll(`[data-line="${line}"]`)], chosen = named(state.node);
      if (!chosen || Number(chosen.dataset.line) !== line) state.node = "";
      Object.assign(state, { line, file: boxes.some(box => (box.dataset.file ?? "") === file) ? file : "" });
      light();
      const lit = [...canvas.querySelectorAll(".kg-on")];
      if (!lit.includes(chosen)) show(lit[0]);
    },
    showNode: name => {
      const box = name ? named(name) : null;
      if (name === state.node) return;
      state.node = box ? name : "";
      if (box) { state.line = Number(box.dataset.line ?? 0); state.file = box.dataset.file ?? ""; }
      say(words(box));
      light();
      fillTools();
      show(box);
    },
    showMembers: members => { state.members = members ? new Set(members) : null; fillTools(); light(); },
    showQuery: text => { if (find.value !== text) { find.value = text; search(text); } },
    showMessage: text => { if (text) say(text); status.classList.toggle("kg-alarm", Boolean(text)); },
    stop: () => watch.disconnect(),
  };
}
