// What links the state of a widget in Python with its page: a graph, or an explorer with its graph. It stands behind the
// scripts of these, in one module.

function linked(model, root, pane) {
  const on = (name, act) => { model.on(`change:${name}`, act); return () => model.off(`change:${name}`, act); };
  const offs = [
    on("svg", () => pane.repaint(model.get("svg"))),
    on("members", () => pane.showMembers(model.get("slice") ? model.get("members") : null)),
    on("slice", () => { if (!model.get("slice")) pane.showMembers(null); pane.fillTools(); }),
    on("query", () => pane.showQuery(model.get("query"))),
    on("node", () => pane.showNode(model.get("node"))),
    on("message", () => pane.showMessage(model.get("message"))),
    ...["line", "file"].map(name => on(name, () => pane.showLine(model.get("file"), model.get("line")))),
    ...["view", "direction", "collapsed"].map(name => on(name, () => pane.fillTools())),
  ];
  pane.showMembers(model.get("slice") ? model.get("members") : null);
  if (model.get("line")) pane.showLine(model.get("file"), model.get("line"));
  if (model.get("node")) pane.showNode(model.get("node"));
  if (model.get("query")) pane.showQuery(model.get("query"));
  pane.showMessage(model.get("message"));
  return () => { offs.forEach(off => off()); pane.stop(); };
}
const set = (model, values) => {
  for (const [name, value] of Object.entries(values)) model.set(name, value);
  model.save_changes();
};
const linkOf = model => ({ ask: (name, value) => set(model, { [name]: value }), known: name => model.get(name) });

function renderGraph({ model, el }) {
  el.innerHTML = model.get("html");
  el.classList.add("kl-live");
  const root = el.querySelector(".kg");
  root.querySelector(".kg-canvas").innerHTML = model.get("svg");
  const pane = graphPane(root, linkOf(model));
  root.addEventListener("kg-node", ({ detail: { line, file } }) => set(model, { line, file }));
  return linked(model, root, pane);
}

function renderExplorer({ model, el }) {
  el.classList.add("kl-live");
  const drawn = [], dropped = () => { drawn.splice(0).forEach(stop => stop()); };
  const build = () => {
    const before = el.querySelector(".kx-source")?.scrollTop ?? 0;
    dropped();
    el.innerHTML = model.get("html");
    const root = el.querySelector(".kx");
    root.querySelector(".kg-canvas").innerHTML = model.get("svg");
    const pane = graphPane(root.querySelector(".kg"), linkOf(model)), controls = enhance(root, pane);
    root.addEventListener("kx-line", ({ detail: { line, file } }) => set(model, { line, file }));
    root.addEventListener("kx-value", event => set(model, { value: event.detail }));
    root.addEventListener("kx-stage", event => set(model, { stage: event.detail }));
    const line = () => controls.showLine(model.get("file"), model.get("line"));
    const stage = () => controls.showStage(model.get("stage"));
    const value = () => { if (model.get("value")) controls.showValue(model.get("value")); };
    for (const [name, act] of [["line", line], ["file", line], ["stage", stage], ["value", value]]) {
      model.on(`change:${name}`, act);
      drawn.push(() => model.off(`change:${name}`, act));
    }
    stage();
    line();
    value();
    root.querySelector(".kx-source").scrollTop ||= before;
    drawn.push(linked(model, root, pane));
  };
  build();
  model.on("change:html", build);
  return () => { model.off("change:html", build); dropped(); };
}
