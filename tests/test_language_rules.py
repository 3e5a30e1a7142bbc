"""The rules of `tests/test_language.py` on planted sentences: each breach is listed, and plain English is not."""

import pytest

from tests.test_language import (
    breaches_of_page,
    breaches_of_program,
    breaches_of_script,
    breaches_of_test_names,
    duplicates,
)

BETTER = (  # GLOSSARY, "Sentences": (left column, right column)
    (
        "Those of global blocks, and those of local ones; one for all, and None, where there is no difference.",
        "Return (global, local) attention metadata; local is None if all layers share it.",
    ),
    (
        "Those of `p`, each cast alone, and kept; their gradients are stacked as they are, then widened.",
        "Split `p` by layer and cast each slice; the backward pass stacks the slice gradients, then casts to float32.",
    ),
    (
        "its loss, whether it was hit, and what it weighs; 0 for filler",
        "loss, correctness (0/1) and weight of each target; padding has weight 0",
    ),
    (
        "the cross entropy of finding each first text's second one among the other texts of the batch's positives",
        "InfoNCE with in-batch negatives over the positive pairs",
    ),
    (
        "Open a snapshot; without one, that of a record if the corpus has it, else the newest.",
        "Open the named snapshot; else the snapshot of the resumed run; else the newest.",
    ),
    (
        "put back that of this run, or remove it: the command that began the run writes it again",
        "restore this run's copy, or delete the file and repeat the training command",
    ),
    (
        "matches: likewise, and its last head to equal tokens in the other text",
        "matches: like neighbors; the last head also attends to equal tokens of the other text",
    ),
    ("What survives.", "Checkpoint frequency and retention."),
    ("--head 3: of which layer? give --layer as well", "--head needs --layer"),
    ("a file stands there", "a file exists at this path"),
    ("another one has no effect, which a line says", "a different `init_from` is ignored; a warning says so"),
    ("the same in local blocks", "rotary base of local layers"),
    ("what it weighs", "the sampling weights"),
)


@pytest.mark.parametrize(("worse", "better"), BETTER)
def test_sentences_of_the_glossary(worse: str, better: str) -> None:
    """The left column fails and the right column passes, as docstring, comment, message, meaning and page."""
    for form in (f'"""Fine.\n\n{worse}\n"""\n', f"# {worse}\nx = 1\n", f"print({worse!r})\n"):
        assert list(breaches_of_program("a.py", form)), form
    for form in (f'"""{better[0].upper()}{better[1:]}"""\n', f"# {better}\nx = 1\n", f"field(1, {better!r})\n"):
        assert not list(breaches_of_program("a.py", form)), form
    assert not list(breaches_of_page("a.md", f"- {better}\n"))


PLANTED = {
    "opening": (
        'def f():\n    """Returns the sum."""\n',
        'class A:\n    """Of one run."""\n',
        '"""Whether it is hidden."""\n',
        'parser.add_argument("--x", help="it also applies to local layers")\n',
    ),
    "pronoun": (
        "# the weights and those of the optimizer\nx = 1\n",
        "# do the same for the last layer\nx = 1\n",
        'raise UserError("give another one")\n',
        'raise UserError(f"{path}: no model; name one.")\n',
        'def f():\n    """Return the shards.\n\n    Args:\n        x: two files, the newest one first.\n    """\n',
        "# Its own gradient is kept.\nx = 1\n",
    ),
    "what": ('"""Print what a run needs."""\n', "x = 1  # what is left\n", 'field(1, "what to save")\n'),
    "inversion": ('raise UserError("a file stands here")\n', "# Nor does the loss change.\nx = 1\n"),
    "metaphor": ('"""The guesses of a model."""\n', "# the table is in a room above\nx = 1\n"),
    "spelling": ("# the colour of a neighbour\nx = 1\n",),
    "name": (
        "def f(found):\n    return 1\n",
        "g = lambda one: 1\n",
        "class A:\n    place: str\n",
        "class A:\n    def whole(self):\n        return 1\n",
        "def f():\n    one = 1\n" + "    print()\n" * 10,
        "def yardstick_of(x):\n    return 1\n",
        "class Surroundings:\n    pass\n",
    ),
}
PLAIN = (
    '"""Return one host, one of three shards, at least one file, or arrays, one per layer; both are the same."""\n',
    "# At the same time, one after the other; what is left? A row of ones and zeros.\nx = np.ones(3)\n",
    "class A:\n    def __eq__(self, other):\n        return True\n",
    "def f():\n    one = 1\n    return one\n",
    'raise UserError("X: not one line")\n',
)


@pytest.mark.parametrize(
    ("rule", "source"), [(rule, source) for rule, sources in PLANTED.items() for source in sources]
)
def test_a_planted_breach_is_listed(rule: str, source: str) -> None:
    assert [breach.rule for breach in breaches_of_program("a.py", source)] == [rule]


def test_planted_breaches_of_pages_scripts_tests_and_packages() -> None:
    page = (
        "# What it is\n\n| what | x |\n|---|---|\n| text | a new one |\n\nIt says what it read.\nWhat it read stays.\n"
    )
    assert [(b.line, b.rule) for b in breaches_of_page("a.md", page)] == [(5, "pronoun"), (7, "what")]
    assert not list(breaches_of_page("a.md", "Ask what it needs.\n\n```\n# another one\n```\n"))
    script = '# Start the run,\n# or another one.\necho "the guesses of a model"\n'
    assert [(b.line, b.rule) for b in breaches_of_script("a.sh", script)] == [(1, "pronoun"), (3, "metaphor")]
    twice = {"a.py": "def read():\n    pass\n", "b.py": "\nclass read:\n    pass\n", "c.py": "def _read():\n    pass\n"}
    names = "def test_ids_are_those_of_torch():\n    pass\n\n\ndef test_ids_equal_the_ids_of_torch():\n    pass\n"
    assert [(b.line, b.rule) for b in breaches_of_test_names("test_a.py", names)] == [(1, "pronoun")]
    assert [(b.path, b.line, b.text) for b in duplicates(twice)] == [("a.py", 1, "read"), ("b.py", 2, "read")]


@pytest.mark.parametrize("source", PLAIN)
def test_plain_english_is_not_listed(source: str) -> None:
    assert not list(breaches_of_program("a.py", source))
