"""Classifiers that people run, as functions from contents to probabilities."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from robustbook._checks.arguments import check_choice
from robustbook._checks.extras import extra

Array = npt.NDArray[np.float64]
_BATCH: Final = 64


@dataclass(frozen=True)
class Classifier:
    """A classifier of files or of texts.

    Any classifier will do that gives probabilities: scikit-learn's, an ONNX session, a
    web service.

    Parameters
    ----------
    name : str
        What tables call it.
    labels : tuple of str
        Its classes, in the order of the columns.
    probabilities : callable
        Takes a sequence of N contents and returns an array of shape (N, K).

    Examples
    --------
    >>> def even(contents):
    ...     return np.full((len(contents), 2), 0.5)
    >>> coin = Classifier("coin", ("heads", "tails"), even)
    >>> coin.probabilities([b"a", b"b"]).shape
    (2, 2)
    """

    name: str
    labels: tuple[str, ...]
    probabilities: Callable[[Sequence[Any]], Array]


def load_classifier(name: str) -> Classifier:
    """Load a classifier that comes inside a package, with its model.

    Parameters
    ----------
    name : {"magika", "py3langid", "langdetect", "lingua"}
        "magika" names the types of files. The answers are those of its network, not of
        the rules by which the package replaces unsure answers with "txt" or "unknown"
        and judges files of less than eight bytes. The others name the languages of
        texts, by ISO 639-1 codes without regions.

    Returns
    -------
    Classifier
        It gives probabilities in float64. Those of langdetect and lingua may be 0.

    Raises
    ------
    ModuleNotFoundError
        If the package is missing: the message names the extra that has it.
    ValueError
        If there is no such classifier.
    """
    check_choice("name", name, CLASSIFIERS)
    with extra("deployed"):
        return CLASSIFIERS[name]()


def _magika() -> Classifier:
    import magika
    import onnxruntime

    # The package keeps the probabilities of all classes to itself, so we run its model.
    models = Path(magika.__file__).parent / "models"
    folder = max(models.glob("*/model.onnx")).parent
    config = json.loads((folder / "config.min.json").read_text("utf-8"))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), options)
    block, padding = config["block_size"], config["padding_token"]
    begin, end = config["beg_size"], config["end_size"]

    def features(content: bytes) -> npt.NDArray[np.int32]:
        values = np.full(begin + end, padding, np.int32)
        first = np.frombuffer(content[:block].lstrip()[:begin], np.uint8)
        last = np.frombuffer(content[-block:].rstrip()[-end:], np.uint8)
        values[: len(first)] = first
        values[len(values) - len(last) :] = last
        return values

    def probabilities(contents: Sequence[bytes]) -> Array:
        blocks = [np.empty((0, len(config["target_labels_space"])))]
        for start in range(0, len(contents), _BATCH):
            batch = [features(content) for content in contents[start : start + _BATCH]]
            (scores,) = session.run(None, {"bytes": np.stack(batch)})
            blocks.append(np.asarray(scores, np.float64))
        return np.concatenate(blocks)

    return Classifier("magika", tuple(config["target_labels_space"]), probabilities)


def _py3langid() -> Classifier:
    from py3langid import langid

    identifier = langid.LanguageIdentifier.from_model_file(
        langid.MODEL_FILE, norm_probs=True
    )
    return _of_languages("py3langid", sorted(identifier.labels), identifier.rank)


def _langdetect() -> Classifier:
    from langdetect import lang_detect_exception
    from langdetect.detector_factory import PROFILES_DIRECTORY, DetectorFactory

    factory = DetectorFactory()
    factory.load_profile(PROFILES_DIRECTORY)
    # The package draws letters at random.
    factory.set_seed(0)
    languages = sorted({code[:2] for code in factory.langlist})

    def ranked(text: str) -> list[tuple[str, float]]:
        detector = factory.create()
        detector.PROB_THRESHOLD = 0.0
        detector.append(text)
        try:
            return [(guess.lang, guess.prob) for guess in detector.get_probabilities()]
        except lang_detect_exception.LangDetectException:
            # It finds nothing to go by: all languages are alike.
            return [(language, 1.0) for language in languages]

    return _of_languages("langdetect", languages, ranked)


def _lingua() -> Classifier:
    from lingua import Language, LanguageDetectorBuilder

    codes = {each: each.iso_code_639_1.name.lower() for each in Language.all()}
    detector = LanguageDetectorBuilder.from_all_languages().build()

    def ranked(text: str) -> list[tuple[str, float]]:
        values = detector.compute_language_confidence_values(text)
        guesses = [(codes[each.language], each.value) for each in values]
        if any(probability for _, probability in guesses):
            return guesses
        return [(code, 1.0) for code in codes.values()]

    return _of_languages("lingua", sorted(codes.values()), ranked)


def _of_languages(
    name: str, languages: list[str], ranked: Callable[[str], list[tuple[str, float]]]
) -> Classifier:
    """Collect probabilities in columns; regions of a language are added up."""
    columns = {language: column for column, language in enumerate(languages)}

    def probabilities(texts: Sequence[str]) -> Array:
        table = np.zeros((len(texts), len(columns)))
        for row, text in zip(table, texts, strict=True):
            for language, probability in ranked(text):
                row[columns[language.partition("-")[0]]] += probability
        return table / table.sum(1, keepdims=True)

    return Classifier(name, tuple(languages), probabilities)


#: By name, the functions that load the classifiers.
CLASSIFIERS: Final[dict[str, Callable[[], Classifier]]] = {
    "magika": _magika,
    "py3langid": _py3langid,
    "langdetect": _langdetect,
    "lingua": _lingua,
}
