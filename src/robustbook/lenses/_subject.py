"""One model and its images, and the steps by which the lenses measure it."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

from robustbook._checks.arguments import as_tensor, check_logits
from robustbook._checks.models import Model, ask_model, model_answers, model_dtype
from robustbook._store.cache import cached_arrays
from robustbook._store.sums import model_sum, tensor_sum
from robustbook.attacks import pgd
from robustbook.average_case import monte_carlo
from robustbook.corruptions import corrupt
from robustbook.lenses._result import ADVERSARIAL, NOISE, Passes, Settings
from robustbook.margins import input_margin, logit_margin

Measured = TypeVar("Measured")


class CountedModel(nn.Module):
    """Any callable that returns logits (n, K), with a count of the passes through it.

    Examples
    --------
    >>> counted = CountedModel(nn.Linear(3, 2))
    >>> image = torch.zeros(5, 3, requires_grad=True)
    >>> result, passes = counted.count(lambda: counted(image).sum().backward(), per=5)
    >>> passes
    Passes(forward=1.0, backward=1.0)
    """

    def __init__(self, model: Model) -> None:
        super().__init__()
        # A module as a child: its device and its mode are found from outside.
        self.model = model
        self.training = isinstance(model, nn.Module) and model.training
        self._forward = 0
        self._backward = 0

    def forward(self, images: Tensor) -> Tensor:
        """Return the model's logits, shape (n, K)."""
        self._forward += len(images)
        logits = self.model(images)
        if isinstance(logits, Tensor) and logits.requires_grad:
            logits.register_hook(self._count_backward)  # type: ignore[no-untyped-call]
        return logits

    def _count_backward(self, gradient: Tensor) -> None:
        self._backward += len(gradient)

    def count(
        self, measure: Callable[[], Measured], *, per: int
    ) -> tuple[Measured, Passes]:
        """Run a measurement; return its result, and the passes `per` so many images."""
        forward, backward = self._forward, self._backward
        result = measure()
        return result, Passes(
            (self._forward - forward) / per, (self._backward - backward) / per
        )


#: PGD climbs the cross-entropy, whose gradient underflows where a logit leads by more
#: than about 80. Beyond this lead the attack sees all logits divided by a constant.
LARGEST_LEAD: Final = 50.0

#: What the steps measure of each image, by name.
LOGITS: Final = "logits"
SURVIVAL: Final = ("probability", "standard_error", "labels", "calls", "trials")
MARGINS: Final = ("margins", "adversarial", "found_by")

Tensors = dict[str, Tensor]


@dataclass(frozen=True, eq=False)
class Subject:
    """A model in evaluation mode, images in its dtype, and its logits on them."""

    model: CountedModel
    images: Tensor
    logits: Tensor
    settings: Settings
    batch_size: int
    device: torch.device

    def under(self, shift: str, rows: Tensor) -> Tensors:
        """Logits of some images, shifted; refused at once if they are of no use."""
        images: Tensor
        if shift == ADVERSARIAL:
            images = pgd(
                self._attackable, self.images[rows], eps=self.settings.eps,
                steps=self.settings.attack_steps, seed=self.settings.seed,
                offset=int(rows[0]), batch_size=self.batch_size, progress=False,
                device=self.device,
            ).adversarial  # fmt: skip
        elif shift == NOISE:
            images = self._noisy[rows]
        else:
            severity = self.settings.severity
            images = corrupt(self.images[rows], shift, severity=severity)
        logits = logits_of(self.model, images, self.batch_size, self.device)
        check_shift(shift, logits, self.logits[rows])
        return {LOGITS: logits}

    def survival(self, rows: Tensor) -> Tensors:
        robustness = monte_carlo(
            self.model, self.images[rows], self.settings.sigma,
            samples=self.settings.noise_samples, seed=self.settings.seed,
            offset=int(rows[0]), device=self.device,
        )  # fmt: skip
        return {name: getattr(robustness, name) for name in SURVIVAL}

    def margins(self, rows: Tensor) -> Tensors:
        margins = input_margin(
            self.model, self.images[rows], seed=self.settings.seed,
            batch_size=self.batch_size, progress=False, device=self.device,
        )  # fmt: skip
        return {name: getattr(margins, name) for name in MARGINS}

    @cached_property
    def _attackable(self) -> nn.Module:
        """The model, or one with its predictions whose cross-entropy has a gradient."""
        lead = float(logit_margin(self.logits).max())
        if lead <= LARGEST_LEAD:
            return self.model
        return _Divided(self.model, lead / LARGEST_LEAD)

    @cached_property
    def _noisy(self) -> Tensor:
        random = np.random.default_rng([self.settings.seed, 0])
        noise = as_tensor("noise", random.standard_normal(self.images.shape))
        return self.images + self.settings.sigma * noise.to(self.images)


class _Divided(nn.Module):
    def __init__(self, model: nn.Module, by: float) -> None:
        super().__init__()
        self.model, self.by = model, by
        self.eval()

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.model(images)
        return logits / self.by


@torch.no_grad()
def logits_of(
    model: Model, images: Tensor, batch_size: int, device: torch.device
) -> Tensor:
    """The model's logits on the CPU, batch by batch."""
    parts = torch.split(images, batch_size)
    return torch.cat([ask_model(model, part.to(device)).cpu() for part in parts])


def check_shift(name: str, logits: Tensor, clean: Tensor) -> None:
    """Refuse logits as soon as they are there, not when all is measured."""
    what = f"model's logits, {name}"
    check_logits(what, logits)
    if logits.shape != clean.shape:
        raise ValueError(
            f"{what}: expected the {clean.shape[1]} classes of the clean images, got "
            f"{logits.shape[1]}"
        )


@contextmanager
def evaluated(model: nn.Module) -> Iterator[None]:
    """Evaluation mode for a while; each module gets back the mode that it had."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def as_the_model_wants(model: nn.Module, images: Tensor) -> Tensor:
    """Images in the type of the parameters; of a function, in their own."""
    kind = model_dtype(model)
    if kind is None and images.dtype not in (torch.float32, torch.float64):
        return images.float()
    return images if kind is None else images.to(kind)


_PASSES = "passes"


class Parts:
    """Measures a subject in so many steps, each part by part; counts, keeps, shows."""

    def __init__(
        self,
        subject: Subject,
        count: int,
        *,
        checkpoint: Path | str | None,
        progress: bool,
    ) -> None:
        self._subject, self._count, self._done = subject, count, 0
        self._checkpoint = checkpoint
        # None: only on a terminal.
        self._hidden = None if progress else True
        self._key = {} if checkpoint is None else _key(subject)

    def measure(
        self, name: str, rows: Tensor, compute: Callable[[Tensor], Tensors]
    ) -> tuple[Tensors, Passes]:
        """Measure the images `rows`; return what all parts give, and its cost."""
        self._done += 1
        parts: list[Tensors] = []
        with tqdm(
            total=len(rows),
            desc=f"{name} ({self._done} of {self._count})",
            unit="image",
            leave=False,
            disable=self._hidden,
        ) as bar:
            for part in torch.split(rows, self._subject.batch_size):
                parts.append(self._part(name, part, compute))
                bar.update(len(part))
        joined = {key: torch.cat([one[key] for one in parts]) for key in parts[0]}
        forward, backward = (joined.pop(_PASSES).sum(dim=0) / len(rows)).tolist()
        return joined, Passes(forward, backward)

    def _part(
        self, name: str, rows: Tensor, compute: Callable[[Tensor], Tensors]
    ) -> Tensors:
        def measured() -> dict[str, Any]:
            tensors, passes = self._subject.model.count(lambda: compute(rows), per=1)
            tensors[_PASSES] = torch.tensor([[passes.forward, passes.backward]])
            return {key: value.detach().cpu().numpy() for key, value in tensors.items()}

        if self._checkpoint is None:
            arrays = measured()
        else:
            key = {**self._key, "measure": name, "rows": tensor_sum(rows)}
            arrays = cached_arrays(
                {"lenses": json.dumps(key, sort_keys=True)},
                measured,
                code="robustbook.lenses",
                directory=self._checkpoint,
            )
        return {key: torch.from_numpy(np.asarray(one)) for key, one in arrays.items()}


def _key(subject: Subject) -> dict[str, Any]:
    """All that the numbers depend on, beside the images of a part and the code."""
    images = subject.images
    # Of the model itself: that with the same logits another has other gradients.
    _, gradients = model_answers(subject.model, images[:2].to(subject.device))
    return {
        "settings": vars(subject.settings),
        "model": model_sum(subject.model.model),
        "images": tensor_sum(images),
        "logits": tensor_sum(subject.logits),
        "gradients": tensor_sum(gradients),
        "device": subject.device.type,
    }
