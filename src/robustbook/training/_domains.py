"""The training itself: steps, scores, checkpoints."""

from __future__ import annotations

import math
import os
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn

from robustbook._checks.arguments import check_count, check_non_negative, check_positive
from robustbook.datasets import Dataset
from robustbook.models import resolve_device
from robustbook.scores import accuracy
from robustbook.training._history import EarlyStopping, History
from robustbook.training._learners import Learner

__all__ = ["Measure", "train_domains"]

#: Scores of a pair of samples: a function of logits (n, K), shifted logits (n, K) and
#: labels (n,) that returns numbers by name. :func:`robustbook.selection.pair_scores`
#: is one.
Measure = Callable[[Tensor, Tensor, Tensor], Mapping[str, float]]

_FORMAT: Final = 1
#: What a checkpoint holds.
_STATE: Final = frozenset(
    ("format", "identity", "model", "optimizer", "generator", "rows", "seconds")
) | {"weights", "watched", "finished"}
#: Images evaluated at once: few enough for the caches of a processor.
_EVALUATED: Final = 128


def train_domains(
    model: nn.Module,
    learner: Learner,
    domains: Sequence[Dataset],
    *,
    epochs: int,
    lr: float,
    seed: int,
    pairs: Mapping[str, tuple[Dataset, Dataset]] | None = None,
    tests: Mapping[str, Dataset] | None = None,
    measure: Measure | None = None,
    keep: Sequence[str] = (),
    watch: Mapping[str, Callable[[nn.Module], Tensor]] | None = None,
    stop: EarlyStopping | None = None,
    optimizer: str = "adam",
    batch_size: int = 64,
    checkpoint: Path | str | None = None,
    time_limit: float | None = None,
    device: str = "cpu",
    precision: str = "auto",
    progress: bool = True,
) -> History:
    """Train on several source domains and measure every epoch.

    All criteria are recorded for every epoch, so selections by different criteria
    are compared on the same weights.

    Parameters
    ----------
    model : torch.nn.Module
        The model, changed in place: afterwards it has the weights of the last epoch
        and is in evaluation mode.
    learner : Learner
        What to minimize: :class:`ERM`, :class:`IRM`, :class:`LISA`.
    domains : sequence of Dataset
        The source domains. Images are float in [0, 1], or uint8, which are divided
        by 255 when they are used and take a quarter of the memory.
    epochs : int
        Passes over the largest domain; smaller ones are repeated.
    lr : float
        Learning rate, constant.
    seed : int
        Seed of the order of the samples and of what is random in the learner.
    pairs : mapping of str to (Dataset, Dataset), optional
        Validation pairs: row i of both must be the same sample, or the same class.
    tests : mapping of str to Dataset, optional
        Sets on which accuracy is recorded.
    measure : Measure, optional
        Scores of the pairs; by default "accuracy", the mean over the two samples.
    keep : sequence of str
        Criteria, columns of the history, whose best weights are kept.
    watch : mapping of str to callable, optional
        What else to record after each epoch: functions of the model, which is in
        evaluation mode, such as the features of some images.
    stop : EarlyStopping, optional
        When to stop early.
    optimizer : str, default "adam"
        "adam", or "sgd" with momentum 0.9.
    batch_size : int, default 64
        Samples of each domain in a step.
    checkpoint : Path or str, optional
        File to which everything is written after each epoch, and from which training
        goes on if it is there: the result is that of a run without interruption. The
        model must have the weights with which that training began, or those in the
        file.
    time_limit : float, optional
        Seconds after which no further epoch is begun; what is returned is not
        finished then.
    device : str, default "cpu"
        Where to train; "auto" means a CUDA device if there is one.
    precision : str, default "auto"
        "float32", or "bfloat16" for mixed precision; "auto" means the latter on a
        CUDA device that has it. Evaluation is in float32 always.
    progress : bool, default True
        Show a bar with loss, accuracies and agreement.

    Returns
    -------
    History
        What was measured.

    Raises
    ------
    ValueError
        If an argument is not one of those above, or the checkpoint is of another
        training.
    FloatingPointError
        If the loss is no longer a finite number.

    Notes
    -----
    The result depends on the model's initial weights, the seed and the options, not
    on the state of the global generator. On one machine it is the same to the last
    bit; on a GPU the rounding of some sums depends on their order.

    Examples
    --------
    >>> from robustbook.datasets import diagvib
    >>> from robustbook.training import IRM, train_domains
    >>> from robustbook.models import build_model
    >>> setup = diagvib.DISCRIMINABILITY
    >>> train = diagvib.draw_all(setup.training, shapes=setup.shapes, count=32)
    >>> model = build_model(
    ...     "strided-cnn", seed=0, options={"width": 4, "num_classes": 2}
    ... )
    >>> history = train_domains(
    ...     model,
    ...     IRM(),
    ...     [scenes.dataset(size=16) for scenes in train],
    ...     epochs=2,
    ...     lr=0.01,
    ...     seed=0,
    ...     progress=False,
    ... )
    >>> [row["epoch"] for row in history.rows], history.finished
    ([1, 2], True)
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model: expected a torch.nn.Module, got {model!r}")
    if isinstance(learner, type) or not hasattr(learner, "loss"):
        raise TypeError(f"learner: expected one such as ERM(), got {learner!r}")
    if isinstance(domains, Dataset):
        raise TypeError(f"domains: expected a sequence of data sets, got {domains}")
    if isinstance(keep, str):
        raise TypeError(f"keep: expected a sequence of criteria, got {keep!r}")
    if time_limit is not None:
        check_non_negative("time_limit", time_limit, infinite=True)
    run = _Run(
        model=model,
        learner=learner,
        domains=list(domains),
        pairs=dict(pairs or {}),
        tests=dict(tests or {}),
        measure=measure or _mean_accuracy,
        keep=tuple(keep),
        watch=dict(watch or {}),
        epochs=check_count("epochs", epochs),
        lr=check_positive("lr", lr),
        seed=_check_seed(seed),
        optimizer=optimizer,
        batch_size=check_count("batch_size", batch_size),
        device=resolve_device(device),
        precision=precision,
        stop=stop,
    )
    began = time.monotonic()
    path = None if checkpoint is None else Path(checkpoint)
    if path is not None:
        _check_writable(path)
    if path is not None and path.is_file():
        run.restore(path)
    with _Bar(learner.name, epochs, len(run.history.rows), show=progress) as bar:
        while not run.history.finished:
            if time_limit is not None and time.monotonic() - began > time_limit:
                break
            bar.show(run.epoch())
            if path is not None:
                run.save(path)
    model.eval()
    return run.history


def _check_writable(path: Path) -> None:
    """Say before the first epoch, not after it, that it could not be kept."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        writable = os.access(path.parent, os.W_OK) and not path.is_dir()
    except OSError:
        writable = False
    if not writable or not path.name:
        raise ValueError(
            f"checkpoint: expected a file that can be written, got {str(path)!r}"
        )


def _mean_accuracy(first: Tensor, second: Tensor, labels: Tensor) -> dict[str, float]:
    return {"accuracy": (accuracy(first, labels) + accuracy(second, labels)) / 2}


def _check_seed(seed: int) -> int:
    seed = check_count("seed", seed, minimum=0)
    if seed >= 2**63:
        raise ValueError(f"seed: expected less than 2**63, got {seed}")
    return seed


@dataclass
class _Run:
    """A training in progress: what it is given, and all of its state."""

    model: nn.Module
    learner: Learner
    domains: list[Dataset]
    pairs: dict[str, tuple[Dataset, Dataset]]
    tests: dict[str, Dataset]
    measure: Measure
    keep: tuple[str, ...]
    watch: dict[str, Callable[[nn.Module], Tensor]]
    epochs: int
    lr: float
    seed: int
    optimizer: str
    batch_size: int
    device: torch.device
    precision: str
    stop: EarlyStopping | None
    history: History = field(default_factory=History)

    def __post_init__(self) -> None:
        parts = [*self.domains, *self.tests.values()]
        for pair in self.pairs.values():
            if not isinstance(pair, (tuple, list)) or len(pair) != 2:
                raise TypeError(f"pairs: expected two data sets each, got {pair!r}")
            parts += pair
        for part in parts:
            _check_data(part)
        if not self.domains or not all(len(domain) for domain in self.domains):
            raise ValueError(
                f"domains: expected at least one, each with images, got {self.domains}"
            )
        if len({domain.images.shape[1:] for domain in self.domains}) > 1:
            raise ValueError(
                "domains: expected images of one shape in all of them, got "
                f"{self.domains}"
            )
        for name, (first, second) in self.pairs.items():
            if len(first) == 0 or not torch.equal(first.labels, second.labels):
                raise ValueError(
                    f"pairs: expected two samples of the same classes in the same "
                    f"order in {name!r}, got {first} and {second}"
                )
        for name, test in self.tests.items():
            if len(test) == 0:
                raise ValueError(f"tests: expected images in {name!r}, got {test}")
        self.autocast = self._autocast()
        self.model.to(self.device)
        self.initial = _checksum(self.model)
        self.generator = torch.Generator().manual_seed(self.seed)
        parameters = self.model.parameters()
        if self.optimizer == "adam":
            self.steps: torch.optim.Optimizer = torch.optim.Adam(parameters, lr=self.lr)
        elif self.optimizer == "sgd":
            self.steps = torch.optim.SGD(parameters, lr=self.lr, momentum=0.9)
        else:
            raise ValueError(
                f"optimizer: expected 'adam' or 'sgd', got {self.optimizer!r}"
            )
        self.images = [domain.images.to(self.device) for domain in self.domains]
        self.labels = [domain.labels.to(self.device) for domain in self.domains]

    def _autocast(self) -> bool:
        if self.precision not in ("auto", "float32", "bfloat16"):
            raise ValueError(
                f"precision: expected 'auto', 'float32' or 'bfloat16', got "
                f"{self.precision!r}"
            )
        if self.precision != "auto":
            return self.precision == "bfloat16"
        return self.device.type == "cuda" and torch.cuda.is_bf16_supported()

    def epoch(self) -> dict[str, float]:
        """One pass, and its row."""
        number = len(self.history.rows)
        began = time.perf_counter()
        loss, risk = self._pass(number)
        trained = time.perf_counter()
        row: dict[str, float] = {"epoch": number + 1, "loss": loss, "risk": risk}
        logits = self._logits()
        evaluated = time.perf_counter()
        for name, (first, second) in self.pairs.items():
            scores = self.measure(logits[id(first)], logits[id(second)], first.labels)
            row |= {f"{name}/{key}": float(value) for key, value in scores.items()}
        measured = time.perf_counter()
        for name, test in self.tests.items():
            row[f"test/{name}"] = accuracy(logits[id(test)], test.labels)
        self.history.rows.append(row)
        self.history.seconds.append(
            {
                "train": trained - began,
                "logits": evaluated - trained,
                "measure": measured - evaluated,
            }
        )
        with torch.no_grad():
            for name, look in self.watch.items():
                seen = look(self.model).detach().cpu().clone()
                self.history.watched.setdefault(name, []).append(seen)
        for criterion in self.keep:
            if self.history.best(criterion) is row:
                self.history.weights[criterion] = {
                    name: value.detach().cpu().clone()
                    for name, value in self.model.state_dict().items()
                }
        self.history.finished = number + 1 >= self.epochs or self._stale()
        return row

    def _stale(self) -> bool:
        if self.stop is None:
            return False
        best = self.history.best(self.stop.criterion)["epoch"]
        return len(self.history.rows) - best >= self.stop.patience

    def _pass(self, epoch: int) -> tuple[float, float]:
        self.model.train()
        losses, risks = [], []
        for index in self._batches():
            images = torch.stack(
                [_floats(x[i]) for x, i in zip(self.images, index, strict=True)]
            )
            labels = torch.stack(
                [y[i] for y, i in zip(self.labels, index, strict=True)]
            )
            with torch.autocast(
                self.device.type, dtype=torch.bfloat16, enabled=self.autocast
            ):
                loss, risk = self.learner.loss(
                    self.model, images, labels, epoch=epoch, generator=self.generator
                )
            self.steps.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call, unused-ignore]
            self.steps.step()
            losses.append(loss.detach())
            risks.append(risk.detach())
        mean_loss = float(torch.stack(losses).double().mean())
        mean_risk = float(torch.stack(risks).double().mean())
        if not math.isfinite(mean_loss):
            raise FloatingPointError(
                f"the training loss is {mean_loss} in epoch {epoch + 1} of "
                f"{self.epochs}; expected a finite number: try an lr below {self.lr:g}"
            )
        for name, value in self.model.state_dict().items():
            if value.is_floating_point() and not bool(torch.isfinite(value).all()):
                raise FloatingPointError(
                    f"the weights {name} are no longer finite after epoch {epoch + 1} "
                    f"of {self.epochs}: try an lr below {self.lr:g}"
                )
        return mean_loss, mean_risk

    def _batches(self) -> Iterator[list[Tensor]]:
        """Indices (n,) into each domain, for each step of an epoch."""
        steps = -(-max(map(len, self.domains)) // self.batch_size)
        wanted = steps * self.batch_size
        orders = []
        for domain in self.domains:
            laps = [
                torch.randperm(len(domain), generator=self.generator)
                for _ in range(-(-wanted // len(domain)))
            ]
            orders.append(torch.cat(laps)[:wanted].to(self.device))
        for step in range(steps):
            part = slice(step * self.batch_size, (step + 1) * self.batch_size)
            yield [order[part] for order in orders]

    def _logits(self) -> dict[int, Tensor]:
        """Logits of every validation and test set, each once, by its identity."""
        wanted = {id(test): test for test in self.tests.values()}
        wanted |= {id(part): part for pair in self.pairs.values() for part in pair}
        self.model.eval()
        found = {}
        with torch.no_grad():
            for key, data in wanted.items():
                parts = [
                    self.model(_floats(images.to(self.device))).float().cpu()
                    for images in torch.split(data.images, _EVALUATED)
                ]
                found[key] = torch.cat(parts)
        return found

    # ---------------------------------------------------------------- checkpoint

    def _identity(self) -> dict[str, Any]:
        """What must be the same for a training to go on."""
        return {
            "learner": repr(self.learner),
            "epochs": self.epochs,
            "lr": self.lr,
            "seed": self.seed,
            "optimizer": self.optimizer,
            "batch_size": self.batch_size,
            "autocast": self.autocast,
            "stop": repr(self.stop),
            "keep": list(self.keep),
            "watch": list(self.watch),
            "model": str(
                {k: tuple(v.shape) for k, v in self.model.state_dict().items()}
            ),
            "domains": [_fingerprint(domain) for domain in self.domains],
            "pairs": {
                name: [_fingerprint(part) for part in pair]
                for name, pair in self.pairs.items()
            },
            "tests": {name: _fingerprint(test) for name, test in self.tests.items()},
        }

    def save(self, path: Path) -> None:
        """Write all of the state; an interrupted writing leaves the old file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        state = {
            "format": _FORMAT,
            "identity": self._identity(),
            "initial": self.initial,
            "model": self.model.state_dict(),
            "optimizer": self.steps.state_dict(),
            "generator": self.generator.get_state(),
            "rows": self.history.rows,
            "seconds": self.history.seconds,
            "weights": self.history.weights,
            "watched": self.history.watched,
            "finished": self.history.finished,
        }
        scratch = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            torch.save(state, scratch)
            scratch.replace(path)
        finally:
            scratch.unlink(missing_ok=True)

    def restore(self, path: Path) -> None:
        """Go on from a file."""
        try:
            state = torch.load(path, map_location="cpu", weights_only=True)
            stored = dict(state["identity"])
            missing = _STATE - set(state)
            if missing:
                raise KeyError(*missing)
        except Exception as error:  # torch raises whatever the damage leads to
            raise ValueError(
                f"checkpoint: expected a file that train_domains wrote, got {path}, "
                f"which cannot be read ({type(error).__name__}); delete it to begin "
                "anew"
            ) from error
        mine = self._identity()
        other = [key for key in mine if mine[key] != stored.get(key)]
        if state.get("format") != _FORMAT or other:
            raise ValueError(
                f"checkpoint: {path} is of another training: "
                f"{', '.join(other) or 'format'} differ; delete it, or name another "
                "file"
            )
        current = _checksum(self.model)
        initial = state.get("initial", current)
        if current not in (initial, _checksum_of(state["model"])):
            raise ValueError(
                f"checkpoint: {path} is of a training that began with other weights; "
                "build the model again with the seed it had then, delete the file, or "
                "name another one"
            )
        self.initial = initial
        self.model.load_state_dict(state["model"])
        self.steps.load_state_dict(state["optimizer"])
        self.generator.set_state(state["generator"])
        self.history.rows[:] = state["rows"]
        self.history.seconds[:] = state["seconds"]
        self.history.weights.update(state["weights"])
        self.history.watched.update(state["watched"])
        self.history.finished = state["finished"]


def _floats(images: Tensor) -> Tensor:
    return images / 255 if images.dtype == torch.uint8 else images


def _check_data(data: Any) -> None:
    """Refuse at once what would fail, or go wrong, only after an epoch."""
    if not isinstance(data, Dataset):
        raise TypeError(
            "domains, pairs and tests: expected robustbook.datasets.Dataset, got "
            f"{type(data).__name__}; scenes and photographs have a method dataset()"
        )
    if data.images.dtype not in (torch.float32, torch.uint8):
        raise TypeError(
            f"images: expected float32 in [0, 1] or uint8 in {data}, got "
            f"{data.images.dtype}; pass images.float()"
        )
    if data.labels.dtype != torch.int64:
        raise TypeError(
            f"labels: expected int64 in {data}, got {data.labels.dtype}; pass "
            "labels.long()"
        )
    if len(data):
        low, high = (int(bound) for bound in data.labels.aminmax())
        if low < 0 or high >= data.num_classes:
            raise ValueError(
                f"labels: expected classes from 0 to {data.num_classes - 1} in "
                f"{data}, got {low if low < 0 else high}"
            )


def _checksum(model: nn.Module) -> int:
    return _checksum_of(model.state_dict())


def _checksum_of(weights: Mapping[str, Tensor]) -> int:
    """The same for the same weights, wherever they are."""
    total = 0
    for value in weights.values():
        flat = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        total = zlib.crc32(flat.numpy().tobytes(), total)
    return total


def _fingerprint(data: Dataset) -> list[Any]:
    """Enough of a data set to tell it from another."""
    some = data.images[:: max(1, len(data) // 64)].contiguous().cpu().numpy()
    labels = data.labels.contiguous().cpu().numpy()
    return [
        str(data.images.dtype),
        list(data.images.shape),
        zlib.crc32(some.tobytes()),
        zlib.crc32(labels.tobytes()),
    ]


class _Bar:
    """A progress bar with the scores of the last epoch, where tqdm is installed."""

    def __init__(self, name: str, epochs: int, done: int, *, show: bool) -> None:
        self.bar: Any = None
        if show:
            try:
                from tqdm.auto import tqdm
            except ImportError:
                return
            self.bar = tqdm(
                total=epochs, initial=done, desc=name, unit="epoch", leave=False
            )

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.close()

    def show(self, row: Mapping[str, float]) -> None:
        if self.bar is None:
            return
        shown = {
            key: f"{value:.3f}"
            for key, value in row.items()
            if key == "risk" or key.endswith(("/accuracy", "/pa"))
        }
        self.bar.update()
        self.bar.set_postfix(shown)  # drawn at once, however short an epoch is
