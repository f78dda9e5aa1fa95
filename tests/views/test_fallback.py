from __future__ import annotations

import base64
import io
import re
from collections.abc import Callable

import pytest
from PIL import Image

from kernellab.compile.types import Compiled
from kernellab.views.figures.raster import SCALE, WIDEST_PX, rasterize, with_fallbacks, without_fallbacks
from kernellab.views.graph import svg
from kernellab.views.palette import BLUE, GREEN, ORANGE, tones

SMALL = (
    '<svg xmlns="http://www.w3.org/2000/svg" aria-label="a &quot;b&quot; &lt; c" viewBox="-10 0 40 20">'
    "<title>words</title>{}</svg>"
)


def _pixels(body: str) -> Callable[[float, float], tuple[int, int, int]]:
    png, _ = rasterize(SMALL.format(body))
    image = Image.open(io.BytesIO(png)).convert("RGB")
    return lambda x, y: image.getpixel((round((x + 10) * SCALE), round(y * SCALE)))  # type: ignore[return-value]


def test_shapes_lie_where_the_view_box_puts_them_in_their_colours() -> None:
    at = _pixels(
        f'<rect x="0" y="0" width="10" height="20" fill="{BLUE}"/><circle cx="20" cy="10" r="6" fill="{GREEN}"/>'
    )
    assert at(5, 10) == tones(BLUE)
    assert at(20, 10) == tones(GREEN)
    assert at(-5, 10) == (255, 255, 255)


def test_translucent_colours_are_those_on_white_and_groups_pass_theirs_on() -> None:
    at = _pixels('<g fill="#000000" opacity=".5"><rect x="0" y="0" width="10" height="20" fill-opacity=".5"/></g>')
    assert at(5, 10) == (191, 191, 191)


def test_paths_take_relative_and_absolute_steps_curves_and_arcs() -> None:
    box = "M6 2a6 6 0 0 1 6 6v1a6 6 0 0 1 -6 6a6 6 0 0 1 -6 -6v-1a6 6 0 0 1 6 -6Z"
    curve = "M14 2C14 12 28 12 28 2L28 18 14 18Z"
    at = _pixels(f'<path d="{box}" fill="#ff0000"/><path d="{curve}" fill="#0000ff"/>')
    assert at(5, 7) == (255, 0, 0)
    assert [at(0.7, 2.7), at(11.3, 2.7), at(11.3, 14.3), at(0.7, 14.3)] == [(255, 255, 255)] * 4  # round corners
    assert at(20, 14) == (0, 0, 255)
    assert at(20, 5) == (255, 255, 255)  # above the curve


def test_text_is_painted_unless_it_is_hidden() -> None:
    text = '<text x="0" y="15" font-size="14" fill="#000000"{}>MM</text>'
    dark = [_pixels(text.format(more)) for more in ("", ' visibility="hidden"')]
    found = [any(at(x / 2, y) != (255, 255, 255) for x in range(30) for y in range(4, 16)) for at in dark]
    assert found == [True, False]


def test_a_wide_picture_is_painted_coarser() -> None:
    png, size = rasterize(SMALL.format("").replace("-10 0 40 20", "0 0 3000 30"))
    assert size == (3000, 30)
    assert Image.open(io.BytesIO(png)).size == (WIDEST_PX, 14)


@pytest.mark.slow
def test_every_part_of_a_graph_is_painted(compiled: Callable[[str], Compiled]) -> None:
    picture = svg(compiled("add").graph)
    png, (width, height) = rasterize(picture)
    colors = {color for _, color in Image.open(io.BytesIO(png)).convert("RGB").getcolors() or ()}
    assert f'width="{width}" height="{height}"' in picture
    assert {*map(tones, (GREEN, BLUE, ORANGE))} <= colors  # arguments, loads, stores


def test_an_image_stands_beside_each_picture() -> None:
    html = with_fallbacks(f"<p>before</p>{SMALL.format('')}<p>between</p>{SMALL.format('')}")
    images = re.findall(r'<img class="kl-flat" alt="([^"]*)" width="40" [^>]*base64,([^"]*)">', html)
    assert [alt for alt, _ in images] == ["a &quot;b&quot; &lt; c"] * 2
    assert base64.b64decode(images[0][1]).startswith(b"\x89PNG")
    assert html.count("<svg") == 2
    assert html.count("<style>") == 1


def test_a_picture_that_shows_only_when_it_is_chosen_has_no_image() -> None:
    alone = without_fallbacks(SMALL.format(""))
    html = with_fallbacks(f"{alone}{SMALL.format('')}")
    assert html.count("<img") == 1
    assert alone in html


def test_html_without_pictures_and_html_with_fallbacks_stay_as_they_are() -> None:
    assert with_fallbacks("<p>no picture</p>") == "<p>no picture</p>"
    once = with_fallbacks(SMALL.format(""))
    assert with_fallbacks(once) == once
