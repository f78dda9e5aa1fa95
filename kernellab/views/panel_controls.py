"""The controls of a panel as widgets: a slider over values, a switch, a menu of targets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ipywidgets

from kernellab.errors import UnknownTarget, choice_message
from kernellab.explore.ranges import Control, label_of
from kernellab.target import Target, known_targets, parse_target


def slider_of(control: Control) -> Any:
    """Return the widget of a control; all but switches are sliders over values, which keys move too."""
    if control.is_toggle:
        return ipywidgets.Checkbox(value=control.start, description=control.name, indent=False)
    return ipywidgets.SelectionSlider(
        options=[(label_of(choice), choice) for choice in control.choices],
        value=control.start,
        description=control.name,
        continuous_update=True,
    )


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


def grid_of(widgets: Sequence[Any]) -> Any:
    """Return a box that sets its widgets in as many columns as the page has room for."""
    box = ipywidgets.Box(list(widgets))
    box.add_class("kl-controls")
    return box
