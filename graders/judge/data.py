"""What every document of ``--json`` begins with; ``graders/coach/verdicts.schema.json`` says what stands in each."""

from typing import Any

SCHEMA = "urn:custom-gradients:verdicts:1"  # the number goes up where a reader of the old form would go wrong


def document(form: str, **parts: Any) -> dict[str, Any]:
    """Return a document of one of the forms: coach, study, grade, scores."""
    return {"$schema": SCHEMA, "form": form, **parts}
