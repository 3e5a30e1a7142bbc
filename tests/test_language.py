"""The rules of the language (CONTRIBUTING.md, "Style"), over code, help, messages and pages.

    python tests/test_language.py bert_jax/corpus docs/data.md    # the breaches of these paths, with their lines
    python tests/test_language.py --counts                        # UNFINISHED as the tree is now

A program sees these rules; each breach is printed with the name of its rule:

opening     A docstring begins with an imperative or a noun phrase: no third person ("Returns"), no conjunction,
            preposition or pronoun ("Whether", "Of", "It"). A help text or a config meaning does not begin with a
            pronoun ("it", "those").
pronoun     "those of", "that of", "likewise", "ones"; "one" that counts nothing ("another one", "one that ..."; not
            "one host", "one of three", "at least one", "one per layer"); "the same" without its noun ("is the same" is
            plain English); a sentence that begins with "its own".
what        In docstrings, comments, help and messages: every "what" clause that is no question. In pages: such a clause
            as a subject, after a comma, colon, semicolon or bracket, or after "is", "are" or "of". A page may say "ask
            the compiler what the run needs"; its headings and the head of a table may begin with "What".
inversion   "of which ...?", "stands there", "which a line says", "told in a line"; a sentence that begins with "Nor
            is", "Not only does", "Only then has" and the like.
metaphor    "guess", "readings", "yardstick", "voice", "door", and "room" for a package.
spelling    British spelling.
name        A word of VAGUE as a parameter, a public name, a field, or a local of a function of more than ten lines; a
            metaphor as a word of such a name; a definition whose name GLOSSARY replaced.
duplicate   A public function or class of bert_jax that another module of bert_jax defines as well.

Of tests, only the names are read, as sentences: `test_ids_are_those_of_transformers` breaks the rule "pronoun".

A person must read the rest. No program here sees whether a first line makes sense alone, whether a help text names its
subject, a passive voice, a wrong tense, an inversion of another kind, a pronoun such as "it", "they" or "the other"
without a noun near it, a metaphor or a vague name that is not listed, an array without its shape, or a sentence that is
too long. Every sentence in the left column of the glossary's table fails by one of its faults
(`tests/test_language_rules.py`); its other faults are for a person.

`ALLOWED` lists the breaches that stay, each with its reason: an entry is one symbol or one sentence of one file.
`UNFINISHED` counts the breaches in packages that are not rewritten yet. Both lists only shrink.
"""

import ast
import collections
import functools
import io
import pathlib
import re
import sys
import textwrap
import tokenize
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[1]
SCOPE = ("bert_jax", "benchmarks", "configs", "launch", "docs", "README.md", "CONTRIBUTING.md", "SECURITY.md")
UNFINISHED_PARTS = ("bert_jax/", "tests/")
SUFFIXES = (".py", ".md", ".sh", ".sbatch", ".toml", ".c")
MAX_ALLOWED = 15

# "path: rule: text", as the command line prints it, without the line number.
ALLOWED: set[str] = set()

# Breaches by package of bert_jax/ and by folder of tests/: `python tests/test_language.py --counts` prints them.
UNFINISHED: dict[str, int] = {}


def words(text: str) -> frozenset[str]:
    """Return the words of a line as a set."""
    return frozenset(text.split())


VAGUE = words("one ones found own place whole beside like other number kept more some room")
METAPHORS = words("yardstick yardsticks guess guesses guessed readings voice voices door doors rooms")
LONG_FUNCTION = 10  # lines; the locals of a shorter function are read at one glance

# GLOSSARY's table of names, as far as the old name meant one thing in the whole package.
RENAMED = {
    "Surroundings": "AttentionMetadata",
    "_surroundings": "_attention_metadata",
    "Differences": "LayerFlags",
    "_differences": "layer_flags_list",
    "ChosenTokens": "GlobalTokenMask",
    "tokens_to_be_global": "global_token_mask",
    "Window": "WindowSpec",
    "AtDistances": "RelativeKeysAndQueries",
    "Joint": "FusedQKV",
    "of_rows": "select_queries",
    "of_global": "inputs_with_projections_of_global_tokens",
    "OF_GLOBAL": "GLOBAL_PROJECTIONS",
    "_turned": "_normalize_and_rotate",
    "by_rows": "query_blocked_attention",
    "_by_reach": "_dense_or_windowed",
    "keep_on_gpu": "save_on_gpu",
    "keep_elsewhere": "save_except_on_gpu",
    "Deviations": "InitScales",
    "deviations": "init_scales",
    "read_neighbors": "init_neighbor_heads",
    "read_matches": "init_matching_head",
    "Launched": "PendingStep",
    "_owes_evaluation": "_is_evaluation_missing",
    "READS_PEAK": "USES_RUN_PEAK",
    "TEACHINGS": "DISTILLATION_LOSSES",
    "TOGETHER": "SAME_SPLIT_SIMILARITY",
    "_SURELY": "_FORCED_SPLIT_HASH",
    "FORGETFUL": "EXCEPTION_SWALLOWING_CALLBACKS",
    "FREE_IN_THE_FUTURE": "MUTABLE_AFTER_CURRENT_STEP",
    "model_in": "resolve_model_dir",
    "Cadence": "CheckpointPolicy",
    "Rest": "BackgroundPreparation",
    "read_in_turn": "batches_by_snapshot",
    "from_elsewhere": "is_warm_start",
    "as_begun": "keep_original_init",
    "_beat": "_heartbeat",
    "own_mix": "eval_uses_training_masks",
    "keys_meant": "suggest_keys",
    "meant_keys": "suggestion_text",
    "spelled_out": "fill_inherited_fields",
    "lack_of": "resource_error_message",
    "_take_back": "_restore_block_names",
    "Guess": "Prediction",
}

# Words after "one" or "the same" which show that no noun follows.
NO_NOUN = words(
    "that which who whose for in is was are has had have can may must with without from by to if and as at on alone "
    "else only where when while under over before after beside among between than so not but an the it does do did of "
    "whether per first again too instead now then never always also"
)
# After these words "one" stands for a noun: always, or where no noun follows.
ALWAYS_VAGUE_AFTER = words(
    "a an each every another some other first second third last next new newer newest old older same plain small "
    "smaller large larger long longer short shorter better best earlier later own modern empty full fine-tuned resumed "
    "hidden undisturbed temporary stored finished complete further intact"
)
VAGUE_AFTER = words("the this that which any whole single")
ARTICLES = words("a an the each every no another any this that")
COUNTED = words("least most than exactly plus minus from to by into equals or and about as but")
IDIOMS = (("by", "one"), ("at", "a"), ("after", "the"), ("after", "another"), ("for", "each"), ("for", "every"))
BE = words(
    "is are was were be been stay stays remain remains means looks nearly exactly bitwise otherwise all both not always"
)
OPERATORS = words("__eq__ __ne__ __lt__ __le__ __gt__ __ge__ __add__ __sub__ __or__ __and__ __mul__ __truediv__")
PRONOUN = re.compile(r"\b(?:those|that) of\b|\blikewise\b|\bones\b(?! and zeros)|(?:^|[.;:] )its own\b", re.I)
INVERSION = re.compile(
    r"\bof which\b[^.]*\?|\b[Ss]t(?:ands?|ood) (?:there|here)\b|\bwhich an? line says\b|\btold in (?:one|a) line\b"
    r"|^(?:Nor|Not only|Only then|Never) (?:is|are|was|were|do|does|did|has|have|can|may|must)\b"
)
METAPHOR = re.compile(
    r"\b(?:yardsticks?|guess(?:es|ed)?|readings|voices?|(?<!back )doors?|rooms)\b"
    r"|\b(?:an?|this|that|which|each|every|its|in the|of the) room\b",
    re.I,
)
SPELLING = re.compile(
    r"\b\w*(?:(?:normal|optim|initial|token|serial|parametr|summar|recogn|organ|quant|general)is(?:e|ed|es|er|ers|ing|ation)"
    r"|behaviour|colour|favour|centre|licence|neighbour|analyse|modelled|modelling|labelled|labelling)\w*",
    re.I,
)
WHAT = re.compile(r"\bwhat\b(?!.*\?)", re.I)
WHAT_AS_A_NOUN = re.compile(r"(?:^\W*|[,;:(] |, and |\b(?:is|are|of) )what\b(?!.*\?)", re.I)
VERBS = (
    "Returns Raises Yields Makes Gets Gives Computes Creates Reads Writes Checks Takes Opens Loads Saves Holds Keeps "
    "Tells Says Shows Puts Sets Adds Applies Builds Calls Converts Finds Runs Counts"
)
THIRD_PERSON = re.compile(rf"(?:{'|'.join(VERBS.split())}) (?!of\b|and\b|in\b|that\b)")
NO_NOUN_PHRASE = re.compile(
    r"(?:Whether|How|What|Where|When|Which|Who|Why|It|Its|They|Their|These|Those|That|If|As|Also|And|Or|But|So|Of|In|For|By|From|With"
    r"|On|At|To|Else|Likewise|The same)\b"
)
HELP_PRONOUN = re.compile(r"(?:the same|likewise|it|its|they|their|those|these|and|or|also|as above|ditto)\b", re.I)

RULES = ("opening", "pronoun", "what", "inversion", "metaphor", "spelling", "name", "duplicate")


class Breach(NamedTuple):
    """A breach of a rule; `text` is a sentence or a symbol."""

    path: str
    line: int
    rule: str
    text: str

    @property
    def entry(self) -> str:
        """The breach as `ALLOWED` lists it."""
        return f"{self.path}: {self.rule}: {self.text}"


def has_vague_one(sentence: str) -> bool:
    """Return whether "one" stands for a noun."""
    parts = ["", "", *(part.lower() for part in re.findall(r"[\w']+(?:-\w+)*|[^\w\s]", sentence)), ".", "."]
    for i in [i for i, part in enumerate(parts) if part == "one"]:
        article, before, after, follow = parts[i - 2 : i] + parts[i + 1 : i + 3]
        ends = after in NO_NOUN or after in tuple(".,;:)?!")
        is_fraction = after == "in" and (follow.isdigit() or follow in ("three", "five", "ten"))
        if before in ALWAYS_VAGUE_AFTER or (before in VAGUE_AFTER and ends):
            return True
        if not ends or (after, follow) in IDIOMS or is_fraction or before == "no":
            continue
        is_counted = before in COUNTED or (before == "only" and article not in ARTICLES)
        if after in ("that", "which", "whose") or (article in ARTICLES and not is_counted):
            return True
        if after in NO_NOUN and after not in ("of", "per", "to") and not is_counted:
            return True
        if after not in NO_NOUN and not is_counted and (before not in ("is", "=") or article == "there"):
            return True
    return False


def has_vague_same(sentence: str) -> bool:
    """Return whether "the same" stands for a noun: no noun follows, and no "is" or the like stands before it."""
    for match in re.finditer(r"\bthe same\b *(`|[\w']+|$|[^\w\s])", sentence, re.I):
        before = re.findall(r"[\w']+", sentence[: match.start()].lower())[-2:]
        no_noun = match[1].lower() in NO_NOUN or (
            not match[1][:1].isalnum() and match[1][:1] not in ("`", '"', "'", "(", "{")
        )
        if no_noun and not BE & set(before):
            return True
    return False


def rules_broken(sentence: str, is_page: bool = False) -> list[str]:
    """Return the rules that a sentence of code, or of a page, breaks."""
    broken = {
        "pronoun": PRONOUN.search(sentence) or has_vague_one(sentence) or has_vague_same(sentence),
        "what": (WHAT_AS_A_NOUN if is_page else WHAT).search(sentence),
        "inversion": INVERSION.search(sentence),
        "metaphor": METAPHOR.search(sentence),
        "spelling": SPELLING.search(sentence),
    }
    return [rule for rule, match in broken.items() if match]


def sentences(text: str, *, as_read: bool = False) -> Iterator[tuple[int, str]]:
    """Yield (line from 0, sentence) of a text of a program; an item of a list or of "Args:" is a sentence.

    Code within a sentence becomes `x`; with `as_read`, the code stays.
    """
    line, paragraph = 0, ""
    for at, row in enumerate([*text.split("\n"), ""]):
        begins = not row.strip() or re.match(r"\s*(?:[-*+] |\d+\. |\S+ {2,}\S)|\s+[\w*, ]+: ", row)
        if begins and paragraph:
            plain = " ".join(paragraph.split())
            plain = plain if as_read else re.sub(r"`[^`]*`", "`x`", plain)
            yield from (
                (line, part.strip()) for part in re.split(r"(?<=[.!?])\s+(?=[A-Z`(*\"])", plain) if part.strip()
            )
            paragraph = ""
        if not paragraph:
            line = at
        paragraph += row + " "


def sentences_of_page(text: str, *, as_read: bool = False) -> Iterator[tuple[int, str]]:
    """Yield (line from 0, sentence) of a Markdown page without blocks of code and addresses.

    The cell of a table is a sentence, and code within a sentence becomes `x`. With `as_read`, the code stays, and a
    cell of four words or more follows the header of its column, as a reader of the page sees them.
    """
    text = re.sub(r"^( *)```.*?^ *```", lambda match: "\n" * match[0].count("\n"), text, flags=re.S | re.M)
    text = re.sub(r"<!--.*?-->|<[^>\n]+>", "", text, flags=re.S)
    text = re.sub(r"\]\([^)\s]*\)", "]", text).replace("**", "")
    if not as_read:
        text = re.sub(r"`[^`\n]*`", "`x`", text)
    blocks: list[tuple[int, str, bool]] = []
    rows = text.split("\n")
    headers: list[str] = []
    for at, row in enumerate(rows):
        if row.lstrip().startswith("|"):
            head = at + 1 < len(rows) and re.match(r"[\s|:-]+$", rows[at + 1]) is not None
            cells = [cell.strip() for cell in row.strip().strip("|").split("|")]
            if head:
                headers = cells
            elif as_read and len(cells) == len(headers):
                cells = [
                    f"{header}: {cell}" if len(cell.split()) >= 4 else cell
                    for header, cell in zip(headers, cells, strict=True)
                ]
            blocks += [(at, cell, head) for cell in cells]
        elif row.startswith("#"):
            blocks.append((at, row.lstrip("# "), True))
        elif (
            blocks
            and row.strip()
            and rows[at - 1].strip()
            and not re.match(r"\s*(?:[-*+>] |\d+\. )", row)
            and not blocks[-1][2]
        ):
            first, block, _ = blocks[-1]
            blocks[-1] = (first, f"{block} {row.strip()}", False)
        elif row.strip():
            blocks.append((at, row.strip(), False))
    for at, block, is_heading in blocks:
        if is_heading and not as_read:
            block = re.sub(r"\bwhat\b", "that", block, flags=re.I)
        yield from (
            (at, part) for part in re.split(r"(?<=[.!?])\s+(?=[A-Z`(\[\"])", block) if re.search(r"[a-zA-Z]", part)
        )


@functools.lru_cache(1)
def nodes_of(source: str) -> list[ast.AST]:
    """Return the nodes of a Python file; the first is the module. To find them takes most of the time of a file."""
    return list(ast.walk(ast.parse(source)))


def texts_of_program(source: str) -> Iterator[tuple[int, str, str]]:
    """Yield (line, "docstring", "comment" or "string", text) of a Python file."""
    comment: list[str] = []
    start = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            start = start if comment else token.start[0]
            comment.append(token.string.lstrip("#: "))
        elif token.type != tokenize.NL and comment:
            yield start, "comment", "\n".join(comment)
            comment = []
    skipped = set[ast.AST]()
    for node in nodes_of(source):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            docstring = first.value if isinstance(first, ast.Expr) else None
            if isinstance(docstring, ast.Constant) and isinstance(docstring.value, str):
                skipped.add(docstring)
                opening, _, rest = docstring.value.partition("\n")
                yield first.lineno, "docstring", f"{opening}\n{textwrap.dedent(rest)}"
        if isinstance(node, ast.JoinedStr):
            skipped |= set(ast.walk(node)) - {node}
            if node not in skipped:
                parts = [str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values]
                yield node.lineno, "string", "".join(parts)
        elif isinstance(node, ast.Constant) and node not in skipped and " " in str(node.value).strip():
            yield node.lineno, "string", str(node.value)


def texts_of_script(source: str) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of the comments and the quoted messages of a shell script, a C or a TOML file."""
    block: list[str] = []
    rows = source.split("\n")
    for at, row in enumerate([*rows, ""], 1):
        match = re.match(r"\s*(?:#+(?!!)|//|/?\*+)(.*)", row)
        if match:
            block.append(match[1].strip())
        elif block:
            yield at - len(block), "\n".join(block)
            block = []
        if not match:
            yield from (
                (at, text) for text in re.findall(r'"([^"]* [^"]* [^"]*)"|(?<=\s)#\s(.*)', row) for text in text if text
            )


def helps(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of `help=` and of the meanings of config fields."""
    for node in nodes:
        if isinstance(node, ast.Call):
            values = [word.value for word in node.keywords if word.arg in ("help", "meaning", "description")]
            if isinstance(node.func, ast.Name) and node.func.id == "field":
                values += node.args[1:2]
            for value in values:
                if isinstance(value, ast.Constant) and isinstance(value.value, str):
                    yield value.lineno, value.value


def named(tree: ast.AST) -> Iterator[tuple[int, str, str]]:
    """Yield (line, symbol, name) of parameters, locals of long functions, public names and fields."""

    def visit(node: ast.AST, prefix: str, in_class: bool) -> Iterator[tuple[int, str, str]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef):
                yield child.lineno, f"{prefix}{child.name}", child.name
                yield from visit(child, f"{prefix}{child.name}.", True)
                continue
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                symbol = prefix + getattr(child, "name", "lambda")
                if not isinstance(child, ast.Lambda):
                    yield child.lineno, symbol, child.name
                is_operator = symbol.rpartition(".")[2] in OPERATORS
                args = child.args
                for arg in [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg]:
                    if arg and not (is_operator and arg.arg == "other"):
                        yield arg.lineno, f"{symbol}.{arg.arg}", arg.arg
                if isinstance(child, ast.Lambda):
                    yield from visit(child, prefix, False)
                    continue
                assert child.end_lineno
                if child.end_lineno - child.lineno + 1 > LONG_FUNCTION:
                    for inner in own_nodes(child):
                        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                            yield inner.lineno, f"{symbol}.{inner.id}", inner.id
                yield from visit(child, f"{symbol}.", False)
                continue
            if isinstance(child, ast.Assign | ast.AnnAssign) and (in_class or isinstance(node, ast.Module)):
                targets = child.targets if isinstance(child, ast.Assign) else [child.target]
                yield from ((child.lineno, f"{prefix}{t.id}", t.id) for t in targets if isinstance(t, ast.Name))
            yield from visit(child, prefix, in_class and not isinstance(child, ast.expr))

    yield from visit(tree, "", False)


def own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a function without the nodes of functions inside it."""
    for child in ast.iter_child_nodes(function):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield child
            yield from own_nodes(child)


def is_vague(name: str) -> bool:
    """Return whether a name is a vague word, or has a metaphor in it."""
    words = {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)}
    return name in VAGUE or bool(METAPHORS & words)


def breaches_of_program(path: str, source: str) -> Iterator[Breach]:
    """Yield the breaches of a Python file, without its duplicate names."""
    for start, kind, text in texts_of_program(source):
        if kind == "docstring":
            opening = text.strip().partition("\n")[0]
            if THIRD_PERSON.match(opening) or NO_NOUN_PHRASE.match(opening):
                yield Breach(path, start, "opening", opening)
        for line, sentence in sentences(text):
            for rule in rules_broken(sentence):
                yield Breach(path, start + line, rule, sentence)
    nodes = nodes_of(source)
    for line, text in helps(nodes):
        if HELP_PRONOUN.match(text):
            yield Breach(path, line, "opening", text)
    seen = set()
    for line, symbol, name in named(nodes[0]):
        if is_vague(name) and symbol not in seen:
            seen.add(symbol)
            yield Breach(path, line, "name", symbol)
    for node in nodes:
        old = getattr(node, "name", "") or getattr(getattr(node, "targets", [node])[0], "id", "")
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Assign) and old in RENAMED:
            yield Breach(path, node.lineno, "name", f"{old} is now {RENAMED[old]}")


def breaches_of_page(path: str, source: str) -> Iterator[Breach]:
    """Yield the breaches of a Markdown page."""
    for line, sentence in sentences_of_page(source):
        for rule in rules_broken(sentence, is_page=True):
            yield Breach(path, line + 1, rule, sentence)


def breaches_of_script(path: str, source: str) -> Iterator[Breach]:
    """Yield the breaches of a shell script, a C or a TOML file."""
    for start, text in texts_of_script(source):
        for line, sentence in sentences(text):
            for rule in rules_broken(sentence):
                yield Breach(path, start + line, rule, sentence)


def breaches_of_test_names(path: str, source: str) -> Iterator[Breach]:
    """Yield the breaches of the names of a file's tests, each read as a sentence."""
    tops = ast.parse(source).body
    for node in (inner for top in tops for inner in (top.body if isinstance(top, ast.ClassDef) else [top])):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            sentence = node.name.removeprefix("test_").replace("_", " ")
            yield from (Breach(path, node.lineno, rule, node.name) for rule in rules_broken(sentence))


def duplicates(sources: dict[str, str]) -> Iterator[Breach]:
    """Yield a breach for each definition of a public function or class that several files define."""
    places: dict[str, dict[str, int]] = collections.defaultdict(dict)
    for path, source in sources.items():
        for node in ast.parse(source).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].setdefault(path, node.lineno)
    for name, lines in places.items():
        if len(lines) > 1:
            yield from (Breach(path, line, "duplicate", name) for path, line in lines.items())


def files() -> Iterator[pathlib.Path]:
    """Yield the files whose language the rules hold; records of decisions are dated and stay as they were written."""
    for top in SCOPE:
        base = ROOT / top
        for path in sorted(base.rglob("*")) if base.is_dir() else [base]:
            if path.suffix in SUFFIXES and not re.match(r"docs/decisions/\d", path.relative_to(ROOT).as_posix()):
                yield path


@functools.cache
def breaches() -> tuple[Breach, ...]:
    """Return all breaches, in the order of the files."""
    found_in: dict[str, Callable[[str, str], Iterator[Breach]]] = {".py": breaches_of_program, ".md": breaches_of_page}
    sources = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in files()}
    result = [
        breach
        for path, source in sources.items()
        for breach in found_in.get(pathlib.Path(path).suffix, breaches_of_script)(path, source)
    ]
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        result += breaches_of_test_names(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))
    result += duplicates(
        {path: text for path, text in sources.items() if path.startswith("bert_jax/") and path.endswith(".py")}
    )
    return tuple(dict.fromkeys(result))


def package(path: str) -> str:
    """Return the key of a file in `UNFINISHED`."""
    return "/".join(path.split("/")[:2])


def counts() -> collections.Counter[str]:
    """Return the number of breaches in each package of bert_jax/ and folder of tests/, without the allowed breaches."""
    return collections.Counter(
        package(b.path) for b in breaches() if b.path.startswith(UNFINISHED_PARTS) and b.entry not in ALLOWED
    )


def test_finished_parts_have_no_breach() -> None:
    listed = [f"{b.path}:{b.line}: {b.rule}: {b.text}" for b in breaches() if not b.path.startswith(UNFINISHED_PARTS)]
    assert not [line for line in listed if re.sub(r":\d+:", ":", line, count=1) not in ALLOWED]


def test_breaches_of_unfinished_parts_only_fall() -> None:
    now = counts()
    assert {key: number for key, number in now.items() if number > UNFINISHED.get(key, 0)} == {}, (
        "`python tests/test_language.py PATH` lists them"
    )
    assert not [key for key in UNFINISHED if not now[key]], "finished: remove the entry"


def test_allowed_breaches_exist_and_are_few() -> None:
    assert len(ALLOWED) <= MAX_ALLOWED
    assert not ALLOWED - {breach.entry for breach in breaches()}, "no longer a breach: remove the entry"


def main(arguments: list[str]) -> int:
    """Print the breaches of some paths, or the counts of all packages; return the status."""
    if arguments == ["--counts"]:
        print("UNFINISHED: dict[str, int] = {")
        print("\n".join(f'    "{key}": {count},' for key, count in sorted(counts().items())) + "\n}")
        return 0
    wanted = [pathlib.Path(argument).resolve().relative_to(ROOT).as_posix() for argument in arguments] or ["."]
    listed = [
        breach
        for breach in breaches()
        if any(path in (".", breach.path) or breach.path.startswith(path + "/") for path in wanted)
        and breach.entry not in ALLOWED
    ]
    for b in sorted(listed):
        print(f"{b.path}:{b.line}: {b.rule}: {b.text}")
    print(f"{len(listed)} breaches", dict(collections.Counter(b.rule for b in listed)))
    return 1 if listed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
