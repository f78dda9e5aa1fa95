from __future__ import annotations

import inspect
import pickle
import re
import traceback

import pytest

from kernellab import errors
from kernellab.errors import CompileError, KernellabError, Place, UnknownName, choice_message
from kernellab.workers.worker import failure_of

CLASSES = {name: cls for name, cls in vars(errors).items() if inspect.isclass(cls) and issubclass(cls, KernellabError)}


def test_every_error_stands_in_the_tree_of_the_docstring_and_the_other_way_round() -> None:
    drawn = set(re.findall(r"(?:└── |├── |^    )(\w+)", errors.__doc__ or "", re.MULTILINE))
    assert drawn == set(CLASSES)


def test_the_tree_shows_each_error_under_its_base() -> None:
    stack: list[tuple[int, str]] = []
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"^    ([│ ├└─]*)(\w+)(  |$)", line)
        if not found or found[2] not in CLASSES:
            continue
        depth, name = len(found[1]), found[2]
        stack = [(d, n) for d, n in stack if d < depth]
        if stack:
            assert CLASSES[name].__mro__[1].__name__ == stack[-1][1]
        stack.append((depth, name))


@pytest.mark.parametrize("name", CLASSES)
def test_every_error_travels_between_processes_as_itself(name: str) -> None:
    error = CLASSES[name]("what failed", place=Place("In[1]", 2, 3, "text"), detail="all", kernel="k")
    again = pickle.loads(pickle.dumps(failure_of(error))).exception()
    assert type(again) is CLASSES[name]
    assert (again.message, again.place, again.detail, again.kernel) == ("what failed", error.place, "all", "k")
    assert str(again) == str(error)


def test_an_error_with_a_place_is_four_lines_with_a_caret() -> None:
    error = CompileError("no good.", place=Place("In[5]", 3, 8, "    y = tl.nothing(x)"))
    assert error.lines() == [
        "CompileError: no good.",
        "  In[5], line 3",
        "    y = tl.nothing(x)",
        "        ^",
    ]


def test_a_plain_python_program_prints_the_place_of_an_error_too() -> None:
    error = CompileError("no good.", place=Place("In[5]", 3, 8, "    y = tl.nothing(x)"))
    assert str(error).splitlines() == ["no good.", *error.lines()[1:]]
    assert traceback.format_exception_only(error) == [f"kernellab.errors.CompileError: {error}\n"]
    assert str(CompileError("no good.")) == "no good."


def test_a_notebook_shows_the_place_of_an_error_once() -> None:
    shown = "\n".join(CompileError("no good.", place=Place("In[5]", 3, 8, "y = 1"))._render_traceback_())
    assert (shown.count("In[5], line 3"), shown.count("y = 1"), shown.count("^")) == (1, 1, 1)


def test_a_long_message_is_broken_between_words_where_a_notebook_shows_it() -> None:
    error = CompileError("word " * 40 + "--end.", place=Place("In[5]", 3, 8, "y = 1"))
    message, place, *_ = error._render_traceback_()
    assert message.count("\n") == 2
    assert max(map(len, message.splitlines())) <= 100
    assert " ".join(message.splitlines()) == error.lines()[0]
    assert place == "  In[5], line 3"


def test_the_detail_is_shown_on_request_only() -> None:
    error = CompileError("no good.", detail="line one\nline two\n")
    assert error.lines() == ["CompileError: no good."]
    assert error.lines(verbose=True)[-2:] == ["line one", "line two"]


def test_an_unknown_name_reads_as_a_sentence_though_it_is_a_key_error() -> None:
    assert str(UnknownName("No kernel is called 'x'.")) == "No kernel is called 'x'."


def test_a_bad_choice_has_one_form() -> None:
    assert choice_message("--show", "asm", ("ptx", "sass")) == "--show is 'asm'; expected one of ptx, sass."
    misspelt = choice_message("device", "H1000", ("h100", "h200"))
    assert misspelt == "device is 'H1000'; expected one of h100, h200; did you mean h100?"
