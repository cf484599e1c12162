"""Several seeds: train two, read all metrics as a DataFrame, and plot the mean with a band.

Run: python examples/several_seeds.py
"""

import motet
import motet_compare

FOLDER = "runs/several_seeds"

if __name__ == "__main__":
    for seed in (0, 1):
        named = [f"name=marloo-seed{seed}", f"seed={seed}"]
        motet.train("examples/same_number.yaml", named, runs=FOLDER, overwrite=True)
    found = motet_compare.runs(f"{FOLDER}/*")
    metrics = found.metrics  # a pandas DataFrame: one row per run and step
    print(metrics.groupby("seed")["play/reward"].describe())
    print(found.statistics.T)  # mean, standard deviation and interval over the seeds
    found.plot(f"{FOLDER}/curve.png", "play/reward", band="std")
    results = found.statistics.iloc[0]
    before, after = results["before_mean"], results["after_mean"]
    print(f"the same number, held out: {before:.2f} -> {after:.2f}")
