"""Describe the changes between two versions of the user's own images, and test whether new images look different."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from podline.base.arrays import Array, Ids
from podline.base.drawing.picture_sheet import PictureRow, SheetBlock, SheetPicture
from podline.base.figures import percent
from podline.base.plurals import plural
from podline.data.order import permuted
from podline.data.records import IMAGE
from podline.data.versions import looks
from podline.data.versions.looks import LEAST, Floats, Key, Sample
from podline.data.versions.record_names import SourceFacts
from podline.data.versions.version_changes import VersionChanges, VersionRecords, version_changes
from podline.documents.manifest import Manifest
from podline.stages.data_changes import DataChanges
from podline.store.contract import Store

SHOWN = 8
"""Largest number of pictures shown of each kind of change."""
_NEW, _OLD = 1_000, 2_000  # largest numbers of new and of old images in the comparison
_READ = 20 * _OLD  # number of old records whose class is read before sampling
_RELABELS = 6
_FORM = ("side", "fit", "channels", "images")


class Versions(NamedTuple):
    """Two versions and the changes between them."""

    before: VersionRecords
    after: VersionRecords
    changes: VersionChanges


def compared(store: Store, before: Manifest, after: Manifest) -> tuple[DataChanges, Versions]:
    """Compare two versions by their manifests; also return their records and changes, for the pictures.

    Raises:
        ArtifactError: a version is damaged, or was converted by an older Podline.
    """
    started, then, now = time.monotonic(), VersionRecords(store, before), VersionRecords(store, after)
    changes = version_changes(then, now)
    of_class = [_by_class(manifest) for manifest in (before, after)]
    present = [{name for name, number in counts.items() if name and number} for counts in of_class]
    sentences, shifted = _looks(Versions(then, now, changes))
    old, new = changes.relabelled
    some = old[:_RELABELS], new[:_RELABELS]
    texts = zip(now.named(some[1]), then.words(some[0]), now.words(some[1]), strict=True)
    result = DataChanges(
        seconds=time.monotonic() - started,
        dataset=after.dataset,
        before=before.fingerprint,
        after=after.fingerprint,
        counts=_counts(before, after),
        added=len(changes.added),
        removed=len(changes.removed),
        relabelled=len(new),
        moved=len(changes.moved[0]),
        new_classes=tuple(sorted(present[1] - present[0])),
        vanished_classes=tuple(sorted(present[0] - present[1])),
        relabels=tuple(f"{name} {was} → {is_now}" for name, was, is_now in texts),
        looks=tuple(sentences),
        shifted=shifted,
    )
    return result, Versions(then, now, changes)


def _by_class(manifest: Manifest, split: str = "") -> dict[str, int]:
    """Return class → number of records, in one split or (by default) all; without classes, the only key is empty."""
    found = dict.fromkeys(manifest.class_names or ("",), 0)
    for info in manifest.splits:
        if split in ("", info.name):
            for name, number in zip(found, info.class_counts if manifest.class_names else (info.records,), strict=True):
                found[name] += number
    return found


def _counts(before: Manifest, after: Manifest) -> dict[str, dict[str, tuple[int, int]]]:
    splits = dict.fromkeys(split.name for manifest in (before, after) for split in manifest.splits)
    found = dict[str, dict[str, tuple[int, int]]]()
    for split in splits:
        old, new = _by_class(before, split), _by_class(after, split)
        found[split] = {name: (old.get(name, 0), new.get(name, 0)) for name in dict.fromkeys([*old, *new])}
    return found


def _looks(versions: Versions) -> tuple[list[str], bool]:
    """Return sentences that compare new images with old ones, if there are any, and whether a test is significant."""
    before, after, changes = versions
    forms = [{name: one.manifest.converter.get(name, "") for name in _FORM} for one in (before, after)]
    if forms[0] != forms[1]:
        changed = [f"{name} {forms[0][name]} → {forms[1][name]}" for name in _FORM if forms[0][name] != forms[1][name]]
        return [f"conversion settings differ ({', '.join(changed)}), so the images' pixels are not compared"], False
    if not len(changes.added):
        return [], False
    sample, new, old = _sampled(versions, before.sample(_READ))
    if min(len(new), len(old)) < LEAST:
        few = f"{plural(len(new), 'new image')} and {plural(len(old), 'old one')} of the same classes"
        return [f"{few}: too few to compare, at least {LEAST} of each are needed"], False
    numbers, formats = _quantities(versions, new, old)
    return _sentences(looks.p_values(sample, numbers, formats), numbers, formats, sample)


def _sampled(versions: Versions, old: Ids) -> tuple[Sample, Ids, Ids]:
    """Sample new images, and images of ``old`` with about the same shares of classes, as far as there are enough.

    Returns:
        The sample, the ids of its new images, and the ids of its old images.
    """
    before, after, changes = versions
    places = np.arange(min(_NEW, len(changes.added)))
    new = changes.added[permuted(0, "new images", 0, len(changes.added), places)]
    of_new, of_old = np.array(after.classes(new), "U"), np.array(before.classes(old), "U")
    names = np.intersect1d(of_new, of_old)
    new, of_new = new[np.isin(of_new, names)], of_new[np.isin(of_new, names)]
    wanted = [-(-_OLD * int((of_new == name).sum()) // max(1, len(new))) for name in names]
    parts = [np.flatnonzero(of_old == name)[:number] for name, number in zip(names, wanted, strict=True)]
    chosen = np.concatenate(parts) if parts else np.empty(0, np.int64)
    is_new = np.arange(len(new) + len(chosen)) < len(new)
    stratum = np.searchsorted(names, np.concatenate([of_new, of_old[chosen]]))
    return Sample(is_new, stratum, looks.groups_of(is_new, stratum, names.tolist())), new, old[chosen]


def _quantities(versions: Versions, new: Ids, old: Ids) -> tuple[dict[str, Floats], Sequence[str]]:
    """Return each numeric quantity, (n,), by name, and the images' file formats; no formats if any is unknown."""
    sides = (versions.after, new), (versions.before, old)
    images = np.concatenate([side.gather(ids, [IMAGE])[IMAGE] for side, ids in sides])
    numbers: dict[str, Floats] = {
        "brightness": images.mean(axis=(1, 2, 3)),
        "contrast": images.mean(axis=-1, dtype=np.float32).std(axis=(1, 2)),
    }
    one, other = (side.facts(ids) for side, ids in sides)
    facts = SourceFacts(one.names + other.names, np.concatenate([one.pixels, other.pixels]))
    if not facts.complete:
        return numbers, ()
    return numbers | {"size": facts.pixels.astype(float)}, facts.formats


def _change(sample: Sample, group: str, name: str, values: Mapping[str, Array]) -> str:
    """Return by how many percent the new images' mean exceeds the mean of old images of the same classes, as text."""
    mine = np.isin(sample.stratum, sample.groups[group])
    new, old = mine & sample.new, mine & ~sample.new
    means = np.bincount(sample.stratum[old], values[name][old]) / np.maximum(1, np.bincount(sample.stratum[old]))
    expected = means[sample.stratum[new]].mean()
    return f"{name} {100 * (values[name][new].mean() / max(expected, 1e-9) - 1):+.0f} %"


def _formats(sample: Sample, group: str, formats: Sequence[str]) -> str:
    """Return the file format whose share changed most, with its shares among new and old images, as text."""
    mine, found = np.isin(sample.stratum, sample.groups[group]), np.array(formats)
    shares = {
        name: tuple(float((found[mine & side] == name).mean()) for side in (sample.new, ~sample.new))
        for name in np.unique(found).tolist()
    }
    name = max(shares, key=lambda each: abs(shares[each][0] - shares[each][1]))
    return f"format {name} {percent(shares[name][0])} vs {percent(shares[name][1])}"


def _sentences(
    tests: Mapping[Key, float], numbers: Mapping[str, Floats], formats: Sequence[str], sample: Sample
) -> tuple[list[str], bool]:
    """Return a sentence for each group that differs significantly and one about the tests; and whether any differs."""
    found, new, old = looks.significant(tests), int(sample.new.sum()), int((~sample.new).sum())
    tested = ", ".join(dict.fromkeys(name for _, name in tests))
    how = f"{plural(len(tests), 'test')} of {tested}, Holm's correction at"
    compared_with = f"{plural(new, 'new image')} vs {plural(old, 'old one')} of the same classes, {how}"
    told = list[str]()
    for group in sample.groups:
        mine = [
            f"{_formats(sample, group, formats) if name == 'format' else _change(sample, group, name, numbers)} "
            f"(p = {p_value:.2g})"
            for (of_group, name), p_value in found.items()
            if of_group == group
        ]
        if mine:
            told.append(f"new images{f' of class {group}' if group else ''} differ: {', '.join(mine)}")
    last = f"{compared_with} {percent(looks.LEVEL)}"
    return ([*told, last], True) if told else ([f"new images look like old ones: {last}"], False)


def pictures(versions: Versions) -> list[PictureRow]:
    """Return a row of pictures for each kind of change that occurs: some added, removed and relabelled images."""
    before, after, changes = versions
    sides = {"added": (after, changes.added), "removed": (before, changes.removed)}
    sides["relabelled"] = after, changes.relabelled[1]
    return [PictureRow(name, _pictures(records, ids[:SHOWN])) for name, (records, ids) in sides.items() if len(ids)]


def _pictures(records: VersionRecords, ids: Ids) -> list[SheetPicture]:
    captions = zip(records.words(ids), records.named(ids), strict=True)
    images = records.gather(ids, [IMAGE])[IMAGE]
    return [SheetPicture(image, f"{words}\n{name}") for image, (words, name) in zip(images, captions, strict=True)]


def block(versions: Versions) -> SheetBlock | None:
    """Return the pictures of changed images as a block of a picture sheet; None without changes."""
    rows = pictures(versions)
    about = f"{versions.before.manifest.fingerprint} → {versions.after.manifest.fingerprint}"
    return SheetBlock(f"What changed in {versions.after.manifest.dataset}", about, rows) if rows else None
