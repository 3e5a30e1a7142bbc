"""The main function of `bert-jax pretrain`: a config and a corpus -> a work directory."""

import contextlib
import dataclasses
import functools
import pathlib
from typing import NamedTuple

import jax

from bert_jax.batches.masking import data_config_of_phase
from bert_jax.batches.sentence_pairs import SENTENCE_PAIRS
from bert_jax.config import (
    PretrainConfig,
    check_choices,
    no_effect_error,
    refuse_fields_without_effect,
    section_of_phase,
    to_json,
    values_that_hosts_share,
    with_vocab_size,
)
from bert_jax.console import Console
from bert_jax.corpus.mixture import Mixture, corpus_setting_with_snapshots, open_mixture, snapshots_of
from bert_jax.corpus.statistics import token_counts, unigram_loss
from bert_jax.errors import UserError
from bert_jax.models import Head
from bert_jax.objectives import OBJECTIVES, make_objective, predicts_masks
from bert_jax.parallel import sharding
from bert_jax.pretraining.corpus_weights import random_weights_with_corpus_vectors
from bert_jax.pretraining.data import heldout_batches, passes_per_source, sequence_rules, training_batches
from bert_jax.pretraining.describe_run import describe_run, evaluation_line, long_cpu_run_warning
from bert_jax.pretraining.evaluate import evaluation_documents, with_pairs_accuracy
from bert_jax.pretraining.initial_weights import (
    check_exportable,
    copy_teacher_layers,
    keep_original_init,
    read_initial_weights,
)
from bert_jax.pretraining.requirements import write_or_compare_versions
from bert_jax.pretraining.snapshots import ALL_PREPARED, BackgroundPreparation, check_snapshots_exist
from bert_jax.pretraining.teacher import Teacher, read_teacher
from bert_jax.readers.hub import make_local_path_absolute
from bert_jax.scoring.minimal_pairs import PACKAGED
from bert_jax.tokenizer import Tokenizer
from bert_jax.training import workdir
from bert_jax.training.checkpoint import package_versions
from bert_jax.training.evaluation import Evaluate, evaluation_batch_size, make_evaluate
from bert_jax.training.loop import fit
from bert_jax.training.plan import Data, Plan, Session, no_remarks
from bert_jax.training.plateau import Plateau, expected_end_of_plateau, has_plateau, likely_causes
from bert_jax.training.profile import profiled_steps
from bert_jax.training.schedules import plan_phases
from bert_jax.training.start import initial_state, open_checkpoints, restore_start
from bert_jax.training.step import check_divisible_by_mesh


class FinishedRun(NamedTuple):
    """A finished run: the heads of its model, the user's recipe, and the opened corpus with its tokenizer."""

    heads: tuple[Head, ...]
    recipe: str | None  # value of `config.recipe`
    corpus: Mixture
    tokenizer: Tokenizer
    has_heldout: bool  # whether the run evaluated on held-out documents


def pretrain_in_directory(
    config: PretrainConfig,
    directory: pathlib.Path,
    session: Session,
    preparation: BackgroundPreparation = ALL_PREPARED,
) -> FinishedRun | None:
    """Run or resume `config` in `directory`; return None if a signal ended the run early (its state is saved).

    Every process of the run calls this function, with equal configs and a directory that all processes can access.

    Raises:
        UserError: the config, the corpus, the directory or the devices do not fit each other; nothing is written.
    """
    console, is_first = session.console, jax.process_index() == 0

    # Open the inputs: the run that is resumed, the corpus, its tokenizer.
    check_choices(config)
    if not config.data.corpus:
        raise UserError(
            "no corpus: give --config.data.corpus=DIR, made by `bert-jax prepare`, or --config.data.text=FILES"
        )
    recorded = workdir.recorded_config(directory)
    refuse_fields_without_effect(config, with_tables=not recorded)  # a run of an earlier version may resume
    resumed = recorded if recorded and workdir.has_checkpoints(directory) else None
    corpus = open_mixture(config.data.corpus, console.say, recorded.data.corpus if recorded else None, console.progress)
    tokenizer, evaluation_corpus = corpus.tokenizer(), None
    if config.evaluate.corpus:
        recorded_corpus = recorded.evaluate.corpus if recorded else None
        evaluation_corpus = open_mixture(config.evaluate.corpus, console.say, recorded_corpus, console.progress)

    # Resolve the config, check that its parts fit each other, and agree with the other processes.
    config = resolve_pretrain_config(config, corpus, evaluation_corpus, tokenizer, resumed, console)
    corpus_name = str(config.data.corpus)
    phases, objective_row = plan_phases(config.train), OBJECTIVES[config.objective]
    max_seq_len = max(phase.seq_len for phase in phases)
    for model in {section_of_phase(config.model, phase) for phase in config.train.used_phases.values()}:
        check_exportable(model, config.objective, config.data.sentence_pairs, tokenizer.special_ids)
    if config.data.snapshots:
        check_snapshots_exist(config.data.snapshots, corpus, preparation)
    teacher = Teacher()
    if objective_row.has_teacher:
        teacher = read_teacher(config.distillation.teacher, tokenizer, max_seq_len, corpus_name, console)
    objective = make_objective(config, teacher.config)
    recorded_values = to_json(config)
    fingerprint = {"corpus": corpus.fingerprint, "tokenizer": corpus.tokenizer_sha256, **teacher.fingerprint}
    if jax.process_count() > 1:
        settings = values_that_hosts_share(recorded_values, without=("data.corpus",))
        session.watchdog.check_agreement(settings | package_versions() | fingerprint | {"resumes": str(bool(resumed))})
    plan = Plan(
        workdir=directory,
        root=directory,
        recorded_config=recorded_values,
        fingerprint=fingerprint,
        seed=config.seed,
        objective=objective,
        phases=phases,
        mesh=sharding.make_mesh(config.mesh),
        optimizer=config.optimizer,
        compute=config.compute,
        train=config.train,
        evaluate_every=config.evaluate.every,
        evaluate_first=bool(config.init_from),
        checkpoint=config.checkpoint,
        profiled_steps=profiled_steps(config.profile.steps, config.train.steps) if config.profile.steps else None,
    )
    check_divisible_by_mesh(plan.mesh, objective, phases, config.evaluate.batch_size)

    rules, train_split = sequence_rules(config, tokenizer), corpus.split("train")
    passes = passes_per_source(train_split, rules, phases)
    # Read the weights to start from; None: random weights, or the weights of the checkpoint that is resumed.
    copies_teacher = bool(teacher.config) and config.distillation.copy_layers
    params = None
    if not resumed and config.init_from:
        params = read_initial_weights(
            config.init_from,
            config.model,
            objective_row.heads(config.data.sentence_pairs),
            objective_row.auxiliary(config.model, config.replaced_tokens),
            grow=config.grow,
            seed=config.seed,
            tokenizer=tokenizer,
            corpus=corpus_name,
            console=console,
        )
    elif not resumed and copies_teacher and teacher.config:
        path = config.distillation.teacher
        params = copy_teacher_layers(dict(teacher.params), teacher.config, config.model, path, console)
    elif not resumed and config.corpus_vectors:
        params = random_weights_with_corpus_vectors(config.seed, objective, config.model, train_split, passes, console)

    # Make the data: batches by step, held-out batches, their evaluation, remarks for the console.
    blocks, min_documents = sharding.batch_blocks(plan.mesh), SENTENCE_PAIRS[config.data.sentence_pairs].min_documents
    heldout_split = corpus.split("heldout", min_documents)
    if evaluation_corpus:
        path, sha256 = str(config.evaluate.corpus), corpus.tokenizer_sha256
        heldout_split = evaluation_documents(path, evaluation_corpus, corpus_name, sha256, min_documents)
    has_heldout = heldout_split.num_documents >= min_documents
    if config.evaluate.pairs and not has_heldout:
        choice, fix = "too few held-out documents", "prepare the corpus with a higher --heldout_fraction"
        raise no_effect_error("config.evaluate.pairs", choice, None, fix)
    unigram_losses, remarks = dict[str, float](), no_remarks
    if is_first:
        counts = token_counts(train_split, corpus.vocab_size, passes)
        if not any(data_config_of_phase(config.data, rules.phases[phase.index]).rarity_power for phase in phases):
            unigram_losses["train"] = unigram_loss(counts, counts)
        if has_heldout:
            unigram_losses["heldout"] = unigram_loss(counts, token_counts(heldout_split, corpus.vocab_size))
        masked = map(predicts_masks, config.train.used_phases.values())
        begins_above = has_plateau(config.init_from, copies_teacher, config.corpus_vectors, masked)
        if begins_above or config.train.plateau_steps is not None:
            mask_probability = rules.phases[phases[0].index].mask_probability or config.data.mask_probability
            causes = likely_causes(config.model, config.optimizer.peak_learning_rate, phases[0], mask_probability)
            expected = expected_end_of_plateau(config.train.plateau_steps, config.optimizer, phases)
            remarks = Plateau(expected, plan.last_step, causes).remarks
    heldout, evaluate, evaluations = None, None, dict[int, Evaluate]()
    heads = objective_row.heads(config.data.sentence_pairs)
    if has_heldout:
        evaluate = make_evaluate(objective, plan.mesh)
        evaluations = {
            index: make_evaluate(of_phase, plan.mesh) for index, of_phase in objective.evaluated_phases.items()
        }
        heldout = heldout_batches(
            heldout_split,
            rules,
            blocks,
            num_sequences=config.evaluate.num_sequences,
            batch_size=config.evaluate.batch_size or evaluation_batch_size(max_seq_len, plan.mesh),
            eval_uses_training_masks=objective_row.eval_uses_training_masks,
        )
        if config.evaluate.pairs is not None:
            with_pairs = functools.partial(
                with_pairs_accuracy,
                mesh=plan.mesh,
                dtype=config.compute.dtype,
                heads=heads,
                pairs=config.evaluate.pairs,
                num_pairs=config.evaluate.num_pairs,
                tokenizer=tokenizer,
                should_stop=session.heartbeat,
            )
            evaluate = with_pairs(evaluate, model=config.model)
            for index in (index for index in evaluations if predicts_masks(config.train.phases[index])):
                model = section_of_phase(config.model, config.train.phases[index])
                evaluations[index] = with_pairs(evaluations[index], model=model)
    data = Data(
        batches=training_batches(corpus, rules, phases, blocks, preparation),
        heldout=heldout,
        evaluate=evaluate,
        phase_evaluations=evaluations,
        frozen=teacher.params,
        unigram_losses=unigram_losses,
        remarks=remarks,
    )

    # Take the work directory, and describe the run.
    with workdir.locked_workdir(directory) if is_first else contextlib.nullcontext():
        if is_first:
            workdir.write_or_check_run(directory, plan.recorded_config, fingerprint, corpus.tokenizer_directory)
            write_or_compare_versions(directory, console.say)
        sizes = [((phase.end - phase.begin) * phase.batch_size, phase.seq_len, phase.index) for phase in phases]
        flops = sum(count * objective.flops(seq_len, index) for count, seq_len, index in sizes)
        if line := long_cpu_run_warning(flops, plan.mesh):  # printed first, because the fix is another command
            console.say(line)
        for line in describe_run(corpus, rules, phases, config.model, config.compute):
            console.say(line)
        if not has_heldout:
            console.say("no evaluation: too few held-out documents; `prepare --heldout_fraction` sets their number")
        elif not config.evaluate.corpus and (left_out := corpus.directories_left_out("heldout", min_documents)):
            console.say(f"too few held-out documents in {', '.join(left_out)}; the evaluation reads the other corpora")
        if has_heldout:
            console.say(evaluation_line(heldout_split.num_tokens, config.evaluate, max_seq_len, config.model.causal))

        # Restore the newest state, even if it appeared before the lock, or make the first state; then train.
        with open_checkpoints(plan, session) as checkpoints:
            if checkpoints is None:
                return None
            start = restore_start(plan, checkpoints, console) or initial_state(plan, params)
            if not fit(plan, data, start, checkpoints, session):
                return None
    return FinishedRun(heads=heads, recipe=config.recipe, corpus=corpus, tokenizer=tokenizer, has_heldout=has_heldout)


def resolve_pretrain_config(
    config: PretrainConfig,
    corpus: Mixture,
    evaluation_corpus: Mixture | None,
    tokenizer: Tokenizer,
    resumed: PretrainConfig | None,
    console: Console,
) -> PretrainConfig:
    """Return the config with all values resolved, so that the run can be resumed from another working directory.

    The vocabulary size comes from the tokenizer, paths become absolute, `config.data.corpus` and
    `config.evaluate.corpus` name the opened snapshots, and a resumed run keeps its initial weights.

    Args:
        config: config of the command.
        corpus: opened corpus of `config.data.corpus`.
        evaluation_corpus: opened corpus of `config.evaluate.corpus`; None: the field is not set.
        tokenizer: tokenizer of the corpus.
        resumed: recorded config of the resumed run; None: the run has no checkpoints.
        console: console that prints a line if the config names other weights.
    """
    if len(corpus.corpora) == 1:
        phases = {f"config.train.phases[{index}]": phase for index, phase in config.train.used_phases.items()}
        for key, section in {"config.data": config.data, **phases}.items():
            for name in ("weights", "smoothing"):
                if getattr(section, name) != (default := getattr(type(section)(), name)):
                    raise no_effect_error(f"{key}.{name}", "one corpus", default)
    config = with_vocab_size(config, tokenizer.vocab_size)
    assert config.data.corpus
    pairs = config.evaluate.pairs
    init_from, generator_from = (
        make_local_path_absolute(config.init_from),
        make_local_path_absolute(config.replaced_tokens.generator_from),
    )
    if resumed:
        init_from = keep_original_init("init_from", init_from, resumed.init_from, console)
        original = resumed.replaced_tokens.generator_from
        generator_from = keep_original_init("replaced_tokens.generator_from", generator_from, original, console)
        if config.grow and not resumed.grow:
            console.say("config.grow=True has no effect: the run resumes; it began without it")
    evaluated = None
    if evaluation_corpus:
        evaluated = corpus_setting_with_snapshots(str(config.evaluate.corpus), evaluation_corpus)
    if resumed and snapshots_of(evaluated) != snapshots_of(resumed.evaluate.corpus):
        now, before = (name or "the held-out documents" for name in (evaluated, resumed.evaluate.corpus))
        console.say(f"the evaluations now read {now}, and read {before} before; compare losses on equal text only")
    return dataclasses.replace(
        config,
        init_from=init_from,
        grow=resumed.grow if resumed else config.grow,
        data=dataclasses.replace(config.data, corpus=corpus_setting_with_snapshots(config.data.corpus, corpus)),
        evaluate=dataclasses.replace(
            config.evaluate,
            corpus=evaluated,
            pairs=pairs if pairs in PACKAGED else make_local_path_absolute(pairs),
        ),
        replaced_tokens=dataclasses.replace(config.replaced_tokens, generator_from=generator_from),
        distillation=dataclasses.replace(
            config.distillation, teacher=make_local_path_absolute(config.distillation.teacher)
        ),
    )
