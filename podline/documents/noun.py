"""What a skeleton belongs to, in words: COCO's people are people, anything else are instances of its category."""

from __future__ import annotations

import re
from typing import NamedTuple

_WORDS = re.compile(r"(?<![^\W_])(people|person|nobody|whom?)(?![^\W_])", re.IGNORECASE)


class Noun(NamedTuple):
    """A noun, and the words that go with it.

    Attributes:
        one: the singular.
        many: the plural.
        nobody: none of them, as the subject of a sentence.
        everybody: all of them, likewise.
        who: the relative pronoun.
        whom: what is found.
        keypoints: theirs.
    """

    one: str
    many: str
    nobody: str
    everybody: str
    who: str
    whom: str
    keypoints: str

    @property
    def an(self) -> str:
        """The singular with its article."""
        return f"{'an' if self.one[0].lower() in 'aeio' else 'a'} {self.one}"

    def counted(self, number: int) -> str:
        """So many of them, in words: ``no people``, ``1 person``."""
        return f"{f'{number:,}' if number else 'no'} {self.one if number == 1 else self.many}"

    def said(self, of_people: str) -> str:
        """What is said of people, said of these."""
        return _WORDS.sub(self._word, of_people)

    def _word(self, found: re.Match[str]) -> str:
        words = {"person": self.one, "people": self.many, "nobody": self.nobody, "who": self.who, "whom": self.whom}
        word = words[found[0].lower()]
        return word[0].upper() + word[1:] if found[0][0].isupper() else word


PERSON = "person"
PEOPLE = Noun(PERSON, "people", "nobody", "everybody", "who", "whom", "people’s keypoints")


def noun_of(category: str) -> Noun:
    """The noun of a category; of several categories, as which an empty name stands, a neutral one."""
    if category == PERSON:
        return PEOPLE
    one = category or "instance"
    many = f"instances of {category}" if category else "instances"
    return Noun(one, many, f"no {one}", f"every {one}", "that", "what", f"{category} keypoints".strip())
