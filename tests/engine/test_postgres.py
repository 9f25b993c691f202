"""A gradebook in PostgreSQL: a real server, started here and gone afterwards."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.engine.commands import HERE, RIGHT, WRONG, grade, start, tiny_course
from tests.path.course_maker import hand_in

pytestmark = pytest.mark.usefixtures("warm")


def _programs() -> Path | None:
    """Where PostgreSQL's programs are: Debian keeps them off PATH."""
    folders = [Path(found).parent for found in [shutil.which("initdb")] if found]
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((folder for folder in folders if (folder / "initdb").exists() and (folder / "pg_ctl").exists()), None)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The URL of a database on a server of our own, run by an ordinary user: PostgreSQL refuses to run as root."""
    programs = _programs()
    if not programs:
        if os.environ.get("COURSE_REQUIRE_SANDBOX"):
            pytest.fail("there is no PostgreSQL server: apt-get install postgresql")
        pytest.skip("there is no PostgreSQL server")
    with tempfile.TemporaryDirectory(prefix="pg-") as folder:  # a socket's path may not be long
        user, become = "grader", []
        if os.geteuid() == 0:
            someone = next(
                (u for u in ("postgres", "nobody") if u in {entry.pw_name for entry in pwd.getpwall()}), None
            )
            entry = pwd.getpwnam(someone or "nobody")
            os.chown(folder, entry.pw_uid, entry.pw_gid)
            become = ["setpriv", f"--reuid={entry.pw_uid}", f"--regid={entry.pw_gid}", "--clear-groups", "--"]
        os.chmod(folder, 0o711)

        def run(program: str, *arguments: str) -> None:
            command = [*become, str(programs / program), *arguments]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
            assert done.returncode == 0, done.stdout + done.stderr

        data = f"{folder}/data"
        run("initdb", "-D", data, "-U", user, "-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C")
        options = f"-k {folder} -c listen_addresses='' -c fsync=off"
        run("pg_ctl", "-D", data, "-o", options, "-w", "-l", f"{folder}/log", "start")
        try:
            with psycopg.connect(host=folder, user=user, dbname="postgres", autocommit=True) as connection:
                connection.execute("CREATE DATABASE grades")
                connection.execute("CREATE DATABASE half")
            yield f"postgresql+psycopg://{user}@/grades?host={folder}"
        finally:
            run("pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")


def _query(url: str, query: str) -> list[tuple]:
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        return connection.execute(query).fetchall()


def test_a_class_is_graded_into_it_and_nothing_twice(server, tmp_path):
    """By ``--db``; then, with the URL in nbgrader's settings, nothing is left to do, and `scores` reads it."""
    root = tiny_course(tmp_path, ada=RIGHT, ben=WRONG)
    code, out, err = grade(root, "--db", server, "--workers", "2")
    assert (code, err) == (0, ""), out
    assert not (root / "gradebook.db").exists()
    query = "SELECT s.student_id, sum(g.auto_score) FROM grade g JOIN submitted_notebook n ON g.notebook_id = n.id "
    query += "JOIN submitted_assignment s ON n.assignment_id = s.id GROUP BY 1 ORDER BY 1"
    assert _query(server, query) == [("ada", 6.0), ("ben", 4.0)]
    assert _query(server, "SELECT count(*) FROM alembic_version") == [(1,)]

    with (root / "nbgrader_config.py").open("a") as file:
        file.write(f"\nc.CourseDirectory.db_url = {server!r}\n")
    code, out, err = grade(root, *HERE)
    assert (code, err) == (0, "") and "2 of them earlier" in out
    hand_in(root, "ben", **RIGHT)
    code, out, err = grade(root, *HERE)
    assert (code, err) == (0, "") and "1 of them earlier" in out
    assert _query(server, query) == [("ada", 6.0), ("ben", 6.0)]
    code, out, err = start(root, "scores", "--csv").done()
    assert (code, err) == (0, "")
    assert out.splitlines()[1:] == ["ada,6,6", "ben,6,6"]
    assert not (root / "gradebook.db").exists()


def test_one_that_cannot_be_used_is_refused_in_a_line(server, tmp_path):
    half = server.replace("/grades", "/half")
    with psycopg.connect(half.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute("CREATE TABLE assignment (id TEXT)")
    root = tiny_course(tmp_path, ada=RIGHT)
    for url, said in (
        (half, "the database 'half' is incomplete"),
        (server.replace("/grades", "/none"), 'database "none" does not exist'),
        ("postgresql+psycopg://who:secret@localhost:1/grades", "cannot be opened"),
        ("postgresql+nodriver://who@localhost/grades", "postgresql+psycopg://USER"),
        ("grades", "is not a database URL"),
    ):
        code, _, err = grade(root, *HERE, "--db", url)
        assert code == 2 and len(err.splitlines()) == 1, err
        assert said in err and "secret" not in err, err
    assert not (root / "autograded").exists()
