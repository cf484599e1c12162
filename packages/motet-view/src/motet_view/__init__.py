"""The web viewer of runs, `motet view`, and recorded games in the terminal, `motet episodes`.

lines     new whole lines of a file that a run appends to, without reading the file again
index     a SQLite index of the recorded games of a run, brought up to date as the run goes on
queries   lists of games, filtered and paged, from the index
curves    the metrics of a run
shelf     a run folder as the viewer sees it; secrets
game      one game as a tree, with its tokens and advantages
recorded  recorded episodes with their rewards and advantages
team      who persuades whom, conventions, cross-play
pages     the answers of the viewer, as plain JSON
app       serves them on this machine; export.py writes them as files
"""
