"""The command line ``robustbook``: score, compare, report, data.

Torch and the extras are imported by the commands that need them: ``--help`` and
mistyped commands answer at once.
"""

from __future__ import annotations

import io
import json
import math
import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer import Argument, Option

from robustbook import __version__

if TYPE_CHECKING:
    from robustbook._comparison import Comparison
    from robustbook.report import Sweep


app = typer.Typer(
    help="Measure the robustness of classifiers.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
data = typer.Typer(help="Data sets of the book.", no_args_is_help=True)
app.add_typer(data, name="data")

_Lines = list[tuple[str, str]]

_Labels = Annotated[Path | None, Option(help="True classes, (N,): adds accuracies.")]
_Prior = Annotated[Path | None, Option(help="Class prior, (K,); uniform if left out.")]
_Tol = Annotated[float, Option(help="Largest gap to the upper bound, in nats.")]
_Key = Annotated[str | None, Option(help="Name of the logits in .npz files.")]
_Calibrate = Annotated[
    tuple[Path, Path] | None,
    Option(
        metavar="LOGITS LABELS",
        help="Of labelled source inputs, no training data, in two files: adds an "
        "estimate of the accuracy on the shifted inputs.",
    ),
]
_Probabilities = Annotated[
    bool, Option(help="The files hold probabilities; a 0 counts as 1e-12.")
]
_JSON = 'One JSON object; infinite numbers are "inf", undefined ones null.'
_Json = Annotated[bool, Option("--json", help=_JSON)]


def main() -> None:
    """Run the command line; it ends with words, never a traceback."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # β and ∞ are not in every terminal's encoding.
        sys.stdout.reconfigure(errors="replace")
    try:
        try:
            app(prog_name="robustbook")
        finally:
            sys.stdout.flush()
    except OSError as error:
        if not isinstance(error, BrokenPipeError):
            where = f"{error.filename}: " if error.filename else ""
            _say(f"{where}{error.strerror or error}")
        # What is left in the buffer would fail again when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def _say(message: object, *_: Any, **__: Any) -> None:
    print("robustbook:", " ".join(str(message).split()), file=sys.stderr)


def _fail(message: str, *, status: int = 2) -> NoReturn:
    _say(message)
    raise typer.Exit(status)


@contextmanager
def _in_words(files: Mapping[str, Path | None] | None = None) -> Iterator[None]:
    """Warnings and errors in a line each: 2 for what was asked, 1 for what failed.

    Where a message starts with the name of an argument, its file's is said instead.
    """
    with warnings.catch_warnings():
        warnings.showwarning = _say
        try:
            yield
        except (TypeError, ValueError) as error:
            argument, colon, rest = str(error).partition(":")
            path = (files or {}).get(argument)
            _fail(str(error) if path is None else f"{path}{colon}{rest}")
        except typer.Exit:  # a RuntimeError
            raise
        except (ArithmeticError, ImportError, OSError, RuntimeError) as error:
            _fail(str(error), status=1)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit


_Version = Option(
    "--version",
    callback=_show_version,
    is_eager=True,
    help="Show the version and exit.",
)


@app.callback()
def _common(version: Annotated[bool, _Version] = False) -> None:
    pass


_Data = Annotated[
    str,
    Option(
        help="Data set with split, such as digits:test, or a file .npz or "
        ".safetensors with images (N, C, H, W) in [0, 1] and, if known, labels."
    ),
]
_Images = Annotated[
    int | None, Option(min=10, help="Drawn at random; 200 if left out.")
]
_Skip = Annotated[
    list[str] | None,
    Option(help="Lens to leave out: agreement, average-case, margins; or several."),
]
_Eps = Annotated[
    str | None,
    Option(
        help="ℓ∞ bound of the attack, of pixels in [0, 1]: of one model, that of its "
        "training where we know it, else 8/255."
    ),
]
_Sigma = Annotated[
    float | None, Option(help="Standard deviation of the noise: likewise, else 0.1.")
]
_Seed = Annotated[int, Option(min=0, help="Of all that is random.")]
_Device = Annotated[str, Option(help="auto, cpu, cuda or cuda:N.")]
_EngineName = Annotated[
    str,
    Option(help="Where many models run: local, local:N processes, dask://HOST:PORT."),
]


# --- score and compare ----------------------------------------------------------------


@app.command()
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
    as_json: _Json = False,
) -> None:
    """Posterior agreement of a model between clean and shifted inputs."""
    from robustbook.agreement import log_probabilities, posterior_agreement

    files = {"logits": clean, "shifted_logits": shifted}
    source = dict(zip(_SOURCE, calibrate or (None, None), strict=True))
    with _in_words(files | {"labels": labels, "prior": prior} | source):
        both, true, weights = _read(
            files, labels, prior, key, mapped=True, probabilities=probabilities
        )
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
            scores |= {n: _accuracy(x, true) for n, x in zip(names, both, strict=True)}
        estimate = calibrate and _paired_accuracy(both, calibrate, key, probabilities)
    if as_json:
        _print_json(_fields(agreement) | scores | _estimate_fields(estimate))
        return
    rates = [(_RATES[name], f"{scores[name]:.4f}") for name in _RATES if name in scores]
    lines = _agreement_lines(agreement, uniform=prior is None)
    _print_table([*lines, *rates, *_estimate_lines(estimate)])


#: What the messages of the calibration call the two files.
_SOURCE = "calibration logits", "calibration labels"


def _paired_accuracy(
    pair: list[Any], calibrate: tuple[Path, Path], key: str | None, probabilities: bool
) -> Any:
    """The estimate of accuracy, calibrated on two files."""
    from robustbook._array_files import read_labels
    from robustbook.agreement import log_probabilities, paired_accuracy

    named, name = {_SOURCE[0]: calibrate[0]}, _SOURCE[0]
    # The key names arrays of .npz files: of this one it may have no file to look in.
    own = key if calibrate[0].suffix.lower() == ".npz" else None
    (logits,), _, _ = _read(named, None, None, own, probabilities=probabilities)
    if probabilities:
        logits = log_probabilities(logits, name=name)
    on = logits, read_labels(calibrate[1])
    return paired_accuracy(*pair, calibrated_on=on)


def _estimate_fields(estimate: Any) -> dict[str, Any]:
    if estimate is None:
        return {}
    names = "value", "standard_error", "interval", "level"
    fields: dict[str, Any] = {name: getattr(estimate, name) for name in names}
    names = "beta", "interval", "num_samples", "cross_entropy"
    calibration = {name: getattr(estimate.calibration, name) for name in names}
    return {"paired_accuracy": fields | {"calibration": calibration}}


def _estimate_lines(estimate: Any) -> _Lines:
    if estimate is None:
        return []
    (low, high), beta = estimate.interval, estimate.calibration.beta
    value = f"{estimate.value:.4f}, {low:.4f} to {high:.4f} at {estimate.level:.0%}"
    calibrated = "infinite" if math.isinf(beta) else f"{beta:.6g}"
    return [("accuracy, estimated", value), ("  calibrated β", calibrated)]


@app.command()
def compare(
    context: typer.Context,
    files: Annotated[
        list[Path],
        Argument(
            metavar="CLEAN_A SHIFTED_A CLEAN_B SHIFTED_B | MODELS.txt",
            help="Logits (N, K) of model A on clean and on shifted inputs, then of "
            "model B on the same; or a list of models, a name or an import path a "
            "line, what follows # a comment.",
            show_default=False,
        ),
    ],
    labels: _Labels = None,
    prior: _Prior = None,
    tol: _Tol = 1e-9,
    key: _Key = None,
    data: Annotated[
        str | None, Option(help="On what listed models are measured, as in report.")
    ] = None,
    images: _Images = None,
    eps: _Eps = None,
    sigma: _Sigma = None,
    skip: _Skip = None,
    seed: _Seed = 0,
    device: _Device = "auto",
    engine: _EngineName = "local",
    as_json: _Json = False,
) -> None:
    """Two models, or many, on the same pairs: paired differences at 95 %.

    The exit status is 1 if a listed model could not be measured.

    \b
    robustbook compare clean_a.npy shifted_a.npy clean_b.npy shifted_b.npy
    robustbook compare models.txt --data digits:test --images 50
    """
    if len(files) == 1 and files[0].suffix == ".txt":
        _refuse(context, "four files of logits", "labels", "prior", "tol", "key")
        with _in_words(), _going_on():
            if data is None:
                raise ValueError("--data: expected images to measure the models on")
            sweep = _swept(
                engine, model=str(files[0]), data=data, images=images, eps=eps,
                sigma=sigma, skip=_lenses(skip), seed=seed, device=device,
            )  # fmt: skip
        _print_json(sweep.numbers) if as_json else print(sweep.table)
        raise typer.Exit(bool(sweep.failures))
    if len(files) != 4:
        said = "expected four files, clean and shifted logits of model A and of model B"
        _fail(f"{said}, or one list of models that ends in .txt; got {len(files)}")
    _refuse(
        context, "a list of models", "data", "images", "eps", "sigma", "skip", "seed",
        "device", "engine",
    )  # fmt: skip
    from robustbook._comparison import compare_models

    arguments = ("logits_a", "shifted_a", "logits_b", "shifted_b")
    named = dict(zip(arguments, files, strict=True))
    with _in_words(named | {"labels": labels, "prior": prior}):
        logits, true, weights = _read(named, labels, prior, key)
        first, second = (logits[0], logits[1]), (logits[2], logits[3])
        comparison = compare_models(first, second, true, prior=weights, tol=tol)
    names = [(files[0], files[1]), (files[2], files[3])]
    if as_json:
        _print_json(_comparison_fields(comparison, names))
        return
    _print_table(_comparison_lines(comparison, names), width=26)


def _refuse(context: typer.Context, kind: str, *options: str) -> None:
    """Refuse options that would be passed over."""
    for option in options:
        source = context.get_parameter_source(option)
        if source is not None and source.name != "DEFAULT":
            _fail(f"--{option}: for {kind}; leave it out here")


def _swept(engine: str, **asked: Any) -> Sweep:
    """Measure the models of a list."""
    from robustbook.report import Request, Sweep

    # As `python -m` does: models that lie here can be imported.
    sys.path.insert(0, str(Path.cwd()))
    return Sweep.over(Request(**asked), engine)


def _lenses(skip: list[str] | None) -> tuple[str, ...]:
    return tuple(lens for word in skip or () for lens in word.split(","))


@contextmanager
def _going_on() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        kept = "what was measured is kept, and the same command goes on from there"
        _fail(f"interrupted; {kept}", status=130)


def _accuracy(logits: Any, labels: Any) -> float:
    """Block by block, as mapped logits may be larger than memory."""
    from robustbook._array_files import row_blocks
    from robustbook._checks.arguments import check_labels
    from robustbook.scores import accuracy

    count, num_classes = logits.shape
    true = check_labels("labels", labels, length=count, num_classes=num_classes)
    right = (len(b) * accuracy(b, true[rows]) for rows, b in row_blocks(logits))
    return sum(map(round, right)) / count


def _read(
    files: Mapping[str, Path],
    labels: Path | None,
    prior: Path | None,
    key: str | None,
    *,
    mapped: bool = False,
    probabilities: bool = False,
) -> tuple[list[Any], Any, Any]:
    """Logits, labels and prior; what looks like probabilities is remarked."""
    from robustbook._array_files import read_array, read_labels, row_blocks
    from robustbook._checks.arguments import PROBABILITIES, are_probabilities

    paths = [*files.values()]
    if key is not None and not any(path.suffix.lower() == ".npz" for path in paths):
        raise ValueError(
            "--key: expected an .npz file, in which arrays have names, got "
            f"{', '.join(dict.fromkeys(map(str, paths)))}; leave --key out"
        )
    options: dict[str, Any] = {"key": key, "default": "logits", "mapped": mapped}
    logits = [read_array(path, **options) for path in paths]
    for path, array in dict(zip(paths, logits, strict=True)).items():
        blocks = row_blocks(array) if array.ndim == 2 and array.size else ()
        if probabilities or not blocks:
            continue
        if all(are_probabilities(rows) for _, rows in blocks):
            _say(f"{path}: {PROBABILITIES}")
    true = None if labels is None else read_labels(labels)
    weights = None if prior is None else read_array(prior, default="prior").squeeze()
    return logits, true, weights


_FIELDS = (
    "pa", "standard_error", "beta", "upper_bound", "gap", "evaluations", "passes",
    "num_samples", "num_classes", "log_pa", "hard_part", "confidence_part",
)  # fmt: skip

_RATES = {
    "accuracy": "accuracy, clean",
    "shifted_accuracy": "accuracy, shifted",
    "same_answer_rate": "same-answer rate",
}


def _fields(agreement: Any) -> dict[str, Any]:
    return {name: getattr(agreement, name) for name in _FIELDS}


def _print_json(numbers: dict[str, Any]) -> None:
    from robustbook._json import strict

    print(json.dumps(strict(numbers), allow_nan=False))


def _agreement_lines(agreement: Any, *, uniform: bool) -> _Lines:
    most = math.log(agreement.num_classes)
    beta = "infinite" if math.isinf(agreement.beta) else f"{agreement.beta:.6g}"
    share = f", {agreement.pa / most:.1%} of log K" if uniform else ""
    error = agreement.standard_error
    low, high = agreement.interval()
    return [
        ("pairs, classes", f"{agreement.num_samples}, {agreement.num_classes}"),
        ("posterior agreement", f"{agreement.pa:.6f} nats per sample{share}"),
        ("  95 % interval", f"{low:.6f} to {high:.6f}"),
        ("  standard error", "undefined" if math.isnan(error) else f"{error:.6f}"),
        ("  hard decisions", f"{agreement.hard_part:.6f}"),
        ("  confidences", f"{agreement.confidence_part:+.6f}"),
        ("  certified gap", f"{agreement.gap:.1e}"),
        ("inverse temperature β*", beta),
        ("log PA, papers' scale", f"{agreement.log_pa:.6g}"),
    ]


def _comparison_fields(
    comparison: Comparison, names: list[tuple[Path, Path]]
) -> dict[str, Any]:
    both = zip(names, comparison.agreements, comparison.scores, strict=True)
    models = [
        {"clean": str(clean), "shifted": str(shifted)} | _fields(agreement) | scores
        for (clean, shifted), agreement, scores in both
    ]
    differences = {name: vars(one) for name, one in comparison.differences.items()}
    return {
        "models": models,
        "differences": [{"first": 0, "second": 1, **differences}],
    }


def _comparison_lines(comparison: Comparison, names: list[tuple[Path, Path]]) -> _Lines:
    agreement = comparison.agreements[0]
    lines = [("pairs, classes", f"{agreement.num_samples}, {agreement.num_classes}")]
    for letter, (clean, shifted) in zip("AB", names, strict=True):
        lines.append((f"model {letter}", f"{clean}, {shifted}"))
    first, second = comparison.scores
    lines.append(("", "      A       B    A - B    s.e.  95 % interval"))
    for name, difference in comparison.differences.items():
        low, high = difference.interval
        row = f"{first[name]:7.4f}{second[name]:8.4f}{difference.value:+9.4f}"
        if math.isnan(difference.standard_error):
            row += "  undefined"
        else:
            row += f"{difference.standard_error:8.4f}  {low:+.4f} to {high:+.4f}"
        lines.append((_RATES.get(name, "posterior agreement, nats"), row))
    return lines


def _print_table(lines: _Lines, *, width: int = 28) -> None:
    for name, value in lines:
        print(f"{name:<{width}}{value}")


# --- report and data --------------------------------------------------------------


@app.command()
def report(
    context: typer.Context,
    model: Annotated[
        str,
        Argument(
            help="A name of load_model, robustbench:NAME, or an import path "
            "package.module:attribute; or a list of models, MODELS.txt, one a line."
        ),
    ],
    data: _Data,
    out: Annotated[Path, Option(help="The page to write.")],
    images: _Images = None,
    minutes: Annotated[
        float | None,
        Option(help="Take as many images as fit into this time, --images at most."),
    ] = None,
    skip: _Skip = None,
    eps: _Eps = None,
    sigma: _Sigma = None,
    severity: Annotated[int, Option(min=1, max=5, help="Of the corruptions.")] = 3,
    attack_steps: Annotated[int, Option(min=1, help="Steps of PGD.")] = 40,
    noise_samples: Annotated[int, Option(min=2, help="Copies of each image.")] = 256,
    margin_images: Annotated[int, Option(min=2, help="Margins to measure.")] = 100,
    seed: _Seed = 0,
    device: _Device = "auto",
    engine: _EngineName = "local",
    numbers: Annotated[
        Path | None, Option("--json", help="All numbers, also of each image.")
    ] = None,
) -> None:
    """One page on one model, or on many: agreement, average-case robustness, margins.

    The exit status is 1 if a listed model could not be measured; the page says why.

    \b
    robustbook report digits-cnn-s0 --data digits:test --out page.html
    robustbook report models.txt --data digits:test --out page.html --engine local:2
    """
    asked: dict[str, Any] = {
        "model": model, "data": data, "out": out, "numbers": numbers, "images": images,
        "eps": eps, "sigma": sigma, "severity": severity, "attack_steps": attack_steps,
        "noise_samples": noise_samples, "margin_images": margin_images,
        "skip": _lenses(skip), "minutes": minutes, "seed": seed, "device": device,
    }  # fmt: skip
    with _in_words(), _going_on():
        if model.endswith(".txt"):
            sweep = _swept(engine, **asked)
            sweep.write(out, numbers)
            count = len(sweep.models)
            print(f"{out}: {count - len(sweep.failures)} of {count} models")
            for name, why in sweep.failures.items():
                _say(f"{name}: not measured: {why}")
            raise typer.Exit(bool(sweep.failures))
        _refuse(context, "a list of models", "engine")
        from robustbook.report import Request, make

        if ":" in model and not model.startswith("robustbench:"):
            # As `python -m` does: a model that lies here can be imported.
            sys.path.insert(0, str(Path.cwd()))
        seconds = make(Request(**asked))
    print(f"{out}: {seconds:.0f} s")


@data.command()
def fetch(
    name: Annotated[str, Argument(help="For example mnist; see data list.")],
) -> None:
    """Fetch a data set, or find it in ROBUSTBOOK_DATA, and check its sums."""
    from robustbook import datasets

    with _in_words():
        files = datasets.fetch(name)
        if not files:
            source = datasets.dataset_spec(name).source
            print(f"{name} needs no file: {source}", file=sys.stderr)
        for path in files:
            print(path)


@data.command(name="list")
def list_data() -> None:
    """List the data sets."""
    from robustbook.datasets import list_datasets, list_sentences, list_votes

    print(*list_datasets(), *list_sentences(), *list_votes(), sep="\n")
