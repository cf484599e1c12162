"""Common English nouns in groups, and which of them are held out."""

import random
from collections.abc import Mapping, Sequence

GROUPS: Mapping[str, Sequence[str]] = {
    group: tuple(words.split())
    for group, words in {
        "animals": "elephant tiger lion bear monkey horse cow sheep goat pig dog cat mouse rabbit "
        "fox wolf deer camel giraffe zebra kangaroo squirrel hedgehog donkey panda gorilla rat bat "
        "leopard hippopotamus",
        "birds and insects": "eagle owl parrot penguin duck goose chicken peacock swan pigeon crow "
        "ostrich turkey bee ant spider butterfly mosquito fly beetle worm grasshopper moth wasp",
        "water animals": "whale shark dolphin octopus crab lobster frog turtle crocodile seal fish "
        "snake lizard jellyfish salmon snail",
        "fruit": "banana apple orange lemon grape strawberry cherry peach pear pineapple mango "
        "coconut melon plum blueberry raspberry fig kiwi apricot "
        "grapefruit",
        "vegetables": "potato tomato carrot onion cabbage spinach cucumber pumpkin mushroom garlic "
        "lettuce broccoli pea bean corn celery radish pepper",
        "food": "bread cheese butter egg honey sugar salt soup salad pizza cake cookie chocolate "
        "sandwich sausage rice pasta pancake jam bacon steak yogurt cereal popcorn pie burger "
        "noodles omelet",
        "drinks": "water milk coffee tea juice wine beer lemonade soda cocktail smoothie champagne",
        "kitchen": "knife fork spoon cup plate bottle bowl pan oven stove refrigerator kettle "
        "toaster blender sink glass napkin jar",
        "furniture": "chair table bed sofa desk shelf wardrobe mirror lamp carpet curtain pillow "
        "blanket drawer bench cradle",
        "house": "door window wall roof stairs garage bathroom kitchen chimney fence balcony "
        "basement attic elevator ceiling floor",
        "clothes": "shirt shoe hat glove jacket dress sock belt scarf sweater coat boot skirt tie "
        "pajamas jeans apron sandal uniform raincoat",
        "small things": "necklace ring crown watch wallet umbrella backpack key lock bag purse "
        "toothbrush comb towel soap perfume lipstick razor bracelet",
        "tools": "hammer screwdriver saw shovel ladder nail rope axe drill needle scissors broom "
        "bucket brush wheelbarrow tape candle rake "
        "pliers wrench magnet",
        "vehicles": "car bus truck train airplane ship boat helicopter submarine bicycle "
        "motorcycle tractor ambulance taxi rocket canoe scooter sled wagon ferry tram van raft",
        "electronics": "telephone television computer camera clock radio keyboard printer robot "
        "microphone headphones calculator battery telescope microscope flashlight",
        "music": "piano guitar violin drum trumpet flute harp accordion saxophone cello "
        "orchestra concert choir opera trombone",
        "sports": "football tennis swimming basketball baseball golf boxing skiing hockey surfing "
        "wrestling archery cricket volleyball marathon gymnastics rugby judo",
        "games and toys": "chess puzzle doll kite balloon dice swing teddy slide riddle "
        "checkers poker trampoline",
        "school and office": "book pencil pen newspaper letter map notebook dictionary ruler "
        "eraser envelope stamp calendar magazine poster",
        "people at work": "doctor nurse teacher farmer soldier lawyer chef pilot sailor painter "
        "singer dancer actor baker carpenter plumber dentist firefighter scientist judge waiter "
        "barber butcher journalist astronaut mechanic tailor librarian",
        "family and roles": "mother father baby brother sister grandmother uncle neighbor friend "
        "bride twin orphan king queen princess pirate wizard knight thief ghost",
        "buildings": "library hospital church museum theater restaurant bank prison airport "
        "factory farm zoo school hotel castle lighthouse bakery stadium bridge tower pyramid tent "
        "supermarket greenhouse pharmacy",
        "nature": "river mountain island ocean beach forest desert lake volcano cave waterfall "
        "valley jungle glacier swamp meadow hill cliff pond bay",
        "weather and sky": "sun moon star rain snow wind cloud rainbow thunder lightning fog storm "
        "tornado planet comet earthquake",
        "plants": "tree flower grass leaf seed rose cactus bamboo sunflower tulip root branch vine "
        "moss palm oak lavender ivy",
        "body": "hand foot nose ear eye mouth tooth tongue hair beard knee elbow finger shoulder "
        "heart brain lung stomach bone skin",
        "materials": "gold silver iron wood plastic cotton leather wool brick concrete rubber silk "
        "diamond paper clay sand glue wax plaster marble",
        "time and feasts": "birthday wedding winter summer autumn spring morning midnight holiday "
        "funeral anniversary christmas halloween weekend breakfast lunch dinner",
        "ideas": "money dream memory secret war peace law music story joke love anger fear luck "
        "silence lie promise hope freedom idea number color language",
        "monsters and tales": "dragon vampire mermaid unicorn witch giant fairy zombie angel devil "
        "mummy werewolf monster dwarf elf phoenix",
    }.items()
}
"""Group -> its words. A word is in one group only."""

NEW_GROUPS = ("music", "vehicles", "water animals")
"""No word of these groups is in the split `train`."""
HELD_OUT = 9
"""Every so many-th word of the other groups is held out for `eval`."""


def words_of_splits() -> dict[str, list[tuple[str, str]]]:
    """Return split -> its words with their groups, always in the same shuffled order.

    eval: words that are not in train, of the same groups. new_groups: all words of three groups, of
    which train has none.
    """
    known = [(word, group) for group, all_ in GROUPS.items() for word in all_]
    new = [pair for pair in known if pair[1] in NEW_GROUPS]
    known = [pair for pair in known if pair[1] not in NEW_GROUPS]
    for pairs in (known, new):
        random.Random(0).shuffle(pairs)
    train = [pair for number, pair in enumerate(known) if number % HELD_OUT]
    return {"train": train, "eval": known[::HELD_OUT], "new_groups": new}
