"""The fields that only fine-tuning has: the task, and the adapter that trains in place of the encoder."""

import dataclasses

from bert_jax.config.field import (
    ABOVE_0,
    ABOVE_0_BELOW_1,
    ABOVE_0_TO_HALF,
    AT_LEAST_0,
    AT_LEAST_1,
    AT_LEAST_8,
    FROM_0_BELOW_1,
    FROM_0_TO_1,
    ReadBy,
    field,
)

WITH_TEACHER = ReadBy("teacher", not_values=(None, ""))
WITH_TEMPLATE = ReadBy("template", not_values=(None,))
WITH_SPARSE = ReadBy("vector_head", row_property="is_sparse")
WITH_TOKEN_VECTORS = ReadBy("vector_head", row_property="has_token_vectors")
WITH_ADAPTER = ReadBy("rank", not_values=(None,))


@dataclasses.dataclass(frozen=True)
class TaskConfig:
    """The task to fine-tune on, its files, and the choice of the best of several trainings."""

    name: str | None = field(None, "name of a task in bert_jax/tasks/table.py, such as mrpc or squad2; or custom")
    kind: str | None = field(None, "kind of a custom task", table="bert_jax.tasks.kinds.KINDS")
    data: str | None = field(
        None, "directory of the task's published files, plain or .gz; or tfds:NAME, tfds:NAME@DATA_DIR", is_path=True
    )
    train: str | None = field(
        None,
        "training file, relative to task.data or absolute; similarity: one or more files, separated by commas, and "
        "each batch has pairs of one file; None: the published name",
        is_path=True,
    )
    train_weights: tuple[float, ...] | None = field(
        None, "similarity: sampling weight of each file of task.train; None: in proportion to the number of batches"
    )
    dev: str | None = field(None, "development file; None: the published name", is_path=True)
    dev_fraction: float | None = field(
        None,
        "fraction of the training file that is held out as the dev set, stratified by label; None: a file",
        ABOVE_0_TO_HALF,
    )
    dev_seed: int = field(
        0, "seed of the dev set that is held out", AT_LEAST_0, read_by=ReadBy("dev_fraction", not_values=(None,))
    )
    test: str | None = field(None, "test file, predicted at the end; None: the published name", is_path=True)
    columns: str | None = field(None, "columns of a custom task: 'text=sentence1,text_pair=sentence2,label=gold'")
    delimiter: str | None = field(None, "character between the columns of CSV and TSV; None: found in the header")
    skip_unlabeled: bool = field(
        False, "leave out and count rows without a label; False: refuse them, with their numbers"
    )
    labels: str | None = field(None, "labels of a custom task: 'no,yes'; None: the labels of the training file, sorted")
    label_separator: str | None = field(
        None, "character between the labels of a text in CSV and TSV, for kinds with several labels"
    )
    template: str | None = field(
        None,
        "text with one mask that a classification makes of its texts, such as '{text} It was [MASK].'; the label is "
        "then the word at the mask, by the masked-token head (PET, LM-BFF); None: a classification head",
    )
    verbalizers: str | None = field(
        None,
        "words of the labels at the mask, each of one token: 'positive=great|good,negative=terrible'; a label that is "
        "not named is its word",
        read_by=WITH_TEMPLATE,
    )
    threshold: float | None = field(
        None,
        "probability from which a label of a multilabel classification is predicted; None: tuned on the dev set",
        ABOVE_0_BELOW_1,
    )
    threshold_per_label: bool = field(
        False,
        "tune a threshold for each label of a multilabel classification; False: one threshold for all labels",
        read_by=ReadBy("threshold", values=(None,)),
    )
    class_weights: str | None = field(
        None,
        "weights of the labels in the loss: balanced, inverse_square_root, or 'spam=5,ham=1'; None: equal weights",
    )
    focal_gamma: float = field(0.0, "exponent of the focal loss (Lin et al. 2017); 0: cross entropy", AT_LEAST_0)
    oversample: bool = field(
        False, "repeat training examples of rare labels, so that each label is as frequent as the most frequent label"
    )
    metric: str | None = field(None, "metric that chooses the best checkpoint; None: the metric of the task")
    max_seq_len: int = field(128, "maximum tokens per sequence", AT_LEAST_1)
    buckets: tuple[int, ...] | None = field(
        None, "padded lengths of sequences; each length needs a compiled program; None: lengths chosen from the data"
    )
    doc_stride: int = field(
        128,
        "number of tokens between the starts of two consecutive windows of a long context; at most the length of a "
        "window",
        AT_LEAST_1,
    )
    max_query_length: int = field(
        64, "maximum tokens of a question; longer questions are truncated and counted", AT_LEAST_1
    )
    max_answer_length: int = field(30, "maximum tokens of an answer", AT_LEAST_1)
    skip_unusable_answers: bool = field(
        False,
        "leave out and count training questions whose answer is not at its stated offset in the context; False: "
        "refuse such files",
    )
    positive_from: float = field(
        4.0,
        "similarity: smallest label of a positive training pair",
        read_by=ReadBy("vector_loss", row_property="selects_positives"),
    )
    vector_loss: str = field(
        "info_nce", "similarity: loss of the sentence vectors", table="bert_jax.objectives.vector_losses.VECTOR_LOSSES"
    )
    vector_head: str = field(
        "dense", "similarity: head that makes the vectors of texts", table="bert_jax.tasks.vector_heads.VECTOR_HEADS"
    )
    query_flops_weight: float = field(
        5e-5,
        "sparse: weight of the FLOPS regularization of the vectors of queries (SPLADE); 0: no regularization",
        AT_LEAST_0,
        read_by=WITH_SPARSE,
    )
    document_flops_weight: float = field(
        3e-5,
        "sparse: weight of the FLOPS regularization of the vectors of documents; 0: no regularization",
        AT_LEAST_0,
        read_by=WITH_SPARSE,
    )
    flops_warmup_fraction: float = field(
        1 / 3,
        "sparse: fraction of the training in which the weights of the regularization rise quadratically from 0",
        FROM_0_TO_1,
        read_by=WITH_SPARSE,
    )
    vector_width: int = field(
        128, "late_interaction: width of the vector of a token", AT_LEAST_1, read_by=WITH_TOKEN_VECTORS
    )
    query_length: int | None = field(
        32,
        "late_interaction: number of tokens of a query; mask tokens fill shorter queries, and longer queries are "
        "truncated and counted; None: no mask tokens",
        AT_LEAST_8,
        read_by=WITH_TOKEN_VECTORS,
    )
    attend_to_expansion: bool = field(
        False,
        "late_interaction: let all tokens of a query read the mask tokens that fill the query; False: only the vectors "
        "of the mask tokens count",
        read_by=(WITH_TOKEN_VECTORS, ReadBy("query_length", not_values=(None,))),
    )
    skip_punctuation: bool = field(
        True, "late_interaction: leave out the vectors of punctuation in documents", read_by=WITH_TOKEN_VECTORS
    )
    temperature: float | None = field(
        None,
        "similarity: divisor of the scores of pairs in the loss; None: 0.05 for dense vectors, 1 for other heads",
        ABOVE_0,
        read_by=ReadBy("vector_loss", row_property="reads_temperature"),
    )
    learned_temperature: bool = field(
        False,
        "similarity: train the temperature, which starts at task.temperature and is at least 0.01",
        read_by=ReadBy("vector_loss", values=("info_nce",)),
    )
    symmetric: bool = field(
        False,
        "info_nce: also compare each text_pair with every text; the loss is the mean of both directions",
        read_by=ReadBy("vector_loss", values=("info_nce",)),
    )
    false_negative_margin: float | None = field(
        None,
        "info_nce: leave out negatives whose cosine exceeds the positive's cosine by more than this margin; 0.1 in "
        "Qwen3 Embedding; None: only texts equal to a right text are left out",
        read_by=ReadBy("vector_loss", values=("info_nce",)),
    )
    triplet_margin: float = field(
        0.2,
        "triplet: margin between the cosines of positive and negative",
        ABOVE_0,
        read_by=ReadBy("vector_loss", values=("triplet",)),
    )
    score_temperature: float = field(
        1.0,
        "teacher_kl: divisor of the teacher's scores",
        ABOVE_0,
        read_by=ReadBy("vector_loss", values=("teacher_kl",)),
    )
    matryoshka_sizes: tuple[int, ...] | None = field(
        None,
        "similarity: widths at which shortened vectors are trained as well (Kusupati et al. 2022), such as (32,64); "
        "None: only whole vectors",
        read_by=ReadBy("vector_head", row_property="can_shorten"),
    )
    query_prompt: str | None = field(
        None,
        "similarity: prompt before each text, such as 'query: '; the exported model keeps it; '': no prompt; "
        "None: the prompt of the weights, if any",
    )
    document_prompt: str | None = field(
        None,
        "similarity: prompt before each text_pair and negative, such as 'passage: '; the exported model keeps it; "
        "'': no prompt; None: the prompt of the weights, if any",
    )
    retrieval: str | None = field(
        None,
        "similarity: collection in the layout of BEIR that every evaluation searches; task.metric=ndcg@10 then chooses "
        "the best model; None: no search",
        is_path=True,
    )
    retrieval_split: str | None = field(
        None,
        "split of the judgments of task.retrieval, in qrels/SPLIT.tsv; None: dev, or test if there are no judgments of "
        "dev",
        read_by=ReadBy("retrieval", not_values=(None,)),
    )
    n_best: int = field(20, "number of answers per question in the predictions", AT_LEAST_1)
    epochs: float = field(3.0, "number of passes over the training set", ABOVE_0)
    num_seeds: int = field(1, "number of trainings with consecutive seeds, starting at config.seed", AT_LEAST_1)
    learning_rates: tuple[float, ...] | None = field(
        None, "learning rates to try; each is trained with each seed; None: only optimizer.peak_learning_rate"
    )
    patience: int | None = field(
        None,
        "early stopping: number of evaluations without a new best score after which a training ends; None: no "
        "early stopping",
        AT_LEAST_1,
    )
    dropout: float | None = field(
        None, "dropout rate of encoder and head; None: the dropout rate in the config of the weights", FROM_0_BELOW_1
    )
    teacher: str | None = field(
        None,
        "model directory of a teacher that was fine-tuned on the task; the model learns from the teacher and "
        "the labels; None: only from the labels",
        is_path=True,
    )
    soft_fraction: float = field(
        0.5,
        "fraction of the loss that compares the model with the teacher; the rest compares the model with the labels",
        FROM_0_TO_1,
        read_by=WITH_TEACHER,
    )
    soft_temperature: float = field(
        2.0,
        "temperature of the teacher's and the student's softmax, for tasks with probabilities",
        ABOVE_0,
        read_by=WITH_TEACHER,
    )
    bilstm: bool = field(
        False, "add two bidirectional LSTM layers between encoder and head; needs model.family=research (BERT, table 5)"
    )
    random_weights: bool = field(
        False, "start from random weights, with the architecture and tokenizer of init_from, as a baseline"
    )


@dataclasses.dataclass(frozen=True)
class AdapterConfig:
    """LoRA: the trained matrices beside frozen linear maps of the encoder."""

    rank: int | None = field(
        None, "rank of the matrices of LoRA; None: no adapter, all weights are trained", AT_LEAST_1
    )
    alpha: float = field(
        16.0,
        "numerator of LoRA's scale: the product of two matrices is multiplied by alpha / rank",
        ABOVE_0,
        read_by=WITH_ADAPTER,
    )
    targets: str | None = field(
        None,
        "linear maps with an adapter, by their names in transformers or the ends of these names: 'query,value'; "
        "all-linear: all of the encoder; None: the maps to queries and values",
        read_by=WITH_ADAPTER,
    )
    dropout: float = field(0.0, "dropout rate on the input of the matrices", FROM_0_BELOW_1, read_by=WITH_ADAPTER)
