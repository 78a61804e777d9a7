"""What the documented commands take along: a repair of one thing must not end another."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

from fleet.localaws import inventory
from fleet.localaws.deployed import Deployed
from tests.docs.commands import FENCE, INLINE, PAGES, ROOT, shown, told
from tests.docs.test_commands import ELSEWHERE, ONLY_CHECKED, of, request

ENDS = {"parameter: /llm/on-demand-percentage", "parameter: /llm/watchdog-state"}  # what the teardown page deletes
DELETES = re.compile(r"\b(destroy(s|ed|ing)?|delete[sd]?|deleting) [^.|\n]*\bstacks?\b", re.IGNORECASE)
# Sentences that tell of a deletion and ask nobody for it.
TOLD_OF = {
    "docs/decisions/lever.md": "deleting the lever's stack takes the group's along",
    "docs/runbook/deploy-failed.md": "the CDK CLI first deletes what is left of that one stack",
    "docs/teardown.md": "It deletes every stack",
}


def test_the_aws_commands_that_are_shown_are_such_and_end_nothing_but_what_the_teardown_page_says(
    live: Deployed,
) -> None:
    """The AWS CLI's own grammar, read from its service models: run on the embedded AWS, or its parameters checked."""
    before = inventory.listing(live.aws)
    for command in of("aws"):
        if command.words[:3] not in ELSEWHERE:
            call, arguments = request(command, live)
            if command.words[2] not in ONLY_CHECKED:
                call(**arguments)
    assert before - inventory.listing(live.aws) == ENDS


def test_what_deletes_stands_on_the_teardown_page_alone() -> None:
    deleting = [
        command for command in of("aws", [*shown(), *told()]) if command.words[2].startswith(("delete-", "terminate-"))
    ]
    assert {command.page for command in deleting} == {"docs/teardown.md"}


def test_no_command_destroys_one_stack_and_those_that_depend_on_it(assembly: Path) -> None:
    """`cdk destroy STACK` takes every stack along that depends on it, after one question."""
    artifacts = json.loads((assembly / "manifest.json").read_text())["artifacts"]
    for command in of("cdk", [*shown(), *told()]):
        named = {word for word in command.words[2:] if word in artifacts}
        if command.words[1] == "destroy" and "--exclusively" not in command.words:
            along = {name for name, item in artifacts.items() if named & set(item.get("dependencies", []))}
            assert along <= named, f"{command} takes {along - named} along"


def test_no_sentence_asks_to_delete_a_stack_without_a_command_that_is_tested() -> None:
    found = {(str(page.relative_to(ROOT)), sentence) for page in PAGES for sentence in sentences(page)}
    assert [each for each in found if TOLD_OF.get(each[0], "-") not in each[1]] == []
    assert {page for page, _ in found} == set(TOLD_OF)


def sentences(page: Path) -> Iterator[str]:
    """Prose that speaks of deleting stacks; fenced and inline commands are tested as such."""
    prose = INLINE.sub("`...`", FENCE.sub("", page.read_text(encoding="utf-8")))
    for sentence in re.split(r"(?<=[.:;])\s", " ".join(prose.split())):
        if DELETES.search(sentence):
            yield sentence
