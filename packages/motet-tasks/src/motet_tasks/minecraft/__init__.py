"""Two agents build in Minecraft with text commands. The world is simulated; no game is needed.

str_build.py     StrBuild: a picture of blocks, such as a word
house_build.py   HouseBuild: a house in layers, with limited resources and spiders
pictures.py      the pictures: letters, data rows, and ways to divide the work
houses.py        the houses: data rows, rectangles, and generated houses
turns.py         what both share: options, state, prompts of later turns

rewards/minecraft.py reads and runs the commands, rewards/buildings.py scores the result.
"""
