"""Errors for fields that contradict each other, name no row of their table, or have no effect."""

import dataclasses
import importlib
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from bert_jax.config.field import ReadBy
from bert_jax.config.phase import section_of_phase
from bert_jax.config.schema import Config, DataConfig, OptimizerConfig, PretrainConfig
from bert_jax.errors import UserError, did_you_mean

# Fields whose rows the weights of a run need; the rule of sentence pairs decides the heads.
ROWS_OF_WEIGHTS = ("config.model.", "config.objective", "config.data.sentence_pairs")


class FieldValue(NamedTuple):
    """A field with its value in a config."""

    key: str  # such as config.train.phases[0].seq_len
    field: "dataclasses.Field[Any]"
    value: Any
    read_by: tuple[ReadBy, ...]  # conditions of the field and of the sections around it


def field_values(section: Any, path: str, read_by: tuple[ReadBy, ...] = ()) -> Iterator[FieldValue]:
    """Yield every field of a config or section with its value; `path` is the key of that config or section."""
    for field in dataclasses.fields(section):
        key, value = f"{path}.{field.name}", getattr(section, field.name)
        conditions = read_by + field.metadata["read_by"]
        if dataclasses.is_dataclass(value):
            yield from field_values(value, key, conditions)
        elif isinstance(value, tuple) and value and dataclasses.is_dataclass(value[0]):
            for index, part in enumerate(value):
                yield from field_values(part, f"{key}[{index}]", conditions)
        else:
            yield FieldValue(key, field, value, conditions)


def table_of_field(field: "dataclasses.Field[Any]") -> Any:
    """Return the table whose keys are the allowed values of a field; imports only the module of this table."""
    module, _, name = field.metadata["table"].rpartition(".")
    return getattr(importlib.import_module(module), name)


def check_choices(config: Any, path: str = "config", prefixes: tuple[str, ...] = ("",)) -> None:
    """Raise UserError if the value of a field is not a row of the field's table.

    Args:
        config: a config or a section of a config.
        path: key of `config`.
        prefixes: only fields whose key begins with one of these prefixes are checked.
    """
    for setting in field_values(config, path):
        value = setting.value
        if (
            setting.field.metadata["table"]
            and setting.key.startswith(prefixes)
            and value is not None
            and value not in (table := table_of_field(setting.field))
        ):
            raise UserError(f"{setting.key}={value!r}: choose from {', '.join(table)}{did_you_mean(value, table)}")


def check_run_table_rows(config: Config, workdir: object, prefixes: tuple[str, ...] = ("",)) -> None:
    """Raise UserError if a run's config names a row that no table has, since only the run's recipe adds this row.

    The recipe is not run here, because a work directory is data, which may come from anywhere. `prefixes` is as in
    `check_choices`; the weights of a run need only the rows of `ROWS_OF_WEIGHTS`.
    """
    try:
        check_choices(config, prefixes=prefixes)
    except UserError as error:
        raise UserError(
            f"{workdir}: {error}; if a recipe adds this row, give the recipe: --recipe {config.recipe or 'FILE'}"
        ) from None


def refuse_empty_paths(config: Any, path: str = "config") -> None:
    """Raise UserError if an optional path is the empty text, which would mean the current directory, or no path."""
    for setting in field_values(config, path):
        if setting.value == "" and setting.field.metadata["is_path"] and setting.field.default is None:
            raise UserError(f"{setting.key} is empty; give a path, or None")


def refuse_fields_without_effect(
    config: Any, path: str = "config", given: Collection[str] = (), with_tables: bool = True
) -> None:
    """Raise UserError if a field is set but has no effect, by its conditions `read_by`, `replaced_by` and so on.

    Args:
        config: a config or a section that has passed `check_choices`.
        path: key of the config or section.
        given: keys on the command line, such as `train.batch_size`. A recipe may set a field that another field
        replaces, or a field with `recipe_may_set`, but on the command line such a field is an error.
        with_tables: also check conditions on rows of tables, which imports the tables.
    """
    settings = {setting.key: setting for setting in field_values(config, path)}
    phases = config.train.used_phases if isinstance(config, PretrainConfig) else {}
    for unmet in unmet_conditions(settings, path, with_tables):
        condition, chosen = unmet.condition, unmet.choice
        if condition.recipe_may_set and unmet.setting.key.removeprefix(f"{path}.") not in given:
            continue
        of_phase = f"{unmet.setting.key.rpartition('.')[0]}.{condition.choice}"  # a phase may set the choice, too
        fix_key = of_phase if of_phase in settings else chosen.key
        fix = f"change {fix_key}" if condition.not_values else ""
        fix = f"{fix_key} to {' or '.join(map(str, condition.values))}" if condition.values else fix
        default = unmet.setting.field.default
        raise no_effect_error(unmet.setting.key, f"{chosen.key}={chosen.value}", default, fix)
    objectives = [settings[f"{path}.train.phases[{index}].objective"] for index in phases]
    if objectives and all(objective.value for objective in objectives):
        of_run = settings[f"{path}.objective"]
        if of_run.value == of_run.field.default:  # otherwise, `make_objective` refuses the objectives of the phases
            _refuse_fields_that_no_phase_reads(settings, objectives, with_tables)
    for setting in (settings[f"{path}.{key}"] for key in given):
        metadata = setting.field.metadata
        replacing = metadata["replaced_by"] and _choice_of(settings, path, setting, metadata["replaced_by"])
        if replacing and replacing.value not in (None, ()):
            replacement = f"{metadata['replaced_by']}={replacing.value}"
            raise UserError(f"{setting.key} has no effect with {replacement}; add --{replacing.key}=None")
        condition, name = metadata["still_read_by"], metadata["replaced_by_phase"]
        choice = condition and _choice_of(settings, path, setting, condition.choice)
        is_replaced = name and phases and all(getattr(phase, name) is not None for phase in phases.values())
        if is_replaced and not (choice and _is_met(condition, choice, with_tables)):
            raise UserError(
                f"{setting.key} has no effect: every phase has its own {name}; set "
                f"{path}.train.phases[{min(phases)}].{setting.field.name}"
            )


def _refuse_fields_that_no_phase_reads(
    settings: Mapping[str, FieldValue], objectives: Sequence[FieldValue], with_tables: bool
) -> None:
    """Raise UserError if a field of the run is set, and none of the phases' own objectives reads the field."""
    first = objectives[0]
    for setting in settings.values():
        is_set = setting.value != setting.field.default and ".phases[" not in setting.key
        conditions = [condition for condition in setting.read_by if is_set and condition.choice == "objective"]
        for condition in conditions:
            if not any(_is_met(condition, objective, with_tables) for objective in objectives):
                raise no_effect_error(setting.key, f"{first.key}={first.value}", setting.field.default)


class UnmetCondition(NamedTuple):
    """A field that is set but has no effect, its unmet condition, and the field whose value the condition tests."""

    setting: FieldValue
    condition: ReadBy
    choice: FieldValue


def unmet_conditions(
    settings: Mapping[str, FieldValue], path: str, with_tables: bool = True
) -> Iterator[UnmetCondition]:
    """Yield the unmet conditions of the fields of a config that differ from their defaults."""
    for setting in settings.values():
        for condition in setting.read_by if setting.value != setting.field.default else ():
            choice = _choice_of(settings, path, setting, condition.choice)
            if choice and not _is_met(condition, choice, with_tables):
                yield UnmetCondition(setting, condition, choice)


def _choice_of(settings: Mapping[str, FieldValue], path: str, setting: FieldValue, name: str) -> FieldValue | None:
    """Return the field `name` of the setting's section; if the field is absent or None, the config's field."""
    in_section = settings.get(f"{setting.key.rpartition('.')[0]}.{name}")
    if in_section is None or in_section.value is None:
        return settings.get(f"{path}.{name}", in_section)
    return in_section


def _is_met(condition: ReadBy, choice: FieldValue, with_tables: bool) -> bool:
    """Return whether the value of `choice` fulfills the condition."""
    if condition.row_property:
        row = table_of_field(choice.field).get(choice.value) if with_tables else None
        return row is None or bool(getattr(row, condition.row_property))
    return choice.value in condition.values if condition.values else choice.value not in condition.not_values


def phase_warnings(config: PretrainConfig, given: Collection[str]) -> Iterator[str]:
    """Yield a warning for each phase whose own values replace fields that were set on the command line.

    Yield a warning, too, if the first phase changes the architecture of the initial weights.

    Args:
        config: a checked config.
        given: keys on the command line, such as `train.batch_size`.
    """
    replaceable = [
        setting
        for setting in field_values(config, "config")
        if setting.key.removeprefix("config.") in given and setting.field.metadata["replaced_by_phase"]
    ]
    for index, phase in config.train.used_phases.items():
        key = f"train.phases[{index}]"
        replaced = {  # field -> the field of the phase that replaces it
            setting: setting.field.metadata["replaced_by_phase"]
            for setting in replaceable
            if f"{key}.{setting.field.name}" not in given
        }
        replaced = {setting: name for setting, name in replaced.items() if getattr(phase, name) is not None}
        if replaced:
            names = " and ".join(setting.key for setting in replaced)
            values = " and ".join(f"{name}={getattr(phase, name)}" for name in dict.fromkeys(replaced.values()))
            fixes = " ".join(f"--config.{key}.{setting.field.name}={setting.value}" for setting in replaced)
            yield f"warning: no effect of {names} in phase {index + 1}, which sets {values}; add {fixes}"
    first = min(config.train.used_phases)
    changed = dataclasses.asdict(section_of_phase(config.model, config.train.phases[first]))
    for name, value in dataclasses.asdict(config.model).items() if config.init_from else ():
        if changed[name] != value:
            yield (
                f"warning: phase {first + 1} trains the weights of config.init_from with {name}={changed[name]}, and "
                f"they have {value}; to keep this value, add --config.train.phases[{first}].{name}=None"
            )


def no_effect_error(key: str, choice: str, default: object, fix: str = "") -> UserError:
    """Return the UserError for a field that is set but has no effect.

    Args:
        key: dotted key of the field.
        choice: the setting `KEY=VALUE` because of which the field has no effect.
        default: default of the field.
        fix: another way to fix the mistake; "": no other way.
    """
    return UserError(f"{key} has no effect with {choice}; set it to {default}{f', or {fix}' if fix else ''}")


def check_pretraining(config: PretrainConfig) -> None:
    """Raise UserError if fields of a pretraining config contradict each other."""
    model, data, train = config.model, config.data, config.train
    if model.bottleneck_size is None and model.head_size is None and model.hidden_size % model.num_heads:
        raise UserError(
            f"config.model.num_heads={model.num_heads} does not divide config.model.hidden_size={model.hidden_size}"
        )
    if not math.isclose(total := sum(phase.fraction for phase in train.phases), 1.0, abs_tol=1e-6):
        raise UserError(f"config.train.phases: the fractions add up to {total:g}; they must add up to 1")
    check_warmup(config.optimizer, train.steps)
    _check_weights("config.data", data.weights)
    for index, phase in train.used_phases.items():
        key = f"config.train.phases[{index}]"
        if not 8 <= phase.seq_len <= model.max_positions:
            raise UserError(
                f"{key}.seq_len={phase.seq_len}: sequences have 8 to {model.max_positions} tokens "
                "(config.model.max_positions); choose such a length"
            )
        if phase.warmup_steps is not None and phase.warmup_steps >= (steps := round(phase.fraction * train.steps)):
            raise UserError(f"{key}.warmup_steps={phase.warmup_steps}, but the phase has {steps} steps; lower it")
        of_phase = section_of_phase(data, phase)
        _check_weights(key, of_phase.weights)
        mask, random = of_phase.mask_token_fraction, of_phase.random_token_fraction
        if mask + random > 1:
            raise UserError(
                f"{key}: mask_token_fraction={mask:g} and random_token_fraction={random:g} add up to more than 1"
            )
    default, mixtures = DataConfig(), [section_of_phase(data, phase) for phase in train.used_phases.values()]
    if data.smoothing != default.smoothing and all(mixture.weights is not None for mixture in mixtures):
        raise no_effect_error("config.data.smoothing", "the weights of every phase", default.smoothing)
    if data.max_epochs is not None and all(
        (mixture.weights, mixture.smoothing) == (default.weights, default.smoothing) for mixture in mixtures
    ):
        raise no_effect_error(
            "config.data.max_epochs", "config.data.weights=None", None, "set config.data.weights or smoothing"
        )


def _check_weights(key: str, weights: tuple[float, ...] | None) -> None:
    """Raise UserError unless no weight in the section `key` is below 0 and at least one weight is above 0."""
    if weights and (min(weights) < 0 or not sum(weights)):
        raise UserError(f"{key}.weights={weights}: give numbers from 0 on, at least one of them above 0")


def check_warmup(optimizer: OptimizerConfig, steps: int) -> None:
    """Raise UserError if the warmup has at least as many steps as the run."""
    if optimizer.warmup_steps is not None and optimizer.warmup_steps >= steps:
        raise UserError(
            f"config.optimizer.warmup_steps={optimizer.warmup_steps}, but the run has {steps} steps; lower it, or set "
            "it to None to use config.optimizer.warmup_fraction"
        )
