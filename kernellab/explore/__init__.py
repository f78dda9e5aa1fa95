"""Exploring a launch by hand: sliders over its parameters, each move compiled, run and compared with the moves before.

`ranges`, `proposals`, `points`, `schedule` and `trail` are pure; `site` compiles and runs; `panel` is the widget.
"""
