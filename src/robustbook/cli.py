"""The command line ``robustbook``.

Torch and the extras are imported by the commands that need them: ``--help`` and
mistyped commands answer at once.
"""

from __future__ import annotations

import json
import math
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from robustbook import __version__, _terminal

__all__ = ["app", "main"]

app = typer.Typer(
    help="Measure the robustness of classifiers.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
data = typer.Typer(help="Data sets of the book.", no_args_is_help=True)
app.add_typer(data, name="data")

# Plain pairs of a label and a value, in the order of the table.
_Lines = list[tuple[str, str]]


def main() -> None:
    """Run the command line."""
    _terminal.run(app, name="robustbook")


def _fail(message: str, *, status: int) -> NoReturn:
    _terminal.fail(" ".join(message.split()), status=status)


def _say_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """Say a warning in a line, without the line of the program it comes from."""
    print("robustbook:", " ".join(str(message).split()), file=sys.stderr)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_show_version,
            is_eager=True,
            help="Show the version and exit.",
        ),
    ] = False,
) -> None:
    pass


@app.command()
def score(
    clean: Annotated[
        Path,
        typer.Argument(help="Logits of the clean inputs, (N, K): .npy, .npz, .csv."),
    ],
    shifted: Annotated[
        Path, typer.Argument(help="Logits of the same inputs, shifted, in that order.")
    ],
    labels: Annotated[
        Path | None,
        typer.Option(help="True classes, (N,), integers: adds accuracies and AFR_T."),
    ] = None,
    prior: Annotated[
        Path | None, typer.Option(help="Class prior, (K,); uniform if left out.")
    ] = None,
    tol: Annotated[
        float, typer.Option(help="Largest accepted gap to the upper bound, in nats.")
    ] = 1e-9,
    key: Annotated[
        str | None, typer.Option(help="Name of the logits in .npz files.")
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help='One JSON object; infinite numbers are "inf", undefined ones null.',
        ),
    ] = False,
) -> None:
    """Posterior agreement of a model between clean and shifted inputs."""
    from robustbook._files import read_array, read_labels
    from robustbook.agreement import posterior_agreement
    from robustbook.scores import accuracy, afr_pred, afr_true

    try:
        logits = read_array(clean, key=key, default="logits")
        shifted_logits = read_array(shifted, key=key, default="logits")
        true = None if labels is None else read_labels(labels)
        weights = (
            None if prior is None else read_array(prior, default="prior").squeeze()
        )
        agreement = posterior_agreement(logits, shifted_logits, prior=weights, tol=tol)
        scores = {"afr_pred": afr_pred(logits, shifted_logits)}
        if true is not None:
            scores |= {
                "accuracy": accuracy(logits, true),
                "shifted_accuracy": accuracy(shifted_logits, true),
                "afr_true": afr_true(shifted_logits, true),
            }
    except (TypeError, ValueError) as error:
        files = {"logits": clean, "shifted_logits": shifted}
        optional = {"labels": labels, "prior": prior}
        _fail(_name_file(str(error), files | optional), status=2)
    except ArithmeticError as error:
        _fail(str(error), status=1)
    for path, array in ((clean, logits), (shifted, shifted_logits)):
        if _are_probabilities(array):
            print(
                f"robustbook: {path}: rows are not negative and sum to 1, as "
                "probabilities are; scored as logits they give another number than "
                "their logarithms",
                file=sys.stderr,
            )
    if as_json:
        print(json.dumps(_fields(agreement) | scores, allow_nan=False))
        return
    _print_table(_agreement_lines(agreement, uniform=prior is None))
    _print_table(_score_lines(scores))


def _are_probabilities(array: Any) -> bool:
    return bool((array >= 0).all() and (abs(array.sum(1) - 1) < 1e-3).all())


def _name_file(message: str, files: Mapping[str, Path | None]) -> str:
    """Say the file's name where the message starts with the argument's."""
    argument, colon, rest = message.partition(":")
    path = files.get(argument)
    return f"{path}{colon}{rest}" if path is not None else message


_FIELDS = (
    "pa",
    "standard_error",
    "beta",
    "upper_bound",
    "gap",
    "evaluations",
    "num_samples",
    "num_classes",
    "log_pa",
    "hard_part",
    "confidence_part",
)


def _fields(agreement: Any) -> dict[str, Any]:
    return {name: _strict(getattr(agreement, name)) for name in _FIELDS}


def _strict(value: float) -> float | str | None:
    """JSON has no infinity and no NaN; ``float("inf")`` reads the former back."""
    if math.isnan(value):
        return None
    return value if math.isfinite(value) else str(value)


def _agreement_lines(agreement: Any, *, uniform: bool) -> _Lines:
    most = math.log(agreement.num_classes)
    beta = "infinite" if math.isinf(agreement.beta) else f"{agreement.beta:.6g}"
    share = f", {agreement.pa / most:.1%} of log K" if uniform else ""
    error = agreement.standard_error
    return [
        ("pairs, classes", f"{agreement.num_samples}, {agreement.num_classes}"),
        ("posterior agreement", f"{agreement.pa:.6f} nats per sample{share}"),
        ("  standard error", "undefined" if math.isnan(error) else f"{error:.6f}"),
        ("  hard decisions", f"{agreement.hard_part:.6f}"),
        ("  confidences", f"{agreement.confidence_part:+.6f}"),
        ("  certified gap", f"{agreement.gap:.1e}"),
        ("inverse temperature β*", beta),
        ("log PA, papers' scale", f"{agreement.log_pa:.6g}"),
    ]


def _score_lines(scores: dict[str, float]) -> _Lines:
    names = {
        "accuracy": "accuracy, clean",
        "shifted_accuracy": "accuracy, shifted",
        "afr_true": "AFR_T, shifted and correct",
        "afr_pred": "AFR_P, same prediction",
    }
    return [(name, f"{scores[k]:.4f}") for k, name in names.items() if k in scores]


def _print_table(lines: _Lines) -> None:
    for name, value in lines:
        print(f"{name:<28}{value}")


@app.command()
def report(
    model: Annotated[
        str,
        typer.Argument(
            help="A name of load_model, robustbench:NAME, or an import path "
            "package.module:attribute."
        ),
    ],
    data: Annotated[
        str,
        typer.Option(
            help="Data set with split, such as digits:test, or a file .npz or "
            ".safetensors with images (N, C, H, W) in [0, 1] and, if known, labels."
        ),
    ],
    out: Annotated[Path, typer.Option(help="The page to write.")],
    images: Annotated[
        int, typer.Option(min=10, help="How many images to draw at random.")
    ] = 200,
    eps: Annotated[
        str, typer.Option(help="ℓ∞ bound of the attack, of pixels in [0, 1].")
    ] = "8/255",
    sigma: Annotated[
        float, typer.Option(help="Standard deviation of the noise.")
    ] = 0.1,
    severity: Annotated[
        int, typer.Option(min=1, max=5, help="Of the corruptions.")
    ] = 3,
    attack_steps: Annotated[int, typer.Option(min=1, help="Steps of PGD.")] = 40,
    noise_samples: Annotated[
        int, typer.Option(min=2, help="Noisy copies of each image.")
    ] = 256,
    margin_images: Annotated[
        int, typer.Option(min=2, help="Images whose input margins are measured.")
    ] = 100,
    seed: Annotated[int, typer.Option(min=0, help="Of all that is random.")] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:N or mps.")] = (
        "auto"
    ),
    numbers: Annotated[
        Path | None,
        typer.Option(
            "--json", help="Write the numbers here too, with those of each image."
        ),
    ] = None,
) -> None:
    """One page on one model: agreement, average-case robustness, margins."""
    from robustbook.datasets import DataUnavailableError
    from robustbook.models._import import is_import_path
    from robustbook.report._make import Request, make

    if is_import_path(model) and not model.startswith("robustbench:"):
        # As `python -m` does: a model that lies here can be imported.
        sys.path.insert(0, str(Path.cwd()))
    asked = Request(
        model, data, out, images, eps, sigma, severity, attack_steps, noise_samples,
        margin_images, seed, device, numbers,
    )  # fmt: skip
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _say_warning
            seconds = make(asked)
    except (TypeError, ValueError) as error:
        _fail(str(error), status=2)
    except DataUnavailableError as error:
        _fail(str(error), status=1)
    except ModuleNotFoundError as error:
        _fail(f'{error}; pip install "robustbook[attacks]"', status=1)
    except (ArithmeticError, RuntimeError) as error:
        _fail(f"{model}: {error}", status=1)
    print(f"{out}: {seconds:.0f} s")


@data.command()
def fetch(
    name: Annotated[str, typer.Argument(help="For example mnist; see data list.")],
) -> None:
    """Fetch a data set, or find it in ROBUSTBOOK_DATA, and check its sums."""
    from robustbook import datasets

    try:
        files = datasets.fetch(name)
        if not files:
            known = name in datasets.list_sentences()
            spec = datasets.sentences_spec if known else datasets.dataset_spec
            print(f"{name} needs no file: {spec(name).source}", file=sys.stderr)
        for path in files:
            print(path)
    except ValueError as error:
        _fail(str(error), status=2)
    except (datasets.DataUnavailableError, OSError) as error:
        _fail(str(error), status=1)


@data.command(name="list")
def list_data() -> None:
    """List the data sets."""
    from robustbook.datasets import list_datasets, list_sentences

    print(*list_datasets(), *list_sentences(), sep="\n")


if __name__ == "__main__":
    main()
