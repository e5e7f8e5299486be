"""The official class names by label, for sources without names, and the rules for valid class names."""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Collection, Iterable
from decimal import Decimal

from podline.base.plurals import first_few
from podline.data import bounds
from podline.data.shown import shortened

# Unicode categories: control and format characters, line and paragraph separators, surrogates.
_NO_LETTERS = frozenset({"Cc", "Cf", "Zl", "Zp", "Cs"})
# Persian, the scripts of India and emojis join or separate letters by these.
_JOINERS = re.compile("(?<=[^\x00-\x7f])[\u200c\u200d](?=[^\x00-\x7f])")
# A comma before three digits may group thousands; any other is a decimal comma.
_DECIMALS = r"(?:\.[0-9]*|,(?![0-9]{3}(?![0-9]))[0-9]*)?"
_WHOLE = re.compile(rf"[+-]?(?:0|[1-9][0-9]*){_DECIMALS}(?:[eE][+-]?[0-9]{{1,2}})?")
_ZEROS = re.compile(rf"0*([0-9]+?){_DECIMALS.replace('[0-9]*', '0*')}")
_ACCENTS = re.compile("[\u0300-\u036f\u200c\u200d\ufe00-\ufe0f]")  # also joiners and variation selectors
_BLANKS = re.compile(r"(?<=[^\W\d_])[\s_-]+(?=[^\W_])|(?<=\d)[\s_-]+(?=[^\W\d_])")
_PAIRS = 3  # pairs of class names in a warning

CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

CIFAR100_FINE = tuple(
    """
    apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can
    castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin
    elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard
    lobster man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear
    pickup_truck pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea seal
    shark shrew skunk skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank
    telephone television tiger tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm
    """.split()  # noqa: SIM905 (as a list it would be a hundred lines)
)

CIFAR100_COARSE = tuple(
    """
    aquatic_mammals fish flowers food_containers fruit_and_vegetables household_electrical_devices
    household_furniture insects large_carnivores large_man-made_outdoor_things large_natural_outdoor_scenes
    large_omnivores_and_herbivores medium_mammals non-insect_invertebrates people reptiles small_mammals trees
    vehicles_1 vehicles_2
    """.split()  # noqa: SIM905 (as a list it would be a hundred lines)
)

MNIST = tuple("0123456789")

SAMPLE = ("disc", "ring", "square", "triangle", "cross", "star", "crescent", "stripes", "checks", "dots")


def problem_of(name: str) -> str:
    """Return what makes a class name invalid, as a phrase after the name; empty if valid.

    Line breaks are invalid, since other programs read a file with one name per line.
    """
    if not name.strip():
        return "is empty"
    if name != name.strip():
        return "begins or ends with a blank"
    if len(name) > bounds.CLASS_NAME_LETTERS:
        return f"has {len(name):,} letters vs {bounds.CLASS_NAME_LETTERS} at most"
    letters = _JOINERS.sub("", name)
    odd = next((letter for letter in letters if unicodedata.category(letter) in _NO_LETTERS), "")
    return f"has the character U+{ord(odd):04X}, expected no line breaks, invisible or invalid ones" if odd else ""


def whole_numbers(names: Iterable[str]) -> dict[str, str]:
    """Map each name to its number as text, ``1.0`` → ``1``; return an empty dict if any is not a whole number.

    A name with leading zeros, or with a comma that may group thousands (``1,000``), is not a number.
    """
    numbers = dict[str, str]()
    for name in names:
        number = Decimal(name.replace(",", ".")) if _WHOLE.fullmatch(name) else Decimal("0.5")
        if number != number.to_integral_value():  # not `% 1`, which fails for more than 28 digits
            return {}
        numbers[name] = str(int(number))
    return numbers


def alike(trained: Collection[str], untrained: Collection[str] = ()) -> list[str]:
    """Return a warning about classes whose names hardly differ: a list of one line, or an empty list.

    Args:
        trained: the classes with a training image.
        untrained: the other classes; their names are also compared without parent folders.
    """
    groups = defaultdict[str, list[str]](list)
    for name in sorted({*trained, *untrained}):
        groups[likeness(name)].append(name)
    pairs = [group for group in groups.values() if len(group) > 1]
    lasts = {likeness(last_part(name)): name for name in trained}
    for name in sorted(untrained):
        known = lasts.get(likeness(last_part(name)))
        if known and likeness(name) != likeness(known):
            pairs.append([name, known])
    if not pairs:
        return []
    named = first_few([" and ".join(map(shortened, pair)) for pair in pairs], _PAIRS)
    remedy = "if two names mean one class, use one name in the table, or put the images into one folder"
    return [f"class names differ only by case, accents, blanks, zeros or parent folders: {named}; {remedy}"]


def last_part(name: str) -> str:
    """Return the last path component of a class name, which may be the path of a folder."""
    return name.rpartition("/")[2]


def likeness(name: str) -> str:
    """Normalise a class name for comparison: case-folded, no accents or blanks, numbers without outer zeros."""
    text = _ACCENTS.sub("", unicodedata.normalize("NFKD", name).casefold())
    number = _ZEROS.fullmatch(text)
    return number[1] if number else _BLANKS.sub("", text)
