"""Every parser of files from strangers: what it is given to change, and what is done with what it makes of it."""

from __future__ import annotations

import contextlib
import gzip
import json
import random
import shutil
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import large_inputs
import numpy as np
from coco_files import HEIGHT, WIDTH, CocoFiles, jpeg, open_coco, person
from large_inputs import Maker, tar, zipped
from mutation import LARGEST_INPUT, mutated
from parsing_here import parsing_here
from published import mnist_files, python2, python3, write_cifar10_bins, write_cifar10_pickles

from podline.data.pictures import PictureError, picture_of
from podline.data.sources.coco_image import CocoImage
from podline.data.sources.coco_records import annotations_of
from podline.data.sources.coco_truth import truth_of
from podline.data.sources.opening import open_source
from podline.documents.skeleton import COCO
from podline.kinds.pose.coco_results import read_truth

_LARGE_SHARE = 0.01


class Parser(NamedTuple):
    """A parser, and what it is given.

    Attributes:
        seeds: valid inputs.
        words: what the format is made of.
        prepare: puts what lies beside the input into a folder, once.
        read: puts an input there and reads it.
        large: inputs as costly as the format lets them be.
        wrap: packs a mutated input, or makes its checksums right.
        document: whether it is JSON.
    """

    seeds: Sequence[bytes]
    words: Sequence[bytes]
    prepare: Callable[[Path], object]
    read: Callable[[Path, bytes], object]
    large: Sequence[Maker] = ()
    wrap: Callable[[bytes], bytes] = bytes
    document: bool = False

    def input(self, chance: random.Random) -> bytes:
        """An input, as chance will have it."""
        if self.large and chance.random() < _LARGE_SHARE:
            content = chance.choice(self.large)(chance)
            if chance.random() < 0.3:
                content = mutated([content], self.words, False, chance)
        else:
            content = mutated(self.seeds, self.words, self.document, chance)
        return self.wrap(content)[:LARGEST_INPUT]


def _nothing(_folder: Path) -> None:
    """There is nothing beside the input."""


def _read_source(dataset: Any, folder: Path) -> None:
    work = folder / "work"
    try:
        source = open_source(dataset, str(folder / "in"), work)
        for split in source.splits:
            split.read(np.arange(min(3, len(split))))
        lines = "".join(f"{name}\n" for name in source.class_names).encode().decode().splitlines()
        assert lines == list(source.class_names)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _file_of(name: str, dataset: str) -> Callable[[Path, bytes], None]:
    """Reads a data set with an input in the place of one of its files."""

    def read(folder: Path, content: bytes) -> None:
        (folder / "in" / name).write_bytes(content)
        _read_source(dataset, folder)

    return read


def _archive(folder: Path, content: bytes) -> None:
    (folder / "in").write_bytes(content)
    _read_source("cifar10", folder)


def _coco_file(name: str) -> Callable[[Path, bytes], None]:
    """Does all that a conversion does but for writing, with an input in the place of a file."""

    def read(folder: Path, content: bytes) -> None:
        (folder / "in" / name).write_bytes(content)
        shutil.rmtree(folder / "work", ignore_errors=True)
        with parsing_here():
            source = open_coco(folder / "in", folder / "work", side=32, max_people=2)
        for record in source.quarantined:
            record.model_dump_json().encode()
        for images in source.splits.values():
            json.loads(truth_of(images, COCO, "mutated").encode())
            for image in images[:3]:
                annotations_of([CocoImage.from_json(image.to_json())], 32, 2, COCO)

    return read


def _picture(_folder: Path, content: bytes) -> None:
    with contextlib.suppress(PictureError):
        picture_of(content)


def _truth(folder: Path, content: bytes) -> None:
    (folder / "truth.json").write_bytes(content)
    read_truth(folder / "truth.json")


_BATCH = {"labels": [1, 2], "data": np.arange(2 * 3072, dtype=np.uint16).astype(np.uint8).reshape(2, 3072)}
_BATCHES = [_BATCH, _BATCH | {"labels": np.array([1, 2])}, _BATCH | {"data": np.asfortranarray(_BATCH["data"])}]
_PICKLES = [python2(_BATCH), *(python3(batch, protocol) for batch in _BATCHES for protocol in range(6))]
_OPCODES = b"(.0123FIJKLMNRSTUVXabcdeghijlopqrstu}])\x80\x81\x85\x86\x87\x88\x89\x8a\x8b\x8c\x8d\x8e\x93\x94\x95\x96"
_PICKLE_WORDS = [
    *(bytes([code]) for code in _OPCODES),
    b"cnumpy\ndtype\n", b"c_codecs\nencode\n", b"c__builtin__\nbytes\n", b"cos\nsystem\n", b"cnumpy\nndarray\n",
    b"h\0", b"h\1", b"q\0", b"q\1",
    b"cnumpy.core.multiarray\n_reconstruct\n", b"cnumpy.core.multiarray\nscalar\n", b"I" + b"9" * 5000 + b"\n",
    b"L" + b"9" * 5000 + b"L\n",
    b"\x8b\xb8\x0b\0\0" + b"\x7f" * 3000, b"\x8a\x08" + b"\x7f" * 8, b"U\6latin1", b"S'\\x41\\n'\n",
    b"V" + b"a" * 300 + b"\n", b"]r\xff\xff\xff\x7f",
    b"Faaa\n", b"F1e999\n", b"\x8c\3\xed\xa0\x80", b"\x8c\1\n", b"labels", b"data", b"label_names", b"u1", b"f8",
    b"O8", b"<", b">",
]  # fmt: skip
_NAMES = list("abcdefghij")
_META = [python2({"label_names": _NAMES, "num_vis": 3072}), *(python3({b"label_names": _NAMES}, p) for p in range(6))]
_NAME_WORDS = [
    b"\n", b"\r", b"\x0b", b"\x1b[2J", b"\xed\xa0\x80", "\u2028".encode(), b" ", b"x" * 300, b"\xff",
    b"a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n"
]  # fmt: skip


def _tars() -> list[bytes]:
    names = [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]
    members = [(f"cifar/{name}", bytes([number]) + bytes(3072)) for number, name in enumerate(names)]
    long = [(f"{'ü' * 60}/{name}", content) for name, content in members]
    return [
        tar(*members),
        tar(*members, ("cifar/batches.meta.txt", "\n".join(_NAMES).encode()), form=tarfile.GNU_FORMAT),
        tar(*long, form=tarfile.PAX_FORMAT),
    ]


_TAR_WORDS = [
    b"\0" * 512, b"ustar\x0000", b"ustar", b"x", b"g", b"L", b"K", b"S", b"5", b"../", b"/", b"data_batch_1.bin",
    b"17 path=data_b\n", b"00000006001\0",
    b"99999999999 size=1\n", b"20 GNU.sparse.map=0\n", b"77777777777\0", b"\x80" + b"\xff" * 11, b"\xff" * 12,
    b"\xff\xfe", b"30 hdrcharset=BINARY\n", b"0000644",
]  # fmt: skip


def _summed(content: bytes) -> bytes:
    """A tar with the sums of its headers made right again, or most changes would end there; gzipped."""
    made = bytearray(content)
    for start in range(0, min(len(made), 100_000) - 511, 512):
        if made[start + 257 : start + 262] == b"ustar":
            made[start + 148 : start + 156] = b" " * 8
            made[start + 148 : start + 156] = b"%06o\0 " % sum(made[start : start + 512])
    return gzip.compress(bytes(made), 1)


def _checked(content: bytes) -> bytes:
    """A PNG with the checksums of its chunks made right again."""
    made, start = bytearray(content), 8
    while start + 12 <= len(made):
        length = int.from_bytes(made[start : start + 4], "big")
        if start + 12 + length > len(made):
            break
        crc = zlib.crc32(made[start + 4 : start + 8 + length])
        made[start + 8 + length : start + 12 + length] = crc.to_bytes(4, "big")
        start += 12 + length
    return bytes(made)


def _zip64(content: bytes) -> bytes:
    """The same zip with 64-bit records at its end."""
    end = content.rindex(b"PK\5\6")
    count, size, offset = struct.unpack_from("<HII", content, end + 10)
    record = struct.pack("<4sQ2H2I4Q", b"PK\6\6", 44, 45, 45, 0, 0, count, count, size, offset)
    return content[:end] + record + struct.pack("<4sIQI", b"PK\6\7", 0, end, 1) + content[end:]


_ZIP_WORDS = [
    b"PK\1\2", b"PK\1\2", b"PK\3\4", b"PK\5\6", b"PK\6\6", b"PK\6\7", b"\xff" * 4, b"\xff" * 8,
    b"\1\0\x10\0" + b"\xff" * 16, b"\1\0\x08\0" + bytes(7) + b"\x80",
    b"\x08\0", b"\x63\0", b"\0" * 4, b".jpg", b"train2017/", b"\0\x08", b"annotations/person_keypoints_train2017.json",
]  # fmt: skip


def _listing() -> CocoFiles:
    files = CocoFiles(images=6)
    crowd = {"iscrowd": 1, "num_keypoints": 0, "keypoints": [0] * 51}
    files.annotations[1] |= crowd | {
        "segmentation": {"size": [HEIGHT, WIDTH], "counts": [100, 36, HEIGHT * WIDTH - 136]}
    }
    files.annotations[2] |= crowd | {"segmentation": {"size": [HEIGHT, WIDTH], "counts": "h5h1d0oi0"}}
    files.annotations[3] |= crowd | {"iscrowd": 0, "segmentation": [[1, 1, 20, 1.5, 9, 30]] * 2}
    return files


_DOCUMENT = _listing().document()
_DOCUMENTS = [
    _DOCUMENT, json.dumps(json.loads(_DOCUMENT), indent=1).encode(), _DOCUMENT.decode().encode("utf-16")
]  # fmt: skip
_JSON_WORDS = [
    *(bytes([code]) for code in b'[]{},:"'), b"[]", b"{}", b"[],", b"{},", b"null", b"true", b"NaN", b"-Infinity",
    b"1e999", b"-1", b"0", b"1e308,", b"1,",
    b"9" * 5000, b"9223372036854775808", b"0.1", b'"\\ud800"', b'"\\udcff.jpg"', b'"\\u0000"', b"\\u0041",
    b"[" * 990, b"[" * 3000, b'"id":', b'"counts":', b'"size":',
    b'"segmentation":', b'"file_name":', b'"image_id":', b'"iscrowd":1', b'"keypoints":',
    b'"' + b"a" * 300 + b'.jpg"', b'"images":[', b'"annotations":[',
    b"   ", b'"oooooooo"', b'"..//x"', b"[[1,2,3,4,5,6]]",
]  # fmt: skip
_ANNOTATIONS = "annotations/person_keypoints_train2017.json"
_ANNOTATION_ZIP = zipped({_ANNOTATIONS: _DOCUMENT})
_IMAGES = {f"train2017/{name}": content for name, content in _listing().files.items()}


def _image(suffix: str, *options: int) -> bytes:
    pixels = cv2.blur(np.random.default_rng(3).integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8), (5, 5))
    return cv2.imencode(suffix, pixels, options)[1].tobytes()


def _animation() -> bytes:
    frames = cv2.Animation()
    frames.frames = [np.full((HEIGHT, WIDTH, 3), grey, np.uint8) for grey in (10, 200)]
    frames.durations = np.array([100, 100])
    return cv2.imencodeanimation(".png", frames)[1].tobytes()


_EXIF = b"\xff\xe1\0\x22Exif\0\0MM\0\x2a\0\0\0\x08\0\1\1\x12\0\3\0\0\0\1\0\6\0\0\0\0\0\0"
_JPEGS = [
    jpeg(3),
    jpeg(3, grey=True),
    _image(".jpg", cv2.IMWRITE_JPEG_PROGRESSIVE, 1),
    _image(".jpg", cv2.IMWRITE_JPEG_RST_INTERVAL, 1),
    jpeg(3)[:2] + _EXIF + jpeg(3)[2:],
]
_MARKERS = b"\0\xc0\xc1\xc2\xc4\xc9\xd0\xd7\xd8\xd9\xda\xdb\xdc\xdd\xe0\xe1\xfe\xff"
_JPEG_WORDS = [
    *(bytes((0xFF, code)) for code in _MARKERS), b"\xff\xda\0\2", b"\xff\xe0\0\2",
    b"\xff\xda\0\x0c\3\1\0\2\x11\3\x11\0\x3f\0", b"\xff\xdc\0\4\x1f\x40",
    b"\x1f\x40\x1f\x40", b"\xff" * 4,
]  # fmt: skip
_PNG_WORDS = [b"IHDR", b"IDAT", b"IEND", b"acTL", b"fcTL", b"PLTE", b"tRNS", b"eXIf", b"\0\0\0\0", b"\0\0\x1f\x40"]
_IDX_WORDS = [b"\0\0\x08\3", b"\0\0\x08\1", b"\0\0\0\x1c", b"\0\0\0\3", b"\x1f\x8b\x08", b"\0" * 784]
_TRUTH = {"images": [{"id": 1}], "annotations": [person(1, 1)], "categories": [{"id": 1}]}
_IDX = mnist_files(3, 2)


def _pickled(folder: Path) -> None:
    write_cifar10_pickles(folder / "in", 2)


def _rows(folder: Path) -> None:
    write_cifar10_bins(folder / "in", 2)


def _mnist(folder: Path) -> None:
    (folder / "in").mkdir()
    for name, content in _IDX.items():
        (folder / "in" / name).write_bytes(content)


def _coco(folder: Path) -> None:
    _listing().write(folder / "in")


def _coco_zips(folder: Path) -> None:
    _listing().write(folder / "in", zipped=True)


_TRAIN_IMAGES, _TRAIN_LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
PARSERS = {
    "pickle": Parser(_PICKLES, _PICKLE_WORDS, _pickled, _file_of("data_batch_1", "cifar10"), large_inputs.PICKLES),
    "pickled names": Parser(_META, _PICKLE_WORDS, _pickled, _file_of("batches.meta", "cifar10")),
    "rows": Parser([bytes(3073) * 3], [b"\x0a", bytes(3073)], _rows, _file_of("data_batch_3.bin", "cifar10")),
    "names": Parser(["\n".join(_NAMES).encode()], _NAME_WORDS, _rows, _file_of("batches.meta.txt", "cifar10")),
    "tar": Parser(_tars(), _TAR_WORDS, _nothing, _archive, large_inputs.TARS, _summed),
    "gzipped tar": Parser([gzip.compress(one) for one in _tars()], [b"\x1f\x8b\x08", b"\0" * 8], _nothing, _archive),
    "idx images": Parser([_IDX[_TRAIN_IMAGES]], _IDX_WORDS, _mnist, _file_of(_TRAIN_IMAGES, "mnist")),
    "idx labels": Parser([_IDX[_TRAIN_LABELS]], _IDX_WORDS, _mnist, _file_of(_TRAIN_LABELS, "mnist")),
    "gzipped idx": Parser(
        [gzip.compress(_IDX[_TRAIN_IMAGES])],
        _IDX_WORDS,
        _mnist,
        _file_of(_TRAIN_IMAGES, "mnist"),
        [large_inputs.packed],
    ),
    "jpeg": Parser(_JPEGS, _JPEG_WORDS, _nothing, _picture, large_inputs.JPEGS),
    "png": Parser([_image(".png"), _animation(), jpeg(3)], _PNG_WORDS, _nothing, _picture, wrap=_checked),
    "coco image": Parser(_JPEGS, _JPEG_WORDS, _coco, _coco_file("train2017/000000000003.jpg"), large_inputs.JPEGS),
    "annotations": Parser(
        _DOCUMENTS, _JSON_WORDS, _coco, _coco_file(_ANNOTATIONS), large_inputs.DOCUMENTS, document=True
    ),
    "zipped annotations": Parser(
        [_ANNOTATION_ZIP, _zip64(_ANNOTATION_ZIP)],
        _ZIP_WORDS,
        _coco_zips,
        _coco_file("annotations_trainval2017.zip"),
        [large_inputs.annotation_zip],
    ),
    "zipped images": Parser(
        [zipped(_IMAGES), zipped(_IMAGES, zipfile.ZIP_STORED), _zip64(zipped(_IMAGES))],
        _ZIP_WORDS,
        _coco_zips,
        _coco_file("train2017.zip"),
        [large_inputs.image_zip],
    ),
    "truth": Parser(
        [json.dumps(_TRUTH).encode()],
        _JSON_WORDS,
        _nothing,
        _truth,
        large_inputs.LISTS,
        document=True,
    ),
}
