"""What nbgrader does anew for each notebook and need not, done once a command: open the gradebook, look up a cell."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import jsonschema
from jsonschema.exceptions import best_match
from jsonschema.protocols import Validator
from jsonschema.validators import validator_for
from nbgrader.api import Gradebook
from nbgrader.coursedir import CourseDirectory
from nbgrader.nbgraderformat import common
from sqlalchemy import Engine
from sqlalchemy.orm import scoped_session, sessionmaker

from graders.classroom import preprocess


@contextmanager
def prepared_once() -> Iterator[None]:
    """Within it nbgrader's gradebooks share their connections, and its schema of cell metadata is checked once.

    Sessions and their transactions stay apart; what is shared is the engine, so that the tables are not looked for and
    the statements not compiled again, eleven times a submission. Two thirds of nbgrader's own time goes there.
    """
    engines: dict[str, Engine] = {}
    courses: set[tuple[str, str]] = set()
    open_first, close_at_once = Gradebook.__init__, Gradebook.close

    def open_again(self: Gradebook, db_url: str, course_id: str = "default_course", authenticator: Any = None) -> None:
        if db_url not in engines:
            open_first(self, db_url, course_id, authenticator)
            engines[db_url] = self.engine
            courses.add((db_url, course_id))
            return
        self.engine, self.course_id, self.authenticator = engines[db_url], course_id, authenticator
        self.db = scoped_session(sessionmaker(autoflush=True, bind=self.engine, future=True))
        if (db_url, course_id) not in courses:
            self.check_course(course_id=course_id)
            courses.add((db_url, course_id))

    def close(self: Gradebook) -> None:
        self.db.remove()

    try:
        Gradebook.__init__, Gradebook.close = open_again, close
        common.jsonschema = SimpleNamespace(validate=_validate)
        yield
    finally:
        Gradebook.__init__, Gradebook.close = open_first, close_at_once
        common.jsonschema = jsonschema
        for engine in engines.values():
            engine.dispose()


@contextmanager
def cells_once() -> Iterator[None]:
    """Within it a released cell is looked up in the gradebook once: for grading alone, where nobody changes one."""
    lookups = {name: getattr(Gradebook, name) for name in ("find_source_cell", "find_graded_cell")}
    known: dict[tuple[str, ...], SimpleNamespace] = {}
    originals, released = preprocess.originals, {}

    def once(name: str) -> Callable[..., SimpleNamespace]:
        def find(self: Gradebook, cell: str, notebook: str, assignment: str) -> SimpleNamespace:
            key = (name, str(self.engine.url), cell, notebook, assignment)
            if key not in known:
                found = lookups[name](self, cell, notebook, assignment)
                fields = ("name", "cell_type", "source", "checksum", "locked", "max_score")
                known[key] = SimpleNamespace(**{f: getattr(found, f) for f in fields if hasattr(found, f)})
            return known[key]

        return find

    def originals_once(gradebook: Gradebook, coursedir: CourseDirectory, assignment: str, notebook: str) -> dict:
        key = (str(gradebook.engine.url), assignment, notebook)
        if key not in released:
            released[key] = originals(gradebook, coursedir, assignment, notebook)
        return released[key]

    try:
        for name in lookups:
            setattr(Gradebook, name, once(name))
        preprocess.originals = originals_once
        yield
    finally:
        preprocess.originals = originals
        for name, lookup in lookups.items():
            setattr(Gradebook, name, lookup)


def _validate(instance: object, schema: dict[str, Any]) -> None:
    """What `jsonschema.validate` does; it would check the schema itself again for each cell, and each cell again."""
    _valid(json.dumps(instance), json.dumps(schema))


@lru_cache(maxsize=1000)  # of what is valid; it raises for the rest
def _valid(instance: str, schema: str) -> None:
    if (error := best_match(_validator(schema).iter_errors(json.loads(instance)))) is not None:
        raise error


@lru_cache
def _validator(schema: str) -> Validator:
    kind = validator_for(json.loads(schema))
    kind.check_schema(json.loads(schema))
    return kind(json.loads(schema))
