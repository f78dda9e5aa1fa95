"""The panel: sliders over the parameters of a launch, and what each point of them costs and gives."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Any

import anywidget
import ipywidgets
import traitlets
from IPython import get_ipython
from IPython.display import display

from kernellab.errors import KernellabError, UnknownTarget, UsageError, choice_message
from kernellab.explore.controls import Control, ControlPlan, label_of, values_text
from kernellab.explore.evaluator import Evaluator
from kernellab.explore.points import Evaluation, Keeper, KeptPoint, Point, PointHistory, earlier_words
from kernellab.explore.schedule import LatestOnly, pace_here
from kernellab.target import Target, known_targets, parse_target
from kernellab.timing.provenance import device_of
from kernellab.views.elements import file_text, style_sheet
from kernellab.views.explorers import explorer_html, explorer_script
from kernellab.views.figures.raster import with_fallbacks
from kernellab.views.graph.dataflow import SourceText
from kernellab.views.panels.picture import PanelView, figures_html, picture_html, sentence, text

if TYPE_CHECKING:
    import pandas


class Panel(ipywidgets.VBox):  # type: ignore[misc]
    """Sliders over a launch. Each move compiles, runs on copies of the arguments, and updates the figures in place.

    `set` moves the sliders, `wait` returns the `Evaluation` of where they stand, `history` has a row for each.
    A saved notebook keeps a picture of the point that was current.
    """

    def __init__(
        self, evaluator: Evaluator, plan: ControlPlan, keeper: Keeper, source: SourceText, target: str
    ) -> None:
        self._evaluator, self._keeper, self._source = evaluator, keeper, source
        self._notes = plan.notes
        self._kept = earlier_words(keeper.earlier())
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="kernellab-explore")
        self._texts = ThreadPoolExecutor(1, thread_name_prefix="kernellab-explore-source")
        self._moves = LatestOnly(partial(pace_here, self._executor), self._evaluate, self._show)
        self._screen = PanelDisplay(kernel=self.kernel)
        show_source = partial(setattr, self._screen, "source")
        self._sources = LatestOnly(partial(pace_here, self._texts), self._render_source, show_source, close_s=0.0)
        self._latest: Evaluation | None = None
        self._is_setting = False
        self._picture: Any = None
        self._controls = {control.name: control for control in plan.controls}
        self._sliders = {control.name: slider_of(control) for control in plan.controls}
        self._target = target_menu(evaluator.here, target)
        tooltip = "Keep this point as a config of the kernel"
        self._keep = ipywidgets.Button(description="Keep", tooltip=tooltip, icon="bookmark")
        for widget in (*self._sliders.values(), self._target):
            widget.observe(lambda _: None if self._is_setting else self._move(), "value")
        self._keep.on_click(self._pressed_keep)
        self._screen.observe(self._on_unfold, "is_open")
        controls = ipywidgets.Box([*self._sliders.values(), self._target, self._keep])
        controls.add_class("kl-controls")  # in as many columns as the page has room for
        super().__init__([controls, self._screen])
        self.add_class("kl-explore")

    @property
    def kernel(self) -> str:
        """The name of the kernel."""
        return self._evaluator.history.kernel

    @property
    def point(self) -> Evaluation | None:
        """The evaluation at the shown point."""
        return self._latest

    @property
    def values(self) -> dict[str, Any]:
        """The values of the controls."""
        return {name: slider.value for name, slider in self._sliders.items()}

    @property
    def evaluations(self) -> PointHistory:
        """The evaluation of each point, in turn."""
        return self._evaluator.history

    @property
    def jobs(self) -> int:
        """How many points were begun; fast moves begin fewer than they pass."""
        return self._moves.jobs

    @property
    def frame(self) -> pandas.DataFrame:
        """The history: one row per evaluated point, with the columns of `Tuning.frame` and those of the evaluation."""
        here = self._evaluator.here or self._evaluator.target_of(self._point())
        return self.evaluations.frame(self.jobs, device_of(here, self._evaluator.here is not None).facts)

    history = frame

    def set(self, **values: Any) -> Panel:
        """Move the sliders, as by hand; ``target`` chooses the target. `wait` gives what is found there.

        Raises:
            UsageError: there is no such control, or it cannot take the value.
        """
        for name in values:
            if name not in (*self._sliders, "target"):
                known = ", ".join([*self._sliders, "target"])
                raise UsageError(f"The panel has no control {name!r}; expected one of {known}.")
        target = values.pop("target", None)
        controls = {name: self._controls[name].with_choice(value) for name, value in values.items()}
        self._is_setting = True
        try:
            if target is not None:
                take_value(self._target, self._evaluator.here, str(target))
            for name, control in controls.items():
                if control is not self._controls[name]:  # its slider had no stop for the value; never a switch
                    self._controls[name] = control
                    self._sliders[name].options = slider_of(control).options
                self._sliders[name].value = values[name]
        finally:
            self._is_setting = False
        self._move()
        return self

    def wait(self) -> Evaluation:
        """Wait for the evaluation at the current slider positions, and return it."""
        if self._latest is None and self._moves.is_idle:
            self._move()
        self._moves.drain()
        self._sources.drain()
        assert self._latest is not None, "something was shown"
        return self._latest

    def keep(self) -> KeptPoint:
        """Keep the current point as a config of the kernel, in the store of the lab; unchecked outputs are marked.

        Raises:
            UsageError: the point cannot run, or its outputs are wrong or differ from those of the first point.
        """
        evaluation = self.wait()
        target = self._evaluator.target_of(evaluation.point)
        differing = self.evaluations.others_that_differ(evaluation)
        kept = self._keeper.keep(evaluation, device_of(target, has_gpu=evaluation.is_timed), differing)
        self._announce(kept.text)
        return kept

    def close(self) -> None:
        """Forget what waits, and close the widgets."""
        self._moves.drop()
        self._sources.drop()
        self._executor.shutdown(wait=False, cancel_futures=True)
        self._texts.shutdown(wait=False, cancel_futures=True)
        super().close()

    def __repr__(self) -> str:
        return text(self._view())

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        """Show the widget where there are widgets, elsewhere a picture or text of the current point.

        The widget is named here, since ipywidgets 7, which Colab has, names it nowhere else.
        """
        view = {"version_major": 2, "version_minor": 0, "model_id": self.model_id}
        data = {} if self.comm is None else {"application/vnd.jupyter.widget-view+json": view}
        return {**data, **self._still()}

    def _ipython_display_(self) -> None:
        """Show the panel and its static picture, which hides while the panel lives.

        The picture is an output of its own, since a widget whose kernel has ended shows nothing, and so that it can be
        brought up to date without touching the panel.
        """
        bundle, picture = self._repr_mimebundle_(), self._still()
        if getattr(get_ipython(), "kernel", None) is None:
            display(bundle, raw=True)
            return
        words = {"text/plain": f"Sliders of {self.kernel}: {', '.join(self._sliders)}"}
        display({name: shown for name, shown in bundle.items() if name not in picture} | words, raw=True)
        self._picture = display(picture, raw=True, display_id=True)

    def _still(self) -> dict[str, str]:
        shown = self._view()
        return {"text/html": with_fallbacks(picture_html(shown)), "text/plain": text(shown)}

    def _point(self) -> Point:
        return Point(tuple(self.values.items()), self._target.value)

    def _move(self) -> None:
        self._screen.state = "busy"
        self._moves.move(self._point())

    def _evaluate(self, point: Point, superseded: Event) -> Evaluation:
        """Evaluate a point, in the thread of the executor."""
        job, post = self._moves.jobs, self._moves.post

        def show_partly(evaluation: Evaluation) -> None:
            post(lambda: None if superseded.is_set() else self._show_partly(replace(evaluation, job=job)))

        return replace(self._evaluator.evaluate(point, superseded, show_partly), job=job)

    def _show_partly(self, evaluation: Evaluation) -> None:
        """Show what is known of a point while the rest is evaluated, unless the rest has come already."""
        if self._latest is None or self._latest.job < evaluation.job:
            self._latest = evaluation
            self._paint("busy")

    def _show(self, evaluation: Evaluation) -> None:
        self._latest = self._evaluator.history.add(evaluation)
        self._paint()
        if self._picture is not None:
            self._picture.update(self._still(), raw=True)
        if self._screen.is_open:
            self._sources.move(evaluation)

    def _paint(self, state: str = "") -> None:
        shown = self._view()
        failed = shown.latest is not None and shown.latest.has_failed
        with self._screen.hold_sync():
            self._screen.figures = figures_html(shown)
            self._screen.status = sentence(shown)
            self._screen.jobs = self.jobs
            self._screen.point = "" if shown.latest is None else values_text(shown.latest.point.named)
            self._screen.state = state or ("failed" if failed else "ready")

    def _view(self) -> PanelView:
        controls = tuple(self._controls.values())
        return PanelView(self.kernel, controls, self.evaluations, self._latest, self._notes, self._kept)

    def _on_unfold(self, change: Mapping[str, Any]) -> None:
        good = self._view().good
        if change["new"] and good is not None:
            self._sources.move(good)

    def _render_source(self, evaluation: Evaluation, superseded: Event) -> str:
        """Render the explorer of a point, in its own thread, since it is slower than the figures."""
        if evaluation.compiled is None or superseded.is_set():
            return self._screen.source
        return explorer_html(evaluation.compiled, self._source, uid=self._screen.model_id or "")

    def _pressed_keep(self, button: Any) -> None:
        try:
            self.keep()
        except KernellabError as exc:
            self._announce(exc.message)

    def _announce(self, words: str) -> None:
        """Show the outcome of keeping a point, also to a screen reader."""
        self._kept = words
        self._paint()
        self._screen.status = words


def slider_of(control: Control) -> Any:
    """Return the widget of a control; all but switches are sliders over values, which keys move too."""
    state = {"value": control.start, "description": control.name}
    if control.is_toggle:
        return ipywidgets.Checkbox(**state, indent=False)
    options = [(label_of(choice), choice) for choice in control.choices]
    return ipywidgets.SelectionSlider(options=options, **state, continuous_update=True)


def target_menu(here: Target | None, start: str) -> Any:
    """Return the menu of targets; "" stands for the GPU of this machine, where there is one."""
    options = [(name, name) for name in known_targets() if here is None or name != str(here)]
    if here is not None:
        options.insert(0, (f"this GPU ({here})", ""))
    value = "" if here is not None and start in {"", str(here)} else start
    return ipywidgets.Dropdown(options=options, value=value, description="target")


def take_value(menu: Any, here: Target | None, target: str) -> None:
    """Choose a target by its name.

    Raises:
        UnknownTarget: there is no such target.
    """
    wanted = str(parse_target(target)) if target else ""
    if here is not None and wanted == str(here):
        wanted = ""
    known = [value for _, value in menu.options]
    if wanted not in known:
        raise UnknownTarget(choice_message("target", target, tuple(value or str(here) for value in known)))
    menu.value = wanted


class PanelDisplay(anywidget.AnyWidget):
    """The state of a panel's display.

    ``figures`` and ``source`` are HTML, ``status`` the sentence for screen readers, ``state`` is ``ready``, ``busy`` or
    ``failed``. ``line`` of ``file`` and ``stage`` are what the user chose in the source, ``is_open`` whether that is
    unfolded.
    """

    _esm = f"{explorer_script()}\n{file_text(__package__, 'panel.js')}"
    _css = style_sheet(__package__, "panel.css")
    kernel = traitlets.Unicode("").tag(sync=True)
    figures = traitlets.Unicode("").tag(sync=True)
    status = traitlets.Unicode("").tag(sync=True)
    state = traitlets.Unicode("ready").tag(sync=True)
    point = traitlets.Unicode("").tag(sync=True)
    jobs = traitlets.Int(0).tag(sync=True)
    source = traitlets.Unicode("").tag(sync=True)
    line = traitlets.Int(0).tag(sync=True)
    file = traitlets.Unicode("").tag(sync=True)
    stage = traitlets.Unicode("").tag(sync=True)
    is_open = traitlets.Bool(False).tag(sync=True)
