"""Whole reviews under edits, and beside sentences: a transformer and n-grams."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import product
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

from robustbook._store.cache import Arrays
from robustbook.agreement import pair_by_label
from robustbook.datasets import Sentences, load_sentences
from robustbook.models import Encoder, load_encoder, resolve_device
from robustbook.scores import accuracy
from robustbook.studies._scores import confidence, measure_pair
from robustbook.studies._statistics import mean_row, share_row
from robustbook.studies.adversarial.text_edits import (
    edited,
    label_agreement,
    trained_classifier,
)
from robustbook.studies.run import Row, Run, Setting, decimals, with_keys
from robustbook.text import sentence_features

N_GRAMS: Final = "n-grams"
THIRDS: Final = ("short", "middle", "long")
_BATCH: Final = 16


@dataclass(frozen=True, kw_only=True)
class ReviewSetting(Setting):
    """Reviews, sentences to compare them with, classifiers, and edits."""

    kind = "sentences"

    sentences: str
    encoder: str | None
    #: Numbers of training texts, the last of which trains the readers whose reviews
    #: are edited, and number of test texts of each collection.
    trained: tuple[int, ...]
    tested: int
    epochs: int
    n_gram_epochs: int
    seeds: int
    edits: tuple[int, ...]
    words: tuple[int, ...]
    #: Most tokens of a text.
    tokens: int = 256
    #: Number of last layers that are trained, and the learning rate.
    layers: int = 2
    lr: float = 1e-4

    def datasets(self) -> list[str]:
        """Reviews and sentences."""
        return [self.dataset, self.sentences]

    @property
    def readers(self) -> list[str]:
        """Kinds of classifiers."""
        return [N_GRAMS] if self.encoder is None else [N_GRAMS, self.encoder]


SETTINGS: Final = {
    "full": (
        ReviewSetting(
            dataset="imdb", sentences="sentence-polarity", encoder="minilm-l6",
            trained=(800, 2000), tested=400, epochs=3, n_gram_epochs=6, seeds=3,
            edits=(1, 4, 16, 64, 512), words=(1, 4, 16, 64),
        ),
    ),
    "quick": (
        ReviewSetting(
            dataset="template-reviews", sentences="template-reviews", encoder=None,
            trained=(100, 200), tested=60, epochs=2, n_gram_epochs=12, seeds=2,
            edits=(1, 4, 64, 512), words=(1, 4, 64),
        ),
    ),
}  # fmt: skip

#: Test reviews that are edited, equally many further reviews, and sentences.
_COLLECTIONS: Final = ("reviews", "further", "sentences")


def rows(run: Run[ReviewSetting]) -> Iterator[Row]:
    """Train on reviews, and measure edits of reviews, by length, and sentences.

    Readers: "n-grams" (:func:`train_sentence_classifier`), and a transformer
    (:func:`load_encoder`) whose last layers are trained with two logits of the mean
    state of its tokens; the layers before them stay as they were. Both are trained on
    the same reviews.

    Rows with ``what`` = "texts", of a ``collection`` ("reviews", those that are
    edited, "further" ones of the same kind, "sentences"): how many ``samples``, mean
    ``words`` and ``characters``; "reader", for each ``reader``, ``training_seed`` and
    number ``trained`` of its training texts: ``accuracy`` on all reviews with its
    error, and its ``gain`` over the n-grams'; ``confidence``, and
    ``label_agreement``, that of the logits of the edited ones with their labels; and
    for those with the most training texts:
    "shift", for each ``kind`` and ``power`` (edits, or inserted adjectives) and
    ``part``, "all" or a third of the reviews by their number of words: the scores;
    "pairs", the agreement of reviews with texts ``to`` ("further" or "sentences") of
    the same label, drawn at random, with the ``accuracy`` on those.

    PA thesis, section 4.1, Experiment 3; PA paper, appendix C. Chapter 14.
    """
    setting = run.setting
    texts = {name: _texts(setting, name) for name in _COLLECTIONS}
    for name, data in texts.items():
        yield {
            "what": "texts",
            "collection": name,
            "samples": len(data),
            "words": decimals(_words(data).mean(), 2),
            "characters": decimals(np.mean([len(text) for text in data.texts]), 2),
        }
    # Trained here, rather than when logits are needed, so that its time counts once.
    readers = {
        (count, seed): _reader(run, count, seed)
        for seed, count in product(run.seeds(setting.seeds), setting.trained)
        if setting.encoder
    }
    logits = {
        condition: _logits(run, readers, *condition)
        for condition in run.progress(_conditions(run))
    }
    for reader, seed in product(setting.readers, run.seeds(setting.seeds)):
        keys = {"reader": reader, "training_seed": seed}
        for count in setting.trained:
            name = f"{reader}/{count}/{seed}"
            clean = {key: logits[key, "none", 0][name] for key in _COLLECTIONS}
            rival = f"{N_GRAMS}/{count}/{seed}"
            plain = {key: logits[key, "none", 0][rival] for key in _COLLECTIONS}
            row = {"trained": count, **_reader_row(clean, texts)}
            row |= mean_row("gain", _right(clean, texts) - _right(plain, texts))
            yield {"what": "reader", **keys, **row}
        # The last of them, with the most training texts, reads edited reviews.
        for collection, kind, power in logits:
            if kind != "none":
                shifted = logits[collection, kind, power][name]
                shift = {"what": "shift", **keys, "kind": kind, "power": power}
                by_length = _by_length(clean["reviews"], shifted, texts["reviews"])
                yield from with_keys(shift, by_length)
        for to in ("further", "sentences"):
            yield {"what": "pairs", **keys, "to": to, **_pairs(clean, texts, to, seed)}


def _conditions(run: Run[ReviewSetting]) -> list[tuple[str, str, int]]:
    """The unchanged collections, and the reviews under each edit."""
    setting = run.setting
    changed = [
        *product(["levenshtein"], setting.edits),
        *product(["amplify", "contradict"], setting.words),
    ]
    return [
        *((name, "none", 0) for name in _COLLECTIONS),
        *(("reviews", *edit) for edit in changed),
    ]


# ---------------------------------------------------------------------- the texts


@cache
def _texts(setting: ReviewSetting, collection: str) -> Sentences:
    """One of `_COLLECTIONS`, "train" or "validation"."""
    if collection == "sentences":
        return _first(load_sentences(setting.sentences, "test"), setting.tested)
    split = "test" if collection in _COLLECTIONS else collection
    every = load_sentences(setting.dataset, split)
    if split == "train":
        return _first(every, setting.trained[-1])
    start = setting.tested if collection == "further" else 0
    # The validation and the test part have the same size.
    return _first(every, setting.tested, start)


def _first(data: Sentences, count: int, start: int = 0) -> Sentences:
    part = slice(start, start + count)
    return replace(data, texts=data.texts[part], labels=data.labels[part])


def _words(data: Sentences) -> Any:
    return np.array([len(text.split()) for text in data.texts])


# -------------------------------------------------------------------- the readers


class Reader(nn.Module):
    """The last layers of an encoder, and two logits of the mean state of a text."""

    def __init__(self, encoder: Encoder, layers: int) -> None:
        super().__init__()
        last = encoder.layers[len(encoder.layers) - layers :]
        self.layers = copy.deepcopy(last).requires_grad_(True)
        self.head = nn.Linear(encoder.width, 2)

    def forward(self, states: Tensor, filled: Tensor) -> Tensor:
        for layer in self.layers:
            states = layer(states, src_key_padding_mask=filled)
        return self.head(Encoder.pooled(states, filled))


#: By the number of training texts, and the seed.
Readers = dict[tuple[int, int], Reader]


@cache
def _encoder(name: str | None, device: str) -> Encoder:
    assert name is not None
    return load_encoder(name).to(resolve_device(device))


def _lower(setting: ReviewSetting, encoder: Encoder, batch: Any) -> Tensor:
    device, depth = encoder.norm.weight.device, len(encoder.layers) - setting.layers
    states: Tensor = encoder(batch.ids.to(device), batch.filled.to(device), depth)
    return states


def _encoders(run: Run[ReviewSetting]) -> list[Encoder]:
    name = run.setting.encoder
    return [_encoder(name, run.device)] if name else []


def _reader(run: Run[ReviewSetting], count: int, seed: int) -> Reader:
    """Train a transformer, or read its weights from the cache."""
    setting = run.setting
    weights = run.arrays(
        "reader",
        partial(_trained, run, count, seed),
        networks=_encoders(run),
        data=_first(_texts(setting, "train"), count),
        # A training does not depend on others, nor on what is read afterwards.
        setting=replace(setting, trained=(), edits=(), words=(), seeds=0, tested=0),
        training_seed=seed,
        code=__name__,
    )
    encoder = _encoder(setting.encoder, run.device)
    model = Reader(encoder, setting.layers).to(encoder.norm.weight.device)
    model.load_state_dict({k: torch.from_numpy(v) for k, v in weights.items()})
    return model.eval()


def _trained(run: Run[ReviewSetting], count: int, seed: int) -> Arrays:
    """Train the last layers by AdamW, with a rate that rises and then falls to 0."""
    setting = run.setting
    encoder = _encoder(setting.encoder, run.device)
    labels, states = _texts(setting, "train").labels, _states(setting, run.device)
    device = encoder.norm.weight.device
    on_cuda = device.type == "cuda"
    # bfloat16, where a GPU has it; every CPU does.
    mixed = not on_cuda or torch.cuda.is_bf16_supported()
    with torch.random.fork_rng(devices=[device] if on_cuda else []):
        torch.manual_seed(seed)
        model = Reader(encoder, setting.layers).to(device).train()
        groups = [
            {"params": model.layers.parameters(), "lr": setting.lr},
            {"params": model.head.parameters(), "lr": 10 * setting.lr},
        ]
        optimizer = torch.optim.AdamW(groups)
        steps = setting.epochs * -(-count // _BATCH)
        rate = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: min((step + 1) / 10, 1.0) * (1 - step / steps)
        )
        for _ in range(setting.epochs):
            for index in torch.randperm(count).split(_BATCH):  # type: ignore[no-untyped-call]
                batch = nn.utils.rnn.pad_sequence(
                    [states[i] for i in index.tolist()], True, padding_value=torch.nan
                )
                filled = batch[..., 0].isnan().to(device)
                batch = batch.nan_to_num().float().to(device)
                with torch.autocast(device.type, torch.bfloat16, enabled=mixed):
                    logits = model(batch, filled)
                loss = F.cross_entropy(logits.float(), labels[index].to(device))
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                rate.step()
    return {name: value.cpu().numpy() for name, value in model.state_dict().items()}


@cache
def _states(setting: ReviewSetting, device: str) -> list[Tensor]:
    """States of each text after the frozen layers, computed once for all seeds."""
    encoder, texts = _encoder(setting.encoder, device), _texts(setting, "train").texts
    by_text: dict[int, Tensor] = {}
    with torch.inference_mode():
        for batch in encoder.batches(texts, tokens=setting.tokens):
            states = _lower(setting, encoder, batch).half().cpu()
            for i, state, filled in zip(batch.index, states, batch.filled, strict=True):
                by_text[i] = state[~filled]
    return [by_text[i] for i in range(len(texts))]


def _logits(
    run: Run[ReviewSetting], readers: Readers, *condition: Any
) -> dict[str, Tensor]:
    """Logits (n, 2) of texts for every reader, from the cache if possible."""
    setting = run.setting
    every = ("train", "validation", condition[0])
    arrays = run.arrays(
        "logits of texts",
        partial(_read, run, readers, *condition),
        networks=_encoders(run),
        data=[_texts(setting, name) for name in every],
        setting=replace(setting, edits=(), words=()),
        condition=condition,
        code=__name__,
    )
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def _read(
    run: Run[ReviewSetting],
    readers: Readers,
    collection: str,
    kind: str,
    power: int,
) -> Arrays:
    setting = run.setting
    data = _texts(setting, collection)
    texts = data.texts if kind == "none" else edited(data, kind, power, run.seed)
    features = sentence_features(texts)
    train, validation = (_texts(setting, name) for name in ("train", "validation"))
    # Edited texts are for the readers with the most training texts.
    counts = setting.trained if kind == "none" else setting.trained[-1:]
    by_reader = {}
    for count, seed in product(counts, run.seeds(setting.seeds)):
        learned = _first(train, count), validation
        model = trained_classifier(
            run, *learned, epochs=setting.n_gram_epochs, seed=seed
        )
        by_reader[f"{N_GRAMS}/{count}/{seed}"] = model.logits(features)
    if setting.encoder is not None:
        encoder = _encoder(setting.encoder, run.device)
        every = {
            f"{setting.encoder}/{count}/{seed}": net
            for (count, seed), net in readers.items()
            if count in counts
        }
        by_reader |= {name: torch.empty(len(texts), 2) for name in every}
        with torch.inference_mode():
            for batch in encoder.batches(texts, tokens=setting.tokens):
                # Once for all seeds.
                states = _lower(setting, encoder, batch)
                for name, reader in every.items():
                    logits = reader(states, batch.filled.to(states.device))
                    by_reader[name][batch.index] = logits.cpu()
    return {name: value.numpy() for name, value in by_reader.items()}


# --------------------------------------------------------------------- the scores


def _right(clean: dict[str, Tensor], texts: dict[str, Sentences]) -> Tensor:
    """Which reviews of both collections are read rightly."""
    names = ("reviews", "further")
    right = [clean[name].argmax(1) == texts[name].labels for name in names]
    return torch.cat(right).double()


def _reader_row(clean: dict[str, Tensor], texts: dict[str, Sentences]) -> Row:
    right = _right(clean, texts)
    return {
        "samples": len(right),
        **share_row("accuracy", float(right.mean()), len(right)),
        "confidence": confidence(clean["reviews"]),
        "label_agreement": label_agreement(clean["reviews"], texts["reviews"].labels),
    }


def _by_length(clean: Tensor, shifted: Tensor, data: Sentences) -> Iterator[Row]:
    order = np.argsort(_words(data), kind="stable")
    parts = {"all": order, **dict(zip(THIRDS, np.array_split(order, 3), strict=True))}
    for part, index in parts.items():
        labels = data.labels[index]
        yield {
            "part": part,
            "samples": len(index),
            "words": decimals(_words(data)[index].mean(), 2),
            "accuracy": accuracy(clean[index], labels),
            **measure_pair(clean[index], shifted[index], labels),
        }


def _pairs(
    clean: dict[str, Tensor], texts: dict[str, Sentences], to: str, seed: int
) -> Row:
    a, b = pair_by_label(texts["reviews"].labels, texts[to].labels, seed=seed)
    labels = texts[to].labels[b]
    return {
        "samples": len(a),
        "accuracy": accuracy(clean["reviews"][a], labels),
        **measure_pair(clean["reviews"][a], clean[to][b], labels),
    }
