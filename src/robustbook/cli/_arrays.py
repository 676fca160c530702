"""The commands ``score`` and ``compare``."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from robustbook.cli import _app
from robustbook.cli._app import Argument, Option, as_messages
from robustbook.cli._output import (
    RATES,
    agreement_fields,
    agreement_lines,
    comparison_fields,
    comparison_lines,
    estimate_fields,
    estimate_lines,
    group_lines,
    plan_lines,
    print_json,
    print_table,
)

_Labels = Annotated[Path | None, Option(help="True classes, (N,), for accuracies.")]
_Prior = Annotated[Path | None, Option(help="Class prior, (K,); uniform if left out.")]
_Tol = Annotated[float, Option(help="Largest gap to the upper bound, in nats.")]
_Key = Annotated[str | None, Option(help="Name of the logits in .npz files.")]
_Calibrate = Annotated[
    tuple[Path, Path] | None,
    Option(
        metavar="LOGITS LABELS",
        help="Two files of labeled source inputs that were not used for training, for "
        "an estimate of the accuracy on the shifted inputs.",
    ),
]
_Probabilities = Annotated[
    bool, Option(help="The files hold probabilities; a 0 counts as 1e-12.")
]
_Plan = Annotated[
    float | None,
    Option(
        metavar="NATS", min=0, help="Plan how many pairs find this difference in PA."
    ),
]
_JSON = 'Print JSON; infinite numbers are "inf", undefined ones null.'
_Json = Annotated[bool, Option("--json", help=_JSON)]


@_app.app.command()
def score(
    clean: Annotated[
        Path, Argument(help="Logits of the clean inputs, (N, K): .npy, .npz, .csv.")
    ],
    shifted: Annotated[
        Path, Argument(help="Logits of the same inputs, shifted, in that order.")
    ],
    labels: _Labels = None,
    prior: _Prior = None,
    tol: _Tol = 1e-9,
    key: _Key = None,
    calibrate: _Calibrate = None,
    probabilities: _Probabilities = False,
    groups: Annotated[
        Path | None,
        Option(
            help="Group of each sample, (N,), such as its patient, for 95 % intervals."
        ),
    ] = None,
    plan: _Plan = None,
    as_json: _Json = False,
) -> None:
    """Score a model: posterior agreement between clean and shifted inputs."""
    from robustbook._array_files import read_labels
    from robustbook.agreement import (
        calibrate_beta,
        log_probabilities,
        paired_accuracy,
        posterior_agreement,
    )
    from robustbook.scores import accuracy

    files = {"logits": clean, "shifted_logits": shifted}
    source = dict(zip(_SOURCE, calibrate or (None, None), strict=True))
    others = {"labels": labels, "prior": prior, "groups": groups}
    with as_messages({**files, **others, **source, **_PLANNED}):
        both = _read_logits([clean, shifted], key, probabilities=probabilities)
        true, weights = _read_labels_and_prior(labels, prior)
        if probabilities:
            named = zip(files, both, strict=True)
            both = [log_probabilities(array, name=name) for name, array in named]
        takes_long = math.prod(both[0].shape) > 2**26 and sys.stderr.isatty()
        agreement = posterior_agreement(
            *both, prior=weights, tol=tol, progress=takes_long
        )
        count = agreement.num_samples
        scores = {"same_answer_rate": round(count * (1 - agreement.mismatch)) / count}
        if true is not None:
            names = "accuracy", "shifted_accuracy"
            scores |= {n: accuracy(x, true) for n, x in zip(names, both, strict=True)}
        estimate = None
        if calibrate:
            path, answers = calibrate
            (on,) = _read_logits([path], key, probabilities=probabilities)
            calibration = calibrate_beta(
                on, read_labels(answers), probabilities=probabilities
            )
            estimate = paired_accuracy(*both, calibrated_on=calibration)
        grouped = _by_groups(groups, agreement, estimate)
        # Two models like this one, whose contributions are uncorrelated.
        error = (grouped[0] if grouped else agreement).standard_error
        needed = _pairs_needed(plan, error * math.sqrt(2 * count))
    if as_json:
        fields = agreement_fields(agreement) | scores | estimate_fields(estimate)
        by_group = {"by_group": [vars(each) for each in grouped]} if grouped else {}
        print_json(fields | by_group | needed)
        return
    rates = [(RATES[name], f"{scores[name]:.4f}") for name in RATES if name in scores]
    lines = agreement_lines(agreement, uniform=prior is None)
    lines += [*rates, *estimate_lines(estimate), *group_lines(grouped)]
    print_table([*lines, *plan_lines(plan, needed)])


def _by_groups(path: Path | None, agreement: Any, estimate: Any) -> list[Any]:
    """Return intervals of the agreement and the estimated accuracy by groups."""
    if path is None:
        return []
    from robustbook._array_files import FileError, read_labels
    from robustbook.agreement import interval_by_groups

    try:
        groups, results = read_labels(path), [agreement, estimate]
    except FileError as error:
        remedy = "; groups are numbers here: np.unique(names, return_inverse=True)[1]"
        raise FileError(f"{error}{remedy}") from error
    return [interval_by_groups(each, groups) for each in results if each is not None]


def _pairs_needed(plan: float | None, deviation: float) -> dict[str, int]:
    from robustbook.agreement import pairs_needed

    return {} if plan is None else {"pairs_needed": pairs_needed(plan, deviation)}


_ROWS_LOOKED_AT = 10_000
_TOP = (
    "rows look like log-probabilities of the most probable classes only; agreement "
    "needs all K of them, and this score is of another model"
)

#: Sources of arguments in messages: the two calibration files, and --plan.
_SOURCE = "calibration logits", "calibration labels"
_PLANNED = {
    "difference": "--plan",
    "deviation": "--plan: the spread of these logits",
}


#: Options of compare that are for a list of models, and for files of logits.
_OF_FILES = ("labels", "prior", "tol", "key", "calibrate", "plan")
_OF_MODELS = ("images", "eps", "sigma", "skip", "seed", "device")


@_app.app.command()
def compare(
    context: typer.Context,
    files: Annotated[
        list[Path],
        Argument(
            metavar="CLEAN_A SHIFTED_A CLEAN_B SHIFTED_B | MODELS.txt",
            help="Logits (N, K) of model A on clean and on shifted inputs, then of "
            "model B on the same; or a list of models, with one name or import path "
            "on each line, where # starts a comment.",
            show_default=False,
        ),
    ],
    labels: _Labels = None,
    prior: _Prior = None,
    tol: _Tol = 1e-9,
    key: _Key = None,
    calibrate: Annotated[
        tuple[Path, Path, Path] | None,
        Option(
            metavar="LOGITS_A LOGITS_B LABELS",
            help="Files of labeled source inputs, as for score, of both models.",
        ),
    ] = None,
    data: Annotated[
        str | None, Option(help="Images for listed models, as for report.")
    ] = None,
    images: _app.Images = None,
    eps: _app.Eps = None,
    sigma: _app.Sigma = None,
    skip: _app.Skip = None,
    seed: _app.Seed = 0,
    device: _app.Device = "auto",
    engine: _app.EngineName = "local",
    plan: _Plan = None,
    as_json: _Json = False,
) -> None:
    """Compare two models, or many, on the same pairs: paired differences at 95 %.

    The exit status is 1 if a listed model could not be measured.

    \b
    robustbook compare clean_a.npy shifted_a.npy clean_b.npy shifted_b.npy
    robustbook compare models.txt --data digits:test --images 50
    """
    if len(files) == 1 and files[0].suffix == ".txt":
        _app.refuse_options(context, "four files of logits", *_OF_FILES)
        with as_messages(resumable=True):
            from robustbook.report import Request, sweep

            if data is None:
                raise ValueError("--data: expected images to measure the models on")
            options = {name: context.params[name] for name in _OF_MODELS}
            _app.import_from_here()
            results = sweep(Request(model=str(files[0]), data=data, **options), engine)
        print_json(results.numbers) if as_json else print(results.table)
        raise typer.Exit(bool(results.failures))
    if len(files) != 4:
        _app.fail(
            "expected four files, clean and shifted logits of model A and of model B, "
            f"or one list of models that ends in .txt; got {len(files)}"
        )
    _app.refuse_options(context, "a list of models", "data", "engine", *_OF_MODELS)
    from robustbook._array_files import read_labels
    from robustbook._comparison import compare_models

    arguments = ("logits_a", "shifted_a", "logits_b", "shifted_b")
    named = dict(zip(arguments, files, strict=True))
    truth = {"labels": labels, "prior": prior, _SOURCE[1]: (calibrate or [None])[-1]}
    with as_messages({**named, **truth, **_PLANNED}):
        logits = _read_logits(files, key)
        true, weights = _read_labels_and_prior(labels, prior)
        first, second = (logits[0], logits[1]), (logits[2], logits[3])
        source = None
        if calibrate:
            *on, answers = calibrate
            source = [*_read_logits(on, key), read_labels(answers)]
        comparison = compare_models(
            first, second, true, prior=weights, tol=tol, calibrated_on=source
        )
        error = comparison.differences["pa"].standard_error
        needed = _pairs_needed(plan, error * math.sqrt(len(logits[0])))
    if as_json:
        print_json(comparison_fields(comparison, files) | needed)
        return
    lines = comparison_lines(comparison, files) + plan_lines(plan, needed)
    print_table(lines, width=26)


def _read_logits(
    paths: list[Path], key: str | None, *, probabilities: bool = False
) -> list[Any]:
    """Read logits; remark on rows that may not be logits."""
    import numpy as np

    from robustbook._array_files import read_array
    from robustbook._checks.arguments import PROBABILITIES, are_probabilities

    logits = [read_array(path, key=key, default="logits") for path in paths]
    for path, array in dict(zip(paths, logits, strict=True)).items():
        if probabilities or array.ndim != 2 or not array.size:
            continue
        # Some rows are enough, since a file may be larger than memory.
        if are_probabilities(rows := array[:_ROWS_LOOKED_AT]):
            _app.say(f"{path}: {PROBABILITIES}")
        elif (rows <= 0).all():
            sums = np.exp(rows).sum(1)
            if sums.max() < 1.001 and sums.min() < 0.99:
                _app.say(f"{path}: {_TOP}")
    return logits


def _read_labels_and_prior(labels: Path | None, prior: Path | None) -> tuple[Any, Any]:
    from robustbook._array_files import read_array, read_labels

    true = None if labels is None else read_labels(labels)
    weights = None if prior is None else read_array(prior, default="prior").squeeze()
    return true, weights
