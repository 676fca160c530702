"""Logits that are not in memory: the same numbers, and errors that say what is."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from fuzz import check_stream
from random_views import noisy

from robustbook.agreement import (
    CertificateError,
    agreement_curve,
    posterior_agreement,
)
from robustbook.agreement.solver import (
    Kernel,
    _problem,
    _sources,
    agreement_search,
)

SAMPLES, CLASSES = 900, 7


VIEWS = [view.float().numpy() for view in noisy(0, 3, SAMPLES, CLASSES)]
PAIR = VIEWS[:2]
WHOLE = posterior_agreement(*PAIR)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """So that small files are read as large ones are."""
    monkeypatch.setattr(_sources, "LOADED_ENTRIES", 0)
    monkeypatch.setattr(_sources, "BLOCK_ENTRIES", 1000)
    monkeypatch.setattr(_sources, "JOINED_ENTRIES", 600)
    # The same search as in memory, to compare all digits.
    monkeypatch.setattr(_problem, "STREAMED_BATCH", 1)
    monkeypatch.setattr(_problem, "CHUNK_ENTRIES", {"cpu": 450, "cuda": 450})


def mapped(folder, views=PAIR, **options):
    paths = [folder / f"view{v}.npy" for v in range(len(views))]
    for path, view in zip(paths, views, strict=True):
        np.save(path, view)
    return [np.load(path, mmap_mode="r", **options) for path in paths]


def same(result, whole=WHOLE):
    assert result.pa == pytest.approx(whole.pa, abs=1e-12)
    assert result.beta == pytest.approx(whole.beta, rel=1e-6)
    assert result.mismatch == whole.mismatch
    assert result.num_samples == whole.num_samples
    assert result.standard_error == pytest.approx(whole.standard_error, rel=1e-9)
    assert result.hard_part == pytest.approx(whole.hard_part, abs=2e-9)
    torch.testing.assert_close(result.per_sample, whole.per_sample, atol=1e-6, rtol=0)


@pytest.mark.parametrize("dtype", ["float16", "<f4", ">f4", "float64"])
def test_mapped_files_are_read_and_give_what_arrays_do(tmp_path, dtype):
    views = [view.astype(dtype) for view in PAIR]
    result = posterior_agreement(*mapped(tmp_path, views))
    same(result, posterior_agreement(*(view.astype("f8") for view in views)))
    kinds = {
        type(view) for view in _sources.open_views(*mapped(tmp_path, views)).arrays
    }
    assert kinds == {_sources.MappedFile}


def test_three_views_a_prior_and_arrays_beside_files(tmp_path):
    files = mapped(tmp_path, VIEWS)
    prior = np.arange(1, CLASSES + 1) / np.arange(1, CLASSES + 1).sum()
    for options in ({}, {"prior": prior}):
        whole = posterior_agreement(*VIEWS, **options)
        same(posterior_agreement(*files[:2], torch.tensor(VIEWS[2]), **options), whole)
    assert agreement_search(*files).value == posterior_agreement(*files).pa
    betas = [0.0, 0.5, 3.0]
    ours, whole = agreement_curve(*files, betas), agreement_curve(*VIEWS, betas)
    torch.testing.assert_close(ours, whole, atol=1e-13, rtol=0)


def test_several_evaluations_share_a_pass_over_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr(_problem, "STREAMED_BATCH", 6)
    result = posterior_agreement(*mapped(tmp_path))
    assert result.passes < result.evaluations


def test_rows_of_a_mapped_file_are_found_in_it(tmp_path):
    files = mapped(tmp_path)
    for rows in (slice(13, 700), slice(200, 900)):
        parts = [file[rows] for file in files]
        reader = _sources.open_views(*parts).arrays[0]
        assert isinstance(reader, _sources.MappedFile)
        np.testing.assert_array_equal(reader[0:9], parts[0][0:9])
        same(posterior_agreement(*parts), posterior_agreement(*(v[rows] for v in PAIR)))
    # A file that begins elsewhere, columns, copies: read as arrays are.
    raw = tmp_path / "raw.bin"
    raw.write_bytes(b"x" * 5000 + PAIR[0].tobytes())
    far = np.memmap(raw, PAIR[0].dtype, "r", 5000, PAIR[0].shape)
    same(posterior_agreement(far, PAIR[1]))
    kept = posterior_agreement(files[0][::2, :5], files[1][::2, :5])
    same(kept, posterior_agreement(PAIR[0][::2, :5], PAIR[1][::2, :5]))


def test_what_is_written_to_a_private_map_counts(tmp_path):
    mapped(tmp_path)
    private = np.load(tmp_path / "view0.npy", mmap_mode="c")
    private[:] = PAIR[1]
    assert posterior_agreement(private, PAIR[1]).beta == np.inf


class Sliced:
    """What zarr and HDF5 look like: rows on demand, never all of them."""

    def __init__(self, array):
        self._array = array
        self.shape, self.dtype = array.shape, array.dtype

    def __getitem__(self, rows):
        assert rows.stop - rows.start < 500
        return self._array[rows]

    def __array__(self, *_, **__):
        raise AssertionError("nobody may load it all")


def test_arrays_that_are_cut_are_read_in_blocks():
    same(posterior_agreement(*map(Sliced, PAIR)))


def chunks_of(views, size):
    return [
        tuple(view[start : start + size] for view in views)
        for start in range(0, len(views[0]), size)
    ]


@pytest.mark.parametrize("size", [1, 64, 333, 5000])
def test_chunks_are_read_anew_in_every_pass(size):
    same(posterior_agreement(lambda: iter(chunks_of(PAIR, size))))
    same(posterior_agreement(chunks_of(PAIR, size)))


def test_a_loader_of_pairs_and_chunks_without_samples():
    data = torch.utils.data.TensorDataset(*map(torch.tensor, VIEWS))
    loader = torch.utils.data.DataLoader(data, batch_size=100)
    same(posterior_agreement(loader), posterior_agreement(*VIEWS))
    empty = tuple(view[:0] for view in PAIR)
    same(posterior_agreement([empty, *chunks_of(PAIR, 400), empty]))


def test_sources_that_cannot_be_measured_say_why():
    chunks = chunks_of(PAIR, 300)
    spoiled = [view.copy() for view in PAIR]
    spoiled[1][612, 4] = np.nan
    narrow, three = tuple(v[:, :3] for v in chunks[1]), (*chunks[1], chunks[1][0])
    for error, message, *source in (
        (TypeError, "can be read once; pass the function", iter(chunks)),
        (TypeError, "or a stream of chunks of them, got int alone", 3),
        (TypeError, "views: expected two or more arrays, got 1", PAIR[0]),
        (TypeError, "returns chunks .* got NoneType from it; let", lambda: None),
        (TypeError, "chunks of two .* got ndarray", [PAIR[0][:3], PAIR[0][3:]]),
        (ValueError, "as in the first chunk, got 2 .*3 in chunk", [chunks[0], narrow]),
        (ValueError, "2 arrays .* got 3 with 7 in chunk 1", [chunks[0], three]),
        (ValueError, "at least one sample", []),
        (ValueError, r"shifted_logits: .* \(612, 4\)", chunks_of(spoiled, 300)),
        (ValueError, r"shifted_logits: .* \(612, 4\)", *map(Sliced, spoiled)),
        (ValueError, "shifted_.*: expected the shape", Sliced(PAIR[0]), PAIR[1][:-1]),
    ):
        with pytest.raises(error, match=message):
            posterior_agreement(*source)


HUNDREDS, THREE_HUNDREDS = chunks_of(PAIR, 100), chunks_of(PAIR, 300)
# No first or last row of a chunk.
BROKEN, MOVED, SWAPPED = PAIR[1].copy(), PAIR[1].copy(), PAIR[0].copy()
BROKEN[50, 1], MOVED[50, 1] = np.nan, MOVED[50, 1] + 0.5
SWAPPED[[40, 41]] = SWAPPED[[41, 40]]


@pytest.mark.parametrize(
    ("passes", "first", "then", "said"),
    [
        (3, HUNDREDS, [HUNDREDS[c] for c in (0, 1, 2, 4, 3, 5, 6, 7, 8)], "chunk 3 on"),
        (3, HUNDREDS, HUNDREDS[:8], "chunk 8 on"),
        (3, HUNDREDS, [*HUNDREDS, HUNDREDS[0]], "chunk 9 on"),
        *(
            (1, THREE_HUNDREDS, chunks_of([view[:left] for view in PAIR], 300), said)
            for left, said in (
                (0, "got others from chunk 0 on; yield all"),
                (400, "got others from chunk 1 on; yield all"),
                (600, "got others from chunk 2 on; yield all"),
            )
        ),
        *(
            (passes, HUNDREDS, chunks_of((PAIR[0], BROKEN), 100), "chunk 0 on")
            for passes in (1, 2, 3)
        ),
        (2, HUNDREDS, chunks_of((PAIR[0], MOVED), 100), "chunk 0 on"),
        (2, HUNDREDS, chunks_of((SWAPPED, PAIR[1]), 100), "chunk 0 on"),
    ],
)
def test_a_stream_that_is_another_in_a_later_pass_is_refused(passes, first, then, said):
    calls = iter([first] * passes)
    with pytest.raises(ValueError, match=said):
        posterior_agreement(lambda: iter(next(calls, then)))


def test_sources_of_many_views_with_rare_classes_are_solved_as_arrays_are(monkeypatch):
    # The allowance for rounding was that of a full chunk: one in ten was refused.
    monkeypatch.undo()
    results = [check_stream(seed) for seed in range(240)]
    assert [result for result in results if result[-1] != "none"] == []


def test_many_samples_do_not_widen_the_allowance_for_rounding(monkeypatch):
    monkeypatch.undo()
    draws = torch.Generator().manual_seed(0)
    signal = torch.randn(70_000, 2, generator=draws).double()
    views = [
        signal + torch.randn(70_000, 2, generator=draws).double() for _ in range(5)
    ]
    result = posterior_agreement(*views, prior=[1e-4, 1 - 1e-4])
    assert result.gap <= 1e-9
    assert result.evaluations <= 60


@pytest.mark.parametrize("tol", [1e-12, 1e-13, 3e-14])
def test_a_search_that_gains_no_more_ends(tol, monkeypatch):
    monkeypatch.undo()
    rng = np.random.default_rng(0)
    for samples in (1, 5, 300):
        views = list(rng.normal(size=(4, samples, 3)))
        for count in (2, 4):
            chunks, prior = [tuple(views[:count])], [1e-4, 0.5, 0.4999]
            seen = "After 0 evaluations"
            try:
                found = posterior_agreement(chunks, prior=prior, tol=tol)
            except CertificateError as error:
                seen = str(error)
            else:
                assert found.gap <= tol
            assert int(seen.split("After ")[1].split()[0]) <= 1000


def overwrite(path):
    """Write other numbers, as an editor that keeps the time of change."""
    status = path.stat()
    with path.open("r+b") as file:
        file.seek(200)
        file.write(b"\1\2\3\4")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def halve(path):
    os.truncate(path, path.stat().st_size // 2)


@pytest.mark.parametrize(
    ("spoil", "later"),
    [
        (overwrite, None),
        (Path.unlink, "shifted_logits: .*view1.npy to"),
        (halve, r"900 rows of 7 in .*ends in row 4\d\d; write it"),
    ],
)
def test_a_file_that_changes_between_passes_is_named(
    tmp_path, monkeypatch, spoil, later
):
    files, path = mapped(tmp_path), tmp_path / "view1.npy"
    evaluate = Kernel.evaluate_all

    def spoiled(kernel, *arguments, **options):
        if kernel.passes == 3:
            spoil(path)
        return evaluate(kernel, *arguments, **options)

    monkeypatch.setattr(Kernel, "evaluate_all", spoiled)
    with pytest.raises(OSError, match=r"^shifted_logits: expected .*view1.npy to stay"):
        posterior_agreement(*files)
    if later:  # Before the first pass, or in the middle of one, as well.
        with pytest.raises(OSError, match=later):
            _sources.open_views(*files).arrays[1][0:900]


def test_the_bar_shows_evaluations_value_and_gap(capsys):
    result = posterior_agreement(*PAIR, progress=True)
    shown = capsys.readouterr().err
    assert f"PA {result.pa:.6g}, gap" in shown
    assert f"{len(result.trace.steps)} evaluations" in shown
    posterior_agreement(*PAIR)
    assert capsys.readouterr().err == ""


MEMORY = """
import resource, sys
import numpy as np
from robustbook.agreement import posterior_agreement
mode, *paths = sys.argv[1:]
views = [np.load(path, mmap_mode=mode or None) for path in paths]
posterior_agreement(*(np.array(view[:3000]) for view in views), tol=1e-2)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
result = posterior_agreement(*views, tol=1e-6)
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(1024 * (after - before), result.gap)
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="ru_maxrss in KiB")
def test_memory_is_half_of_arrays_and_a_few_numbers_a_sample_of_files(tmp_path):
    samples, classes = 50_000, 400
    signal, noise = np.random.default_rng(0).normal(size=(2, samples, classes))
    paths = [str(tmp_path / f"{name}.npy") for name in ("clean", "shifted")]
    for path, view in zip(paths, (signal, signal + noise), strict=True):
        np.save(path, view.astype("float32"))
    # Files of 160 MB; blocks and buffers take 40 MB, each sample 300 bytes.
    for mode, most in (("", samples * classes * 4), ("r", 40e6 + 300 * samples)):
        # Otherwise glibc may keep blocks that were freed, 200 MB on some machines.
        trimmed = os.environ | {"MALLOC_TRIM_THRESHOLD_": "1000000"}
        command = [sys.executable, "-c", MEMORY, mode, *paths]
        run = subprocess.run(command, capture_output=True, check=True, env=trimmed)
        extra, gap = map(float, run.stdout.split())
        assert gap <= 1e-6
        assert extra <= most, mode
