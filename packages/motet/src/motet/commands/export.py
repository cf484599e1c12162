"""The command `motet export`: a trained team as one folder that others can use."""

from motet.commands.console import out, print_json
from motet.commands.from_api import ApiCall, of_api
from motet.commands.options import AsJson


@of_api("motet.api.exporting:export")
def export(call: ApiCall, as_json: AsJson = False) -> None:
    """Write a trained team as one folder for transformers, PEFT, vLLM and Motet, with a model card.

    Example: motet export runs/quickstart --into teams/quickstart
    """
    found = call()
    if as_json:
        print_json(found)
        return
    for policy, folder in found.policies.items():
        out.print(f"{policy} is {folder or 'its base model, unchanged'}", soft_wrap=True)
    for line in (*found.copied, *found.left_out):
        out.print(line, soft_wrap=True)
    card = f"{found.folder}/README.md"
    out.print(f"the model card is {card}: read it before you share the folder", soft_wrap=True)
    if found.url is not None:
        out.print(f"pushed to {found.url}", soft_wrap=True)
    out.print(f"play it with: motet play {found.folder}", soft_wrap=True)
