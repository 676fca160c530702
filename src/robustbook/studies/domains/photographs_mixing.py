"""How often LISA mixes across domains, chosen by validation: heads on photographs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any, Final

import numpy as np

from robustbook.studies._run import Row, Run, under
from robustbook.studies.domains.photographs import SETTINGS as ALL
from robustbook.studies.domains.photographs import (
    Samples,
    WorldSetting,
    joined,
    scores_of,
    source_pairs,
    world_domains,
)
from robustbook.training import LISA, train_domains

#: Probabilities of mixing a batch across domains.
ACROSS: Final = (0.0, 0.25, 0.5, 0.75, 1.0)


def _mixed(setting: Any) -> WorldSetting:
    return replace(setting, learners=("LISA",), heads=setting.heads[1:])


#: The first world, without the first head, which validation never chose.
SETTINGS: Final = {profile: (_mixed(ALL[profile][0]),) for profile in ("quick", "full")}


def rows(run: Run[WorldSetting]) -> Iterator[Row]:
    """Train heads by LISA with mixup, for several probabilities of its two ways.

    For each ``target`` left out, ``training_seed``, ``head``, ``lr``, ``epoch`` and
    probability ``across`` of mixing across domains within the classes (else across
    classes within the domains; the thesis's p is that of the latter): what the rows
    "epoch" of the study ``photographs`` have, of pairs by label. Samples, weights and
    orders are that study's, and so are the rows of ``across`` one half.

    PA thesis, sections 3.5 and 4.3. The book's audit of domain shift.
    """
    setting = run.setting
    domains = world_domains(setting)
    seeds = range(run.seed, run.seed + setting.seeds)
    for training_seed, target in run.each(product(seeds, domains)):
        keys: Row = {"target": target, "training_seed": training_seed}
        rows = run.rows(
            "one domain left out, mixed",
            partial(_measured, setting, domains, target, training_seed),
            data=domains, setting=replace(setting, seeds=0), **keys, code=__name__,
        )  # fmt: skip
        yield from under(keys, rows)


def _measured(
    setting: WorldSetting, domains: Mapping[str, Samples], target: str, seed: int
) -> Iterator[Row]:
    random = np.random.default_rng([seed, list(domains).index(target)])
    orders = {
        name: random.permutation(len(samples.labels))
        for name, samples in domains.items()
    }
    first, last = setting.validated, setting.validated + setting.trained
    train = {
        name: domains[name].take(order[first:last])
        for name, order in orders.items()
        if name != target
    }
    every = joined(train).features
    mean, std = every.mean(0), every.std(0) + 1e-3

    def scaled(samples: Samples) -> Samples:
        return Samples((samples.features - mean) / std, samples.labels)

    held = {name: scaled(domains[name].take(orders[name][:first])) for name in train}
    own = joined(held)
    test = scaled(domains[target].take(orders[target][: setting.tested]))
    sources = [setting.source(scaled(samples)) for samples in train.values()]
    pairs = {"label": source_pairs(held, seed)["label"]}
    for (head, lr), across in product(setting.heads, ACROSS):
        model = setting.network(head, sources[0], seed)
        history = train_domains(
            model, LISA(across_domains=across), sources, epochs=setting.epochs, lr=lr,
            seed=seed, progress=False,
            watch={
                "own": lambda model: model(own.features),
                "test": lambda model: model(test.features),
            },
        )  # fmt: skip
        logits = zip(history.watched["own"], history.watched["test"], strict=True)
        for epoch, (near, far) in enumerate(logits, start=1):
            scores = scores_of(near, own.labels, far, test.labels, pairs)
            keys = {"head": head, "lr": lr, "across": across, "epoch": epoch}
            yield {**keys, **scores}
