"""The card of two kernels compared without a tolerance: a row per output."""

from __future__ import annotations

from kernellab.errors import plural
from kernellab.inside.equivalence import Equivalence
from kernellab.views.blocks import Block, Card, Heading, Message, Section, table_of


def equivalence_card(equivalence: Equivalence) -> Card:
    """The answer in one sentence, the findings of both runs, and a row per output."""
    is_certain = equivalence.equal and not equivalence.unmodelled
    blocks: list[Block] = [Message(equivalence.summary, "kl-note kl-good" if is_certain else "kl-alert")]
    blocks += [Message(warning, "kl-alert") for warning in equivalence.warnings]
    columns = {
        "output": lambda row: row.name,
        "equal": lambda row: "yes" if row.equal else "no",
        "elements": lambda row: f"{row.elements:,}",
        "different": lambda row: f"{row.different:,}",
        "first": lambda row: "" if row.first is None else f"[{', '.join(map(str, row.first))}]",
    }
    blocks.append(table_of(columns, equivalence.outputs, left=("output",), code=("output",)))
    facts = [plural(len(equivalence.outputs), "output"), "without tolerance, on the CPU"]
    return Card([Section(Heading(" vs ".join(equivalence.names), facts), blocks)])
