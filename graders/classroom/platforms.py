"""How learning platforms name what they let you download: a student's folder, archive or notebook.

What a platform puts around a student's name is another for each set. It is taken off here, so that a student has the
same name in each; the number that it gives a person tells two people of one name apart.
"""

import re
from dataclasses import dataclass
from typing import NamedTuple

FOLDERS = "folders"  # no platform: folders, archives and notebooks that are called as the students


class Signed(NamedTuple):
    """What a platform's name says.

    Args:
        name: the student, as the platform calls them.
        person: what tells two students of that name apart, "" where the platform does not say.
        version: later hand-ins of a student have greater ones.
        rest: the name of the student's own file, "" for a folder.
    """

    name: str
    person: str
    version: tuple[str, ...]
    rest: str


@dataclass(frozen=True)
class Platform:
    """A learning platform.

    Args:
        title: its name.
        form: what it calls a student's folder or file: with ``name``, perhaps ``person``, ``version``, ``rest``.
        example: such a name.
        told: whether a name of this form cannot be anything else.
        surplus: its own files, which nobody misses.
    """

    title: str
    form: str
    example: str
    told: bool = True
    surplus: str = r"(?!)"


PLATFORMS = {
    "canvas": Platform(
        "Canvas",
        r"(?P<name>[^_]+)_(LATE_)?(?P<person>\d+)_(?P<version>\d+)_(?P<rest>.+)",
        "doejane_12345_678901_relu.ipynb",
    ),
    "moodle": Platform(
        "Moodle",
        r"(?P<name>.+)_(?P<person>\d+)_assignsubmission_(file|onlinetext)_?(?P<rest>.*)",
        "Jane Doe_12345_assignsubmission_file_",
        surplus=r"(.*_assignsubmission_onlinetext_.*|onlinetext)\.html",
    ),
    "blackboard": Platform(
        "Blackboard",
        r"(?P<person>(.+_)?(?P<name>[^_]+))_attempt_(?P<version>\d{4}(-\d\d){5})(_(?P<rest>.+)|\.txt)?",
        "01 ReLU_jdoe_attempt_2026-03-01-10-00-00_relu.ipynb",
        surplus=r".*_attempt_\d{4}(-\d\d){5}\.txt",
    ),
    "brightspace": Platform(
        "Brightspace",
        r"(?P<person>\d+)-\d+ ?- ?(?P<name>.+?) ?- ?"
        r"(?P<version>\w{3,9} \d{1,2}, \d{4} \d{3,4} ?[AP]M)( ?- ?(?P<rest>.+))?",
        "12345-67890 - Jane Doe - Mar 1, 2026 1000 AM",
        surplus=r"index\.html",
    ),
    "sakai": Platform(
        "Sakai",
        r"[^(),]+, ?[^()]+\((?P<name>[^()]+)\)",
        "Doe, Jane(jdoe)",
        surplus=r"timestamp\.txt|comments\.txt|grades\.(csv|xls)|.*_submissionText\.html",
    ),
    "gradescope": Platform(
        "Gradescope",
        r"submission_(?P<version>\d+) (?P<name>.+)",  # the name is not Gradescope's: `gradescope` puts it there
        "submission_1001 jdoe",
        surplus=r"submission_metadata\.yml",
    ),
    "github": Platform("GitHub Classroom", r"@SET@-(?P<name>[^/]+)", "01-relu-janedoe", told=False),
}
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


def signed(name: str, assignment: str, platform: str | None) -> Signed | None:
    """Return what the name of a folder or file says, None where it is not of the platform's form.

    Args:
        name: without ``.zip`` for an archive.
        assignment: the set.
        platform: of `PLATFORMS`; without one, of any whose form cannot be anything else.
    """
    if len(name) > 300:
        return None
    for key, one in PLATFORMS.items():
        if key == platform or (platform is None and one.told):
            slug = assignment.replace("_", "-")
            form = one.form.replace("@SET@", f"({re.escape(slug)}|{re.escape(slug.partition('-')[2] or slug)})")
            if found := re.fullmatch(form, name, re.DOTALL):
                groups = {group: text or "" for group, text in found.groupdict().items()}
                version = groups.get("version", "")
                return Signed(groups["name"].strip(), groups.get("person", ""), _order(version), groups.get("rest", ""))
    return None


def platform_of(name: str) -> str | None:
    """Return the platform whose form a name cannot but be of."""
    return next((key for key, one in PLATFORMS.items() if one.told and signed(name, "", key)), None)


def surplus(name: str, platform: str | None) -> bool:
    """Return whether a platform, and not a student, put a file there."""
    return any(
        re.fullmatch(one.surplus, name) for key, one in PLATFORMS.items() if platform in (key, None) and len(name) < 300
    )


def _order(version: str) -> tuple[str, ...]:
    """Return what puts versions in order: a number, a date in digits, ``Mar 1, 2026 1000 AM``."""
    if date := re.fullmatch(r"(\w{3})\w* (\d+), (\d+) (\d{1,2})(\d\d) ?([AP]M)", version):
        month, day, year, hour, minute, half = date.groups()
        number = MONTHS.index(month.lower()) + 1 if month.lower() in MONTHS else 0
        return (f"{year}{number:02}{int(day):02}{int(hour) % 12 + 12 * (half == 'PM'):02}{minute}",)
    return (version.zfill(20),) if version else ()
