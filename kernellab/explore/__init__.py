"""Sliders over the parameters of a launch: evaluate a point, schedule the moves, keep a history.

`controls`, `points` and `schedule` are pure; `evaluator` compiles and runs. The panel is a view.
"""
