"""The command `motet prices`."""

from pathlib import Path
from typing import Annotated

import typer

import motet
from market_stall.game import BUYER, SELLER, MarketStall, to_buyer, to_seller


def prices(
    run: Annotated[Path, typer.Argument(help="The folder of a run, such as runs/market_stall.")],
) -> None:
    """Print what a trained buyer offers, and which offers a trained seller takes.

    Example: motet prices runs/market_stall
    """
    loaded = motet.load_run(run)
    options = MarketStall.Options(**loaded.config.environment.options)
    coins = range(1, options.most_coins + 1)
    with loaded.team() as team:
        for each in coins:
            offer = team.ask(BUYER, to_buyer(each), greedy=True)
            print(f"with {each} coins the buyer offers {offer.strip()!r}")
        for cost in coins:
            answers = {
                offer: team.ask(SELLER, to_seller(cost, str(offer)), turn=1, greedy=True)
                for offer in coins
            }
            taken = [str(offer) for offer, answer in answers.items() if answer.strip() == "yes"]
            print(f"for a cost of {cost} the seller takes {', '.join(taken) or 'nothing'}")
