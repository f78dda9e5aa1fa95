// The display of the panel: figures, a region that screen readers follow, and the source next to its stages. It also
// gives the sliders of the panel a name and their value in words, which their own markup lacks.

const labelled = panel => {
  for (const slider of panel.querySelectorAll(".widget-slider")) {
    const handle = slider.querySelector(".noUi-handle");
    const words = { "aria-label": ".widget-label", "aria-valuetext": ".widget-readout" };
    for (const [attribute, place] of Object.entries(words)) {
      const text = slider.querySelector(place)?.textContent;
      if (handle && text && handle.getAttribute(attribute) !== text) handle.setAttribute(attribute, text);
    }
  }
};

const watched = el => {
  const panel = el.closest(".kl-explore");
  if (!panel) return null;
  panel.setAttribute("role", "group");
  panel.setAttribute("aria-label", el.dataset.kernel);
  labelled(panel);
  const observer = new MutationObserver(() => labelled(panel));
  observer.observe(panel, { subtree: true, childList: true, characterData: true, attributeFilter: ["aria-valuetext"] });
  return observer;
};

function render({ model, el }) {
  el.classList.add("kp", "kp-live");
  el.dataset.kernel = `explore ${model.get("kernel")}`;
  const status = part("div", { class: "kp-status", role: "status", "aria-live": "polite", "aria-atomic": "true" });
  const figures = part("div", { class: "kp-figures" }), source = part("div");
  const asleep = part("p", { class: "kp-asleep" },
    `These sliders are asleep: the kernel that moved them was restarted or has ended. To wake them, run
    the cells again that load kernellab and define ${model.get("kernel")}, then this one.`);
  const details = part("details", {}, part("summary", {}, "Source and stages"), source);
  el.append(status, asleep, figures, details);

  const set = (name, value) => { model.set(name, value); model.save_changes(); };
  const paint = () => {
    figures.innerHTML = model.get("figures");
    el.dataset.state = model.get("state");
    el.dataset.jobs = model.get("jobs");
    el.dataset.point = model.get("point");
    el.setAttribute("aria-busy", String(model.get("state") === "busy"));
    if (model.get("state") !== "busy" && status.textContent !== model.get("status")) status.textContent = model.get("status");
  };
  const paintSource = () => {
    const focused = document.activeElement, top = source.querySelector(".kx-source")?.scrollTop ?? 0;
    source.innerHTML = model.get("source");
    const root = source.querySelector(".kx");
    if (!root) return;
    const controls = enhance(root);
    const line = model.get("line"), stage = model.get("stage");
    if (stage) controls.showStage(stage);
    root.querySelector(".kx-source").scrollTop = top;
    if (line) controls.showLine(model.get("file"), line);
    if (focused && focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
    root.addEventListener("kx-line", event => { model.set("file", event.detail.file); set("line", event.detail.line); });
    root.addEventListener("kx-stage", event => set("stage", event.detail));
  };
  details.open = model.get("is_open");
  details.addEventListener("toggle", () => { if (details.open !== model.get("is_open")) set("is_open", details.open); });
  const changes = ["figures", "state", "jobs", "point", "status"].map(name => `change:${name}`);
  for (const change of changes) model.on(change, paint);
  model.on("change:source", paintSource);
  paint();
  paintSource();
  let observer = null;
  const frame = requestAnimationFrame(() => { observer = watched(el); });
  return () => {
    cancelAnimationFrame(frame);
    observer?.disconnect();
    for (const change of changes) model.off(change, paint);
    model.off("change:source", paintSource);
  };
}
export default { render };
