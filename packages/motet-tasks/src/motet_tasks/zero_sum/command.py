"""The command `motet exploitability`."""

from typing import TYPE_CHECKING

from motet.commands.console import out, print_json, titled
from motet.commands.from_api import ApiCall, of_api
from motet.commands.options import AsJson

if TYPE_CHECKING:
    from motet_tasks.zero_sum.of_run import ExploitedTeam


@of_api("motet_tasks.zero_sum.of_run:exploit")
def exploitability(call: ApiCall, as_json: AsJson = False) -> None:
    """Compute exactly how much a perfect opponent wins from a team in Kuhn's poker or in bluff.

    Example: motet exploitability runs/kuhn_poker_tiny
    """
    found = call()
    if as_json:
        print_json(found)
    else:
        _print(found)


def _print(found: "ExploitedTeam") -> None:
    table = titled("probability of each move", ["knows", *found.policy])
    known = next(iter(found.policy.values()))
    for one in known:
        cells = (
            ", ".join(f"{move} {chance:.3f}" for move, chance in own[one].items())
            for own in found.policy.values()
        )
        table.add_row(one, *cells)
    out.print(table)
    for agent, value in found.exploitability.items():
        out.print(f"  exploitability of {agent}: {value:.4f} per game")
    out.print(f"  the first to move wins {found.first:+.4f} per game", soft_wrap=True)
