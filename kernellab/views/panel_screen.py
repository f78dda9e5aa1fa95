"""The part of the panel that shows: a widget that changes in place, so that focus and the chosen line are not lost."""

from __future__ import annotations

from importlib import resources

import anywidget
import traitlets

from kernellab.views.explorer_page import explorer_script
from kernellab.views.panel_picture import panel_css


class Screen(anywidget.AnyWidget):
    """What a panel shows.

    ``figures`` and ``source`` are HTML, ``status`` the sentence for screen readers, ``state`` is ``ready``, ``busy`` or
    ``failed``. ``line`` of ``file`` and ``stage`` are what the user chose in the source, ``is_open`` whether that is
    unfolded.
    """

    _esm = (
        f"{explorer_script()}\n{resources.files(__package__).joinpath('panel_screen.js').read_text(encoding='utf-8')}"
    )
    _css = panel_css()
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
