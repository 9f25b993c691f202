"""What ``--json`` prints, held against the schema."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from graders.judge.verdict import Verdict

SCHEMA = Path(__file__).resolve().parents[2] / "graders/coach/verdicts.schema.json"


@cache
def schema() -> dict[str, Any]:
    return json.loads(SCHEMA.read_text(encoding="utf-8"))


@cache
def validator(part: str = "") -> Draft202012Validator:
    """A validator of whole documents, or of a part."""
    Draft202012Validator.check_schema(schema())
    if not part:
        return Draft202012Validator(schema())
    return Draft202012Validator({"$ref": f"#/$defs/{part}", "$defs": schema()["$defs"]})


def faults(data: object, part: str = "") -> list[str]:
    """What is wrong with a document, or with a part of one, a line each."""
    if not part and isinstance(data, dict) and data.get("form") in schema()["$defs"]:
        part = data["form"]  # its own faults, not those of all forms that it is not
    found = validator(part).iter_errors(json.loads(json.dumps(data)))
    return [f"{'/'.join(map(str, error.absolute_path))}: {error.message[:300]}" for error in found]


def sound(verdict: Verdict) -> Verdict:
    """The verdict, which has the form that the schema says."""
    assert not (wrong := faults(verdict.data(), "verdict")), (str(verdict), wrong)
    assert 0 <= verdict.earned <= verdict.points
    return verdict
