"""Lists the published files of CIFAR and MNIST; :mod:`podline.data.rawfiles` compares raw files with the lists.

Sizes and md5 sums: https://www.cs.toronto.edu/~kriz/cifar.html, and torchvision's ``datasets/cifar.py`` and
``datasets/mnist.py``. md5 detects damage, but not an attack.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from podline.base.frozen import Frozen
from podline.base.plurals import plural
from podline.documents.manifest import Quarantined
from podline.recipes import datasets

_NAMED = 3


@dataclass(frozen=True)
class RemoteFile:
    """A published file with its size and md5."""

    name: str
    bytes: int
    md5: str


@dataclass(frozen=True)
class Published:
    """A published data set.

    Attributes:
        title: common name.
        records: split → number of records.
        url: address of the files.
        downloads: files to download from this address.
        archives: name → md5 of other archives with the same data.
        files: name → md5 of each unpacked file; empty if unknown.
    """

    title: str
    records: Mapping[str, int]
    url: str = ""
    downloads: tuple[RemoteFile, ...] = ()
    archives: Mapping[str, str] = field(default_factory=dict[str, str])
    files: Mapping[str, str] = field(default_factory=dict[str, str])

    def archive_md5(self, name: str) -> str | None:
        """Return the md5 of an archive; None if unknown."""
        return {**self.archives, **{file.name: file.md5 for file in self.downloads}}.get(name)


_CIFAR = "https://www.cs.toronto.edu/~kriz/"
CIFAR10 = Published(
    title="CIFAR-10",
    records={"train": 50_000, "test": 10_000},
    url=_CIFAR,
    downloads=(RemoteFile("cifar-10-python.tar.gz", 170_498_071, "c58f30108f718f92721af3b95e74349a"),),
    archives={"cifar-10-binary.tar.gz": "c32a1d4ab5d03f1284b67883e8d87530"},
    files={
        "data_batch_1": "c99cafc152244af753f735de768cd75f",
        "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "634d18415352ddfa80567beed471001a",
        "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
        "test_batch": "40351d587109b95175f43aff81a1287e",
        "batches.meta": "5ff9c542aee3614f3951f8cda6e48888",
    },
)
CIFAR100 = Published(
    title="CIFAR-100",
    records={"train": 50_000, "test": 10_000},
    url=_CIFAR,
    downloads=(RemoteFile("cifar-100-python.tar.gz", 169_001_437, "eb9058c3a382ffc7106e4002c42a8d85"),),
    archives={"cifar-100-binary.tar.gz": "03b5dce01913d631647c71ecec9e9cb8"},
    files={
        "train": "16019d7e3df5f24257cddd939b257f8d",
        "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
        "meta": "7973b15100ade9c7d40fb424638fde48",
    },
)
MNIST = Published(
    title="MNIST",
    records={"train": 60_000, "test": 10_000},
    url="https://ossci-datasets.s3.amazonaws.com/mnist/",
    downloads=(
        RemoteFile("train-images-idx3-ubyte.gz", 9_912_422, "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
        RemoteFile("train-labels-idx1-ubyte.gz", 28_881, "d53e105ee54ea40749a09fcbcd1e9432"),
        RemoteFile("t10k-images-idx3-ubyte.gz", 1_648_877, "9fb629c4189551a2d022fa330f9573f3"),
        RemoteFile("t10k-labels-idx1-ubyte.gz", 4_542, "ec29112dd5afa0611ce80d1b7f02629c"),
    ),
    files={
        "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
        "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
        "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
        "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
    },
)


def official_name(name: str) -> str:
    """Return the published name of a raw file; MNIST files may have a dot before ``idx``, or be gzipped."""
    return name.removesuffix(".gz").replace(".idx", "-idx")


def published(dataset: str) -> Published | None:
    """Return the published files of a data set, or None if it has none."""
    found = datasets.known(dataset)
    return found.code(found.published) if found is not None and found.published else None


class OtherFile(Frozen):
    """A raw file or archive that differs from the published file, with the md5 sums of both."""

    file: str
    found: str
    published: str


class OfficialCheck(Frozen):
    """The comparison of a conversion's raw files with the published files.

    Attributes:
        official: whether all files equal the published files; None if the published md5 sums are unknown.
        others: the files that differ.
    """

    official: bool | None
    others: tuple[OtherFile, ...] = ()


def remarks(
    dataset: str,
    converted: Mapping[str, int],
    quarantined: Iterable[Quarantined],
    check: OfficialCheck | None,
    contradicting: Mapping[str, int],
) -> list[str]:
    """Return sentences about a data set: whether its files are the published files, and contradicting labels.

    Args:
        dataset: name of the data set.
        converted: split → number of converted records.
        quarantined: the records that were not converted.
        check: the comparison with the published files; None if there was none.
        contradicting: split → number of records whose image is in the split with another label as well.
    """
    official, left_out = published(dataset), Counter(record.split for record in quarantined)
    read = {split: records + left_out[split] for split, records in converted.items()}
    return [
        *(_lines(official, read, check) if official else ()),
        *(
            f"labelled in two ways: {plural(count, 'record')} of the {split} split with the image of another record"
            for split, count in contradicting.items()
        ),
    ]


def _lines(published: Published, read: Mapping[str, int], check: OfficialCheck | None) -> Iterator[str]:
    counts = [(read.get(name, 0), records, name) for name, records in published.records.items()]
    numbers = ", ".join(f"{found:,} of {records:,} {name}" for found, records, name in counts)
    if any(found < records for found, records, _name in counts):
        yield f"not the official {published.title} but a part of it: {numbers} records"
    elif any(found > records for found, records, _name in counts):
        yield f"not the official {published.title} but more: {numbers} records"
    elif check is None or check.official is None:
        yield f"as many records as the official {published.title}; its files were not compared with the official ones"
    elif check.official:
        yield f"the official {published.title}, by the md5 of its files"
    else:
        yield f"not the official {published.title}: as many records, but other files"
    others = check.others if check else ()
    for other in others[:_NAMED]:
        yield f"{other.file} has md5 {other.found} vs {other.published} published"
    if len(others) > _NAMED:
        yield f"and {len(others) - _NAMED} more differ from those published"
