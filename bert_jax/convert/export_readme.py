"""README.md of an exported program: Python code that runs it, the check of its outputs, and its latency."""

import json
import math
import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from bert_jax.convert.expected_outputs import has_vectors
from bert_jax.errors import UserError
from bert_jax.interop import stablehlo
from bert_jax.interop.huggingface.model import MULTI_LABEL
from bert_jax.interop.onnx_file import FILE as ONNX_FILE
from bert_jax.interop.onnx_file import OPENVINO_FILE
from bert_jax.interop.sentence_modules import TOKEN_VECTORS, VECTORS, SentenceModules
from bert_jax.models import Head
from bert_jax.search.text_vectors import DOCUMENTS, QUERIES, prompt_of_role
from bert_jax.tasks.kinds.multilabel_score import DEFAULT_THRESHOLD
from bert_jax.tokenizer import Tokenizer

FENCE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


class ProgramCode(NamedTuple):
    """Python code of a row of PROGRAM_CODE."""

    imports: str
    open: str  # code that opens the program
    call: str  # code that computes `outputs` from `inputs`
    our_names: bool = False  # True if the outputs have the names of bert_jax instead of the names of transformers


PROGRAM_CODE: dict[str, ProgramCode] = {
    "onnxruntime": ProgramCode(
        "import numpy as np\nimport onnxruntime\nfrom tokenizers import Tokenizer\n",
        f"""session = onnxruntime.InferenceSession("{ONNX_FILE}", providers=["CPUExecutionProvider"])
names = [output.name for output in session.get_outputs()]
""",
        "outputs = dict(zip(names, session.run(names, inputs)))\n",
    ),
    "openvino": ProgramCode(
        "import numpy as np\nimport openvino\nfrom tokenizers import Tokenizer\n",
        f"""# Without the hint, OpenVINO computes in bfloat16 on a CPU that multiplies bfloat16.
model = openvino.compile_model("{OPENVINO_FILE}", "CPU", {{"INFERENCE_PRECISION_HINT": "f32"}})
""",
        "outputs = {port.any_name: x for port, x in model(inputs).items()}\n",
    ),
    "jax": ProgramCode(
        "import json\n\nimport jax\nimport jax.export\nimport numpy as np\nfrom tokenizers import Tokenizer\n",
        f"""manifest = json.load(open("{stablehlo.MANIFEST}"))
archive = np.load("{stablehlo.WEIGHTS}")
weights = [jax.device_put(archive[name]) for name in manifest["weights"]]
program = jax.jit(jax.export.deserialize(bytearray(open("{stablehlo.PROGRAM}", "rb").read())).call)
""",
        """arrays = [np.asarray(inputs[entry["name"]], np.int32) for entry in manifest["inputs"]]
outputs = {name: np.asarray(x) for name, x in program(weights, *arrays).items()}
""",
        our_names=True,
    ),
}


PAIRS_OF_TEXTS = 'texts = [("a query", "a document"), ("a query", "another document")]\n'


class AnswerCode(NamedTuple):
    """A row of ANSWER_CODE: Python code, in which LOGITS stands for the name of the output."""

    print: str  # code that prints the answer from `outputs`
    texts: str = 'texts = ["a text", "another text"]\n'
    inputs: str = ""  # code that changes `inputs`
    is_labeled: bool = False  # whether the code reads `labels`


# Kind of answer -> its code.
ANSWER_CODE: dict[str, AnswerCode] = {
    "label": AnswerCode(
        "for logits in outputs[LOGITS]:\n    print(labels[logits.argmax()])\n",
        is_labeled=True,
    ),
    "label_set": AnswerCode(
        "for logits in outputs[LOGITS]:\n"
        "    probabilities = 1 / (1 + np.exp(-logits))\n"
        "    print([label for label, p, t in zip(labels, probabilities, thresholds) if p >= t])\n",
        is_labeled=True,
    ),
    "value": AnswerCode("print(outputs[LOGITS][:, 0])\n"),
    "probability": AnswerCode("print(1 / (1 + np.exp(-outputs[LOGITS][:, 0])))\n"),
    "token_labels": AnswerCode(
        "for encoding, logits in zip(encodings, outputs[LOGITS]):\n"
        "    print([(token, labels[i]) for token, i in zip(encoding.tokens, logits.argmax(-1))])\n",
        is_labeled=True,
    ),
    "span": AnswerCode(
        'scores = outputs["start_logits"][0][:, None] + outputs["end_logits"][0]\n'
        "in_text = np.array([number == 1 for number in encodings[0].sequence_ids])\n"
        "spans = np.triu(np.outer(in_text, in_text)) & ~np.triu(np.ones_like(scores, bool), max_answer_length)\n"
        "scores[~spans] = -np.inf\n"
        "first, last = np.unravel_index(scores.argmax(), scores.shape)\n"
        "offsets = encodings[0].offsets\n"
        "answer = texts[0][1][offsets[first][0] : offsets[last][1]]\n"
        'null_score = outputs["start_logits"][0][0] + outputs["end_logits"][0][0]\n'
        'print("" if null_score - scores.max() > null_threshold else answer)\n',
        texts='texts = [("a question", "a text with the answer")]\n',
    ),
    "choice": AnswerCode(
        "print(outputs[LOGITS][0].argmax())  # number of the best continuation\n",
        texts='texts = [("a text", "a continuation"), ("a text", "another continuation")]\n',
        inputs="inputs = {name: x[None] for name, x in inputs.items()}  # the choices of one example\n",
    ),
    "token": AnswerCode(
        "print(tokenizer.id_to_token(int(outputs[LOGITS][0, AT_MASK].argmax())))\n",
        texts='texts = [f"a {MASK} text"]\n',
        inputs="position = encodings[0].tokens.index(MASK)\n",
    ),
    "vectors": AnswerCode(f'vectors = outputs["{VECTORS}"]\nprint(vectors.shape)\nprint(vectors @ vectors.T)\n'),
    "sparse_vectors": AnswerCode(
        f'for vector in outputs["{VECTORS}"]:\n'
        "    print({tokenizer.id_to_token(int(i)): round(float(vector[i]), 2) for i in np.flatnonzero(vector)})\n"
    ),
    "shapes": AnswerCode("for name, x in outputs.items():\n    print(name, x.shape)\n"),
}
# Head -> the kind of its answer; other heads have the kind "shapes". `answer_kind` returns the kind of classifiers.
KINDS_OF_HEADS = {
    "token_classification": "token_labels",
    "question_answering": "span",
    "multiple_choice": "choice",
    "masked_token": "token",
}
KINDS_OF_VECTORS = {"dense": "vectors", "sparse": "sparse_vectors", "late_interaction": "token_vectors"}
OUR_LOGITS = {"token_labels": "token_logits", "choice": "choice_logits", "token": "mlm_logits"}


def answer_kind(heads: Sequence[Head], problem: str, activation: str, sentences: SentenceModules | None) -> str:
    """Return the key in ANSWER_CODE for the kind of answer that a model with these heads gives."""
    if sentences and has_vectors(sentences):
        return KINDS_OF_VECTORS[sentences.vector_head]
    head = heads[0] if heads else Head("")
    if head.name != "sequence_classification":
        return KINDS_OF_HEADS.get(head.name, "shapes")
    if head.classes == 1:
        return "probability" if activation == "sigmoid" else "value"
    return "label_set" if problem == MULTI_LABEL else "label"


def usage_code(
    runtime: str,
    kind: str,
    tokenizer: Tokenizer,
    has_token_types: bool,
    max_length: int,
    labels: Sequence[str],
    thresholds: Sequence[float] | None,
    max_answer_length: int,
    null_threshold: float,
    sentences: SentenceModules | None,
    reads_pairs: bool,
    logits: str,
) -> str:
    """Return Python code that runs the program in the current directory and prints its answer for a text.

    Args:
        runtime: a row of PROGRAM_CODE.
        kind: a row of ANSWER_CODE, or "token_vectors".
        tokenizer: the tokenizer, for the padding and the mask token.
        has_token_types: whether the program has the input `token_type_ids`.
        max_length: maximum number of tokens of a text.
        labels: names of the classes.
        thresholds: probability from which a text has a label, for each label; None: 0.5 for all labels.
        max_answer_length: maximum number of tokens of an answer to a question.
        null_threshold: a question has no answer if the score of "no answer" is larger than the score of the best answer
            by more than this number; infinite if every question has an answer.
        sentences: modules of sentence-transformers; the returned code applies their prompts and lowercasing.
        reads_pairs: whether the model was trained on pairs of texts.
        logits: name of the logits in transformers.
    """
    program = PROGRAM_CODE[runtime]
    open_code = f'{program.imports}\n{program.open}tokenizer = Tokenizer.from_file("tokenizer.json")\n'
    token = json.dumps(tokenizer.special.pad, ensure_ascii=False)
    pad_code = f"tokenizer.enable_padding(pad_id={tokenizer.pad_id}, pad_token={token})\n"
    types = "encoding.type_ids" if tokenizer.second_type else "[0] * len(encoding.ids)"  # as `predict` counts types
    token_types = f'    "token_type_ids": np.array([{types} for encoding in encodings], np.int64),\n'
    encode_code = (
        "encodings = tokenizer.encode_batch(texts)\n"
        "inputs = {\n"
        '    "input_ids": np.array([encoding.ids for encoding in encodings], np.int64),\n'
        '    "attention_mask": np.array([encoding.attention_mask for encoding in encodings], np.int64),\n'
        f"{token_types if has_token_types else ''}}}\n"
    )
    if kind == "token_vectors":
        assert sentences
        steps = (pad_code, encode_code, program.call)
        return open_code + _code_of_late_interaction(sentences, tokenizer, max_length, *steps)
    answer = ANSWER_CODE[kind]
    key = json.dumps(OUR_LOGITS.get(kind, "sequence_logits") if program.our_names else logits)
    printing = answer.print.replace("LOGITS", key).replace("AT_MASK", "0" if program.our_names else "position")
    constants, inputs, texts = "", answer.inputs, PAIRS_OF_TEXTS if reads_pairs else answer.texts
    if answer.is_labeled:
        constants = f"labels = {json.dumps(list(labels), ensure_ascii=False)}\n"
    if kind == "label_set":
        constants += f"thresholds = {json.dumps(list(thresholds or [DEFAULT_THRESHOLD] * len(labels)))}\n"
    if kind == "span":
        constants = f"max_answer_length = {max_answer_length}\n"
        constants += f"null_threshold = {null_threshold if math.isfinite(null_threshold) else 'np.inf'}\n"
    if kind == "token":
        constants = f"MASK = {json.dumps(tokenizer.special.mask, ensure_ascii=False)}\n"
        inputs += 'inputs["masked_positions"] = np.array([[position]])\n' if program.our_names else ""
    if sentences:
        texts = _code_of_texts(sentences, texts)
    return (
        f"{open_code}tokenizer.enable_truncation({max_length})\n{pad_code}{constants}\n"
        f"{texts}{encode_code}{inputs}{program.call}{printing}"
    )


def _code_of_late_interaction(
    sentences: SentenceModules, tokenizer: Tokenizer, max_length: int, pad_code: str, encode_code: str, call: str
) -> str:
    """Return Python code that makes the vectors of a query and two documents, and prints a score for each document.

    Args:
        sentences: the rules that choose the tokens of queries and documents.
        tokenizer: the tokenizer of the model.
        max_length: maximum number of tokens of a text.
        pad_code: code that makes the tokenizer pad the texts of a batch to one length.
        encode_code: code that makes `inputs` from `texts`.
        call: code that computes `outputs` from `inputs`.

    Raises:
        UserError: mask tokens fill queries beyond `max_length`.
    """
    rules = sentences.token_rules
    if rules.expands and (rules.query_length or 0) > max_length:
        raise UserError(f"queries have {rules.query_length} tokens, but the model reads {max_length}")
    lengths = [min(length or max_length, max_length) for length in (rules.query_length, rules.document_length)]
    skipped = [token_id for token_id, token in enumerate(tokenizer.tokens) if token in {*rules.skipped_words}]
    mask = f"pad_id={tokenizer.mask_id}, pad_token={json.dumps(tokenizer.special.mask, ensure_ascii=False)}"
    expand_code = "if is_query:  # mask tokens fill the query\n"
    expand_code += f"    tokenizer.enable_padding({mask}, length=max_length)\n"
    of_query = "compared[:] = True"
    of_query += '\n    inputs["attention_mask"][:] = 1  # all tokens attend to the mask tokens' if rules.attends else ""
    choosing = f"if is_query:\n    {of_query}\nelse:" if rules.expands else "if not is_query:"
    body = (
        f"tokenizer.enable_truncation(max_length)\n{pad_code}{expand_code if rules.expands else ''}{encode_code}"
        'compared = inputs["attention_mask"] != 0  # the tokens whose vectors are compared\n'
        f'{choosing}\n    compared &= ~np.isin(inputs["input_ids"], skipped)\n'
        f'{call}return [vectors[keep] for vectors, keep in zip(outputs["{TOKEN_VECTORS}"], compared)]\n'
    )
    query, document = (prompt_of_role(sentences.prompts, sentences.prompt, role) for role in (QUERIES, DOCUMENTS))
    texts = [query + "a query", document + "a document", document + "another document"]
    quoted = [json.dumps(text.lower() if sentences.lower_case else text, ensure_ascii=False) for text in texts]
    return (
        f"skipped = {skipped}  # ids of the tokens of a document that are not compared\n\n\n"
        "def token_vectors(texts, max_length, is_query):\n"
        '    """Return the vectors of the compared tokens of each text, [tokens, width]."""\n'
        f"{textwrap.indent(body, '    ')}\n\n"
        f"(query,) = token_vectors([{quoted[0]}], {lengths[0]}, True)\n"
        f"for document in token_vectors([{quoted[1]}, {quoted[2]}], {lengths[1]}, False):\n"
        "    print((query @ document.T).max(1).sum())\n"
    )


def _code_of_texts(sentences: SentenceModules, texts: str) -> str:
    """Return Python code that makes texts for a model of sentence-transformers, with prompts and lowercasing.

    If queries and documents have different prompts, the code makes a query and a document. Otherwise, the result is the
    code `texts`, and code that puts the default prompt before each text. For a CrossEncoder, the code makes pairs of
    texts, and puts the default prompt before the first text of each pair.
    """
    default = json.dumps(sentences.prompt, ensure_ascii=False)
    if sentences.activation:
        first, second = f"{default} + text" if sentences.prompt else "text", "other"
        if sentences.lower_case:
            first, second = f"({first}).lower()", "other.lower()"
        changed = "" if first == "text" else f"texts = [({first}, {second}) for text, other in texts]\n"
        return PAIRS_OF_TEXTS + changed
    query, document = (prompt_of_role(sentences.prompts, sentences.prompt, role) for role in (QUERIES, DOCUMENTS))
    quoted = [json.dumps(prompt, ensure_ascii=False) for prompt in (query, document)]
    changed, loop = f"{default} + text" if sentences.prompt else "text", "text in texts"
    if query != document:
        texts = f'texts = ["a query", "a document"]\nprompts = [{", ".join(quoted)}]\n'
        changed, loop = "prompt + text", "prompt, text in zip(prompts, texts)"
    changed = f"({changed}).lower()" if sentences.lower_case else changed
    return texts if changed == "text" else f"{texts}texts = [{changed} for {loop}]\n"


def readme_text(title: str, notes: Sequence[str], package: str, code: str) -> str:
    """Return README.md of a program, without measurements."""
    return "\n".join(
        [
            f"# {title}\n",
            *(f"{note}\n" for note in notes),
            "## Run it\n",
            f"`pip install {package} numpy tokenizers`, then in this directory:\n",
            f"```python\n{code}```\n",
            "## Check it\n",
            "`expected_outputs.safetensors` holds the outputs of bert_jax for a batch of random tokens. "
            "`bert-jax verify --run .` compares every installed runtime with them.\n",
        ]
    )


def measurements_text(printed: str, latency: Mapping[str, Mapping[int, float]], machine: str, length: int) -> str:
    """Return the sections of README.md about the output of its code and about latency.

    Args:
        printed: output of the code in the section "Run it".
        latency: runtime and version -> batch size -> median milliseconds of a batch.
        machine: name of the processor.
        length: number of tokens of a text.
    """
    sizes: list[Any] = list(next(iter(latency.values())))
    lines = [
        "## Measured\n",
        "The code above ran when this directory was written. It printed:\n",
        f"```\n{printed}```\n",
    ]
    lines += [f"Median milliseconds of a batch of texts of {length} tokens, on one core of {machine}:\n"]
    lines += ["| runtime | " + " | ".join(f"batch {size}" for size in sizes) + " |", "| --- " * (1 + len(sizes)) + "|"]
    lines += [
        f"| {name} | " + " | ".join(f"{times[size]:,.1f}" for size in sizes) + " |" for name, times in latency.items()
    ]
    return "\n".join([*lines, ""])
