"""Inputs of up to ten megabytes that cost as much as their format lets them: one kind of thing, very many times."""

from __future__ import annotations

import gzip
import io
import json
import random
import struct
import tarfile
import zipfile
from collections.abc import Callable

from coco_files import HEIGHT, WIDTH, jpeg, person
from mutation import LARGEST_INPUT

Maker = Callable[[random.Random], bytes]


def tar(*members: tuple[str, bytes], form: int = tarfile.USTAR_FORMAT) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=form) as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return stream.getvalue()


def zipped(files: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), content, method)
    return stream.getvalue()


def _filled(before: bytes, pieces: list[bytes], after: bytes = b"", size: int = LARGEST_INPUT) -> Maker:
    """One of some pieces, so often that it fills the input."""

    def make(chance: random.Random) -> bytes:
        piece, most = chance.choice(pieces), chance.choice((size // 100, size // 10, size))
        return before + piece * ((most - len(before) - len(after)) // len(piece)) + after

    return make


_TEXT = b"V" + b"a" * 100_000 + b"\nq\0c_codecs\nencode\nq\1U\6latin1q\2"
_MEMO = b"S'" + b"a" * 1_000_000 + b"'\nq\0}"
PICKLES: list[Maker] = [
    _filled(
        b"\x80\2", [b"]", b"}", b"(", b"N", b"2", b")", b"K\1", b"q\0", b"0", b"U\1a", b"I1\n", b"L1L\n", b"F1\n"], b"."
    ),
    _filled(
        b"\x80\2](",
        [b"K\1", b"J\1\2\3\4", b"G" + bytes(8), b"U\3abc", b"]", b"}", b"X\3\0\0\0abc", b"\x8a\x08" + b"\x7f" * 8],
        b"e.",
    ),
    _filled(_TEXT, [b"h\1h\0h\2\x86R0", b"h\1h\0h\2\x86R"], b"."),
    _filled(_MEMO, [b"h\0K\1s", b"(h\0K\1u"], b"."),
    _filled(b"V", [b"\\u0041", b"\\", b"\\x41"], b"\n."),
    _filled(b"S'", [b"\\x41", b"\\n", b"\\"], b"'\n."),
    _filled(b"L", [b"9"], b"L\n."),
    _filled(b"F", [b"9", b"0."], b"\n."),
]

_JPEG = jpeg(3)
_SCAN = _JPEG[_JPEG.index(b"\xff\xda") : -2]


def _large_frame(chance: random.Random) -> bytes:
    """A small image that says it is a large one, in a file as long as a large one's."""
    data = bytearray(_JPEG)
    frame = data.index(b"\xff\xc0")
    data[frame + 5 : frame + 9] = struct.pack(
        ">HH", *chance.choice(((8000, 8000), (1000, 1000), (65535, 900), (1, 65535)))
    )
    return bytes(data[:-2]) + bytes(chance.choice((0, 1000, 200_000))) + bytes(data[-2:])


JPEGS: list[Maker] = [
    _filled(
        _JPEG[:-2],
        [
            b"\xff\xda\0\2",
            b"\xff\xe0\0\2",
            b"\xff\xd0",
            b"\xff\0",
            b"\xff",
            b"\0",
            b"\xff\xfe\0\3a",
            _SCAN,
            b"\xff\xc0\0\x0b\x08\x1f\x40\x1f\x40\1\1\x11\0",
        ],
        b"\xff\xd9",
    ),
    _filled(_JPEG[:2], [b"\xff\xe1\0\x0eExif\0\0MM\0\x2a\0\0", b"\xff\xdb\0\2", b"\xff\xc4\0\2"], _JPEG[2:]),
    _large_frame,
]


def _row(number: int) -> bytes:
    return bytes([number]) + bytes(3072)


def _tar_of(name: str, size: int) -> Maker:
    return lambda chance: tar(("cifar/data_batch_1.bin", _row(1)), (name, bytes(size // chance.choice((1, 10, 100)))))


def _pax(records: bytes) -> bytes:
    header = bytearray(tar(("x", records))[:512])
    header[156:157] = b"x"
    return bytes(header) + records + bytes(-len(records) % 512)


TARS: list[Maker] = [
    _filled(
        b"", [tar(("x", b""))[:512], tar(("data_batch_1.bin", b""))[:512], _pax(b"11 path=abc\n"), _pax(b"9" * 500)]
    ),
    _filled(
        b"",
        [
            _pax(b"11 path=abc\n" * 80_000),
            _pax(b"99999 " * 100_000),
            _pax(b"20 GNU.sparse.map=0," + b"0," * 300_000 + b"\n"),
        ],
    ),
    _tar_of("cifar/batches.meta.txt", 120_000_000),
    _tar_of("cifar/data_batch_2.bin", 120_000_000),
    _tar_of("cifar/passed over", 120_000_000),
]


def packed(chance: random.Random) -> bytes:
    """A gzipped file that becomes a thousand times as large."""
    return gzip.compress(bytes(chance.choice((1, 10, 100)) * 1_200_000), 1)


def _listing(images: bytes, annotations: bytes) -> bytes:
    return b'{"images":[' + images + b'],"annotations":[' + annotations + b"]}"


_IMAGES = b",".join(
    json.dumps({"id": n, "file_name": f"{n:012}.jpg", "width": WIDTH, "height": HEIGHT}).encode() for n in range(1, 7)
)
_CROWD = {"iscrowd": 1, "num_keypoints": 0, "keypoints": [0] * 51}
_RUNS = {"size": [HEIGHT, WIDTH], "counts": "h5h1d0oi0"}


def _annotations(pieces: list[bytes]) -> Maker:
    return _filled(_listing(_IMAGES, b"")[:-2], [piece + b"," for piece in pieces], b"0]}")


def _people(outline: object, **changed: object) -> bytes:
    return json.dumps(person(1, 1, **_CROWD, segmentation=outline, **changed), separators=(",", ":")).encode()


def _crowd(before: str, piece: str, after: str, size: int = 1_900_000) -> Maker:
    """One crowd whose outline is as long as an entry may be."""

    def make(chance: random.Random) -> bytes:
        outline = before + piece * (size // chance.choice((1, 10, 100)) // len(piece)) + after
        text = _people("OUTLINE").replace(b'"OUTLINE"', outline.encode())
        return _listing(_IMAGES, text)

    return make


_SIZE = f'"size":[{HEIGHT},{WIDTH}]'
DOCUMENTS: list[Maker] = [
    _annotations(
        [
            b"{}",
            b"[]",
            b"0",
            b'"a"',
            b'{"image_id":1}',
            b'{"id":1,"image_id":99,"category_id":1}',
            b"[[],[],[]]",
            b'{"a":{"b":{}}}',
        ]
    ),
    _annotations(
        [
            _people(_RUNS),
            _people([[1, 1, 40, 1, 20, 30]]),
            _people(None),
            json.dumps(person(1, 1)).encode(),
            _people(_RUNS, id=2, image_id=2),
        ]
    ),
    _filled(
        b'{"annotations":[],"images":[',
        [
            b"{},",
            b'{"id":1,"file_name":"a.jpg","width":48,"height":32},',
            b"0,",
            b'{"file_name":"' + b"a" * 300 + b'"},',
        ],
        b"0]}",
    ),
    _crowd("[", "[1,1,40,1,20,30],", "[1,1,1]]"),
    _crowd("[", "[],", "[]]"),
    _crowd("[[", "1,", "1]]"),
    _crowd("[[", "1e999,", "1]]"),
    _crowd("[[", "0,0,48,32,", "1,1]]"),
    _crowd('{"counts":"', "0", f'",{_SIZE}}}'),
    _crowd('{"counts":"', "P", f'",{_SIZE}}}'),
    _crowd('{"counts":"', "1N", f'",{_SIZE}}}'),
    _crowd('{"counts":[', "0,", f"1536],{_SIZE}}}"),
    _crowd('{"counts":[', "1,", f"0],{_SIZE}}}"),
    _crowd('{"counts":[', "[],", f"0],{_SIZE}}}"),
    _crowd('{"counts":', "[", "0"),
    _crowd("", "9", ""),
    _filled(b"", [b" ", b"\n", b"[", b"{", b'{"a":', b'"a', b"9", b"\\u0041"], b"0"),
    _filled(b'{"info":"', [b"\\u0041", b"a", "ü".encode(), b"\\n"], b'",' + _listing(b"", b"")[1:]),
    _filled(b"{", [b'"a":1,', b'"abc":[],', b'"a":{},'], _listing(b"", b"")[1:]),
    _filled(b'{"info":{', [b'"a":1,', b'"a":[],'], b'"b":0},' + _listing(b"", b"")[1:]),
]
LISTS: list[Maker] = [_filled(b"[", [b"[],", b"{},", b"0,", b'"a",', b"[[["], b"0]")]


def annotation_zip(chance: random.Random) -> bytes:
    """Spaces, which become a thousandth of their size, or as many images and annotations."""
    piece = chance.choice((b" ", b"{},", b"[", b'{"id":1,"image_id":1},'))
    content = _listing(_IMAGES, b"")[:-2] + piece * (chance.choice((1, 10, 120)) * 1_000_000 // len(piece))
    return zipped({"annotations/person_keypoints_train2017.json": content})


def image_zip(chance: random.Random) -> bytes:
    """Very many members, members that become a thousand times as large, or all of them one and the same."""
    kind = chance.choice(("many", "packed", "overlapping"))
    if kind == "packed":
        return zipped(
            {f"train2017/{n:012}.jpg": _JPEG[:-2] + bytes(60_000_000) for n in range(1, 1 + chance.choice((1, 5)))}
        )
    count = chance.choice((1_000, 20_000, 80_000))
    names = [f"{n:012}.jpg".encode() for n in range(count)]
    local = [
        struct.pack("<4s5H3I2H", b"PK\3\4", 20, 0, 0, 0, 33, 0, 100, 100, len(name), 0) + name + bytes(100)
        for name in names
    ]
    body, starts, at = b"".join(local), [], 0
    for piece in local:
        starts.append(0 if kind == "overlapping" else at)
        at += len(piece)
    size = 60_000_000 if kind == "overlapping" else 100
    directory = b"".join(
        struct.pack("<4s6H3I5H2I", b"PK\1\2", 20, 20, 0, 0, 0, 33, 0, size, size, len(name), 0, 0, 0, 0, 0, start)
        + name
        for name, start in zip(names, starts, strict=True)
    )
    if kind == "overlapping":
        body = body[:1_000_000]
    end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, count & 0xFFFF, count & 0xFFFF, len(directory), len(body), 0)
    return body + directory + end
