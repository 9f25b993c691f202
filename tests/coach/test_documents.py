"""The schema of what ``--json`` prints; test_sets.py holds each verdict of the suite against it."""

import json
from dataclasses import asdict, fields, replace
from pathlib import Path

import pytest

from graders.judge import data, looks
from graders.judge.verdict import Verdict
from tests.coach.documents import faults, schema, sound

GOOD = Verdict("Square", "value", 1.0, 0.0, "Wrong value.", {"case": "x"}, "factor_missing", "value", "print(1)")
BAD = {
    "no message": {"message": ""},
    "a look that there is not": {"look": "feeling"},
    "a mistake that is no name": {"mistake": "factor missing"},
    "points below 0": {"points": -1},
    "evidence that is a list": {"evidence": []},
    "a message of two lines": {"message": "one\ntwo"},
}


def test_the_schema_names_itself_as_the_documents_do() -> None:
    assert schema()["$id"] == data.SCHEMA
    for form in ("coach", "study", "grade", "scores"):
        assert schema()["$defs"][form]["properties"]["$schema"]["const"] == data.SCHEMA


def test_a_verdict_s_parts_are_those_of_the_schema() -> None:
    parts = {part.name for part in fields(Verdict)}
    assert set(schema()["$defs"]["verdict"]["required"]) <= parts <= set(schema()["$defs"]["verdict"]["properties"])


def test_a_good_verdict_is_sound_and_a_planted_fault_is_seen() -> None:
    sound(GOOD)
    for name, change in BAD.items():
        assert faults({**asdict(GOOD), **change}, "verdict"), name
    with pytest.raises(AssertionError):
        sound(replace(GOOD, earned=2.0))


def test_every_look_is_in_the_schema() -> None:
    known = schema()["$defs"]["verdict"]["properties"]["look"]["enum"]
    assert set(looks.SYMPTOMS) <= set(known)


def test_documents_of_no_form_are_refused() -> None:
    assert faults({}) and faults({"$schema": data.SCHEMA, "form": "other"})
    assert faults(data.document("scores", points={}, students=[], notes=[]))
    assert not faults(data.document("scores", points={}, students=[], notes=[], lost=None))


def test_the_schema_is_json_that_a_person_may_read() -> None:
    path = Path(__file__).resolve().parents[2] / "graders/coach/verdicts.schema.json"
    text = path.read_text(encoding="utf-8")
    assert json.loads(text) and text.endswith("}\n")
