"""The official class names by label, for sources without names, and the rules for valid class names."""

from __future__ import annotations

import unicodedata

from podline.data import bounds

# Unicode categories: control characters, line and paragraph separators, surrogates.
_NO_LETTERS = frozenset({"Cc", "Zl", "Zp", "Cs"})

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
    """Return the problem of a class name, or an empty string; names are stored one per line for other programs."""
    if not name.strip():
        return "is empty"
    if name != name.strip():
        return "begins or ends with a blank"
    if len(name) > bounds.CLASS_NAME_LETTERS:
        return f"has {len(name):,} letters vs {bounds.CLASS_NAME_LETTERS} at most"
    odd = next((letter for letter in name if unicodedata.category(letter) in _NO_LETTERS), "")
    return f"has the character U+{ord(odd):04X}, a line break or an invalid character" if odd else ""
