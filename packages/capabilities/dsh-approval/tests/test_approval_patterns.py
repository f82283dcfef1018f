"""Rules scoped by arguments are not fooled by another way to write the same call."""

import time

import pytest

import dsh_approval
from dsh_approval import (
    ApprovalOutcome,
    ApprovalRequest,
    ApprovalRule,
    RuleAction,
    first_match,
)
from dsh_brand import freeze_object
from dsh_cordis import Next
from dsh_session import SessionStore, TurnStart
from dsh_session_projection import SessionProjectionRegistry
from dsh_tools import tool
from dsh_tools.testing import code_of, tool_bench


def decision(action: RuleAction, argument: str, pattern: str, text: str) -> bool:
    """Whether a rule is about a call with this argument, in a session in `/w`."""
    rule = ApprovalRule(tool="t", action=action, arguments=freeze_object({argument: pattern}))
    return first_match([rule], "t", {argument: text}, "/w") is rule


PLAIN_COMMANDS = ["git status", "git log -3 --oneline", "git commit -m 'a b'", "git log x..y"]

CHAINED = [
    "git status; rm -r x",
    "git status\nrm -r x",
    "git status\rrm -r x",
    "git status && rm -r x",
    "git status || rm -r x",
    "git status & rm -r x",
    "git status | sh",
    "git log $(rm -r x)",
    "git log `rm -r x`",
    "git log ${x:=y}",
    "git log > /etc/passwd",
    "git log < /etc/passwd",
    "git log <(rm -r x)",
    "git log {a,b}",
    "git log \u202e x",
    "git log \0",
    "FOO=1 git log",
    "LD_PRELOAD=./x.so git log",
    "'git' log",
    " git log",
    "./git log",
    "\u0261it log",
]


@pytest.mark.parametrize("command", PLAIN_COMMANDS)
def test_a_rule_that_allows_commands_allows_plain_ones(command: str) -> None:
    assert decision("allow", "command", "git *", command)


@pytest.mark.parametrize("command", CHAINED)
@pytest.mark.parametrize("argument", ["command", "line"])
def test_a_rule_that_allows_a_command_allows_no_second_one(argument: str, command: str) -> None:
    assert not decision("allow", argument, "git *", command)


def test_what_a_rule_that_allows_spells_out_is_allowed() -> None:
    assert decision("allow", "command", "cd * && make", "cd sub && make")
    assert not decision("allow", "command", "cd * && make", "cd sub && rm x && make")
    assert not decision("allow", "command", "cd * && make", "cd sub; make && make")
    assert not decision("allow", "command", "git [!x]*", "git a;rm")
    assert decision("allow", "command", "a; b", "a; b")
    assert decision("allow", "command", "*", "anything; at $(all)")


@pytest.mark.parametrize(
    "path",
    [
        "src/../x",
        "src/a/../../../etc/passwd",
        "src/..",
        "src/./../x",
        "src/\\../x",
        "src\\..\\x",
        "src/'.'./x",
        "src/.?/x",
        "src/.*/x",
        "src/.[.]/x",
        "src/{.,}./x",
        "/w/src/a",
        "./src/a",
        "src/a\n",
    ],
)
def test_a_rule_that_allows_a_folder_allows_no_way_out(path: str) -> None:
    assert not decision("allow", "file_path", "src/*", path)
    assert not decision("allow", "command", "cat src/*", f"cat {path}")


def test_dots_that_lead_nowhere_are_plain() -> None:
    for path in ("src/a.py", "src/.hidden", "src/...", "src/a..b", "src/*.py"):
        assert decision("allow", "file_path", "src/*", path)
    assert decision("allow", "file_path", "../src/*", "../src/a")
    assert not decision("allow", "file_path", "../src/*", "../src/../a")


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("https://a.example.com/x?y=1&z=(2);3", True),
        ("https://evil.org/x.example.com/", False),
        ("https://evil.org?.example.com/", False),
        ("https://evil.org#.example.com/", False),
        ("https://evil.org\\.example.com/", False),
        ("https://a.example.com@evil.org/.example.com/", False),
        ("https://user@a.example.com/", False),
        ("http://a.example.com/", False),
        ("https://a.example.com/../x", False),
        ("https://a.example.com/\n", False),
    ],
)
def test_a_rule_that_allows_addresses_goes_by_the_host(url: str, allowed: bool) -> None:
    assert decision("allow", "url", "https://*.example.com/*", url) is allowed


@pytest.mark.parametrize("action", ["deny", "ask"])
@pytest.mark.parametrize(
    "command",
    [
        "sudo x",
        " sudo x",
        "sudo\tx",
        "sudo",
        "true; sudo x",
        "true\nsudo x",
        "true&&sudo x",
        "true|sudo x",
        "true & sudo x",
        "(sudo x)",
        "{ sudo x; }",
        "echo $(sudo x)",
        "echo `sudo x`",
        "cat <(sudo x)",
        ">f sudo x",
        "2>&1 sudo x",
        "A=1 B=2 sudo x",
        "/usr/bin/sudo x",
        "'sudo' x",
        's"ud"o x',
        "su\\do x",
        "su\\\ndo x",
        "sudo${IFS}x",
        "if sudo x; then y; fi",
        "case a in a) sudo x;; esac",
        "env -i A=1 sudo x",
        "timeout 5 sudo x",
        "bash -c 'sudo x'",
        "bash -c 'bash -c \"sudo x\"'",
        "ls | xargs -n 1 sudo rm",
        "find . -exec sudo rm {} \\;",
        "eval sudo x",
        "A+=1 B[2]=3 sudo x",
        "su{do,} x",
        "{sudo,x}",
        "{env,sudo} x",
        "A={a,b} " * 100 + "su{do,} x",
        "su{do,}" + "{,}" * 30 + " x",
        "su{do,}" + "{,}" * 100 + " x",
        "s{u..u}do x",
        "/usr/bin/sud? x",
        "/usr/bin/s*o x",
        "env " * 1000 + "sudo x",
    ],
)
def test_a_rule_that_denies_a_command_finds_it_among_others(
    action: RuleAction, command: str
) -> None:
    assert decision(action, "command", "sudo *", command)


def test_a_rule_that_denies_a_command_leaves_others_alone() -> None:
    for command in ("sudoers x", "echo sudo x", "man sudo", "git log --sudo x", "ls su do"):
        assert not decision("deny", "command", "sudo *", command)
    assert not decision("deny", "text", "sudo *", "first; sudo x")


@pytest.mark.parametrize(
    ("path", "denied"),
    [
        (".git/config", True),
        ("./.git/config", True),
        (".git//config", True),
        ("a/../.git/config", True),
        ("../w/.git/config", True),
        ("/w/.git/config", True),
        ("/w/./a/../.git/config", True),
        (".GIT/config", True),
        ("a/.git/config", False),
        ("/other/.git/config", False),
        (".gitignore", False),
    ],
)
def test_a_rule_that_denies_a_path_finds_every_spelling(path: str, denied: bool) -> None:
    assert decision("deny", "file_path", ".git/*", path) is denied
    assert decision("deny", "file_path", "/w/.git/*", path) is denied


def test_more_braces_than_are_looked_into_count_as_anything() -> None:
    assert decision("deny", "command", "rm -rf *", "echo " + "{a,b}" * 60)
    assert decision("deny", "command", "rm -rf *", "echo {" + "a," * 6_000 + "}")
    assert not decision("deny", "command", "rm -rf *", "echo " + '{"a": [1, 2]} ' * 60)


def test_long_command_lines_are_judged_in_time() -> None:
    began = time.monotonic()
    for line in (
        *("env " * 10_000, "a=1 " * 10_000, ";" * 40_000, "a;" * 20_000, "\\" * 40_000),
        *("{" * 30_000, "{a,b} " * 6_000, "{a," * 10_000, f"x{{{'a,' * 40}}}y " * 100),
        *("[" * 30_000, "." + "[" * 30_000, "*" * 30_000),
    ):
        assert not decision("deny", "command", "*sudo*x*", line)
        assert not decision("allow", "command", "sudo *a*b*c*", line)
    assert time.monotonic() - began < 30  # it takes a second, and minutes if it is quadratic


async def test_a_fooled_rule_falls_back_to_the_question() -> None:
    ran: list[str] = []

    @tool
    async def shell(command: str) -> str:
        """Run it.

        Args:
            command: What.
        """
        ran.append(command)
        return "ran"

    rules = [
        {"tool": "shell", "action": "deny", "arguments": {"command": "sudo *"}},
        {"tool": "shell", "action": "allow", "arguments": {"command": "git *"}},
        {"tool": "shell", "action": "ask"},
    ]
    async with tool_bench(shell) as bench:
        await bench.ctx.plugin(SessionStore)
        await bench.ctx.plugin(SessionProjectionRegistry)
        await bench.ctx.plugin(dsh_approval, {"rules": rules})
        asked: list[str | None] = []

        async def answer(event: ApprovalRequest, next_: Next[ApprovalOutcome]) -> ApprovalOutcome:
            asked.append(event.call_id)
            return "rejected"

        bench.ctx.on(ApprovalRequest, answer)
        agent = bench.agent(cwd="/w")
        agent.session.append(TurnStart(turn=1))
        await bench.run_as(agent, "shell", command="git status")
        await bench.run_as(agent, "shell", command="git status; rm -r x")
        denied = await bench.run_as(agent, "shell", command="git status; sudo rm x")
    assert (ran, len(asked)) == (["git status"], 1)
    assert code_of(denied) == "APPROVAL_DENIED"
