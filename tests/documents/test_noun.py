from __future__ import annotations

from podline.documents.noun import PEOPLE, noun_of
from podline.documents.skeleton import COCO


def test_what_is_said_of_people_stays_as_it_is():
    assert COCO.noun == PEOPLE
    for words in ("AP, medium people", "People and whom nobody finds", "unlabelled_people"):
        assert PEOPLE.said(words) == words
    assert [PEOPLE.counted(number) for number in (0, 1, 1200)] == ["no people", "1 person", "1,200 people"]


def test_a_category_has_its_name_and_several_are_instances():
    mouse = noun_of("mouse")
    assert [mouse.counted(number) for number in (0, 1, 12)] == [
        "no instances of mouse",
        "1 mouse",
        "12 instances of mouse",
    ]
    assert mouse.said("AP, medium people") == "AP, medium instances of mouse"
    assert mouse.said("Whom x finds; unlabelled_people, whole") == "What x finds; unlabelled_instances of mouse, whole"
    assert noun_of("").counted(3) == "3 instances"
    assert (mouse.an, noun_of("ant").an) == ("a mouse", "an ant")
